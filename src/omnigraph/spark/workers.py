"""Workers on executors: tasks, secrets of tasks, and exchanges of rows."""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from typing_extensions import override

from omnigraph.core.arrow import Batch
from omnigraph.core.arrow import pa as _pa
from omnigraph.core.failpoints import Failpoint, reach_in_task, task_instruction
from omnigraph.core.ids import new_ulid
from omnigraph.errors import SparkError
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import BUCKET, Exchange, Shuffles, by_bucket, gathered
from omnigraph.pipeline.workers import STOPPING, Item, Message, Progress, TaskSecret, Workers, raise_failure
from omnigraph.spark.jobs import Figures, SparkJobs, interrupts_later, released, shielded, spark_errors
from omnigraph.spark.kinds import is_connect, is_on_this_machine, parallelism_of, tries_of
from omnigraph.spark.tasks import (
    Batches,
    BatchFunction,
    Kept,
    RowTally,
    attempt_number,
    carrying,
    guarded,
    numbers_in,
    partition_number,
    slowly,
)

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, Row, SparkSession


# ---- Secrets of tasks, in two halves
#
# Items are broadcast or sent as files, and Spark writes those to disk. Properties of a job travel in messages only, and
# an event log leaves out the values of those whose name says that they are secret. One half is useless by itself.


@frozen
class Sealed(TaskSecret):
    """A secret as it travels with the items of a stage. Its other half is a property of the Spark job."""

    _data: bytes = field(repr=False)
    #: The property that holds the other half.
    _property: str

    @override
    def open(self) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        pad = None if context is None else context.getLocalProperty(self._property)
        if pad is None:
            raise RuntimeError("a sealed secret is opened outside of its stage")
        return _mixed(self._data, bytes.fromhex(pad)).decode()


def seal(secret: str, property_name: str) -> tuple[Sealed, str]:
    """The two halves of a secret: one for the items of a stage, one for a property of its job."""
    data = secret.encode()
    pad = secrets.token_bytes(len(data))
    return Sealed(_mixed(data, pad), property_name), pad.hex()


def _mixed(data: bytes, pad: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, pad, strict=True))


# ---- Row exchange as a Spark shuffle


#: A task that gets the number of a partition and its rows.
BatchTask: TypeAlias = Callable[[int, Iterable[Batch]], Iterable[Message]]
#: Rows travel packed: for Spark a row is what one task has for one bucket, so that it handles few.
_SENT = _pa.schema([(BUCKET, _pa.int32()), ("rows", _pa.binary())])
_SENT_COLUMNS = f"{BUCKET} int, rows binary"


def sent_rows(spark: SparkSession, exchange: Exchange[Item]) -> DataFrame:
    """The rows of all items, each partition with those of one bucket."""
    numbers = spark.range(0, len(exchange.items), 1, len(exchange.items))
    rows = numbers.mapInArrow(_reader(exchange), _SENT_COLUMNS)
    # By the number itself: hashed numbers would leave some partitions without rows and give others several buckets.
    return rows.repartitionById(exchange.buckets, BUCKET)


def _reader(exchange: Exchange[Item]) -> BatchFunction:
    items, read, buckets = list(exchange.items), exchange.read, exchange.buckets

    def function(batches: Batches) -> Batches:
        for number in numbers_in(batches):
            for run in gathered(read(items[number])):
                yield from _packed(by_bucket(run, buckets))

    return carrying(function)


def _packed(found: Iterable[pa.RecordBatch]) -> Batches:
    for bucket, batch in enumerate(found):
        if batch.num_rows:
            data = batch.serialize()
            # An array of one value, without a copy of it.
            ends = _pa.py_buffer(np.array([0, data.size], np.int32))
            rows = _pa.Array.from_buffers(_pa.binary(), 1, [None, ends, data])
            yield _pa.RecordBatch.from_arrays([_pa.array([bucket], _pa.int32()), rows], schema=_SENT)


def bucket_task(exchange: Exchange[Item]) -> BatchTask:
    """The task that handles the rows of one partition."""
    handle, schema = exchange.handle, exchange.schema

    def task(partition: int, batches: Iterable[Batch]) -> Iterable[Message]:
        del partition  # the rows know better
        sent = [packed.as_buffer() for batch in batches for packed in batch.column(1)]
        if sent:
            rows = _pa.Table.from_batches([_pa.ipc.read_record_batch(one, schema) for one in sent])
            bucket = rows[BUCKET][0].as_py()
            yield handle(bucket, rows) | {BUCKET: bucket}

    return task


# ---- Tasks on Spark executors


_Result = TypeVar("_Result")
_MESSAGES = "number long, message string"
#: Bytes of items that travel inside the plan of a Spark Connect job; more go as a file.
_INLINE_BYTES = 1024 * 1024
#: By default Spark's UI and event log leave out the values of settings whose names match this.
_REDACTED = "spark.redaction.regex"
_DEFAULT_REDACTED = "(?i)secret|password|token|access[.]?key"


class SparkWorkers(Workers, Shuffles):
    """Runs tasks on the executors of a session, classic or of Spark Connect."""

    def __init__(self, spark: SparkSession, progress: Progress) -> None:
        self.spark = spark
        self._progress = progress
        self._is_connect = is_connect(spark)
        self.jobs = SparkJobs(spark)

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once; executors of a cluster arrive after the session."""
        return max(2, shielded(self.spark, lambda: parallelism_of(self.spark)))

    @property
    @override
    def is_on_this_machine(self) -> bool:
        return shielded(self.spark, lambda: is_on_this_machine(self.spark))

    @property
    def tries(self) -> int:
        """The number of attempts of a task."""
        return shielded(self.spark, lambda: tries_of(self.spark))

    @override
    def run(
        self, stage: str, task: Callable[[Item], Message], items: Sequence[Item], *, keep_failures: bool = False
    ) -> list[Message]:
        if not items:
            return []
        with self.shared(list(items)) as some:

            def numbers() -> DataFrame:
                return self.spark.range(0, len(items), 1, len(items))

            found = dict(self._messages(stage, len(items), numbers, _of_items(task, some)))
        if not keep_failures:
            for answer in found.values():
                raise_failure(answer)
        return [found[number] for number in range(len(items))]

    @override
    def run_batches(self, stage: str, task: BatchTask, frame: DataFrame) -> list[Message]:
        messages = [message for _, message in self._messages(stage, 0, lambda: frame, task)]
        for message in messages:
            raise_failure(message)
        return messages

    def _messages(
        self, stage: str, tasks: int, make: Callable[[], DataFrame], task: BatchTask
    ) -> list[tuple[int, Message]]:
        """The answers of a task to all partitions of a frame with their numbers; 0 tasks are as many as Spark says."""
        counter = self._counter()
        with self._progress.stage(stage, tasks) as progress, self._tally() as tally:
            function = _task_function(task, _Guard(self.tries, tally, counter.add, task_instruction()))
            rows = counter.rows_with(tally)

            def watch(figures: Figures) -> None:
                if tasks:
                    progress.update(counter.done(figures), rows())
                else:
                    progress.update(figures.done, rows(), total=figures.total or None)

            def action() -> list[Row]:
                return make().mapInArrow(function, _MESSAGES).collect()

            answers = self.jobs.run(stage, action, watch, partial(progress.tell, STOPPING))
            found = [(int(row["number"]), json.loads(row["message"])) for row in answers]
            progress.update(len(found), sum(int(message.get("rows", 0)) for _, message in found))
        return found

    @override
    def exchange(self, exchange: Exchange[Item]) -> list[Message]:
        sent = shielded(self.spark, lambda: sent_rows(self.spark, exchange))
        answers = self.run_batches(exchange.stage, bucket_task(exchange), sent)
        return sorted(answers, key=lambda answer: int(answer[BUCKET]))

    def collect(self, stage: str, make: Callable[[], DataFrame]) -> list[Row]:
        """The rows of a small result. `make` builds the frame, in the thread of the job.

        Raises:
            SparkError: the job failed.
        """
        return self.act(stage, lambda: make().collect())

    def act(self, stage: str, action: Callable[[], _Result]) -> _Result:
        """The result of any other action.

        Raises:
            SparkError: the job failed.
        """
        with self._progress.stage(stage, 0) as progress:

            def watch(figures: Figures) -> None:
                progress.update(figures.done, 0, total=figures.total or None)

            return self.jobs.run(stage, action, watch, partial(progress.tell, STOPPING))

    @contextmanager
    def shared(self, values: list[object]) -> Iterator[object]:
        """Values that tasks look up by number: each worker process gets them once, not each task."""
        if self._is_connect:
            with _shipped(self.spark, values) as shipped:
                yield shipped
            return
        shared = shielded(self.spark, lambda: self.spark.sparkContext.broadcast(values))
        try:
            yield shared
        finally:
            released(self.spark, shared.destroy)

    @contextmanager
    @override
    def sealing(self, secret: str) -> Iterator[Sealed]:
        # A session of Spark Connect hands its settings on to tasks only when their names begin so.
        name = f"spark.omnigraph.secret.{new_ulid()}"
        pattern = shielded(self.spark, lambda: self.spark.conf.get(_REDACTED, None)) or _DEFAULT_REDACTED
        if not re.search(pattern, name):
            raise SparkError(
                f"the session would write secrets of its jobs into its logs: {_REDACTED} is {pattern!r}, leave it "
                f"out or let it match {name!r}"
            )
        sealed, pad = seal(secret, name)
        self._set_property(name, pad)
        try:
            yield sealed
        finally:
            # A session that has ended keeps nothing, and why it did is being raised.
            with suppress(SparkError):
                self._set_property(name, None)

    def _set_property(self, name: str, value: str | None) -> None:
        """Set a property of the jobs of this thread, or take it away. Not shielded: it belongs to the thread."""
        with spark_errors(self.spark), interrupts_later():
            if not self._is_connect:
                self.spark.sparkContext.setLocalProperty(name, value)  # type: ignore[arg-type]  # its types do not know None
            elif value is None:
                self.spark.conf.unset(name)
            else:
                self.spark.conf.set(name, value)

    @contextmanager
    def _tally(self) -> Iterator[RowTally | None]:
        """The row counter of running tasks; None where they run elsewhere."""
        if not self.is_on_this_machine:
            yield None
            return
        with _rows_folder() as folder:
            yield None if folder is None else RowTally(folder)

    def _counter(self) -> _Counter:
        if self._is_connect:
            return _Counter()
        context = self.spark.sparkContext
        return shielded(self.spark, lambda: _Counter(context.accumulator(0), context.accumulator(0)))


@contextmanager
def _rows_folder() -> Iterator[str | None]:
    """A folder for figures; None where the disk has no room for one, which must not fail the work."""
    with ExitStack() as stack:
        folder = None
        with suppress(OSError):
            # Late tasks may still write into it while it is removed.
            made = tempfile.TemporaryDirectory(prefix="omnigraph-rows-", ignore_cleanup_errors=True)
            folder = stack.enter_context(made)
        yield folder


class _Counter:
    """Counts finished tasks and rows of a running job, where the session can tell."""

    def __init__(self, tasks: Accumulator[int] | None = None, rows: Accumulator[int] | None = None) -> None:
        self._tasks = tasks
        self._rows = rows

    @property
    def add(self) -> Callable[[int, int], None]:
        """The function by which tasks report; it travels to them."""
        tasks, rows = self._tasks, self._rows

        def add(more_tasks: int, more_rows: int) -> None:
            if tasks is not None and rows is not None:
                tasks.add(more_tasks)
                rows.add(more_rows)

        return add

    def done(self, figures: Figures) -> int:
        """The number of finished tasks."""
        return figures.done if self._tasks is None else int(self._tasks.value)

    def rows_with(self, tally: RowTally | None) -> Callable[[], int]:
        """The number of finished rows, of tasks that ended or report progress; 0 where only the answers tell."""
        counted = None if tally is None else slowly(tally.rows)

        def rows() -> int:
            done = 0 if self._rows is None else int(self._rows.value)
            return done if counted is None else max(done, counted())

        return rows


@contextmanager
def _shipped(spark: SparkSession, values: list[object]) -> Iterator[_Shipped]:
    """Values for the tasks of a Spark Connect session: inside the plan when they are few, else as a file."""
    dumps: Callable[[object], bytes] = cloudpickle.dumps  # it has no types
    packed = dumps(values)
    if len(packed) <= _INLINE_BYTES:
        yield _Shipped(packed)
        return
    # The server keeps the file until the session ends; its name is never used again.
    with tempfile.TemporaryDirectory(prefix="omnigraph-items-") as folder:
        name = f"omnigraph-{new_ulid()}.items"
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(packed)
        with spark_errors(spark):
            spark.addArtifacts(path, file=True)
        yield _Shipped(name)


@frozen
class _Shipped:
    """Values that travel with the function of a task, or the name of their file, which every executor has."""

    packed: bytes | str

    @property
    def value(self) -> object:
        with _ITEMS.holding(self.packed, self._load) as values:
            return values

    def _load(self) -> object:
        from pyspark import SparkFiles

        if isinstance(self.packed, bytes):
            return pickle.loads(self.packed)
        with open(SparkFiles.get(self.packed), "rb") as file:
            return pickle.load(file)


#: What the tasks of a stage share in one worker process.
_ITEMS: Kept[object] = Kept()


@frozen
class _Guard:
    """The wrapper of every task: its errors, its row count, and its failpoints."""

    tries: int
    tally: RowTally | None
    count: Callable[[int, int], None]
    instruction: str | None

    def run(self, number: int, work: Callable[[], list[Message]]) -> list[Message]:
        """The answers of a task that has a number of its own in the stage."""
        if self.instruction is not None:
            reach_in_task(Failpoint.IN_TASK, self.instruction, attempt_number())
        with nullcontext() if self.tally is None else self.tally.counting(number):
            return guarded(work, self.tries)


def _of_items(task: Callable[[Item], Message], items: Any) -> BatchTask:
    """The task of partitions that hold the number of an item each; `items` is a broadcast list, or a shipped one."""

    def answers(partition: int, batches: Iterable[Batch]) -> Iterable[Message]:
        del partition  # its number is the one of its item
        return [task(items.value[number]) for number in numbers_in(iter(batches))]

    return answers


def _task_function(task: BatchTask, guard: _Guard) -> BatchFunction:
    def function(batches: Batches) -> Batches:
        partition = partition_number()
        for message in guard.run(partition, lambda: list(task(partition, batches))):
            guard.count(1, int(message.get("rows", 0)))
            yield pa.RecordBatch.from_pydict({"number": [partition], "message": [json.dumps(message)]})

    return function
