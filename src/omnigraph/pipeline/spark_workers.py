"""Tasks on Spark executors: one partition per item, Arrow between Python and the JVM, JSON messages back."""

from __future__ import annotations

import json
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from omnigraph.errors import BadRequestError, OmniError, SparkError
from omnigraph.failpoints import Failpoint, reach_in_task, task_instruction
from omnigraph.ids import new_ulid
from omnigraph.pipeline.sealing import seal
from omnigraph.pipeline.workers import failure_message, raise_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.progress import Progress, StageProgress
    from omnigraph.pipeline.sealing import Sealed
    from omnigraph.pipeline.workers import Item, Message

_MESSAGES = "message string"
_POLL_S = 0.2


class SparkWorkers:
    """Runs tasks on the executors of a session."""

    def __init__(self, spark: SparkSession, progress: Progress) -> None:
        self.spark = spark
        self._progress = progress
        try:
            self._context = spark.sparkContext
        except PySparkException as error:
            raise BadRequestError(
                "the session is one of Spark Connect: give a classic one, or leave it out"
            ) from error

    @property
    def parallelism(self) -> int:
        """How many tasks run at once; executors of a cluster arrive after the session."""
        return max(2, self._context.defaultParallelism)

    def run(
        self,
        stage: str,
        task: Callable[[Item], Message],
        items: Sequence[Item],
        *,
        keep_failures: bool = False,
    ) -> list[Message]:
        """As `Workers.run`."""
        if not items:
            return []
        with self._watched(stage, len(items)) as count, self.shared(list(items)) as shared:
            function = _item_function(task, shared, count, task_instruction())
            numbers = self.spark.range(0, len(items), 1, len(items))
            answers = collect(numbers.mapInArrow(function, f"number long, {_MESSAGES}"))
        found = {int(row["number"]): json.loads(row["message"]) for row in answers}
        if not keep_failures:
            for answer in found.values():
                raise_failure(answer)
        return [found[number] for number in range(len(items))]

    def run_batches(
        self,
        stage: str,
        task: Callable[[int, Iterable[pa.RecordBatch]], Iterable[Message]],
        frame: Any,
    ) -> list[Message]:
        """As `Workers.run_batches`, for a Spark frame."""
        partitions: DataFrame = frame
        with self._watched(stage, 0) as count:
            function = _batches_function(task, count, task_instruction())
            answers = collect(partitions.mapInArrow(function, _MESSAGES))
        messages = [json.loads(row["message"]) for row in answers]
        for message in messages:
            raise_failure(message)
        return messages

    @contextmanager
    def shared(self, values: list[Any]) -> Iterator[Any]:
        """Values that tasks look up by number: each worker process gets them once, not each task."""
        shared = self._context.broadcast(values)
        try:
            yield shared
        finally:
            shared.destroy()

    @contextmanager
    def sealing(self, secret: str) -> Iterator[Sealed]:
        """As `Workers.sealing`: what travels with the items is useless without a property of the job.

        Items are broadcast, and Spark writes broadcasts to disk. Properties travel in messages only; an event log
        leaves out the values of those whose name says that they are secret.
        """
        name = f"omnigraph.secret.{new_ulid()}"
        sealed, pad = seal(secret, name)
        self._context.setLocalProperty(name, pad)
        try:
            yield sealed
        finally:
            # None takes the property away.
            self._context.setLocalProperty(name, None)  # type: ignore[arg-type]  # the types of Spark do not know that

    @contextmanager
    def _watched(self, stage: str, tasks: int) -> Iterator[Callable[[int, int], None]]:
        """Show progress while the block runs a job; gives the function by which tasks report."""
        context = self._context
        done, rows = context.accumulator(0), context.accumulator(0)

        def count(more_tasks: int, more_rows: int) -> None:
            done.add(more_tasks)
            rows.add(more_rows)

        stop, tag = Event(), f"omnigraph-{new_ulid()}"
        refusals: list[OmniError] = []

        def watch(progress: StageProgress) -> None:
            while not stop.wait(_POLL_S):
                try:
                    progress.update(done.value, rows.value)
                except OmniError as refusal:
                    # The work is not wanted any more: its job fails, and the block raises the reason.
                    refusals.append(refusal)
                    context.cancelJobsWithTag(tag)
                    return

        context.addJobTag(tag)
        with self._progress.stage(stage, tasks) as progress:
            watcher = Thread(target=watch, args=(progress,), daemon=True)
            watcher.start()
            try:
                yield count
            except OmniError as failure:
                if refusals:
                    raise refusals[0] from failure
                raise
            finally:
                stop.set()
                watcher.join()
                context.removeJobTag(tag)
            progress.update(done.value, rows.value)


def _item_function(
    task: Callable[[Item], Message],
    items: Any,  # a broadcast list; Spark types its value as anything
    count: Callable[[int, int], None],
    instruction: str | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: Any = batch.column(0)
            for number in numbers.to_pylist():
                _reach(instruction)
                message = _guarded(lambda item: [task(item)], items.value[number])[0]
                count(1, int(message.get("rows", 0)))
                yield pa.RecordBatch.from_pydict(
                    {"number": [number], "message": [json.dumps(message)]}
                )

    return function


def _batches_function(
    task: Callable[[int, Iterable[pa.RecordBatch]], Iterable[Message]],
    count: Callable[[int, int], None],
    instruction: str | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        _reach(instruction)
        for message in _guarded(lambda rows: list(task(partition, rows)), batches):
            count(1, int(message.get("rows", 0)))
            yield pa.RecordBatch.from_pydict({"message": [json.dumps(message)]})

    return function


def _guarded(work: Callable[[Any], list[Message]], item: Any) -> list[Message]:
    """Failures on purpose become messages, so that Spark does not try again; all others are its business."""
    try:
        return work(item)
    except OmniError as error:
        return [failure_message(error)]


def _reach(instruction: str | None) -> None:
    if instruction is not None:
        from pyspark import TaskContext

        context = TaskContext.get()
        reach_in_task(
            Failpoint.IN_TASK, instruction, 0 if context is None else context.attemptNumber()
        )


def collect(frame: DataFrame) -> list[Any]:
    """The messages of a job.

    Raises:
        SparkError: a task failed on every try, or the executors cannot run tasks.
    """
    with spark_errors():
        return frame.collect()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Failures of Spark become one that says what happened.

    Raises:
        SparkError: a job failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkError(f"a Spark job failed, nothing was written: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """The line of a long trace that tells a person what happened."""
    text = str(error)
    if "No module named 'omnigraph'" in text or "No module named 'lance'" in text:
        return (
            "the executors lack the package `omnigraph` or `pylance`: install it into their Python environment, or "
            "ship one with the job (see the guide on Spark clusters)"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if "Error: " in line and not line.startswith(("at ", "org.apache.spark", "File "))
    ]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0][:600]
