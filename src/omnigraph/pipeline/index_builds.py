"""Index builds as bulk work: the parts of all indexes of all tables are tasks of one stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.index_parts import (
    IndexPartTask,
    build_index_part,
    plan_index_parts,
    stage_index_parts,
)
from omnigraph.storage.indexes import plan_builds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage.indexes import IndexBuild, IndexSpec
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table

STAGE = "build indexes"
#: A part with fewer rows costs more in its merge than it saves.
MIN_PART_ROWS = 100_000


def build_indexes(
    workers: Workers,
    work: Sequence[tuple[Table, Iterable[IndexSpec]]],
    *,
    min_part_rows: int = MIN_PART_ROWS,
) -> list[StagedWrite | None]:
    """What `stage_indices` gives for every table, built by tasks; None where nothing is missing.

    Raises:
        SparkError: a task failed on every try. What other tasks built is unreferenced, and cleanup removes it.
    """
    plans = [
        (table, _plan(table, specs, workers.parallelism, min_part_rows)) for table, specs in work
    ]
    tasks = [task for _, planned in plans for _, parts in planned for task in parts]
    messages = iter(workers.run(STAGE, _build, tasks))
    staged = []
    for table, planned in plans:
        built = [(build, [str(next(messages)["part"]) for _ in parts]) for build, parts in planned]
        staged.append(stage_index_parts(table, built))
    return staged


def _plan(
    table: Table, specs: Iterable[IndexSpec], parts: int, min_rows: int
) -> list[tuple[IndexBuild, list[IndexPartTask]]]:
    return [
        (build, plan_index_parts(table, build, parts=parts, min_rows=min_rows))
        for build in plan_builds(table, specs)
    ]


def _build(task: IndexPartTask) -> Message:
    return {"part": build_index_part(task), "rows": task.rows}
