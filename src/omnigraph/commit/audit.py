"""The audit of recovery: one row per settled sidecar, in a dataset of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.codec import Document
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.filters import Compare
from omnigraph.storage.datasets.staged import (
    StagedWrite,
    check_written,
    commit_staged,
    create_table,
    stage_append,
    stage_overwrite,
    sync_commit,
    with_checksums,
)
from omnigraph.storage.datasets.tables import Table, TableStore, dataset_exists
from omnigraph.storage.location import RECOVERIES, GraphLocation

ROLLED_FORWARD = "RolledForward"
ROLLED_BACK = "RolledBack"

#: Every record is a fragment of its own until they are folded.
_MAX_FRAGMENTS = 32

_COLUMNS: dict[str, tuple[pa.DataType, bool]] = {
    "recovery_id": (pa.utf8(), False),
    "graph_commit_id": (pa.utf8(), True),
    "recovery_kind": (pa.utf8(), False),
    "recovery_for_actor": (pa.utf8(), True),
    "operation_id": (pa.utf8(), False),
    "writer_kind": (pa.utf8(), False),
    "created_at": (pa.int64(), False),
    "tables": (pa.utf8(), False),
}
_SCHEMA = pa.schema([pa.field(name, type_, null) for name, (type_, null) in _COLUMNS.items()])


@frozen(kw_only=True)
class RecoveryRecord(Document):
    """One settled sidecar. `created_at` is in microseconds since the epoch."""

    recovery_id: str
    graph_commit_id: str | None
    recovery_kind: str
    recovery_for_actor: str | None
    operation_id: str
    writer_kind: str
    created_at: int
    #: Per table key: its class, `from_version` and the logical `to_version`.
    tables: Mapping[str, Mapping[str, object]]


class RecoveryAudit:
    """Reads and appends recovery records. Appending needs the commit lock."""

    def __init__(self, location: GraphLocation, *, durable: bool) -> None:
        self._location = location
        self._durable = durable

    def _open(self) -> Table | None:
        return TableStore(self._location).open(RECOVERIES) if dataset_exists(self._location, RECOVERIES) else None

    def append(self, record: RecoveryRecord) -> None:
        """Add one record."""
        reach(Failpoint.AUDIT_WRITE)
        table = self._open() or create_table(self._location, RECOVERIES, _SCHEMA)
        row = record.to_json() | {"tables": json.dumps(record.to_json()["tables"], sort_keys=True)}
        self._commit(stage_append(table, pa.Table.from_pylist([row], schema=_SCHEMA)))

    def fold(self) -> None:
        """Write all records anew as one fragment, when there are many."""
        table = self._open()
        if table is not None and table.fragment_count() > _MAX_FRAGMENTS:
            self._commit(stage_overwrite(table, table.read()))

    def _commit(self, staged: StagedWrite) -> None:
        check_written(self._location, staged)
        committed = commit_staged(with_checksums(staged))
        if self._durable:
            sync_commit(self._location, committed, staged)

    def has(self, operation_id: str) -> bool:
        """Whether an operation is recorded already."""
        return bool(self._read(Compare("operation_id", ScalarType(Scalar.STRING), "=", operation_id)))

    def records(self) -> list[RecoveryRecord]:
        """All records, newest first."""
        return sorted(self._read(), key=lambda record: record.recovery_id, reverse=True)

    def _read(self, condition: Compare | None = None) -> list[RecoveryRecord]:
        table = self._open()
        if table is None:
            return []
        with translated(f"reading {RECOVERIES}"):
            rows = table.read(None, condition).to_pylist()
            return [_record(row) for row in rows]


def _record(row: dict[str, Any]) -> RecoveryRecord:
    """One row as it was written.

    Raises:
        ValueError: it has other columns, or a list of tables that is none.
    """
    try:
        return RecoveryRecord(**(row | {"tables": json.loads(row["tables"])}))
    except TypeError as error:
        raise ValueError(f"a row is not a recovery: {error}") from error
