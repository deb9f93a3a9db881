from __future__ import annotations

import pyarrow as pa

from omnigraph.core.arrow import arrow_field, arrow_type
from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from support.subtests import each_case

SCALARS = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    Scalar.BLOB: pa.large_binary(),
}


def test_every_scalar_is_mapped() -> None:
    assert set(SCALARS) == set(Scalar)


@each_case(("scalar", "expected"), SCALARS.items(), ids=[item.value for item in SCALARS])
def test_a_scalar_is_stored_as_its_arrow_type(scalar: Scalar, expected: pa.DataType) -> None:
    assert arrow_type(ScalarType(scalar)) == expected


@each_case(
    "scalar", [item for item in Scalar if item is not Scalar.BLOB], ids=lambda item: item.value
)
def test_a_list_is_stored_as_a_list_whose_elements_may_be_null(scalar: Scalar) -> None:
    stored = arrow_type(ListType(scalar))

    assert pa.types.is_list(stored)
    assert stored.value_type == SCALARS[scalar]
    assert stored.value_field.nullable


def test_a_vector_is_stored_as_a_fixed_size_list_of_floats() -> None:
    stored = arrow_type(VectorType(8))

    assert pa.types.is_fixed_size_list(stored)
    assert (stored.list_size, stored.value_type) == (8, pa.float32())
    assert stored.value_field.nullable


def test_an_enum_is_stored_as_text() -> None:
    assert arrow_type(EnumType(("a", "b"))) == pa.utf8()


@each_case("nullable", [False, True], ids=["required", "nullable"])
@each_case(
    "base", [ScalarType(Scalar.I32), ListType(Scalar.I32), VectorType(2), EnumType(("a",))], ids=str
)
def test_a_field_carries_name_and_nullability(base: BaseType, nullable: bool) -> None:
    field = arrow_field("camelCase", PropertyType(base, nullable))

    assert (field.name, field.nullable, field.type) == ("camelCase", nullable, arrow_type(base))
