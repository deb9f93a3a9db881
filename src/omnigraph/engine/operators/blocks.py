"""Blocks inside of expressions: whether they have a solution, and aggregates over their solutions."""

from __future__ import annotations

import numpy as np

from omnigraph.core.arrow import Array, arrow_type, pa, pc, repeated
from omnigraph.core.types import ListType, RecordListType
from omnigraph.engine.operators.pipeline import block_start, has_solution, run_pipeline
from omnigraph.engine.predicates import without_overflow
from omnigraph.engine.results.aggregate import Grouping
from omnigraph.engine.rows import BoolArray, Rows
from omnigraph.engine.tables.context import OUTER_ROW, Context, is_hidden, orders_values, variable_names
from omnigraph.lang.query import ir


class Blocks:
    """Runs the blocks of one query, each once for all distinct outer bindings of a batch."""

    def exists(self, context: Context, rows: Rows, block: ir.Exists) -> BoolArray:
        """Per row, whether the block has a solution."""
        return has_solution(context, rows, block.outer, block.pipeline)

    def value(self, context: Context, rows: Rows, block: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """Per row, the aggregate over the solutions: 0, an empty list or null where there is none.

        It is null where integers overflow in a solution, and the rows of these are told.
        """
        start, number_of = block_start(rows, block.outer)
        inside = context.inside(block.pipeline)
        needed = {OUTER_ROW, *ir.variables(block.aggregate)}
        if orders_values(block.aggregate):
            needed.update(name for name in variable_names(block.pipeline) if not is_hidden(name))
        grouping = Grouping(inside, (), [block.aggregate], OUTER_ROW, start.count)
        is_unknown = np.zeros(start.count, np.bool_)
        for solutions in run_pipeline(inside, block.pipeline, [start], needed):
            found, beyond = without_overflow(inside, solutions, ir.parts(block.aggregate))
            is_unknown[beyond.variables[OUTER_ROW]] = True
            grouping.add(found)
        groups = grouping.finish()
        place = np.full(start.count, -1)
        assert groups.numbers is not None, "groups are outer rows here"
        place[groups.numbers] = np.arange(groups.count)
        chosen = place[number_of]
        made = groups.known[block.aggregate].take(pa.array(chosen, mask=chosen < 0))
        completed = _completed(made, block.aggregate)
        if not is_unknown.any():
            return completed, None
        overflow = is_unknown[number_of]
        known: Array = pc.if_else(pa.array(~overflow), completed, pa.scalar(None, completed.type))
        return known, overflow


def _completed(made: Array, aggregate: ir.Aggregate) -> Array:
    """The values with what no solution comes to."""
    if aggregate.function is ir.AggregateFunction.COUNT:
        counts: Array = pc.fill_null(made, 0)
        return counts
    if isinstance(aggregate.type.base, ListType | RecordListType):
        empty = pa.array([[]], arrow_type(aggregate.type.base))
        lists: Array = pc.if_else(made.is_null(), repeated(empty[0], len(made)), made.cast(empty.type))
        return lists
    return made
