"""Progress of bulk work for people: a moving line on a terminal, plain lines in a log. Always on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.cli.output import print_warning, unguarded
from omnigraph.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from omnigraph.pipeline.progress import Progress, StageProgress


def terminal_progress(*, quiet: bool = False) -> Progress:
    """Progress that suits where stderr goes."""
    if quiet:
        from omnigraph.pipeline.progress import Silent

        return Silent()
    return _Terminal() if sys.stderr.isatty() else _Lines()


class _Counter:
    """What a stage has done so far."""

    def __init__(self) -> None:
        self.tasks = 0
        self.rows = 0
        self._begin = time.monotonic()

    def update(self, tasks: int, rows: int) -> None:
        self.tasks, self.rows = tasks, rows

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def summary(self, name: str) -> str:
        """One line about a finished stage: rows, time, rate."""
        if not self.rows:
            return f"{name}: {self.seconds:.1f} s"
        rate = self.rows / max(self.seconds, 0.001)
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        return f"{name}: {rows} in {self.seconds:.1f} s ({rate:,.0f} rows/s)"


class _Lines:
    """One line per finished stage."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage; its line comes when it is done."""
        del tasks
        counter = _Counter()
        yield counter
        print_warning(counter.summary(name))


class _Terminal:
    """A moving line while a stage runs, and its summary when it is done."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage with a bar of its tasks."""
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[work]}"),
            console=Console(file=unguarded(sys.stderr)),
            transient=True,
        )
        with bar:
            moving = _Moving(
                bar, bar.add_task(escape(one_line(name)), total=tasks or None, work="")
            )
            yield moving
        print_warning(moving.summary(name))


class _Moving(_Counter):
    """A stage that shows itself while it runs."""

    def __init__(self, bar: RichProgress, task: TaskID) -> None:
        super().__init__()
        self._bar = bar
        self._task = task

    def update(self, tasks: int, rows: int) -> None:
        super().update(tasks, rows)
        work = f"{rows:,} rows, {rows / max(self.seconds, 0.001):,.0f}/s" if rows else ""
        self._bar.update(self._task, completed=tasks, work=work)
