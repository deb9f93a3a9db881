"""Order keys of a query: their values, and the rows that come first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.engine.local.conditions import with_columns
from omnigraph.engine.local.order import order_codes, sort_by_codes, total_order
from omnigraph.engine.local.project import entity_columns, operand_column
from omnigraph.engine.local.rows import Rows, concat_rows
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from omnigraph.engine.local.arrays import IntArray
    from omnigraph.engine.local.context import Context

#: Rows that are held before those that cannot be among the first are dropped.
_PRUNE_ROWS = 1 << 19


def key_codes(context: Context, rows: Rows, query: ir.ReadIR) -> tuple[Rows, list[IntArray]]:
    """The rows with the values of their order keys, and numbers that sort as those do."""
    by_name = {item.name: item.expression for item in query.projections}
    operands = [
        key.expression
        if isinstance(key.expression, ir.PropertyRef)
        else by_name[key.expression.name]
        for key in query.order
    ]
    rows = with_columns(context, rows, entity_columns(operands))
    codes = [
        order_codes(operand_column(context, rows, operand), descending=key.descending)
        for operand, key in zip(operands, query.order, strict=True)
    ]
    return rows, codes


def first_rows(context: Context, batches: Iterator[Rows], query: ir.ReadIR) -> Rows:
    """All rows, or the first `limit`, in total order. With a limit, memory follows the limit."""
    held: list[Rows] = []
    for rows in batches:
        held.append(rows)
        if query.limit is not None and sum(part.count for part in held) > _prune_at(query.limit):
            held = [_sorted(context, concat_rows(held), query)]
    return _sorted(context, concat_rows(held), query)


def _prune_at(limit: int) -> int:
    return max(_PRUNE_ROWS, 4 * limit)


def _sorted(context: Context, rows: Rows, query: ir.ReadIR) -> Rows:
    if not rows.count:
        return rows
    rows, codes = key_codes(context, rows, query)
    return rows.take(total_order(context, rows, codes, query.limit))


def sort_groups(groups: pa.Table, query: ir.ReadIR) -> pa.Table:
    """Groups in order: by the order keys, ties by the group columns."""
    if not query.order:
        return groups
    names = {
        item.expression: item.name
        for item in query.projections
        if isinstance(item.expression, ir.PropertyRef)
    }
    codes = []
    for key in query.order:
        expression = key.expression
        name = expression.name if isinstance(expression, ir.ColumnRef) else names[expression]
        column = groups[name].combine_chunks()
        codes.append(order_codes(column, descending=key.descending))
    for item in query.projections:
        if not isinstance(item.expression, ir.Aggregate):
            column = groups[item.name].combine_chunks()
            codes.append(order_codes(column, descending=False))
    return groups.take(sort_by_codes(codes, groups.num_rows))
