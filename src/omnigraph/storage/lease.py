"""Leases on object stores: one holder's time, how others see its end, and the fence that late holders meet."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from threading import Event, Lock

from typing_extensions import override

from omnigraph.core.env_settings import Variable
from omnigraph.core.ids import new_ulid
from omnigraph.errors import LeaseLostError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage.objects import ControlObjects, owner_of, put_owned

# ---- One holder's time with a lease on an object store, and how others see that it ended


_log = logging.getLogger(__name__)

#: The length of a lease. The successor of a dead writer waits for as long, and settles what that writer left, in less
#: than 5 seconds together.
LEASE_S = 2.5
#: What the length of a lease may be set to, here and in the object of another writer.
SHORTEST_LEASE_S = 0.1
LONGEST_LEASE_S = 600.0
LEASE_VARIABLE = Variable(
    "OMNIGRAPH_LOCK_LEASE_MS",
    "Milliseconds for which the commit lock of an object store stays with a writer that died or stands still.",
    default=f"`{LEASE_S * 1000:.0f}`",
    values=f"{SHORTEST_LEASE_S * 1000:.0f} to {LONGEST_LEASE_S * 1000:.0f}",
)
#: A request about a lease may take a third of it: one that hangs is given up in time for another one.
_REQUESTS = 3
#: The length of leases that do not name theirs, made by earlier releases.
_UNNAMED_LEASE_S = 30.0
#: S3 refuses requests whose clock differs from its own by 15 minutes, so the clocks of two writers differ by less than
#: this. A lease that ended longer ago by both of their clocks needs no observation.
_CLOCK_DIFFERENCE_S = 2 * 15 * 60.0


def seconds_since_boot() -> float:
    """A clock that only goes forward, and goes on while the process or the whole machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def request_limit_s(lease_s: float) -> float:
    """How long one request about a lease may take."""
    return lease_s / _REQUESTS


class Observation:
    """Since when the lease object has had the content that it has, as far as this process saw. Thread-safe."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._guard = Lock()
        self._since = 0.0
        #: What was seen last.
        self.content = b""

    def unchanged_s(self, content: bytes) -> float:
        """For how long the content that was just read has been there at least. Every renewal changes it."""
        with self._guard:
            now = self._elapsed()
            if content != self.content:
                self.content, self._since = content, now
            return now - self._since


@frozen
class LeaseBody:
    """What a lease object says. What is missing or damaged counts as the lease of a dead writer."""

    owner: str | None = None
    #: By the clock of the owner; 0 when it was given back.
    expires_at: float = 0.0
    epoch: int = 0
    #: Whether its owner gave it back after everything it did, so that nothing of it can come late.
    is_released: bool = False
    #: How long it lasts without a renewal, which is for its owner to say.
    lease_s: float = 0.0
    #: Makes the content of every renewal differ, whatever the clock says.
    renewal: int = 0

    @classmethod
    def parse(cls, data: bytes) -> LeaseBody:
        """Read the content of a lease object, whatever wrote it."""
        try:
            body = json.loads(data)
            lease_s = float(body.get("lease_s", _UNNAMED_LEASE_S))
            return cls(
                owner=owner_of(data),
                expires_at=float(body["expires_at"]),
                epoch=int(body.get("epoch", 0)),
                is_released=body.get("released") is True,
                lease_s=min(lease_s, LONGEST_LEASE_S) if lease_s > 0 else 0.0,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return cls()

    def is_over(self, unchanged_s: float, now: float) -> bool:
        """Whether its owner cannot hold it any more, once it has been seen unchanged for some time."""
        return self.owner is None or unchanged_s >= self.lease_s or self.expires_at + _CLOCK_DIFFERENCE_S < now

    def encode(self) -> bytes:
        """The content of a lease object."""
        body = {
            "owner": self.owner,
            "expires_at": self.expires_at,
            "epoch": self.epoch,
            "released": self.is_released,
            "lease_s": self.lease_s,
            "renewal": self.renewal,
        }
        return json.dumps(body).encode()


class Tenure:
    """The time for which one writer holds the commit lock. This one is of an OS lock, which ends with its process."""

    #: Its number; None when the lock cannot be lost while its holder lives.
    epoch: int | None = None
    #: Whether the holder before may still be alive, so that the fence has to be raised before anything is looked at.
    needs_fence = False

    @property
    def is_lost(self) -> bool:
        """Whether the lock may belong to another writer."""
        return False

    def lose(self) -> None:
        """Take note that another writer took over."""

    def check(self) -> None:
        """Make sure that no other writer can have the lock; asks the store only when a renewal is overdue.

        Raises:
            LeaseLostError: another one may have it.
        """

    def rise_above(self, fence: int) -> None:
        """Get an epoch above a fence that is higher, if the lock is still held: its object is older than the manifest.

        Raises:
            LeaseLostError: another writer has the lock.
        """


class Lease(Tenure):
    """One holder's time with the lease object. The keeper's thread renews it, its owner's looks at it."""

    epoch: int

    def __init__(
        self,
        objects: ControlObjects,
        name: str,
        lease_s: float,
        *,
        wall: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self.owner = new_ulid()
        self.epoch = 0
        self.needs_fence = True
        self._objects = objects
        self._name = name
        self._lease_s = lease_s
        self._wall = wall
        self._elapsed = elapsed
        self._tag: str | None = None
        self._renewal = 0
        self._renewed_at = 0.0
        self._is_lost = False
        #: Renewing and rising replace the same state.
        self._replacing = Lock()

    @property
    @override
    def is_lost(self) -> bool:
        # It was seen, or the lease has run out.
        return self._is_lost or self._used_s >= self._lease_s

    @property
    def _used_s(self) -> float:
        """How much of the lease has passed."""
        return self._elapsed() - self._renewed_at

    @override
    def lose(self) -> None:
        self._is_lost = True

    @override
    def check(self) -> None:
        # When half of it has passed its keeper is late, because the process stood still or a request hangs. Then it
        # is renewed here: as long as no other writer took it, the time with it goes on.
        if not self._is_lost and self._used_s >= self._lease_s / 2:
            self._renew()
        if self.is_lost:
            self.lose()
            raise LeaseLostError

    def try_take(self, observation: Observation, gone: Collection[str] = ()) -> bool:
        """Take the lease, if it is free; owners in `gone` are known to be through with it."""
        current = self._objects.read(self._name)
        before = LeaseBody() if current is None else LeaseBody.parse(current.data)
        unchanged_s = 0.0 if current is None else observation.unchanged_s(current.data)
        # A request of this owner whose answer got lost may have arrived.
        is_free = before.owner == self.owner or before.owner in gone
        if not is_free and not before.is_over(unchanged_s, self._wall()):
            return False
        self.epoch = before.epoch + 1
        self.needs_fence = not before.is_released
        return self._put(None if current is None else current.tag)

    @override
    def rise_above(self, fence: int) -> None:
        with self._replacing:
            if self.epoch > fence:
                return
            self.epoch = fence + 1
            if not self._put(self._tag):
                self.lose()
        self.check()

    def keep(self, stop: Event, renewal_s: float) -> None:
        """Renew the lease until its owner is done, or another writer has it."""
        pause_s = renewal_s
        while not stop.wait(pause_s):
            begun = self._elapsed()
            self._renew()
            if self._is_lost:
                return
            # The time of a slow request is not added to the pause.
            rest_s = renewal_s - (self._elapsed() - begun)
            pause_s = max(rest_s, renewal_s / 10)

    def _renew(self) -> None:
        """Replace the state that this owner wrote last; only another writer's state is in the way of that."""
        try:
            with self._replacing:
                if not self._is_lost and not self._put(self._tag):
                    self.lose()
        except StorageError as error:
            _log.warning("a lease was not renewed: %s", error)

    def give_back(self) -> bool:
        """End the lease; whether it is known that the next writer need not wait for it."""
        # An expired lease instead of a delete: deleting could hit the lease of a successor.
        body = LeaseBody(
            owner=self.owner, expires_at=0.0, epoch=self.epoch, is_released=not self.needs_fence and not self.is_lost
        )
        try:
            put_owned(self._objects, self._name, body.encode(), self._tag)
        except StorageError as error:
            _log.warning("a lease stays until it expires: %s", error)
            return False
        return True

    def _put(self, tag: str | None) -> bool:
        # Before the request: it may take a while, and the time counts from here for others too.
        now = self._elapsed()
        self._renewal += 1
        body = LeaseBody(
            owner=self.owner,
            expires_at=self._wall() + self._lease_s,
            epoch=self.epoch,
            lease_s=self._lease_s,
            renewal=self._renewal,
        )
        replaced = put_owned(self._objects, self._name, body.encode(), tag)
        if replaced is None:
            return False
        self._tag, self._renewed_at = replaced, now
        return True


# ---- The fence: a number in the manifest below which no holder of the lock publishes any more
#
# Every holder of a commit lock that can be lost has an epoch, higher than those of all holders before it. A publish
# carries the epoch of its holder into the metadata of the manifest, and a holder that takes the lock over from one
# that may still be alive raises the number before it looks at anything. Both happen in the strict commit that decides
# every publish: so a holder that was overtaken has either published before its successor looked, or never will.


_KEY = "omnigraph:fence"


def read_fence(metadata: Mapping[str, str]) -> int:
    """The fence of a manifest; zero for one that was never written under a lock that can be lost."""
    text = metadata.get(_KEY, "")
    return int(text) if text.isdecimal() else 0


def fence_metadata(epoch: int) -> dict[str, str]:
    """The metadata that raises the fence."""
    return {_KEY: str(epoch)}
