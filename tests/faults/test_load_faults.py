"""Loads that fail for reasons outside the data: the graph stays as it was, and nothing is left of them."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.commit import leftovers as tidying
from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.errors import (
    ConflictError,
    ExpectedVersionMismatchError,
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    ReadSetConflictError,
    SparkError,
    StorageError,
)
from omnigraph.graph import loads
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import job as stages
from omnigraph.storage.datasets import fragments
from support.loads import edge, files_of, good_lines, ids_of, new_graph, rows_of, thing, write_lines

MODES = ("append", "merge", "overwrite")
STAGES = (F.LOAD_PLANNED, F.LOAD_FRAGMENTS_WRITTEN, F.LOAD_IDENTIFIED, F.LOAD_CHECKED)
#: What an overwrite has to bring so that no edge of the graph is stranded.
KEPT = [
    *(thing(name, must=9).encode() for name in ("bob", "cid")),
    b'{"type": "Place", "data": {"series": "s", "number": 1}}',
]
#: Large enough for a file of its own.
BLOB = "base64:" + "QUJD" * 200_000


@pytest.fixture(autouse=True)
def _no_failpoint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    failpoints.reset()
    yield
    failpoints.reset()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "g.omni")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two files of records that load in every mode but for ann, who exists: replaced by merge and overwrite."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "a.jsonl", good_lines(100))
    write_lines(folder / "b.jsonl", [thing("x", must=5, data=BLOB).encode()])
    return folder


def for_mode(source: Path, mode: str) -> Path:
    """The records with some that replace committed ones, where the mode may."""
    if mode != "append":
        write_lines(source / "c.jsonl", [*KEPT, thing("ann", must=9).encode()])
    return source


def root_of(graph: Graph) -> Path:
    return Path(graph._core.environment.location.uri)


def leftovers(graph: Graph) -> list[str]:
    """Files that no version refers to."""
    paths = [pin.location for pin in graph.snapshot().pins.values()]
    found = reclaim_staged_files(graph._core.environment, paths, 0.0, preview=True)
    assert found.is_complete
    return [file.name for item in found.removals for file in item.files]


def failed(graph: Graph, error: type[BaseException], source: Any, **options: Any) -> Any:
    """How a load fails, after a look that nothing of it is left."""
    before, commit = files_of(root_of(graph)), graph.snapshot().commit_id
    with pytest.raises(error) as caught:
        graph.load(source, **({"mode": "append", "engine": "local"} | options))
    assert graph.snapshot().commit_id == commit
    assert files_of(root_of(graph)) == before
    return caught.value


def check_loaded(graph: Graph, mode: str = "append") -> None:
    """Everything of `source` is there, once."""
    ids = ids_of(graph, "node:Thing")
    new = [f"t{number}" for number in range(100) if number % 5 < 2]
    assert ids == sorted(["ann", "bob", "cid", "x", *new])
    assert len(ids_of(graph, "edge:Near")) == 20 + (mode != "overwrite")
    assert len(ids_of(graph, "edge:Leads")) == 20 + (mode != "overwrite")


def hook(monkeypatch: pytest.MonkeyPatch, place: F, action: Callable[[], None]) -> list[F]:
    """Do something when a load passes a place; the places that it passed."""
    passed: list[F] = []

    def reach(reached: F) -> None:
        passed.append(reached)
        failpoints.reach(reached)
        if reached is place:
            action()

    monkeypatch.setattr(stages, "reach", reach)
    return passed


def interrupt() -> None:
    raise KeyboardInterrupt


# ---- tasks that fail


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    """The records of `source` in one file: every try of a task costs the start of a worker."""
    lines = [*good_lines(100), thing("x", must=5, data=BLOB).encode()]
    return write_lines(tmp_path / "one.jsonl", lines)


def test_a_task_that_fails_and_then_dies_after_it_wrote_has_its_rows_in_the_commit_once(
    graph: Graph, one_file: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
):
    def written_and_lost(item: Any) -> Any:
        from pyspark import TaskContext

        from omnigraph.pipeline.load.staging import stage_part

        answer = stage_part(item)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 1:
            raise RuntimeError("the answer was lost")
        return answer

    monkeypatch.setenv(failpoints.VARIABLE, "in_task=raise")
    monkeypatch.setattr(stages, "stage_part", written_and_lost)
    result = graph.load(one_file, mode="append", spark=spark)
    assert result.rows == {"node:Thing": 41, "node:Place": 20, "edge:Near": 20, "edge:Leads": 20}
    check_loaded(graph)
    assert leftovers(graph) == [], "the ledger of the second try told what it wrote"


def test_a_task_that_always_fails_ends_the_load_and_names_the_cause(
    graph: Graph, one_file: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
):
    def written_and_lost(item: Any) -> Any:
        from omnigraph.core.failpoints import Failpoint, reach_in_task
        from omnigraph.pipeline.load.staging import stage_part

        stage_part(item)
        reach_in_task(Failpoint.IN_TASK, "in_task@always=raise", 3)

    monkeypatch.setattr(stages, "stage_part", written_and_lost)
    error = failed(graph, SparkError, one_file, engine="spark", spark=spark)
    assert "FailpointError: in_task" in str(error)
    assert "nothing was written" in str(error)
    assert "\n" not in error.message
    monkeypatch.undo()
    graph.load(one_file, mode="append", engine="local")
    check_loaded(graph)


# ---- files that fail


def records(folder: Path, count: int = 20_000) -> Path:
    """A Parquet file with several row groups of things."""
    names = pa.array([f"p{number}" for number in range(count)])
    table = pa.table({"name": names, "must": pa.array(range(count), pa.int32())})
    path = folder / "things.parquet"
    pq.write_table(table, path, row_group_size=count // 4)
    return path


def mapping(path: Path) -> dict[str, Any]:
    return {"nodes": {"Thing": {"source": str(path)}}}


def damage(path: Path, kind: str) -> None:
    body = path.read_bytes()
    match kind:
        case "truncated":
            body = body[: len(body) // 2]
        case "empty":
            body = b""
        case "garbage footer":
            body = body[:-40] + b"\xff" * 36 + b"PAR1"
        case "garbage pages":
            body = body[:100] + b"\xff" * 2000 + body[2100:]
    path.write_bytes(body)


@pytest.mark.parametrize("kind", ["truncated", "empty", "garbage footer", "garbage pages"])
def test_a_damaged_parquet_file_is_named(graph: Graph, tmp_path: Path, kind: str):
    path = records(tmp_path)
    good = graph.load(mapping=mapping(path), mode="append", engine="local", dry_run=True)
    assert good.rows == {"node:Thing": 20_000}
    damage(path, kind)
    error = failed(graph, InputFileError, None, mapping=mapping(path))
    assert error.path == str(path)
    assert str(path) in str(error)


@pytest.mark.parametrize("kind", ["truncated", "garbage"])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_damaged_gz_file_is_named_and_the_good_files_beside_it_leave_nothing(
    graph: Graph, source: Path, request: pytest.FixtureRequest, engine: str, kind: str
):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    path = source / "z.jsonl.gz"
    packed = gzip.compress(b"\n".join(thing(f"z{n}", i32=n).encode() for n in range(5000)))
    path.write_bytes(packed[:-2000] if kind == "truncated" else packed[:100] + b"?" * 3000)
    error = failed(graph, InputFileError, source, engine=engine, spark=spark)
    assert error.path == str(path)
    path.write_bytes(packed)
    graph.load(source, mode="append", engine="local")
    assert len(ids_of(graph, "node:Thing")) == 5044


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_file_or_table_that_is_removed_between_planning_and_reading_is_named(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, engine: str
):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    gone = source / "b.jsonl"
    hook(monkeypatch, F.LOAD_PLANNED, gone.unlink)
    error = failed(graph, InputFileError, source, engine=engine, spark=spark)
    assert error.path == str(gone)
    assert error.to_json()["path"] == str(gone)
    path = records(source.parent)
    hook(monkeypatch, F.LOAD_PLANNED, path.unlink)
    assert failed(graph, InputFileError, None, mapping=mapping(path)).path == str(path)


def test_a_file_that_vanishes_after_it_was_read_is_reported_with_its_lines(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", [edge("Leads", "ghost", "bob").encode()])
    hook(monkeypatch, F.LOAD_FRAGMENTS_WRITTEN, path.unlink)
    (record,) = failed(graph, LoadRejectedError, path).report.examples
    assert (record.source, record.line, record.value) == (str(path), 1, "ghost")


@pytest.mark.parametrize("name", ["missing.jsonl", "missing/*.jsonl", "empty"])
def test_an_input_that_does_not_exist_is_named(graph: Graph, tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    error = failed(graph, InputFileError, tmp_path / name)
    assert error.path == str(tmp_path / name)


# ---- a disk that is full

#: A limit on the size of files stands in for the full disk: every write beyond it fails, as on a full disk.
CHILD = """
import resource, sys
from omnigraph.errors import StorageError
from omnigraph.graph.graph import Graph
import omnigraph.graph.loads
root, source = sys.argv[1:]
with Graph.open(root) as graph:
    before = graph.snapshot()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for mode in ("append", "merge"):
        for limit in (64, 8 * 1024):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                graph.load(source, mode=mode, engine="local")
            except StorageError as error:
                print("refused", mode, limit)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            graph.refresh()
            assert graph.snapshot() == before, "something became visible"
"""


def test_a_load_without_room_is_refused_leaves_nothing_and_works_when_there_is_room_again(graph: Graph, source: Path):
    graph.close()
    root = root_of(graph)
    before = files_of(root)
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), str(source)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "refused append 64",
        "refused append 8192",
        "refused merge 64",
        "refused merge 8192",
    ]
    assert files_of(root) == before
    with Graph.open(root) as again:
        again.load(source, mode="append", engine="local")
        check_loaded(again)


# ---- lost races


class Rival:
    """Another writer of the graph, that writes when it is called; the n-th call writes the n-th query."""

    def __init__(self, root: Path, *queries: str) -> None:
        self._root = root
        self._queries = list(queries)
        self.commits = 0

    def __call__(self) -> None:
        if self._queries:
            with Graph.open(self._root) as graph:
                graph.mutate(f"query w() {{ {self._queries.pop(0)} }}")
            self.commits += 1


NEW = 'insert Thing { name: "rival", must: 7 }'


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_lost_a_race_checks_again_and_both_writes_are_there(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    rival = Rival(root_of(graph), NEW, 'update Thing set { must: 8 } where name = "ann"')
    passed = hook(monkeypatch, F.LOAD_CHECKED, rival)
    graph.load(for_mode(source, mode), mode=mode, engine="local")
    assert rival.commits == 2
    assert passed.count(F.LOAD_CHECKED) == 3
    assert passed.count(F.LOAD_FRAGMENTS_WRITTEN) == 1, "the input is read once"
    rows = {row["id"]: row["must"] for row in rows_of(graph, "node:Thing")}
    assert (rows["rival"], rows["x"], rows["t0"]) == (7, 5, 0)
    assert rows["ann"] == (9 if mode == "merge" else 8), "a merge comes after the rival"
    assert len(rows) == 45
    assert leftovers(graph) == []
    assert graph.commits()[0].commit_id == graph.snapshot().commit_id
    assert len(graph.commits()) == len({item.commit_id for item in graph.commits()})


@pytest.mark.parametrize("place", [F.LOAD_FRAGMENTS_WRITTEN, F.LOAD_CHECKED])
def test_an_overwrite_that_lost_a_race_reports_the_conflict(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, place: F
):
    hook(monkeypatch, place, Rival(root_of(graph), NEW))
    with pytest.raises(ExpectedVersionMismatchError, match="node:Thing"):
        graph.load(for_mode(source, "overwrite"), mode="overwrite", engine="local")
    assert ids_of(graph, "node:Thing") == ["ann", "bob", "cid", "rival"]
    assert leftovers(graph) == []
    graph.load(source, mode="overwrite", engine="local")
    check_loaded(graph, "overwrite")


def test_a_race_over_a_table_that_a_load_neither_writes_nor_reads_is_no_race(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch
):
    passed = hook(monkeypatch, F.LOAD_CHECKED, Rival(root_of(graph), 'insert Note { text: "hello" }'))
    graph.load(for_mode(source, "overwrite"), mode="overwrite", engine="local")
    assert passed.count(F.LOAD_CHECKED) == 1
    check_loaded(graph, "overwrite")
    assert len(ids_of(graph, "node:Note")) == 1


def test_an_append_that_lost_a_race_for_an_id_is_a_key_conflict_and_a_merge_replaces_the_row_of_the_rival(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch
):
    hook(monkeypatch, F.LOAD_CHECKED, Rival(root_of(graph), 'insert Thing { name: "t5", must: 7 }'))
    with pytest.raises(LoadKeyConflictError) as caught:
        graph.load(source, mode="append", engine="local")
    assert caught.value.entity_id == "t5"
    assert caught.value.report.examples[0].location == f"{source / 'a.jsonl'}:6"
    assert ids_of(graph, "node:Thing") == ["ann", "bob", "cid", "t5"]
    assert leftovers(graph) == []
    hook(monkeypatch, F.LOAD_CHECKED, Rival(root_of(graph), 'insert Thing { name: "t6", must: 7 }'))
    graph.load(source, mode="merge", engine="local")
    check_loaded(graph)
    rows = {row["id"]: row["must"] for row in rows_of(graph, "node:Thing")}
    assert (rows["t5"], rows["t6"]) == (5, 6)
    assert leftovers(graph) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_race_that_takes_away_the_end_of_an_edge_is_seen(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    path = write_lines(tmp_path / "in.jsonl", [edge("Near", "ann", '["1","s"]').encode()])
    rival = Rival(
        root_of(graph),
        'delete Reviews where from = "ann" delete Leads where from = "ann" delete Thing where name = "ann"',
    )
    hook(monkeypatch, F.LOAD_CHECKED, rival)
    expected = ConflictError if mode == "overwrite" else LoadRejectedError
    with pytest.raises(expected):
        graph.load(path, mode=mode, engine="local")
    assert rival.commits == 1
    assert ids_of(graph, "node:Thing") == ["bob", "cid"]
    assert len(ids_of(graph, "edge:Near")) == 1
    assert leftovers(graph) == []


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_keeps_losing_gives_up_and_leaves_nothing(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    monkeypatch.setattr(loads, "POLICY", replace(loads.POLICY, tries=3))
    queries = [f'insert Thing {{ name: "rival{number}", must: 7 }}' for number in range(9)]
    rival = Rival(root_of(graph), *queries)
    hook(monkeypatch, F.LOAD_CHECKED, rival)
    with pytest.raises(ConflictError):
        graph.load(for_mode(source, mode), mode=mode, engine="local")
    assert rival.commits == 3
    assert "x" not in ids_of(graph, "node:Thing")
    assert leftovers(graph) == []


def test_a_load_into_a_branch_that_somebody_else_creates_meanwhile_does_not_lose_their_rows(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch
):
    def create() -> None:
        with Graph.open(root_of(graph)) as other:
            if "dev" not in other.branches():
                other.create_branch("dev")
                other.mutate(f"query w() {{ {NEW} }}", branch="dev")

    hook(monkeypatch, F.LOAD_CHECKED, create)
    with pytest.raises(ReadSetConflictError, match="branch dev"):
        graph.load(source, mode="append", engine="local", branch="dev", base="main")
    graph.load(source, mode="append", engine="local", branch="dev", base="main")
    ids = ids_of(graph, "node:Thing", "dev")
    assert {"rival", "x", "t0", "ann"} <= set(ids)
    assert len(ids) == 45
    assert ids_of(graph, "node:Thing") == ["ann", "bob", "cid"]


@pytest.mark.parametrize("mode", MODES)
def test_a_schema_that_changed_meanwhile_is_a_conflict(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    def change() -> None:
        with Graph.open(root_of(graph)) as other:
            if "Later" not in other.schema:
                wanted = other.schema + "\nnode Later { key: String @key }"
                other.apply_schema(wanted, engine="local")

    hook(monkeypatch, F.LOAD_FRAGMENTS_WRITTEN, change)
    with pytest.raises(ReadSetConflictError, match="the schema"):
        graph.load(for_mode(source, mode), mode=mode, engine="local")
    assert ids_of(graph, "node:Thing") == ["ann", "bob", "cid"]
    assert leftovers(graph) == []


# ---- interrupts and failures of the process itself


@pytest.mark.parametrize(("place", "mode"), list(zip(STAGES, (*MODES, "merge"), strict=True)))
def test_an_interrupted_load_leaves_nothing(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, place: F, mode: str
):
    hook(monkeypatch, place, interrupt)
    failed(graph, KeyboardInterrupt, for_mode(source, mode), mode=mode)


@pytest.mark.parametrize("place", STAGES)
def test_an_interrupted_load_of_a_new_branch_leaves_neither_branch_nor_files(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, place: F
):
    hook(monkeypatch, place, interrupt)
    failed(graph, KeyboardInterrupt, source, branch="dev", base="main")
    assert graph.branches() == ["main"]
    monkeypatch.undo()
    graph.load(source, mode="append", engine="local", branch="dev", base="main")
    assert len(ids_of(graph, "node:Thing", "dev")) == 44


def test_an_interrupt_between_two_files_leaves_nothing_of_the_first(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch
):
    stage_part, parts = stages.stage_part, []

    def interrupted(item: Any) -> Any:
        parts.append(item)
        if len(parts) > 1:
            interrupt()
        return stage_part(item)

    monkeypatch.setattr(stages, "stage_part", interrupted)
    failed(graph, KeyboardInterrupt, source)
    assert len(parts) == 2


def test_an_interrupt_of_a_load_on_spark_leaves_nothing(
    graph: Graph, source: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
):
    hook(monkeypatch, F.LOAD_CHECKED, interrupt)
    failed(graph, KeyboardInterrupt, for_mode(source, "merge"), mode="merge", spark=spark)


def test_a_file_that_cannot_be_removed_does_not_hide_how_the_load_ended(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", [edge("Leads", "ghost", "bob").encode()])

    def refuse(*_: object) -> None:
        raise StorageError("the disk is read-only now")

    commit = graph.snapshot().commit_id
    with monkeypatch.context() as patch:
        patch.setattr(fragments, "delete_files", refuse)
        patch.setattr(tidying, "reclaim_staged_files", refuse)
        with pytest.raises(LoadRejectedError):
            graph.load(path, mode="append", engine="local")
    assert graph.snapshot().commit_id == commit
    assert leftovers(graph), "what stays is known to be left over"
    paths = [pin.location for pin in graph.snapshot().pins.values()]
    reclaim_staged_files(graph._core.environment, paths, 0.0)
    assert leftovers(graph) == []


def test_a_dry_run_leaves_nothing_in_any_mode(graph: Graph, source: Path):
    before = files_of(root_of(graph))
    for mode in MODES:
        result = graph.load(for_mode(source, mode), mode=mode, engine="local", dry_run=True)
        assert (result.commit, result.dry_run) == (None, True)
        (source / "c.jsonl").unlink(missing_ok=True)
    graph.load(source, mode="append", engine="local", branch="dev", base="main", dry_run=True)
    assert files_of(root_of(graph)) == before
    assert graph.branches() == ["main"]
