"""Folding: a writer whose table has collected many small fragments makes one of them, right after its own commit.

Small writes stay fast without anybody running a command. Only the newest fragments that no index covers are folded, so
that nothing but the fragments changes, and the work is bounded. It is a favour: whatever goes wrong, the write before
it is done.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.targets import open_pin
from omnigraph.commit.transaction import Transaction
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
    from omnigraph.commit.rows import GraphCommit
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


def fold_after(environment: GraphEnvironment, settings: GraphSettings, commit: GraphCommit | None) -> None:
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
    head = environment.manifest.known_state().head(commit.branch)
    pins = [head.pins[key] for key in commit.tables if key in head.pins]
    candidates = [pin for pin in pins if pin.branch == head.fork_name]
    due = [pin for pin in candidates if _may_fold(open_pin(environment.tables, pin), more_than)]
    if not due:
        return

    def prepare(transaction: Transaction) -> None:
        with transaction.environment.staging.shared():
            for pin in due:
                transaction.stage(pin, _stage_table(transaction.open(pin), more_than))
            if not transaction.is_empty:
                reach(Failpoint.FOLD_STAGED)
                transaction.commit()

    impatient = replace(environment, lock_timeout_s=_PATIENCE_S)
    kind = WriterKind.OPTIMIZE
    Transaction(impatient, commit.branch, kind=kind, actor=FOLD_ACTOR).run(prepare)


def _may_fold(table: Table, more_than: int) -> bool:
    """Whether it is worth looking closer: the question that every write asks."""
    rows = newest_rows(table, more_than + 1)
    return rows is not None and rows <= FOLD_MAX_ROWS


def _stage_table(table: Table, more_than: int) -> StagedWrite | None:
    chosen = choose_fold(
        fragment_facts(table, with_blobs=True), more_than=more_than, max_rows=FOLD_MAX_ROWS, max_bytes=FOLD_MAX_BYTES
    )
    if not chosen:
        return None
    tasks = plan_compaction(table, [chosen])
    return stage_compaction(table, [run_compaction_task(task) for task in tasks])
