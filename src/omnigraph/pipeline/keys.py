"""Keys of whole columns: spelling, prefilter, new ids, and the few ways in which keys of tables are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Column, Rows, pa, pc, stored_values
from omnigraph.core.budget import work_steps
from omnigraph.core.ids import derive_id, new_ulid
from omnigraph.core.types import BaseType, EnumType, Scalar, ScalarType
from omnigraph.core.values import canonical_spelling
from omnigraph.errors import MAX_EXAMPLES, InternalError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import Example
from omnigraph.pipeline.row_sets import RowSet
from omnigraph.storage.datasets.filters import ROW_ADDRESS, OneOf, to_sql
from omnigraph.storage.datasets.fragments import fragment_sizes
from omnigraph.storage.datasets.indexes import has_index
from omnigraph.storage.datasets.partitions import TableAddress, open_address, scan_fragments, table_address
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.columns import PROBE_CHUNK
from omnigraph.writes.rules import Found

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Ids of whole columns
#
# A generated id is a ULID: 10 characters of time, 6 random ones per load, 10 that count. The counter is the number of
# the part of the input and the number of the row in it, so ids follow the order of the input and never meet.


#: Rows of one type in one part of the input, and parts, as bits of the counter.
_ROW_BITS = 30
_PART_BITS = 20
MAX_PARTS = 1 << _PART_BITS
_COUNTER_CHARACTERS = (_ROW_BITS + _PART_BITS) // 5
_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)
_CONTROL = r"[\x00-\x1f]"


def new_id_prefix() -> str:
    """The part of generated ids that belongs to one load."""
    return new_ulid()[:16]


def generated_ids(prefix: str, part: int, first_row: int, count: int) -> Array:
    """Ids of `count` rows, beginning with a row of a part of the input."""
    if part >= MAX_PARTS or first_row + count > 1 << _ROW_BITS:
        raise InternalError(f"part {part} of the input has too many rows for generated ids")
    numbers = np.arange(first_row, first_row + count, dtype=np.uint64)
    numbers += np.uint64(part << _ROW_BITS)
    width = len(prefix) + _COUNTER_CHARACTERS
    letters = np.empty((count, width), dtype=np.uint8)
    letters[:, : len(prefix)] = np.frombuffer(prefix.encode(), dtype=np.uint8)
    for place in range(_COUNTER_CHARACTERS):
        digits = (numbers >> np.uint64(5 * place)) & np.uint64(31)
        letters[:, width - 1 - place] = _ALPHABET[digits.astype(np.intp)]
    offsets = np.arange(0, width * (count + 1), width, dtype=np.int32)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(letters))
    found: Array = pa.StringArray.from_buffers(count, *buffers)
    return found


def spelled(base: BaseType, column: Array) -> Array:
    """The canonical spellings of a stored column; null stays null."""
    match base:
        case EnumType() | ScalarType(Scalar.STRING):
            return column
        case ScalarType(Scalar.DATE):
            return column.cast(pa.int32()).cast(pa.utf8())
        case ScalarType(Scalar.DATETIME):
            return column.view(pa.int64()).cast(pa.utf8())
        case ScalarType(Scalar.BOOL | Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64):
            return column.cast(pa.utf8())
    values = stored_values(pa.chunked_array([column]))
    texts = [None if value is None else canonical_spelling(base, value) for value in values]
    found: Array = pa.array(texts, pa.utf8())
    return found


def derived_ids(spellings: Sequence[Array]) -> Array:
    """Ids of keyed nodes and edges from the spellings of their members in id order; null where a member is null.

    The same texts as `derive_id` makes, column by column.
    """
    if len(spellings) == 1:
        return spellings[0]
    if any(pc.any(pc.match_substring_regex(column, _CONTROL)).as_py() for column in spellings):
        rows = zip(*(column.to_pylist() for column in spellings), strict=True)
        ids: Array = pa.array([None if None in row else derive_id(row) for row in rows], pa.utf8())
    else:
        pieces: list[Array | str] = ['["', _escaped(spellings[0])]
        for column in spellings[1:]:
            pieces += ['","', _escaped(column)]
        ids = pc.binary_join_element_wise(*pieces, '"]', "")
    return ids


def _escaped(texts: Array) -> Array:
    """Texts without control characters as they stand inside a JSON string: an end may be the id of a composite key."""
    for letter in ("\\", '"'):
        if pc.any(pc.match_substring(texts, letter)).as_py():
            texts = pc.replace_substring(texts, letter, f"\\{letter}")
    return texts


# ---- A prefilter for texts
#
# Texts are told apart by their last eight bytes, hashed into a bitmap. What passed still has to be looked up.


_BITS = 22
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Beyond so many texts most places of the bitmap are taken, and nothing is gained.
_MAX_TEXTS = 1 << (_BITS - 2)
_WIDTH = 8


class KeyPrefilter:
    """A filter of texts that may be in a set."""

    def __init__(self, texts: Array) -> None:
        self._seen: NDArray[np.bool_] | None = None
        if 0 < len(texts) <= _MAX_TEXTS:
            self._seen = np.zeros(1 << _BITS, dtype=bool)
            self._seen[_places(texts)] = True

    def passes(self, texts: Column) -> NDArray[np.bool_] | None:
        """A mask of the texts that may be in the set; None when it cannot tell."""
        if self._seen is None or not len(texts):
            return None
        return self._seen[_places(texts)]


def text_bytes(texts: Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where the texts of a column without nulls begin and end, and their bytes."""
    _, offset_buffer, data_buffer = texts.buffers()
    ends = np.frombuffer(memoryview(offset_buffer or bytes(4)), dtype=np.int32)
    offsets = ends[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return offsets, np.frombuffer(memoryview(data_buffer or b""), dtype=np.uint8)[: offsets[-1]]


def _places(texts: Column) -> NDArray[np.int64]:
    """The place of each text in the bitmap. No text is null."""
    offsets, data = text_bytes(texts.combine_chunks() if isinstance(texts, pyarrow.ChunkedArray) else texts)
    with np.errstate(over="ignore"):
        places = (_tails(data, offsets) * _MULTIPLIER) >> np.uint64(64 - _BITS)
    return places.astype(np.int64)


def _tails(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The last eight bytes of each text as a number, fewer for a shorter one."""
    lengths = np.diff(offsets)
    width = int(lengths[0])
    if width >= _WIDTH and (lengths == width).all():
        begin = int(offsets[0]) + width - _WIDTH
        return np.ndarray((len(lengths),), np.dtype("<u8"), buffer=data, offset=begin, strides=(width,)).copy()
    # Eight bytes in front, so that even the first text has eight bytes before its end.
    padded = np.concatenate([np.zeros(_WIDTH, dtype=np.uint8), data])
    words = np.ndarray((len(data) + 1,), np.dtype("<u8"), buffer=padded, strides=(1,))
    tails = words[offsets[1:]]
    short = np.flatnonzero(lengths < _WIDTH)
    # The bytes before a short text belong to its neighbour.
    shift = (8 * (_WIDTH - lengths[short])).astype(np.uint64)
    tails[short] = np.where(shift == 64, np.uint64(0), tails[short] >> np.minimum(shift, np.uint64(63)))
    return tails


# ---- Key columns of tables
#
# Texts are equal exactly when the typed values are. Rows with a null member have no key.


_TEXT = ScalarType(Scalar.STRING)
#: Rows of a load up to which one process answers, and rows of tables that it is compared with.
SMALL_ROWS = 2_000_000
SMALL_OTHERS = 16_000_000
#: Rows that one task looks at.
_SCAN_ROWS = 2_000_000
#: Fewer rows are not worth a task of their own.
_LEAST_TASK_ROWS = 65_536
#: Large batches: looking keys up costs a table of the other side per batch.
_BATCH_ROWS = 524_288
#: Keys are looked up one by one when they are so few, and so many times fewer than the rows. Without an index a
#: look-up is a scan, so they have to fit into one.
_MAX_PROBED = 500_000
_PROBE_SHARE = 50


@frozen(kw_only=True)
class KeyScan:
    """Some fragments of a table, and the members of the key that is read from them."""

    address: TableAddress
    fragments: tuple[int, ...]
    rows: int
    members: tuple[tuple[str, BaseType], ...]
    #: Further columns that go along.
    extra: tuple[str, ...] = ()
    #: Of these rows only some: how many are passed over, and how many are read then.
    window: tuple[int, int] | None = None
    #: Rows that are passed over as if they were not there, and the only rows that are read.
    without: RowSet | None = None
    only: RowSet | None = None


def key_scans(
    table: Table,
    fragments: Sequence[int] | None,
    members: Sequence[tuple[str, BaseType]],
    *,
    extra: tuple[str, ...] = (),
) -> list[KeyScan]:
    """Scans of the fragments of a table, or of all; none for a table without rows."""
    address = table_address(table)
    scans: list[KeyScan] = []
    chosen: list[int] = []
    rows = 0
    sizes = fragment_sizes(table)
    wanted = list(sizes) if fragments is None else list(fragments)

    def close() -> None:
        scan = KeyScan(address=address, fragments=tuple(chosen), rows=rows, members=tuple(members), extra=extra)
        scans.append(scan)

    for number in wanted:
        if chosen and rows + sizes[number] > _SCAN_ROWS:
            close()
            chosen, rows = [], 0
        chosen.append(number)
        rows += sizes[number]
    if chosen:
        close()
    return scans


def cut_scans(scans: Sequence[KeyScan], tasks: int) -> list[KeyScan]:
    """The same rows in scans of about equal size, so many that all tasks of a session have something to do."""
    share = max(-(-total_rows(scans) // max(1, tasks)), _LEAST_TASK_ROWS)
    cut: list[KeyScan] = []
    for scan in scans:
        pieces = -(-scan.rows // share)
        if pieces <= 1 or scan.window is not None:
            cut.append(scan)
            continue
        size = -(-scan.rows // pieces)
        for begin in range(0, scan.rows, size):
            rows = min(size, scan.rows - begin)
            cut.append(replace(scan, rows=rows, window=(begin, rows)))
    return cut


def text_key(column: str) -> list[tuple[str, BaseType]]:
    """The members of a key that is one text column."""
    return [(column, _TEXT)]


def scan_keys(scan: KeyScan, where: str | None = None) -> Iterator[Rows]:
    """Tables `key, address` and the extra columns; rows without a key are left out."""
    names = [name for name, _ in scan.members]
    columns = list(dict.fromkeys([*names, *scan.extra, ROW_ADDRESS]))
    batches = scan_fragments(scan.address, scan.fragments, columns, where, batch_rows=_BATCH_ROWS, window=scan.window)
    for batch in work_steps(batches):
        spellings = [spelled(base, batch.column(name)) for name, base in scan.members]
        key = spellings[0] if len(spellings) == 1 else _joined(spellings)
        arrays = [key, pc.cast(batch.column(ROW_ADDRESS), pa.int64())]
        arrays += [_signed(batch.column(name)) for name in scan.extra]
        table = pa.table(arrays, names=["key", "address", *scan.extra])
        yield _chosen(scan, table.filter(table["key"].is_valid()) if key.null_count else table)


def _chosen(scan: KeyScan, table: Rows) -> Rows:
    """The rows of a scan without those that do not count."""
    for rows, is_wanted in ((scan.without, False), (scan.only, True)):
        if rows is not None:
            has = rows.has(np.asarray(table["address"]))
            table = table.filter(pa.array(has if is_wanted else ~has))
    return table


def _signed(column: Array) -> Array:
    """Spark has no unsigned types, and row ids never need the last bit."""
    return column.cast(pa.int64()) if pa.types.is_uint64(column.type) else column


def find_keys(scans: Sequence[KeyScan], keys: Array, firsts: Array) -> Iterator[Rows]:
    """As `scan_keys`, only rows with one of the keys.

    A few keys are looked up through the index of the first member, whose values are `firsts`; otherwise all rows
    stream by.
    """
    if not scans:
        return
    assert len({scan.address for scan in scans}) == 1, "an index belongs to one table"
    if can_probe(scans, len(firsts)):
        name = scans[0].members[0][0]
        texts = list(map(str, firsts.to_pylist()))
        # One scan of all fragments: an index is asked once, not once per task.
        fragments = tuple(number for scan in scans for number in scan.fragments)
        whole = replace(scans[0], fragments=fragments, rows=total_rows(scans))
        for begin in range(0, len(texts), PROBE_CHUNK):
            where = to_sql(OneOf(name, texts[begin : begin + PROBE_CHUNK]))
            yield from (_only(table, keys) for table in scan_keys(whole, where))
        return
    yield from _sifted((table for scan in scans for table in scan_keys(scan)), keys)


def can_probe(scans: Sequence[KeyScan], keys: int) -> bool:
    """Whether so many keys are found in a table by looking each one up, without reading all rows."""
    name, base = scans[0].members[0]
    is_text = base == _TEXT or isinstance(base, EnumType)
    if not is_text or keys > _MAX_PROBED or keys * _PROBE_SHARE >= total_rows(scans):
        return False
    return keys <= PROBE_CHUNK or has_index(open_address(scans[0].address), name)


def is_few(brought: int, others: Sequence[KeyScan], small_rows: int = SMALL_ROWS) -> bool:
    """Whether one process compares so many rows with others: it holds the former, the latter stream by or are probed.

    >>> is_few(3_000_000, [])
    False
    """
    if brought > small_rows:
        return False
    streamed = SMALL_OTHERS if small_rows else 0
    return not others or total_rows(others) <= streamed or can_probe(others, brought)


def _sifted(tables: Iterator[Rows], keys: Array) -> Iterator[Rows]:
    """Rows with one of the keys. Those that may have one are gathered: every look-up begins by hashing all keys."""
    prefilter = KeyPrefilter(keys)
    waiting: list[Rows] = []
    rows = 0
    for table in tables:
        mask = prefilter.passes(table["key"])
        waiting.append(table if mask is None else table.filter(pa.array(mask)))
        rows += waiting[-1].num_rows
        if rows >= _BATCH_ROWS:
            yield _only(pa.concat_tables(waiting), keys)
            waiting, rows = [], 0
    if waiting:
        yield _only(pa.concat_tables(waiting), keys)


def _only(table: Rows, keys: Array) -> Rows:
    return table.filter(pc.is_in(table["key"], keys))


def first_members(scans: Sequence[KeyScan]) -> Array:
    """The distinct values of the first member of a key."""
    narrow = [replace(scan, members=scan.members[:1], extra=()) for scan in scans]
    chunks = [chunk for scan in narrow for t in scan_keys(scan) for chunk in t["key"].chunks]
    found: Array = pa.concat_arrays(chunks).unique() if chunks else pa.array([], pa.utf8())
    return found


def _joined(spellings: list[Array]) -> Array:
    """Several texts as one, with their lengths, so that different texts never become equal."""
    pieces: list[Array] = []
    for text in spellings:
        pieces += [pc.binary_length(text).cast(pa.utf8()), text]
    found: Array = pc.binary_join_element_wise(*pieces, "\x1f")
    return found


def joined_text(key: str) -> str:
    """The members of a key of several, as people read them."""
    members, rest = [], key.encode()
    while rest:
        size, _, rest = rest.partition(b"\x1f")
        members.append(rest[: int(size)].decode())
        rest = rest[int(size) + 1 :]
    return f"({', '.join(members)})"


def total_rows(scans: Sequence[KeyScan]) -> int:
    """The number of rows the scans look at."""
    return sum(scan.rows for scan in scans)


# ---- Questions about keys
#
# The side that a load brings is held in memory; the other one streams by. `spark.joins` answers the same questions for
# any size.


_EMPTY = pa.table({"key": pa.array([], pa.utf8()), "address": pa.array([], pa.int64())})


class Joins:
    """Key lookups of a load, answered in memory. Scans of the first argument are what the load brings."""

    def duplicated(self, rows: Sequence[KeyScan], owner: str | None = None) -> Found:
        """Keys that several rows have: each row beyond the first of its key counts.

        With the column of an owner: keys that several owners have. Each owner beyond the first counts, and the rows
        are the first of each.
        """
        found = _repeated(_keys(rows))
        if owner is None or not found.total:
            return found
        # Owners are read only when there is something to tell.
        return _repeated(_first_of_owners(_keys(owned(rows, owner), owner), owner))

    def shared(self, rows: Sequence[KeyScan], others: Sequence[KeyScan], owner: str | None = None) -> Found:
        """Rows whose key some other row has; the addresses are of the row and of the other one.

        With the column of an owner: rows whose key an other row of another owner has. All of them count, the first of
        each owner are examples.
        """
        mine = _keys(rows)
        wanted = mine["key"].combine_chunks()
        firsts = first_members(rows)
        pieces = [t.select(["key", "address"]) for t in find_keys(others, wanted, firsts)]
        if not pieces:
            return Found()
        theirs = pa.concat_tables(pieces)
        other_of = dict(zip(theirs["key"].to_pylist(), theirs["address"].to_pylist(), strict=True))
        bad = mine.filter(pc.is_in(mine["key"], pa.array(list(other_of), pa.utf8())))
        if owner is not None and bad.num_rows:
            found = list(find_keys(owned(others, owner), wanted, firsts))
            return _of_others(_keys(owned(rows, owner), owner), pa.concat_tables(found), owner)
        shown = bad.sort_by([("key", "ascending"), ("address", "ascending")]).slice(0, MAX_EXAMPLES).to_pylist()
        return Found(bad.num_rows, [Example(row["key"], (row["address"], other_of[row["key"]])) for row in shown])

    def missing(self, references: Sequence[KeyScan], ids: Sequence[KeyScan]) -> Found:
        """Rows whose key is none of the ids. The smaller side is held, the other one streams by."""
        if total_rows(ids) < total_rows(references):
            return _missing_among(references, _keys(ids)["key"].combine_chunks())
        mine = _keys(references)
        left = wanted = pa.array(mine["key"].unique(), pa.utf8())
        for table in find_keys(ids, wanted, wanted):
            left = left.filter(pc.invert(pc.is_in(left, table["key"].combine_chunks())))
            if not len(left):
                return Found()
        return _first_rows(mine.filter(pc.is_in(mine["key"], left)))

    def named(self, rows: Sequence[KeyScan], keys: Sequence[str]) -> Found:
        """Rows whose key is one of the given ones. Here the keys are what is brought; the rows are a table's."""
        wanted = pa.array(list(keys), pa.utf8())
        pieces = [t.select(["key", "address"]) for t in find_keys(rows, wanted, wanted)]
        return _first_rows(pa.concat_tables([_EMPTY, *pieces]))

    def outside(
        self,
        counted: Sequence[KeyScan],
        touched: Sequence[KeyScan],
        low: int,
        high: int | None,
        more: Sequence[str] = (),
    ) -> Found:
        """Touched keys whose number of counted rows is not between the bounds; keys without any row are exempt."""
        keys = pa.concat_arrays([_keys(touched)["key"].combine_chunks(), pa.array(list(more), pa.utf8())]).unique()
        pieces = [t.select(["key", "address"]) for t in find_keys(counted, keys, keys)]
        rows = pa.concat_tables([_EMPTY, *pieces])
        counts = rows.group_by("key").aggregate([("address", "count"), ("address", "max")])
        bad_mask = pc.less(counts["address_count"], low)
        if high is not None:
            bad_mask = pc.or_(bad_mask, pc.greater(counts["address_count"], high))
        bad = counts.filter(bad_mask).sort_by("key")
        examples = [
            Example(row["key"], (row["address_max"],), row["address_count"])
            for row in bad.slice(0, MAX_EXAMPLES).to_pylist()
        ]
        return Found(bad.num_rows, examples)


def row_examples(rows_of: Mapping[str, Sequence[int]], other_of: Mapping[str, int] | None = None) -> list[Example]:
    """Rows that have one of some keys, as examples: the first rows, or by key where each has a counterpart."""
    rows = [(address, key) for key, some in rows_of.items() for address in some]
    if other_of is None:
        return [Example(key, (address,)) for address, key in sorted(rows)[:MAX_EXAMPLES]]
    rows.sort(key=lambda row: (row[1], row[0]))
    return [Example(key, (address, other_of[key])) for address, key in rows[:MAX_EXAMPLES]]


def owned(scans: Sequence[KeyScan], owner: str) -> list[KeyScan]:
    """The same rows with the column of their owner."""
    return [replace(scan, extra=(owner,)) for scan in scans]


def _repeated(table: Rows) -> Found:
    """Keys that several rows have; each row beyond the first counts."""
    grouped = table.group_by("key").aggregate([("address", "count")])
    several = grouped.filter(pc.greater(grouped["address_count"], 1))
    total = pc.sum(pc.subtract(several["address_count"], 1)).as_py() or 0
    examples = []
    for row in several.sort_by("key").slice(0, MAX_EXAMPLES).to_pylist():
        first = table.filter(pc.equal(table["key"], row["key"])).sort_by("address").slice(0, MAX_EXAMPLES)
        addresses = tuple(one["address"] for one in first.to_pylist())
        examples.append(Example(row["key"], addresses, row["address_count"]))
    return Found(total, examples)


def _first_of_owners(rows: Rows, owner: str) -> Rows:
    """The first row of each owner of a key."""
    found = rows.group_by(["key", owner]).aggregate([("address", "min")])
    return found.select(["key", "address_min", owner]).rename_columns(["key", "address", owner])


def _of_others(mine: Rows, theirs: Rows, owner: str) -> Found:
    """Rows whose key belongs to another owner among the other rows."""
    first = _first_of_owners(theirs, owner)
    joined = mine.join(first.rename_columns(["key", "other", "other_owner"]), "key", join_type="inner")
    bad = joined.filter(pc.not_equal(joined[owner], joined["other_owner"]))
    total = pc.count_distinct(bad["address"]).as_py()
    shown = bad.group_by(["key", owner]).aggregate([("address", "min"), ("other", "min")])
    shown = shown.sort_by([("key", "ascending"), ("address_min", "ascending")]).slice(0, MAX_EXAMPLES)
    return Found(total, [Example(row["key"], (row["address_min"], row["other_min"])) for row in shown.to_pylist()])


def _missing_among(references: Sequence[KeyScan], ids: Array) -> Found:
    """Rows that stream by and whose key is none of the ids."""
    total, first = 0, _EMPTY
    for table in (table for scan in references for table in scan_keys(scan)):
        bad = table.select(["key", "address"]).filter(pc.invert(pc.is_in(table["key"], ids)))
        total += bad.num_rows
        first = pa.concat_tables([first, bad]).sort_by("address").slice(0, MAX_EXAMPLES)
    return Found(total, _first_rows(first).examples)


def _first_rows(rows: Rows) -> Found:
    """All rows are violations; the first by address are shown."""
    shown = rows.sort_by("address").slice(0, MAX_EXAMPLES).to_pylist()
    return Found(rows.num_rows, [Example(row["key"], (row["address"],)) for row in shown])


def _keys(scans: Sequence[KeyScan], *extra: str) -> Rows:
    names = ["key", "address", *extra]
    found: Rows = pa.concat_tables([t.select(names) for scan in scans for t in scan_keys(scan)] or [_EMPTY])
    return found
