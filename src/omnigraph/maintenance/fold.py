"""Folding: a writer whose table has collected many small fragments makes one of them, right after its own commit.

Small writes stay fast without anybody running a command. Only the newest fragments that no index covers are folded, so
that nothing but the fragments changes, and the work is bounded. It is a favour: whatever goes wrong, the write before
it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.attempt import Intent, StagedTable, commit_write
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot, snapshot_of
from omnigraph.commit.targets import open_pin
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import ConflictError
from omnigraph.storage.datasets.compaction import (
    choose_fold,
    fragment_facts,
    newest_rows,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
)

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment, GraphSettings
    from omnigraph.commit.rows import GraphCommit, TablePin
    from omnigraph.storage.datasets.staged import StagedWrite
    from omnigraph.storage.datasets.tables import Table

#: Who folds, in the history.
FOLD_ACTOR = "omnigraph:fold"
#: What one fold writes at most.
FOLD_MAX_ROWS = 100_000
FOLD_MAX_BYTES = 32 * 1024 * 1024
#: How long a fold waits for the commit lock: who holds it is writing, and may fold himself.
_PATIENCE_S = 0.2

_log = logging.getLogger(__name__)


def fold_after(
    environment: GraphEnvironment, settings: GraphSettings, commit: GraphCommit | None
) -> None:
    """Fold the tables that a commit touched, where it is time to. Never fails."""
    if commit is None or not settings.folds:
        return
    try:
        _fold(environment, settings.fold_fragments, commit)
    except ConflictError as lost:
        _log.debug("somebody else wrote meanwhile, nothing was folded: %s", lost)
    except Exception as error:  # noqa: BLE001  # the write before it is done, and must not look as if it had failed
        _log.warning("small fragments stay until the next write: %s", error)


def _fold(environment: GraphEnvironment, more_than: int, commit: GraphCommit) -> None:
    snapshot = snapshot_of(environment.manifest.state().head(commit.branch))
    pins = [snapshot.pins[key] for key in commit.tables if key in snapshot.pins]
    candidates = [pin for pin in pins if pin.branch == snapshot.fork_name]
    due = [pin for pin in candidates if _may_fold(open_pin(environment.tables, pin), more_than)]
    if not due:
        return
    with environment.staging.shared():
        staged = list(_stage(environment, due, more_than))
        if staged:
            reach(Failpoint.FOLD_STAGED)
            impatient = replace(environment, lock_timeout_s=_PATIENCE_S)
            commit_write(impatient, _intent(snapshot, staged), staged)


def _may_fold(table: Table, more_than: int) -> bool:
    """Whether it is worth looking closer: the question that every write asks."""
    rows = newest_rows(table, more_than + 1)
    return rows is not None and rows <= FOLD_MAX_ROWS


def _stage(
    environment: GraphEnvironment, pins: list[TablePin], more_than: int
) -> Iterator[StagedTable]:
    for pin in pins:
        write = _stage_table(open_pin(environment.tables, pin), more_than)
        if write is not None:
            yield StagedTable(table_key=pin.table_key, incarnation=pin.incarnation, staged=write)


def _stage_table(table: Table, more_than: int) -> StagedWrite | None:
    chosen = choose_fold(
        fragment_facts(table, with_blobs=True),
        more_than=more_than,
        max_rows=FOLD_MAX_ROWS,
        max_bytes=FOLD_MAX_BYTES,
    )
    if not chosen:
        return None
    tasks = plan_compaction(table, [chosen])
    return stage_compaction(table, [run_compaction_task(task) for task in tasks])


def _intent(snapshot: Snapshot, staged: list[StagedTable]) -> Intent:
    expectations = Expectations.of(
        snapshot, touched={item.table_key: item.staged.read_version for item in staged}
    )
    return Intent(kind=WriterKind.OPTIMIZE, expectations=expectations, actor=FOLD_ACTOR)
