"""The catalog: which dataset versions are visible together, on which branch, since which commit.

Owns: catalog rows, pure reconstruction of snapshots, the publisher (the one door), lineage, targets of reads, the
storage-format stamp. Never touches the data of a table. Start reading at `rows`, then `snapshot` and `publisher`.
"""

from omnigraph.ids import check_branch_name
from omnigraph.manifest.branching import (
    branch_at,
    check_new_branch,
    deleted_branch,
    free_fork_name,
)
from omnigraph.manifest.expectations import PHYSICAL_KINDS, ROLLBACK_KIND, Expectations
from omnigraph.manifest.format import INTERNAL_SCHEMA_VERSION
from omnigraph.manifest.lineage import (
    BaseStep,
    base_commits,
    base_steps,
    disordered,
    distances,
    doubled,
    first_parents,
    lasting_bases,
    merge_bases,
    parents,
)
from omnigraph.manifest.pins import check_pins, open_pin, reading_pins
from omnigraph.manifest.pruning import forgettable_rows, known_commits
from omnigraph.manifest.publisher import (
    FOLD_THRESHOLD,
    PUBLISHER_RETRY_BUDGET,
    CatalogFold,
    Changes,
    Manifest,
)
from omnigraph.manifest.retention import Reason, Retained, RetentionPolicy, plan_retention
from omnigraph.manifest.rows import MAIN, GraphCommit, Head, TablePin, Tombstone
from omnigraph.manifest.snapshot import History, Snapshot, branch_of, snapshot_at, snapshot_of
from omnigraph.manifest.state import ManifestState
from omnigraph.manifest.targets import Target, check_readable, resolve_target

__all__ = [
    "FOLD_THRESHOLD",
    "INTERNAL_SCHEMA_VERSION",
    "MAIN",
    "PHYSICAL_KINDS",
    "PUBLISHER_RETRY_BUDGET",
    "ROLLBACK_KIND",
    "BaseStep",
    "CatalogFold",
    "Changes",
    "Expectations",
    "GraphCommit",
    "Head",
    "History",
    "Manifest",
    "ManifestState",
    "Reason",
    "Retained",
    "RetentionPolicy",
    "Snapshot",
    "TablePin",
    "Target",
    "Tombstone",
    "base_commits",
    "base_steps",
    "branch_at",
    "branch_of",
    "check_branch_name",
    "check_new_branch",
    "check_pins",
    "check_readable",
    "deleted_branch",
    "disordered",
    "distances",
    "doubled",
    "first_parents",
    "forgettable_rows",
    "free_fork_name",
    "known_commits",
    "lasting_bases",
    "merge_bases",
    "open_pin",
    "parents",
    "plan_retention",
    "reading_pins",
    "resolve_target",
    "snapshot_at",
    "snapshot_of",
]
