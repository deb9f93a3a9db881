"""Ctrl-C of a command: the first one stops it, the next ones wait with it, and a person who insists ends it at once.

A command that is done has nothing to stop: while Spark and Python end, an interrupt only waits with them.
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
_WAITING = "already stopping: running tasks end, and what they wrote is removed; Ctrl-C once more ends at once"
_GIVEN_UP = "ended at once; what was written is in no version, and `omnigraph cleanup` removes it"
_ENDING = "the command is done, and Spark ends; Ctrl-C once more does not wait for it"
#: The interrupt at which waiting is over, counted from the beginning and from the end of a command.
_LAST = 3
_LAST_OF_END = 2


@contextmanager
def taking_interrupts() -> Iterator[None]:
    """Handle the interrupts of this process: those of the command in the block, and afterwards to its very end.

    Only the first one of the command is raised. One more in the middle of tidying up would leave files, and a trace on
    the terminal; so would one while Spark ends.
    """
    if current_thread() is not main_thread():
        yield
        return
    # Registered before anything else, so it runs last: what ends then takes no time.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    interrupts = _Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    finally:
        interrupts.end_command()


class _Interrupts:
    def __init__(self) -> None:
        self._count = 0
        self._is_ending = False

    def end_command(self) -> None:
        """From here on nothing is raised."""
        self._count, self._is_ending = 0, True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._is_ending:
            if self._count >= _LAST_OF_END:
                os._exit(INTERRUPTED)
            _say(_ENDING)
            return
        if self._count == 1:
            raise KeyboardInterrupt
        _say(_GIVEN_UP if self._count >= _LAST else _WAITING)
        if self._count >= _LAST:
            os._exit(INTERRUPTED)


def _say(sentence: str) -> None:
    """Write to stderr, past its buffer: the interrupt may have come in the middle of another writing."""
    os.write(2, f"{sentence}\n".encode())
