"""Everything a writer needs to reach one graph, gathered once."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omnigraph.manifest import Manifest
from omnigraph.recovery.audit import RecoveryAudit
from omnigraph.recovery.lock import (
    CommitLock,
    FileCommitLock,
    HeldLock,
    LeaseCommitLock,
    StagingLock,
)
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
        durable=durable,
        lock_timeout_s=lock_timeout_s,
    )
