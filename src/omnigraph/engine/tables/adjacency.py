"""Adjacency arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from omnigraph.core.arrow import Array, pc
from omnigraph.engine.rows import IntArray, Numbers
from omnigraph.errors import DamageError
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction

# The traversal index.
#
# For each direction, the neighbours of node `n` are `targets[offsets[n]:offsets[n + 1]]`, sorted, beside the row ids
# of the edges that lead to them. Parallel edges are kept there; where there are any, a second pair of arrays has each
# neighbour once.


_MAX_NARROW = 2**32 - 1


def ends_among(ids: Array, known: Array, edges: str) -> IntArray:
    """The positions of the ends of edges among the ids of all nodes.

    Raises:
        DamageError: one of them does not exist, and no writer leaves an edge like that.
    """
    found = pc.index_in(ids, known)
    if found.null_count:
        count = f"{found.null_count:,} of {len(ids):,} ends"
        raise DamageError(f"following the edges in {edges}", f"{count} are nodes that do not exist")
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


@frozen
class Side:
    """One direction of the edges."""

    offsets: IntArray
    targets: Numbers
    edges: Numbers
    #: The same with every neighbour once; the same arrays when no two edges are parallel.
    distinct_offsets: IntArray
    distinct_targets: Numbers

    def is_consistent(self, sources: int, targets: int) -> bool:
        """Whether runs follow each other, one per source, and lead to targets that exist."""
        return len(self.edges) == len(self.targets) and all(
            _are_runs(offsets, ends, sources, targets)
            for offsets, ends in ((self.offsets, self.targets), (self.distinct_offsets, self.distinct_targets))
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or mapped."""
        arrays = [self.offsets, self.targets, self.edges]
        if self.distinct_targets is not self.targets:
            arrays += [self.distinct_offsets, self.distinct_targets]
        return sum(array.nbytes for array in arrays)


class Adjacency:
    """All edges of one type between two numbered node types. Sides are made when they are first asked for."""

    def __init__(self, sources: int, targets: int, sides: Mapping[Direction, Side] | None = None) -> None:
        self.sources = sources
        self.targets = targets
        self._sides: dict[Direction, Side] = dict(sides or {})

    @staticmethod
    def build(source: IntArray, target: IntArray, edge: IntArray, *, sources: int, targets: int) -> Adjacency:
        """From one array per column: number of the source, number of the target, row id of the edge."""
        adjacency = Adjacency(sources, targets)
        adjacency._sides[Direction.OUT] = build_side(source, target, edge, sources, targets)
        return adjacency

    def side(self, direction: Direction) -> Side:
        """The edges as seen in one direction."""
        known = self._sides.get(direction)
        if known is None:
            known = self._make(direction)
            self._sides[direction] = known
        return known

    def has(self, direction: Direction) -> bool:
        """Whether the edges in one direction need not be made first."""
        return direction in self._sides

    def known_sides(self) -> Mapping[Direction, Side]:
        """The sides that are made."""
        return self._sides

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return len(self.side(Direction.OUT).targets)

    def is_consistent(self) -> bool:
        """Whether every number in the arrays stands for a node or a place that exists; row ids are not looked at."""
        ends = {Direction.OUT: (self.sources, self.targets), Direction.IN: (self.targets, self.sources)}
        return all(
            direction not in ends or side.is_consistent(*ends[direction]) for direction, side in self._sides.items()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all sides that are made."""
        return sum(side.nbytes for side in self._sides.values())

    def _make(self, direction: Direction) -> Side:
        out = self._sides[Direction.OUT]
        source = np.repeat(np.arange(self.sources), np.diff(out.offsets))
        target = out.targets.astype(np.int64)
        edge = out.edges.astype(np.int64)
        if direction is Direction.IN:
            return build_side(target, source, edge, self.targets, self.sources)
        # A self-loop is one edge, not two, whichever way it is followed.
        others = source != target
        return build_side(
            np.concatenate([source, target[others]]),
            np.concatenate([target, source[others]]),
            np.concatenate([edge, edge[others]]),
            self.sources,
            self.targets,
        )


def build_side(source: IntArray, target: IntArray, edge: IntArray, sources: int, targets: int) -> Side:
    """Sort edges by source and target."""
    order = np.argsort(source * max(targets, 1) + target)
    source, target, edge = source[order], target[order], edge[order]
    offsets = offsets_of(source, sources)
    narrow_targets = target.astype(np.uint32 if targets <= _MAX_NARROW else np.int64)
    fits = not len(edge) or int(edge.max()) <= _MAX_NARROW
    narrow_edges = edge.astype(np.uint32 if fits else np.int64)
    repeats = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    if not repeats.any():
        return Side(offsets, narrow_targets, narrow_edges, offsets, narrow_targets)
    first = np.concatenate([[True], ~repeats])
    return Side(offsets, narrow_targets, narrow_edges, offsets_of(source[first], sources), narrow_targets[first])


def _are_runs(offsets: IntArray, ends: Numbers, sources: int, targets: int) -> bool:
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (offsets, ends)):
        return False
    if len(offsets) != sources + 1 or offsets[0] != 0 or offsets[-1] != len(ends):
        return False
    if (offsets[1:] < offsets[:-1]).any():
        return False
    return not len(ends) or (int(ends.min()) >= 0 and int(ends.max()) < targets)


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
