"""Threads that want the same thing at the same time: one makes it, the others wait for it.

Without it every commit makes all readers of a busy server build the same caches at once.
"""

from __future__ import annotations

from threading import Event, Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_Made = TypeVar("_Made")
#: How often a thread that waits looks whether it still should.
_LOOK_S = 0.05


class Together(Generic[_Made]):
    """Work by key, done once for all threads that ask while it is being done. Thread-safe.

    Only for what follows from immutable data: whoever joins late gets what was begun before. Work may lead to work of
    other keys, and never back to its own.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[Hashable, _Work[_Made]] = {}

    def make(
        self,
        key: Hashable,
        work: Callable[[], _Made],
        check: Callable[[], None] | None = None,
    ) -> _Made:
        """What the work of this key gives, done here or by a thread that began it earlier.

        A failure belongs to the thread that met it; one of the others tries next. `check` is called now and then by a
        thread that waits, and ends its waiting by raising.
        """
        while True:
            with self._lock:
                running = self._running.get(key)
                if running is None:
                    mine = self._running[key] = _Work[_Made]()
                    break
            while not running.done.wait(None if check is None else _LOOK_S):
                if check is not None:
                    check()
            if running.made is not None:
                return running.made[0]
        try:
            mine.made = (work(),)
        finally:
            with self._lock:
                del self._running[key]
            mine.done.set()
        return mine.made[0]


class _Work(Generic[_Made]):
    def __init__(self) -> None:
        self.done = Event()
        self.made: tuple[_Made] | None = None
