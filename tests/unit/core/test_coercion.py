from __future__ import annotations

import math

import pytest

from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.core.values import (
    StoredValue,
    coerce_json,
    coerce_scalar,
    parse_date,
    parse_datetime,
    parse_decimal_integer,
    quote,
    render_value,
    to_f32,
)
from support.subtests import each_case

F32_MAX = 3.4028234663852886e38
#: Halfway between the largest F32 and the next power of two: from here on rounding gives infinity.
F32_OVERFLOW = 3.4028235677973366e38
HUGE = 10**400


@each_case(
    ("scalar", "value", "stored"),
    [
        (Scalar.I32, 3.0, 3),
        (Scalar.I32, -0.0, 0),
        (Scalar.STRING, "naïve 知识", "naïve 知识"),
    ],
)
def test_a_value_that_fits_is_stored(scalar: Scalar, value: object, stored: StoredValue) -> None:
    found = coerce_scalar(scalar, value)

    assert (type(found), found) == (type(stored), stored)


@each_case(
    ("scalar", "value"),
    [
        (Scalar.I32, "1"),
        (Scalar.I32, None),
        (Scalar.STRING, b"x"),
        (Scalar.STRING, "\ud800"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(scalar: Scalar, value: object) -> None:
    with pytest.raises(ValueError):
        coerce_scalar(scalar, value)


def test_a_refused_integer_of_thousands_of_digits_is_explained() -> None:
    with pytest.raises(ValueError, match="out of range for I64"):
        coerce_scalar(Scalar.I64, 10**5000)


@each_case(
    ("scalar", "value", "message"),
    [
        (Scalar.I32, 2147483648, "2147483648 is out of range for I32 (-2147483648 to 2147483647)"),
        (Scalar.U32, 1.5, "1.5 is not an integer, as U32 needs"),
        (Scalar.F32, 1e39, "is not a finite F32"),
        (Scalar.BOOL, "yes", '"yes" is not a Bool'),
        (Scalar.STRING, 3, "3 is not a String"),
    ],
)
def test_a_refusal_names_value_and_type(scalar: Scalar, value: object, message: str) -> None:
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
        "",
        "2024",
        "2024-1-1",
        "2023-02-29",
        "2024-13-01",
        "0000-01-01",
        "20240101",
        "2024-W01-1",
        " 2024-01-01",
        "2024-01-01 ",
        "2024-01-01T00:00:00Z",
        "٢٠٢٤-٠١-٠١",
        "10000-01-01",
        "-001-01-01",
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
        "",
        "1970-01-01",
        "1970-01-01T00",
        "1970-01-01T00:00:00.0001Z",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T24:00:00Z",
        "1970-01-01T00:60:00Z",
        "1970-01-01T00:00:60Z",
        "1970-02-30T00:00:00Z",
        "1970-01-01T00:00:00z",
        "1970-01-01t00:00:00Z",
        "1970-01-01T00:00:00+25:00",
        "1970-01-01T00:00:00 Z",
        "1970-01-01T00:00:00+01",
        "now",
        "0",
    ],
)
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|is finer than milliseconds"):
        parse_datetime(text)


@each_case(
    ("base", "value", "stored"),
    [
        pytest.param(ListType(Scalar.I32), [1, 2.0], (1, 2), id="list"),
        pytest.param(ListType(Scalar.I32), (), (), id="empty list"),
        pytest.param(ListType(Scalar.DATE), ["1970-01-02"], (1,), id="list of dates"),
        pytest.param(ListType(Scalar.STRING), ["a", None], ("a", None), id="null element"),
        pytest.param(VectorType(2), [1, 0.5], (1.0, 0.5), id="vector"),
        pytest.param(VectorType(1), [0.1], (0.10000000149011612,), id="vector at 32 bits"),
        pytest.param(EnumType(("a", "b")), "b", "b", id="enum"),
        pytest.param(ScalarType(Scalar.BOOL), True, True, id="scalar"),
    ],
)
@each_case("nullable", [False, True], ids=["required", "nullable"])
def test_a_json_value_that_fits_is_stored(
    base: BaseType, value: object, stored: StoredValue, nullable: bool
) -> None:
    assert coerce_json(PropertyType(base, nullable), value) == stored


@each_case(
    ("base", "value"),
    [
        pytest.param(ListType(Scalar.I32), 1, id="no list"),
        pytest.param(ListType(Scalar.STRING), "ab", id="a text is no list"),
        pytest.param(ListType(Scalar.I32), {"a": 1}, id="an object is no list"),
        pytest.param(ListType(Scalar.I32), [1, "2"], id="wrong element"),
        pytest.param(ListType(Scalar.I32), [[1]], id="list in a list"),
        pytest.param(VectorType(2), [1], id="too short"),
        pytest.param(VectorType(2), [1, 2, 3], id="too long"),
        pytest.param(VectorType(2), [1, None], id="null item"),
        pytest.param(VectorType(2), [1, math.nan], id="item is NaN"),
        pytest.param(VectorType(2), [1, 1e39], id="item beyond 32 bits"),
        pytest.param(VectorType(2), [1, True], id="item is a boolean"),
        pytest.param(VectorType(2), "ab", id="a text is no vector"),
        pytest.param(EnumType(("a", "b")), "c", id="no value of the enum"),
        pytest.param(EnumType(("a", "b")), "A", id="other case"),
        pytest.param(EnumType(("a", "b")), 1, id="number for an enum"),
    ],
)
def test_a_json_value_that_does_not_fit_is_refused(base: BaseType, value: object) -> None:
    with pytest.raises(ValueError):
        coerce_json(PropertyType(base, True), value)


@each_case(
    "base",
    [ScalarType(Scalar.STRING), EnumType(("a",)), ListType(Scalar.I32), VectorType(2)],
    ids=str,
)
def test_null_fits_a_nullable_type_and_no_other(base: BaseType) -> None:
    assert coerce_json(PropertyType(base, True), None) is None
    with pytest.raises(ValueError, match="null does not fit"):
        coerce_json(PropertyType(base, False), None)


def test_a_refused_enum_value_lists_the_others() -> None:
    with pytest.raises(ValueError, match="is not one of draft, final"):
        coerce_json(PropertyType(EnumType(("draft", "final"))), "x")


@each_case(
    ("value", "stored"),
    [(0.1, 0.10000000149011612), (1.0, 1.0), (-1e39, -math.inf), (F32_OVERFLOW, math.inf)],
)
def test_rounding_to_32_bits_is_to_nearest_and_overflows_to_infinity(
    value: float, stored: float
) -> None:
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
def test_a_stored_value_is_rendered_as_in_a_query(
    base: BaseType, value: StoredValue, text: str
) -> None:
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
