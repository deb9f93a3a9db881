"""Rows whose two ends have an edge between them: membership in the sorted neighbours of one of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.core.ids import node_table_key
from omnigraph.engine.kernels.intersections import are_linked
from omnigraph.engine.kernels.lists import Lists, first_places, parts_of
from omnigraph.engine.nodes import Close
from omnigraph.engine.operators.neighbours import AdjacentNeighbours, Neighbours, ends_of, find_neighbours
from omnigraph.engine.predicates import Restriction
from omnigraph.engine.rows import IntArray, Rows, batch_rows
from omnigraph.engine.tables.context import NODES, Context
from omnigraph.engine.tables.runs import ranges
from omnigraph.engine.tables.settings import TraversalPath

#: Arrays as long as the result that listing edges takes beside it.
_WORKING_COLUMNS = 4


class CloseOperator:
    """Keeps the rows with an edge from the source to the target, and binds the edge if it has a name."""

    def __init__(self, context: Context, op: Close, live: frozenset[str]) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._edge = context.catalog.edges[op.edge_type]
        self._restriction = (
            None if op.edge_variable is None else Restriction(context, op.edge_variable, op.edge_filters)
        )
        #: The path that was taken last, for people who ask.
        self.path: TraversalPath | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows with such an edge, or one for each of them."""
        op, context = self._op, self._context
        for variable, node_type in zip((op.source, op.target), ends_of(self._edge, op.direction), strict=True):
            rows = bound_to(context, rows, variable, node_type)
        if not rows.count:
            return
        self.path, neighbours = find_neighbours(context, self._edge, op.direction, rows.count)
        sources = neighbours.numbers(row_ids_of(context, rows, op.source))
        targets = neighbours.target_numbers(row_ids_of(context, rows, op.target))
        rows = rows.only(self._live)
        if op.edge_variable is not None:
            yield from self._edges(rows, sources, targets, neighbours)
        elif isinstance(neighbours, AdjacentNeighbours) and neighbours.is_whole:
            yield rows.keep(are_linked(neighbours.lists, sources, targets, context.budget)).collapsed()
        else:
            places, reach = neighbours.once(sources)
            lists = Lists(reach.starts, reach.ends, reach.targets, neighbours.stride)
            yield rows.keep(are_linked(lists, places, targets, context.budget)).collapsed()

    def _edges(self, rows: Rows, sources: IntArray, targets: IntArray, neighbours: Neighbours) -> Iterator[Rows]:
        op, context = self._op, self._context
        assert op.edge_variable is not None, "edges are listed where they have a name"
        assert self._restriction is not None, "the name is what is restricted"
        places, reach = neighbours.edges(sources)
        assert reach.edges is not None, "each edge was asked for"
        lists = Lists(reach.starts, reach.ends, reach.targets, neighbours.stride)
        starts = first_places(lists, places, targets)
        counts = first_places(lists, places, targets + 1) - starts
        is_used = op.edge_variable in self._live
        if not is_used and self._restriction.is_empty:
            yield rows.multiplied(counts).collapsed()
            return
        for begin, end in context.budget.steps(parts_of(counts, batch_rows(rows.width + 1 + _WORKING_COLUMNS))):
            some, part = counts[begin:end], rows.slice(begin, end)
            total = int(some.sum())
            context.budget.allow(part.taken_bytes(total) + total * _WORKING_COLUMNS * 8)
            index = np.repeat(np.arange(end - begin), some)
            edges = reach.edges[ranges(starts[begin:end], some)].astype(np.int64)
            if not self._restriction.is_empty:
                kept = self._restriction.keeps(edges)
                index, edges = index[kept], edges[kept]
            if is_used:
                yield part.take(index).bind(op.edge_variable, edges)
            else:
                yield part.multiplied(np.bincount(index, minlength=part.count))


def bound_to(context: Context, rows: Rows, variable: str, node_type: str) -> Rows:
    """The rows in which a variable is bound to a node of this type."""
    key = node_table_key(node_type)
    if context.is_plain(variable) and context.tables[variable] == key:
        return rows
    is_bound = np.zeros(rows.count, np.bool_)
    for found, places, _ in context.parts(variable, rows.variables[variable]):
        if found == key:
            is_bound[places] = True
    return rows.keep(is_bound)


def row_ids_of(context: Context, rows: Rows, variable: str) -> IntArray:
    """The row ids of what a variable is bound to, where all of it has one type."""
    numbers = rows.variables[variable]
    return context.row_ids(numbers) if context.tables[variable] == NODES else numbers
