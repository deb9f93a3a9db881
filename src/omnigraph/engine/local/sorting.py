"""Order keys of a query: their values, and the rows that come first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.engine.local.conditions import with_columns
from omnigraph.engine.local.order import order_codes, sort_by_codes, total_order
from omnigraph.engine.local.project import entity_columns, operand_column
from omnigraph.engine.local.rows import Rows, concat_rows
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from omnigraph.engine.local.arrays import IntArray
    from omnigraph.engine.local.context import Context

#: Rows that are held before those that cannot be among the first are dropped.
_PRUNE_ROWS = 1 << 19


def key_codes(
    context: Context, rows: Rows, query: ir.ReadIR, keys: Sequence[ir.OrderKey] | None = None
) -> tuple[Rows, list[IntArray]]:
    """The rows with the values of order keys, and numbers that sort as those do; all keys unless some are given."""
    keys = query.order if keys is None else keys
    operands = [key_operand(query, key) for key in keys]
    rows = with_columns(context, rows, entity_columns(operands))
    columns = [operand_column(context, rows, operand) for operand in operands]
    codes = [
        context.budget.patiently(
            partial(order_codes, column, descending=key.descending), rows.count
        )
        for column, key in zip(columns, keys, strict=True)
    ]
    return rows, codes


def key_operand(query: ir.ReadIR, key: ir.OrderKey) -> ir.Operand | ir.Aggregate | ir.Rank:
    """What an order key stands for."""
    expression = key.expression
    if isinstance(expression, ir.PropertyRef):
        return expression
    return next(item.expression for item in query.projections if item.name == expression.name)


def first_rows(context: Context, batches: Iterator[Rows], query: ir.ReadIR) -> Rows:
    """All rows, or the first `limit`, in total order. With a limit, memory follows the limit."""
    budget = context.budget
    held: list[Rows] = []
    count, size = 0, 0
    for rows in batches:
        held.append(rows)
        count, size = count + rows.count, size + budget.hold(rows.nbytes)
        if query.limit is not None and count > _prune_at(query.limit):
            held = [_sorted(context, held, query)]
            budget.release(size)
            count, size = held[0].count, budget.hold(held[0].nbytes)
    return _sorted(context, held, query)


def _prune_at(limit: int) -> int:
    return max(_PRUNE_ROWS, 4 * limit)


def _sorted(context: Context, parts: list[Rows], query: ir.ReadIR) -> Rows:
    budget = context.budget
    budget.enter("Order")
    count = sum(part.count for part in parts)
    # All rows once more, a number per row and order key, and the places in order.
    budget.allow(sum(part.nbytes for part in parts) * 2 + count * 8 * (2 + len(query.order)))
    rows = concat_rows(parts)
    if not rows.count:
        return rows
    rows, codes = key_codes(context, rows, query)
    order = total_order(context, rows, codes, query.limit)
    return budget.patiently(lambda: rows.take(order), len(order))


def sort_groups(context: Context, groups: pa.Table, query: ir.ReadIR) -> pa.Table:
    """Groups in order: by the order keys, ties by the group columns."""
    if not query.order:
        return groups
    context.budget.allow(groups.nbytes + groups.num_rows * 8 * (len(query.projections) + 2))
    return context.budget.patiently(lambda: _sorted_groups(groups, query), groups.num_rows)


def _sorted_groups(groups: pa.Table, query: ir.ReadIR) -> pa.Table:
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
