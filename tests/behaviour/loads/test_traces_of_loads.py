"""Loads that fail while others are writing, so that only the ledgers of their tasks tell what they wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.commit.environment import open_environment
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    LoadKeyConflictError,
    LoadRejectedError,
    SparkError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import upsert
from omnigraph.pipeline.load import job as stages
from omnigraph.pipeline.workers import LocalWorkers
from omnigraph.storage.datasets import fragments
from omnigraph.storage.datasets.fragments import Ledger, Ledgers
from support.loads import files_of, good_lines, new_graph, thing, write_lines


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "g.omni")


@contextmanager
def others_writing(graph: Graph) -> Iterator[None]:
    """Another writer has staged files: nobody may remove what no version refers to."""
    other = open_environment(graph._environment.location, durable=False)
    with other.staging.shared():
        yield


def failed(graph: Graph, error: type[BaseException], **options: Any) -> Any:
    """How a load fails while others write, after a look that nothing of it is left."""
    root = Path(graph.uri)
    before = files_of(root)
    with others_writing(graph), pytest.raises(error) as caught:
        graph.load(**({"mode": "append", "engine": "local"} | options))
    assert files_of(root) == before
    assert not (root / "__staging").exists()
    return caught.value


def things(spark: Any, must: str = "cast(id as int)") -> Any:
    """A frame of two partitions."""
    return spark.range(0, 100, 1, 2).selectExpr("concat('f', id) as name", f"{must} as must")


# ---- frames


def test_a_frame_load_whose_task_refuses_leaves_nothing_of_the_other_partitions(
    graph: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    original = stages.FrameTask

    class Refusing:
        """Writes every partition, and refuses the last one afterwards."""

        def __init__(self, *given: Any) -> None:
            self.task = original(*given)

        def __call__(self, partition: int, batches: Any) -> Any:
            yield from self.task(partition, batches)
            if partition == 1:
                raise BadRequestError("not this one")

    monkeypatch.setattr(stages, "FrameTask", Refusing)
    error = failed(
        graph, BadRequestError, frames={"Thing": things(spark)}, engine="spark", spark=spark
    )
    assert "not this one" in str(error)


def test_a_frame_load_whose_task_dies_leaves_nothing_of_any_attempt(
    graph: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    original = stages.FrameTask

    class Dying:
        def __init__(self, *given: Any) -> None:
            self.task = original(*given)

        def __call__(self, partition: int, batches: Any) -> Any:
            yield from self.task(partition, batches)
            if partition == 1:
                raise RuntimeError("the answer was lost")

    monkeypatch.setattr(stages, "FrameTask", Dying)
    frames = {"Thing": things(spark)}
    error = failed(graph, SparkError, frames=frames, engine="spark", spark=spark)
    assert "the answer was lost" in str(error)


def test_a_frame_with_bad_records_leaves_nothing_of_the_good_partitions(graph: Graph, spark: Any):
    frame = things(spark, "if(id = 99, null, cast(id as int))")
    failed(graph, LoadRejectedError, frames={"Thing": frame}, engine="spark", spark=spark)


def test_a_second_frame_that_is_refused_leaves_nothing_of_the_first(graph: Graph):
    frames = {
        "Thing": pa.table({"name": ["x", "y"], "must": pa.array([1, 2], pa.int32())}),
        "Place": pa.table({"series": ["s"], "nonsense": [1]}),
    }
    failed(graph, BadRequestError, frames=frames)


# ---- files


def test_a_load_that_is_interrupted_between_two_parts_leaves_nothing_of_the_first(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        write_lines(folder / f"{name}.jsonl", [thing(f"{name}{n}").encode() for n in range(50)])
    original, passed = stages.stage_part, []

    def interrupted(item: Any) -> Any:
        if passed:
            raise KeyboardInterrupt
        passed.append(original(item))
        return passed[0]

    monkeypatch.setattr(stages, "stage_part", interrupted)
    failed(graph, KeyboardInterrupt, source=folder)
    assert passed, "the first part was written"


def test_an_attempt_whose_answer_was_lost_leaves_nothing_after_the_commit(
    graph: Graph, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", good_lines(100))

    def lost_once(item: Any) -> Any:
        from pyspark import TaskContext

        from omnigraph.pipeline.load.staging import stage_part

        answer = stage_part(item)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the answer was lost")
        return answer

    monkeypatch.setattr(stages, "stage_part", lost_once)
    before = set(files_of(Path(graph.uri)))
    with others_writing(graph):
        graph.load(path, mode="append", spark=spark)
    added = set(files_of(Path(graph.uri))) - before
    # Things, places and two kinds of edges.
    assert (
        len([name for name in added if name.startswith(("nodes", "edges")) and "/data/" in name])
        == 4
    )
    assert not [name for name in added if name.startswith("__staging")]


# ---- merges


@pytest.mark.parametrize("task", ["rewrite_fragment", "shrink_fragment"])
def test_a_merge_that_fails_after_it_wrote_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
):
    path = write_lines(
        tmp_path / "in.jsonl", [thing(name, must=9).encode() for name in ("ann", "bob", "new")]
    )
    original = getattr(upsert, task)

    def failing(item: Any) -> Any:
        original(item)
        raise StorageError("the disk is gone")

    monkeypatch.setattr(upsert, task, failing)
    failed(graph, StorageError, source=path, mode="merge")


def test_a_preparation_that_is_repeated_leaves_nothing_of_the_first_one(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", [thing("ann", must=9).encode()])
    original, left = stages.LoadJob.prepare, [1]

    def rival(job: Any, *given: Any) -> Any:
        prepared = original(job, *given)
        if left:
            left.pop()
            with Graph.open(graph.uri) as other:
                other.mutate('query q() { update Thing set { must: 7 } where name = "bob" }')
        return prepared

    monkeypatch.setattr(stages.LoadJob, "prepare", rival)
    before = set(files_of(Path(graph.uri)))
    with others_writing(graph):
        graph.load(path, mode="merge", engine="local")
    added = {name for name in set(files_of(Path(graph.uri))) - before if "/nodes/" in f"/{name}"}
    # A row and a mark on what it replaced, of the rival and of the load.
    assert len([name for name in added if "/data/" in name]) == 2
    assert len([name for name in added if "/_deletions/" in name]) == 2


# ---- ledgers


def test_a_ledger_that_cannot_be_read_hides_nothing_of_the_others(
    graph: Graph, caplog: pytest.LogCaptureFixture
):
    from omnigraph.storage.datasets.fragments import write_rows

    table = graph._open(graph.snapshot().pins[TableKey("node:Thing")])
    before = files_of(Path(graph.uri))
    fragments = Ledgers.of(graph._environment.location)
    for part in range(2):
        written = write_rows(table, table.read().to_batches())
        ledger = Ledger(fragments.folder, part)
        ledger.note(table, written)
    (Path(graph.uri) / fragments.folder.file("wrote-9-x")).write_bytes(b"not Arrow")
    fragments.close(is_committed=False)
    assert files_of(Path(graph.uri)) == before
    assert "wrote-9-x" in caplog.text


def test_a_ledger_that_comes_while_others_are_removed_is_read_too(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
):
    from omnigraph.storage import answers
    from omnigraph.storage.datasets import fragments as module
    from omnigraph.storage.datasets.fragments import write_rows

    table = graph._open(graph.snapshot().pins[TableKey("node:Thing")])
    before = files_of(Path(graph.uri))
    fragments = Ledgers.of(graph._environment.location)
    delete = module.delete_files

    def write(part: int) -> None:
        Ledger(fragments.folder, part).note(table, write_rows(table, table.read().to_batches()))

    def delete_slowly(*given: Any) -> None:
        """A task that was cancelled ends only now."""
        for room in (answers, module):
            monkeypatch.setattr(room, "delete_files", delete)
        write(1)
        delete(*given)

    write(0)
    for room in (answers, module):
        monkeypatch.setattr(room, "delete_files", delete_slowly)
    fragments.close(is_committed=False)
    assert files_of(Path(graph.uri)) == before
    assert not (Path(graph.uri) / "__staging").exists()


def test_a_ledger_names_no_file_outside_of_the_graph(graph: Graph, tmp_path: Path):
    from omnigraph.storage.answers import write_answer

    mine = tmp_path / "mine.lance"
    mine.write_text("mine")
    fragments = Ledgers.of(graph._environment.location)
    rows = pa.RecordBatch.from_pydict({"file": ["../mine.lance", "_schema.pg"]})
    write_answer(fragments.folder, "wrote-0-x", rows.schema, [rows])
    fragments.close(is_committed=False)
    assert mine.read_text() == "mine"
    assert (Path(graph.uri) / "_schema.pg").exists()


@pytest.mark.parametrize("step", ["the ledger", "the checksums"])
def test_files_go_when_the_step_behind_their_writing_fails(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    """Nothing knows them yet: no answer, no ledger."""

    def full(*_: object, **__: object) -> Any:
        raise StorageError("no space left on device", StorageFailure.PERMANENT)

    lines = write_lines(tmp_path / "things.jsonl", [thing("a").encode()])
    if step == "the ledger":
        monkeypatch.setattr(fragments, "write_answer", full)
    else:
        monkeypatch.setattr(fragments, "fragment_text", full)
    failed(graph, StorageError, source=lines)


def test_a_load_through_a_link_to_the_graph_leaves_nothing_when_it_fails(
    graph: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    link = tmp_path / "current.omni"
    link.symlink_to(Path(graph.uri), target_is_directory=True)
    lines = write_lines(tmp_path / "things.jsonl", [thing("a").encode()])
    with Graph.open(link) as linked:
        linked.load(lines, mode="append", engine="local")
        failed(linked, LoadKeyConflictError, source=lines)
    assert "stays until cleanup" not in caplog.text


def test_local_workers_give_up_at_the_first_part_that_fails():
    """What the parts before it wrote is in their ledgers."""
    from omnigraph.pipeline.workers import Silent

    seen = []

    def task(item: int) -> dict[str, Any]:
        seen.append(item)
        if item == 1:
            raise BadRequestError("no")
        return {}

    with pytest.raises(BadRequestError):
        LocalWorkers(Silent()).run("write", task, range(3))
    assert seen == [0, 1]
