"""What one hop binds, made when it is asked for: values are gathered by position, not looked up by row id.

A hop makes pairs of a row and a place among the targets of an adjacency. An order or a sum over a property of the
edge needs the values of that property in the order of these places, and nothing else of most pairs. Columns in this
order are kept in memory beside the columns of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from omnigraph.core.arrow import Array, pa
from omnigraph.engine.rows import Deferred, IntArray, Numbers
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import WHOLE_COLUMN_RATIO, Entities
from omnigraph.engine.tables.runs import ranges
from omnigraph.frozen import frozen

#: A column in the order of an adjacency takes at most this part of the memory for columns, to be kept.
_KEPT_SHARE = 4
#: Fewer places than one in so many are found by search instead of being written out.
_SEARCHED_RATIO = 8


class EdgeColumns:
    """The stored columns of the edges of one type, in the order in which an adjacency lists the edges.

    `edges` are the row ids in that order; `direction` names it. Where that order is not kept, nothing in it is.
    """

    def __init__(self, context: Context, entities: Entities, edges: Numbers, direction: str, *, is_kept: bool) -> None:
        self.edges = edges
        self._cache = context.caches.edge_columns
        self._most = context.settings.column_cache_bytes // _KEPT_SHARE
        self._budget = context.budget
        self._entities = entities
        self._direction = direction
        self._is_kept = is_kept
        #: Columns that are too large to be kept beyond this query, which accounts for them.
        self._held: dict[str, Array] = {}

    def row_ids(self, spots: slice | IntArray) -> IntArray:
        """The row ids of the edges at these places."""
        return self.edges[spots].astype(np.int64)

    def columns(self, spots: slice | IntArray, count: int, names: Sequence[str]) -> dict[str, Array]:
        """Values of the edges at `count` places."""
        found: dict[str, Array] = {}
        is_worth_it = self._is_kept and count * WHOLE_COLUMN_RATIO >= len(self.edges)
        missing: list[str] = []
        for name in names:
            whole = self._whole(name) if is_worth_it else self._known(name)
            if whole is None:
                missing.append(name)
            elif isinstance(spots, slice):
                found[name] = whole.slice(spots.start, spots.stop - spots.start)
            else:
                self._budget.allow(whole.nbytes // max(len(whole), 1) * count)
                found[name] = whole.take(pa.array(spots))
        if missing:
            found |= self._entities.columns(self.row_ids(spots), missing)
        return found

    def _key(self, name: str) -> tuple[str, str, str]:
        return self._entities.fingerprint, self._direction, name

    def _known(self, name: str) -> Array | None:
        held = self._held.get(name)
        if held is not None:
            return held
        edges, column = self._cache.get(self._key(name)) or (None, None)
        return column if edges is self.edges else None

    def _whole(self, name: str) -> Array:
        known = self._known(name)
        if known is not None:
            return known
        table = self._entities.table
        made = self._read(name)
        if made.nbytes <= self._most:
            place = (table.path, table.branch, self._direction, name)
            self._cache.put(self._key(name), (self.edges, made), state_of=place)
        else:
            self._budget.hold(made.nbytes)
            self._held[name] = made
        return made

    def _read(self, name: str) -> Array:
        column = self._entities.whole_column(name)
        self._budget.allow(column.nbytes + 8 * len(self.edges))
        return self._budget.patiently(lambda: self._in_order(column), len(self.edges))

    def _in_order(self, column: Array) -> Array:
        row_ids = self._entities.numbering().all_row_ids
        places: Numbers = self.edges
        if len(row_ids) and int(row_ids[-1]) != len(row_ids) - 1:
            places = np.searchsorted(row_ids, self.edges)
        if len(places) == len(column) and bool((places[1:] == places[:-1] + 1).all()):
            # Edges that were loaded in the order of their ends lie in it already.
            return column
        return column.take(pa.array(places))


class Pairs:
    """The pairs of one batch: which row each belongs to, and which place among the targets it has.

    `first` is the number of the row that `counts` begins with.
    """

    def __init__(self, counts: IntArray, spots: slice | IntArray, first: int = 0) -> None:
        self.counts = counts
        self.spots = spots
        self.first = first
        self.last = first + len(counts)
        self.count = spots.stop - spots.start if isinstance(spots, slice) else len(spots)

    @cached_property
    def rows(self) -> IntArray:
        """The row of every pair, counted from the first one."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def _ends(self) -> IntArray:
        return np.cumsum(self.counts)

    def rows_at(self, index: IntArray) -> IntArray:
        """The rows of some pairs, counted from the first one."""
        if len(index) * _SEARCHED_RATIO >= self.count or "rows" in vars(self):
            return self.rows[index]
        return np.searchsorted(self._ends, index, side="right")

    def spots_at(self, index: IntArray) -> IntArray:
        """The places of some pairs among the targets."""
        return index + self.spots.start if isinstance(self.spots, slice) else self.spots[index]

    def part(self, start: int, stop: int) -> Pairs:
        """The pairs from `start` to before `stop`."""
        begin = int(np.searchsorted(self._ends, start, side="right"))
        end = int(np.searchsorted(self._ends, stop, side="left")) + 1
        edges = np.clip(np.append(start, self._ends[begin:end]), start, stop)
        spots = self.spots
        some = slice(spots.start + start, spots.start + stop) if isinstance(spots, slice) else spots[start:stop]
        return Pairs(np.diff(edges), some, self.first + begin)

    def keep(self, index: IntArray) -> Pairs:
        """Some pairs, in the same order."""
        return Pairs(np.bincount(self.rows[index], minlength=len(self.counts)), self.spots_at(index), self.first)


def pairs_of(starts: IntArray, places: IntArray, counts: IntArray) -> Pairs:
    """Every pair of a row and one of its neighbours; those of row `i` begin at `starts[places[i]]`."""
    firsts = starts[places]
    if len(firsts) and bool((firsts[1:] == firsts[:-1] + counts[:-1]).all()):
        return Pairs(counts, slice(int(firsts[0]), int(firsts[0]) + int(counts.sum())))
    return Pairs(counts, ranges(firsts, counts))


def looked_up(numbers: Numbers, table: IntArray | None) -> IntArray:
    """Numbers, or what a table has for them."""
    if table is None:
        return numbers.astype(np.int64, copy=False)
    # Indices of 32 bits are taken as they are, which numpy would widen first.
    found: IntArray = pa.array(table).take(pa.array(numbers)).to_numpy(zero_copy_only=False)
    return found


@frozen
class FromRow:
    """A variable that was bound before the hop: every pair has that of its row."""

    context: Context
    ids: IntArray | Deferred
    pairs: Pairs

    def row_ids(self) -> IntArray:
        """One row id per pair."""
        return np.repeat(self._here, self.pairs.counts)

    def take(self, index: IntArray) -> IntArray:
        """Those of some pairs."""
        return self._here[self.pairs.rows_at(index)]

    def slice(self, start: int, stop: int) -> Deferred:
        """Those of a run of pairs."""
        return FromRow(self.context, self.ids, self.pairs.part(start, stop))

    def numbers(self, number: Callable[[IntArray], IntArray], table: IntArray | None) -> IntArray:
        """Those of the rows, once per pair."""
        return np.repeat(*self.runs(number, table))

    def runs(self, number: Callable[[IntArray], IntArray], table: IntArray | None) -> tuple[IntArray, IntArray]:
        """The same as one number per row, and how many pairs follow each other with it."""
        if isinstance(self.ids, np.ndarray):
            here = looked_up(number(self._here), table)
        else:
            here = self._deferred.numbers(number, table)
        return here, self.pairs.counts

    def columns(self, variable: str, names: Sequence[str]) -> dict[str, Array]:
        """Values are read once per row, however many pairs it has."""
        pairs = self.pairs
        if pairs.last - pairs.first > pairs.count:
            return self.context.columns(variable, self.row_ids(), names)
        if isinstance(self.ids, np.ndarray):
            found = self.context.columns(variable, self._here, names)
        else:
            found = self._deferred.columns(variable, names)
        size = sum(column.nbytes for column in found.values())
        self.context.budget.allow(size // max(pairs.last - pairs.first, 1) * pairs.count)
        places = pa.array(pairs.rows)
        return {name: column.take(places) for name, column in found.items()}

    @property
    def _deferred(self) -> Deferred:
        assert not isinstance(self.ids, np.ndarray), "row ids that are there are not deferred"
        return self.ids.slice(self.pairs.first, self.pairs.last)

    @property
    def _here(self) -> IntArray:
        ids = self.ids if isinstance(self.ids, np.ndarray) else self.ids.row_ids()
        return ids[self.pairs.first : self.pairs.last]


@frozen
class FromTarget:
    """The variable that a hop binds at the other end."""

    entities: Entities
    targets: Numbers
    pairs: Pairs

    def row_ids(self) -> IntArray:
        """One row id per pair."""
        return self._ids(self.targets[self.pairs.spots])

    def take(self, index: IntArray) -> IntArray:
        """Those of some pairs."""
        return self._ids(self.targets[self.pairs.spots_at(index)])

    def slice(self, start: int, stop: int) -> Deferred:
        """Those of a run of pairs."""
        return FromTarget(self.entities, self.targets, self.pairs.part(start, stop))

    def numbers(self, _number: Callable[[IntArray], IntArray], table: IntArray | None) -> IntArray:
        """An adjacency has them."""
        return looked_up(self.targets[self.pairs.spots], table)

    def columns(self, _variable: str, names: Sequence[str]) -> dict[str, Array]:
        """Values by row id."""
        return self.entities.columns(self.row_ids(), names)

    def _ids(self, numbers: Numbers) -> IntArray:
        return self.entities.numbering().row_ids(numbers.astype(np.int64))


@frozen
class FromEdge:
    """The variable that a hop binds to its edge."""

    edges: EdgeColumns
    pairs: Pairs

    def row_ids(self) -> IntArray:
        """One row id per pair."""
        return self.edges.row_ids(self.pairs.spots)

    def take(self, index: IntArray) -> IntArray:
        """Those of some pairs."""
        return self.edges.row_ids(self.pairs.spots_at(index))

    def slice(self, start: int, stop: int) -> Deferred:
        """Those of a run of pairs."""
        return FromEdge(self.edges, self.pairs.part(start, stop))

    def numbers(self, number: Callable[[IntArray], IntArray], table: IntArray | None) -> IntArray:
        """By row id."""
        return looked_up(number(self.row_ids()), table)

    def columns(self, _variable: str, names: Sequence[str]) -> dict[str, Array]:
        """Values by their place in the adjacency."""
        return self.edges.columns(self.pairs.spots, self.pairs.count, names)
