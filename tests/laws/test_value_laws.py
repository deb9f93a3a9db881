"""Laws of stored values: spellings inside ids, coercion, and their way through Arrow."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_field, arrow_type
from omnigraph.core.ids import derive_id, split_id
from omnigraph.core.types import (
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    integer_range,
)
from omnigraph.core.values import (
    canonical_spelling,
    coerce_json,
    coerce_scalar,
    parse_date,
    parse_datetime,
    parse_spelling,
    render_date,
    render_datetime,
    to_f32,
)
from support.strategies import (
    KEY_SCALARS,
    attempt,
    f32_values,
    f64_values,
    json_values,
    keys,
    stored_scalars,
    typed_values,
)
from support.subtests import each_case

INTEGERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


@pytest.mark.parametrize("scalar", KEY_SCALARS)
@settings(max_examples=60)
@given(data=st.data())
def test_a_spelling_reads_back_as_the_value_it_spells(scalar, data) -> None:
    value = data.draw(stored_scalars(scalar))
    spelling = canonical_spelling(ScalarType(scalar), value)
    again = parse_spelling(ScalarType(scalar), spelling)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("scalar", KEY_SCALARS)
@settings(max_examples=60)
@given(data=st.data())
def test_distinct_values_have_distinct_spellings(scalar, data) -> None:
    first, second = (data.draw(stored_scalars(scalar)) for _ in range(2))
    base = ScalarType(scalar)
    same = canonical_spelling(base, first) == canonical_spelling(base, second)
    assert same == (first == second)


@settings(max_examples=150)
@given(f64_values | f32_values)
def test_a_float_is_spelled_in_positional_notation_without_waste(value) -> None:
    text = canonical_spelling(ScalarType(Scalar.F64), value)
    assert set(text) <= set("-0123456789.")
    assert not text.endswith(".")
    assert "." not in text or not text.endswith("0")
    assert text == "0" or not text.lstrip("-").startswith("00")
    assert float(text) == value


@settings(max_examples=150)
@given(f32_values)
def test_a_small_float_is_spelled_at_its_own_width(value) -> None:
    text = canonical_spelling(ScalarType(Scalar.F32), value)
    assert to_f32(float(text)) == value
    digits = len(text.replace("-", "").replace(".", "").strip("0"))
    assert digits <= 9


@each_case("scalar", [Scalar.F32, Scalar.F64])
@each_case("value", [math.inf, -math.inf, math.nan])
def test_a_float_that_is_not_finite_has_no_spelling(scalar, value) -> None:
    with pytest.raises(ValueError):
        canonical_spelling(ScalarType(scalar), value)


@pytest.mark.parametrize("scalar", KEY_SCALARS)
@settings(max_examples=80)
@given(
    text=st.text(max_size=6)
    | st.sampled_from(
        ["", "0", "-0", "00", "+1", "1.0", "1e3", "inf", "nan", "1_0", " 1", "١", "9" * 5000]
    )
    | st.integers().map(str)
    | st.floats().map(str)
)
def test_only_canonical_spellings_read_back(scalar, text) -> None:
    base = ScalarType(scalar)
    try:
        value = parse_spelling(base, text)
    except ValueError:
        return
    assert canonical_spelling(base, value) == text


@each_case("scalar", INTEGERS)
def test_a_spelling_outside_the_range_of_its_integer_type_is_refused(scalar) -> None:
    low, high = integer_range(scalar)
    assert parse_spelling(ScalarType(scalar), str(low)) == low
    assert parse_spelling(ScalarType(scalar), str(high)) == high
    for outside in (low - 1, high + 1):
        with pytest.raises(ValueError):
            parse_spelling(ScalarType(scalar), str(outside))


def test_a_spelling_that_is_no_value_of_its_enum_is_refused() -> None:
    enum = EnumType(("a", "b"))
    assert parse_spelling(enum, "a") == "a"
    with pytest.raises(ValueError):
        parse_spelling(enum, "c")


@settings(max_examples=200)
@given(keys())
def test_keys_have_the_same_id_exactly_when_their_values_are_equal(key) -> None:
    bases, first, second = key

    def identify(values: list[object]) -> str:
        pairs = zip(bases, values, strict=True)
        return derive_id([canonical_spelling(base, value) for base, value in pairs])

    assert (identify(first) == identify(second)) == (first == second)


@settings(max_examples=200)
@given(keys())
def test_an_id_splits_into_the_spellings_and_values_it_was_derived_from(key) -> None:
    bases, values, _ = key
    pairs = zip(bases, values, strict=True)
    spellings = [canonical_spelling(base, value) for base, value in pairs]
    parts = split_id(derive_id(spellings), len(bases))
    assert list(parts) == spellings
    again = [parse_spelling(base, part) for base, part in zip(bases, parts, strict=True)]
    assert again == values


@settings(max_examples=150)
@given(st.text(max_size=12) | json_values.map(str), st.integers(2, 3))
def test_a_text_that_is_no_composite_id_is_refused(text, count) -> None:
    try:
        parts = split_id(text, count)
    except ValueError:
        return
    assert derive_id(parts) == text


@each_case("text", ['["a", "b"]', ' ["a","b"]', '["\\u00e9","b"]', '["a","b"]\n'])
def test_only_the_canonical_form_of_a_composite_id_is_an_id(text) -> None:
    with pytest.raises(ValueError):
        split_id(text, 2)


def test_a_deeply_nested_text_is_no_composite_id() -> None:
    with pytest.raises(ValueError):
        split_id("[" * 100_000, 2)


# ---- coercion


def _is_moment(base) -> bool:
    scalar = base.scalar if isinstance(base, ScalarType) else getattr(base, "item", None)
    return scalar in (Scalar.DATE, Scalar.DATETIME)


@settings(max_examples=200)
@given(typed_values())
def test_a_stored_value_is_a_fixed_point_of_coercion(typed) -> None:
    type_, value = typed
    assume(not _is_moment(type_.base))
    again = coerce_json(type_, value)
    assert again == value
    assert type(again) is type(value)


@settings(max_examples=200)
@given(
    st.sampled_from(Scalar).map(ScalarType)
    | st.sampled_from(KEY_SCALARS).map(ListType)
    | st.integers(1, 3).map(VectorType)
    | st.just(EnumType(("a", "b"))),
    st.booleans(),
    json_values,
)
def test_coercion_gives_a_storable_value_or_a_value_error(base, nullable, value) -> None:
    type_ = PropertyType(base, nullable)
    stored, refusal = attempt(ValueError, coerce_json, type_, value)
    if refusal is not None:
        assert str(refusal)
        return
    if base == ScalarType(Scalar.BLOB):
        assert stored is None or isinstance(stored, str)
        return
    column = pa.array([stored], arrow_type(base))
    assert column.null_count == (stored is None)


def test_text_that_no_storage_can_hold_is_refused() -> None:
    with pytest.raises(ValueError):
        coerce_json(PropertyType(ScalarType(Scalar.STRING)), "a\ud800b")


@pytest.mark.parametrize("scalar", INTEGERS)
@settings(max_examples=60)
@given(value=st.integers() | st.floats(allow_nan=False))
def test_an_integer_is_taken_exactly_or_not_at_all(scalar, value) -> None:
    low, high = integer_range(scalar)
    fits = (
        value in range(low, high + 1)
        if isinstance(value, int)
        else (value.is_integer() and low <= value <= high)
    )
    if not fits:
        with pytest.raises(ValueError):
            coerce_scalar(scalar, value)
        return
    assert coerce_scalar(scalar, value) == value


@settings(max_examples=150)
@given(f64_values)
def test_a_small_float_is_judged_after_rounding(value) -> None:
    expected = pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py()
    if math.isinf(expected):
        with pytest.raises(ValueError):
            coerce_scalar(Scalar.F32, value)
    else:
        assert coerce_scalar(Scalar.F32, value) == expected


@settings(max_examples=150)
@given(stored_scalars(Scalar.DATE))
def test_a_date_reads_back_from_its_text(days) -> None:
    text = render_date(days)
    assert parse_date(text) == days
    assert coerce_scalar(Scalar.DATE, text) == days


@settings(max_examples=150)
@given(stored_scalars(Scalar.DATETIME))
def test_a_moment_reads_back_from_its_text(milliseconds) -> None:
    text = render_datetime(milliseconds)
    assert len(text) == 24
    assert parse_datetime(text) == milliseconds


@settings(max_examples=150)
@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),
    st.integers(0, 9),
    st.sampled_from(["T", " "]),
    st.none() | st.integers(-14 * 60, 14 * 60),
    st.booleans(),
)
def test_every_spelling_of_one_moment_means_the_same(moment, digits, glue, offset, colon) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    text = f"{moment:%H:%M:%S}"
    if digits:
        fraction = f"{moment.microsecond * 1000:09d}"[:digits]
        moment = moment.replace(microsecond=int(fraction[:6].ljust(6, "0")))
        text += f".{fraction}"
    else:
        moment = moment.replace(microsecond=0)
    text = f"{moment.date().isoformat()}{glue}{text}"
    zone = UTC
    if offset is not None:
        zone = timezone(timedelta(minutes=offset))
        sign, size = ("-" if offset < 0 else "+"), abs(offset)
        text += f"{sign}{size // 60:02d}{':' if colon else ''}{size % 60:02d}"
    expected = (moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
    assert parse_datetime(text) == expected


# ---- Arrow


def _come_back(base, column: pa.Array) -> object:
    match base:
        case ScalarType(Scalar.DATE):
            return column.view(pa.int32())[0].as_py()
        case ScalarType(Scalar.DATETIME):
            return column.view(pa.int64())[0].as_py()
        case ListType(Scalar.DATE | Scalar.DATETIME as item):
            if column[0].as_py() is None:
                return None
            plain = pa.int32() if item is Scalar.DATE else pa.int64()
            return tuple(column.flatten().view(plain).to_pylist())
        case ListType() | VectorType():
            items = column[0].as_py()
            return None if items is None else tuple(items)
    return column[0].as_py()


@settings(max_examples=250)
@given(typed_values())
def test_a_stored_value_comes_back_from_arrow(typed) -> None:
    type_, value = typed
    column = pa.array([value], arrow_type(type_.base))
    assert column.type == arrow_type(type_.base)
    assert _come_back(type_.base, column) == value


@settings(max_examples=80)
@given(typed_values())
def test_the_arrow_field_of_a_property_is_nullable_exactly_when_the_property_is(typed) -> None:
    type_, _ = typed
    field = arrow_field("p", type_)
    assert (field.name, field.nullable) == ("p", type_.nullable)
