"""How value types are stored: the mapping to Arrow.

Kept apart from `kinds`, so that the compilers run without importing pyarrow.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from omnigraph.types.kinds import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

_SCALARS: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.utf8(),
    Scalar.BLOB: pa.large_binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
}


def arrow_type(base: BaseType) -> pa.DataType:
    """The Arrow type of a column of `base`.

    `DateTime` is `date64`, milliseconds since the epoch in UTC. A vector's items are nullable in Arrow, as Lance
    writes them, but a null item is refused before anything is stored.
    """
    match base:
        case ScalarType(scalar):
            return _SCALARS[scalar]
        case EnumType():
            return pa.utf8()
        case ListType(item):
            return pa.list_(pa.field("item", _SCALARS[item], nullable=True))
        case VectorType(dimension):
            return pa.list_(pa.field("item", pa.float32(), nullable=True), dimension)
        case _:
            assert_never(base)


def arrow_field(name: str, type_: PropertyType) -> pa.Field[pa.DataType]:
    """The Arrow field of one property."""
    return pa.field(name, arrow_type(type_.base), nullable=type_.nullable)
