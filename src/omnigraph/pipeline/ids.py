"""Ids of whole columns: derived from keys, or generated in a way that every try of a task repeats exactly.

A generated id is a ULID: 10 characters of time, 6 random ones per load, 10 that count. The counter is the number of the
part of the input and the number of the row in it, so ids follow the order of the input and never meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.errors import InternalError
from omnigraph.ids import derive_id, new_ulid
from omnigraph.types.kinds import EnumType, Scalar, ScalarType
from omnigraph.types.values import canonical_spelling
from omnigraph.writes.columns import stored_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.types.kinds import BaseType

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: Rows of one type in one part of the input, and parts, as bits of the counter.
_ROW_BITS = 30
_PART_BITS = 20
MAX_PARTS = 1 << _PART_BITS
_COUNTER_CHARACTERS = (_ROW_BITS + _PART_BITS) // 5
_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)
_NEEDS_ESCAPE = r"[\x00-\x1f\"\\]"


def new_id_prefix() -> str:
    """The part of generated ids that belongs to one load."""
    return new_ulid()[:16]


def generated_ids(prefix: str, part: int, first_row: int, count: int) -> Any:
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
    return pa.StringArray.from_buffers(count, *buffers)


def spelled(base: BaseType, column: Any) -> Any:
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
    values = stored_values(column)
    texts = [None if value is None else canonical_spelling(base, value) for value in values]
    return pa.array(texts, pa.utf8())


def derived_ids(spellings: Sequence[Any]) -> Any:
    """Ids of keyed nodes from the spellings of their members in id order; null where a member is null."""
    if len(spellings) == 1:
        return spellings[0]
    if any(pc.any(pc.match_substring_regex(c, _NEEDS_ESCAPE)).as_py() for c in spellings):
        rows = zip(*(column.to_pylist() for column in spellings), strict=True)
        return pa.array([None if None in row else derive_id(row) for row in rows], pa.utf8())
    pieces: list[Any] = ['["', spellings[0]]
    for column in spellings[1:]:
        pieces += ['","', column]
    return pc.binary_join_element_wise(*pieces, '"]', "")
