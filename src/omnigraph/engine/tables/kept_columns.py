"""Columns that are kept in memory: all values of one state of a table, and what later states changed of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, pa
from omnigraph.core.cache import LruCache
from omnigraph.engine.rows import BoolArray, IntArray
from omnigraph.engine.tables.numberings import Numbering
from omnigraph.frozen import frozen

#: A column of at most so many bytes is shown by a view where one value is asked for.
_VIEWED_BYTES = 1 << 24
#: So many changed values, or a tenth of all, before a column is written out again.
PATCH_ROWS = 1024


#: Under which the values of a whole column are kept: the state that they were read at, and their name.
Base: TypeAlias = tuple[Numbering, str]


@frozen
class Patch:
    """The values of some numbers of a state, above the values of an earlier state."""

    #: The values of the earlier state.
    base: Base
    #: The numbers, ascending; all that the earlier state does not have are among them.
    numbers: IntArray
    values: Array

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        return int(self.numbers.nbytes + self.values.nbytes)


@frozen
class KeptColumn:
    """One column of one state, by number. What stands at a dead number is anything of the right type."""

    values: Array
    patch: Patch | None = None

    def take(self, numbers: IntArray) -> Array:
        """The values of numbers, in their order."""
        patch = self.patch
        if patch is None or not len(patch.numbers):
            return self.values.take(pa.array(numbers))
        places, is_patched = _places(patch.numbers, numbers)
        if not is_patched.any():
            return self.values.take(pa.array(numbers))
        plain = self.values.take(pa.array(numbers[~is_patched]))
        changed = patch.values.take(pa.array(places[is_patched]))
        index = np.empty(len(numbers), np.int64)
        index[~is_patched] = np.arange(len(plain))
        index[is_patched] = np.arange(len(plain), len(numbers))
        taken: Array = pa.concat_arrays([plain, changed]).take(pa.array(index))
        return taken

    def value(self, number: int) -> Array:
        """The value of one number as an array.

        A view of a small column, since a copy takes ten times as long. A view keeps the whole column in memory as
        long as its result lives, so that of a large one is a copy.
        """
        values, place, patch = self.values, number, self.patch
        if patch is not None and len(patch.numbers):
            found = int(np.searchsorted(patch.numbers, number))
            if found < len(patch.numbers) and int(patch.numbers[found]) == number:
                values, place = patch.values, found
        if values.get_total_buffer_size() <= _VIEWED_BYTES:
            return values.slice(place, 1)
        return values.take(pa.array([place]))

    def by_number(self, count: int) -> Array:
        """The values of all numbers."""
        patch = self.patch
        if patch is None or not len(patch.numbers):
            return self.values
        added = int(np.searchsorted(patch.numbers, len(self.values)))
        values = self.values
        if added:
            index = np.arange(len(values))
            index[patch.numbers[:added]] = np.arange(len(values), len(values) + added)
            values = pa.concat_arrays([values, patch.values.slice(0, added)]).take(pa.array(index))
        whole: Array = pa.concat_arrays([values, patch.values.slice(added)])
        assert len(whole) == count, "numbers that an earlier state does not have are in the patch"
        return whole

    def of_rows(self, numbering: Numbering) -> Array:
        """The values of all rows, in the order of their row ids."""
        values = self.by_number(numbering.count)
        return values.take(pa.array(numbering.live_numbers)) if len(numbering.dead) else values

    def changed(self, base: Base, numbers: IntArray, values: Array) -> Patch:
        """What a later state has, in which some numbers, ascending, have other values or are new."""
        before = self.patch
        if before is None:
            return Patch(base, numbers, values)
        if not len(numbers):
            return before
        _, is_changed = _places(numbers, before.numbers)
        every = np.concatenate([before.numbers[~is_changed], numbers])
        order = np.argsort(every, kind="stable")
        kept = before.values.take(pa.array(np.flatnonzero(~is_changed)))
        return Patch(before.base, every[order], pa.concat_arrays([kept, values]).take(pa.array(order)))


def _places(sorted_numbers: IntArray, numbers: IntArray) -> tuple[IntArray, BoolArray]:
    """Where each number would be among others, and whether it is there."""
    if not len(sorted_numbers):
        return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)
    places = np.searchsorted(sorted_numbers, numbers)
    places[places == len(sorted_numbers)] = 0
    return places, sorted_numbers[places] == numbers


@frozen
class Change:
    """What one state of a table changed of a column of another one."""

    #: The numbers that have other values or are new, ascending, and these values.
    numbers: IntArray
    values: Array
    #: The table and its branch.
    place: Hashable


class ColumnCache:
    """The columns of the states of all tables. Thread-safe.

    A column is kept by the identity of the numbering that its values follow. A state that was made from an earlier
    one keeps its changes only; without the column of the earlier one, which goes first where memory is short, they
    are nothing.
    """

    def __init__(self, column_bytes: int) -> None:
        self._values: LruCache[Array] = LruCache(column_bytes, lambda array: int(array.nbytes))
        self._patches: LruCache[Patch] = LruCache(column_bytes // 4, lambda patch: patch.nbytes)
        #: Columns of changed states, written out without the dead numbers.
        self._rows: LruCache[Array] = LruCache(column_bytes // 4, lambda array: int(array.nbytes))

    @property
    def puts(self) -> int:
        """How often a whole column was put."""
        return self._values.puts

    @property
    def used(self) -> int:
        """Bytes of the whole columns."""
        return self._values.used

    def get(self, state: Numbering, name: str) -> KeptColumn | None:
        """A column of a state, if it is kept."""
        key = (state, name)
        values = self._values.get(key)
        if values is not None:
            return KeptColumn(values)
        patch = self._patches.get(key)
        if patch is None:
            return None
        values = self._values.get(patch.base)
        return None if values is None else KeptColumn(values, patch)

    def put(self, state: Numbering, name: str, values: Array, place: Hashable) -> None:
        """Keep the values of all numbers of a state; `place` tells the table and its branch."""
        self._values.put((state, name), values, state_of=(place, name))

    def put_changed(self, old: Numbering, new: Numbering, name: str, change: Change) -> None:
        """Keep a column of a state that was made from another one, whose column is kept."""
        before = self.get(old, name)
        if before is None:
            return
        patch = before.changed((old, name), change.numbers, change.values)
        if len(patch.numbers) > max(PATCH_ROWS, new.count // 10):
            self.put(new, name, KeptColumn(before.values, patch).by_number(new.count), change.place)
        else:
            self._patches.put((new, name), patch, state_of=patch.base)

    def rows(self, state: Numbering, name: str, column: KeptColumn) -> Array:
        """The values of all rows of a state, in the order of their row ids."""
        if column.patch is None and not len(state.dead):
            return column.values
        return self._rows.get_or_build((state, name), lambda: column.of_rows(state))

    def patch(self, state: Numbering, name: str) -> Patch | None:
        """What a state changed of a column of an earlier one; None when it has a column of its own."""
        return None if self._values.get((state, name)) is not None else self._patches.get((state, name))

    def clear(self) -> None:
        """Forget everything."""
        for cache in (self._values, self._patches, self._rows):
            cache.clear()
