from __future__ import annotations

import pytest

from omnigraph.core.types import (
    FLOATS,
    INTEGERS,
    MAX_VECTOR_DIMENSION,
    NUMERICS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    integer_range,
    scalar_of,
)
from support.subtests import each_case


def test_there_are_eleven_scalars() -> None:
    assert {scalar.value for scalar in Scalar} == {
        "String",
        "Blob",
        "Bool",
        "I32",
        "I64",
        "U32",
        "U64",
        "F32",
        "F64",
        "DateTime",
        "Date",
    }


@each_case(
    ("scalar", "low", "high"),
    [
        (Scalar.I32, -2147483648, 2147483647),
        (Scalar.I64, -9223372036854775808, 9223372036854775807),
        (Scalar.U32, 0, 4294967295),
        (Scalar.U64, 0, 18446744073709551615),
    ],
)
def test_an_integer_type_has_its_range(scalar: Scalar, low: int, high: int) -> None:
    assert integer_range(scalar) == (low, high)


def test_numbers_are_integers_and_floats() -> None:
    assert NUMERICS == INTEGERS | FLOATS
    assert {Scalar.F32, Scalar.F64} == FLOATS


@each_case(
    ("type_", "text"),
    [
        (PropertyType(ScalarType(Scalar.I32)), "I32"),
        (PropertyType(ScalarType(Scalar.DATETIME), True), "DateTime?"),
        (PropertyType(ListType(Scalar.STRING), True), "[String]?"),
        (PropertyType(VectorType(8)), "Vector(8)"),
        (PropertyType(EnumType(("a", "b")), True), "enum(a, b)?"),
    ],
)
def test_a_type_is_spelled_as_in_a_schema(type_: PropertyType, text: str) -> None:
    assert str(type_) == text


def test_a_type_is_required_unless_said_otherwise() -> None:
    assert not PropertyType(ScalarType(Scalar.I32)).nullable


@pytest.mark.parametrize("dimension", [1, MAX_VECTOR_DIMENSION])
def test_a_vector_has_one_to_the_limit_of_dimensions(dimension: int) -> None:
    assert VectorType(dimension).dimension == dimension


@pytest.mark.parametrize("dimension", [0, -1, MAX_VECTOR_DIMENSION + 1])
def test_a_vector_of_another_dimension_cannot_be_built(dimension: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        VectorType(dimension)


@pytest.mark.parametrize("values", [("b", "a"), ("a", "a")], ids=["unsorted", "repeated"])
def test_an_enum_of_unsorted_or_repeated_values_cannot_be_built(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="sorted and distinct"):
        EnumType(values)


def test_a_list_of_blobs_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no list of Blob"):
        ListType(Scalar.BLOB)


@each_case(
    ("base", "scalar"),
    [
        (ScalarType(Scalar.DATE), Scalar.DATE),
        (EnumType(("a",)), Scalar.STRING),
        (ListType(Scalar.I32), None),
        (VectorType(2), None),
    ],
    ids=str,
)
def test_values_compare_as_their_scalar(base: BaseType, scalar: Scalar | None) -> None:
    assert scalar_of(base) is scalar
