"""Equality of rows: a digest per row that is equal exactly when all typed values are.

Null, the empty text and the empty list are three values; lists compare item by item; a NaN equals itself; columns that
a state lacks are null. Values are put one behind the other with their lengths, so that different rows never meet, and
128 bits of a cryptographic hash stand for them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

DIGEST_BYTES = 16
DIGEST = pa.binary(DIGEST_BYTES)


def row_digests(batch: Any, columns: Sequence[str]) -> Any:
    """The digests of all rows of a batch over these columns, in their order."""
    present = set(batch.schema.names)
    pieces: list[Any] = []
    for name in columns:
        if name in present:
            pieces += _pieces(batch.column(name))
        else:
            pieces.append(_fixed(np.zeros(batch.num_rows, dtype=np.uint8)))
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    digests = b"".join(
        blake2b(row, digest_size=DIGEST_BYTES).digest() for row in joined.to_pylist()
    )
    return pa.Array.from_buffers(DIGEST, batch.num_rows, [None, pa.py_buffer(digests)])


def _pieces(column: Any) -> list[Any]:
    """The bytes of a column, one or more per row. A null is one zero byte and nothing else."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    valid = np.asarray(column.is_valid())
    pieces = _values(column.drop_null() if column.null_count else column)
    if column.null_count:
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        pieces = [piece.take(places).fill_null(b"") for piece in pieces]
    return [_fixed(valid.astype(np.uint8)), *pieces]


def _values(column: Any) -> list[Any]:
    """The bytes of a column without nulls."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    return _texts(column) if _is_text(kind) else [_fixed(_numbers(column))]


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _numbers(column: Any) -> NDArray[Any]:
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


def _texts(column: Any) -> list[Any]:
    binary = column.cast(pa.large_binary()).fill_null(b"")
    return [_fixed(np.asarray(pc.binary_length(binary), dtype=np.int64)), binary]


def _lists(column: Any) -> list[Any]:
    items = column.flatten()
    lengths = np.asarray(pc.list_value_length(column), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    valid = np.asarray(items.is_valid()).astype(np.uint8)
    pieces = [_fixed(lengths), _sliced(offsets, valid)]
    if _is_text(items.type):
        sizes, texts = _texts(items)
        raw = np.frombuffer(sizes.buffers()[2], dtype=np.int64)[: len(items)]
        pieces.append(_sliced(offsets, raw))
        grouped = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts)
        pieces.append(pc.binary_join(grouped, pa.scalar(b"", pa.large_binary())))
    else:
        pieces.append(_sliced(offsets, _numbers(items)))
    return pieces


def _fixed(values: NDArray[Any]) -> Any:
    """One value of fixed width per row, as bytes."""
    return _sliced(np.arange(len(values) + 1), values)


def _sliced(offsets: NDArray[Any], values: NDArray[Any]) -> Any:
    """The bytes of the values between two offsets, per row."""
    values = np.ascontiguousarray(values)
    places = (offsets * values.dtype.itemsize).astype(np.int64)
    buffers = [None, pa.py_buffer(places.tobytes()), pa.py_buffer(values.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
