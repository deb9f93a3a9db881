"""Loads that make their branch, beside other writers, and what they may never destroy."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.core.failpoints import VARIABLE, reset
from omnigraph.errors import (
    BadRequestError,
    InputFileError,
    LoadRejectedError,
    ReadSetConflictError,
    RetryableCommitConflictError,
)
from omnigraph.pipeline.load import inputs as lines_of_files
from omnigraph.pipeline.load import job as stages
from omnigraph.pipeline.load import staging

SCHEMA = "node Note { text: String }  node Tag { slug: String @key }"
ALL = "query all() { match { $n: Note } return { $n.text as text } order { text } }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    return Graph.init(tmp_path / "g.omni", SCHEMA)


def notes(folder: Path, name: str, *texts: str) -> Path:
    path = folder / name
    path.write_text("".join(f'{{"type": "Note", "data": {{"text": "{t}"}}}}\n' for t in texts))
    return path


def texts_of(graph: Graph, branch: str) -> list[str]:
    with Graph.open(graph.uri, read_only=True) as fresh:
        return [row["text"] for row in fresh.query(ALL, branch=branch).to_pylist()]


def once_staged(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do something after the next load has written its fragments, once."""
    original, left = stages.LoadJob.stage, [action]

    def stage(job: stages.LoadJob, *given: object) -> None:
        original(job, *given)  # type: ignore[arg-type]  # handed on as it is
        if left:
            left.pop()()

    monkeypatch.setattr(stages.LoadJob, "stage", stage)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_new_branch_begins_where_the_load_began_whatever_its_base_does(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    graph.load(notes(tmp_path, "a.jsonl", "old"), mode="append", engine="local")
    rival = notes(tmp_path, "b.jsonl", "rival")
    once_staged(monkeypatch, lambda: graph.load(rival, mode="append", engine="local"))
    source = notes(tmp_path, "c.jsonl", "one", "two")
    receipt = graph.load(source, mode=mode, branch="x", base="main", engine="local")
    kept = [] if mode == "overwrite" else ["old"]
    assert receipt.branch_created
    assert texts_of(graph, "x") == [*kept, "one", "two"]
    assert texts_of(graph, "main") == ["old", "rival"]
    graph.load(notes(tmp_path, "d.jsonl", "more"), mode="append", branch="x", engine="local")
    assert "more" in texts_of(graph, "x")


def test_only_one_load_at_a_time_makes_a_branch(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = notes(tmp_path, "a.jsonl", "one")

    def second() -> None:
        with pytest.raises(RetryableCommitConflictError, match="another writer is making branch"):
            graph.load(source, mode="append", branch="x", base="main", engine="local")
        graph.load(source, mode="append", branch="y", base="main", engine="local")

    once_staged(monkeypatch, second)
    graph.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(graph, "x") == texts_of(graph, "y") == ["one"]


def test_a_branch_that_appears_meanwhile_is_a_conflict_and_stays_whole(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appear() -> None:
        graph.create_branch("x")
        graph.mutate('query add() { insert Note { text: "theirs" } }', branch="x")

    once_staged(monkeypatch, appear)
    source = notes(tmp_path, "a.jsonl", "mine")
    with pytest.raises(ReadSetConflictError, match="branch x"):
        graph.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(graph, "x") == ["theirs"]
    graph.load(source, mode="append", branch="x", engine="local")
    assert texts_of(graph, "x") == ["mine", "theirs"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_branch_inside_of_another_is_refused_before_anything_is_touched(
    graph: Graph, tmp_path: Path, dry_run: bool
) -> None:
    source = notes(tmp_path, "a.jsonl", "one")
    graph.load(source, mode="append", branch="x/y", base="main", engine="local")
    for name in ("x", "x/y/z"):
        with pytest.raises(BadRequestError, match="cannot stand beside"):
            graph.load(
                source, mode="append", branch=name, base="main", engine="local", dry_run=dry_run
            )
    assert texts_of(graph, "x/y") == ["one"]


def test_a_branch_that_was_undone_is_read_as_it_is_made_again(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "before_publish=raise")
    reset()
    with pytest.raises(RuntimeError):
        graph.load(
            notes(tmp_path, "a.jsonl", "lost"),
            mode="append",
            branch="x",
            base="main",
            engine="local",
        )
    monkeypatch.delenv(VARIABLE)
    with Graph.open(graph.uri) as other:
        again = notes(tmp_path, "b.jsonl", "kept")
        other.load(again, mode="append", branch="x", base="main", engine="local")
    assert [row["text"] for row in graph.query(ALL, branch="x").to_pylist()] == ["kept"]


def test_lines_of_a_file_that_feeds_two_types(graph: Graph, tmp_path: Path) -> None:
    people = Graph.init(
        tmp_path / "p.omni", "node P { name: String @key  age: I32? }  edge Boss: P -> P"
    )
    path = tmp_path / "p.csv"
    path.write_text("name,age,boss\na,1,a\nb,2,a\nc,old,a\n")
    mapping = {
        "nodes": {"P": {"source": str(path), "columns": {"name": "name", "age": "age"}}},
        "edges": {"Boss": {"source": str(path), "columns": {}, "from": "name", "to": "boss"}},
    }
    with pytest.raises(LoadRejectedError) as caught:
        people.load(mapping=mapping, mode="append", engine="local")
    assert [item.location for item in caught.value.report.examples] == [f"{path}:4"]
    path.write_text("name,age,boss\na,1,a\nb,2,a\nc,3,nobody\n")
    with pytest.raises(LoadRejectedError) as caught:
        people.load(mapping=mapping, mode="append", engine="local")
    assert [item.location for item in caught.value.report.examples] == [f"{path}:4"]


def test_a_line_of_separators_is_a_record(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "tags.tsv"
    path.write_text("slug\tnote\nx\ty\n\t\n   \nz\t\n")
    mapping = {"nodes": {"Tag": {"source": str(path), "columns": {"slug": "slug"}}}}
    with pytest.raises(LoadRejectedError) as caught:
        graph.load(mapping=mapping, mode="append", engine="local")
    report = caught.value.report
    assert ("missing value for Tag.slug", 3) in [(i.rule, i.line) for i in report.examples]


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_file_that_breaks_off_leaves_no_fragment(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grammar: str
) -> None:
    monkeypatch.setattr(staging, "_BUFFER_BYTES", 100)
    monkeypatch.setattr(lines_of_files, "_BLOCK_BYTES", 64 * 1024)
    packed = tmp_path / "a.jsonl.gz"
    lines = "".join(f'{{"type": "Note", "data": {{"text": "{n}"}}}}\n' for n in range(20_000))
    data = gzip.compress(lines.encode(), compresslevel=1)
    packed.write_bytes(data[: len(data) * 9 // 10])
    before = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
    for branch in ("main", "x"):
        with pytest.raises(InputFileError, match=r"a\.jsonl\.gz"):
            graph.load(
                packed,
                mode="append",
                branch=branch,
                base="main",
                engine="local",
                grammar=grammar,
            )
    after = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
    assert {path for path in after - before if "lock" not in path.name} == set()


# ---- an input is read once


def tag_lines(*slugs: str) -> str:
    return "".join(f'{{"type": "Tag", "data": {{"slug": "{slug}"}}}}\n' for slug in slugs)


def counted_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the parts that are read as a whole, once for each time."""
    original, seen = stages.stage_part, []

    def stage_part(item: staging.StageItem) -> dict[str, object]:
        seen.append(item.part.number)
        return original(item)

    monkeypatch.setattr(stages, "stage_part", stage_part)
    return seen


def tags_of(graph: Graph, branch: str) -> list[str]:
    text = "query all() { match { $t: Tag } return { $t.slug as slug } order { slug } }"
    return [row["slug"] for row in graph.query(text, branch=branch).to_pylist()]


def test_the_input_of_a_new_branch_is_read_once(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = notes(tmp_path, "a.jsonl", *(f"n{number}" for number in range(20_000)))
    read, original = [0], lines_of_files.line_blocks

    def blocks(*given: object) -> object:
        for lines in original(*given):  # type: ignore[arg-type]  # handed on as it is
            read[0] += len(lines)
            yield lines

    monkeypatch.setattr("omnigraph.pipeline.load.reading.line_blocks", blocks)
    graph.load(source, mode="append", branch="x", base="main", engine="local")
    assert read[0] == 20_000
    assert len(texts_of(graph, "x")) == 20_000


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_type_that_appears_late_costs_a_second_reading_of_its_part_alone(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grammar: str
) -> None:
    monkeypatch.setattr(staging, "_LOOK_BYTES", 200)
    monkeypatch.setattr(staging, "_BUFFER_BYTES", 100)
    folder = tmp_path / "in"
    folder.mkdir()
    notes(folder, "a.jsonl", *(f"a{number}" for number in range(100)))
    late = notes(folder, "b.jsonl", *(f"b{number}" for number in range(100)))
    late.write_text(late.read_text() + tag_lines("late"))
    packed = notes(folder, "c.jsonl", *(f"c{number}" for number in range(100)))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    seen = counted_parts(monkeypatch)
    before = set((tmp_path / "g.omni").rglob("*.lance"))
    graph.load(folder, mode="append", branch="x", base="main", engine="local", grammar=grammar)
    assert sorted(seen) == [0, 1, 1, 2]
    assert len(texts_of(graph, "x")) == 300
    assert tags_of(graph, "x") == ["late"]
    assert tags_of(graph, "main") == []
    graph.cleanup(keep=100, confirm=True)
    kept = set((tmp_path / "g.omni").rglob("*.lance")) - before
    assert kept, "what was read twice was written once"
    (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
    assert found.severity == "ok"


def test_the_first_load_on_a_branch_makes_forks_of_the_types_that_it_has(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_branch("dev")
    seen = counted_parts(monkeypatch)
    graph.load(notes(tmp_path, "a.jsonl", "one"), mode="append", branch="dev", engine="local")
    assert seen == [0]
    assert len(list((tmp_path / "g.omni" / "nodes").glob("*/tree/dev"))) == 1


def test_a_part_of_one_long_line_has_its_type_seen(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_LOOK_BYTES", 50)
    source = notes(tmp_path, "a.jsonl", "x" * 500)
    graph.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(graph, "x") == ["x" * 500]
