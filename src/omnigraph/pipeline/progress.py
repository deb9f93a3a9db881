"""Progress of bulk work: every stage says how many tasks and rows are done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class StageProgress(Protocol):
    """One running stage. Called from any thread; the numbers only grow."""

    def update(self, tasks: int, rows: int) -> None:
        """So many tasks and rows are done. What it raises stops the work."""
        ...


class Progress(Protocol):
    """Whoever shows progress to a person or writes it to a log."""

    def stage(self, name: str, tasks: int) -> AbstractContextManager[StageProgress]:
        """A stage begins; it ends with the block."""
        ...


class _Nothing:
    def update(self, tasks: int, rows: int) -> None:
        del tasks, rows


class Silent:
    """Shows nothing: the default of the library."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage that nobody watches."""
        del name, tasks
        yield _Nothing()


class BoundedProgress:
    """Shows progress, and stops the work when a check raises."""

    def __init__(self, shown: Progress, check: Callable[[], None]) -> None:
        self._shown = shown
        self._check = check

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage that looks whether it is still wanted whenever something is done."""
        self._check()
        with self._shown.stage(name, tasks) as stage:
            yield _Checked(stage, self._check)


class _Checked:
    def __init__(self, shown: StageProgress, check: Callable[[], None]) -> None:
        self._shown = shown
        self._check = check

    def update(self, tasks: int, rows: int) -> None:
        self._shown.update(tasks, rows)
        self._check()
