"""The changes of one commit against its first parent: cause, order, images, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ChangeCursorRejectedError,
    CommitHasNoParentError,
    NotFoundError,
)
from omnigraph.graph.graph import Graph
from support.change_feeds import compact, drop, knows, load, merge, person, poll, run, set_age, told
from support.graphs import SCALARS

# ---- cause


def test_a_cause_names_commit_parent_branch_actor_and_time(graph: Graph):
    parent = graph.snapshot().commit_id
    graph.create_branch("work")
    for branch, actor in (("main", "act-ann"), ("work", None)):
        made = run(graph, person("ann"), actor=actor, branch=branch)
        wanted = {"graph_commit_id": made, "parent_commit_id": parent, "authored_branch": branch, "actor_id": actor}
        wanted["authored_at"] = graph.commit(made).created_at
        assert graph.changes(made).cause.to_json() == {name: value for name, value in wanted.items() if value}


def test_a_merge_commit_is_told_against_its_first_parent(graph: Graph):
    run(graph, person("ann", 1))
    graph.create_branch("work")
    on_work = run(graph, person("bob"), branch="work")
    on_main = run(graph, person("cid"))
    merged = merge(graph, "work")
    page = graph.changes(merged)
    assert told(page.changes) == [("node:Person", "bob", "insert")]
    assert page.cause.parent_commit_id == on_main
    assert page.cause.merged_parent_commit_id == on_work
    assert page.to_json()["cause"] == page.cause.to_json()
    assert page.cause.to_json()["merged_parent_commit_id"] == on_work


def test_a_fast_forward_is_told_as_one_commit(graph: Graph):
    run(graph, person("ann", 1))
    graph.create_branch("work")
    run(graph, person("bob"), branch="work")
    run(graph, set_age("ann", 2), branch="work")
    assert told(graph.changes(merge(graph, "work")).changes) == [
        ("node:Person", "ann", "update"),
        ("node:Person", "bob", "insert"),
    ]


def test_a_merge_that_changes_nothing_gives_an_empty_page(graph: Graph):
    run(graph, person("ann", 1))
    graph.create_branch("work")
    run(graph, set_age("ann", 2), branch="work")
    run(graph, set_age("ann", 1), branch="work")
    assert graph.changes(merge(graph, "work")).changes == ()


def test_the_first_commit_on_a_branch_is_told_against_the_commit_it_began_at(graph: Graph):
    run(graph, person("ann"))
    graph.create_branch("one")
    graph.create_branch("two", "one")
    run(graph, person("bob"))
    for branch in ("one", "two"):
        made = run(graph, person("cid"), branch=branch)
        assert told(graph.changes(made).changes) == [("node:Person", "cid", "insert")]


# ---- physical commits


def test_a_commit_that_only_builds_indexes_gives_an_empty_page(graph: Graph):
    run(graph, 'insert Person { name: "ann", city: "oslo" }')
    commit = graph.ensure_indices(actor="act-index").commit
    assert commit is not None
    page = graph.changes(commit.commit_id)
    assert (page.changes, page.next_page_token) == ((), None)
    assert page.cause.actor_id == "act-index"


def test_a_commit_that_only_compacts_or_writes_equal_values_gives_an_empty_page(graph: Graph):
    run(graph, person("ann", 1))
    assert graph.changes(run(graph, person("ann", 1))).changes == ()
    run(graph, person("bob"))
    assert graph.changes(compact(graph)).changes == ()


# ---- refusals


def test_the_first_commit_of_a_graph_is_refused(graph: Graph):
    genesis = graph.snapshot().commit_id
    with pytest.raises(CommitHasNoParentError) as caught:
        graph.changes(genesis)
    assert caught.value.details() == {
        "change_diff_refusal": {"reason": "parentless_commit", "graph_commit_id": genesis}
    }


def test_what_is_no_commit_or_one_of_a_deleted_branch_is_not_found(graph: Graph):
    graph.create_branch("work")
    gone = run(graph, person("ann"), branch="work")
    graph.delete_branch("work")
    missing = "there is no commit"
    for name, said in (
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", missing),
        ("no-branch", missing),
        ("", missing),
        (gone, "was deleted"),
    ):
        with pytest.raises(NotFoundError, match=said):
            graph.changes(name)


def test_a_merge_is_told_after_its_source_was_deleted(graph: Graph):
    graph.create_branch("work")
    on_work = run(graph, person("ann"), branch="work")
    merged = merge(graph, "work")
    graph.delete_branch("work")
    page = graph.changes(merged)
    assert told(page.changes) == [("node:Person", "ann", "insert")]
    assert page.cause.merged_parent_commit_id == on_work


# ---- order


def test_nodes_come_before_edges_and_entities_by_type_and_id(graph: Graph):
    run(graph, person("b") + person("d") + knows("b", "d") + 'insert City { name: "rome" }')
    everything = (
        person("c")
        + person("a")
        + person("b", 1)
        + 'insert City { name: "rome", size: 1 } insert City { name: "bonn" }'
        + knows("a", "b")
        + knows("c", "b")
        + 'insert LivesIn { from: "a", to: "rome" }'
    )
    page = graph.changes(run(graph, everything))
    kinds = [change.kind for change in page.changes]
    assert kinds == ["node"] * 5 + ["edge"] * 3
    keys = [(change.kind == "edge", int(change.type_id), change.id) for change in page.changes]
    assert keys == sorted(keys)
    assert {change.op for change in page.changes} == {"insert", "update"}


def test_ids_are_ordered_by_their_bytes(graph: Graph):
    names = ["Z", "a", "ä", "z", "é", "\U0001f600", "\uffff", "10", "9"]
    made = run(graph, "".join(person(name) for name in names))
    told_names = [change.id for change in graph.changes(made).changes]
    assert told_names == sorted(names, key=str.encode)


def test_the_order_is_the_same_for_every_handle(graph: Graph):
    made = run(graph, "".join(person(f"p{number}") for number in range(20)))
    wanted = graph.changes(made).to_json()
    with Graph.open(graph.uri, read_only=True) as other:
        assert other.changes(made).to_json() == wanted


def test_the_id_of_a_type_is_the_same_in_all_commits_and_branches(graph: Graph):
    graph.create_branch("work")
    commits = [run(graph, person("ann")), run(graph, person("bob"), branch="work")]
    found = {change.type_id for made in commits for change in graph.changes(made).changes}
    assert len(found) == 1


# ---- images


def test_a_change_has_an_image_with_all_properties_before_and_after_where_there_is_one(graph: Graph):
    one, two = ({"properties": {"name": "ann", "age": age, "city": None}} for age in (1, 2))
    for text, op, images in (
        (person("ann", 1), "insert", {"after": one}),
        (set_age("ann", 2), "update", {"before": one, "after": two}),
        (drop("ann"), "delete", {"before": two}),
    ):
        (change,) = graph.changes(run(graph, text)).changes
        assert (change.before, change.after) == (images.get("before"), images.get("after"))
        named = {"kind": "node", "type": {"id": change.type_id, "name": "Person"}, "id": "ann", "op": op}
        assert change.to_json() == named | images


def test_the_image_of_an_edge_has_its_endpoints(graph: Graph):
    run(graph, person("ann") + person("bob"))
    (come,) = graph.changes(run(graph, knows("ann", "bob", 3))).changes
    assert come.after == {"properties": {"since": 3}, "endpoints": {"from": "ann", "to": "bob"}}
    went = graph.changes(run(graph, drop("bob"))).changes
    assert told(went) == [("node:Person", "bob", "delete"), ("edge:Knows", come.id, "delete")]
    assert went[1].before == come.after


def test_a_filter_leaves_out_and_never_reclassifies(graph: Graph):
    run(graph, person("ann", 1) + person("bob"))
    made = run(graph, person("ann", 2) + person("cid") + knows("ann", "bob"))
    every = told(graph.changes(made).changes)
    assert [op for _, _, op in every] == ["update", "insert", "insert"]
    for filters in ({"ops": ["update"]}, {"ops": ["insert"]}, {"kinds": ["edge"]}):
        found = told(graph.changes(made, **filters).changes)
        assert found == [item for item in every if item in found]
        assert found
    assert told(graph.changes(made, ops=["update"]).changes) == [("node:Person", "ann", "update")]


# ---- values of every type

VALUES = {
    "text": ["", "é\n\"'\\ \U0001f600"],
    "flag": [True, False],
    "i32": [-(2**31), 2**31 - 1],
    "i64": [-(2**63), 7],
    "u32": [0, 2**32 - 1],
    "u64": [0, 2**64 - 1],
    "f32": [0.1, -0.0],
    "f64": [1e300, 5e-324],
    "day": ["0001-01-01", "2026-02-28"],
    "at": ["1969-12-31T23:59:59.999Z", "2026-05-01T12:00:00.000Z"],
    "stage": ["draft", "final"],
    "tags": [[], ["", "b"]],
    "counts": [[1, 2**53 + 1], [-1]],
    "days": [["2026-01-01"], []],
    "vec": [[0.1, 0.2, 0.3], [0.0, -1.5, 3e38]],
    "data": ["base64:", "base64:AAEC/w=="],
}
#: Integers that readers with floats would round are text.
SPELLED = {-(2**63): str(-(2**63)), 2**64 - 1: str(2**64 - 1), 2**53 + 1: str(2**53 + 1)}


def spelled(value: object) -> object:
    if isinstance(value, list):
        return [spelled(item) for item in value]
    return SPELLED.get(value, value) if isinstance(value, int) else value


def property_before_and_after(graph: Graph, commit_id: str, name: str) -> list[object]:
    (change,) = graph.changes(commit_id).changes
    images = (change.before, change.after)
    return [None if image is None else image["properties"][name] for image in images]


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return Graph.init(tmp_path_factory.mktemp("things") / "g.omni", SCALARS)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_told_exactly_before_and_after(things: Graph, tmp_path: Path, name: str):
    first, second = VALUES[name]

    def write(value: object) -> str:
        line = {"type": "Thing", "data": {"name": f"of {name}", name: value}}
        return load(things, tmp_path, [line], mode="merge")

    inserted, updated, emptied = write(first), write(second), write(None)
    removed = run(things, f'delete Thing where name = "of {name}"')
    assert property_before_and_after(things, inserted, name) == [None, spelled(first)]
    assert property_before_and_after(things, updated, name) == [spelled(first), spelled(second)]
    assert property_before_and_after(things, emptied, name) == [spelled(second), None]
    assert property_before_and_after(things, removed, name) == [None, None]


def test_null_empty_text_and_empty_list_are_different_values(things: Graph, tmp_path: Path):
    def write(**values: object) -> str:
        line = {"type": "Thing", "data": {"name": "empty", **values}}
        return load(things, tmp_path, [line], mode="merge")

    write(text=None, tags=None, data=None)
    (change,) = things.changes(write(text="", tags=[], data="base64:")).changes
    assert change.op == "update"
    told_values = {
        side: [image["properties"][name] for name in ("text", "tags", "data")]
        for side, image in (("before", change.before), ("after", change.after))
        if image is not None
    }
    assert told_values == {"before": [None, None, None], "after": ["", [], "base64:"]}
    assert things.changes(write(text="", tags=[], data="base64:")).changes == ()


def test_a_large_blob_is_told_whole(things: Graph, tmp_path: Path):
    from base64 import b64encode

    data = bytes(range(256)) * 400
    text = f"base64:{b64encode(data).decode()}"
    line = {"type": "Thing", "data": {"name": "large", "data": text}}
    made = load(things, tmp_path, [line])
    assert property_before_and_after(things, made, "data") == [None, text]
    gone = run(things, 'delete Thing where name = "large"')
    assert property_before_and_after(things, gone, "data") == [text, None]


# ---- Baselines: a branch as it is, and the cursor from which its feed goes on without loss or repetition


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


def test_a_baseline_to_standard_output_prints_lines(seeded: Graph, capfdbinary: pytest.CaptureFixture[bytes]):
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


def test_a_baseline_of_an_empty_graph_or_of_no_type_is_empty(graph: Graph):
    for filters in ({}, {"kinds": ["edge"], "types": ["Person"]}):
        out = io.StringIO()
        result = graph.baseline(out=out, **filters)
        assert (out.getvalue(), result.entities) == ("", 0)
        assert graph.feed(cursor=result.resume_cursor, **filters).caught_up
        run(graph, person("ann"))


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


def test_the_cursor_is_bound_to_the_filter_of_the_baseline(seeded: Graph):
    """Operations are no filter of the baseline itself."""
    out = io.StringIO()
    result = seeded.baseline(out=out, ops=["delete"])
    assert out.getvalue() == exported(seeded)
    nodes = seeded.baseline(out=io.StringIO(), kinds=["node"])
    assert seeded.feed(cursor=nodes.resume_cursor, kinds=["node"]).caught_up
    run(seeded, drop("bob"))
    run(seeded, person("cid"))
    for cursor in (result.resume_cursor, nodes.resume_cursor):
        with pytest.raises(ChangeCursorRejectedError, match="another filter"):
            seeded.feed(cursor=cursor)
    blocks, _ = poll(seeded, cursor=result.resume_cursor, ops=["delete"])
    found = [item for block in blocks for item in told(block.changes)]
    assert {op for _, _, op in found} == {"delete"}
    assert ("node:Person", "bob", "delete") in found


def test_a_reader_can_take_a_baseline(seeded: Graph):
    with Graph.open(seeded.uri, read_only=True) as reader:
        assert streamed(reader) == exported(seeded)


@pytest.mark.parametrize(
    "filters", [{"kinds": ["table"]}, {"types": ["Robot"]}, {"ops": ["upsert"]}, {"types": "City"}]
)
def test_a_filter_that_names_nothing_is_refused_before_anything_is_written(seeded: Graph, tmp_path: Path, filters: Any):
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
