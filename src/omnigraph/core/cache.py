"""Caches that are measured in bytes, and work that several threads ask for and one does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Event, Lock
from typing import Concatenate, Generic, ParamSpec, TypeVar

# ---- Single-flight computation
#
# Without it every commit makes all readers of a busy server build the same caches at once.


_Made = TypeVar("_Made")
#: How often a thread that waits looks whether it still should.
_LOOK_S = 0.05


class SingleFlight(Generic[_Made]):
    """Work by key, done once for all threads that ask while it is being done. Thread-safe.

    Only for what follows from immutable data: a thread that joins late gets what was begun before. Work may lead to
    work of other keys, and never back to its own.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[Hashable, _Work[_Made]] = {}

    def make(self, key: Hashable, work: Callable[[], _Made], check: Callable[[], None] | None = None) -> _Made:
        """The result of the work of this key, done here or by a thread that began it earlier.

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


# ---- The engine cache


Kept = TypeVar("Kept")
#: Values of a few bytes take far more than their size; every commit to a small table brings some.
_MAX_ENTRIES = 4096
#: States of one thing that are kept: a writer brings a new one with every commit, and hardly an old one is read again.
_MAX_STATES = 8


class LruCache(Generic[Kept]):
    """Recently used values up to a total size and a number. Thread-safe."""

    def __init__(
        self, capacity: int, size_of: Callable[[Kept], int] = lambda _: 1, *, states: int = _MAX_STATES
    ) -> None:
        self._capacity = capacity
        #: How many states of one thing are kept.
        self._most_states = states
        self._size_of = size_of
        self._values: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        #: The keys of each thing of which several states are kept, oldest first.
        self._states: dict[Hashable, list[Hashable]] = {}
        self._used = 0
        self._lock = Lock()
        #: How often a value was found, and how often one was put.
        self.hits = self.puts = 0
        self._building: SingleFlight[Kept] = SingleFlight()

    def get(self, key: Hashable) -> Kept | None:
        """The value, if it is kept."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            self.hits += 1
            return found[0]

    def put(self, key: Hashable, value: Kept, state_of: Hashable = None) -> None:
        """Keep a value; the least recently used ones make room. A value larger than everything is not kept.

        Of values that are states of the same thing (`state_of`) only the last few are kept.
        """
        size = self._size_of(value)
        with self._lock:
            self.puts += 1
            self._drop(key)
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
        if len(states) > self._most_states:
            self._drop(states.pop(0))

    def _drop(self, key: Hashable) -> None:
        if (known := self._values.pop(key, None)) is not None:
            self._used -= known[1]

    def get_or_build(self, key: Hashable, build: Callable[[], Kept], check: Callable[[], None] | None = None) -> Kept:
        """The kept value, else a new one; threads that want it at the same time wait for the one that builds it.

        `check` is called now and then while another one builds it, and ends the waiting by raising.
        """
        found = self.get(key)
        if found is not None:
            return found
        return self._building.make(key, lambda: self._new(key, build), check)

    def _new(self, key: Hashable, build: Callable[[], Kept]) -> Kept:
        # Another thread may have finished it between the look and this call.
        found = self.get(key)
        if found is None:
            found = build()
            self.put(key, found)
        return found

    @property
    def used(self) -> int:
        """The total size of what is kept."""
        return self._used

    def forget(self, is_unwanted: Callable[[Kept], bool]) -> None:
        """Forget some values."""
        with self._lock:
            for key in [key for key, (value, _) in self._values.items() if is_unwanted(value)]:
                self._drop(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._states.clear()
            self._used = 0


# ---- What follows from immutable objects
#
# A compiled query is one object for every run of it: finding it by what it is would cost more than what is kept.


_Key = TypeVar("_Key")
_Rest = ParamSpec("_Rest")
_KEPT_OBJECTS = 1024


def by_identity(function: Callable[Concatenate[_Key, _Rest], _Made]) -> Callable[Concatenate[_Key, _Rest], _Made]:
    """Keep what a function makes of an immutable object, by which object it is, and by its other arguments.

    What is made is shared, so it must not be changed. Thread-safe.
    """
    kept: dict[Hashable, tuple[_Key, _Made]] = {}

    @wraps(function)
    def found(key: _Key, /, *rest: _Rest.args, **named: _Rest.kwargs) -> _Made:
        assert not named, "other arguments are positional"
        place = (id(key), *rest)
        known = kept.get(place)
        if known is not None:
            return known[1]
        made = function(key, *rest, **named)
        if len(kept) >= _KEPT_OBJECTS:
            kept.clear()
        # The object is kept too, so that no other one gets its identity.
        kept[place] = (key, made)
        return made

    return found
