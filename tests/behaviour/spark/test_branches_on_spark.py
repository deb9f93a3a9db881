"""Merges and differences on Spark do what they do in this process."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from omnigraph import Graph
from omnigraph.branches import three_way
from omnigraph.errors import MergeConflictsError, QueryCancelledError, SparkError
from omnigraph.maintenance.findings import Health
from omnigraph.pipeline import copying, deltas
from omnigraph.spark import joins, worker_choice
from support.stopping import AtLook, stored

SCHEMA = """
node Person { name: String @key
  age: I32?
  tags: [String]? }
edge Knows: Person -> Person { since: I32? }
"""

#: Counts the edges of a source, so that sources which lose some are looked at.
CARD = "Knows: Person -> Person @card(0..1000)"


def people(first: int, last: int, age: int) -> pa.Table:
    return pa.table(
        {
            "name": [f"p{number:04d}" for number in range(first, last)],
            "age": pa.array([age] * (last - first), pa.int32()),
            "tags": [[f"t{number}", ""] if number % 3 else None for number in range(first, last)],
        }
    )


def knows(first: int, last: int, since: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{number:04d}" for number in numbers],
            "from": [f"p{number % 300:04d}" for number in numbers],
            "to": [f"p{(number * 7) % 300:04d}" for number in numbers],
            "since": pa.array([since] * len(numbers), pa.int32()),
        }
    )


@pytest.fixture
def narrow(spark: Any) -> Iterator[Any]:
    """The session, with a driver that takes a megabyte of results from a job."""
    conf = spark.sparkContext._jsc.sc().conf()
    name = "spark.driver.maxResultSize"
    before = conf.get(name, "1g")
    conf.set(name, "1m")
    yield spark
    conf.set(name, before)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def diverged(tmp_path: Path) -> Graph:
    """Two branches that inserted, updated and deleted on their own, without a conflict."""
    graph = Graph.init(tmp_path / "graph.omni", SCHEMA)
    load(graph, "main", "append", people(0, 300, 1), knows(0, 500, 1))
    graph.create_branch("work")
    load(graph, "work", "merge", people(250, 400, 2), knows(400, 600, 2))
    graph.mutate('query gone() { delete Knows where from = "p0003" }', branch="work")
    load(graph, "main", "merge", people(100, 150, 3), knows(100, 200, 3))
    graph.mutate('query gone() { delete Knows where from = "p0005" }')
    return graph


def load(graph: Graph, branch: str, mode: str, persons: pa.Table, edges: pa.Table) -> None:
    frames = {"Person": persons, "Knows": edges}
    graph.load(frames=frames, mode=mode, branch=branch, engine="local")


def content(graph: Graph, branch: str, path: Path) -> str:
    target = path / f"{branch}.jsonl"
    target.unlink(missing_ok=True)
    graph.export(target, branch=branch, engine="local")
    return target.read_text(encoding="utf-8")


def test_a_merge_on_spark_is_the_merge_of_this_process(
    diverged: Graph, spark: Any, tmp_path: Path
) -> None:
    expected = diverged.diff("main", "work")
    found = diverged.diff("main", "work", engine="spark", spark=spark)
    assert found.changes == expected.changes
    assert found.stats.updates > 0
    preview = diverged.merge("work", dry_run=True)
    result = diverged.merge("work", engine="spark", spark=spark)
    assert result.changes == preview.changes
    assert {item.deleted for item in result.changes} == {0, 2}
    on_spark = content(diverged, "main", tmp_path)
    diverged.create_branch("again", base=str(result.commit and result.commit.parent_id))
    diverged.merge("work", into="again")
    assert content(diverged, "again", tmp_path) == on_spark
    assert not diverged.diff("main", "again").changes


def test_conflicts_found_on_spark_are_those_of_this_process(diverged: Graph, spark: Any) -> None:
    load(diverged, "main", "merge", people(255, 260, 9), knows(450, 455, 9))
    errors = []
    for engine, session in (("local", None), ("spark", spark)):
        with pytest.raises(MergeConflictsError) as caught:
            diverged.merge("work", engine=engine, spark=session)
        errors.append(caught.value)
    assert errors[0].conflicts == errors[1].conflicts
    assert errors[0].total == 10


def test_differences_never_pass_through_the_driver(
    tmp_path: Path, narrow: Any, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than the driver takes from a job, found by tasks, in several ranges of ids."""
    with pytest.raises(Py4JError, match="maxResultSize"):
        narrow.range(300_000).toArrow()
    monkeypatch.setattr(deltas, "_BUCKET_ROWS", 9_000)
    monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
    graph = Graph.init(tmp_path / "graph.omni", SCHEMA)
    load(graph, "main", "append", people(0, 300, 1), knows(0, 10_000, 1))
    graph.load(frames={"Knows": knows(10_000, 20_000, 1)}, mode="append", engine="local")
    graph.create_branch("work")
    # All rows of a file are written again: row lineage has to tell them from others.
    load(graph, "work", "merge", people(0, 400, 2), knows(5_000, 25_000, 2))
    graph.mutate('query gone() { delete Knows where from = "p0003" }', branch="work")
    with Graph.open(graph.uri, read_only=True) as reader:
        found = reader.diff("main", "work", engine="spark", spark=narrow)
        assert found.is_in_files
        assert len(list(scratch.iterdir())) == 2
        (edges,) = (delta for delta in found.deltas if delta.is_edge)
        assert len(edges.rows.parts) > 2
        told = found.changes
        page = list(found.between(12_345, 12_349))
        found.close()
        assert list(scratch.iterdir()) == []
    monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", 1_000_000)
    expected = graph.diff("main", "work", engine="local")
    assert not expected.is_in_files
    assert told == expected.changes
    assert page == expected.changes[12_345:12_349]
    assert found.stats == expected.stats


def test_a_failed_comparison_on_spark_leaves_no_file(
    diverged: Graph, spark: Any, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise ArithmeticError("the task fails")

    monkeypatch.setattr(deltas, "_Match", lambda *_: fail)
    with pytest.raises(SparkError):
        diverged.diff("main", "work", engine="spark", spark=spark)
    gc.collect()
    assert list(scratch.iterdir()) == []
    assert not (diverged._environment.location.path / "__staging").exists()


def test_a_merge_never_passes_through_the_driver(
    tmp_path: Path, narrow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed rows of both sides, deleted ones and their sources: more than the driver takes from a job."""
    monkeypatch.setattr(deltas, "_BUCKET_ROWS", 30_000)
    monkeypatch.setattr(copying, "PART_ROWS", 4_000)
    monkeypatch.setattr(copying, "PART_ROWS", 4_000)
    sizes = {"small_rows": 0, "small_ids": 0, "broadcast_keys": 0}
    monkeypatch.setattr(joins, "SparkJoins", partial(joins.SparkJoins, **sizes))
    graph = Graph.init(tmp_path / "graph.omni", SCHEMA.replace("Knows: Person -> Person", CARD))
    load(graph, "main", "append", people(0, 300, 1), knows(0, 30_000, 1))
    graph.create_branch("work")
    load(graph, "work", "merge", people(0, 400, 2), knows(10_000, 40_000, 2))
    graph.mutate("query gone() { delete Knows where since = 1 }", branch="work")
    graph.load(frames={"Knows": knows(40_000, 45_000, 3)}, mode="append", engine="local")
    graph.create_branch("again")
    result = graph.merge("work", engine="spark", spark=narrow)
    expected = graph.merge("work", into="again", engine="local")
    assert result.changes == expected.changes
    (edges,) = (item for item in result.changes if item.type_key == "edge:Knows")
    assert (edges.inserted, edges.updated, edges.deleted) == (10_000, 20_000, 10_000)
    assert content(graph, "main", tmp_path) == content(graph, "again", tmp_path)
    assert not (graph._environment.location.path / "__staging").exists()
    troubles = {item.check for item in graph.doctor().findings if item.severity is not Health.OK}
    assert troubles <= {"indexes", "versions"}, "nothing was indexed or cleaned up here"


@pytest.mark.parametrize("task", ["copy_rows", "_MarkRows", "decide_bucket"])
def test_a_failed_merge_on_spark_leaves_no_file(
    diverged: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    def fail(*_: object) -> Any:
        raise ArithmeticError("the task fails")

    def files() -> set[Path]:
        return set(diverged._environment.location.path.rglob("*"))

    before = files()
    room = three_way if task == "decide_bucket" else copying
    monkeypatch.setattr(room, task, (lambda *_: fail) if task == "_MarkRows" else fail)
    with pytest.raises(SparkError):
        diverged.merge("work", engine="spark", spark=spark)
    gc.collect()
    assert files() == before
    monkeypatch.undo()
    assert diverged.merge("work").outcome == "merged"


def test_a_merge_that_is_stopped_leaves_nothing_of_its_jobs(diverged: Graph, spark: Any) -> None:
    before = stored(diverged.uri)
    for number in (2, 6, 12):
        with pytest.raises(QueryCancelledError, match="the merge was cancelled"):
            diverged.merge("work", engine="spark", spark=spark, cancel=AtLook(number))
        assert stored(diverged.uri) == before
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert diverged.merge("work", engine="spark", spark=spark).commit is not None
