"""Runs of edges: whole arrays by node, patches above them, and lists of edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from omnigraph.engine.rows import BoolArray, IntArray, Numbers
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction

# For each direction, the neighbours of node `n` are `targets[offsets[n]:offsets[n + 1]]`, sorted, beside the row ids
# of the edges that lead to them. Parallel edges are kept there; where there are any, a second pair of arrays has each
# neighbour once.
#
# A state that was made from an earlier one shares these arrays. Above them lies a patch: the nodes whose edges changed
# since, each with all of its edges. Nothing that a reader may hold is ever written to.


#: So many edges are looked for one by one.
_FEW_EDGES = 4
#: Writing out copies what lies between so many nodes piece by piece.
_FEW_NODES = 1 << 14


@frozen
class Runs:
    """One direction of the edges as whole arrays."""

    offsets: IntArray
    targets: Numbers
    edges: Numbers
    #: The same with every neighbour once; the same arrays when no two edges are parallel.
    distinct_offsets: IntArray
    distinct_targets: Numbers

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or mapped."""
        arrays = [self.offsets, self.targets, self.edges]
        if self.distinct_targets is not self.targets:
            arrays += [self.distinct_offsets, self.distinct_targets]
        return sum(array.nbytes for array in arrays)


@frozen
class Patch:
    """The nodes whose edges changed after whole arrays were made, each with all of its edges."""

    #: How many nodes there are now.
    sources: int
    #: The changed nodes, ascending, and the stage at which each of them changed last.
    nodes: IntArray
    stages: IntArray
    #: The edges of the changed nodes, in that order.
    runs: Runs
    #: Edges of the whole arrays that do not count, since their node changed.
    replaced: int


@frozen
class EdgeList:
    """Edges: the numbers of both ends, and their row ids."""

    source: IntArray
    target: IntArray
    edge: IntArray

    def __len__(self) -> int:
        return len(self.edge)

    def take(self, places: IntArray | BoolArray) -> EdgeList:
        """Some of the edges."""
        return EdgeList(self.source[places], self.target[places], self.edge[places])

    def seen(self, direction: Direction) -> EdgeList:
        """The edges from where they are entered to where they are left, in one direction."""
        match direction:
            case Direction.OUT:
                return self
            case Direction.IN:
                return EdgeList(self.target, self.source, self.edge)
            case Direction.BOTH:
                # A self-loop is one edge, not two, whichever way it is followed.
                others = self.take(self.source != self.target)
                return joined_edges([self, EdgeList(others.target, others.source, others.edge)])


def joined_edges(parts: Sequence[EdgeList]) -> EdgeList:
    """All edges of some lists."""
    columns = ([getattr(part, name) for part in parts] for name in ("source", "target", "edge"))
    return EdgeList(*(np.concatenate(column) if column else np.zeros(0, np.int64) for column in columns))


#: Targets and, per edge, row ids: of the whole arrays, and of a patch whose places follow theirs.
Part: TypeAlias = tuple[Numbers, Numbers | None]
Ends: TypeAlias = tuple[Part, Part | None]


def part_of(runs: Runs, *, distinct: bool) -> tuple[IntArray, Part]:
    """The offsets and the ends along each edge, or for every neighbour once."""
    if distinct:
        return runs.distinct_offsets, (runs.distinct_targets, None)
    return runs.offsets, (runs.targets, runs.edges)


def gathered_ends(starts: IntArray, counts: IntArray, ends: Ends) -> Part:
    """The ends at places that go from whole arrays on to those of a patch."""
    places = ranges(starts, counts)
    base, changed = ends
    if changed is None:
        return base[0][places], None if base[1] is None else base[1][places]
    border = len(base[0])
    is_changed = places >= border

    def picked(first: Numbers, second: Numbers) -> Numbers:
        found = np.empty(len(places), np.promote_types(first.dtype, second.dtype))
        found[is_changed] = second[places[is_changed] - border]
        found[~is_changed] = first[places[~is_changed]]
        return found

    edges = None if base[1] is None or changed[1] is None else picked(base[1], changed[1])
    return picked(base[0], changed[0]), edges


def offsets_of_counts(counts: IntArray) -> IntArray:
    """Where runs of these lengths begin, and the end of the last one."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def patch_above(base: Runs, nodes: IntArray, stages: IntArray, runs: Runs, sources: int) -> Patch:
    """A patch above whole arrays."""
    known = nodes[nodes < len(base.offsets) - 1]
    replaced = int((base.offsets[known + 1] - base.offsets[known]).sum())
    return Patch(sources, nodes, stages, runs, replaced)


def merged_runs(first: Runs, kept: IntArray, second: Runs | None, order: IntArray) -> Runs:
    """Some rows of runs and all rows of others, in an order of both one behind the other."""

    def part(*, distinct: bool) -> tuple[IntArray, Part]:
        offsets, ends = part_of(first, distinct=distinct)
        starts, counts = offsets[kept], offsets[kept + 1] - offsets[kept]
        changed = None
        if second is not None:
            others, changed = part_of(second, distinct=distinct)
            starts = np.concatenate([starts, others[:-1] + len(ends[0])])
            counts = np.concatenate([counts, np.diff(others)])
        starts, counts = starts[order], counts[order]
        return offsets_of_counts(counts), gathered_ends(starts, counts, (ends, changed))

    offsets, (targets, edges) = part(distinct=False)
    assert edges is not None, "edges have row ids"
    if all(runs.distinct_targets is runs.targets for runs in (first, second) if runs is not None):
        return Runs(offsets, targets, edges, offsets, targets)
    distinct_offsets, (distinct_targets, _) = part(distinct=True)
    return Runs(offsets, targets, edges, distinct_offsets, distinct_targets)


def written_out(base: Runs, patch: Patch) -> Runs:
    """Whole arrays with a patch in them."""

    def part(*, distinct: bool) -> tuple[IntArray, Part]:
        offsets, ends = part_of(base, distinct=distinct)
        changed, changed_ends = part_of(patch.runs, distinct=distinct)
        counts = np.zeros(patch.sources, np.int64)
        counts[: len(offsets) - 1] = np.diff(offsets)
        counts[patch.nodes] = np.diff(changed)
        if len(patch.nodes) > _FEW_NODES:
            starts = np.zeros(patch.sources, np.int64)
            starts[: len(offsets) - 1] = offsets[:-1]
            starts[patch.nodes] = changed[:-1] + len(ends[0])
            return offsets_of_counts(counts), gathered_ends(starts, counts, (ends, changed_ends))
        known = np.minimum(patch.nodes, len(offsets) - 1)
        # What lies before each changed node, and where its own edges end in the arrays that are replaced.
        stops, nexts = offsets[known], offsets[np.minimum(patch.nodes + 1, len(offsets) - 1)]
        cuts = list(zip([0, *nexts.tolist()], [*stops.tolist(), len(ends[0])], strict=True))
        news = list(pairwise(changed.tolist()))

        def spliced(old: Numbers, new: Numbers) -> Numbers:
            pieces = [old[slice(*cuts[0])]]
            for cut, fresh in zip(cuts[1:], news, strict=True):
                pieces += [new[slice(*fresh)], old[slice(*cut)]]
            return np.concatenate(pieces)

        edges = None if ends[1] is None or changed_ends[1] is None else spliced(ends[1], changed_ends[1])
        return offsets_of_counts(counts), (spliced(ends[0], changed_ends[0]), edges)

    offsets, (targets, edges) = part(distinct=False)
    assert edges is not None, "edges have row ids"
    if base.distinct_targets is base.targets and patch.runs.distinct_targets is patch.runs.targets:
        return Runs(offsets, targets, edges, offsets, targets)
    distinct_offsets, (distinct_targets, _) = part(distinct=True)
    return Runs(offsets, targets, edges, distinct_offsets, distinct_targets)


def places_of(edges: Numbers, row_ids: IntArray) -> IntArray:
    """Where some row ids stand among those of edges."""
    if len(row_ids) <= _FEW_EDGES:
        return np.concatenate([np.zeros(0, np.int64), *(np.flatnonzero(edges == one) for one in row_ids.tolist())])
    return np.flatnonzero(np.isin(edges, row_ids))


def offsets_of(sorted_source: IntArray, sources: int) -> IntArray:
    """The offsets of the runs of equal values among sorted sources, and the end of the last one."""
    counts = np.bincount(sorted_source, minlength=sources)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """The numbers `starts[i] … starts[i] + counts[i] - 1` of all i, one after the other."""
    total = int(counts.sum())
    if not total:
        return np.zeros(0, np.int64)
    ends = np.cumsum(counts)
    shifts: IntArray = np.repeat(starts - (ends - counts), counts)
    return np.arange(total) + shifts
