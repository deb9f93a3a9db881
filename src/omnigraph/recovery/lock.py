"""The commit lock: one writer at a time in the commit window, and a lock that dies with its owner.

On a local disk an OS file lock, which the kernel releases when the process ends. On an object store a lease: an object
with an owner and an expiry, renewed while it is held, taken over when it has expired; the strict publish is the final
fence.
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
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import OutsideRootError, RetryableCommitConflictError, StorageError
from omnigraph.ids import new_ulid
from omnigraph.storage.failures import translated
from omnigraph.storage.location import COMMIT_LOCK, STAGING_LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.objects import ControlObjects

_log = logging.getLogger(__name__)

LEASE_S = 30.0
RENEWAL_S = 10.0
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


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

    #: Whether a living holder can lose it, so that it has to be taken again before anything is undone.
    can_be_lost: bool

    def held(self, timeout_s: float) -> AbstractContextManager[None]:
        """Hold the lock.

        Raises:
            RetryableCommitConflictError: it stayed busy for `timeout_s`; nothing happened.
        """
        ...


class FileCommitLock:
    """An OS lock on a file of the graph."""

    can_be_lost = False

    def __init__(self, root: Path, name: str = COMMIT_LOCK) -> None:
        self._path = root / name

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Hold the lock; every holder has a file description of its own, so threads exclude each other too."""
        with translated(f"locking {self._path}"):
            descriptor = open_lock_file(self._path)
        try:
            _wait(lambda: _try_lock(descriptor), timeout_s)
            yield
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
        left_s = 0.0 if current is None else _expiry(current.data) - time.time()
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
    ) -> None:
        self._objects = objects
        self._name = name
        self._lease_s = lease_s
        self._renewal_s = renewal_s

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Hold the lease and keep renewing it until the block ends."""
        lease = _Lease(self._objects, self._name, new_ulid(), self._lease_s)
        _wait(lease.try_take, timeout_s)
        stop = Event()
        keeper = Thread(target=lease.keep, args=(stop, self._renewal_s), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            stop.set()
            keeper.join()
            lease.give_back()


class HeldLock:
    """The lock as seen by code that runs inside the window already."""

    can_be_lost = False

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Nothing to wait for."""
        del timeout_s
        yield


class _Lease:
    """One holder's view of the lease object."""

    def __init__(self, objects: ControlObjects, name: str, owner: str, lease_s: float) -> None:
        self._objects = objects
        self._name = name
        self._owner = owner
        self._lease_s = lease_s
        self._tag: str | None = None

    def try_take(self) -> bool:
        self._tag = self._objects.create(self._name, self._body(self._lease_s))
        if self._tag is not None:
            return True
        current = self._objects.read(self._name)
        if current is None or _expiry(current.data) > time.time():
            return False
        self._tag = self._objects.replace(self._name, self._body(self._lease_s), current.tag)
        return self._tag is not None

    def keep(self, stop: Event, renewal_s: float) -> None:
        while not stop.wait(renewal_s):
            try:
                tag = self._objects.replace(self._name, self._body(self._lease_s), self._tag)
            except StorageError as error:
                _log.warning("a lease was not renewed: %s", error)
                continue
            if tag is None:
                return
            self._tag = tag

    def give_back(self) -> None:
        # An expired lease instead of a delete: deleting could hit the lease of a successor.
        try:
            self._objects.replace(self._name, self._body(-1.0), self._tag)
        except StorageError as error:
            _log.warning("a lease stays until it expires: %s", error)

    def _body(self, lease_s: float) -> bytes:
        return json.dumps({"owner": self._owner, "expires_at": time.time() + lease_s}).encode()


def _expiry(data: bytes) -> float:
    try:
        return float(json.loads(data)["expires_at"])
    except (ValueError, KeyError, TypeError):
        # Not a lease of ours, or cut short by its writer's death: nobody holds it.
        return 0.0


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
