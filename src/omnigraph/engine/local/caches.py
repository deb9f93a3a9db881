"""What the engine keeps between queries: everything in it follows from immutable data, so nothing ever expires."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from omnigraph.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Kept = TypeVar("Kept")
#: Values of a few bytes take far more than their size; every commit to a small table brings some.
_MAX_ENTRIES = 4096
#: States of one thing that are kept: a writer brings a new one with every commit, and hardly an old one is read again.
_MAX_STATES = 8


class LruCache(Generic[Kept]):
    """Recently used values up to a total size and a number. Thread-safe."""

    def __init__(self, capacity: int, size_of: Callable[[Kept], int] = lambda _: 1) -> None:
        self._capacity = capacity
        self._size_of = size_of
        self._values: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        #: The keys of each thing of which several states are kept, oldest first.
        self._states: dict[Hashable, list[Hashable]] = {}
        self._used = 0
        self._lock = Lock()
        self._building: Together[Kept] = Together()

    def get(self, key: Hashable) -> Kept | None:
        """The value, if it is kept."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Kept, state_of: Hashable = None) -> None:
        """Keep a value; the least recently used ones make room. A value larger than everything is not kept.

        Of values that are states of the same thing (`state_of`) only the last few are kept.
        """
        size = self._size_of(value)
        with self._lock:
            known = self._values.pop(key, None)
            if known is not None:
                self._used -= known[1]
            if size > self._capacity:
                return
            self._values[key] = (value, size)
            self._used += size
            while self._used > self._capacity or len(self._values) > _MAX_ENTRIES:
                _, (_, freed) = self._values.popitem(last=False)
                self._used -= freed
            if state_of is not None:
                self._forget_old_states(key, state_of)

    def _forget_old_states(self, key: Hashable, state_of: Hashable) -> None:
        states = self._states.setdefault(state_of, [])
        if key in states:
            states.remove(key)
        states.append(key)
        if len(states) > _MAX_STATES and (known := self._values.pop(states.pop(0), None)):
            self._used -= known[1]

    def get_or_build(
        self, key: Hashable, build: Callable[[], Kept], check: Callable[[], None] | None = None
    ) -> Kept:
        """The kept value, else a new one; threads that want it at the same time wait for the one that builds it.

        `check` is called now and then while another one builds it, and ends the waiting by raising.
        """
        found = self.get(key)
        if found is not None:
            return found
        return self._building.make(key, lambda: self._new(key, build), check)

    def _new(self, key: Hashable, build: Callable[[], Kept]) -> Kept:
        # Somebody may have finished it between the look and this call.
        found = self.get(key)
        if found is None:
            found = build()
            self.put(key, found)
        return found

    @property
    def used(self) -> int:
        """The total size of what is kept."""
        return self._used

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._states.clear()
            self._used = 0
