"""Named places where a test can make the system fail.

`OMNIGRAPH_FAILPOINT` holds one instruction, `<name>=<action>` or `<name>@<n>=<action>` for the n-th time the place is
reached. Actions: `kill` ends the process at once, as a power cut would end it for every other process; `raise` raises
`FailpointError`. Without the variable a place costs one look-up. A test in the same process can also watch the places,
to let threads stand still at them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from omnigraph.core.env_settings import Variable

VARIABLE = Variable(
    "OMNIGRAPH_FAILPOINT", "Makes the process fail at a named place; for tests only.", values="`<name>=<action>`"
)


class Failpoint(StrEnum):
    """Every place, in the order in which a write passes them."""

    LOAD_PLANNED = "load_planned"
    IN_TASK = "in_task"
    LOAD_FRAGMENTS_WRITTEN = "load_fragments_written"
    LOAD_IDENTIFIED = "load_identified"
    PATCH_VALUES_WRITTEN = "patch_values_written"
    LOAD_CHECKED = "load_checked"
    QUARANTINE_WRITTEN = "quarantine_written"
    QUARANTINE_PUBLISHED = "quarantine_published"
    EMBED_VECTORS_KEPT = "embed_vectors_kept"
    EMBED_STAGED = "embed_staged"
    MERGE_PLANNED = "merge_planned"
    MERGE_STAGED = "merge_staged"
    MERGE_CHECKED = "merge_checked"
    OPTIMIZE_STAGED = "optimize_staged"
    FOLD_STAGED = "fold_staged"
    BEFORE_SIDECAR = "before_sidecar"
    SIDECAR_WRITE = "sidecar_write"
    AFTER_SIDECAR = "after_sidecar"
    BEFORE_SCHEMA_FILE = "before_schema_file"
    BEFORE_NEW_TABLE = "before_new_table"
    AFTER_NEW_TABLES = "after_new_tables"
    BEFORE_TABLE_COMMIT = "before_table_commit"
    BETWEEN_VERSIONS = "between_versions"
    AFTER_TABLE_COMMIT = "after_table_commit"
    BEFORE_CONFIRM = "before_confirm"
    AFTER_CONFIRM = "after_confirm"
    BEFORE_PUBLISH = "before_publish"
    IN_FOLD = "in_fold"
    BEFORE_CATALOG_COMMIT = "before_catalog_commit"
    AFTER_PUBLISH = "after_publish"
    BEFORE_PROMOTION = "before_promotion"
    BEFORE_STAGED_REMOVAL = "before_staged_removal"
    BEFORE_PURGE = "before_purge"
    SIDECAR_DELETE = "sidecar_delete"
    AFTER_SIDECAR_DELETE = "after_sidecar_delete"
    BEFORE_BRANCH_PUBLISH = "before_branch_publish"
    AFTER_BRANCH_PUBLISH = "after_branch_publish"
    BEFORE_REBASE = "before_rebase"
    BEFORE_ROOT_RECORD = "before_root_record"
    BEFORE_FORK_REMOVAL = "before_fork_removal"
    CLEANUP_PLANNED = "cleanup_planned"
    BEFORE_VERSION_REMOVAL = "before_version_removal"
    AFTER_VERSION_REMOVAL = "after_version_removal"
    BEFORE_COMMITS_FORGOTTEN = "before_commits_forgotten"
    BEFORE_CATALOG_CLEANUP = "before_catalog_cleanup"
    RECOVERY_LIST = "recovery_list"
    BEFORE_RESTORE = "before_restore"
    AFTER_RESTORE = "after_restore"
    BEFORE_RECOVERY_PUBLISH = "before_recovery_publish"
    AFTER_RECOVERY_PUBLISH = "after_recovery_publish"
    AUDIT_WRITE = "audit_write"
    AFTER_AUDIT = "after_audit"
    INIT_AFTER_CLAIM = "init_after_claim"
    INIT_AFTER_TABLES = "init_after_tables"
    INIT_AFTER_SCHEMA = "init_after_schema"
    INIT_AFTER_MANIFEST = "init_after_manifest"


class FailpointError(RuntimeError):
    """Raised on purpose at a named place."""


_reached: Counter[str] = Counter()
_watchers: list[Callable[[Failpoint], None]] = []


@contextmanager
def watched(watcher: Callable[[Failpoint], None]) -> Iterator[None]:
    """Let a test see every place that any thread of this process passes; what it raises is raised there."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def reach(place: Failpoint) -> None:
    """Pass a named place; fail there if the environment asks for it."""
    for watcher in _watchers:
        watcher(place)
    instruction = os.environ.get(VARIABLE)
    if not instruction:
        return
    target, _, action = instruction.partition("=")
    name, _, count = target.partition("@")
    if name != place:
        return
    _reached[instruction] += 1
    if _reached[instruction] != int(count or 1):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise FailpointError(place)


def task_instruction() -> str | None:
    """The instruction for tasks that run in other processes: they do not see the environment of this one."""
    instruction = os.environ.get(VARIABLE, "")
    return instruction if instruction.startswith(f"{Failpoint.IN_TASK}") else None


def reach_in_task(place: Failpoint, instruction: str, attempt: int) -> None:
    """Pass a named place inside a task; `in_task=raise` fails its first try, `in_task@always=raise` every one."""
    target, _, _ = instruction.partition("=")
    name, _, when = target.partition("@")
    if name == place and (when == "always" or attempt == 0):
        raise FailpointError(place)


def reset() -> None:
    """Forget how often places were reached."""
    _reached.clear()
