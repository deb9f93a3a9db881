"""Ctrl-C of a command: the first one stops it, the next ones wait with it, and a person who insists ends it at once."""

from __future__ import annotations

import os
import signal
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: What a process that Ctrl-C ended is expected to exit with.
INTERRUPTED = 130
_WAITING = "already stopping: running tasks end, and what they wrote is removed; Ctrl-C once more ends at once"
_GIVEN_UP = "ended at once; what was written is in no version, and `omnigraph cleanup` removes it"
#: The interrupt at which waiting is over.
_LAST = 3


def take_interrupts() -> None:
    """Handle the interrupts of this process from here on, to its very end: also while Spark and Python end.

    Only the first one is raised. One more in the middle of tidying up would leave files, and a trace on the terminal.
    """
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, _Interrupts())


class _Interrupts:
    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            raise KeyboardInterrupt
        _say(_GIVEN_UP if self._count >= _LAST else _WAITING)
        if self._count >= _LAST:
            os._exit(INTERRUPTED)


def _say(sentence: str) -> None:
    """Write to stderr, past its buffer: the interrupt may have come in the middle of another writing."""
    os.write(2, f"{sentence}\n".encode())
