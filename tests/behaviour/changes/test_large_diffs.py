"""Differences too many for memory: they are in files, read like the others, and leave nothing behind.

The bound is taken down to no row at all, so that a handful of rows goes the way of millions.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.deltas import Operation
from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import deltas
from omnigraph.pipeline.scratch import SCRATCH, Scratch, ScratchPlace
from omnigraph.pipeline.workers import Silent
from omnigraph.spark import worker_choice
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.location import parse_location
from support.change_feeds import compact, drop, knows, load, person, poll, run, set_age, told

MANY = 40


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this machine."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> pytest.MonkeyPatch:
    """Nothing fits into memory, and few rows into a file."""
    monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", 0)
    monkeypatch.setattr(deltas, "_BUCKET_ROWS", 7)
    return monkeypatch


@pytest.fixture
def states(graph: Graph, tmp_path: Path) -> tuple[Graph, str, str]:
    """Many people before and after: some came, some changed, some went with their edges, and all were compacted."""
    people = [
        {"type": "Person", "data": {"name": f"p{n:02d}", "age": n, "city": "x"}}
        for n in range(MANY)
    ]
    ends = [(f"p{n:02d}", f"p{n * 7 % MANY:02d}") for n in range(MANY)]
    edges = [{"edge": "Knows", "from": one, "to": other, "data": {}} for one, other in ends]
    before = load(graph, tmp_path, people + edges)
    changed = [
        {"type": "Person", "data": {"name": f"p{n:02d}", "age": -n, "city": "y"}}
        for n in range(0, MANY, 2)
    ]
    load(graph, tmp_path, changed, mode="merge")
    run(graph, drop("p03"))
    run(graph, drop("p31"))
    load(graph, tmp_path, [{"type": "Person", "data": {"name": f"q{n}"}} for n in range(9)])
    compact(graph)
    return graph, before, run(graph, set_age("p05", 500))


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_they_are_those_of_memory(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, before, after = states
    with small.context() as patch:
        patch.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
        held = graph.diff(before, after, engine="local")
        expected, table = held.to_json(), held.to_arrow()
    assert not held.is_in_files
    assert files(scratch) == []
    # Another graph: this one remembers what it compared.
    with Graph.open(graph.uri, read_only=True) as other:
        found = other.diff(before, after, engine="local")
        assert found.is_in_files
        assert found.to_json() == expected
        assert found.to_arrow().equals(table.combine_chunks())
        assert (len(found), found.stats) == (len(held), held.stats)
        for begin in range(0, len(held) + 2, 5):
            for end in (begin, begin + 1, begin + 6, len(held) + 3):
                assert list(found.between(begin, end)) == list(held.between(begin, end))
        for ops in ([Operation.UPDATE], [Operation.INSERT, Operation.DELETE]):
            some = other.diff(before, after, ops=ops, engine="local")
            assert some.changes == [item for item in held if item.op in ops]
            assert list(some.between(3, 9)) == some.changes[3:9]
            assert len(some) == some.stats.inserts + some.stats.updates + some.stats.deletes
        backwards = other.diff(after, before, engine="local")
        assert len(backwards) == len(held)


def test_files_go_with_the_diff(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, before, after = states
    with graph.diff(before, after, engine="local") as found:
        assert len(files(scratch)) == len(found.deltas) == 2
        first = next(iter(found))
    assert files(scratch) == []
    assert found.stats.inserts == 9
    with pytest.raises(BadRequestError, match="closed"):
        next(iter(found))
    found.close()
    again = graph.diff(before, after, engine="local")
    assert next(iter(again)) == first
    del again
    gc.collect()
    assert files(scratch) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ArithmeticError, MemoryError])
@pytest.mark.parametrize("place", ["_ReadSide", "_Match"])
def test_nothing_is_left_when_it_fails(
    states: tuple[Graph, str, str],
    small: pytest.MonkeyPatch,
    scratch: Path,
    place: str,
    error: type[BaseException],
) -> None:
    graph, before, after = states

    def fail(*_: object) -> Any:
        assert files(scratch), "the work has begun"
        raise error

    small.setattr(getattr(deltas, place), "__call__", fail)
    with pytest.raises(error):
        graph.diff(before, after, engine="local")
    gc.collect()
    assert files(scratch) == []
    assert not (graph._environment.location.path / "__staging").exists()


def test_few_differences_among_many_rows_are_in_memory(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, _, after = states
    compact(graph)
    last = run(graph, set_age("p07", 700))
    # So few may be named that tasks look for them; then they turn out to be few.
    small.setattr(worker_choice, "ELASTIC_ROWS", 3)
    found = graph.diff(after, last, engine="local")
    assert told(found) == [("node:Person", "p07", "update")]
    assert not found.is_in_files
    assert files(scratch) == []


def test_a_setting_says_where_they_lie(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path, tmp_path: Path
) -> None:
    graph, before, after = states
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    small.setenv(SCRATCH, str(chosen))
    with graph.diff(before, after, engine="local"):
        assert len(files(chosen / "__staging")) == 2
        assert files(scratch) == []
    assert files(chosen) == []


def test_a_cleanup_leaves_files_in_the_graph_that_are_still_read(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch
) -> None:
    """Executors of a cluster keep them in the graph when nothing else is said."""
    graph, before, after = states
    small.setattr(ScratchPlace, "location", lambda place, _: (place.root, False))
    found = graph.diff(before, after, engine="local")
    assert found.is_in_files
    with Graph.open(graph.uri) as other:
        other.cleanup(keep=1_000, confirm=True)
        assert len(found.changes) == len(found)
        found.close()
        other.cleanup(keep=1_000, confirm=True)
    assert not (graph._environment.location.path / "__staging").exists()


def test_pages_of_changes_compare_once(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, before, _ = states
    with Graph.open(graph.uri, read_only=True) as calm:
        small.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
        expected, _ = poll(calm, start="beginning", limit=1_000)
    small.setattr(worker_choice, "ELASTIC_ROWS", 0)
    small.setattr(worker_choice, "AUTO", "automatic")  # so that `auto` means this process
    calls: list[int] = []
    real = deltas.filed_deltas

    def counted(pairs: Any, *rest: Any) -> Any:
        calls.append(len(pairs))
        return real(pairs, *rest)

    small.setattr(deltas, "filed_deltas", counted)
    with Graph.open(graph.uri, read_only=True) as other:
        page, changes = other.changes(before, limit=3), []
        changes += page.changes
        while page.next_page_token is not None:
            page = other.changes(before, limit=3, page_token=page.next_page_token)
            changes += page.changes
        assert len(changes) == 2 * MANY
        assert sum(calls) == 2, "a table of nodes and one of edges"
        # A diff of the same states reads the same files, and may be closed without taking them from the pages.
        parent = page.cause.parent_commit_id
        with other.diff(parent, before, engine="local") as found:
            assert len(found) == 2 * MANY
        assert other.changes(before, limit=3).changes == tuple(changes[:3])
        assert sum(calls) == 2
        assert poll(other, start="beginning", limit=4)[0][0].cause == expected[0].cause
    del found
    gc.collect()
    assert files(scratch) == []


def test_blocks_of_a_feed_are_those_of_memory(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch
) -> None:
    graph, _, _ = states
    small.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
    with Graph.open(graph.uri, read_only=True) as other:
        expected, _ = poll(other, start="beginning", limit=1_000)
    small.setattr(worker_choice, "ELASTIC_ROWS", 0)
    small.setattr(worker_choice, "AUTO", "automatic")
    with Graph.open(graph.uri, read_only=True) as other:
        found, _ = poll(other, start="beginning", limit=1_000)
    assert found == expected


def test_long_ids_keep_their_place(graph: Graph, small: pytest.MonkeyPatch) -> None:
    """A page token holds a part of a long id, so the place behind it is looked for."""
    names = [f"{'long ' * 80}{n}" for n in range(6)]
    commit = run(graph, "".join(map(person, names)) + knows(names[0], names[1]))
    small.setattr(worker_choice, "AUTO", "automatic")
    page = graph.changes(commit, limit=2, kinds=["node"])
    seen = [change.id for change in page.changes]
    while page.next_page_token is not None:
        page = graph.changes(commit, limit=2, kinds=["node"], page_token=page.next_page_token)
        seen += [change.id for change in page.changes]
    assert seen == sorted(names)


# ---- where files lie


class _Session:
    """As much of a Spark session as tells where its executors are."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}


def workers_of(master: str) -> SparkWorkers:
    return SparkWorkers(_Session(master), Silent())  # type: ignore[arg-type]  # enough of one


@pytest.mark.parametrize("master", ["local", "local[4]", "local-cluster[2,1,1024]"])
def test_executors_of_this_machine_use_its_folder(
    tmp_path: Path, scratch: Path, master: str
) -> None:
    place = ScratchPlace(root=parse_location(tmp_path / "g.omni"), is_read_only=True)
    location, is_own = place.location(workers_of(master))
    assert is_own
    assert location.path.parent == scratch


def test_executors_of_a_cluster_use_the_graph_or_what_is_named(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cluster = parse_location(tmp_path / "g.omni"), workers_of("spark://host:7077")
    reader = ScratchPlace(root=root, is_read_only=True)
    assert ScratchPlace(root=root).location(cluster) == (root, False)
    with pytest.raises(BadRequestError, match=SCRATCH):
        reader.location(cluster)
    monkeypatch.setenv(SCRATCH, "s3://bucket/scratch")
    named = parse_location("s3://bucket/scratch")
    assert reader.location(cluster) == (named, False)
    assert reader.location(None) == (named, False)
    # A writer keeps its files where it writes anyway.
    assert ScratchPlace(root=root, is_writer=True).location(cluster) == (root, False)
    assert files(scratch) == []


def test_a_fork_of_the_process_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = parse_location(tmp_path)
    mine = Scratch(ScratchPlace(root=root, is_writer=True))
    place = tmp_path / mine.folder(None).name
    place.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 0)
        mine.close()
    assert place.exists()
