"""Everything a writer needs to reach one graph, gathered once."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omnigraph.errors import RetryableCommitConflictError
from omnigraph.ids import fnv1a64
from omnigraph.manifest import Manifest
from omnigraph.recovery.audit import RecoveryAudit
from omnigraph.recovery.lock import (
    CommitLock,
    FileCommitLock,
    HeldLock,
    LeaseCommitLock,
    StagingLock,
    held_file,
)
from omnigraph.recovery.reading_lock import ReadingLock
from omnigraph.storage.location import BRANCH_CLAIM
from omnigraph.storage.objects import ControlObjects, ObstoreObjects
from omnigraph.storage.tables import TableStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.storage.location import GraphLocation

DEFAULT_LOCK_TIMEOUT_S = 60.0


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEnvironment:
    """The stores, the catalog and the lock of one graph. Thread-safe."""

    location: GraphLocation
    objects: ControlObjects
    tables: TableStore
    manifest: Manifest
    audit: RecoveryAudit
    lock: CommitLock
    staging: StagingLock
    reading: ReadingLock
    durable: bool
    lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S
    clock: Callable[[], int] = field(default=now_us)

    @contextmanager
    def window(self) -> Iterator[GraphEnvironment]:
        """Hold the commit lock; inside, the environment knows that it is held.

        Raises:
            RetryableCommitConflictError: the lock stayed busy.
        """
        with self.lock.held(self.lock_timeout_s):
            yield replace(self, lock=HeldLock())

    @contextmanager
    def claim_branch(self, name: str) -> Iterator[None]:
        """Be the only writer that makes a branch together with its data: their forks would share directories.

        Raises:
            RetryableCommitConflictError: somebody else is making it now.
        """
        name_on_disk = f"{BRANCH_CLAIM}{fnv1a64(name.encode()):016x}"
        with ExitStack() as stack:
            try:
                if self.location.is_local:
                    stack.enter_context(held_file(self.location.path / name_on_disk))
                else:
                    stack.enter_context(LeaseCommitLock(self.objects, name_on_disk).held(0))
            except RetryableCommitConflictError as error:
                raise RetryableCommitConflictError(
                    f"another writer is making branch {name!r} now; nothing happened, try again"
                ) from error
            yield


def open_environment(
    location: GraphLocation, *, durable: bool, lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S
) -> GraphEnvironment:
    """The environment of a graph; nothing is read yet."""
    objects = ObstoreObjects(location, durable=durable)
    lock: CommitLock = (
        FileCommitLock(location.path) if location.is_local else LeaseCommitLock(objects)
    )
    return GraphEnvironment(
        location=location,
        objects=objects,
        tables=TableStore(location),
        manifest=Manifest(location, durable=durable),
        audit=RecoveryAudit(location, durable=durable),
        lock=lock,
        staging=StagingLock(location),
        reading=ReadingLock(location),
        durable=durable,
        lock_timeout_s=lock_timeout_s,
    )
