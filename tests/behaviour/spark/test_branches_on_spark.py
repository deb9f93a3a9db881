"""Merges and differences on Spark do what they do in this process."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from omnigraph.branches import three_way
from omnigraph.core.ids import TableKey
from omnigraph.errors import ExternalBlobSourceError, MergeConflictsError, QueryCancelledError, SparkError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.findings import Health
from omnigraph.pipeline import copying, deltas
from omnigraph.pipeline.exchange import KeyFiles
from omnigraph.pipeline.upsert import Matcher, Upserted
from omnigraph.pipeline.workers import LocalWorkers, Silent, detail, operation
from omnigraph.spark import joins, worker_choice
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.datasets.fragments import stage_replacement, write_rows
from omnigraph.storage.datasets.staged import close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table
from support.graphs import AtLook, stored
from support.papers_with_blobs import SCHEMA as BLOBS_SCHEMA
from support.papers_with_blobs import paper, write_lines
from support.tables import answer_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches that inserted, updated and deleted on their own, without a conflict; every test has a copy."""
    root = tmp_path_factory.mktemp("apart") / "graph.omni"
    with Graph.init(root, SCHEMA) as graph:
        load(graph, "main", "append", people(0, 300, 1), knows(0, 500, 1))
        graph.create_branch("work")
        load(graph, "work", "merge", people(250, 400, 2), knows(400, 600, 2))
        graph.mutate('query gone() { delete Knows where from = "p0003" }', branch="work")
        load(graph, "main", "merge", people(100, 150, 3), knows(100, 200, 3))
        graph.mutate('query gone() { delete Knows where from = "p0005" }')
    return root


@pytest.fixture
def diverged(apart: Path, tmp_path: Path) -> Graph:
    return Graph.open(shutil.copytree(apart, tmp_path / "graph.omni"))


def load(graph: Graph, branch: str, mode: str, persons: pa.Table, edges: pa.Table) -> None:
    frames = {"Person": persons, "Knows": edges}
    graph.load(frames=frames, mode=mode, branch=branch, engine="local")


def content(graph: Graph, branch: str, path: Path) -> str:
    target = path / f"{branch}.jsonl"
    target.unlink(missing_ok=True)
    graph.export(target, branch=branch, engine="local")
    return target.read_text(encoding="utf-8")


def test_a_merge_on_spark_is_the_merge_of_this_process(diverged: Graph, spark: Any, tmp_path: Path) -> None:
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
    assert not (diverged._core.environment.location.path / "__staging").exists()


def test_a_merge_never_passes_through_the_driver(tmp_path: Path, narrow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not (graph._core.environment.location.path / "__staging").exists()
    troubles = {item.check for item in graph.doctor().findings if item.severity is not Health.OK}
    assert troubles <= {"indexes", "versions"}, "nothing was indexed or cleaned up here"


@pytest.mark.parametrize("task", ["copy_rows", "_MarkRows", "decide_bucket"])
def test_a_failed_merge_on_spark_leaves_no_file(
    diverged: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    def fail(*_: object) -> Any:
        raise ArithmeticError("the task fails")

    def files() -> set[Path]:
        return set(diverged._core.environment.location.path.rglob("*"))

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


# ---- A merge of many rows on executors: replaced rows keep their ids beside the data, and answers stay small


MERGING_ON_SPARK_SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
KNOWS = TableKey("edge:Knows")
PEOPLE, EDGES = 50, 3_000


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", MERGING_ON_SPARK_SCHEMA)
    people = [f"p{number}" for number in range(PEOPLE)]
    for begin in (0, EDGES // 2):
        numbers = range(begin, begin + EDGES // 2)
        frames = {"Person": pa.table({"name": people})} if not begin else {}
        frames["Knows"] = pa.table(
            {
                "id": [f"e{number}" for number in numbers],
                "from": [people[number % PEOPLE] for number in numbers],
                "to": [people[0]] * len(numbers),
                "since": pa.array([0] * len(numbers), pa.int32()),
            }
        )
        graph.load(frames=frames, mode="append", engine="local")
    return graph


def new_edges(table: Table) -> list[str]:
    """Two fragments of a merge: most edges in no order from other sources, some twice, and new ones."""
    numbers = np.random.default_rng(3).permutation(EDGES)[:2_500].tolist()
    numbers = [*numbers[:10], *numbers, *range(EDGES, EDGES + 100)]
    written = []
    for begin in range(0, len(numbers), 2_000):
        some = numbers[begin : begin + 2_000]
        rows = pa.table(
            {
                "id": [f"e{number}" for number in some],
                "src": ["p1"] * len(some),
                "dst": ["p2"] * len(some),
                "since": pa.array([begin + place for place in range(len(some))], pa.int32()),
            },
            schema=table.schema,
        )
        written += write_rows(table, rows.to_batches())
    return written


def made(base: Table, merged: Upserted) -> list[dict[str, Any]]:
    """The table after a merge; new rows get their ids in the order of their fragments."""
    private = open_private(stage_replacement(base, merged.fragments, merged.shrunk))
    columns = ["id", "src", "since", "_rowid", "_row_created_at_version"]
    rows = private.table._dataset.to_table(columns=columns).sort_by("id").to_pylist()
    for row in rows:
        if int(row["id"][1:]) >= EDGES:
            del row["_rowid"]
    return rows


def test_many_rows_are_replaced_as_this_process_does(graph: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch):
    base = graph._core.open_table(graph.snapshot().pins[KNOWS])
    before = base._dataset.to_table(columns=["id", "_rowid"])
    fragments = new_edges(base)
    workers = SparkWorkers(spark, Silent())
    answers: list[str] = []
    run_batches = workers.run_batches

    def listened(*given: Any) -> list[Any]:
        found = run_batches(*given)
        answers.extend(map(json.dumps, found))
        return found

    monkeypatch.setattr(workers, "run_batches", listened)
    seen = []
    with answer_folder(graph._core.environment.location) as folder, operation("load", graph.uri), detail("Knows"):
        for matcher in (Matcher(LocalWorkers(Silent())), Matcher(workers, small_rows=0)):
            private = open_private(stage_fragments(base, fragments))
            merged = matcher.upsert(base, private, fragments, with_sources=True, ledgers=folder)
            close_private(private, graph._core.environment.objects)
            sources = sorted(set(merged.old_sources))
            seen.append((made(base, merged), merged.superseded, sources, len(merged.fragments)))
        assert isinstance(merged.old_sources, KeyFiles)
    assert seen[0] == seen[1]
    rows, superseded, sources, _ = seen[0]
    assert superseded == 10
    assert sources == sorted(f"p{number}" for number in range(PEOPLE))
    kept = {row["id"]: row["_rowid"] for row in rows if "_rowid" in row}
    assert kept == dict(zip(before["id"].to_pylist(), before["_rowid"].to_pylist(), strict=True))
    hidden = [text for text in merged.fragments if json.loads(text)["row_id_meta"] == "Column"]
    assert hidden, "the first fragment replaces many"
    assert answers
    assert max(map(len, answers)) < 10_000
    told = "omnigraph load g.omni: {} (Knows)"
    stages = {"match ids", "replace rows"}
    assert {told.format(stage) for stage in stages} <= descriptions(spark)


def descriptions(spark: Any) -> set[str]:
    """What Spark shows of the jobs of a session."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(place).description() for place in range(jobs.size()))
    return {text.get() for text in found if text.isDefined()}


# ---- External blobs in loads on Spark: the policy travels to the tasks, and the tasks read the sources


def test_tasks_hold_the_policy_and_read_the_sources(tmp_path: Path, spark: SparkSession) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.bin").write_bytes(b"outside")
    uri = (outside / "a.bin").as_uri()
    good = write_lines(tmp_path / "good.jsonl", [paper(f"{n}", scan=uri) for n in range(20)])
    gone = write_lines(tmp_path / "gone.jsonl", [paper("x", scan=f"{uri}-gone")])
    bases = [outside.as_uri()]
    with Graph.init(tmp_path / "g.omni", BLOBS_SCHEMA, external_blobs=bases) as graph:
        graph.load(good, mode="append", spark=spark)
        assert graph.read_blob("node:Paper", "7", "scan") == b"outside"
        with pytest.raises(ExternalBlobSourceError, match="No such file"):
            graph.load(gone, mode="append", spark=spark)


# ---- Ctrl-C and SIGTERM during a load, seen from outside: the process ends, and nothing is left


INTERRUPT_SCHEMA = "node Paper { doi: String @key  title: String }"
ROWS = 400_000


@pytest.mark.slow  # a JVM of its own; jobs that an interrupt ends are in `test_jobs`
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_an_interrupted_load_ends_with_130_and_leaves_nothing(tmp_path: Path, as_json: bool, times: int) -> None:
    process, rest, out = interrupted_load(tmp_path, signal.SIGINT, as_json=as_json, times=times)
    assert process.returncode == 130, rest
    if as_json:
        assert json.loads(out)["kind"] == "interrupted"
        assert json.loads(out)["error"] == "cancelled, nothing was written"
    else:
        assert "cancelled, nothing was written" in rest.splitlines()


@pytest.mark.slow  # a JVM of its own
def test_a_terminated_load_ends_with_143_and_leaves_nothing(tmp_path: Path) -> None:
    process, rest, _ = interrupted_load(tmp_path, signal.SIGTERM)
    assert process.returncode == 143, rest
    assert "ended by SIGTERM; nothing was written" in rest.splitlines()


def interrupted_load(
    tmp_path: Path, sent: signal.Signals, *, as_json: bool = False, times: int = 1
) -> tuple[subprocess.Popen[str], str, str]:
    """A load that a signal ends while Spark works; what it printed to stderr after that, and to stdout."""
    root = tmp_path / "papers.omni"
    Graph.init(root, INTERRUPT_SCHEMA).close()
    before = files(root)
    lines = tmp_path / "papers.jsonl"
    with lines.open("w", encoding="utf-8") as out:
        for number in range(ROWS):
            data = {"doi": f"10.1/{number}", "title": f"number {number}"}
            out.write(json.dumps({"type": "Paper", "data": data}) + "\n")
    command = [sys.executable, "-m", "omnigraph", "load", str(root), "--data", str(lines)]
    command += ["--mode", "append", "--engine", "spark", *(["--json"] if as_json else [])]
    process = subprocess.Popen(
        command,
        env=os.environ | {"OMNIGRAPH_SPARK_ARCHIVE": "off", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As a shell does with Ctrl-C: it goes to the whole group, so to the JVM and its workers as well.
        start_new_session=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("start Spark:"):
            break
    for _ in range(times):
        if sent is signal.SIGINT:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        # Signals that come together count once; the job takes longer to end than this.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
    out, rest = process.communicate(timeout=120)
    rest = "".join([*said, rest])
    assert "Traceback" not in rest
    assert files(root) == before
    assert Graph.open(root).query("query q() { match { $p: Paper } return { $p.doi } }").row_count == 0
    assert list(tmp_path.glob("omnigraph-spark-*")) == []
    return process, rest, out


def files(root: Path) -> set[str]:
    """Everything in the graph but its locks."""
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.name.endswith("lock")
    }
