"""The commit lock: one writer at a time in the commit window, and a lock that dies with its owner.

On a local disk an OS file lock, which the kernel releases when the process ends. On an object store a lease: an object
with an owner and an expiry, renewed while it is held, taken over when it has expired. An owner that stood still does
not know that it was taken over, so every holder has an epoch, one above that of the holder before: no writer publishes
under an epoch that a successor has passed (`manifest.fencing`).
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
)
from omnigraph.ids import new_ulid
from omnigraph.manifest.fencing import Lifelong, Tenure
from omnigraph.storage.failures import translated
from omnigraph.storage.location import COMMIT_LOCK, STAGING_LOCK
from omnigraph.storage.objects import owner_of, put_owned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.objects import ControlObjects

_log = logging.getLogger(__name__)

LEASE_S = 30.0
RENEWAL_S = 10.0
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
        """Make sure, without asking the store, that no other writer can have the lock.

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
    """A lease object on an object store."""

    can_be_lost = True

    def __init__(
        self,
        objects: ControlObjects,
        name: str = COMMIT_LOCK,
        *,
        lease_s: float = LEASE_S,
        renewal_s: float = RENEWAL_S,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._objects = objects
        self._name = name
        self._lease_s = lease_s
        self._renewal_s = renewal_s
        self._wall = wall
        self._elapsed = elapsed
        #: Owners of this process that are through, or never began, and whose lease may still lie there.
        self._gone: set[str] = set()

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[HeldTenure]:
        """Hold the lease and keep renewing it until the block ends."""
        lease = Lease(
            self._objects, self._name, self._lease_s, wall=self._wall, elapsed=self._elapsed
        )
        try:
            _wait(lambda: lease.try_take(self._gone), timeout_s)
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


@dataclass(frozen=True, slots=True)
class _LeaseBody:
    """What a lease object says. What is missing or damaged counts as the lease of a dead writer."""

    owner: str | None = None
    expires_at: float = 0.0
    epoch: int = 0
    #: Whether its owner gave it back after everything it did, so that nothing of it can come late.
    is_released: bool = False

    @classmethod
    def parse(cls, data: bytes) -> _LeaseBody:
        try:
            body = json.loads(data)
            return cls(
                owner=owner_of(data),
                expires_at=float(body["expires_at"]),
                epoch=int(body.get("epoch", 0)),
                is_released=body.get("released") is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return cls()

    def encode(self) -> bytes:
        body = {
            "owner": self.owner,
            "expires_at": self.expires_at,
            "epoch": self.epoch,
            "released": self.is_released,
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
        self._renewed_at = 0.0
        self._is_lost = False
        #: Renewing and rising replace the same state.
        self._replacing = Lock()

    @property
    def is_lost(self) -> bool:
        """Whether another writer may have the lease: it was seen, or the time is over."""
        return self._is_lost or self._elapsed() - self._renewed_at >= self._lease_s

    def lose(self) -> None:
        """Take note that another writer took over."""
        self._is_lost = True

    def check(self) -> None:
        """Make sure, without asking the store, that the lease is not over.

        Raises:
            LeaseLostError: it is.
        """
        if self.is_lost:
            self._is_lost = True
            raise LeaseLostError

    def try_take(self, gone: Collection[str] = ()) -> bool:
        """Take the lease, if it is free; owners in `gone` are known to be through with it."""
        current = self._objects.read(self._name)
        before = _LeaseBody() if current is None else _LeaseBody.parse(current.data)
        if before.expires_at > self._wall() and before.owner not in gone:
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
        while not stop.wait(renewal_s):
            try:
                with self._replacing:
                    is_renewed = self._put(self._tag)
            except StorageError as error:
                _log.warning("a lease was not renewed: %s", error)
                continue
            if not is_renewed:
                self.lose()
                return

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
        body = _LeaseBody(
            owner=self.owner, expires_at=self._wall() + self._lease_s, epoch=self.epoch
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
