"""Undoing what writers did after they had lost the commit lock.

A writer looks at its tenure before every effect, and the catalog refuses what it publishes too late. But it can stand
still between its look and the commit of a table: then the table moves after its sidecar was settled. Nothing shows that
version, and the next write to the table would build on it. It carries the mark of this project and nothing explains it,
so its maker is known to be gone: the published content is restored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from omnigraph.commit.audit import ROLLED_BACK, RecoveryRecord
from omnigraph.commit.environment import GraphEnvironment, NewCommit
from omnigraph.commit.expectations import ROLLBACK_KIND, Expectations, NothingFollows
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.sweep import RECOVERY_ACTOR, restore
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.storage.datasets.staged import is_own_movement

if TYPE_CHECKING:
    from omnigraph.storage.datasets.tables import Table

LATE_WRITER = "LateWriter"

_log = logging.getLogger(__name__)


def is_late_movement(table: Table, pin: TablePin) -> bool:
    """Whether only writers of this project moved a dataset past its pin. Without a sidecar these came too late."""
    return table.version > pin.version and is_own_movement(table, pin.version, table.version)


def undo_late_writers(environment: GraphEnvironment, branch: str, keys: Collection[TableKey]) -> GraphCommit | None:
    """Restore the tables of a branch that late writers moved; the commit that publishes it, None when there was none.

    Runs inside the window after everything was settled: what no sidecar explains has no living writer.
    """
    head = environment.manifest.state().heads.get(branch)
    if head is None:
        return None
    moved = []
    for key in sorted(keys):
        pin = head.pins.get(key)
        if pin is None or pin.branch != head.fork_name:
            continue
        table = environment.tables.open(pin.location, pin.branch)
        if is_late_movement(table, pin):
            moved.append((pin, table))
    if not moved:
        return None
    operation_id = new_ulid()
    restored = [_restored(pin, restore(environment, table, pin.version)) for pin, table in moved]
    commit = _publish(environment, head, restored, operation_id)
    environment.audit.append(
        RecoveryRecord(
            recovery_id=new_ulid(),
            graph_commit_id=commit.commit_id,
            recovery_kind=ROLLED_BACK,
            recovery_for_actor=None,
            operation_id=operation_id,
            writer_kind=ROLLBACK_KIND,
            created_at=environment.clock(),
            tables={
                pin.table_key: {"class": LATE_WRITER, "from_version": table.version, "to_version": pin.version}
                for pin, table in moved
            },
        )
    )
    _log.warning(
        "recovery: undid what a writer without the commit lock did to %s", ", ".join(pin.table_key for pin, _ in moved)
    )
    return commit


def _restored(pin: TablePin, table: Table) -> TablePin:
    return TablePin(
        table_key=pin.table_key,
        incarnation=pin.incarnation,
        location=pin.location,
        branch=pin.branch,
        version=table.version,
        row_count=pin.row_count,
    )


def _publish(environment: GraphEnvironment, head: Head, pins: list[TablePin], operation_id: str) -> GraphCommit:
    expectations = Expectations.of(head, NothingFollows(head.commit_id))
    commit = NewCommit(commit_id=new_ulid(), kind=ROLLBACK_KIND, operation_id=operation_id, actor=RECOVERY_ACTOR)
    return environment.publish(expectations, Changes(pins=tuple(pins)), commit)
