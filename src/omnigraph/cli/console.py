"""Standard output and error, progress, and Ctrl-C."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, TextIO, TypeVar, cast

from omnigraph.core.env_settings import Variable
from omnigraph.errors import MergeConflictsError, OmniError, UnauthorizedError, is_panic
from omnigraph.errors.text import one_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from omnigraph.pipeline.workers import Progress, StageProgress


# ---- Printing to stdout and stderr
#
# This is the border to the terminal. What is printed for people passes `printable`; while a command runs, so does all
# that other libraries print to stderr, and to stdout when that is a terminal. Only data for programs is written as it
# is, and only where no terminal reads it.


_HOW_TO_LOG_IN = (
    "give a token: `omnigraph login NAME` for a server of your configuration, or the variable OMNIGRAPH_BEARER_TOKEN"
)

_Item_co = TypeVar("_Item_co", covariant=True)
#: Pieces of a document that are printed together.
_PIECES = 8_192


class PrintableStream:
    """A stream of text that escapes what a terminal would obey; bytes cannot be written to it."""

    def __init__(self, stream: TextIO) -> None:
        #: For what moves the cursor itself.
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text; where the reader is gone, it is lost."""
        with suppress(BrokenPipeError):
            self.unguarded.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> NoReturn:
        """There is none: bytes would pass unseen."""
        raise AttributeError("buffer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class ReaderGoneError(SystemExit):
    """The reader of stdout closed its end: `| head` has seen enough. Exits like a process that SIGPIPE ended."""

    def __init__(self) -> None:
        super().__init__(_SIGNALLED + signal.SIGPIPE)


class PipedStream:
    """A stream of text or bytes to a pipe or a file; writing to it when the reader is gone ends the process."""

    def __init__(self, stream: TextIO | BinaryIO) -> None:
        self.unguarded = stream

    def write(self, content: Any) -> int:  # text or bytes, as the stream takes it
        """Write a text, or bytes.

        Raises:
            ReaderGoneError: the reader closed its end.
        """
        try:
            return self.unguarded.write(content)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def flush(self) -> None:
        """Write what is held back.

        Raises:
            ReaderGoneError: the reader closed its end.
        """
        try:
            self.unguarded.flush()
        except BrokenPipeError:
            # What is still in the buffer has no reader, and Python would try once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.unguarded.fileno())
            raise ReaderGoneError from None

    @property
    def buffer(self) -> PipedStream:
        """The stream of bytes below."""
        return PipedStream(self.unguarded.buffer)  # type: ignore[union-attr]  # streams of text have one

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Let nothing reach a terminal, or stderr, that it would obey; end quietly when nothing reads stdout any more."""
    out, err = sys.stdout, sys.stderr
    guarded = PrintableStream(out) if out.isatty() else PipedStream(out)
    sys.stdout = cast("TextIO", guarded)
    sys.stderr = cast("TextIO", PrintableStream(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        guarded.flush()


def unguarded(stream: TextIO) -> TextIO:
    """The stream below a guarded one, for what draws on the terminal itself."""
    return stream.unguarded if isinstance(stream, PrintableStream) else stream


def print_text(text: str) -> None:
    """Print a result for people."""
    sys.stdout.write(printable(text if text.endswith("\n") else f"{text}\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print a result for people line by line as it is made."""
    for line in lines:
        sys.stdout.write(f"{printable(line)}\n")


def print_data(lines: Iterable[str]) -> int:
    """Print a result for programs line by line, as it is; returns the number of lines."""
    count = 0
    for line in lines:
        sys.stdout.write(f"{line}\n")
        count += 1
    return count


def print_json(document: Mapping[str, object]) -> None:
    """Print a result for programs: one pretty-printed JSON document. It is printed as it is made."""
    waiting: list[str] = []
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
        waiting.append(piece)
        if len(waiting) >= _PIECES:
            sys.stdout.write(printable("".join(waiting)))
            waiting.clear()
    print_text("".join(waiting))


class _Encodable(Protocol):
    def to_json(self) -> Mapping[str, object]: ...


def print_result(result: _Encodable | Mapping[str, object], lines: Iterable[str], *, json: bool) -> None:
    """Print a result for programs, or its lines for people."""
    if json:
        print_json(result if isinstance(result, Mapping) else result.to_json())
    else:
        print_lines(lines)


class _Streamable(Protocol[_Item_co]):
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[_Item_co]: ...


class StreamedList(list[object]):
    """A list for `print_json` whose items are made one by one while they are printed."""

    def __init__(self, items: _Streamable[_Item_co], to_json: Callable[[_Item_co], object]) -> None:
        super().__init__()
        self._items = items
        self._to_json = to_json

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return map(self._to_json, self._items)


def print_warning(text: str) -> None:
    """Print a warning or an echo line; stdout stays parseable."""
    sys.stderr.write(f"{printable(text)}\n")


def is_confirmed(sentence: str) -> bool:
    """Ask the person at the terminal whether to go on."""
    sys.stderr.write(f"{printable(sentence)}. Go on? [yes/no] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_error(error: OmniError, *, as_json: bool) -> None:
    """Print a failure: one readable message on stderr, or the error body on stdout."""
    if as_json:
        print_json(error.to_json())
    elif isinstance(error, MergeConflictsError):
        from omnigraph.cli.rendering import conflict_lines

        lines = conflict_lines(error.source, error.target, error.conflicts, error.total)
        print_warning("\n".join(lines))
    else:
        print_warning(error.message)
        if isinstance(error, UnauthorizedError):
            print_warning(_HOW_TO_LOG_IN)


_DEBUG = Variable("OMNIGRAPH_DEBUG", "Prints the stack trace of an internal error.", default="off", values="`1`")


def print_internal_error(error: BaseException) -> bool:
    """Print a failure that nothing foresaw; false for what is not one, such as the end of the process.

    A person never sees a stack trace unasked.
    """
    if not isinstance(error, Exception) and not is_panic(error):
        return False
    if _DEBUG.text():
        traceback.print_exception(error)
    else:
        print_warning(f"internal error: {error!r} (set OMNIGRAPH_DEBUG=1 for the stack trace)")
    return True


# ---- Progress bars and progress lines


#: How often a log hears of a stage that goes on.
HEARTBEAT_S = 30.0
#: Work that took longer ends with a table of its stages.
_TABLE_S = 10.0


def terminal_progress(*, quiet: bool = False) -> Progress:
    """Progress that suits where stderr goes."""
    if quiet:
        from omnigraph.pipeline.workers import Silent

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
    """The progress of a stage."""

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
        self.tasks, self.rows = tasks, rows
        self.total = total or self.total

    def tell(self, detail: str) -> None:
        self.detail = one_line(detail)

    def note(self, fact: str) -> None:
        self.facts.append(one_line(fact))

    @property
    def elapsed_s(self) -> float:
        """The running time of the stage."""
        return time.monotonic() - self._begin

    def end(self) -> None:
        """The stage is over."""
        self.seconds = self.elapsed_s

    def work(self) -> str:
        """The progress of the stage: rows, rate, and the time that is left by the share of tasks that are done."""
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
        _Counter.tell(self, detail)
        if _is_stopping(detail):
            print_warning(self.detail)


def _is_stopping(detail: str) -> bool:
    # Lazy: commands that do no bulk work need nothing of the pipeline.
    from omnigraph.pipeline.workers import STOPPING

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
        _Counter.update(self, tasks, rows, total=total)
        self._show()

    def tell(self, detail: str) -> None:
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


# ---- Ctrl-C
#
# SIGTERM, by which Kubernetes, systemd and schedulers end a process, is the same with another exit code. A command
# that is done has nothing to stop: while Spark and Python end, an interrupt only waits with them.


#: What a process that Ctrl-C ended is expected to exit with.
INTERRUPTED = 130
#: A process that a signal ended exits with this and the number of the signal.
_SIGNALLED = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: What is said about a command that was stopped before it could change anything.
NOTHING_WRITTEN = "nothing was written"
_WAITING = "already stopping: running tasks end, and what they wrote is removed; {again} ends at once"
#: How the signal that came is given once more.
_AGAIN = {signal.SIGINT: "Ctrl-C once more", signal.SIGTERM: "SIGTERM once more"}
_GIVEN_UP = "ended at once; what was written is in no version, and `omnigraph cleanup` removes it"
_ENDING = "the command is done, and Spark ends; {again} does not wait for it"
#: The interrupt at which waiting is over, counted from the beginning and from the end of a command.
_LAST = 3
_LAST_OF_END = 2


@contextmanager
def taking_interrupts() -> Iterator[Interrupts]:
    """Handle the interrupts of this process: those of the command in the block, and afterwards to its very end.

    Only the first one of the command is raised. One more in the middle of tidying up would leave files, and a trace on
    the terminal; so would one while Spark ends.
    """
    interrupts = Interrupts()
    if current_thread() is not main_thread():
        yield interrupts
        return
    for number in _SIGNALS:
        # Registered before anything else, so it runs last: what ends then takes no time.
        atexit.register(signal.signal, number, signal.SIG_IGN)
        signal.signal(number, interrupts)
    try:
        with interrupts.raising_lost():
            yield interrupts
    finally:
        interrupts.end_command()


class Interrupts:
    """The signals that ask a command to end; the handler of all of them."""

    def __init__(self) -> None:
        self._count = 0
        self._is_ending = False
        #: The signal that stopped the command; None while nothing did.
        self.stopped_by: signal.Signals | None = None
        self._raised = KeyboardInterrupt()

    @property
    def exit_code(self) -> int:
        """The exit code of a stopped command."""
        return INTERRUPTED if self.stopped_by is None else _SIGNALLED + self.stopped_by

    @property
    def notes(self) -> list[str]:
        """The notes of the work that was stopped."""
        return getattr(self._raised, "__notes__", [])

    @property
    def sentence(self) -> str:
        """The message of a stopped command."""
        if self.stopped_by is None or self.stopped_by is signal.SIGINT:
            return "cancelled"
        return f"ended by {self.stopped_by.name}"

    def end_command(self) -> None:
        """From here on nothing is raised."""
        self._count, self._is_ending = 0, True

    @contextmanager
    def raising_lost(self) -> Iterator[None]:
        """Raise an interrupt again that Python could not raise, until something takes it.

        A signal is handled between any two steps of the interpreter, also within a `__del__`, the end of a generator
        that nothing uses any more, or a callback of a weak reference, as every import has one. What is raised there is
        only told to `sys.unraisablehook`, and the command would go on.
        """
        before = sys.unraisablehook

        def hook(lost: sys.UnraisableHookArgs) -> None:
            if lost.exc_value is self._raised and not self._is_ending:
                sys.setprofile(raise_behind)
            else:
                before(lost)

        def raise_behind(frame: FrameType, _event: str, _argument: object) -> None:
            """Called at the next steps of the thread: those of the hook itself would lose it once more."""
            if frame.f_code is not hook.__code__:
                sys.setprofile(None)
                raise self._raised

        sys.unraisablehook = hook
        try:
            yield
        finally:
            sys.unraisablehook = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._count += 1
        if self._is_ending:
            if self._count >= _LAST_OF_END:
                os._exit(_SIGNALLED + number)
            _say(_ENDING, number)
            return
        if self._count == 1:
            self.stopped_by = signal.Signals(number)
            raise self._raised
        _say(_GIVEN_UP if self._count >= _LAST else _WAITING, number)
        if self._count >= _LAST:
            os._exit(_SIGNALLED + number)


def notes_of(end: BaseException) -> list[str]:
    """What stopped work says about itself: the notes of an interrupt, and of what it became on its way."""
    notes: list[str] = []
    cause: BaseException | None = end
    while cause is not None:
        notes += getattr(cause, "__notes__", [])
        cause = cause.__cause__ or cause.__context__
    return list(dict.fromkeys(notes))


def _say(sentence: str, number: int) -> None:
    """Write to stderr, past its buffer: the interrupt may have come in the middle of another writing."""
    os.write(2, f"{sentence.format(again=_AGAIN[signal.Signals(number)])}\n".encode())
