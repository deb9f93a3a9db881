from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_field, arrow_type
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
from omnigraph.core.values import (
    ADDRESS_MARK,
    MARK,
    StoredValue,
    blob_text,
    canonical_spelling,
    coerce_json,
    coerce_scalar,
    managed_bytes,
    managed_cell,
    parse_date,
    parse_datetime,
    parse_decimal_integer,
    parse_spelling,
    quote,
    reference_cell,
    reference_of,
    render_value,
    to_f32,
)
from support.subtests import each_case, named_cases

F32_MAX = 3.4028234663852886e38
#: Halfway between the largest F32 and the next power of two: from here on rounding gives infinity.
F32_OVERFLOW = 3.4028235677973366e38
HUGE = 10**400


@each_case(
    ("scalar", "value", "stored"),
    [(Scalar.I32, 3.0, 3), (Scalar.I32, -0.0, 0), (Scalar.STRING, "naïve 知识", "naïve 知识")],
)
def test_a_value_that_fits_is_stored(scalar: Scalar, value: object, stored: StoredValue) -> None:
    found = coerce_scalar(scalar, value)

    assert (type(found), found) == (type(stored), stored)


@each_case(
    ("scalar", "value", "message"),
    [
        (Scalar.I32, "1", "I32"),
        (Scalar.I32, None, "I32"),
        (Scalar.STRING, b"x", "String"),
        (Scalar.STRING, "\ud800", ""),
        pytest.param(Scalar.I64, 10**5000, "out of range for I64", id="5000 digits"),
        (Scalar.I32, 2147483648, "2147483648 is out of range for I32 (-2147483648 to 2147483647)"),
        (Scalar.U32, 1.5, "1.5 is not an integer, as U32 needs"),
        (Scalar.F32, 1e39, "is not a finite F32"),
        (Scalar.BOOL, "yes", '"yes" is not a Bool'),
        (Scalar.STRING, 3, "3 is not a String"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_value_and_type(scalar: Scalar, value: object, message: str) -> None:
    with pytest.raises(ValueError) as failure:
        coerce_scalar(scalar, value)

    assert message in str(failure.value)


@each_case(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1970-01-02", 1),
        ("1969-12-31", -1),
        ("2024-02-29", 19782),
        ("0001-01-01", -719162),
        ("9999-12-31", 2932896),
    ],
)
def test_a_date_is_its_epoch_day(text: str, days: int) -> None:
    assert parse_date(text) == days


@each_case(
    "text",
    [
        *("", "2024", "2024-1-1", "2023-02-29", "2024-13-01", "0000-01-01", "20240101", "2024-W01-1", " 2024-01-01"),
        *("2024-01-01 ", "2024-01-01T00:00:00Z", "٢٠٢٤-٠١-٠١", "10000-01-01", "-001-01-01"),
    ],
)
def test_a_text_that_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a da"):
        parse_date(text)


@each_case(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.120Z", 120),
        ("1970-01-01T00:00:00.001000000Z", 1),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T00:01", 60000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("2024-02-29T12:34:56.789Z", 1709210096789),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_a_time_is_its_epoch_millisecond_in_utc(text: str, milliseconds: int) -> None:
    assert parse_datetime(text) == milliseconds


@each_case(
    "text",
    [
        *("", "1970-01-01", "1970-01-01T00", "1970-01-01T00:00:00.0001Z", "1970-01-01T00:00:00.Z"),
        *("1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:60Z", "1970-02-30T00:00:00Z"),
        *("1970-01-01T00:00:00z", "1970-01-01t00:00:00Z", "1970-01-01T00:00:00+25:00", "1970-01-01T00:00:00 Z"),
        *("1970-01-01T00:00:00+01", "1970-01-01T00:00:00+01:60", "1970-01-01T00:00:00-0199", "now", "0"),
    ],
)
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|is finer than milliseconds"):
        parse_datetime(text)


@named_cases(
    ("base", "value", "stored"),
    {
        "list": (ListType(Scalar.I32), [1, 2.0], (1, 2)),
        "empty list": (ListType(Scalar.I32), (), ()),
        "list of dates": (ListType(Scalar.DATE), ["1970-01-02"], (1,)),
        "null element": (ListType(Scalar.STRING), ["a", None], ("a", None)),
        "vector": (VectorType(2), [1, 0.5], (1.0, 0.5)),
        "vector at 32 bits": (VectorType(1), [0.1], (0.10000000149011612,)),
        "enum": (EnumType(("a", "b")), "b", "b"),
        "scalar": (ScalarType(Scalar.BOOL), True, True),
    },
)
@each_case("nullable", [False, True], ids=["required", "nullable"])
def test_a_json_value_that_fits_is_stored(base: BaseType, value: object, stored: StoredValue, nullable: bool) -> None:
    assert coerce_json(PropertyType(base, nullable), value) == stored


@named_cases(
    ("base", "value"),
    {
        "no list": (ListType(Scalar.I32), 1),
        "a text is no list": (ListType(Scalar.STRING), "ab"),
        "an object is no list": (ListType(Scalar.I32), {"a": 1}),
        "wrong element": (ListType(Scalar.I32), [1, "2"]),
        "list in a list": (ListType(Scalar.I32), [[1]]),
        "too short": (VectorType(2), [1]),
        "too long": (VectorType(2), [1, 2, 3]),
        "null item": (VectorType(2), [1, None]),
        "item is NaN": (VectorType(2), [1, math.nan]),
        "item beyond 32 bits": (VectorType(2), [1, 1e39]),
        "item is a boolean": (VectorType(2), [1, True]),
        "a text is no vector": (VectorType(2), "ab"),
        "no value of the enum": (EnumType(("a", "b")), "c"),
        "other case": (EnumType(("a", "b")), "A"),
        "number for an enum": (EnumType(("a", "b")), 1),
    },
)
def test_a_json_value_that_does_not_fit_is_refused(base: BaseType, value: object) -> None:
    with pytest.raises(ValueError):
        coerce_json(PropertyType(base, True), value)


@each_case("base", [ScalarType(Scalar.STRING), EnumType(("a",)), ListType(Scalar.I32), VectorType(2)], ids=str)
def test_null_fits_a_nullable_type_and_no_other(base: BaseType) -> None:
    assert coerce_json(PropertyType(base, True), None) is None
    with pytest.raises(ValueError, match="null does not fit"):
        coerce_json(PropertyType(base, False), None)


def test_a_refused_enum_value_lists_the_others() -> None:
    with pytest.raises(ValueError, match="is not one of draft, final"):
        coerce_json(PropertyType(EnumType(("draft", "final"))), "x")


@each_case(("value", "stored"), [(0.1, 0.10000000149011612), (1.0, 1.0), (-1e39, -math.inf), (F32_OVERFLOW, math.inf)])
def test_rounding_to_32_bits_is_to_nearest_and_overflows_to_infinity(value: float, stored: float) -> None:
    assert to_f32(value) == stored


@each_case(
    ("base", "value", "text"),
    [
        (ScalarType(Scalar.STRING), 'a "b"\n', '"a \\"b\\"\\n"'),
        (ScalarType(Scalar.BOOL), True, "true"),
        (ScalarType(Scalar.I64), -3, "-3"),
        (ScalarType(Scalar.F64), 1e22, "10000000000000000000000"),
        (ScalarType(Scalar.F64), 2.0, "2"),
        (ScalarType(Scalar.DATE), 1, 'date("1970-01-02")'),
        (ScalarType(Scalar.DATE), 10**9, 'date("1000000000")'),
        (ScalarType(Scalar.DATETIME), -1, 'datetime("1969-12-31T23:59:59.999Z")'),
        (ScalarType(Scalar.DATETIME), -62135596800000, 'datetime("0001-01-01T00:00:00.000Z")'),
        (ListType(Scalar.STRING), ("a", None), '["a", null]'),
        (VectorType(2), (0.5, 1.0), "[0.5, 1]"),
        (EnumType(("a",)), "a", '"a"'),
        (EnumType(("a",)), None, "null"),
    ],
)
def test_a_stored_value_is_rendered_as_in_a_query(base: BaseType, value: StoredValue, text: str) -> None:
    assert render_value(base, value) == text


@each_case("text", ["", "a", '"', "\\", "\n\r\t", "\\n", '\\"', "知识"])
def test_a_quoted_text_is_read_back(text: str) -> None:
    from omnigraph.lang.parsing import unescape

    assert unescape(quote(text), 0) == text


@each_case(("text", "value"), [("0", 0), ("-5", -5), ("9223372036854775808", 2**63), ("007", 7)])
def test_a_decimal_text_is_an_integer(text: str, value: int) -> None:
    assert parse_decimal_integer(text) == value


@each_case("text", ["", "+5", "1.0", "1e3", "0x1", "1_000", " 1", "١", "9" * 5000])
def test_any_other_text_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError, match="is not a decimal integer"):
        parse_decimal_integer(text)


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
    (F64, -0.0, "0"),
    (F32, -0.0, "0"),
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
def test_a_stored_value_has_its_canonical_spelling_and_is_read_back(
    base: BaseType, value: StoredValue, text: str
) -> None:
    assert canonical_spelling(base, value) == text
    assert parse_spelling(base, text) == value


@each_case(
    ("base", "value"),
    [
        *((base, value) for base in (F32, F64) for value in (math.nan, math.inf, -math.inf)),
        *((ListType(Scalar.I32), (1,)), (VectorType(1), (1.0,)), (BLOB, b"x"), (BLOB, 5)),
        *((STRING, None), (STRING, 5), (I32, True), (BOOL, 1)),
    ],
    ids=str,
)
def test_a_value_without_spelling_is_refused(base: BaseType, value: StoredValue) -> None:
    with pytest.raises(ValueError, match="has no spelling"):
        canonical_spelling(base, value)


@each_case(
    ("base", "texts"),
    [
        (I32, ["+1", "01", "-0", "1.0", " 1", "", "x", "2147483648"]),
        (U32, ["-1"]),
        (U64, ["18446744073709551616"]),
        (I64, ["9" * 5000]),
        (BOOL, ["True", "1", ""]),
        (F64, ["1.0", "1e3", "-0", ".5", "nan", "inf", "1_0", "", "x", "0.1000000000000000055"]),
        (F32, ["0.10000000149011612", "1" + "0" * 60]),
        (DATE, ["1970-01-01"]),
        (DATETIME, ["1970-01-01T00:00:00Z"]),
        (EnumType(("a", "b")), ["c"]),
        (BLOB, ["x"]),
        (ListType(Scalar.STRING), ["x"]),
        (VectorType(1), ["1"]),
    ],
    ids=str,
)
def test_a_text_that_no_value_spells_is_refused(base: BaseType, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError):
            parse_spelling(base, text)


@each_case("bits", range(0x00800000, 0x7F800000, 0x01F51F3B))
def test_the_spelling_of_a_32_bit_float_is_read_back(bits: int) -> None:
    value = struct.unpack("f", struct.pack("I", bits))[0]

    assert parse_spelling(F32, canonical_spelling(F32, value)) == value


def test_there_are_eleven_scalars() -> None:
    assert {scalar.value for scalar in Scalar} == {
        *("String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "DateTime", "Date")
    }
    assert NUMERICS == INTEGERS | FLOATS
    assert {Scalar.F32, Scalar.F64} == FLOATS


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


@named_cases(
    ("make", "why"),
    {
        "a vector of no dimension": (lambda: VectorType(0), "out of range"),
        "a vector of a negative dimension": (lambda: VectorType(-1), "out of range"),
        "a vector beyond the limit": (lambda: VectorType(MAX_VECTOR_DIMENSION + 1), "out of range"),
        "an enum of unsorted values": (lambda: EnumType(("b", "a")), "sorted and distinct"),
        "an enum of repeated values": (lambda: EnumType(("a", "a")), "sorted and distinct"),
        "a list of blobs": (lambda: ListType(Scalar.BLOB), "no list of Blob"),
    },
)
def test_a_type_that_makes_no_sense_cannot_be_built(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


@each_case("dimension", [1, MAX_VECTOR_DIMENSION])
def test_a_vector_has_one_to_the_limit_of_dimensions(dimension: int) -> None:
    assert VectorType(dimension).dimension == dimension


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


def test_a_scalar_is_stored_as_its_arrow_type() -> None:
    assert {scalar: arrow_type(ScalarType(scalar)) for scalar in Scalar} == SCALARS
    assert arrow_type(EnumType(("a", "b"))) == pa.utf8()


@each_case("scalar", [item for item in Scalar if item is not Scalar.BLOB], ids=lambda item: item.value)
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


@each_case("nullable", [False, True], ids=["required", "nullable"])
@each_case("base", [ScalarType(Scalar.I32), ListType(Scalar.I32), VectorType(2), EnumType(("a",))], ids=str)
def test_a_field_carries_name_and_nullability(base: BaseType, nullable: bool) -> None:
    field = arrow_field("camelCase", PropertyType(base, nullable))

    assert (field.name, field.nullable, field.type) == ("camelCase", nullable, arrow_type(base))


# ---- Cells of blobs: bytes and addresses are never taken for each other


#: Bytes, and bytes made to look like something else.
BYTES = st.binary() | st.builds(
    lambda begin, rest: begin + rest,
    st.sampled_from([MARK, MARK[:-1], ADDRESS_MARK, MARK + b"b", MARK * 2]),
    st.binary(max_size=20),
)


@given(BYTES)
def test_bytes_come_back_and_are_no_address(data: bytes) -> None:
    assert managed_bytes(managed_cell(data)) == data
    assert reference_of(managed_cell(data)) is None


@given(st.text(min_size=1))
def test_an_address_comes_back(uri: str) -> None:
    assert reference_of(reference_cell(uri)) == uri


@given(BYTES, BYTES)
def test_different_bytes_have_different_cells(one: bytes, other: bytes) -> None:
    assert (managed_cell(one) == managed_cell(other)) == (one == other)


def test_a_cell_is_spelled_as_a_load_reads_it() -> None:
    assert blob_text(managed_cell(MARK)) == "base64:1sFPDpo7Tl2PJ7FgWsl+NA=="
    assert blob_text(reference_cell("s3://b/k")) == "s3://b/k"
