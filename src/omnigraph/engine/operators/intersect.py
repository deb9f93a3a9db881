"""Nodes that are neighbours of several bound nodes: intersections of sorted lists, counted where only that is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from omnigraph.engine.kernels.intersections import Pair, Ways, are_linked, common_counts, common_pairs, way_sums
from omnigraph.engine.kernels.lists import Lists, run_starts
from omnigraph.engine.nodes import Arm, Intersect
from omnigraph.engine.operators.close import CloseOperator, bound_to, row_ids_of
from omnigraph.engine.operators.expand import ExpandOperator
from omnigraph.engine.operators.fuse import turned, without_arm
from omnigraph.engine.operators.neighbours import AdjacentNeighbours, adjacent_neighbours, ends_of, way_to_neighbours
from omnigraph.engine.predicates import Restriction
from omnigraph.engine.rows import BoolArray, IntArray, Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.settings import TraversalPath
from omnigraph.engine.tables.traversal_index import find_adjacency
from omnigraph.frozen import frozen

#: How many times cheaper the sum of ways has to look than the intersection of every row: its cost is only guessed.
_GUESS_FACTOR = 2
#: Rows that are not worth writing the lists of all nodes out for, where a write is above them.
_FEW_ROWS = 1 << 12
#: Steps that the direction back has to save, where it would have to be made first.
_WORTH_TURNING = 1 << 25
#: Rows whose arrays are made at once, beside the result.
_WORKING_COLUMNS = 4


@frozen
class _Reached:
    """An arm at work: the neighbours that it leads to, and per row the number of the node that it begins at."""

    arm: Arm
    neighbours: AdjacentNeighbours
    numbers: IntArray

    @property
    def lists(self) -> Lists:
        """The neighbours of all nodes."""
        return self.neighbours.lists


class IntersectOperator:
    """Binds the target to each node that all arms lead to."""

    def __init__(self, context: Context, op: Intersect, live: frozenset[str]) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._restriction = Restriction(context, op.target, op.filters)
        #: The same by other operators, for edges that are not in a traversal index.
        self._others: tuple[ExpandOperator, list[CloseOperator]] | None = None
        #: The path that was taken last, for people who ask.
        self.path: TraversalPath | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows with every such node."""
        context = self._context
        for arm in self._op.arms:
            edge = context.catalog.edges[arm.edge_type]
            rows = bound_to(context, rows, arm.source, ends_of(edge, arm.direction)[0])
        if not rows.count:
            return
        ways = {self._way(arm, rows.count) for arm in self._op.arms}
        if ways != {TraversalPath.ADJACENCY}:
            yield from self._by_others(rows)
            return
        self.path = TraversalPath.ADJACENCY
        arms = self._reached(rows)
        if rows.count < _FEW_ROWS and not all(arm.neighbours.is_whole for arm in arms):
            yield from self._by_others(rows)
            return
        rows = rows.only(self._live)
        if self._op.target not in self._live and len(arms) == 2 and self._may_mask(arms):
            yield self._counted(rows, arms[0], arms[1])
        else:
            yield from self._listed(rows, arms)

    def _way(self, arm: Arm, frontier: int) -> TraversalPath:
        edge = self._context.catalog.edges[arm.edge_type]
        return way_to_neighbours(self._context, edge, arm.direction, frontier)

    def _reached(self, rows: Rows) -> list[_Reached]:
        """The arms, those with the fewest neighbours first."""
        context, arms = self._context, []
        for arm in self._op.arms:
            neighbours = adjacent_neighbours(context, context.catalog.edges[arm.edge_type], arm.direction)
            numbers = neighbours.numbers(row_ids_of(context, rows, arm.source))
            arms.append(_Reached(arm, neighbours, numbers))
        if len(arms) > 2:
            arms.sort(key=lambda arm: int(arm.lists.sizes(arm.numbers).sum()))
        return arms

    # ---- counted: the target is not asked for any more

    def _counted(self, rows: Rows, first: _Reached, second: _Reached) -> Rows:
        allowed = self._allowed(first.neighbours)
        for head, other in ((first, second), (second, first)):
            if not rows.columns and rows.variables.keys() <= {head.arm.source}:
                summed = self._summed(rows, head, other, allowed)
                if summed is not None:
                    return summed
        pair = Pair(first.lists, first.numbers, second.lists, second.numbers)
        return rows.multiplied(common_counts(pair, allowed, self._context.budget)).collapsed()

    def _summed(self, rows: Rows, head: _Reached, other: _Reached, allowed: BoolArray | None) -> Rows | None:
        """One row per run of equal heads: the ways from it over the target to the others are added up, by weight.

        None where intersecting row by row looks cheaper.
        """
        heads = run_starts(head.numbers)
        walked = float(np.minimum(head.lists.sizes(head.numbers), other.lists.sizes(other.numbers)).sum())
        if len(heads) * 2 > rows.count or walked <= _GUESS_FACTOR * rows.count:
            return None
        context = self._context
        edge = context.catalog.edges[other.arm.edge_type]
        # The same lists from their other end give the mean; they are made only if they are taken.
        guess = rows.count + 2 * float(head.lists.sizes(head.numbers[heads]).sum()) * other.lists.mean
        if guess * _GUESS_FACTOR > walked:
            return None
        back = turned(other.arm.direction)
        if not find_adjacency(context, edge).has(back) and walked - guess < _WORTH_TURNING:
            return None
        lists = adjacent_neighbours(context, edge, back).lists
        offsets = np.append(heads, rows.count)
        ways = Ways(head.lists, head.numbers[heads], lists, offsets, other.numbers, rows.weights)
        sums = way_sums(ways, allowed, context.budget)
        weightless = Rows(count=rows.count, variables=rows.variables).take(heads)
        return weightless.multiplied(sums).collapsed()

    def _may_mask(self, arms: Sequence[_Reached]) -> bool:
        """Whether the filters may be evaluated for all nodes, as counting has to: there are none, or much is walked."""
        if self._restriction.is_empty:
            return True
        walked = sum(int(arm.lists.sizes(arm.numbers).sum()) for arm in arms)
        return walked * 2 >= arms[0].neighbours.stride

    def _allowed(self, neighbours: AdjacentNeighbours) -> BoolArray | None:
        """Per number of a node, whether it satisfies the filters."""
        if self._restriction.is_empty:
            return None
        return neighbours.mask(self._restriction.keeps)

    # ---- listed: each node with its row

    def _listed(self, rows: Rows, arms: Sequence[_Reached]) -> Iterator[Rows]:
        op, context, (first, second, *others) = self._op, self._context, arms
        budget = context.budget
        pair = Pair(first.lists, first.numbers, second.lists, second.numbers)
        is_masked = self._may_mask(arms)
        allowed = self._allowed(first.neighbours) if is_masked else None
        for start, found, common in common_pairs(pair, allowed, budget):
            index, nodes = found + start, common
            for other in others:
                is_linked = are_linked(other.lists, other.numbers[index], nodes, budget)
                index, nodes = index[is_linked], nodes[is_linked]
            targets = first.neighbours.row_ids(nodes)
            if not is_masked:
                is_kept = self._restriction.keeps(targets)
                index, targets = index[is_kept], targets[is_kept]
            if op.target not in self._live:
                yield rows.multiplied(np.bincount(index, minlength=rows.count)).collapsed()
                continue
            budget.allow(rows.taken_bytes(len(index)) + len(index) * _WORKING_COLUMNS * 8)
            yield rows.take(index).bind(op.target, targets)

    # ---- without a traversal index

    def _by_others(self, rows: Rows) -> Iterator[Rows]:
        op, context = self._op, self._context
        if self._others is None:
            expand, closes = without_arm(op, 0)
            sources = frozenset(close.source for close in closes)
            live = self._live | {op.target}
            expanding = ExpandOperator(context, expand, live | sources)
            closing = []
            for place, close in enumerate(closes, 1):
                later = frozenset(other.source for other in closes[place:])
                last = self._live if place == len(closes) else live | later
                closing.append(CloseOperator(context, close, last))
            self._others = expanding, closing
        expanding, closing = self._others
        for found in expanding.apply(rows):
            yield from _closed(found, closing)
        self.path = expanding.path


def _closed(rows: Rows, closing: Sequence[CloseOperator]) -> Iterator[Rows]:
    """The rows for which all edges exist."""
    if not closing:
        yield rows
        return
    first, *others = closing
    if rows.count:
        for found in first.apply(rows):
            yield from _closed(found, others)
