"""Mutations of one branch, one after the other.

Whoever prepares beside another one prepares in vain, because the first commit outdates the rest: eight threads would
publish a quarter of what one does. Taking turns is for speed alone; the commit decides what is right, also between
processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

#: Longer than many small mutations take. Behind one that is slow, because it fetches blobs or waits for another
#: process, the others go on without a turn.
_LONGEST_WAIT_S = 2.0


@dataclass(slots=True)
class _Turn:
    lock: Lock = field(default_factory=Lock)
    users: int = 0


class Turns:
    """Whose turn it is, per branch. Thread-safe."""

    def __init__(self, longest_wait_s: float = _LONGEST_WAIT_S) -> None:
        self._longest_wait_s = longest_wait_s
        self._guard = Lock()
        #: Only branches that somebody is about to change.
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def on(self, branch: str) -> Iterator[None]:
        """Wait for the turn, but not for long."""
        with self._guard:
            turn = self._turns.setdefault(branch, _Turn())
            turn.users += 1
        has_turn = turn.lock.acquire(timeout=self._longest_wait_s)
        try:
            yield
        finally:
            if has_turn:
                turn.lock.release()
            with self._guard:
                turn.users -= 1
                if turn.users == 0:
                    del self._turns[branch]
