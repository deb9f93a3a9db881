"""The catalog: which dataset versions are visible together, on which branch, since which commit.

Owns: catalog rows, pure reconstruction of snapshots, the publisher (the one door), lineage, targets of reads, the
storage-format stamp. Never touches the data of a table. Start reading at `rows`, then `snapshot` and `publisher`.
"""

from omnigraph.manifest.branch_names import check_branch_name
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
    check_new_branch,
    new_branch_head,
)
from omnigraph.manifest.rows import MAIN, GraphCommit, Head, TablePin, Tombstone
from omnigraph.manifest.snapshot import History, Snapshot, snapshot_at, snapshot_of
from omnigraph.manifest.targets import Target, resolve_target

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
    "Target",
    "Tombstone",
    "check_branch_name",
    "check_new_branch",
    "new_branch_head",
    "resolve_target",
    "snapshot_at",
    "snapshot_of",
]
