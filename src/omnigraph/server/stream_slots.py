"""Places for responses that stream: how many may be open at the same time, and how many of them for one caller."""

from __future__ import annotations

import collections
import threading


class StreamSlots:
    """A number of places, of which one caller gets a part. Thread-safe; nothing waits in it."""

    def __init__(self, count: int, *, per_caller: int) -> None:
        self.count = count
        self.per_caller = per_caller
        self._taken: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def take(self, caller: str) -> bool:
        """Take a place; False when there is none for the caller."""
        with self._lock:
            if self._taken[caller] >= self.per_caller or self._taken.total() >= self.count:
                return False
            self._taken[caller] += 1
            return True

    def has_all(self, caller: str) -> bool:
        """Whether the caller has all places that one caller gets."""
        with self._lock:
            return self._taken[caller] >= self.per_caller

    def give_back(self, caller: str) -> None:
        """Give a place back."""
        with self._lock:
            assert self._taken[caller] > 0, "a place is given back once"
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
