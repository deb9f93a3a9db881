"""A lock that reads hold together while they run, so that a cleanup knows whether anybody reads.

Nobody ever waits for it: a cleanup only looks whether it is free, and a read that cannot take it goes on without.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.storage.location import READING_LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.storage.location import GraphLocation

_log = logging.getLogger(__name__)


class Reading:
    """One read that runs. Ends once, however often it is told to."""

    def __init__(self, lock: ReadingLock) -> None:
        self._lock: ReadingLock | None = lock

    def end(self) -> None:
        """The last row was read, or nobody wants more."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class ReadingLock:
    """Held while one or more reads of an open graph run. Thread-safe.

    On an object store there is no such lock, and on a disk that cannot be written there may be none: there a cleanup
    goes by the age of what could be read.
    """

    def __init__(self, location: GraphLocation) -> None:
        #: None on an object store. A text: every read opens it.
        self._path = str(location.path / READING_LOCK) if location.is_local else None
        self._guard = Lock()
        self._readers = 0
        self._descriptor: int | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read: from before the target is looked up until the last row was read."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def begin(self) -> Reading:
        """Begin a read that goes on after the call that began it."""
        self.acquire()
        return Reading(self)

    def acquire(self) -> None:
        """Begin to read; ends with one `release`."""
        if self._path is None:
            return
        with self._guard:
            if self._readers == 0:
                self._descriptor = self._take()
            self._readers += 1

    def release(self) -> None:
        """End a read."""
        if self._path is None:
            return
        with self._guard:
            self._readers -= 1
            if self._readers == 0 and self._descriptor is not None:
                # Closing releases the lock.
                os.close(self._descriptor)
                self._descriptor = None

    def has_readers(self) -> bool:
        """Whether somebody reads now, in any process; on an object store nobody knows, so the answer is yes.

        Whoever begins to read after a no looks up its target after it, too.
        """
        descriptor = self._open()
        if descriptor is None:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

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
