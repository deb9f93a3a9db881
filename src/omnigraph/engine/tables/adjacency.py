"""Adjacency arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import numpy as np

from omnigraph.core.arrow import Array, pc
from omnigraph.engine.distinct import sorted_distinct
from omnigraph.engine.rows import IntArray, Numbers
from omnigraph.engine.tables.numberings import Numbering, is_among
from omnigraph.engine.tables.runs import (
    EdgeList,
    Ends,
    Patch,
    Runs,
    gathered_ends,
    joined_edges,
    merged_runs,
    offsets_of,
    offsets_of_counts,
    part_of,
    patch_above,
    places_of,
    written_out,
)
from omnigraph.errors import DamageError
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir import Direction

_MAX_NARROW = 2**32 - 1
#: A patch of so many edges, or of a tenth of all, is worth being written out.
PATCH_EDGES = 4096


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


class Side:
    """One direction of the edges.

    `among` answers for some nodes. The whole arrays are there for what looks at all of them; a state that was made from
    an earlier one writes them out when they are first asked for.
    """

    def __init__(
        self,
        offsets: IntArray,
        targets: Numbers,
        edges: Numbers,
        distinct_offsets: IntArray,
        distinct_targets: Numbers,
        *,
        patch: Patch | None = None,
    ) -> None:
        self._base = Runs(offsets, targets, edges, distinct_offsets, distinct_targets)
        self._patch = patch
        #: The whole arrays of a state with a patch, once they are written out.
        self._written: Runs | None = None if patch is not None else self._base

    @staticmethod
    def above(runs: Runs, patch: Patch) -> Side:
        """The side that a patch makes of whole arrays, which it shares."""
        side = Side(runs.offsets, runs.targets, runs.edges, runs.distinct_offsets, runs.distinct_targets, patch=patch)
        # Their identity tells which sides share them.
        side._base = runs
        return side

    @property
    def offsets(self) -> IntArray:
        """Where the edges of each node begin, and the end of the last one."""
        return self.whole().offsets

    @property
    def base_offsets(self) -> IntArray:
        """As `offsets`, without the last changes: for statistics."""
        return self._base.offsets

    @property
    def targets(self) -> Numbers:
        """The neighbour along each edge."""
        return self.whole().targets

    @property
    def edges(self) -> Numbers:
        """The row id of each edge."""
        return self.whole().edges

    @property
    def distinct_offsets(self) -> IntArray:
        """As `offsets`, for every neighbour once."""
        return self.whole().distinct_offsets

    @property
    def distinct_targets(self) -> Numbers:
        """The neighbours of each node, every one once; `targets` itself when no two edges are parallel."""
        return self.whole().distinct_targets

    @property
    def edge_count(self) -> int:
        """The number of edges, as they are seen in this direction."""
        base, patch = self._base, self._patch
        return len(base.targets) if patch is None else len(base.targets) - patch.replaced + len(patch.runs.targets)

    @property
    def sources(self) -> int:
        """The number of nodes that edges may begin at."""
        return len(self._base.offsets) - 1 if self._patch is None else self._patch.sources

    @property
    def is_written(self) -> bool:
        """Whether the whole arrays are there."""
        return self._written is not None

    @property
    def is_heavy(self) -> bool:
        """Whether so much was changed that the whole arrays are worth being written out."""
        if self._patch is None or self._written is not None:
            return False
        return len(self._patch.runs.targets) + self._patch.replaced > max(PATCH_EDGES, self.edge_count // 10)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or mapped."""
        patch = self._patch
        own = 0 if patch is None else patch.runs.nbytes + patch.nodes.nbytes + patch.stages.nbytes
        written = 0 if self._written is None or self._written is self._base else self._written.nbytes
        return self._base.nbytes + own + written

    def is_consistent(self, sources: int, targets: int) -> bool:
        """Whether runs follow each other, one per source, and lead to targets that exist."""
        whole = self.whole()
        return len(whole.edges) == len(whole.targets) and all(
            _are_runs(offsets, ends, sources, targets)
            for offsets, ends in ((whole.offsets, whole.targets), (whole.distinct_offsets, whole.distinct_targets))
        )

    def whole(self) -> Runs:
        """The whole arrays."""
        written = self._written
        if written is None:
            assert self._patch is not None, "without a patch the arrays are whole"
            # Two threads may write them out at the same time: both get the same.
            written = self._written = written_out(self._base, self._patch)
        return written

    def among(self, numbers: IntArray, *, distinct: bool) -> tuple[IntArray, IntArray, Numbers, Numbers | None]:
        """The neighbours of nodes, every one once if `distinct`, else along each edge.

        Node `i` of the question has `targets[offsets[p]:offsets[p + 1]]` where `p` is `places[i]`: the answer is
        places, offsets, targets and, per edge, row ids.
        """
        if self._written is None:
            offsets, ends, counts = self._rows(numbers, distinct=distinct)
            if int(counts.sum()) * 4 < self.edge_count:
                places = np.arange(len(numbers))
                targets, edges = gathered_ends(offsets, counts, ends)
                return places, offsets_of_counts(counts), targets, edges
        whole = self.whole()
        if distinct:
            return numbers, whole.distinct_offsets, whole.distinct_targets, None
        return numbers, whole.offsets, whole.targets, whole.edges

    def edges_of(self, nodes: IntArray) -> EdgeList:
        """All edges of some different nodes; nodes of later states have none here."""
        nodes = nodes[nodes < self.sources]
        starts, ends, counts = self._rows(nodes, distinct=False)
        targets, edges = gathered_ends(starts, counts, ends)
        assert edges is not None, "edges have row ids"
        return EdgeList(np.repeat(nodes, counts), targets.astype(np.int64), edges.astype(np.int64))

    def edges_with(self, row_ids: IntArray) -> EdgeList:
        """The edges with these row ids, ascending, as far as they are there; looks at all edges."""
        base, patch = self._base, self._patch
        places = places_of(base.edges, row_ids)
        nodes = np.searchsorted(base.offsets, places, side="right") - 1
        found = EdgeList(nodes, base.targets[places].astype(np.int64), base.edges[places].astype(np.int64))
        if patch is None:
            return found
        found = found.take(~is_among(found.source, patch.nodes))
        places = places_of(patch.runs.edges, row_ids)
        nodes = patch.nodes[np.searchsorted(patch.runs.offsets, places, side="right") - 1]
        changed = EdgeList(
            nodes, patch.runs.targets[places].astype(np.int64), patch.runs.edges[places].astype(np.int64)
        )
        return joined_edges([found, changed])

    def stepped(self, removed: EdgeList, added: EdgeList, sources: int, targets: int, stage: int) -> Side | None:
        """The side of another state, from edges as this direction sees them; None if one to remove is not there."""
        nodes = sorted_distinct(np.concatenate([removed.source, added.source]))
        before = self.edges_of(nodes)
        stays = ~is_among(before.edge, np.sort(removed.edge))
        if int(np.count_nonzero(~stays)) != len(removed):
            return None
        now = joined_edges([before.take(stays), added])
        local = np.searchsorted(nodes, now.source)
        runs = build_side(local, now.target, now.edge, len(nodes), targets).whole()
        written = self._written
        base, patch = (self._base, self._patch) if written is None else (written, None)
        stages = np.full(len(nodes), stage)
        if patch is not None:
            others = ~is_among(patch.nodes, nodes)
            every = np.concatenate([patch.nodes[others], nodes])
            order = np.argsort(every)
            runs = merged_runs(patch.runs, np.flatnonzero(others), runs, order)
            nodes, stages = every[order], np.concatenate([patch.stages[others], stages])[order]
        return Side.above(base, patch_above(base, nodes, stages, runs, sources))

    def rebased(self, earlier: Side, stage: int) -> Side | None:
        """The same edges above the whole arrays of an earlier state of that stage; None if it has other arrays."""
        patch = self._patch
        if patch is None or self._written is not None or self._base is not earlier._base:
            return None
        later = np.flatnonzero(patch.stages > stage)
        runs, whole = merged_runs(patch.runs, later, None, np.arange(len(later))), earlier.whole()
        return Side.above(whole, patch_above(whole, patch.nodes[later], patch.stages[later], runs, patch.sources))

    def _rows(self, numbers: IntArray, *, distinct: bool) -> tuple[IntArray, Ends, IntArray]:
        """Where the neighbours of nodes begin in the arrays one behind the other, these arrays, and how many."""
        # Looked at once: another thread may write the arrays out meanwhile.
        written = self._written
        base, patch = (self._base, self._patch) if written is None else (written, None)
        offsets, ends = part_of(base, distinct=distinct)
        if patch is None:
            starts = offsets[numbers]
            return starts, (ends, None), offsets[numbers + 1] - starts
        nodes = len(offsets) - 1
        known = np.minimum(numbers, max(nodes - 1, 0))
        if nodes:
            starts = offsets[known]
            counts = offsets[known + 1] - starts
        else:
            starts, counts = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
        counts[numbers >= nodes] = 0
        if not len(patch.nodes):
            return starts, (ends, None), counts
        places = np.searchsorted(patch.nodes, numbers)
        places[places == len(patch.nodes)] = 0
        is_changed = patch.nodes[places] == numbers
        changed, changed_ends = part_of(patch.runs, distinct=distinct)
        at = places[is_changed]
        starts[is_changed] = changed[at] + len(ends[0])
        counts[is_changed] = changed[at + 1] - changed[at]
        return starts, (ends, changed_ends), counts


#: Numbers of stages, which grow along every line of states.
_STAGES = count(1)


@frozen
class Stage:
    """A state of the edges among those that were made from each other."""

    number: int
    #: The state that it was made from; None where that one had whole arrays.
    parent: Stage | None

    def follows(self, other: Stage) -> bool:
        """Whether this state was made from another one, or from one that was."""
        stage = self.parent
        while stage is not None and stage.number > other.number:
            stage = stage.parent
        return stage is not None and stage.number == other.number


class Adjacency:
    """All edges of one type between two numbered node types. Sides are made when they are first asked for."""

    def __init__(
        self,
        sources: int,
        targets: int,
        sides: Mapping[Direction, Side] | None = None,
        *,
        numberings: tuple[Numbering, Numbering] | None = None,
        stage: Stage | None = None,
    ) -> None:
        #: How many numbers there are on both ends, dead ones included.
        self.sources = sources
        self.targets = targets
        #: What the numbers of both ends mean.
        self.numberings = numberings
        #: Where it stands among the states that were made from each other.
        self.stage = Stage(next(_STAGES), None) if stage is None else stage
        #: Whether a reader asked for it: a commit prepares the next state only then.
        self.is_read = False
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
        return self.side(Direction.OUT).edge_count

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

    @property
    def is_heavy(self) -> bool:
        """Whether a side is worth being written out."""
        return any(side.is_heavy for side in self._sides.values())

    @property
    def is_written(self) -> bool:
        """Whether the whole arrays of all sides are there."""
        return all(side.is_written for side in self._sides.values())

    def write_out(self) -> None:
        """Make the whole arrays of all sides."""
        for side in list(self._sides.values()):
            side.whole()

    def located(self, row_ids: IntArray, gone: tuple[IntArray, IntArray]) -> EdgeList | None:
        """The edges with these row ids, ascending; None if one of them is not there.

        Edges of sources and targets that are `gone` are found at these nodes, others by a look at all edges.
        """
        found: list[EdgeList] = []
        rest = row_ids
        for direction, nodes in zip((Direction.OUT, Direction.IN), gone, strict=True):
            if len(rest) and len(nodes) and direction in self._sides:
                near = self._sides[direction].edges_of(nodes)
                near = near.take(is_among(near.edge, rest)).seen(direction)
                found.append(near)
                rest = rest[~is_among(rest, np.sort(near.edge))]
        if len(rest):
            found.append(self.side(Direction.OUT).edges_with(rest))
        every = joined_edges(found)
        return every if len(every) == len(row_ids) else None

    def stepped(self, removed: EdgeList, added: EdgeList, source: Numbering, target: Numbering) -> Adjacency | None:
        """The adjacency of another state whose numbers extend these; None if an edge to remove is not there."""
        sides: dict[Direction, Side] = {}
        stage = Stage(next(_STAGES), None if self.is_written else self.stage)
        for direction, side in list(self._sides.items()):
            begins, ends = (target, source) if direction is Direction.IN else (source, target)
            made = side.stepped(removed.seen(direction), added.seen(direction), begins.count, ends.count, stage.number)
            if made is None:
                return None
            sides[direction] = made
        return Adjacency(source.count, target.count, sides, numberings=(source, target), stage=stage)

    def rebased(self, earlier: Adjacency) -> Adjacency | None:
        """The same edges above the arrays of an earlier state that were written out meanwhile.

        None when this state was not made from that one, or already has arrays as new as those.
        """
        if not self.stage.follows(earlier.stage):
            return None
        sides: dict[Direction, Side] = {}
        for direction, side in self._sides.items():
            before = earlier._sides.get(direction)
            made = None if before is None else side.rebased(before, earlier.stage.number)
            if made is None:
                return None
            sides[direction] = made
        return Adjacency(self.sources, self.targets, sides, numberings=self.numberings, stage=self.stage)

    def without_dead(self) -> Adjacency:
        """The same edges where only rows that exist have numbers, as a process that knows nothing numbers them."""
        if self.numberings is None or not any(len(item.dead) for item in self.numberings):
            return self
        source, target = self.numberings

        def moved(side: Side, begins: Numbering, ends: Numbering) -> Side:
            whole, rank = side.whole(), np.cumsum(ends.is_alive) - 1
            offsets, distinct = (
                offsets_of_counts(np.diff(item)[begins.is_alive]) for item in (whole.offsets, whole.distinct_offsets)
            )
            return _renumbered(whole, offsets, distinct, rank)

        return self._moved(moved, source.live_count, target.live_count, source, target)

    def with_dead(self, source: Numbering, target: Numbering) -> Adjacency:
        """The inverse of `without_dead`: the same edges under numbers of which some are dead."""

        def moved(side: Side, begins: Numbering, ends: Numbering) -> Side:
            whole = side.whole()
            spread = []
            for item in (whole.offsets, whole.distinct_offsets):
                counts = np.zeros(begins.count, np.int64)
                counts[begins.live_numbers] = np.diff(item)
                spread.append(offsets_of_counts(counts))
            return _renumbered(whole, spread[0], spread[1], ends.live_numbers)

        made = self
        if len(source.dead) or len(target.dead):
            made = self._moved(moved, source.count, target.count, source, target)
        made.numberings = (source, target)
        return made

    def _moved(
        self,
        moved: Callable[[Side, Numbering, Numbering], Side],
        sources: int,
        targets: int,
        source: Numbering,
        target: Numbering,
    ) -> Adjacency:
        ways = {Direction.OUT: (source, target), Direction.IN: (target, source)}
        return Adjacency(sources, targets, {way: moved(self.side(way), *ends) for way, ends in ways.items()})

    def _make(self, direction: Direction) -> Side:
        out = self._sides[Direction.OUT].whole()
        source = np.repeat(np.arange(self.sources), np.diff(out.offsets))
        edges = EdgeList(source, out.targets.astype(np.int64), out.edges.astype(np.int64)).seen(direction)
        begins, ends = (self.targets, self.sources) if direction is Direction.IN else (self.sources, self.targets)
        return build_side(edges.source, edges.target, edges.edge, begins, ends)


def _renumbered(runs: Runs, offsets: IntArray, distinct: IntArray, numbers: IntArray) -> Side:
    targets = numbers[runs.targets].astype(runs.targets.dtype)
    if runs.distinct_targets is runs.targets:
        return Side(offsets, targets, runs.edges, offsets, targets)
    return Side(offsets, targets, runs.edges, distinct, numbers[runs.distinct_targets].astype(runs.targets.dtype))


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
