"""The commit protocol and its recovery: a write happens as a whole, also when its process dies.

Owns: sidecars, phases A to D, the commit lock, settling of interrupted writes, the audit of recovery. Never decides
what a write contains. Start reading at `attempt`, then `classify` and `sweep`.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports
from omnigraph.recovery.audit import RecoveryRecord
from omnigraph.recovery.environment import GraphEnvironment, NewCommit, open_environment

if TYPE_CHECKING:
    from omnigraph.recovery.attempt import (
        Attempt,
        Intent,
        StagedTable,
        commit_write,
        discard_staged,
        run_phases,
    )
    from omnigraph.recovery.cleanup import CleanupCall, clean_up
    from omnigraph.recovery.cleanup_report import CleanupReport, DatasetCleanup
    from omnigraph.recovery.forks import (
        find_orphan_forks,
        reclaim_forks,
        reclaim_forks_quietly,
        remove_unpublished_forks,
    )
    from omnigraph.recovery.late_writers import undo_late_writers
    from omnigraph.recovery.rebasing import find_foreign_versions, rebase_forks
    from omnigraph.recovery.reclaim import (
        Reclaimed,
        find_abandoned_answers,
        reclaim_staged_files,
        staged_max_age_s,
    )
    from omnigraph.recovery.sidecar import WriterKind, list_sidecars, read_sidecar
    from omnigraph.recovery.sweep import RECOVERY_ACTOR, has_unsettled, settle_all

__all__ = [
    "RECOVERY_ACTOR",
    "Attempt",
    "CleanupCall",
    "CleanupReport",
    "DatasetCleanup",
    "GraphEnvironment",
    "Intent",
    "NewCommit",
    "Reclaimed",
    "RecoveryRecord",
    "StagedTable",
    "WriterKind",
    "clean_up",
    "commit_write",
    "discard_staged",
    "find_abandoned_answers",
    "find_foreign_versions",
    "find_orphan_forks",
    "has_unsettled",
    "list_sidecars",
    "open_environment",
    "read_sidecar",
    "rebase_forks",
    "reclaim_forks",
    "reclaim_forks_quietly",
    "reclaim_staged_files",
    "remove_unpublished_forks",
    "run_phases",
    "settle_all",
    "staged_max_age_s",
    "undo_late_writers",
]

__getattr__ = late_exports(
    __name__,
    {
        "Attempt": "attempt",
        "Intent": "attempt",
        "StagedTable": "attempt",
        "commit_write": "attempt",
        "discard_staged": "attempt",
        "run_phases": "attempt",
        "CleanupCall": "cleanup",
        "clean_up": "cleanup",
        "CleanupReport": "cleanup_report",
        "DatasetCleanup": "cleanup_report",
        "find_orphan_forks": "forks",
        "reclaim_forks": "forks",
        "reclaim_forks_quietly": "forks",
        "remove_unpublished_forks": "forks",
        "undo_late_writers": "late_writers",
        "find_foreign_versions": "rebasing",
        "rebase_forks": "rebasing",
        "Reclaimed": "reclaim",
        "find_abandoned_answers": "reclaim",
        "reclaim_staged_files": "reclaim",
        "staged_max_age_s": "reclaim",
        "WriterKind": "sidecar",
        "list_sidecars": "sidecar",
        "read_sidecar": "sidecar",
        "RECOVERY_ACTOR": "sweep",
        "has_unsettled": "sweep",
        "settle_all": "sweep",
    },
)
