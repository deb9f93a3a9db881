"""Differences of two states on Spark: tasks read and digest the candidates, a shuffle brings equal ids together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.pipeline.differences import DELTA, join_sides, scan_side, sides_of
from omnigraph.pipeline.spark_failures import spark_errors
from omnigraph.pipeline.spark_workers import SparkWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.pipeline.differences import RowShape
    from omnigraph.pipeline.workers import Workers
    from omnigraph.storage.row_changes import RowSet

    _Shapes = tuple[RowShape, RowShape]

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: Rows that one task reads, unless a fragment has more.
_TASK_ROWS = 200_000
#: Rows of both states that one task matches.
_PARTITION_ROWS = 500_000
_SIDES = "side int, id string, digest binary, row long, src string, dst string"
_DELTA = "id string, old binary, new binary, old_row long, new_row long, src string, dst string"


def spark_delta(workers: Workers, old: RowSet, new: RowSet, shapes: _Shapes) -> Any:
    """As `join_sides` of all rows of both sets; `shapes` are those of the two states."""
    assert isinstance(workers, SparkWorkers), "asked for on Spark only"
    parts = [(0, part) for part in old.parts(_TASK_ROWS)]
    parts += [(1, part) for part in new.parts(_TASK_ROWS)]
    if not parts:
        return DELTA.empty_table()
    rows = old.row_count + new.row_count
    partitions = max(workers.parallelism, rows // _PARTITION_ROWS + 1)
    with spark_errors(), workers.shared(parts) as shared:
        numbers = workers.spark.range(0, len(parts), 1, len(parts))
        sides = numbers.mapInArrow(_scan_function(shared, shapes), _SIDES)
        matched = sides.repartition(partitions, "id").mapInArrow(_match, _DELTA)
        found: Any = matched.toArrow()
    return found.cast(DELTA)


def _scan_function(parts: Any, shapes: _Shapes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                side, rows = parts.value[number]
                for found in scan_side(rows, shapes[side]):
                    mark = pa.array([side] * found.num_rows, pa.int32())
                    columns = [mark, *found.columns]
                    columns[2] = columns[2].cast(pa.binary())
                    yield pa.RecordBatch.from_arrays(columns, names=["side", *found.schema.names])

    return function


def _match(batches: Iterator[Any]) -> Iterator[Any]:
    """Match the rows of one partition; all rows of an id are in the same one."""
    some = list(batches)
    if not some:
        return
    delta = join_sides(*sides_of(some))
    names = [
        (field.name, pa.binary() if field.name in ("old", "new") else field.type) for field in DELTA
    ]
    yield from delta.cast(pa.schema(names)).to_batches()
