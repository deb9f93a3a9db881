"""Whole columns of load data → columns as they are stored, in one pass of Arrow kernels.

`fast_column` is a shortcut: it gives a column only when every value of it is good, and then exactly the values that
`load_value` would give one by one. Whatever it is not sure about it leaves to `slow_column`, which also knows what is
wrong with a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, arrow_type, pa, pc, stored_array
from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.core.values import MARK, StoredValue
from omnigraph.frozen import frozen
from omnigraph.pipeline.shape.values import AS_IS, Reading, Timestamps, load_value, text_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DATE_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?Z?$"
#: The same with digits behind the milliseconds.
_FINE_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z?$"
#: Where the digits behind the point of such a text begin and end.
_FRACTION = (20, 29)
_INTEGER_TEXT = r"^-?[0-9]{1,19}$"
_FLOAT_TEXT = r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
#: How many steps of a finer unit a millisecond has.
_STEPS = {"us": 1_000, "ns": 1_000_000}
#: How many steps of a unit a day has.
_STEPS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_COARSE = (None, Timestamps.REFUSE)
_INTEGERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def stored_column(
    type_: PropertyType, given: Array | list[object], reading: Reading = AS_IS
) -> tuple[Array, dict[int, str]]:
    """The stored column of an Arrow column or a list, and violation texts about its bad values; those are null."""
    if not isinstance(given, list):
        fast = fast_column(type_, given, reading)
        if fast is not None:
            return fast, {}
    return slow_column(type_, python_values(type_, given), reading)


def fast_column(type_: PropertyType, column: Array, reading: Reading = AS_IS) -> Array | None:
    """The stored column, or None when some value needs a closer look."""
    column = decoded(column)
    try:
        if pa.types.is_null(column.type):
            return column.cast(arrow_type(type_.base))
        return _fast(type_.base, column, reading)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        return None


def slow_column(
    type_: PropertyType, values: Sequence[object], reading: Reading = AS_IS
) -> tuple[Array, dict[int, str]]:
    """The stored column and violation texts about its bad values, by position; those are null."""
    stored: list[StoredValue] = []
    violations: dict[int, str] = {}
    for position, value in enumerate(values):
        try:
            typed = text_value(type_, value) if reading.is_text and isinstance(value, str) else value
            stored.append(load_value(type_, typed, reading))
        except ValueError as problem:
            stored.append(None)
            violations[position] = str(problem)
    return stored_array(arrow_type(type_.base), stored), violations


def python_values(type_: PropertyType, column: Array | list[object]) -> list[object]:
    """The values of a column for `slow_column`, also those that Python has no object for."""
    if isinstance(column, list):
        return column
    if type_.base == ScalarType(Scalar.DATETIME) and pa.types.is_timestamp(column.type):
        return [_moment(value, column.type.unit) for value in column.cast(pa.int64()).to_pylist()]
    if type_.base == ScalarType(Scalar.DATE) and pa.types.is_timestamp(column.type):
        numbers = column.cast(pa.int64()).to_pylist()
        return [_day(item, number) for item, number in zip(column, numbers, strict=True)]
    if isinstance(type_.base, ListType) and is_list_type(column.type):
        return _python_lists(type_.base.item, column)
    try:
        return list(column.to_pylist())
    except (UnicodeDecodeError, OverflowError, ValueError):
        are_days = type_.base == ScalarType(Scalar.DATE) and pa.types.is_date32(column.type)
        return [_python_value(item, are_days=are_days) for item in column]


def _python_lists(item: Scalar, column: Array) -> list[object]:
    """Lists of the values that each item would be alone."""
    items = python_values(PropertyType(base=ScalarType(item), nullable=True), pc.list_flatten(column))
    found: list[object] = []
    end = 0
    for length in pc.list_value_length(column).to_pylist():
        begin, end = end, end + (length or 0)
        found.append(None if length is None else items[begin:end])
    return found


def _moment(value: int | None, unit: str) -> int | str | None:
    """A moment in milliseconds; a text with all of its digits when it is finer. Any year is possible."""
    if value is None:
        return None
    if unit == "s":
        return value * 1000
    steps = _STEPS.get(unit, 1)
    if value % steps == 0:
        return value // steps
    return f"{np.array(value, dtype=f'datetime64[{unit}]')}Z"


def _day(item: Any, number: int | None) -> object:
    """The day that begins at a moment, also beyond the calendar of Python; any other moment as it is."""
    if number is None:
        return None
    day, rest = divmod(number, _STEPS_PER_DAY[item.type.unit])
    return _python_value(item) if rest else day


@frozen
class _Strange:
    """A value that Python has no object for, such as a day after the year 9999; no property takes it for a text."""

    text: str

    def __str__(self) -> str:
        return self.text


def _python_value(item: Any, *, are_days: bool = False) -> object:
    try:
        return item.as_py()
    except UnicodeDecodeError:
        if is_list_type(item.type):
            return [_python_value(part) for part in item.values]
        if pa.types.is_nested(item.type):
            return _Strange(f"a {item.type} with a text that is not UTF-8")
        return item.cast(pa.binary()).as_py()
    except (OverflowError, ValueError):
        if are_days:
            return item.value
        if is_list_type(item.type):
            return [_python_value(part) for part in item.values]
        if pa.types.is_nested(item.type):
            return _Strange(f"a {item.type} with a value beyond the calendar")
        return _Strange(f"{item.value} of type {item.type}")


def _fast(base: BaseType, column: Array, reading: Reading) -> Array | None:
    match base:
        case ScalarType(Scalar.BLOB):
            is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            if not is_binary or _any(pc.starts_with(column, MARK)):
                return None
            return column.cast(pa.large_binary())
        case ScalarType(scalar):
            return _fast_scalar(scalar, column, reading)
        case EnumType():
            return _fast_scalar(Scalar.STRING, column, reading)
        case ListType(item):
            return None if reading.is_text else _fast_list(item, column, reading)
        case VectorType(dimension):
            return None if reading.is_text else _fast_vector(dimension, column)
        case RecordType() | RecordListType():
            raise AssertionError("only results have records")


def _fast_scalar(scalar: Scalar, column: Array, reading: Reading) -> Array | None:
    kind, is_text = column.type, reading.is_text
    is_string = is_text_type(kind)
    if is_string:
        column = column.cast(pa.utf8())
        # Arrow trusts files about their texts; storage would keep bytes that are not a text.
        column.validate(full=True)
    match scalar:
        case Scalar.STRING:
            return column if is_string else None
        case Scalar.BOOL:
            if is_text and is_string and _all(pc.is_in(column, pa.array(["true", "false"]))):
                return column.cast(pa.bool_())
            return column if pa.types.is_boolean(kind) else None
        case Scalar.DATE:
            return _fast_date(column, is_text=is_text)
        case Scalar.DATETIME:
            return _fast_moment(column, reading)
    if is_string:
        pattern = _INTEGER_TEXT if scalar in _INTEGERS else _FLOAT_TEXT
        if not is_text or not _matches(column, pattern):
            return None
    elif not _is_number(kind):
        return None
    if scalar in _INTEGERS:
        return column.cast(arrow_type(ScalarType(scalar)))
    return _finite(column, scalar)


def _finite(column: Array, scalar: Scalar) -> Array | None:
    if pa.types.is_decimal(column.type):
        # Arrow does not always find the nearest float.
        return None
    # Rounded twice where a single value is: first to 64 bits, then to 32.
    column = column.cast(pa.float64())
    if scalar is Scalar.F32:
        column = column.cast(pa.float32(), safe=False)
    return column if _all(pc.is_finite(column)) else None


def _fast_date(column: Array, *, is_text: bool) -> Array | None:
    if pa.types.is_date32(column.type):
        return column
    if pa.types.is_integer(column.type):
        return column.cast(pa.int32()).cast(pa.date32())
    if pa.types.is_timestamp(column.type):
        return _days_of_timestamps(column)
    if pa.types.is_string(column.type):
        if _matches(column, _DATE_TEXT) and not _any(pc.starts_with(column, "0000")):
            return column.cast(pa.date32())
        if is_text and _matches(column, _INTEGER_TEXT):
            return column.cast(pa.int32()).cast(pa.date32())
    return None


def _days_of_timestamps(column: Array) -> Array | None:
    """The days of moments at midnight UTC; Arrow would cut others, and count in the zone of the column."""
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(numbers, _STEPS_PER_DAY[column.type.unit])
    if rest.any():
        return None
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    found: Array = pa.array(days, pa.int64(), mask=mask).cast(pa.int32()).cast(pa.date32())
    return found


def _fast_moment(column: Array, reading: Reading) -> Array | None:
    timestamps = reading.timestamps
    if pa.types.is_string(column.type):
        if _matches(column, _MOMENT_TEXT) and not _any(pc.starts_with(column, "0000")):
            column = pc.utf8_rtrim(column, "Z").cast(pa.timestamp("ms"))
        elif reading.is_text and _matches(column, _INTEGER_TEXT):
            column = column.cast(pa.int64())
        elif timestamps not in _COARSE and _matches(column, _FINE_TEXT):
            if _any(pc.starts_with(column, "0000")):
                return None
            column = _moments_of_texts(column, timestamps)
        else:
            return None
    if pa.types.is_timestamp(column.type):
        column = _moments_of_timestamps(column, timestamps)
    if not pa.types.is_integer(column.type):
        return None
    # Through a buffer: a cast would cut a moment to its day.
    return column.cast(pa.int64()).view(pa.date64())


def _moments_of_timestamps(column: Array, timestamps: Timestamps | None) -> Array:
    """Milliseconds; finer moments as the rule says, and an error of Arrow when it refuses them."""
    steps = _STEPS.get(column.type.unit)
    if steps is None or timestamps in _COARSE:
        return column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    whole, finer = np.divmod(numbers, steps)
    return _milliseconds(whole, finer, steps, timestamps, column)


def _moments_of_texts(column: Array, timestamps: Timestamps | None) -> Array:
    """Milliseconds of texts with up to nine digits behind the point: exact in any year."""
    seconds = pc.utf8_slice_codeunits(column, 0, 19).cast(pa.timestamp("s")).cast(pa.int64())
    digits = pc.utf8_rtrim(pc.utf8_slice_codeunits(column, *_FRACTION), "Z")
    parts = pc.utf8_rpad(digits, 9, "0").cast(pa.int64()).fill_null(0)
    whole, finer = np.divmod(parts.to_numpy(zero_copy_only=False), _STEPS["ns"])
    whole = whole + seconds.fill_null(0).to_numpy(zero_copy_only=False) * 1000
    return _milliseconds(whole, finer, _STEPS["ns"], timestamps, column)


def _milliseconds(
    whole: NDArray[np.int64], finer: NDArray[np.int64], steps: int, timestamps: Timestamps | None, column: Array
) -> Array:
    if timestamps is Timestamps.ROUND:
        whole = whole + (2 * finer >= steps)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    found: Array = pa.array(whole, pa.int64(), mask=mask)
    return found


def _fast_list(item: Scalar, column: Array, reading: Reading) -> Array | None:
    if not is_list_type(column.type):
        return None
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    flat = pc.list_flatten(column)
    if flat.null_count:
        return None
    values = pa.nulls(0, arrow_type(ScalarType(item)))
    if len(flat):
        values = _fast_scalar(item, flat, reading)
    if values is None:
        return None
    offsets = np.concatenate(([0], np.cumsum(lengths.to_numpy(zero_copy_only=False))))
    mask = column.is_null() if column.null_count else None
    wanted = arrow_type(ListType(item))
    found: Array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted, mask=mask)
    return found


def _fast_vector(dimension: int, column: Array) -> Array | None:
    if not is_list_type(column.type):
        return None
    if not _all(pc.equal(pc.list_value_length(column), dimension)):
        return None
    flat = pc.list_flatten(column)
    if flat.null_count or (len(flat) and not _is_number(flat.type)):
        return None
    values = _finite(flat, Scalar.F32)
    if values is None:
        return None
    wanted = arrow_type(VectorType(dimension))
    mask = None
    if column.null_count:
        filled = np.zeros((len(column), dimension), dtype=np.float32)
        filled[np.asarray(column.is_valid())] = np.asarray(values).reshape(-1, dimension)
        values, mask = pa.array(filled.reshape(-1), pa.float32()), column.is_null()
    found: Array = pa.FixedSizeListArray.from_arrays(values, type=wanted, mask=mask)
    return found


def decoded(column: Array) -> Array:
    """The values of a column themselves, where it has places in a dictionary."""
    if not isinstance(column, pyarrow.DictionaryArray):
        return column
    if pa.types.is_string_view(column.dictionary.type):
        # Texts of this layout, which polars has, cannot be taken from one by one.
        column = pyarrow.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_utf8()))
    return column.dictionary_decode()


def is_text_type(kind: pyarrow.DataType) -> bool:
    """Whether an Arrow type holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_list_type(kind: pyarrow.DataType) -> bool:
    """Whether an Arrow type holds lists that have offsets or one length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _matches(column: Array, pattern: str) -> bool:
    return _all(pc.match_substring_regex(column, pattern))


def _all(mask: Array) -> bool:
    """Whether a mask holds everywhere; null values are exempt."""
    return pc.all(mask, min_count=0).as_py() is not False


def _any(mask: Array) -> bool:
    return pc.any(mask, min_count=0).as_py() is True


def positions(mask: Array) -> list[int]:
    """The positions where a mask is true."""
    found: list[int] = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
    return found
