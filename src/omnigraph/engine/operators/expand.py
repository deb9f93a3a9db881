"""From rows to neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.core.arrow import pa
from omnigraph.core.ids import edge_table_key
from omnigraph.engine.distinct import distinct_numbers
from omnigraph.engine.operators.neighbours import (
    AdjacentNeighbours,
    Neighbours,
    Reach,
    bounded_parts,
    find_neighbours,
    neighbours_of,
    reached_targets,
)
from omnigraph.engine.operators.reach import Question, reach_counts, reach_totals, reach_within
from omnigraph.engine.predicates import Restriction
from omnigraph.engine.rows import BoolArray, Deferred, IntArray, Numbers, Rows, Variables, batch_rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.edge_columns import EdgeColumns, FromEdge, FromRow, FromTarget, Pairs, pairs_of
from omnigraph.engine.tables.settings import TraversalPath
from omnigraph.lang.query.ir import Expand

#: Sums of counts are exact in 64-bit floats below this.
_EXACT_FLOAT = 2**53
#: Fewer pairs than this are not worth being counted per target.
COLLAPSE_MIN_PAIRS = 4096
#: Pairs that are counted per target at once.
_COLLAPSE_PAIRS = 1 << 22
#: From so many pairs on, what they bind is made when it is asked for.
_DEFERRED_PAIRS = 4096
#: Arrays as long as the result that making pairs takes beside it.
_WORKING_COLUMNS = 4
#: Pairs of one batch: larger arrays take fresh pages, which costs more than making what is in them.
_MORSEL_PAIRS = 1 << 18


class ExpandOperator:
    """Binds the target, and the edge if it has a name, for each neighbour of the source."""

    def __init__(self, context: Context, op: Expand, live: frozenset[str]) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._edge = context.catalog.edges[op.edge_type]
        self._restriction = Restriction(context, op.target, op.filters)
        self._edge_restriction = (
            None if op.edge_variable is None else Restriction(context, op.edge_variable, op.edge_filters)
        )
        #: The columns of the edges in the order of the adjacency, once they are asked for.
        self._columns: EdgeColumns | None = None
        #: The path that was taken last, for people who ask.
        self.path: TraversalPath | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The neighbours of every row."""
        op = self._op
        crosses_types = self._edge.source != self._edge.target
        if crosses_types and op.low > 1:
            return
        if op.source in self._context.optional:
            # From nothing no edge begins.
            rows = rows.keep(rows.variables[op.source] >= 0)
            if not rows.count:
                return
        hops = 1 if crosses_types else op.high
        self.path, neighbours = find_neighbours(self._context, self._edge, op.direction, rows.count, hops)
        row_ids = rows.variables[op.source]
        rows = rows.only(self._live)
        if op.edge_variable is not None:
            places, reach = neighbours.edges(neighbours.numbers(row_ids))
            yield from self._emit(rows, places, reach, neighbours)
        elif hops == 1:
            places, reach = neighbours.once(neighbours.numbers(row_ids))
            yield from self._emit(rows, places, reach, neighbours)
        else:
            yield from self._reach(rows, row_ids, neighbours)

    def _reach(self, rows: Rows, row_ids: IntArray, neighbours: Neighbours) -> Iterator[Rows]:
        op, budget = self._op, self._context.budget
        sources, source_of = distinct_numbers(row_ids)
        question = Question(neighbours, neighbours.numbers(sources), op.low, op.high)
        if isinstance(neighbours, AdjacentNeighbours) and self._is_counted(rows, question):
            allowed = self._allowed(neighbours)
            if op.target not in self._live:
                yield rows.multiplied(reach_counts(question, allowed, budget)[source_of]).collapsed()
                return
            weights = np.zeros(len(sources), np.int64)
            np.add.at(weights, source_of, 1 if rows.weights is None else rows.weights)
            totals = reach_totals(question, weights, allowed, budget)
            found = np.flatnonzero(totals)
            yield Rows(count=len(found), variables={op.target: neighbours.row_ids(found)}, weights=totals[found])
            return
        for start, reach in reach_within(question, budget):
            count = len(reach.starts)
            if count == len(sources):
                part, places = rows, source_of
            else:
                inside = np.flatnonzero((source_of >= start) & (source_of < start + count))
                part, places = rows.take(inside), source_of[inside] - start
            yield from self._emit(part, places, reach, neighbours)

    def _is_counted(self, rows: Rows, question: Question) -> bool:
        """Whether what is reached need not be written out: it is counted per row, or per target."""
        if self._op.target in self._live and (rows.variables or rows.columns):
            return False
        # A restriction is looked up for all nodes then.
        return self._restriction.is_empty or question.expected_nodes() * 4 >= question.neighbours.stride

    def _allowed(self, neighbours: AdjacentNeighbours) -> BoolArray | None:
        """Per number of a node, whether it may be a target."""
        if self._restriction.is_empty:
            return None
        return neighbours.mask(self._restriction.keeps)

    # ---- rows from neighbours

    def _emit(self, rows: Rows, places: IntArray, reach: Reach, neighbours: Neighbours) -> Iterator[Rows]:
        op = self._op
        counts = reach.counts(places)
        keeps_edge = op.edge_variable is not None and op.edge_variable in self._live
        keeps_target = op.target in self._live
        if not keeps_edge and not keeps_target and self._keeps_all():
            yield rows.multiplied(counts).collapsed()
            return
        pairs = int(counts.sum())
        if keeps_target and not keeps_edge and self._can_collapse(rows, pairs):
            yield self._collapse(rows, places, counts, reach, neighbours)
            return
        most = min(_MORSEL_PAIRS, batch_rows(rows.width + keeps_target + keeps_edge + _WORKING_COLUMNS))
        if pairs <= most:
            yield self._pairs(rows, places, reach, neighbours)
            return
        for part in bounded_parts(reach, places, most):
            yield self._pairs(rows.slice(part.start, part.stop), part.places, part.reach, neighbours)

    def _keeps_all(self) -> bool:
        edges = self._edge_restriction
        return self._restriction.is_empty and (edges is None or edges.is_empty)

    def _pairs(self, rows: Rows, places: IntArray, reach: Reach, neighbours: Neighbours) -> Rows:
        """One row per pair of a row and a neighbour, or a weight per row when the neighbour is not used."""
        op, budget = self._op, self._context.budget
        counts = reach.counts(places)
        pairs = int(counts.sum())
        budget.allow(rows.taken_bytes(pairs) + pairs * _WORKING_COLUMNS * 8)
        if pairs >= _DEFERRED_PAIRS and isinstance(neighbours, AdjacentNeighbours):
            return self._deferred(rows, places, reach, counts, neighbours)
        index, spots = neighbours_of(reach, places)
        targets = neighbours.row_ids(reach.targets[spots])
        edges = None if reach.edges is None else reach.edges[spots].astype(np.int64)
        kept = np.ones(len(index), np.bool_)
        if self._edge_restriction is not None and not self._edge_restriction.is_empty:
            assert edges is not None, "an edge with a name is counted per edge"
            kept = self._edge_restriction.keeps(edges)
        if not self._restriction.is_empty:
            kept = kept & self._restriction.keeps(targets)
        if not kept.all():
            index, targets = index[kept], targets[kept]
            edges = None if edges is None else edges[kept]
        bound: dict[str, IntArray] = {}
        if op.target in self._live:
            bound[op.target] = targets
        if edges is not None and op.edge_variable is not None and op.edge_variable in self._live:
            bound[op.edge_variable] = edges
        if not bound:
            return rows.multiplied(np.bincount(index, minlength=rows.count))
        result = rows.take(index)
        for variable, row_ids in bound.items():
            result = result.bind(variable, row_ids)
        return result

    def _deferred(
        self, rows: Rows, places: IntArray, reach: Reach, counts: IntArray, neighbours: AdjacentNeighbours
    ) -> Rows:
        """The same with row ids that are made when they are asked for."""
        op, context = self._op, self._context
        pairs = self._kept(pairs_of(reach.starts, places, counts), reach)
        parts: dict[str, IntArray | Deferred] = {}
        if op.target in self._live:
            parts[op.target] = FromTarget(context.entities(op.target), reach.targets, pairs)
        if op.edge_variable is not None and op.edge_variable in self._live:
            assert reach.edges is not None, "an edge with a name is counted per edge"
            parts[op.edge_variable] = FromEdge(self._edge_columns(reach.edges, neighbours), pairs)
        if not parts:
            return rows.multiplied(pairs.counts)
        parts = {name: FromRow(context, rows.bound(name), pairs) for name in rows.variables} | parts
        return Rows(
            count=pairs.count,
            variables=Variables(parts),
            columns={key: values.take(pa.array(pairs.rows)) for key, values in rows.columns.items()},
            weights=None if rows.weights is None else rows.weights[pairs.rows],
        )

    def _kept(self, pairs: Pairs, reach: Reach) -> Pairs:
        """The pairs whose edge and target satisfy the filters."""
        kept = np.ones(pairs.count, np.bool_)
        if self._edge_restriction is not None and not self._edge_restriction.is_empty:
            assert reach.edges is not None, "an edge with a name is counted per edge"
            kept = self._edge_restriction.keeps(reach.edges[pairs.spots].astype(np.int64))
        if not self._restriction.is_empty:
            numbering = self._context.entities(self._op.target).numbering()
            targets = numbering.row_ids(reach.targets[pairs.spots].astype(np.int64))
            kept = kept & self._restriction.keeps(targets)
        return pairs if kept.all() else pairs.keep(np.flatnonzero(kept))

    def _edge_columns(self, edges: Numbers, neighbours: AdjacentNeighbours) -> EdgeColumns:
        known = self._columns
        if known is None or known.edges is not edges:
            entities = self._context.type_entities(edge_table_key(self._edge.name))
            is_kept = edges is neighbours.kept_edges
            known = EdgeColumns(self._context, entities, edges, str(self._op.direction), is_kept=is_kept)
            self._columns = known
        return known

    def _can_collapse(self, rows: Rows, pairs: int) -> bool:
        """Whether rows may be counted per target: no other variable is asked for any more."""
        return (
            self.path is TraversalPath.ADJACENCY
            and self._edge_restriction is None
            and not rows.variables
            and not rows.columns
            and pairs >= COLLAPSE_MIN_PAIRS
            and (rows.weights is None or float(rows.weights.max()) * pairs < _EXACT_FLOAT)
        )

    def _collapse(self, rows: Rows, places: IntArray, counts: IntArray, reach: Reach, neighbours: Neighbours) -> Rows:
        """One row per target, standing for all pairs that lead to it."""
        budget = self._context.budget
        # Each step counts into all targets, so it has at least as many pairs.
        step = max(_COLLAPSE_PAIRS, neighbours.stride)
        budget.allow(2 * neighbours.stride * 8 + min(int(counts.sum()), step) * 16)
        totals = np.zeros(neighbours.stride, np.int64)
        for part in budget.steps(bounded_parts(reach, places, step)):
            targets = reached_targets(part)
            if rows.weights is None:
                totals += np.bincount(targets, minlength=len(totals))
            else:
                weights = rows.weights[part.start : part.stop].astype(np.float64)
                shares = np.repeat(weights, part.counts)
                found = np.bincount(targets, weights=shares, minlength=len(totals))
                totals += found.astype(np.int64)
        found = np.flatnonzero(totals)
        result = Rows(count=len(found), variables={self._op.target: neighbours.row_ids(found)}, weights=totals[found])
        if self._restriction.is_empty:
            return result
        return result.keep(self._restriction.keeps(result.variables[self._op.target]))
