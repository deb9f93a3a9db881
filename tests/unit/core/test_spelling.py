from __future__ import annotations

import math
import struct

import pytest

from omnigraph.core.types import BaseType, EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.core.values import StoredValue, canonical_spelling, parse_spelling
from support.subtests import each_case


def f32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


STRING, BOOL = ScalarType(Scalar.STRING), ScalarType(Scalar.BOOL)
I32, I64, U32, U64 = (ScalarType(item) for item in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64))
F32, F64 = ScalarType(Scalar.F32), ScalarType(Scalar.F64)
DATE, DATETIME, BLOB = (ScalarType(item) for item in (Scalar.DATE, Scalar.DATETIME, Scalar.BLOB))

SPELLINGS: list[tuple[BaseType, StoredValue, str]] = [
    (STRING, "10.5/a1", "10.5/a1"),
    (STRING, "", ""),
    (STRING, ' "x" ', ' "x" '),
    (EnumType(("a", "b")), "b", "b"),
    (I32, -2147483648, "-2147483648"),
    (I64, 0, "0"),
    (U32, 4294967295, "4294967295"),
    (U64, 18446744073709551615, "18446744073709551615"),
    (BOOL, True, "true"),
    (BOOL, False, "false"),
    (DATE, -1, "-1"),
    (DATE, 19782, "19782"),
    (DATETIME, 1709210096789, "1709210096789"),
    (F64, 1.0, "1"),
    (F64, 0.1, "0.1"),
    (F64, -2.5, "-2.5"),
    (F64, 0.0, "0"),
    (F64, 100.0, "100"),
    (F64, 1e21, "1000000000000000000000"),
    (F64, 1e-7, "0.0000001"),
    (F64, 0.1 + 0.2, "0.30000000000000004"),
    (F64, 5e-324, "0." + "0" * 323 + "5"),
    (F64, 1.7976931348623157e308, "17976931348623157" + "0" * 292),
    (F64, 9007199254740993.0, "9007199254740992"),
    (F32, 1.0, "1"),
    (F32, f32(0.1), "0.1"),
    (F32, f32(0.3), "0.3"),
    (F32, 16777216.0, "16777216"),
    (F32, f32(1e10), "10000000000"),
    (F32, f32(3.4028235e38), "34028235" + "0" * 31),
    (F32, f32(1e-45), "0." + "0" * 44 + "1"),
    (F32, -0.5, "-0.5"),
    # Powers of two, where the interval of rounding is narrower below than above.
    (F32, 2.0**-96, "0." + "0" * 28 + "12621775"),
    (F32, 2.0**87, "15474251" + "0" * 19),
    (F32, 2.0**90, "12379401" + "0" * 20),
]


@each_case(("base", "value", "text"), SPELLINGS, ids=str)
def test_a_stored_value_has_its_canonical_spelling(
    base: BaseType, value: StoredValue, text: str
) -> None:
    assert canonical_spelling(base, value) == text


@each_case(("base", "value", "text"), SPELLINGS, ids=str)
def test_a_canonical_spelling_is_read_back(base: BaseType, value: StoredValue, text: str) -> None:
    assert parse_spelling(base, text) == value


@pytest.mark.parametrize("base", [F32, F64], ids=str)
def test_both_zeros_are_spelled_alike(base: BaseType) -> None:
    assert canonical_spelling(base, -0.0) == canonical_spelling(base, 0.0) == "0"


@each_case("base", [F32, F64], ids=str)
@each_case("value", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_not_finite_has_no_spelling(base: BaseType, value: float) -> None:
    with pytest.raises(ValueError, match="has no spelling"):
        canonical_spelling(base, value)


@each_case(
    ("base", "value"),
    [
        (ListType(Scalar.I32), (1,)),
        (VectorType(1), (1.0,)),
        (BLOB, b"x"),
        (BLOB, 5),
        (STRING, None),
        (STRING, 5),
        (I32, True),
        (BOOL, 1),
    ],
    ids=str,
)
def test_a_value_of_a_type_without_spelling_is_refused(base: BaseType, value: StoredValue) -> None:
    with pytest.raises(ValueError, match="has no spelling"):
        canonical_spelling(base, value)


@each_case(
    ("base", "text"),
    [
        (I32, "+1"),
        (I32, "01"),
        (I32, "-0"),
        (I32, "1.0"),
        (I32, " 1"),
        (I32, ""),
        (I32, "x"),
        (I32, "2147483648"),
        (U32, "-1"),
        (U64, "18446744073709551616"),
        (I64, "9" * 5000),
        (BOOL, "True"),
        (BOOL, "1"),
        (BOOL, ""),
        (F64, "1.0"),
        (F64, "1e3"),
        (F64, "-0"),
        (F64, ".5"),
        (F64, "nan"),
        (F64, "inf"),
        (F64, "1_0"),
        (F64, ""),
        (F64, "x"),
        (F64, "0.1000000000000000055"),
        (F32, "0.10000000149011612"),
        (F32, "1" + "0" * 60),
        (DATE, "1970-01-01"),
        (DATETIME, "1970-01-01T00:00:00Z"),
        (EnumType(("a", "b")), "c"),
        (BLOB, "x"),
        (ListType(Scalar.STRING), "x"),
        (VectorType(1), "1"),
    ],
    ids=str,
)
def test_a_text_that_no_value_spells_is_refused(base: BaseType, text: str) -> None:
    with pytest.raises(ValueError):
        parse_spelling(base, text)


@each_case("bits", range(0x00800000, 0x7F800000, 0x01F51F3B))
def test_the_spelling_of_a_32_bit_float_is_read_back(bits: int) -> None:
    value = struct.unpack("f", struct.pack("I", bits))[0]

    assert parse_spelling(F32, canonical_spelling(F32, value)) == value
