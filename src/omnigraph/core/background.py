"""Work that no caller waits for, one piece after the other beside everything else."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Condition, Thread, current_thread

_log = logging.getLogger(__name__)


class Background:
    """Does work by key in a thread of its own, which lives while there is some. Thread-safe.

    What only saves time belongs here: a piece that fails is logged, one that has not begun when it is closed is never
    done.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._running: Hashable | None = None
        self._thread: Thread | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is wanted: long work looks at it between its steps."""
        return self._is_closed

    def submit(self, key: Hashable, work: Callable[[], None]) -> bool:
        """Do this work some time, unless work of the same key waits or runs already; whether it will be done."""
        with self._changed:
            if self._is_closed or key in self._waiting or key == self._running:
                return False
            self._waiting[key] = work
            if self._thread is None:
                self._thread = Thread(target=self._run, name="omnigraph-background", daemon=True)
                self._thread.start()
            return True

    def settle(self) -> None:
        """Wait until nothing waits or runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None)

    def close(self) -> None:
        """Take nothing more, forget what has not begun, and wait for the piece that runs."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            if self._thread is not current_thread():
                self._changed.wait_for(lambda: self._thread is None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._running = None
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                self._running, work = self._waiting.popitem(last=False)
            try:
                work()
            except Exception as error:  # noqa: BLE001  # a reader that needs the result makes it itself
                _log.warning("background work was given up: %s", error)
