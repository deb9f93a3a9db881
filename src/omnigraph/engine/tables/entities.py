"""The rows of one type at one snapshot, read by row id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Batch, pa, pc
from omnigraph.core.arrow import Rows as ArrowRows
from omnigraph.core.budget import Budget
from omnigraph.core.cache import LruCache, SingleFlight
from omnigraph.engine.distinct import distinct_numbers
from omnigraph.engine.rows import IntArray, plain_numbers
from omnigraph.engine.tables.adjacency import ends_among
from omnigraph.engine.tables.kept_columns import Change, ColumnCache, KeptColumn, Patch
from omnigraph.engine.tables.numberings import Numbering, is_among, number_rows
from omnigraph.errors import DamageError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.filters import ROW_ID, OneOf
from omnigraph.storage.datasets.reads import read_rows, take_rows
from omnigraph.storage.datasets.steps import read_come, step_between
from omnigraph.storage.datasets.tables import Table

_Read = TypeVar("_Read")

_KEPT_NUMBERINGS = 64
_KEPT_USES = 1024
_KEPT_LOOKUPS = 8
#: States of one table that a new state may be made from.
_KEPT_STATES = 8
_TRIED_STATES = 3
#: A state is made from another one if so many rows differ, or a tenth of them.
STEP_ROWS = 1024
#: Ids in the text of one filter.
_PROBED_IDS = 1000
#: A column is read whole, and kept, when at least one row in so many is asked for: a scan of a column costs as much
#: as some hundred point reads per hundred thousand rows.
WHOLE_COLUMN_RATIO = 400
#: Tables up to this size have columns kept that are asked for more often than this, a few rows at a time.
_POINT_ROWS = 1_000_000
_USES_BEFORE_KEPT = 16
#: Tables up to this size have a dictionary of their keys, once those were asked for often enough.
_LOOKUP_ROWS = 250_000
#: Rows whose values are gathered without asking for the memory.
FEW_ROWS = 1 << 10
#: Rows that are read by their ids at once: at the beginning, at most, and how many bytes they should have.
_FIRST_TAKEN = 1 << 10
_TAKEN_ROWS = 1 << 15
_TAKEN_BYTES = 1 << 25
#: Estimated bytes of a value whose type has no fixed width.
_LOOSE_WIDTH = 48

_log = logging.getLogger(__name__)


@frozen
class _State:
    """A state of a table that is numbered."""

    table: Table
    numbering: Numbering


@frozen
class _Scanned:
    """Whole columns, by number."""

    numbering: Numbering
    columns: dict[str, KeptColumn]


def step_limit(row_count: int) -> int:
    """How many rows of a table may differ where one state is made from another."""
    return max(STEP_ROWS, row_count // 10)


class EntityCaches:
    """What is kept of the rows of all types between queries. Thread-safe."""

    def __init__(self, column_bytes: int) -> None:
        self.column_bytes = column_bytes
        self.numberings: LruCache[Numbering] = LruCache(_KEPT_NUMBERINGS)
        #: Numberings that are made now.
        self.numbering: SingleFlight[Numbering | None] = SingleFlight()
        self.columns = ColumnCache(column_bytes)
        #: How often a column was read in small parts, per table.
        self.column_uses: LruCache[int] = LruCache(_KEPT_USES)
        #: Numbers by key, of the whole columns that are kept, and of what later states changed.
        self.key_lookups: LruCache[dict[object, int]] = LruCache(_KEPT_LOOKUPS)
        self.changed_keys: LruCache[dict[object, int]] = LruCache(_KEPT_NUMBERINGS)
        #: Scans of whole columns that run now.
        self.scans: SingleFlight[_Scanned] = SingleFlight()
        #: The states of each table that are numbered, the latest first.
        self.states: LruCache[tuple[_State, ...]] = LruCache(_KEPT_NUMBERINGS)
        #: States that none of those leads to.
        self.unrelated: LruCache[bool] = LruCache(_KEPT_USES)

    def known_number(self, numbering: Numbering, name: str, value: object) -> tuple[bool, int | None]:
        """Whether the keys of a state are in memory, and the number of the row with this key, if there is one."""
        patch = self.columns.patch(numbering, name)
        lookup = self.key_lookups.get((numbering, name) if patch is None else patch.base)
        if lookup is None:
            return False, None
        if patch is not None and len(patch.numbers):
            changed = self.changed_keys.get((numbering, name))
            if changed is None:
                return False, None
            if (number := changed.get(value)) is not None:
                return True, number
        number = lookup.get(value)
        if number is None or (patch is None and not len(numbering.dead)):
            return True, number
        return True, number if _is_as_in_base(number, patch, numbering) else None

    def is_read(self, path: str) -> bool:
        """Whether the latest numbered state of a table was read since it was made."""
        states = self.states.get(path)
        return states is not None and states[0].numbering.is_read


class Entities:
    """One type at one snapshot. Cheap to make; what it reads is kept in the caches by content.

    The first read of a state that follows from one in the caches, or comes before it, reads only what differs.
    """

    def __init__(self, table: Table, caches: EntityCaches, budget: Budget) -> None:
        self.table = table
        #: The budget of the query that reads.
        self.budget = budget
        self.row_count = table.row_count
        self._caches = caches
        #: The same one during a query, whatever the caches forget meanwhile.
        self._numbering: Numbering | None = None
        #: Asking storage for a type takes longer than reading a few values.
        self._widths: dict[str, int] = {}

    @property
    def fingerprint(self) -> str:
        """The identity of the rows."""
        return self.table.fingerprint

    # ---- numbers of rows

    def numbering(self) -> Numbering:
        """The dense numbers of the rows; one scan of the row ids unless they follow from what is known."""
        known = self._find(lambda: number_rows(row_id_array(self._patiently(lambda: read_rows(self.table)))))
        assert known is not None, "a scan numbers the rows"
        known.is_read = True
        return known

    def known_numbering(self) -> Numbering | None:
        """The numbers of the rows, where that takes no scan."""
        return self._find(None)

    def agrees(self, numbering: Numbering) -> bool:
        """Whether the numbers of this query are those of a numbering of its rows. Where it has none, they become so."""
        known = self._numbering or self._caches.numberings.get(self.fingerprint)
        if known is None:
            known = self._caches.numbering.make(self.fingerprint, lambda: self._keep(numbering), self.budget.check)
        self._numbering = known
        return known is not None and known.is_same(numbering)

    def numbers_of_ids(self, ids: Array, edges: str) -> IntArray:
        """The numbers of the rows with these ids, which the edges of a table name; an id may repeat.

        Raises:
            DamageError: one of them does not exist.
        """
        wanted = pc.unique(ids) if len(ids) <= _PROBED_IDS else None
        if wanted is None:
            known = self.whole_column("id")
            places = self.budget.patiently(lambda: ends_among(ids, known, edges), len(known))
            numbering = self.numbering()
            return numbering.live_numbers[places] if len(numbering.dead) else places
        found_ids, numbers = self._probe(wanted)
        return numbers[ends_among(ids, found_ids, edges)]

    def _probe(self, wanted: Array) -> tuple[Array, IntArray]:
        """Those of a few ids that exist, and their numbers."""
        numbering, kept = self.numbering(), self._kept("id")
        if kept is None:
            rows = read_rows(self.table, ("id",), OneOf("id", [str(item) for item in wanted.to_pylist()]))
            return rows["id"].combine_chunks(), numbering.numbers(row_id_array(rows))
        numbers = np.flatnonzero(np.asarray(pc.is_in(kept.values, wanted).to_numpy(zero_copy_only=False)))
        if (patch := kept.patch) is not None:
            is_there = np.asarray(pc.is_in(patch.values, wanted).to_numpy(zero_copy_only=False), np.bool_)
            numbers = np.concatenate([numbers[~is_among(numbers, patch.numbers)], patch.numbers[is_there]])
        numbers = numbers[~is_among(numbers, numbering.dead)]
        return kept.take(numbers), numbers

    # ---- values

    def column(self, row_ids: IntArray, name: str) -> Array:
        """One column of rows, in their order."""
        return self.columns(row_ids, (name,))[name]

    def columns(self, row_ids: IntArray, names: Iterable[str]) -> dict[str, Array]:
        """Columns of rows, in their order; a row may repeat."""
        whole: dict[str, KeptColumn] = {}
        missing: list[str] = []
        for name in dict.fromkeys(names):
            kept = self._kept(name)
            if kept is None:
                missing.append(name)
            else:
                whole[name] = kept
        is_part = len(row_ids) * WHOLE_COLUMN_RATIO < self.row_count
        cold = [name for name in missing if not (self._is_used_enough(name) if is_part else self.is_keepable(name))]
        whole |= self._read_whole([name for name in missing if name not in cold])
        found = self._taken(row_ids, whole)
        if cold:
            found |= self._take(row_ids, cold)
        return found

    def whole_column(self, name: str) -> Array:
        """A column of all rows, in the order of their row ids."""
        column = self._whole(name)
        return self._caches.columns.rows(self.numbering(), name, column)

    def is_worth_keeping(self, name: str) -> bool:
        """Whether a column is in memory, or is asked for so often in small parts that it should be.

        Counts one use. Only tables up to a size are kept for that reason: below it a column in memory is faster than
        any index.
        """
        return self._kept(name) is not None or self._is_used_enough(name)

    def _is_used_enough(self, name: str) -> bool:
        if self.row_count > _POINT_ROWS or not self.is_keepable(name):
            return False
        # Of all states together: beside a writer no state lives long enough to be asked often.
        key = (self.table.path, name)
        uses = (self._caches.column_uses.get(key) or 0) + 1
        self._caches.column_uses.put(key, uses)
        return uses > _USES_BEFORE_KEPT

    def row_of_key(self, name: str, value: object) -> IntArray:
        """The row whose key property has this value, if there is one; reads the whole column once.

        Only for a column without repeated values, of a table that `has_key_lookup`.
        """
        lookup, patch = self._lookup(name)
        numbering, caches = self.numbering(), self._caches
        number = None
        if patch is not None and len(patch.numbers):
            changed = caches.changed_keys.get_or_build(
                (numbering, name), lambda: _numbers_by_key(patch.values, patch.numbers, numbering)
            )
            number = changed.get(value)
        if number is None:
            number = lookup.get(value)
            if number is not None and not _is_as_in_base(number, patch, numbering):
                number = None
        return numbering.row_ids(np.array([] if number is None else [number], np.int64))

    def _lookup(self, name: str) -> tuple[dict[object, int], Patch | None]:
        """Numbers by key as an earlier state had them, or this one, and what changed since."""
        numbering, caches = self.known_numbering(), self._caches
        if numbering is not None:
            patch = caches.columns.patch(numbering, name)
            known = caches.key_lookups.get((numbering, name) if patch is None else patch.base)
            if known is not None:
                return known, patch
        column = self._whole(name)
        base = (self.numbering(), name) if column.patch is None else column.patch.base
        every = np.arange(len(column.values))
        made = caches.key_lookups.get_or_build(
            base, lambda: _numbers_by_key(column.values, every, base[0]), self.budget.check
        )
        return made, column.patch

    def has_key_lookup(self, name: str) -> bool:
        """Whether keys are found in memory: the table is small and its key was asked for often."""
        numbering = self.known_numbering()
        if numbering is not None:
            patch = self._caches.columns.patch(numbering, name)
            if self._caches.key_lookups.get((numbering, name) if patch is None else patch.base) is not None:
                return True
        return self.row_count <= _LOOKUP_ROWS and self.is_worth_keeping(name)

    # ---- inside

    def _find(self, scan: Callable[[], Numbering] | None) -> Numbering | None:
        """The numbering of the state: kept, made from that of another state, or from a scan."""
        known = self._numbering
        if known is None:
            caches, key = self._caches, self.fingerprint
            known = caches.numberings.get(key)
            while known is None and (scan is not None or self._may_be_related()):
                known = caches.numbering.make(key, lambda: self._make(scan), self.budget.check)
                # A thread that began without a scan may have found nothing.
                if scan is None:
                    break
            self._numbering = known
        return known

    def _may_be_related(self) -> bool:
        caches = self._caches
        return caches.states.get(self.table.path) is not None and caches.unrelated.get(self.fingerprint) is None

    def _make(self, scan: Callable[[], Numbering] | None) -> Numbering | None:
        caches = self._caches
        made = caches.numberings.get(self.fingerprint)
        if made is not None:
            return made
        if self._may_be_related():
            made = self._patiently(self._made_from_another)
        if made is None and scan is not None:
            made = scan()
        return None if made is None else self._keep(made)

    def _keep(self, made: Numbering) -> Numbering:
        caches = self._caches
        caches.numberings.put(self.fingerprint, made)
        others = caches.states.get(self.table.path) or ()
        states = (_State(self.table, made), *(item for item in others if item.numbering is not made))
        caches.states.put(self.table.path, states[:_KEPT_STATES])
        return made

    def _made_from_another(self) -> Numbering | None:
        table, caches = self.table, self._caches

        def distance(state: _State) -> tuple[bool, int]:
            return state.table.branch != table.branch, abs(state.table.version - table.version)

        for state in sorted(caches.states.get(table.path) or (), key=distance)[:_TRIED_STATES]:
            try:
                made = self._made_from(state)
            except (StorageError, DamageError) as error:
                # A cleanup may have taken what only the other state reads. This state itself is read without it.
                _log.debug("%s is read without an earlier state of it: %s", table.path, error)
                continue
            if made is not None:
                return made
        caches.unrelated.put(self.fingerprint, True)
        return None

    def _made_from(self, state: _State) -> Numbering | None:
        table, columns, old = self.table, self._caches.columns, state.numbering
        step = step_between(state.table, table, step_limit(self.row_count))
        if step is None:
            return None
        blobs = table.blob_columns
        kept = [name for name in table.schema.names if name not in blobs and columns.get(old, name) is not None]
        come, rows = read_come(table, step, list(dict.fromkeys(("id", *kept))))
        made = old.after(step.gone, come)
        if made is None or made.numbering.live_count != self.row_count:
            return None
        if not self._is_same_identity(
            state, made.changed_ids, rows["id"].combine_chunks().filter(pa.array(is_among(come, step.gone)))
        ):
            return None
        place = (table.path, table.branch)
        for name in kept:
            change = Change(made.come, rows[name].combine_chunks(), place)
            columns.put_changed(old, made.numbering, name, change)
        return made.numbering

    def _is_same_identity(self, state: _State, row_ids: IntArray, ids: Array) -> bool:
        """Whether rows had these ids in another state too: branches use the same row ids for different rows."""
        if not len(row_ids):
            return True
        kept = self._caches.columns.get(state.numbering, "id")
        if kept is None:
            before = take_rows(state.table, row_ids.tolist(), ["id"])["id"].combine_chunks()
        else:
            before = kept.take(state.numbering.numbers(row_ids))
        return bool(before.equals(ids))

    def column_in_memory(self, name: str) -> Array | None:
        """A column, if it is in memory, without the last changes: for statistics."""
        numbering = self.known_numbering()
        kept = None if numbering is None else self._caches.columns.get(numbering, name)
        return None if kept is None else kept.values

    def _kept(self, name: str) -> KeptColumn | None:
        numbering = self.known_numbering()
        if numbering is None:
            return None
        numbering.is_read = True
        return self._caches.columns.get(numbering, name)

    def _whole(self, name: str) -> KeptColumn:
        known = self._kept(name)
        return known if known is not None else self._read_whole([name])[name]

    def is_keepable(self, name: str) -> bool:
        """Whether a whole column is small enough to be kept in memory."""
        return self._width(name) * self.row_count * 4 <= self._caches.column_bytes

    def _width(self, name: str) -> int:
        """About how many bytes one value of a column takes."""
        known = self._widths.get(name)
        if known is None:
            known = self._widths[name] = _width_of(self.table.schema.field(name).type)
        return known

    def _taken(self, row_ids: IntArray, whole: Mapping[str, KeptColumn]) -> dict[str, Array]:
        """The values of some rows out of whole columns."""
        if not whole:
            return {}
        numbers = self.numbering().numbers(row_ids)
        if len(numbers) == 1:
            number = int(numbers[0])
            return {name: column.value(number) for name, column in whole.items()}
        self._allow(len(row_ids), whole)
        taken = {}
        for name, column in whole.items():
            self.budget.check()
            taken[name] = column.take(numbers)
        return taken

    def _read_whole(self, names: Sequence[str]) -> dict[str, KeptColumn]:
        if not names:
            return {}
        # Columns follow a numbering: a scan that another thread made is right for this query if their numbering is.
        state: object = self.known_numbering() or self.fingerprint
        found = self._caches.scans.make(
            (state, *names), lambda: self._patiently(lambda: self._scan_whole(names)), self.budget.check
        )
        if self._numbering is None:
            self._numbering = found.numbering
        return found.columns if found.numbering is self._numbering else self._scan_whole(names).columns

    def _patiently(self, read: Callable[[], _Read]) -> _Read:
        """A read of all rows."""
        return self.budget.patiently(read, self.row_count)

    def _allow(self, count: int, names: Iterable[str]) -> None:
        """Ask before values of so many rows are gathered."""
        if count < FEW_ROWS:
            return
        self.budget.allow(count * sum(map(self._width, names)))

    def _scan_whole(self, names: Sequence[str]) -> _Scanned:
        scanned: list[ArrowRows] = []

        def number() -> Numbering:
            scanned.append(read_rows(self.table, names))
            return number_rows(row_id_array(scanned[0]))

        numbering = self._find(number)
        assert numbering is not None, "a scan numbers the rows"
        rows = scanned[0] if scanned else read_rows(self.table, names)
        index = _index_by_number(numbering, row_id_array(rows))
        place = (self.table.path, self.table.branch)
        found: dict[str, KeptColumn] = {}
        for name in names:
            column = rows[name].combine_chunks()
            if index is not None:
                column = column.take(index)
            self._caches.columns.put(numbering, name, column, place)
            found[name] = KeptColumn(column)
        return _Scanned(numbering, found)

    def _take(self, row_ids: IntArray, names: Sequence[str]) -> dict[str, Array]:
        if not len(row_ids):
            schema = self.table.schema
            return {name: pa.array([], schema.field(name).type) for name in names}
        self._allow(len(row_ids), names)
        distinct, places = distinct_numbers(row_ids)
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


def _index_by_number(numbering: Numbering, row_ids: IntArray) -> Array | None:
    """Where in a scan the row of each number is, null for dead numbers; None when the scan is in that order."""
    numbers = numbering.numbers(row_ids)
    if len(numbers) == numbering.count and bool((numbers == np.arange(len(numbers))).all()):
        return None
    index = np.full(numbering.count, -1, np.int64)
    index[numbers] = np.arange(len(numbers))
    places: Array = pa.array(index, mask=index < 0)
    return places


def _numbers_by_key(keys: Array, numbers: IntArray, numbering: Numbering) -> dict[object, int]:
    """The numbers of the rows by their keys."""
    values = plain_numbers(keys).to_pylist()
    pairs = zip(values, numbers.tolist(), strict=True)
    if not len(numbering.dead):
        return dict(pairs)
    dead = frozenset(numbering.dead.tolist())
    return {key: number for key, number in pairs if number not in dead}


def _is_as_in_base(number: int, patch: Patch | None, numbering: Numbering) -> bool:
    """Whether the row of a number is alive, and no later state changed its value."""
    one = np.array([number])
    if patch is not None and is_among(one, patch.numbers)[0]:
        return False
    return not is_among(one, numbering.dead)[0]


def _width_of(type_: pyarrow.DataType) -> int:
    if isinstance(type_, pyarrow.FixedSizeListType):
        return 4 * int(type_.list_size)
    if pa.types.is_primitive(type_):
        return max(1, int(type_.bit_width) // 8)
    return _LOOSE_WIDTH


def row_id_array(rows: ArrowRows | Batch) -> IntArray:
    """The row ids of a read as signed numbers."""
    column = rows.column(rows.schema.get_field_index(ROW_ID))
    return np.asarray(column.to_numpy()).astype(np.int64, copy=False)
