"""The catalog: which dataset versions are visible together, on which branch, since which commit.

Owns: catalog rows, pure reconstruction of snapshots, the publisher (the one door), lineage, the storage-format stamp.
Never touches the data of a table. Start reading at `rows`, then `snapshot` and `publisher`.
"""

from omnigraph.manifest.format import INTERNAL_SCHEMA_VERSION
from omnigraph.manifest.publisher import (
    FOLD_THRESHOLD,
    PHYSICAL_KINDS,
    PUBLISHER_RETRY_BUDGET,
    ROLLBACK_KIND,
    Changes,
    Expectations,
    Manifest,
    ManifestState,
)
from omnigraph.manifest.rows import MAIN, GraphCommit, Head, TablePin, Tombstone
from omnigraph.manifest.snapshot import History, Snapshot, snapshot_at, snapshot_of

__all__ = [
    "FOLD_THRESHOLD",
    "INTERNAL_SCHEMA_VERSION",
    "MAIN",
    "PHYSICAL_KINDS",
    "PUBLISHER_RETRY_BUDGET",
    "ROLLBACK_KIND",
    "Changes",
    "Expectations",
    "GraphCommit",
    "Head",
    "History",
    "Manifest",
    "ManifestState",
    "Snapshot",
    "TablePin",
    "Tombstone",
    "snapshot_at",
    "snapshot_of",
]
