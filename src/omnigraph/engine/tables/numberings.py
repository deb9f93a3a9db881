"""Row ids of a table as dense numbers, which states of the table that follow from each other share."""

from __future__ import annotations

from functools import cached_property
from threading import Lock

import numpy as np

from omnigraph.engine.rows import BoolArray, IntArray
from omnigraph.frozen import frozen

NO_NUMBERS: IntArray = np.zeros(0, np.int64)
#: A numbering may have so many dead numbers, or a tenth of all.
DEAD_NUMBERS = 1024
#: Room for new rows behind the row ids that are there.
_SPARE_ROWS = 1 << 12


class Layout:
    """The numbers that some states of a table share. It only grows: a number stands for one entity for ever.

    A state that adds rows after another state did begins a layout of its own, which shares the numbers up to there.
    """

    def __init__(self, count: int, row_ids: IntArray | None, origin: tuple[Layout, int] | None = None) -> None:
        self._lock = Lock()
        self._count = count
        #: The row ids and room behind them; None while they are 0, 1, 2, …
        self._row_ids = row_ids
        self._origin = origin

    def extended(self, count: int, sorted_ids: IntArray | None, new_ids: IntArray) -> tuple[Layout, IntArray | None]:
        """The layout of a state of `count` numbers with more row ids, all of them larger, and the row ids then."""
        if not len(new_ids):
            return self, sorted_ids
        with self._lock:
            if self._count != count:
                return Layout(count, sorted_ids, (self, count)).extended(count, sorted_ids, new_ids)
            total = count + len(new_ids)
            # All are larger than those that are there: none is left out if the last one is not.
            if sorted_ids is None and int(new_ids[-1]) == total - 1:
                self._count = total
                return self, None
            if self._row_ids is None:
                self._row_ids = np.arange(count, dtype=np.int64)
            if len(self._row_ids) < total:
                grown = np.empty(total + max(_SPARE_ROWS, total // 8), np.int64)
                grown[:count] = self._row_ids[:count]
                self._row_ids = grown
            # Behind what any other state sees of it.
            self._row_ids[count:total] = new_ids
            self._count = total
            return self, self._row_ids[:total]

    def shared_with(self, other: Layout, count: int) -> int:
        """How many of the first `count` numbers of this layout are those of another one."""
        layout: Layout = self
        while layout is not other:
            if layout._origin is None:
                return 0
            layout, shared = layout._origin
            count = min(count, shared)
        return count


class Numbering:
    """Row ids of a table as dense numbers, ascending. Immutable; one of them stands for one state in memory.

    Where no row was deleted, a row's number is its place among the sorted row ids. In a state that was made from an
    earlier one, rows that were deleted keep their numbers, which are dead then.
    """

    def __init__(
        self, count: int, sorted_ids: IntArray | None, dead: IntArray = NO_NUMBERS, layout: Layout | None = None
    ) -> None:
        #: How many numbers there are, dead ones included.
        self.count = count
        #: The sorted row ids; None when they are 0, 1, 2, …
        self.sorted_ids = sorted_ids
        #: The dead numbers, ascending.
        self.dead = dead
        #: Whether a reader asked for it: a commit prepares the next state only then.
        self.is_read = False
        #: What the numbers mean.
        self.layout = Layout(count, sorted_ids) if layout is None else layout

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The numbers of rows that exist."""
        if self.sorted_ids is None:
            return row_ids
        return np.searchsorted(self.sorted_ids, row_ids)

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids of numbers."""
        return numbers if self.sorted_ids is None else self.sorted_ids[numbers]

    @property
    def live_count(self) -> int:
        """How many rows there are."""
        return self.count - len(self.dead)

    @cached_property
    def live_numbers(self) -> IntArray:
        """The numbers of all rows, ascending."""
        return np.flatnonzero(self.is_alive)

    @cached_property
    def is_alive(self) -> BoolArray:
        """Per number, whether there is such a row."""
        mask = np.ones(self.count, np.bool_)
        mask[self.dead] = False
        return mask

    @cached_property
    def all_row_ids(self) -> IntArray:
        """Every row id, ascending."""
        if len(self.dead):
            return self.row_ids(self.live_numbers)
        return np.arange(self.count, dtype=np.int64) if self.sorted_ids is None else self.sorted_ids

    def extends(self, other: Numbering) -> bool:
        """Whether every number of another state stands for the same entity here, if it is alive in both."""
        return self.layout.shared_with(other.layout, self.count) >= other.count

    def is_same(self, other: Numbering) -> bool:
        """Whether all numbers stand for the same rows."""
        if self is other:
            return True
        if self.count != other.count or not np.array_equal(self.dead, other.dead):
            return False
        if self.sorted_ids is None or other.sorted_ids is None:
            return self.sorted_ids is other.sorted_ids
        return np.array_equal(self.sorted_ids, other.sorted_ids)

    def after(self, gone: IntArray, come: IntArray) -> Renumbered | None:
        """The numbering of another state of the table, from the row ids that are gone and came; both ascend.

        A row that changed is in both. None when these numbers do not fit the other state, or too many would be dead.
        """
        changed_ids = gone[is_among(gone, come)]
        new_ids = come[~is_among(come, gone)]
        lost = self._alive_numbers(gone[~is_among(gone, come)])
        changed = self._alive_numbers(changed_ids)
        if lost is None or changed is None:
            return None
        if len(new_ids) and self.count and int(new_ids[0]) <= int(self.row_ids(np.array([self.count - 1]))[0]):
            return None
        dead = np.sort(np.concatenate([self.dead, lost]))
        count = self.count + len(new_ids)
        if len(dead) > max(DEAD_NUMBERS, count // 10):
            return None
        layout, sorted_ids = self.layout.extended(self.count, self.sorted_ids, new_ids)
        numbering = Numbering(count, sorted_ids, dead, layout)
        return Renumbered(numbering, changed_ids, changed, np.concatenate([changed, np.arange(self.count, count)]))

    def _alive_numbers(self, row_ids: IntArray) -> IntArray | None:
        """The numbers of rows; None if one of them is not there."""
        if not len(row_ids):
            return NO_NUMBERS
        numbers = self.numbers(row_ids)
        if int(numbers.max()) >= self.count or not np.array_equal(self.row_ids(numbers), row_ids):
            return None
        return None if is_among(numbers, self.dead).any() else np.asarray(numbers, np.int64)


@frozen
class Renumbered:
    """A numbering that was made from that of another state."""

    numbering: Numbering
    #: Rows of both states that may hold other values.
    changed_ids: IntArray
    changed: IntArray
    #: The numbers of all rows that may hold other values or are new, in the order of their row ids.
    come: IntArray


def is_among(values: IntArray, sorted_values: IntArray) -> BoolArray:
    """Per value, whether it is one of others, which ascend."""
    if not len(sorted_values) or not len(values):
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(sorted_values, values)
    places[places == len(sorted_values)] = 0
    found: BoolArray = sorted_values[places] == values
    return found


def number_rows(row_ids: IntArray) -> Numbering:
    """The numbering of all rows of a table, whose ids come in any order."""
    if len(row_ids) > 1 and not (row_ids[1:] > row_ids[:-1]).all():
        row_ids = np.sort(row_ids)
    is_dense = len(row_ids) == 0 or int(row_ids[-1]) == len(row_ids) - 1
    return Numbering(len(row_ids), None if is_dense else row_ids)
