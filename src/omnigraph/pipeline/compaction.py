"""Compaction as bulk work: the rewrites of all tables are tasks of one stage.

Nothing moves here. Whoever called commits each table with `commit_compaction` under the commit protocol, or gives the
results back with `discard_compaction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.storage.compaction import CompactionTask, plan_compaction, run_compaction_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage import Table

STAGE = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTable:
    """A table whose rewrites are done, ready for its commit."""

    #: At the version that was planned.
    table: Table
    #: What `commit_compaction` takes.
    results: tuple[str, ...]
    rows: int


def compact_tables(
    workers: Workers, tables: Sequence[Table], *, target_rows: int
) -> list[RewrittenTable]:
    """Rewrite what is worth it in every table; only tables that have something to commit are given back.

    Raises:
        SparkError: a task failed on every try. What other tasks wrote is unreferenced, and cleanup removes it.
    """
    plans = [(table, plan_compaction(table, target_rows=target_rows).tasks) for table in tables]
    messages = iter(workers.run(STAGE, _rewrite, [task for _, tasks in plans for task in tasks]))
    rewritten = []
    for table, tasks in plans:
        answers = [next(messages) for _ in tasks]
        if answers:
            results = tuple(str(answer["result"]) for answer in answers)
            rows = sum(int(answer["rows"]) for answer in answers)
            rewritten.append(RewrittenTable(table=table, results=results, rows=rows))
    return rewritten


def _rewrite(task: CompactionTask) -> Message:
    return {"result": run_compaction_task(task), "rows": task.rows}
