"""The rows of one type at one snapshot, read by row id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Batch, pa
from omnigraph.core.arrow import Rows as ArrowRows
from omnigraph.core.budget import Budget
from omnigraph.core.cache import LruCache, SingleFlight
from omnigraph.engine.rows import IntArray, plain_numbers
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.filters import ROW_ID
from omnigraph.storage.datasets.reads import read_rows, take_rows
from omnigraph.storage.datasets.tables import Table

_Read = TypeVar("_Read")

_KEPT_NUMBERINGS = 64
_KEPT_USES = 1024
_KEPT_LOOKUPS = 8
#: A column is read whole, and kept, when at least one row in so many is asked for: a scan of a column costs as much
#: as some hundred point reads per hundred thousand rows.
WHOLE_COLUMN_RATIO = 400
#: Tables up to this size have columns kept that are asked for more often than this, a few rows at a time.
_POINT_ROWS = 1_000_000
_USES_BEFORE_KEPT = 16
#: Tables up to this size have a dictionary of their keys, once those were asked for often enough.
_LOOKUP_ROWS = 250_000
#: A column of at most so many bytes is shown by a view where one value is asked for.
_VIEWED_BYTES = 1 << 24
#: Rows that are read by their ids at once: at the beginning, at most, and how many bytes they should have.
_FIRST_TAKEN = 1 << 10
_TAKEN_ROWS = 1 << 15
_TAKEN_BYTES = 1 << 25
#: Estimated bytes of a value whose type has no fixed width.
_LOOSE_WIDTH = 48


@frozen(slots=False)
class Numbering:
    """Row ids of a table as dense numbers: a row's number is its place among the sorted row ids."""

    count: int
    #: The sorted row ids; None when they are 0, 1, 2, …
    sorted_ids: IntArray | None

    def numbers(self, row_ids: IntArray) -> IntArray:
        """The numbers of rows that exist."""
        if self.sorted_ids is None:
            return row_ids
        return np.searchsorted(self.sorted_ids, row_ids)

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids of numbers."""
        return numbers if self.sorted_ids is None else self.sorted_ids[numbers]

    @cached_property
    def all_row_ids(self) -> IntArray:
        """Every row id, ascending."""
        return np.arange(self.count, dtype=np.int64) if self.sorted_ids is None else self.sorted_ids


class EntityCaches:
    """What is kept of the rows of all types between queries. Thread-safe."""

    def __init__(self, column_bytes: int) -> None:
        self.column_bytes = column_bytes
        self.numberings: LruCache[Numbering] = LruCache(_KEPT_NUMBERINGS)
        self.columns: LruCache[Array] = LruCache(column_bytes, lambda array: int(array.nbytes))
        #: How often a column was read in small parts, per state of its table.
        self.column_uses: LruCache[int] = LruCache(_KEPT_USES)
        self.key_lookups: LruCache[dict[object, int]] = LruCache(_KEPT_LOOKUPS)
        #: Scans of whole columns that run now.
        self.scans: SingleFlight[dict[str, Array]] = SingleFlight()


class Entities:
    """One type at one snapshot. Cheap to make; what it reads is kept in the caches by content."""

    def __init__(self, table: Table, caches: EntityCaches, budget: Budget) -> None:
        self.table = table
        #: The budget of the query that reads.
        self.budget = budget
        self.row_count = table.row_count
        self._caches = caches
        #: Asking storage for a type takes longer than reading a few values.
        self._widths: dict[str, int] = {}

    @property
    def fingerprint(self) -> str:
        """The identity of the rows."""
        return self.table.fingerprint

    def numbering(self) -> Numbering:
        """The dense numbers of the rows; one scan of the row ids unless it is known."""
        return self._caches.numberings.get_or_build(
            self.fingerprint, lambda: self._patiently(lambda: _numbered(read_rows(self.table))[0]), self.budget.check
        )

    def column(self, row_ids: IntArray, name: str) -> Array:
        """One column of rows, in their order."""
        return self.columns(row_ids, (name,))[name]

    def columns(self, row_ids: IntArray, names: Iterable[str]) -> dict[str, Array]:
        """Columns of rows, in their order; a row may repeat."""
        found: dict[str, Array] = {}
        missing: list[str] = []
        for name in dict.fromkeys(names):
            kept = self._kept(name)
            if kept is None:
                missing.append(name)
            else:
                found[name] = kept
        is_part = len(row_ids) * WHOLE_COLUMN_RATIO < self.row_count
        cold = [name for name in missing if not (self._is_used_enough(name) if is_part else self.is_keepable(name))]
        found |= self._read_whole([name for name in missing if name not in cold])
        found = self._taken(row_ids, found)
        if cold:
            found |= self._take(row_ids, cold)
        return found

    def whole_column(self, name: str) -> Array:
        """A column of all rows, in the order of their numbers."""
        known = self._kept(name)
        return known if known is not None else self._read_whole([name])[name]

    def is_worth_keeping(self, name: str) -> bool:
        """Whether a column is in memory, or is asked for so often in small parts that it should be.

        Counts one use. Only tables up to a size are kept for that reason: below it a column in memory is faster than
        any index.
        """
        return self._kept(name) is not None or self._is_used_enough(name)

    def _is_used_enough(self, name: str) -> bool:
        if self.row_count > _POINT_ROWS or not self.is_keepable(name):
            return False
        key = (self.fingerprint, name)
        uses = (self._caches.column_uses.get(key) or 0) + 1
        self._caches.column_uses.put(key, uses)
        return uses > _USES_BEFORE_KEPT

    def row_of_key(self, name: str, value: object) -> IntArray:
        """The row whose key property has this value, if there is one; reads the whole column once.

        Only for a column without repeated values, of a table that `has_key_lookup`.
        """

        def index() -> dict[object, int]:
            keys = plain_numbers(self.whole_column(name)).to_pylist()
            return {key: number for number, key in enumerate(keys)}

        lookup = self._caches.key_lookups.get_or_build((self.fingerprint, name), index, self.budget.check)
        number = lookup.get(value)
        return self.numbering().row_ids(np.array([] if number is None else [number], np.int64))

    def has_key_lookup(self, name: str) -> bool:
        """Whether keys are found in memory: the table is small and its key was asked for often."""
        if self._caches.key_lookups.get((self.fingerprint, name)) is not None:
            return True
        return self.row_count <= _LOOKUP_ROWS and self.is_worth_keeping(name)

    # ---- inside

    def _kept(self, name: str) -> Array | None:
        return self._caches.columns.get((self.fingerprint, name))

    def is_keepable(self, name: str) -> bool:
        """Whether a whole column is small enough to be kept in memory."""
        return self._width(name) * self.row_count * 4 <= self._caches.column_bytes

    def _width(self, name: str) -> int:
        """About how many bytes one value of a column takes."""
        known = self._widths.get(name)
        if known is None:
            known = self._widths[name] = _width_of(self.table.schema.field(name).type)
        return known

    def _taken(self, row_ids: IntArray, whole: Mapping[str, Array]) -> dict[str, Array]:
        """The values of some rows out of whole columns."""
        if not whole:
            return {}
        numbers = self.numbering().numbers(row_ids)
        if len(numbers) == 1:
            number = int(numbers[0])
            return {name: _one_value(column, number) for name, column in whole.items()}
        self._allow(len(row_ids), whole)
        places = pa.array(numbers)
        taken = {}
        for name, column in whole.items():
            self.budget.check()
            taken[name] = column.take(places)
        return taken

    def _read_whole(self, names: Sequence[str]) -> dict[str, Array]:
        if not names:
            return {}
        return self._caches.scans.make(
            (self.fingerprint, *names), lambda: self._patiently(lambda: self._scan_whole(names)), self.budget.check
        )

    def _patiently(self, read: Callable[[], _Read]) -> _Read:
        """A read of all rows."""
        return self.budget.patiently(read, self.row_count)

    def _allow(self, count: int, names: Iterable[str]) -> None:
        """Ask before values of so many rows are gathered."""
        if count < _FIRST_TAKEN:
            return
        self.budget.allow(count * sum(map(self._width, names)))

    def _scan_whole(self, names: Sequence[str]) -> dict[str, Array]:
        rows = read_rows(self.table, names)
        numbering, order = _numbered(rows)
        self._caches.numberings.put(self.fingerprint, numbering)
        found: dict[str, Array] = {}
        for name in names:
            column = rows[name].combine_chunks()
            if order is not None:
                column = column.take(pa.array(order))
            place = (self.table.path, self.table.branch, name)
            self._caches.columns.put((self.fingerprint, name), column, state_of=place)
            found[name] = column
        return found

    def _take(self, row_ids: IntArray, names: Sequence[str]) -> dict[str, Array]:
        if not len(row_ids):
            schema = self.table.schema
            return {name: pa.array([], schema.field(name).type) for name in names}
        self._allow(len(row_ids), names)
        distinct, places = np.unique(row_ids, return_inverse=True)
        parts: list[ArrowRows] = []
        done, size, step = 0, 0, _FIRST_TAKEN
        while done < len(distinct):
            self.budget.check()
            wanted = distinct[done : done + step]
            parts.append(take_rows(self.table, wanted.tolist(), names))
            done, size = done + len(wanted), size + parts[-1].nbytes
            # Values may be of any size: what has come says how much the others will take, and how many to read next.
            width = max(size // done, 1)
            self.budget.allow(width * (len(distinct) - done + len(row_ids)))
            step = max(1, min(_TAKEN_ROWS, _TAKEN_BYTES // width))
        rows, index = pa.concat_tables(parts), pa.array(places)
        return {name: rows[name].combine_chunks().take(index) for name in names}


def _one_value(column: Array, number: int) -> Array:
    """The value of one row: a view of a small column, since a copy takes ten times as long.

    A view keeps the whole column in memory as long as its result lives, so that of a large one is a copy.
    """
    if column.get_total_buffer_size() <= _VIEWED_BYTES:
        return column.slice(number, 1)
    return column.take(pa.array([number]))


def _width_of(type_: pyarrow.DataType) -> int:
    if isinstance(type_, pyarrow.FixedSizeListType):
        return 4 * int(type_.list_size)
    if pa.types.is_primitive(type_):
        return max(1, int(type_.bit_width) // 8)
    return _LOOSE_WIDTH


def _numbered(rows: ArrowRows) -> tuple[Numbering, IntArray | None]:
    """The numbering of a whole scan, and the order that sorts the scan by row id if it is not sorted."""
    row_ids = row_id_array(rows)
    order: IntArray | None = None
    if len(row_ids) > 1 and not (row_ids[1:] > row_ids[:-1]).all():
        order = np.argsort(row_ids)
        row_ids = row_ids[order]
    is_dense = len(row_ids) == 0 or int(row_ids[-1]) == len(row_ids) - 1
    return Numbering(len(row_ids), None if is_dense else row_ids), order


def row_id_array(rows: ArrowRows | Batch) -> IntArray:
    """The row ids of a read as signed numbers."""
    column = rows.column(rows.schema.get_field_index(ROW_ID))
    return np.asarray(column.to_numpy()).astype(np.int64, copy=False)
