"""Compaction as bulk work: the rewrites of all tables are tasks of one stage.

Nothing moves here. Whoever called commits each staged write under the commit protocol, or discards it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.storage.compaction import (
    CompactionTask,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table

STAGE = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTable:
    """A table whose new fragments are written, ready for its commit."""

    #: At the version that was planned.
    table: Table
    staged: StagedWrite
    rows: int


def compact_tables(
    workers: Workers, work: Sequence[tuple[Table, Sequence[Sequence[int]]]]
) -> list[RewrittenTable]:
    """Write groups of fragments anew, as one fragment each; tables without groups are left out.

    Raises:
        SparkError: a task failed on every try. What other tasks wrote is unreferenced, and cleanup removes it.
    """
    plans = [(table, plan_compaction(table, groups)) for table, groups in work]
    messages = iter(workers.run(STAGE, _rewrite, [task for _, tasks in plans for task in tasks]))
    rewritten = []
    for table, tasks in plans:
        answers = [next(messages) for _ in tasks]
        staged = stage_compaction(table, [str(answer["result"]) for answer in answers])
        if staged is not None:
            rows = sum(int(answer["rows"]) for answer in answers)
            rewritten.append(RewrittenTable(table=table, staged=staged, rows=rows))
    return rewritten


def _rewrite(task: CompactionTask) -> Message:
    return {"result": run_compaction_task(task), "rows": task.rows}
