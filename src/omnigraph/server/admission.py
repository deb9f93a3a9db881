"""How much unfinished work one actor may have: requests, and the bytes that they hold."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRY_AFTER_S = 60
#: What an operation on branches is taken to hold.
BRANCH_OPERATION_BYTES = 256


class Admission:
    """Counts per actor. Thread-safe."""

    def __init__(self, *, inflight_max: int, bytes_max: int) -> None:
        self._inflight_max = inflight_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._inflight: Counter[str | None] = Counter()
        self._bytes: Counter[str | None] = Counter()

    @contextmanager
    def admitted(self, actor: str | None, size: int) -> Iterator[Grant]:
        """Hold a place for one request of so many bytes, or more later.

        Raises:
            TooManyRequestsError: the actor has too many requests or bytes in flight.
        """
        grant = Grant(self, actor)
        with self._lock:
            if self._inflight[actor] >= self._inflight_max:
                raise TooManyRequestsError(
                    f"{self._inflight_max} writes of this actor are in flight: try again when one is done"
                )
            self._hold(actor, size)
            self._inflight[actor] += 1
        grant.size = size
        try:
            yield grant
        finally:
            with self._lock:
                self._release(actor, grant.size)

    def grow(self, grant: Grant, size: int) -> None:
        """Let a request hold more bytes.

        Raises:
            TooManyRequestsError: its actor has too many in flight.
        """
        with self._lock:
            self._hold(grant.actor, size)
        grant.size += size

    def _hold(self, actor: str | None, size: int) -> None:
        held = self._bytes[actor]
        if held + size > self._bytes_max:
            raise TooManyRequestsError(
                f"this request holds about {size:,} bytes, the others of this actor {held:,}, and "
                f"{self._bytes_max:,} is the limit: send less, or try again when one is done"
            )
        self._bytes[actor] += size

    def _release(self, actor: str | None, size: int) -> None:
        self._inflight[actor] -= 1
        self._bytes[actor] -= size
        if not self._inflight[actor]:
            del self._inflight[actor], self._bytes[actor]


class Grant:
    """What one admitted request holds."""

    def __init__(self, admission: Admission, actor: str | None) -> None:
        self._admission = admission
        self.actor = actor
        self.size = 0

    def grow(self, size: int) -> None:
        """Hold more bytes.

        Raises:
            TooManyRequestsError: the actor has too many in flight.
        """
        self._admission.grow(self, size)
