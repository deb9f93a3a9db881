"""Locks: of commits (a file or a lease), of staged work, and of readers."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Protocol

from omnigraph.errors import OutsideRootError, RetryableCommitConflictError, StorageError, StorageFailure
from omnigraph.storage._failures import translated, without_advice
from omnigraph.storage.lease import (
    LEASE_S,
    LEASE_VARIABLE,
    LONGEST_LEASE_S,
    Lease,
    LeaseBody,
    Observation,
    Tenure,
    request_limit_s,
    seconds_since_boot,
)
from omnigraph.storage.location import COMMIT_LOCK, READING_LOCK, STAGING_LOCK, GraphLocation
from omnigraph.storage.objects import ControlObjects

# ---- The commit lock: one writer at a time in the commit window, and a lock that dies with its owner
#
# On a local disk an OS file lock, which the kernel releases when the process ends. On an object store a lease: an
# object with an owner and the length of the lease, replaced by a renewal several times in that length, and taken over
# by a writer that saw no renewal for that length on its own clock. No clock is compared with that of another machine.
# An owner that stood still does not know that it was taken over, so every holder has an epoch, one above that of the
# holder before: no writer publishes under an epoch that a successor has passed (`storage.lease`).


_log = logging.getLogger(__name__)

#: Renewals in the length of a lease: two of them may fail.
_RENEWALS = 4
#: How often a lease is asked for when the store fails.
_TRIES = 3
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


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of a lock file; closing it releases the lock."""
    with translated(f"locking {path}"):
        descriptor = open_lock_file(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class CommitLock(Protocol):
    """Mutual exclusion over the commit window of one graph, between threads and processes."""

    #: Whether a living holder can lose it, so that every effect needs a look at the tenure.
    can_be_lost: bool

    def held(self, timeout_s: float) -> AbstractContextManager[Tenure]:
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
    def held(self, timeout_s: float) -> Iterator[Tenure]:
        """Hold the lock; every holder has a file description of its own, so threads exclude each other too."""
        with _opened(self._path) as descriptor:
            _wait(lambda: _try_lock(descriptor), timeout_s)
            yield Tenure()


@contextmanager
def held_file(path: Path) -> Iterator[None]:
    """Hold a file that exists only while it is held. Never waits.

    Raises:
        RetryableCommitConflictError: another process holds it.
    """
    with _opened(path) as descriptor:
        # A file that its last holder removed in this moment is not the one that others see.
        if not _try_lock(descriptor) or not _is_same_file(descriptor, path):
            raise RetryableCommitConflictError(f"{path.name} is held by another writer; try again")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


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
        with _opened(self._location.path / STAGING_LOCK) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextmanager
    def try_exclusive(self) -> Iterator[bool]:
        """Hold the lock alone, if no writer has staged files now; whether it is held. Never waits.

        On an object store nothing tells who stages, so the answer is always no.
        """
        if not self._location.is_local:
            yield False
            return
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(_opened(self._location.path / STAGING_LOCK))
                is_alone = _try_lock(descriptor)
            except StorageError:
                if os.access(self._location.path, os.W_OK):
                    raise
                # A process that may only read cannot tell who stages.
                is_alone = False
            yield is_alone


def lock_holder(location: GraphLocation, objects: ControlObjects) -> str | None:
    """Describe who holds the commit lock now; None when it is free. Never waits, and changes nothing."""
    if not location.is_local:
        current = objects.read(COMMIT_LOCK)
        left_s = 0.0 if current is None else LeaseBody.parse(current.data).expires_at - time.time()
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
        self._observation = Observation(elapsed)
        #: Owners of this process that are through, or never began, and whose lease may still lie there.
        self._gone: set[str] = set()

    def held(self, timeout_s: float) -> AbstractContextManager[Tenure]:
        """Hold the lease and keep renewing it until the block ends."""
        lease = self._new_lease()
        return self._taken(lease, lambda: self._try_take(lease), timeout_s)

    def claimed(self) -> AbstractContextManager[Tenure]:
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
        return Lease(self._objects, self._name, self._lease_s, wall=self._wall, elapsed=self._elapsed)

    def _try_take(self, lease: Lease) -> bool:
        return lease.try_take(self._observation, self._gone)

    @contextmanager
    def _taken(self, lease: Lease, attempt: Callable[[], bool], timeout_s: float) -> Iterator[Tenure]:
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


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(attempt: Callable[[], bool], timeout_s: float) -> None:
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


# ---- A lock that reads hold together while they run, so that a cleanup knows whether any read runs
#
# No process ever waits for it: a cleanup only looks whether it is free, and a read that cannot take it goes on without.


class Reading:
    """One read that holds the lock from its beginning until it is closed, or until its `with` statement ends.

    A class, since a query may take 50 µs. Thread-safe: a result may be dropped while another thread closes it.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: ReadingLock) -> None:
        self._lock: ReadingLock | None = lock

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the read; further calls do nothing."""
        lock = self._lock
        if lock is not None:
            lock.leave(self)


class ReadingLock:
    """Held while one or more reads of an open graph run. Thread-safe.

    On an object store there is no such lock, and on a disk that cannot be written there may be none: there a cleanup
    goes by the age of what could be read.
    """

    def __init__(self, location: GraphLocation) -> None:
        #: None on an object store. A text: every read opens it.
        self._path = str(location.path / READING_LOCK) if location.is_local else None
        #: Entered again where the collector of garbage drops a result while its thread is inside.
        self._guard = RLock()
        self._readers = 0
        self._descriptor: int | None = None

    def begin(self) -> Reading:
        """Begin a read: from before the target is looked up until the last row was read."""
        with self._guard:
            # Counted first: a read that ends meanwhile must not take the lock away.
            self._readers += 1
            if self._descriptor is None and self._path is not None:
                self._descriptor = self._take()
        return Reading(self)

    def leave(self, reading: Reading) -> None:
        """End a read, once however often it is closed."""
        with self._guard:
            if reading._lock is None:
                return
            reading._lock = None
            self._readers -= 1
            if self._readers == 0 and self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                # Closing releases the lock.
                os.close(descriptor)

    def has_readers(self) -> bool:
        """Whether a read runs now, in any process; on an object store nothing tells, so the answer is yes.

        A read that begins after a no looks up its target after it, too.
        """
        descriptor = self._open()
        if descriptor is None:
            return True
        try:
            return not _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _take(self) -> int | None:
        descriptor = self._open()
        if descriptor is None:
            return None
        try:
            # Never waits long: a cleanup holds it for the moment of a look only.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError as error:
            os.close(descriptor)
            _log.debug("reading without a lock: %s", error)
            return None
        return descriptor

    def _open(self) -> int | None:
        if self._path is None:
            return None
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            try:
                # A link would lead out of the graph: it is not followed, and the read goes on without the lock.
                return os.open(self._path, flags | os.O_NOFOLLOW, 0o666)
            except OSError as error:
                _log.debug("%s cannot be opened: %s", self._path, error)
        return None
