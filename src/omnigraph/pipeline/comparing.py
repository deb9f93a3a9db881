"""Comparing two states of a table, by whoever fits the number of rows that may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.differences import DELTA, join_sides, side_of
from omnigraph.storage.row_changes import all_rows, differing_rows, no_rows

if TYPE_CHECKING:
    from omnigraph.pipeline.differences import RowShape
    from omnigraph.pipeline.elastic import ElasticEngine
    from omnigraph.storage import Table


def delta_between(
    old: Table | None,
    new: Table | None,
    shape: RowShape,
    engine: ElasticEngine,
    *,
    old_shape: RowShape | None = None,
    is_reshaped: bool = False,
) -> Any:
    """The differences of two states as a `DELTA` table, sorted by id; None is a table that does not exist.

    `old_shape` is what the old state calls the columns of `shape`. With `is_reshaped` a schema change may have given
    rows other values without writing them as rows, so all of them are compared.
    """
    shapes = old_shape or shape, shape
    if old is not None and new is not None:
        if old.fingerprint == new.fingerprint:
            return DELTA.empty_table()
        gone, come = (all_rows(old), all_rows(new)) if is_reshaped else differing_rows(old, new)
    else:
        there = old or new
        if there is None:
            return DELTA.empty_table()
        every, none = all_rows(there), no_rows(there)
        gone, come = (none, every) if old is None else (every, none)
    rows = gone.row_count + come.row_count
    chosen = engine.for_rows(rows)
    if chosen.spark is None:
        found = join_sides(side_of(gone, shapes[0]), side_of(come, shapes[1]))
    else:
        # Late: whoever works in process needs no Spark.
        from omnigraph.pipeline.spark_differences import spark_delta

        with chosen.progress.stage("compare rows", 1) as stage:
            found = spark_delta(chosen.workers, gone, come, shapes)
            stage.update(1, rows)
    return found.sort_by("id").combine_chunks()
