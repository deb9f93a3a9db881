"""Progress of bulk work for people: moving bars on a terminal, plain lines in a log. Always on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING

from omnigraph.cli.output import print_warning, unguarded
from omnigraph.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from omnigraph.pipeline.progress import Progress, StageProgress

#: How often a log hears of a stage that goes on.
HEARTBEAT_S = 30.0
#: Work that took longer ends with a table of its stages.
_TABLE_S = 10.0


def terminal_progress(*, quiet: bool = False) -> Progress:
    """Progress that suits where stderr goes."""
    if quiet:
        from omnigraph.pipeline.progress import Silent

        return Silent()
    return _Terminal() if sys.stderr.isatty() else _Lines()


def print_stages(progress: Progress) -> None:
    """Print where the time went, after work that took long enough to ask for it."""
    finished = progress.finished if isinstance(progress, _Shown) else []
    if sum(item.seconds for item in finished) < _TABLE_S:
        return
    width = max(len(item.name) for item in finished)
    print_warning(f"{'stage':<{width}}  {'rows':>15}  {'seconds':>9}  {'rows/s':>11}")
    for item in finished:
        rows = f"{item.rows:,}" if item.rows else ""
        rate = f"{item.rows / max(item.seconds, 0.001):,.0f}" if item.rows else ""
        print_warning(f"{item.name:<{width}}  {rows:>15}  {item.seconds:>9,.1f}  {rate:>11}")


@dataclass(slots=True)
class _Counter:
    """What a stage has done so far."""

    name: str
    total: int
    tasks: int = 0
    rows: int = 0
    detail: str = ""
    facts: list[str] = field(default_factory=list)
    #: Set when the stage is over.
    seconds: float = 0.0
    _begin: float = field(default_factory=time.monotonic)

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        """As `StageProgress.update`."""
        self.tasks, self.rows = tasks, rows
        self.total = total or self.total

    def tell(self, detail: str) -> None:
        """As `StageProgress.tell`."""
        self.detail = one_line(detail)

    def note(self, fact: str) -> None:
        """As `StageProgress.note`."""
        self.facts.append(one_line(fact))

    @property
    def elapsed_s(self) -> float:
        """How long the stage runs."""
        return time.monotonic() - self._begin

    def end(self) -> None:
        """The stage is over."""
        self.seconds = self.elapsed_s

    def work(self) -> str:
        """How far the stage is: rows, rate, and the time that is left by the share of tasks that are done."""
        elapsed = max(self.elapsed_s, 0.001)
        parts = [self.detail] if self.detail else []
        if self.rows:
            parts.append(f"{self.rows:,} rows, {self.rows / elapsed:,.0f} rows/s")
        if 0 < self.tasks < self.total:
            parts.append(f"about {_duration(elapsed * (self.total / self.tasks - 1))} left")
        return ", ".join(parts)

    def heartbeat(self) -> str:
        """One line about a stage that goes on."""
        tasks = f"{self.tasks:,} of {self.total:,} tasks" if self.total > 1 else ""
        told = ", ".join(part for part in (tasks, self.work()) if part)
        return f"{self.name}, {_duration(self.elapsed_s)}: {told or 'running'}"

    def summary(self) -> str:
        """One line about a finished stage: rows, time, rate."""
        facts = f" ({', '.join(self.facts)})" if self.facts else ""
        if not self.rows:
            return f"{self.name}: {self.seconds:.1f} s{facts}"
        rate = self.rows / max(self.seconds, 0.001)
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        return f"{self.name}: {rows} in {self.seconds:.1f} s ({rate:,.0f} rows/s){facts}"


class _Spoken(_Counter):
    """A stage in a log."""

    def tell(self, detail: str) -> None:
        """As `StageProgress.tell`; that the stage is being stopped is a line of its own."""
        _Counter.tell(self, detail)
        if _is_stopping(detail):
            print_warning(self.detail)


def _is_stopping(detail: str) -> bool:
    # Late: commands that do no bulk work need nothing of the pipeline.
    from omnigraph.pipeline.progress import STOPPING

    return detail.endswith(STOPPING)


class _Shown:
    """Progress that remembers its stages."""

    def __init__(self) -> None:
        self.finished: list[_Counter] = []

    def _finish(self, counter: _Counter) -> None:
        counter.end()
        self.finished.append(counter)
        print_warning(counter.summary())


class _Lines(_Shown):
    """One line per finished stage, and one now and then about a stage that takes long."""

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
        """A stage; its line comes when it is done."""
        counter = _Spoken(one_line(name), tasks)
        over = Event()

        def watch() -> None:
            while not over.wait(HEARTBEAT_S):
                print_warning(counter.heartbeat())

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield counter
        finally:
            over.set()
            watcher.join()
        self._finish(counter)


class _Terminal(_Shown):
    """A moving bar while a stage runs, and its summary when it is done."""

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
            TextColumn("{task.fields[work]}", markup=False),
            console=Console(file=unguarded(sys.stderr)),
            transient=True,
        )
        shown = one_line(name)
        with bar:
            task = bar.add_task(escape(shown), total=tasks or None, work="")
            moving = _Moving(shown, tasks, bar=bar, task=task)
            yield moving
        self._finish(moving)


@dataclass(slots=True, kw_only=True)
class _Moving(_Counter):
    """A stage that shows itself while it runs."""

    bar: RichProgress
    task: TaskID

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        """As `StageProgress.update`."""
        _Counter.update(self, tasks, rows, total=total)
        self._show()

    def tell(self, detail: str) -> None:
        """As `StageProgress.tell`."""
        _Counter.tell(self, detail)
        self._show()
        if _is_stopping(detail):
            # The bar goes with the stage; this line stays.
            self.bar.print(self.detail, markup=False)

    def _show(self) -> None:
        self.bar.update(self.task, completed=self.tasks, total=self.total or None, work=self.work())


def _duration(seconds: float) -> str:
    """A time as a person says it: `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
