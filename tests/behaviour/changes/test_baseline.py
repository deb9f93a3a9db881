"""Baselines: a branch as it is, and the cursor from which its feed goes on without loss or repetition."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, BranchNotFoundError, ChangeCursorRejectedError
from omnigraph.graph.graph import Graph
from support.change_feeds import compact, drop, knows, person, poll, run, set_age, told


@pytest.fixture
def seeded(graph: Graph) -> Graph:
    run(graph, person("ann", 1) + person("bob") + knows("ann", "bob", 1))
    run(graph, 'insert City { name: "oslo", size: 5 } insert LivesIn { from: "ann", to: "oslo" }')
    run(graph, person("gone"))
    run(graph, drop("gone"))
    return graph


def streamed(graph: Graph, branch: str = "main", **filters: Any) -> str:
    out = io.StringIO()
    graph.baseline(branch, out=out, **filters)
    return out.getvalue()


def exported(graph: Graph, branch: str = "main", types: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    graph.export(out, branch=branch, types=types)
    return out.getvalue()


def test_a_baseline_is_what_an_export_writes(seeded: Graph):
    assert streamed(seeded) == exported(seeded)
    assert streamed(seeded).count("\n") == 5


@pytest.mark.parametrize(
    ("filters", "types"),
    [
        ({"kinds": ["node"]}, ("node:Person", "node:City")),
        ({"kinds": ["edge"]}, ("edge:Knows", "edge:LivesIn")),
        ({"types": ["Person"]}, ("Person",)),
        ({"types": ["edge:Knows", "City"]}, ("edge:Knows", "City")),
        ({"kinds": ["node"], "types": ["City", "Knows"]}, ("node:City",)),
    ],
)
def test_a_filtered_baseline_is_what_a_filtered_export_writes(
    seeded: Graph, filters: dict[str, list[str]], types: tuple[str, ...]
):
    text = streamed(seeded, **filters)
    assert text == exported(seeded, types=types)
    assert text


def test_a_baseline_to_a_path_and_to_a_stream_are_the_same(seeded: Graph, tmp_path: Path):
    result = seeded.baseline(out=tmp_path / "all.jsonl")
    assert (tmp_path / "all.jsonl").read_text() == streamed(seeded)
    assert result.target == str(tmp_path / "all.jsonl")


def test_a_baseline_to_standard_output_prints_lines(
    seeded: Graph, capfdbinary: pytest.CaptureFixture[bytes]
):
    result = seeded.baseline(out="-")
    assert capfdbinary.readouterr().out.decode() == exported(seeded)
    assert result.target == "-"


def test_the_result_names_commit_cursor_and_size(seeded: Graph, tmp_path: Path):
    result = seeded.baseline(out=tmp_path / "all.jsonl")
    assert result.snapshot_commit_id == seeded.snapshot().commit_id
    assert result.entities == 5
    assert result.resume_cursor == seeded.feed().cursor
    assert result.to_json() == {
        "target": result.target,
        "entities": 5,
        "snapshot_commit_id": result.snapshot_commit_id,
        "resume_cursor": result.resume_cursor,
    }


def test_a_baseline_of_an_empty_graph_is_empty(graph: Graph):
    out = io.StringIO()
    result = graph.baseline(out=out)
    assert (out.getvalue(), result.entities) == ("", 0)


def test_a_filter_that_selects_no_type_gives_an_empty_baseline(seeded: Graph):
    out = io.StringIO()
    result = seeded.baseline(out=out, kinds=["edge"], types=["Person"])
    assert (out.getvalue(), result.entities) == ("", 0)
    assert seeded.feed(cursor=result.resume_cursor, kinds=["edge"], types=["Person"]).caught_up


def test_a_baseline_of_a_branch_is_that_branch(seeded: Graph):
    seeded.create_branch("work")
    run(seeded, person("on work"), branch="work")
    run(seeded, person("on main"))
    assert streamed(seeded, "work") == exported(seeded, "work")
    assert "on work" in streamed(seeded, "work")
    assert "on main" not in streamed(seeded, "work")


def test_the_feed_goes_on_exactly_behind_a_baseline(seeded: Graph):
    result = seeded.baseline(out=io.StringIO())
    page = seeded.feed(cursor=result.resume_cursor)
    assert (page.blocks, page.caught_up) == ((), True)
    made = [run(seeded, set_age("ann", 2)), run(seeded, drop("bob"))]
    blocks, _ = poll(seeded, cursor=result.resume_cursor)
    assert [block.cause.graph_commit_id for block in blocks] == made


def test_baseline_and_feed_together_are_the_branch(seeded: Graph):
    out = io.StringIO()
    cursor = seeded.baseline(out=out).resume_cursor
    people = {
        line["data"]["id"]: line["data"]["age"]
        for line in map(json.loads, out.getvalue().splitlines())
        if line.get("type") == "Person"
    }
    assert people == {"ann": 1, "bob": None}
    run(seeded, set_age("ann", 2))
    compact(seeded)
    run(seeded, drop("bob"))
    run(seeded, person("cid", 3))
    blocks, _ = poll(seeded, cursor=cursor, limit=1)
    for change in (change for block in blocks for change in block.changes if change.kind == "node"):
        if change.after is None:
            del people[change.id]
        else:
            properties = change.after["properties"]
            assert isinstance(properties, dict)
            people[change.id] = properties["age"]
    assert people == {"ann": 2, "cid": 3}


def test_operations_bind_the_cursor_only(seeded: Graph):
    out = io.StringIO()
    result = seeded.baseline(out=out, ops=["delete"])
    assert out.getvalue() == exported(seeded)
    run(seeded, drop("bob"))
    run(seeded, person("cid"))
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        seeded.feed(cursor=result.resume_cursor)
    blocks, _ = poll(seeded, cursor=result.resume_cursor, ops=["delete"])
    found = [item for block in blocks for item in told(block.changes)]
    assert {op for _, _, op in found} == {"delete"}
    assert ("node:Person", "bob", "delete") in found


def test_the_cursor_is_bound_to_the_filter_of_the_baseline(seeded: Graph):
    result = seeded.baseline(out=io.StringIO(), kinds=["node"])
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        seeded.feed(cursor=result.resume_cursor)
    assert seeded.feed(cursor=result.resume_cursor, kinds=["node"]).caught_up


def test_a_reader_can_take_a_baseline(seeded: Graph):
    with Graph.open(seeded.uri, read_only=True) as reader:
        assert streamed(reader) == exported(seeded)


@pytest.mark.parametrize(
    "filters", [{"kinds": ["table"]}, {"types": ["Robot"]}, {"ops": ["upsert"]}, {"types": "City"}]
)
def test_a_filter_that_names_nothing_is_refused_before_anything_is_written(
    seeded: Graph, tmp_path: Path, filters: Any
):
    with pytest.raises(BadRequestError):
        seeded.baseline(out=tmp_path / "all.jsonl", **filters)
    assert not (tmp_path / "all.jsonl").exists()


def test_a_target_that_exists_is_refused(seeded: Graph, tmp_path: Path):
    target = tmp_path / "all.jsonl"
    target.write_text("mine")
    with pytest.raises(BadRequestError):
        seeded.baseline(out=target)
    assert target.read_text() == "mine"


def test_a_branch_that_is_not_there_has_no_baseline(graph: Graph):
    with pytest.raises(BranchNotFoundError):
        graph.baseline("nowhere", out=io.StringIO())


def test_a_baseline_that_fails_gives_no_cursor(seeded: Graph):
    class Full:
        def write(self, text: str, /) -> object:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        seeded.baseline(out=Full())
