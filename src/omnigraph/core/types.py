"""The closed set of value types, as frozen data.

A property type is a base type plus nullability. Base types are a small union, so that code over them is a `match`
that the type checker proves complete.
"""

from __future__ import annotations

from enum import StrEnum

from omnigraph.frozen import frozen

#: Largest vector dimension; Arrow's fixed-size lists count in signed 32 bits.
MAX_VECTOR_DIMENSION = 2_147_483_647


class Scalar(StrEnum):
    """The eleven scalar types, under the names that both languages use."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
MOMENTS = frozenset({Scalar.DATE, Scalar.DATETIME})
NUMERICS = INTEGERS | FLOATS

_INTEGER_RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def integer_range(scalar: Scalar) -> tuple[int, int]:
    """The smallest and largest value of an integer type, both included."""
    return _INTEGER_RANGES[scalar]


@frozen
class ScalarType:
    """A plain scalar."""

    scalar: Scalar

    def __str__(self) -> str:
        return self.scalar.value


@frozen
class EnumType:
    """A string out of a closed set. `values` are sorted, because their order never means anything."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if list(self.values) != sorted(set(self.values)):
            raise ValueError("enum values must be sorted and distinct")

    def __str__(self) -> str:
        return f"enum({', '.join(self.values)})"


@frozen
class ListType:
    """A list of one scalar type; elements may be null in storage."""

    item: Scalar

    def __post_init__(self) -> None:
        if self.item is Scalar.BLOB:
            raise ValueError("there is no list of Blob")

    def __str__(self) -> str:
        return f"[{self.item.value}]"


@frozen
class VectorType:
    """A vector of 32-bit floats with a fixed length."""

    dimension: int

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_VECTOR_DIMENSION:
            raise ValueError(f"vector dimension {self.dimension} is out of range")

    def __str__(self) -> str:
        return f"Vector({self.dimension})"


@frozen
class RecordType:
    """Named values side by side: an entity as an object, or a step of a path.

    Results have records; no property and no parameter is one. Fields are scalars and lists of them.
    """

    fields: tuple[tuple[str, PropertyType], ...]

    def __str__(self) -> str:
        return f"{{{', '.join(f'{name}: {type_}' for name, type_ in self.fields)}}}"


@frozen
class RecordListType:
    """A list of records; none of them is null."""

    item: RecordType

    def __str__(self) -> str:
        return f"[{self.item}]"


BaseType = ScalarType | EnumType | ListType | VectorType | RecordType | RecordListType


@frozen
class PropertyType:
    """A base type and whether null is a value of it."""

    base: BaseType
    nullable: bool = False

    def __str__(self) -> str:
        return f"{self.base}{'?' if self.nullable else ''}"


#: Types whose values are values of another type as they are.
_WIDER = {Scalar.I32: Scalar.I64, Scalar.F32: Scalar.F64}


def is_wider(new: BaseType, old: BaseType) -> bool:
    """Whether a type holds every value of another one as it is, with room for more.

    >>> is_wider(ScalarType(Scalar.I64), ScalarType(Scalar.I32))
    True
    """
    return isinstance(old, ScalarType) and isinstance(new, ScalarType) and _WIDER.get(old.scalar) is new.scalar


def scalar_of(base: BaseType) -> Scalar | None:
    """The scalar that values of `base` compare as: enums are strings; lists, vectors and records are None."""
    match base:
        case ScalarType(scalar):
            return scalar
        case EnumType():
            return Scalar.STRING
        case ListType() | VectorType() | RecordType() | RecordListType():
            return None


def item_scalar(base: BaseType) -> Scalar | None:
    """The scalar of a value, or of the items of a list."""
    return base.item if isinstance(base, ListType) else scalar_of(base)


def record_fields(base: BaseType) -> tuple[tuple[str, PropertyType], ...]:
    """The fields of a record, or of the records of a list; other types have none."""
    match base:
        case RecordType(fields) | RecordListType(RecordType(fields)):
            return fields
        case _:
            return ()
