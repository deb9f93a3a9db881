"""Digests of rows, rows that may differ between two states, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa, pc
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.pipeline.exchange import BUCKET, Exchange, Scratch, run_exchange
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.storage.datasets.filters import ROW_ID
from omnigraph.storage.datasets.fragments import fragment_sizes
from omnigraph.storage.datasets.partitions import TableAddress, open_address, table_address
from omnigraph.storage.datasets.row_changes import (
    ROW_LIST,
    ListedRows,
    RowPart,
    RowSet,
    compare_fragments,
    hidden_parts,
    lineage_parts,
    scan_row_ids,
    scan_row_set,
    whole_parts,
)
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Digests of rows
#
# Null, the empty text and the empty list are three values; lists compare item by item; a NaN equals itself; columns
# that a state lacks are null. Values are put one behind the other with their lengths, so that different rows never
# meet, and 128 bits of a cryptographic hash stand for them.


DIGEST_BYTES = 16
DIGEST = pa.binary(DIGEST_BYTES)
_Numbers: TypeAlias = "NDArray[np.generic[Any]]"


def row_digests(batch: Batch | Rows, columns: Sequence[str]) -> Array:
    """The digests of all rows of a batch over these columns, in their order."""
    present = set(batch.schema.names)
    pieces: list[Any] = []
    for name in columns:
        if name in present:
            pieces += _pieces(batch.column(name))
        else:
            pieces.append(_fixed(np.zeros(batch.num_rows, dtype=np.uint8)))
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    digests = b"".join(blake2b(row, digest_size=DIGEST_BYTES).digest() for row in joined.to_pylist())
    found: Array = pa.Array.from_buffers(DIGEST, batch.num_rows, [None, pa.py_buffer(digests)])
    return found


def _pieces(column: Column) -> list[Array]:
    """The bytes of a column, one or more per row. A null is one zero byte and nothing else."""
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    whole: Array = column.storage if isinstance(column, pyarrow.ExtensionArray) else column
    valid = np.asarray(whole.is_valid())
    pieces = _values(whole.drop_null() if whole.null_count else whole)
    if whole.null_count:
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        pieces = [piece.take(places).fill_null(b"") for piece in pieces]
    return [_fixed(valid.astype(np.uint8)), *pieces]


def _values(column: Array) -> list[Array]:
    """The bytes of a column without nulls."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    if not _is_text(kind):
        return [_fixed(_numbers(column))]
    lengths, texts = _texts(column)
    return [_fixed(lengths), texts]


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _numbers(column: Array) -> _Numbers:
    """Values of fixed width as integers of the same bits; what is null is zero, and there is one NaN."""
    kind = column.type
    if kind == pa.bool_():
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers = np.asarray(column.fill_null(0))
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)
        numbers = numbers.view(f"u{numbers.dtype.itemsize}")
    return numbers


def _texts(column: Array) -> tuple[_Numbers, Array]:
    """The lengths of texts in bytes, and these bytes."""
    binary = column.cast(pa.large_binary()).fill_null(b"")
    return np.asarray(pc.binary_length(binary), dtype=np.int64), binary


def _lists(column: Array) -> list[Array]:
    items = pc.list_flatten(column)
    lengths = np.asarray(pc.list_value_length(column), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    valid = np.asarray(items.is_valid()).astype(np.uint8)
    pieces = [_fixed(lengths), _sliced(offsets, valid)]
    if _is_text(items.type):
        sizes, texts = _texts(items)
        pieces.append(_sliced(offsets, sizes))
        grouped = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts)
        pieces.append(pc.binary_join(grouped, pa.scalar(b"", pa.large_binary())))
    else:
        pieces.append(_sliced(offsets, _numbers(items)))
    return pieces


def _fixed(values: _Numbers) -> Array:
    """One value of fixed width per row, as bytes."""
    return _sliced(np.arange(len(values) + 1), values)


def _sliced(offsets: _Numbers, values: _Numbers) -> Array:
    """The bytes of the values between two offsets, per row."""
    values = np.ascontiguousarray(values)
    places = (offsets * values.dtype.itemsize).astype(np.int64)
    buffers = [None, pa.py_buffer(places.tobytes()), pa.py_buffer(values.tobytes())]
    found: Array = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return found


# ---- Row differences of two table states
#
# Candidates come from `storage.datasets.row_changes`, and are compared by id through digests: equal rows that were only
# written again do not count. A delta holds ids, digests and row ids, never the values: these are read when needed.


#: Rows of one state, to be matched with those of another.
SIDE = pa.schema([("id", pa.utf8()), ("digest", DIGEST), ("row", pa.int64()), ("src", pa.utf8()), ("dst", pa.utf8())])
#: One row per id that differs. A null digest: there is no such row in that state. Ends are those of the newer row.
DELTA = pa.schema(
    [
        ("id", pa.utf8()),
        ("old", DIGEST),
        ("new", DIGEST),
        ("old_row", pa.int64()),
        ("new_row", pa.int64()),
        ("src", pa.utf8()),
        ("dst", pa.utf8()),
    ]
)

#: What happened to a row, as a number.
INSERTED, UPDATED, DELETED = range(3)
OPERATIONS = 3
#: The name of a column that no batch has.
_NOWHERE = ""


@frozen(kw_only=True)
class RowShape:
    """The columns that rows of a type are compared by. Plain values that travel to other processes."""

    #: In the order in which they are compared; None is one that this state lacks, which counts as null.
    columns: tuple[str | None, ...]
    is_edge: bool
    #: Columns whose values are compared as values of a wider type, with its name.
    widened: tuple[tuple[str, str], ...] = ()


def row_shape(definition: NodeDef | EdgeDef) -> RowShape:
    """The shape of a type: everything that is stored of it."""
    from omnigraph.lang.schema.catalog import EdgeDef

    is_edge = isinstance(definition, EdgeDef)
    ends = ("src", "dst") if is_edge else ()
    return RowShape(columns=("id", *ends, *sorted(definition.properties)), is_edge=is_edge)


def scan_side(rows: RowSet, shape: RowShape) -> Iterator[Batch]:
    """Ids, digests and row ids of some rows, for edges their ends too; as record batches."""
    nothing = pa.scalar(None, pa.utf8())
    names = [name for name in shape.columns if name is not None]
    for batch in scan_row_set(rows, [*names, ROW_ID]):
        count = batch.num_rows
        ends = [batch.column(name) if shape.is_edge else pa.repeat(nothing, count) for name in ("src", "dst")]
        columns = [
            batch.column("id"),
            row_digests(_widened(batch, shape), [name or _NOWHERE for name in shape.columns]),
            batch.column(ROW_ID).cast(pa.int64()),
            *ends,
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SIDE)


def _widened(batch: Batch, shape: RowShape) -> Batch:
    for name, type_name in shape.widened:
        wide = batch.column(name).cast(pa.type_for_alias(type_name))
        batch = batch.set_column(batch.schema.get_field_index(name), name, wide)
    return batch


def delta_of(old: Rows, new: Rows, *, with_moved: bool = False) -> Rows:
    """The differences of two states as a `DELTA` table, ordered by id: rows matched by id without those that are equal.

    With `with_moved` a row also differs from one with the same values and another row id.
    """
    both = old.join(new, "id", join_type="full outer", left_suffix="_old", right_suffix="_new", use_threads=False)
    is_equal = pc.fill_null(pc.equal(both["digest_old"], both["digest_new"]), False)
    if with_moved:
        is_equal = pc.and_(is_equal, pc.fill_null(pc.equal(both["row_old"], both["row_new"]), False))
    found = both.filter(pc.invert(is_equal))
    kept = [found[name] for name in ("id", "digest_old", "digest_new", "row_old", "row_new")]
    ends = [pc.coalesce(found[f"{end}_new"], found[f"{end}_old"]) for end in ("src", "dst")]
    delta: Rows = pa.table([*kept, *ends], schema=DELTA)
    return delta.sort_by("id").combine_chunks()


def operation_codes(delta: Rows) -> NDArray[np.int8]:
    """The operation of each row of a `DELTA` table."""
    is_new = np.asarray(delta["old"].is_null())
    is_gone = np.asarray(delta["new"].is_null())
    return np.where(is_new, INSERTED, np.where(is_gone, DELETED, UPDATED)).astype(np.int8)


def operation_counts(delta: Rows) -> tuple[int, ...]:
    """The number of rows of a `DELTA` table by operation."""
    return tuple(np.bincount(operation_codes(delta), minlength=OPERATIONS).tolist())


# ---- Candidate rows as parts for tasks


#: Rows that one task reads, unless a fragment has more.
TASK_ROWS = 200_000
#: Row ids that one task tells apart.
_BUCKET_ROWS = 4_000_000
#: Neighbouring row ids stay together: their rows usually lie beside each other.
_NEIGHBOUR_BITS = 16
_LOST, _KEPT = range(2)
_ROW_IDS = pa.schema([(BUCKET, pa.int32()), ("side", pa.int32()), ("row", pa.int64())])


def listed_parts(rows: RowSet, folder: AnswerFolder) -> list[RowPart]:
    """The rows of a set for tasks: row ids travel in a file, because there may be many."""
    sizes = fragment_sizes(open_address(rows.address)) if rows.fragments else {}
    found: list[RowPart] = [
        RowSet(address=rows.address, fragments=(number,), fragment_rows=sizes[number]) for number in rows.fragments
    ]
    if len(rows.row_ids):
        found += _listed(rows.address, folder, attempt_name("rows", 0), rows.row_ids)
    return found


def find_parts(old: Table, new: Table, engine: WorkerSet, scratch: Scratch) -> tuple[list[RowPart], list[RowPart]]:
    """As `row_changes.differing_rows`, for any number of rows."""
    differing = compare_fragments(old, new)
    hidden = [hidden_parts(differing, of_new=of_new) for of_new in (False, True)]
    both = whole_parts(old, differing.gone) + hidden[0], whole_parts(new, differing.come) + hidden[1]
    if differing.ahead is None:
        return both
    is_ahead = differing.ahead is new
    earlier, later = (old, new) if is_ahead else (new, old)
    written = differing.come if is_ahead else differing.gone
    gone, marked = (both[0], hidden[1]) if is_ahead else (both[1], hidden[0])
    kept, fresh = (lineage_parts(later, written, earlier.version, is_updated=updated) for updated in (False, True))
    lost = _lost_rows(table_address(earlier), gone, kept, engine, scratch)
    return (lost, fresh + marked) if is_ahead else (fresh + marked, lost)


def _lost_rows(
    address: TableAddress, lost: list[RowPart], kept: list[RowPart], engine: WorkerSet, scratch: Scratch
) -> list[RowPart]:
    """Rows of the earlier state without those that were only written again: these kept their row ids."""
    rows = sum(part.row_count for part in [*lost, *kept])
    buckets = max(engine.workers.parallelism, rows // _BUCKET_ROWS + 1)
    folder = scratch.folder(engine.workers)
    exchange = Exchange(
        stage="find changed rows",
        items=[(_LOST, part) for part in lost] + [(_KEPT, part) for part in kept],
        read=_ReadRowIds(buckets),
        schema=_ROW_IDS,
        buckets=buckets,
        handle=_KeepLost(folder),
    )
    return [
        ListedRows(address=address, folder=folder, name=answer["name"], batch=number, row_count=count)
        for answer in run_exchange(exchange, engine.workers, folder)
        for number, count in enumerate(answer["counts"])
    ]


@frozen
class _ReadRowIds:
    buckets: int

    def __call__(self, item: tuple[int, RowPart]) -> Iterator[Batch]:
        side, part = item
        for ids in scan_row_ids(part.resolved()):
            columns = [
                pa.array(((ids >> np.uint64(_NEIGHBOUR_BITS)) % self.buckets).astype(np.int32)),
                pa.repeat(pa.scalar(side, pa.int32()), len(ids)),
                pa.array(ids.astype(np.int64)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_ROW_IDS)


@frozen
class _KeepLost:
    folder: AnswerFolder

    def __call__(self, bucket: int, rows: Rows) -> Message:
        side, ids = rows["side"].to_numpy(), rows["row"].to_numpy()
        left = np.setdiff1d(ids[side == _LOST], ids[side == _KEPT], assume_unique=True)
        name = attempt_name("lost", bucket)
        counts = _write_rows(self.folder, name, np.sort(left))
        return {"name": name, "counts": counts, "rows": len(ids)}


def _listed(address: TableAddress, folder: AnswerFolder, name: str, row_ids: NDArray[np.uint64]) -> list[ListedRows]:
    return [
        ListedRows(address=address, folder=folder, name=name, batch=number, row_count=count)
        for number, count in enumerate(_write_rows(folder, name, row_ids.astype(np.int64)))
    ]


def _write_rows(folder: AnswerFolder, name: str, row_ids: NDArray[np.int64]) -> list[int]:
    """Write row ids, as many to a batch as one task reads; the sizes of the batches."""
    pieces = [row_ids[begin : begin + TASK_ROWS] for begin in range(0, len(row_ids), TASK_ROWS)]
    if pieces:
        batches = (pa.RecordBatch.from_arrays([pa.array(p)], schema=ROW_LIST) for p in pieces)
        write_answer(folder, name, ROW_LIST, batches)
    return [len(piece) for piece in pieces]
