"""The commit lock: one writer at a time in the commit window, and a lock that dies with its owner.

On a local disk an OS file lock, which the kernel releases when the process ends. On an object store a lease: an object
with an owner and the length of the lease, replaced by a renewal several times in that length, and taken over by a
writer that saw no renewal for that length on its own clock. No clock is compared with that of another machine. An
owner that stood still does not know that it was taken over, so every holder has an epoch, one above that of the holder
before: no writer publishes under an epoch that a successor has passed (`manifest.fencing`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import (
    LeaseLostError,
    OutsideRootError,
    RetryableCommitConflictError,
    StorageError,
    StorageFailure,
)
from omnigraph.ids import new_ulid
from omnigraph.manifest.fencing import Lifelong, Tenure
from omnigraph.storage.failures import translated, without_advice
from omnigraph.storage.location import COMMIT_LOCK, STAGING_LOCK
from omnigraph.storage.objects import owner_of, put_owned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.objects import ControlObjects

_log = logging.getLogger(__name__)

#: The variable that sets the length of a lease, in milliseconds.
LEASE_VARIABLE = "OMNIGRAPH_LOCK_LEASE_MS"
#: The length of a lease. The successor of a dead writer waits for as long, and settles what that writer left, in less
#: than 5 seconds together.
LEASE_S = 2.5
#: What the length of a lease may be set to, here and in the object of another writer.
SHORTEST_LEASE_S = 0.1
LONGEST_LEASE_S = 600.0
#: Renewals in the length of a lease: two of them may fail.
_RENEWALS = 4
#: A request about a lease may take a third of it: one that hangs is given up in time for another one.
_REQUESTS = 3
#: How often a lease is asked for when the store fails.
_TRIES = 3
#: The length of leases that do not name theirs, made by earlier releases.
_UNNAMED_LEASE_S = 30.0
#: S3 refuses requests whose clock differs from its own by 15 minutes, so the clocks of two writers differ by less than
#: this. A lease that ended longer ago by both of their clocks needs no observation.
_CLOCK_DIFFERENCE_S = 2 * 15 * 60.0
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


def seconds_since_boot() -> float:
    """A clock that only goes forward, and goes on while the process or the whole machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def open_lock_file(path: Path) -> int:
    """A lock file of the graph, made when it is not there: a link in its place is not followed.

    Raises:
        OutsideRootError: there is a link.
        OSError: it cannot be opened.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OutsideRootError(path.name, "it is a link, and a graph holds no links") from error


class CommitLock(Protocol):
    """Mutual exclusion over the commit window of one graph, between threads and processes."""

    #: Whether a living holder can lose it, so that every effect needs a look at the tenure.
    can_be_lost: bool

    def held(self, timeout_s: float) -> AbstractContextManager[HeldTenure]:
        """Hold the lock.

        Raises:
            RetryableCommitConflictError: it stayed busy for `timeout_s`; nothing happened.
        """
        ...


class HeldTenure(Tenure, Protocol):
    """The tenure as its holder sees it."""

    #: Whether the holder before may still be alive, so that the fence has to be raised before anything is looked at.
    needs_fence: bool

    def check(self) -> None:
        """Make sure that no other writer can have the lock; asks the store only when a renewal is overdue.

        Raises:
            LeaseLostError: another one may have it.
        """
        ...


class LocalTenure(Lifelong):
    """The tenure of an OS lock."""

    needs_fence = False

    def check(self) -> None:
        """The kernel takes the lock away only with the process."""


class FileCommitLock:
    """An OS lock on a file of the graph."""

    can_be_lost = False

    def __init__(self, root: Path, name: str = COMMIT_LOCK) -> None:
        self._path = root / name

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[HeldTenure]:
        """Hold the lock; every holder has a file description of its own, so threads exclude each other too."""
        with translated(f"locking {self._path}"):
            descriptor = open_lock_file(self._path)
        try:
            _wait(lambda: _try_lock(descriptor), timeout_s)
            yield LocalTenure()
        finally:
            # Closing releases the lock.
            os.close(descriptor)


@contextmanager
def held_file(path: Path) -> Iterator[None]:
    """Hold a file that exists only while it is held. Never waits.

    Raises:
        RetryableCommitConflictError: somebody else holds it.
    """
    with translated(f"locking {path}"):
        descriptor = open_lock_file(path)
    try:
        # A file that its last holder removed in this moment is not the one that others see.
        if not _try_lock(descriptor) or not _is_same_file(descriptor, path):
            raise RetryableCommitConflictError(f"{path.name} is held by another writer; try again")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


class StagingLock:
    """Held shared by writers while files of theirs are staged, so that cleanup knows which files may be in use.

    On an object store there is no such lock: there cleanup goes by the age of a file.
    """

    def __init__(self, location: GraphLocation) -> None:
        self._location = location

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with other writers; waits only for a cleanup that is running."""
        if not self._location.is_local:
            yield
            return
        path = self._location.path / STAGING_LOCK
        with translated(f"locking {path}"):
            descriptor = open_lock_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def try_exclusive(self) -> Iterator[bool]:
        """Hold the lock alone, if no writer has staged files now; whether it is held. Never waits.

        On an object store nobody knows who stages, so the answer is always no.
        """
        if not self._location.is_local:
            yield False
            return
        path = self._location.path / STAGING_LOCK
        try:
            with translated(f"locking {path}"):
                descriptor = open_lock_file(path)
        except StorageError:
            if os.access(self._location.path, os.W_OK):
                raise
            # Whoever may only read cannot tell who stages.
            yield False
            return
        try:
            yield _try_lock(descriptor)
        finally:
            os.close(descriptor)


def lock_holder(location: GraphLocation, objects: ControlObjects) -> str | None:
    """Who holds the commit lock now, in words; None when nobody does. Never waits, and changes nothing."""
    if not location.is_local:
        current = objects.read(COMMIT_LOCK)
        left_s = 0.0 if current is None else _LeaseBody.parse(current.data).expires_at - time.time()
        if left_s <= 0:
            return None
        return f"a writer holds the commit lock for {left_s:.0f} s at least, unless it renews it"
    try:
        descriptor = os.open(location.path / COMMIT_LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(descriptor) else "a living writer is in its commit window"
    finally:
        os.close(descriptor)


class LeaseCommitLock:
    """A lease object on an object store.

    `objects` should give up requests that take longer than `request_limit_s(lease_s)`. `elapsed` measures time on this
    machine. `wall` is the time of day, which serves other releases and leases that ended long ago.
    """

    can_be_lost = True

    def __init__(
        self,
        objects: ControlObjects,
        name: str = COMMIT_LOCK,
        *,
        lease_s: float = LEASE_S,
        renewal_s: float | None = None,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._objects = objects
        self._name = name
        self._lease_s = lease_s
        self._renewal_s = lease_s / _RENEWALS if renewal_s is None else renewal_s
        self._wall = wall
        self._elapsed = elapsed
        #: Shared by all waiting threads and by later calls: a writer that may not wait still learns who is dead.
        self._observation = _Observation(elapsed)
        #: Owners of this process that are through, or never began, and whose lease may still lie there.
        self._gone: set[str] = set()

    def held(self, timeout_s: float) -> AbstractContextManager[HeldTenure]:
        """Hold the lease and keep renewing it until the block ends."""
        lease = self._new_lease()
        return self._taken(lease, lambda: self._try_take(lease), timeout_s)

    def claimed(self) -> AbstractContextManager[HeldTenure]:
        """As `held`, but waits only until it is known whether the holder lives, which takes one lease at most.

        Raises:
            RetryableCommitConflictError: the holder lives.
        """
        lease = self._new_lease()
        met: set[bytes] = set()

        def attempt() -> bool:
            if self._try_take(lease):
                return True
            met.add(self._observation.content)
            if len(met) > 1:
                raise RetryableCommitConflictError(f"{self._name} is held by another writer")
            return False

        return self._taken(lease, attempt, LONGEST_LEASE_S)

    def _new_lease(self) -> Lease:
        return Lease(
            self._objects, self._name, self._lease_s, wall=self._wall, elapsed=self._elapsed
        )

    def _try_take(self, lease: Lease) -> bool:
        return lease.try_take(self._observation, self._gone)

    @contextmanager
    def _taken(
        self, lease: Lease, attempt: Callable[[], bool], timeout_s: float
    ) -> Iterator[HeldTenure]:
        try:
            _wait(lambda: self._patiently(attempt), timeout_s)
        except RetryableCommitConflictError:
            raise
        except BaseException:
            # A request whose answer got lost may have taken it all the same.
            self._gone.add(lease.owner)
            raise
        self._gone.clear()
        stop = Event()
        keeper = Thread(target=lease.keep, args=(stop, self._renewal_s), daemon=True)
        keeper.start()
        try:
            yield lease
        finally:
            stop.set()
            keeper.join()
            if not lease.give_back():
                self._gone.add(lease.owner)

    def _patiently(self, attempt: Callable[[], bool]) -> bool:
        """Try again when the store fails: requests are given up so early that a good store may lose some."""
        for _ in range(_TRIES - 1):
            try:
                return attempt()
            except StorageError as error:
                if error.failure is StorageFailure.CONFIGURATION:
                    raise
                _log.info("%s is asked for again: %s", self._name, error)
        return self._with_advice(attempt)

    def _with_advice(self, attempt: Callable[[], bool]) -> bool:
        """Try once; a failure that took longer than a request may take names the setting that allows more time."""
        begun, limit_s = self._elapsed(), request_limit_s(self._lease_s)
        try:
            return attempt()
        except StorageError as error:
            if self._elapsed() - begun < limit_s:
                raise
            raise StorageError(
                f"{without_advice(error)}; a request about the commit lock may take {limit_s:.3g} s: for a slower "
                f"store set {LEASE_VARIABLE} to more than {self._lease_s * 1000:.0f}",
                error.failure,
            ) from error


def request_limit_s(lease_s: float) -> float:
    """How long one request about a lease may take."""
    return lease_s / _REQUESTS


class _Observation:
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


@dataclass(frozen=True, slots=True)
class _LeaseBody:
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
    def parse(cls, data: bytes) -> _LeaseBody:
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
        return (
            self.owner is None
            or unchanged_s >= self.lease_s
            or self.expires_at + _CLOCK_DIFFERENCE_S < now
        )

    def encode(self) -> bytes:
        body = {
            "owner": self.owner,
            "expires_at": self.expires_at,
            "epoch": self.epoch,
            "released": self.is_released,
            "lease_s": self.lease_s,
            "renewal": self.renewal,
        }
        return json.dumps(body).encode()


class Lease:
    """One holder's time with the lease object. The keeper's thread renews it, its owner's looks at it."""

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
    def is_lost(self) -> bool:
        """Whether another writer may have the lease: it was seen, or the time is over."""
        return self._is_lost or self._used_s >= self._lease_s

    @property
    def _used_s(self) -> float:
        """How much of the lease is over."""
        return self._elapsed() - self._renewed_at

    def lose(self) -> None:
        """Take note that another writer took over."""
        self._is_lost = True

    def check(self) -> None:
        """Make sure that the lease is not over, and will not be in this moment.

        When half of it is over its keeper is late, because the process stood still or a request hangs. Then it is
        renewed here: as long as no other writer took it, the time with it goes on.

        Raises:
            LeaseLostError: another writer took it, or may do so.
        """
        if not self._is_lost and self._used_s >= self._lease_s / 2:
            try:
                self._renew()
            except StorageError as error:
                _log.warning("a lease was not renewed: %s", error)
        if self.is_lost:
            self.lose()
            raise LeaseLostError

    def try_take(self, observation: _Observation, gone: Collection[str] = ()) -> bool:
        """Take the lease, if it is free; owners in `gone` are known to be through with it."""
        current = self._objects.read(self._name)
        before = _LeaseBody() if current is None else _LeaseBody.parse(current.data)
        unchanged_s = 0.0 if current is None else observation.unchanged_s(current.data)
        # A request of this owner whose answer got lost may have arrived.
        is_free = before.owner == self.owner or before.owner in gone
        if not is_free and not before.is_over(unchanged_s, self._wall()):
            return False
        self.epoch = before.epoch + 1
        self.needs_fence = not before.is_released
        return self._put(None if current is None else current.tag)

    def rise_above(self, fence: int) -> None:
        """Get an epoch above a fence that is higher.

        Raises:
            LeaseLostError: another writer has the lease.
        """
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
            try:
                self._renew()
            except StorageError as error:
                _log.warning("a lease was not renewed: %s", error)
            if self._is_lost:
                return
            # The time of a slow request is not added to the pause.
            rest_s = renewal_s - (self._elapsed() - begun)
            pause_s = max(rest_s, renewal_s / 10)

    def _renew(self) -> None:
        """Replace the state that this owner wrote last; only another writer's state is in the way of that."""
        with self._replacing:
            if not self._is_lost and not self._put(self._tag):
                self.lose()

    def give_back(self) -> bool:
        """End the lease; whether it is known that the next writer need not wait for it."""
        # An expired lease instead of a delete: deleting could hit the lease of a successor.
        body = _LeaseBody(
            owner=self.owner,
            expires_at=0.0,
            epoch=self.epoch,
            is_released=not self.needs_fence and not self.is_lost,
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
        body = _LeaseBody(
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


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(attempt: _Attempt, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    while not attempt():
        if time.monotonic() >= deadline:
            raise RetryableCommitConflictError(
                f"the commit lock stayed busy for {timeout_s:g} s; nothing happened, try again"
            )
        # The pause grows and differs, so that waiters spread.
        pause_s = random.uniform(wait_s / 2, wait_s)
        time.sleep(pause_s)  # neither backend tells when the lock is free
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


class _Attempt(Protocol):
    def __call__(self) -> bool: ...
