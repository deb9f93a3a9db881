"""Intersections of sorted neighbour lists, and whether two nodes are linked: counted, listed or weighed, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.engine.kernels import machine_code
from omnigraph.engine.kernels.compiled import machine_loop
from omnigraph.engine.kernels.lists import MORSEL, PART_STEPS, Lists, are_in_lists, parts_of, run_starts, worked
from omnigraph.engine.rows import BoolArray, IntArray, Numbers
from omnigraph.engine.tables.runs import ranges
from omnigraph.frozen import frozen

#: Cells of the table that neighbours are marked in: it stays in the cache of a processor.
_TABLE_CELLS = 1 << 22
#: Nodes that have a row of their own in that table; where there would be fewer, or hashes are shorter, these are taken.
_LEAST_SLOTS = 8
#: Cells per neighbour where marks are hashed, so that few nodes are taken for neighbours, and looked up, in vain.
_HASHED_CELLS = 32
#: The largest number of cells of one node, as a power of two: a quarter of the table.
_WIDEST = 20
_HASH = 0x9E3779B97F4A7C15
#: A list so many times longer than the other is searched instead of being walked.
_SKEW = 16

_NONE: BoolArray = np.zeros(0, np.bool_)
_NO_NUMBERS: IntArray = np.zeros(0, np.int64)


@frozen
class Pair:
    """Two nodes per row, each with neighbours of its own; nodes below `first.bound` meet them."""

    first: Lists
    first_nodes: IntArray
    second: Lists
    second_nodes: IntArray

    def ordered(self) -> tuple[Pair, IntArray]:
        """The pair with the side in front that is better marked than walked, and the steps that each row takes.

        Marks are made once per run of equal nodes; what is walked is walked for every row, unless it is much longer.
        """
        first, second = self.first.sizes(self.first_nodes), self.second.sizes(self.second_nodes)
        walks_second = int(np.minimum(second, _SKEW * first).sum()) + int(first[run_starts(self.first_nodes)].sum())
        walks_first = int(np.minimum(first, _SKEW * second).sum()) + int(second[run_starts(self.second_nodes)].sum())
        if walks_second <= walks_first:
            return self, np.minimum(second, _SKEW * first) + 1
        turned = Pair(self.second, self.second_nodes, self.first, self.first_nodes)
        return turned, np.minimum(first, _SKEW * second) + 1

    def part(self, begin: int, end: int) -> Pair:
        """Some of the rows."""
        return Pair(self.first, self.first_nodes[begin:end], self.second, self.second_nodes[begin:end])


def common_counts(pair: Pair, allowed: BoolArray | None, budget: Budget) -> IntArray:
    """Per row, how many nodes are neighbours of both its nodes; with `allowed`, only those that it is true for."""
    pair, steps = pair.ordered()
    total = int(steps.sum())
    budget.allow(len(steps) * 32 + _scratch_bytes(pair))

    def work(part: tuple[int, int]) -> IntArray:
        some = pair.part(*part)
        loop = machine_loop(machine_code.common_counts, total, some.first.targets, some.second.targets)
        if loop is None:
            return _counts(some, allowed)
        counts = np.empty(len(some.first_nodes), np.int64)
        loop(*_arguments(some), _mask(allowed), np.zeros(some.first.bound, np.bool_), counts)
        return counts

    return _joined(list(worked(budget, parts_of(steps, PART_STEPS), work, total)))


def common_pairs(pair: Pair, allowed: BoolArray | None, budget: Budget) -> Iterator[tuple[int, IntArray, IntArray]]:
    """The nodes that both nodes of a row have for neighbours, in parts: its first row, rows counted from it, nodes."""
    pair, steps = pair.ordered()
    total = int(steps.sum())
    budget.allow(len(steps) * 16 + _scratch_bytes(pair) + PART_STEPS * 32)

    def work(part: tuple[int, int]) -> tuple[int, IntArray, IntArray]:
        some = pair.part(*part)
        loop = machine_loop(machine_code.common_pairs, total, some.first.targets, some.second.targets)
        if loop is None:
            return part[0], *_pairs(some, allowed)
        most = int(np.minimum(some.first.sizes(some.first_nodes), some.second.sizes(some.second_nodes)).sum())
        rows, nodes = np.empty(most, np.int64), np.empty(most, np.int64)
        done = loop(*_arguments(some), _mask(allowed), np.zeros(some.first.bound, np.bool_), rows, nodes)
        return part[0], rows[:done].copy(), nodes[:done].copy()

    yield from worked(budget, parts_of(steps, PART_STEPS), work, total)


def _joined(parts: list[IntArray]) -> IntArray:
    return parts[0] if len(parts) == 1 else np.concatenate([_NO_NUMBERS, *parts])


def _mask(allowed: BoolArray | None) -> BoolArray:
    return _NONE if allowed is None else allowed


def _scratch_bytes(pair: Pair) -> int:
    return min(pair.first.bound, _TABLE_CELLS) * 4 + _TABLE_CELLS


def _arguments(pair: Pair) -> tuple[Any, ...]:
    one, two = pair.first, pair.second
    first = (one.starts, one.ends, one.targets, np.ascontiguousarray(pair.first_nodes))
    return *first, two.starts, two.ends, two.targets, np.ascontiguousarray(pair.second_nodes)


# ---- With numpy: the first lists of some rows are marked in a table, the second ones are looked up in it


#: Takes rows and nodes that both lists of the row have.
_Take = Callable[[IntArray, IntArray], None]


def _counts(pair: Pair, allowed: BoolArray | None) -> IntArray:
    rows = [_NO_NUMBERS]
    _meet(pair, allowed, lambda found, _nodes: rows.append(found))
    return np.bincount(np.concatenate(rows), minlength=len(pair.first_nodes))


def _pairs(pair: Pair, allowed: BoolArray | None) -> tuple[IntArray, IntArray]:
    rows, nodes = [_NO_NUMBERS], [_NO_NUMBERS]

    def take(found: IntArray, common: IntArray) -> None:
        rows.append(found)
        nodes.append(common)

    _meet(pair, allowed, take)
    return np.concatenate(rows), np.concatenate(nodes)


def _meet(pair: Pair, allowed: BoolArray | None, take: _Take) -> None:
    first, second = pair.first.sizes(pair.first_nodes), pair.second.sizes(pair.second_nodes)
    is_long = second > _SKEW * first
    if is_long.any():
        # The few neighbours of the first node are looked up in the many of the second one.
        rows = np.flatnonzero(is_long)
        for begin, end in parts_of(first[rows] + 1, MORSEL):
            some = rows[begin:end]
            index = np.repeat(some, first[some])
            nodes = pair.first.targets[ranges(pair.first.starts[pair.first_nodes[some]], first[some])]
            kept = are_in_lists(pair.second, pair.second_nodes[index], nodes)
            _give(index[kept], nodes[kept], allowed, take)
        rows = np.flatnonzero(~is_long)
        rest = Pair(pair.first, pair.first_nodes[rows], pair.second, pair.second_nodes[rows])
        _mark_and_walk(rest, allowed, lambda found, nodes: take(rows[found], nodes))
    else:
        _mark_and_walk(pair, allowed, take)


def _give(rows: IntArray, nodes: Numbers, allowed: BoolArray | None, take: _Take) -> None:
    if allowed is not None:
        kept = allowed[nodes]
        rows, nodes = rows[kept], nodes[kept]
    if len(rows):
        take(rows, nodes.astype(np.int64))


def _mark_and_walk(pair: Pair, allowed: BoolArray | None, take: _Take) -> None:
    if not len(pair.first_nodes):
        return
    heads = run_starts(pair.first_nodes)
    bounds = np.append(heads, len(pair.first_nodes))
    nodes = pair.first_nodes[heads]
    sizes = pair.first.sizes(nodes)
    widths = _hashed_widths(sizes)
    is_exact = pair.first.bound * _LEAST_SLOTS <= _TABLE_CELLS and pair.first.bound * len(nodes) <= int(widths.sum())
    if is_exact:
        widths = np.full(len(nodes), pair.first.bound)
    table = np.zeros(_TABLE_CELLS, np.bool_)
    for begin, end in parts_of(widths, _TABLE_CELLS // 2):
        bases = np.cumsum(widths[begin:end]) - widths[begin:end]
        spots = ranges(pair.first.starts[nodes[begin:end]], sizes[begin:end])
        masks = None if is_exact else widths[begin:end] - 1
        cells = _cells(pair.first.targets[spots], sizes[begin:end], bases, masks)
        table[cells] = True
        heights = np.diff(bounds[begin : end + 1])
        row_bases, row_masks = np.repeat(bases, heights), None if masks is None else np.repeat(masks, heights)
        first_row, last_row = int(bounds[begin]), int(bounds[end])
        for rows, found in _walked(pair.part(first_row, last_row), table, row_bases, row_masks):
            _give(rows + first_row, found, allowed, take)
        table[cells] = False


def _hashed_widths(sizes: IntArray) -> IntArray:
    """Powers of two with room for lists of these sizes."""
    exponents = np.ceil(np.log2(np.maximum(sizes * _HASHED_CELLS, 64))).astype(np.int64)
    return np.left_shift(np.int64(1), np.minimum(exponents, _WIDEST))


def _cells(found: Numbers, sizes: IntArray, bases: IntArray, masks: IntArray | None) -> IntArray:
    """The cells of nodes that were found in lists of these sizes."""
    cells: IntArray = np.repeat(bases, sizes)
    if masks is None:
        cells += found
        return cells
    hashed = ((found.astype(np.uint64) * np.uint64(_HASH)) >> np.uint64(40)).astype(np.int64)
    hashed &= np.repeat(masks, sizes)
    cells += hashed
    return cells


def _walked(
    pair: Pair, table: BoolArray, bases: IntArray, masks: IntArray | None
) -> Iterator[tuple[IntArray, Numbers]]:
    """The nodes of the second lists that are marked in the table, and their rows."""
    counts = pair.second.sizes(pair.second_nodes)
    starts = pair.second.starts[pair.second_nodes]
    for begin, end in parts_of(counts + 1, MORSEL):
        some = counts[begin:end]
        found = pair.second.targets[ranges(starts[begin:end], some)]
        cells = _cells(found, some, bases[begin:end], None if masks is None else masks[begin:end])
        hits = np.flatnonzero(table[cells])
        rows, nodes = np.searchsorted(np.cumsum(some), hits, side="right") + begin, found[hits]
        if masks is not None:
            # Another node may have the same cell.
            sure = are_in_lists(pair.first, pair.first_nodes[rows], nodes)
            rows, nodes = rows[sure], nodes[sure]
        yield rows, nodes


# ---- Are two nodes linked?


def are_linked(lists: Lists, nodes: IntArray, wanted: IntArray, budget: Budget) -> BoolArray:
    """Per row, whether a number is among the neighbours of its node."""
    steps = np.full(len(nodes), 8)
    budget.allow(len(nodes) * 10)

    def work(part: tuple[int, int]) -> BoolArray:
        begin, end = part
        some, sought = nodes[begin:end], wanted[begin:end]
        loop = machine_loop(machine_code.are_linked, 8 * len(nodes), lists.targets)
        if loop is None:
            return are_in_lists(lists, some, sought)
        marks = np.zeros(lists.bound, np.bool_) if lists.bound <= 8 * len(some) else _NONE
        found = np.empty(len(some), np.bool_)
        asked = np.ascontiguousarray(some), np.ascontiguousarray(sought)
        loop(lists.starts, lists.ends, lists.targets, *asked, marks, found)
        return found

    parts = list(worked(budget, parts_of(steps, PART_STEPS), work, 8 * len(nodes)))
    return np.concatenate([_NONE, *parts])


# ---- Weights of ways


@frozen
class Ways:
    """Ways in two hops from heads, over nodes next to them, to others that have weights.

    The others of head `i` are those from `offsets[i]` to before `offsets[i + 1]`; they may repeat. No weights are 1.
    """

    near: Lists
    heads: IntArray
    back: Lists
    offsets: IntArray
    others: IntArray
    weights: IntArray | None

    def expected_steps(self) -> float:
        """About how many steps it takes to add up the weights: a guess by the mean number of neighbours."""
        return len(self.others) + 2 * float(self.near.sizes(self.heads).sum()) * self.back.mean

    def part(self, begin: int, end: int) -> Ways:
        """The ways of some heads."""
        low, high = int(self.offsets[begin]), int(self.offsets[end])
        weights = None if self.weights is None else self.weights[low:high]
        offsets = self.offsets[begin : end + 1] - low
        return Ways(self.near, self.heads[begin:end], self.back, offsets, self.others[low:high], weights)


def way_sums(ways: Ways, allowed: BoolArray | None, budget: Budget) -> IntArray:
    """Per head, the weights of all ways to its others over allowed nodes, added up."""
    steps = np.diff(ways.offsets) + (ways.near.sizes(ways.heads) * (2 * ways.back.mean)).astype(np.int64) + 1
    total = int(steps.sum())
    budget.allow(len(steps) * 16 + ways.back.bound * 16 + _TABLE_CELLS * 8)

    def work(part: tuple[int, int]) -> IntArray:
        some = ways.part(*part)
        loop = machine_loop(machine_code.weighed_ways, total, some.near.targets, some.back.targets)
        if loop is None:
            return _way_sums(some, allowed)
        sums = np.empty(len(some.heads), np.int64)
        near, back = some.near, some.back
        weights = _NO_NUMBERS if some.weights is None else np.ascontiguousarray(some.weights)
        scratch = np.zeros(some.back.bound, np.int64)
        loop(
            near.starts, near.ends, near.targets, np.ascontiguousarray(some.heads),
            back.starts, back.ends, back.targets, np.ascontiguousarray(some.offsets), np.ascontiguousarray(some.others),
            weights, _mask(allowed), scratch, sums,
        )  # fmt: skip
        return sums

    return _joined(list(worked(budget, parts_of(steps, PART_STEPS), work, total)))


def _way_sums(ways: Ways, allowed: BoolArray | None) -> IntArray:
    """With numpy: a row of a table per head, so that the others of some heads are weighed at once."""
    bound = ways.back.bound
    slots = max(1, _TABLE_CELLS // bound)
    table = np.zeros(slots * bound, np.int64)
    sums = np.zeros(len(ways.heads), np.int64)
    for begin in range(0, len(ways.heads), slots):
        some = ways.part(begin, min(begin + slots, len(ways.heads)))
        keys = np.repeat(np.arange(len(some.heads)) * bound, np.diff(some.offsets)) + some.others
        np.add.at(table, keys, np.int64(1) if some.weights is None else some.weights)
        sizes = some.near.sizes(some.heads)
        nodes = some.near.targets[ranges(some.near.starts[some.heads], sizes)]
        slot = np.repeat(np.arange(len(some.heads)), sizes)
        if allowed is not None:
            kept = allowed[nodes]
            nodes, slot = nodes[kept], slot[kept]
        counts = some.back.sizes(nodes)
        for first, last in parts_of(counts + 1, MORSEL):
            ends = some.back.targets[ranges(some.back.starts[nodes[first:last]], counts[first:last])]
            at = np.repeat(slot[first:last], counts[first:last])
            if len(at):
                starts = run_starts(at)
                sums[begin + at[starts]] += np.add.reduceat(table[at * bound + ends], starts)
        table[keys] = 0
    return sums
