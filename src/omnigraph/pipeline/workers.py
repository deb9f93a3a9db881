"""Workers that run tasks, their messages and progress, and the names of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Protocol, TypeVar

from typing_extensions import override

from omnigraph.core.arrow import Batch
from omnigraph.core.budget import check_work, work_steps
from omnigraph.errors import OmniError
from omnigraph.errors.bodies import error_from_body
from omnigraph.frozen import frozen

# ---- Progress of bulk work
#
# A task that takes long says on the way how many rows it has done (`advance`); what runs it listens (`listening`).


#: What a stage tells when its work is not wanted any more, and tasks that run have to end first.
STOPPING = "stopping… (running tasks end first)"
_Value = TypeVar("_Value")
#: What hears of the rows of the task that runs here.
_LISTENER: ContextVar[Callable[[int], None] | None] = ContextVar("omnigraph_rows", default=None)


def advance(rows: int) -> None:
    """Say that the task that runs here has done so many more rows."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(rows)


@contextmanager
def listening(listener: Callable[[int], None]) -> Iterator[None]:
    """Hear of the rows of a task that runs in the block."""
    with _during(_LISTENER, listener):
        yield


@contextmanager
def _during(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class StageProgress(Protocol):
    """One running stage. Called from any thread; the numbers only grow."""

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        """So many tasks and rows are done, of so many tasks if that is known. What it raises stops the work."""
        return

    def tell(self, detail: str) -> None:
        """The stage works on this now."""
        return

    def note(self, fact: str) -> None:
        """Something that is worth knowing about the stage when it is over."""
        return


class Progress(Protocol):
    """Receives the progress of bulk work, to show or to log it."""

    def stage(self, name: str, tasks: int) -> AbstractContextManager[StageProgress]:
        """A stage begins; it ends with the block."""


class _Nothing(StageProgress):
    pass


class Silent:
    """Shows nothing: the default of the library."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage whose progress is not shown."""
        del name, tasks
        yield _Nothing()


class InnerProgress:
    """Shows jobs inside of a stage as what the stage works on; shows nothing outside of a stage."""

    def __init__(self) -> None:
        self._outer: StageProgress = _Nothing()
        self._what = ""

    @contextmanager
    def inside(self, outer: StageProgress) -> Iterator[None]:
        """Show jobs of the block in a stage."""
        before, self._outer = self._outer, outer
        try:
            yield
        finally:
            self._outer, self._what = before, ""

    def tell(self, what: str) -> None:
        """The stage works on this from now on."""
        self._what = what
        self._outer.tell(what)

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A job, shown with the tasks that are done."""
        yield _Inner(self._outer, self._what or name, tasks)


class _Inner:
    def __init__(self, outer: StageProgress, name: str, tasks: int) -> None:
        self._outer = outer
        self._name = name
        self._total = tasks

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        del rows
        self._total = total or self._total
        figures = f", {tasks} of {self._total} tasks" if self._total else ""
        self._outer.tell(f"{self._name}{figures}")

    def tell(self, detail: str) -> None:
        self._outer.tell(f"{self._name}: {detail}")

    def note(self, fact: str) -> None:
        self._outer.note(fact)


# ---- Workers: this process, or Spark executors
#
# A task is a module-level function of one plain value; it answers with a small JSON message. Data never travels in
# messages: tasks read and write files. A task may run more than once (retries, speculation), and only the answer of
# one run counts.


Item = TypeVar("Item")
Message = dict[str, Any]
#: Rows of a frame in this process that are handled at once.
_BATCH_ROWS = 131_072


class TaskSecret(Protocol):
    """A secret as it travels with the items of a stage."""

    def open(self) -> str:
        """The secret; inside of a task of the stage it was sealed for."""
        ...


class Workers(Protocol):
    """Runs tasks."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether tasks see the files that this process writes to its disk."""
        ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once; stages are cut into at least so many."""
        ...

    def run(
        self, stage: str, task: Callable[[Item], Message], items: Sequence[Item], *, keep_failures: bool = False
    ) -> list[Message]:
        """The answers of a task to all items, in their order. A member `rows` of an answer counts for progress.

        With `keep_failures` what a task raised on purpose is its answer, for `raise_failure`; tasks of this process
        that did not begin because the work is not wanted any more have that as their answer.

        Raises:
            OmniError: what a task raised on purpose; such a task is not tried again.
            QueryCancelledError, QueryTimeoutError: the work is not wanted any more; no task runs.
            SparkError: a task failed on every try.
        """
        ...

    def run_batches(
        self,
        stage: str,
        task: Callable[[int, Iterable[Batch]], Iterable[Message]],
        frame: Any,  # an Arrow table or a Spark frame, as the implementation takes it
    ) -> list[Message]:
        """The answers of a task to all partitions of a frame; it gets the number of the partition."""
        ...

    def sealing(self, secret: str) -> AbstractContextManager[TaskSecret]:
        """A secret that tasks of the block can open, in a form that may travel and be written."""
        ...


class LocalWorkers(Workers):
    """Runs everything in this process, one task after the other."""

    parallelism = 1
    is_on_this_machine = True

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @override
    def run(
        self, stage: str, task: Callable[[Item], Message], items: Sequence[Item], *, keep_failures: bool = False
    ) -> list[Message]:
        answers: list[Message] = []
        if not items:
            return answers
        rows = 0
        with self._progress.stage(stage, len(items)) as progress:
            tally = _Tally(progress)
            for item in items:
                try:
                    check_work()
                    with listening(tally.add):
                        answers.append(task(item))
                except OmniError as error:
                    if not keep_failures:
                        raise
                    answers.append(failure_message(error))
                rows += int(answers[-1].get("rows", 0))
                tally.end_task(rows)
        return answers

    @override
    def run_batches(
        self, stage: str, task: Callable[[int, Iterable[Batch]], Iterable[Message]], frame: Any
    ) -> list[Message]:
        with self._progress.stage(stage, 1) as progress:
            tally = _Tally(progress)
            with listening(tally.add):
                answers = list(task(0, work_steps(frame.to_batches(max_chunksize=_BATCH_ROWS))))
            tally.end_task(sum(int(answer.get("rows", 0)) for answer in answers))
        return answers

    @contextmanager
    @override
    def sealing(self, secret: str) -> Iterator[TaskSecret]:
        yield _PlainSecret(secret)


@frozen
class _PlainSecret(TaskSecret):
    """A secret that stays in its process."""

    _secret: str = field(repr=False)

    def open(self) -> str:
        return self._secret


class _Tally:
    """Tasks and rows of a stage of this process, shown as they are done."""

    def __init__(self, progress: StageProgress) -> None:
        self._progress = progress
        self._tasks = 0
        self._rows = 0

    def add(self, rows: int) -> None:
        """The task that runs has done so many more rows."""
        self._rows += rows
        self._progress.update(self._tasks, self._rows)

    def end_task(self, rows: int) -> None:
        """A task is over; so many rows are done by its answer and those before it."""
        self._tasks += 1
        self._rows = max(self._rows, rows)
        self._progress.update(self._tasks, self._rows)


def failure_message(error: OmniError) -> Message:
    """A failure on purpose, as a message: it would not go away by trying again."""
    return {"failure": error.to_json(), "status": error.http_status}


def raise_failure(message: Message) -> None:
    """Raise the failure that a message carries, if it does."""
    if "failure" in message:
        raise error_from_body(message["status"], message["failure"])


# ---- The name of the running operation in Spark's UI


_OPERATION: ContextVar[str] = ContextVar("omnigraph_operation", default="")
_DETAIL: ContextVar[str] = ContextVar("omnigraph_detail", default="")


@contextmanager
def operation(kind: str, uri: str) -> Iterator[None]:
    """Name the operation of a block: what it does, and to which graph.

    >>> with operation("load", "/data/papers.omni"), detail("Cites"):
    ...     job_name("check relations")
    'omnigraph load papers.omni: check relations (Cites)'
    """
    with _during(_OPERATION, f"{kind} {uri.rstrip('/').rpartition('/')[2]}"):
        yield


@contextmanager
def detail(text: str) -> Iterator[None]:
    """Name what a stage works on inside a block."""
    with _during(_DETAIL, text):
        yield


def job_name(stage: str) -> str:
    """The description of a job of the operation that runs."""
    operation_name, what = _OPERATION.get(), _DETAIL.get()
    name = f"omnigraph {operation_name}" if operation_name else "omnigraph"
    return f"{name}: {stage}" + (f" ({what})" if what else "")
