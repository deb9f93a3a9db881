"""Progress of bulk work: every stage says how many tasks and rows are done.

A task that takes long says on the way how many rows it has done (`advance`); what runs it listens (`listening`).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


#: What a stage tells when its work is not wanted any more, and tasks that run have to end first.
STOPPING = "stopping… (running tasks end first)"
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
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


class StageProgress(Protocol):
    """One running stage. Called from any thread; the numbers only grow."""

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        """So many tasks and rows are done, of so many tasks if that is known. What it raises stops the work."""
        ...

    def tell(self, detail: str) -> None:
        """The stage works on this now."""
        ...

    def note(self, fact: str) -> None:
        """Something that is worth knowing about the stage when it is over."""
        ...


class Progress(Protocol):
    """Whoever shows progress to a person or writes it to a log."""

    def stage(self, name: str, tasks: int) -> AbstractContextManager[StageProgress]:
        """A stage begins; it ends with the block."""
        ...


class _Nothing:
    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        del tasks, rows, total

    def tell(self, detail: str) -> None:
        del detail

    def note(self, fact: str) -> None:
        del fact


class Silent:
    """Shows nothing: the default of the library."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage that nobody watches."""
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
