"""Ctrl-C of a command: the first one stops it, the next ones wait with it, and a person who insists ends it at once.

SIGTERM, by which Kubernetes, systemd and schedulers end a process, is the same with another exit code. A command that
is done has nothing to stop: while Spark and Python end, an interrupt only waits with them.
"""

from __future__ import annotations

import atexit
import os
import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: What a process that Ctrl-C ended is expected to exit with.
INTERRUPTED = 130
#: A process that a signal ended exits with this and the number of the signal.
_SIGNALLED = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WAITING = "already stopping: running tasks end, and what they wrote is removed; Ctrl-C once more ends at once"
_GIVEN_UP = "ended at once; what was written is in no version, and `omnigraph cleanup` removes it"
_ENDING = "the command is done, and Spark ends; Ctrl-C once more does not wait for it"
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
        """What a command that was stopped exits with."""
        return INTERRUPTED if self.stopped_by is None else _SIGNALLED + self.stopped_by

    @property
    def notes(self) -> list[str]:
        """What the work that was stopped says about itself."""
        return getattr(self._raised, "__notes__", [])

    @property
    def sentence(self) -> str:
        """What happened to a command that was stopped."""
        if self.stopped_by is None or self.stopped_by is signal.SIGINT:
            return "interrupted"
        return f"ended by {self.stopped_by.name}"

    def end_command(self) -> None:
        """From here on nothing is raised."""
        self._count, self._is_ending = 0, True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._count += 1
        if self._is_ending:
            if self._count >= _LAST_OF_END:
                os._exit(_SIGNALLED + number)
            _say(_ENDING)
            return
        if self._count == 1:
            self.stopped_by = signal.Signals(number)
            raise self._raised
        _say(_GIVEN_UP if self._count >= _LAST else _WAITING)
        if self._count >= _LAST:
            os._exit(_SIGNALLED + number)


def _say(sentence: str) -> None:
    """Write to stderr, past its buffer: the interrupt may have come in the middle of another writing."""
    os.write(2, f"{sentence}\n".encode())
