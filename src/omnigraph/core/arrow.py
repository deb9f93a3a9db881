"""Value types as Arrow types, and Arrow columns as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never, cast

import pyarrow

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
from omnigraph.core.values import StoredValue, render_date, render_datetime

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Kernels:
    """The functions of `pyarrow.compute`, which is imported with the first one: showing rows of a server takes none."""

    def __getattr__(self, name: str) -> object:
        found = getattr(import_module("pyarrow.compute"), name)
        setattr(self, name, found)
        return found


#: pyarrow and its kernels without their published stubs, which describe older functions and arrays of one type only.
pa: Any = pyarrow
pc: Any = _Kernels()
#: Columns and fields whose type is known at run time only.
if TYPE_CHECKING:
    Array: TypeAlias = pyarrow.Array[Any]
    Field: TypeAlias = pyarrow.Field[Any]
    Column: TypeAlias = pyarrow.Array[Any] | pyarrow.ChunkedArray[Any]
else:
    # These classes are generic in their stubs only.
    Array, Field, Column = pyarrow.Array, pyarrow.Field, pyarrow.Array | pyarrow.ChunkedArray
#: One value per row, or one value for all of them.
Datum: TypeAlias = "pyarrow.Array[Any] | pyarrow.Scalar[Any]"
Batch: TypeAlias = pyarrow.RecordBatch
Schema: TypeAlias = pyarrow.Schema
#: A whole Arrow table; `Table` is the table of a graph.
Rows: TypeAlias = pyarrow.Table


def one_array(column: Column) -> Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column


# ---- Arrow types of value types
#
# Kept apart from `core.types`, so that the compilers run without importing pyarrow.


_SCALARS: dict[Scalar, pyarrow.DataType] = {
    Scalar.STRING: pyarrow.utf8(),
    Scalar.BLOB: pyarrow.large_binary(),
    Scalar.BOOL: pyarrow.bool_(),
    Scalar.I32: pyarrow.int32(),
    Scalar.I64: pyarrow.int64(),
    Scalar.U32: pyarrow.uint32(),
    Scalar.U64: pyarrow.uint64(),
    Scalar.F32: pyarrow.float32(),
    Scalar.F64: pyarrow.float64(),
    Scalar.DATE: pyarrow.date32(),
    Scalar.DATETIME: pyarrow.date64(),
}


def arrow_type(base: BaseType) -> pyarrow.DataType:
    """The Arrow type of a column of `base`.

    `DateTime` is `date64`, milliseconds since the epoch in UTC. A vector's items are nullable in Arrow, as Lance
    writes them, but a null item is refused before anything is stored.
    """
    match base:
        case ScalarType(scalar):
            return _SCALARS[scalar]
        case EnumType():
            return pyarrow.utf8()
        case ListType(item):
            return pyarrow.list_(pyarrow.field("item", _SCALARS[item], nullable=True))
        case VectorType(dimension):
            return pyarrow.list_(pyarrow.field("item", pyarrow.float32(), nullable=True), dimension)
        case RecordType(fields):
            # Every field may be null in Arrow: it is where the record is null.
            return pyarrow.struct([(name, arrow_type(type_.base)) for name, type_ in fields])
        case RecordListType(item):
            return pyarrow.list_(pyarrow.field("item", arrow_type(item), nullable=True))
        case _:
            assert_never(base)


def arrow_field(name: str, type_: PropertyType) -> pyarrow.Field[pyarrow.DataType]:
    """The Arrow field of one property."""
    return pyarrow.field(name, arrow_type(type_.base), nullable=type_.nullable)


# ---- Stored values as Arrow values, and back


def repeated(value: pyarrow.Scalar[Any], count: int) -> Array:
    """A column of one value; Arrow repeats no list zero times."""
    column: Array = pa.repeat(value, count) if count else pa.array([], value.type)
    return column


def record_columns(column: Array) -> list[Array]:
    """The fields of records as columns, null where the record is."""
    whole: Any = column
    fields: list[Array] = whole.flatten()
    return fields


def records(type_: pyarrow.DataType, columns: Iterable[Array], is_missing: Array | None = None) -> Array:
    """Records of a struct type from the columns of their fields; null where `is_missing` says so."""
    fields = list(cast("pyarrow.StructType", type_))
    parts = [column.cast(field.type) for column, field in zip(columns, fields, strict=True)]
    found: Array = pa.StructArray.from_arrays(parts, fields=fields, mask=is_missing)
    return found


def stored_array(type_: pyarrow.DataType, values: Iterable[StoredValue]) -> Array:
    """Stored values as an array: dates and instants come as the numbers that they are stored as."""
    found: Array = pa.array(list(values), _plain(type_)).cast(type_)
    return found


def stored_values(column: Column) -> list[StoredValue]:
    """The values of a column in stored form: days and milliseconds instead of calendar objects."""
    plain: Any = column.cast(_plain(column.type))
    return cast("list[StoredValue]", plain.to_pylist())


def _plain(type_: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the numbers that values are stored as."""
    if pyarrow.types.is_list(type_):
        return pyarrow.list_(_plain(type_.value_type))
    if pyarrow.types.is_date32(type_):
        return pyarrow.int32()
    return pyarrow.int64() if pyarrow.types.is_date64(type_) else type_


# ---- Arrow values as JSON


#: Larger integers lose digits in readers that know floats only; they travel as text.
MAX_SAFE_INTEGER = 2**53 - 1


def has_text(column: Column) -> Column:
    """A mask of the texts that are neither null nor blank."""
    found: Column = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(column), ""), False)
    return found


def with_vectors(column: Array, places: NDArray[np.intp], vectors: NDArray[np.float32] | None) -> Array:
    """A column of vectors with those at some places replaced, or null there."""
    import numpy

    size = column.type.list_size
    values = numpy.zeros((len(column), size), numpy.float32)
    valid = numpy.asarray(column.is_valid())
    values[valid] = numpy.asarray(pc.list_flatten(column)).reshape(-1, size)
    valid = valid.copy()
    valid[places] = vectors is not None
    if vectors is not None:
        values[places] = vectors
    flat = pa.array(values.reshape(-1))
    changed: Array = pa.FixedSizeListArray.from_arrays(flat, size, mask=pa.array(~valid)).cast(column.type)
    return changed


def json_column(column: Array, base: BaseType) -> list[object]:
    """The values of a result column as JSON values.

    Dates are `YYYY-MM-DD`, instants `YYYY-MM-DDTHH:MM:SS.mmmZ`; integers beyond ±(2^53-1) and floats that are not
    finite are text.
    """
    match base:
        case ScalarType(Scalar.DATE):
            return [_present(render_date, day) for day in column.cast(pyarrow.int32()).to_pylist()]
        case ScalarType(Scalar.DATETIME):
            return [_present(render_datetime, ms) for ms in column.cast(pyarrow.int64()).to_pylist()]
        case RecordType(fields):
            return _json_records(column, fields)
        case RecordListType(record):
            records = iter(json_column(pc.list_flatten(column), record))
            return [None if length is None else [next(records) for _ in range(length)] for length in _lengths(column)]
        case ListType(Scalar.DATE | Scalar.DATETIME as item):
            narrow = pyarrow.int32() if item is Scalar.DATE else pyarrow.int64()
            return [_moments(values, item) for values in column.cast(pa.list_(narrow)).to_pylist()]
        case ScalarType(Scalar.F32):
            return _narrow_floats(column)
        case VectorType() | ListType(Scalar.F32):
            items = iter(_narrow_floats(pc.list_flatten(column)))
            return [None if length is None else [next(items) for _ in range(length)] for length in _lengths(column)]
        case ListType():
            return [None if values is None else [_number(value) for value in values] for values in column.to_pylist()]
        case _:
            return [_number(value) for value in column.to_pylist()]


def _json_records(column: Array, fields: Iterable[tuple[str, PropertyType]]) -> list[object]:
    """Records as objects, with every field of each."""
    columns = [json_column(part, type_.base) for part, (_, type_) in zip(record_columns(column), fields, strict=True)]
    names = column.type.names
    rows = zip(*columns, strict=True)
    return [
        dict(zip(names, row, strict=True)) if present else None
        for row, present in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


def _narrow_floats(column: Array) -> list[object]:
    """32-bit floats with as many digits as they have: 0.1, not 0.10000000149011612."""
    texts = column.cast(pyarrow.utf8())
    return [None if text is None else _number(float(text)) for text in texts.to_pylist()]


def _lengths(column: Array) -> list[int | None]:
    lists = column
    if pyarrow.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        return [size if present else None for present in lists.is_valid().to_pylist()]
    lengths: list[int | None] = pc.list_value_length(lists).to_pylist()
    return lengths


def _present(render: Callable[[int], str], value: int | None) -> str | None:
    return None if value is None else render(value)


def _moments(values: list[int | None] | None, item: Scalar) -> list[str | None] | None:
    render = render_date if item is Scalar.DATE else render_datetime
    return None if values is None else [_present(render, value) for value in values]


def _number(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_SAFE_INTEGER:
        return str(value)
    return value
