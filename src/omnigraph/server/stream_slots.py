"""Places for responses that stream: how many may be open at the same time."""

from __future__ import annotations

import threading


class StreamSlots:
    """A number of places. Thread-safe; nobody waits in it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a place; False when there is none."""
        with self._lock:
            if self._free == 0:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Give a place back."""
        with self._lock:
            assert self._free < self.count, "a place is given back once"
            self._free += 1
