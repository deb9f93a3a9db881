"""How much unfinished work there may be: requests and bytes of one actor, and the bodies of all requests together."""

from __future__ import annotations

import collections
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.settings import ACTOR_BYTES, ACTOR_INFLIGHT, BODIES_BYTES
from omnigraph.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.types import Scope

RETRY_AFTER_S = 60
#: What an operation on branches is taken to hold.
BRANCH_OPERATION_BYTES = 256
#: Memory that a load takes per byte of its body: measured 5 for short records, 3.4 for long ones.
LOAD_FACTOR = 6
_MEMORY = "omnigraph.body_memory"


class Admission:
    """Counts per actor. Thread-safe."""

    def __init__(self, *, inflight_max: int, bytes_max: int) -> None:
        self._inflight_max = inflight_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._inflight: collections.Counter[str | None] = collections.Counter()
        self._bytes: collections.Counter[str | None] = collections.Counter()

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
                    f"{self._inflight_max} writes of this actor are in flight: try again when one is done, or raise "
                    f"{ACTOR_INFLIGHT} on the server"
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
                f"this request holds about {size_text(size)}, the others of this actor {size_text(held)}, and "
                f"{size_text(self._bytes_max)} is the limit: send less, try again when one is done, or raise "
                f"{ACTOR_BYTES} on the server"
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


class BodyMemory:
    """What the bodies of all requests take together. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What they take now."""
        return self._held

    @contextmanager
    def of_request(self, scope: Scope) -> Iterator[None]:
        """Let the request of a scope hold memory until it is answered."""
        held = scope[_MEMORY] = HeldMemory(self)
        try:
            yield
        finally:
            self.add(-held.size)

    def add(self, size: int) -> None:
        """Count more, or less.

        Raises:
            TooManyRequestsError: it would be too much.
        """
        with self._lock:
            if size > 0 and self._held + size > self._limit:
                raise TooManyRequestsError(
                    f"this request holds about {size_text(size)}, all others {size_text(self._held)}, and "
                    f"{size_text(self._limit)} is the limit of the server: send less, try again when others are done, "
                    f"or raise {BODIES_BYTES} on the server"
                )
            self._held += size


class HeldMemory:
    """What the body of one request takes, as bytes and as values."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.size = 0

    def grow(self, size: int) -> None:
        """Take more.

        Raises:
            TooManyRequestsError: the bodies of all requests take too much.
        """
        self._memory.add(size)
        self.size += size


def memory_of(request: Request) -> HeldMemory:
    """What the body of a request takes."""
    held: HeldMemory = request.scope[_MEMORY]
    return held
