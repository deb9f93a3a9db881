"""Rows that arrive in batches, taken within the budget of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.budget import PATIENT_ROWS
from omnigraph.engine.local.rows import concat_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from omnigraph.budget import Budget
    from omnigraph.engine.local.rows import Rows


def read_batches(
    budget: Budget, batches: Iterator[pa.RecordBatch], table_rows: int
) -> Iterator[pa.RecordBatch]:
    """The batches of a scan. Of a large table one may be long in coming: a filter may match nothing for a while."""
    if table_rows < PATIENT_ROWS:
        yield from budget.steps(batches)
        return
    while (batch := budget.patiently(lambda: next(batches, None))) is not None:
        yield batch


def gathered(budget: Budget, batches: Iterable[Rows]) -> Rows:
    """All rows in one bag, which is accounted until the query ends."""
    parts, size = [], 0
    for rows in batches:
        size += budget.hold(rows.nbytes)
        parts.append(rows)
    # The parts and the bag exist at the same time.
    budget.allow(size if len(parts) > 1 else 0)
    return concat_rows(parts)
