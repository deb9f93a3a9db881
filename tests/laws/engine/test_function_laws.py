"""The kernels of functions and operators against the oracle, for columns and for values that all rows share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_type, stored_values
from omnigraph.core.types import BaseType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
from omnigraph.core.values import parse_date, parse_datetime, to_f32
from omnigraph.engine.values.arithmetic import calculate, negate
from omnigraph.engine.values.functions import apply
from omnigraph.lang.query.functions.arguments import Argument
from omnigraph.lang.query.functions.operand_types import arithmetic_type, negate_type
from omnigraph.lang.query.functions.table import MAX_DIGITS, UNITS, function_named, names
from support.engine_tables import column
from support.examples import examples
from support.oracle import functions as oracle

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# ---- values of types


#: Letters with one partner in the other case, white space of every kind, and characters of four bytes.
_ALPHABET = "abAB zZéÉжЖΩω012-+.,eE\t\n\x0b\x1c\x85\xa0\u1680\u2003\u2028\u3000𝔸🙂\u0301"
_texts = st.text(_ALPHABET, max_size=6) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_numbers = st.sampled_from(["0", "-0", "+7", "007", "1.5", "-2.5e3", "1e999", "5e-324", "1.", ".5", "", "١", "1_0"])
_number_texts = (
    _numbers
    | st.integers(-(10**20), 10**20).map(str)
    | st.integers(2**63 - 2, 2**63 + 1).flatmap(lambda n: st.sampled_from([str(n), str(-n), f"+000{n}"]))
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | _texts
)
_edge_floats = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    1e308,
    -1e308,
    5e-324,
    2.0**52 + 0.5,
    2.0**53,
    2.0**63,
    -(2.0**63),
]


def _integers(scalar: Scalar) -> st.SearchStrategy[int]:
    low, high = integer_range(scalar)
    edges = [low, low + 1, high - 1, high, 0, 1, min(2**31, high), min(2**32 - 1, high), min(2**53 + 1, high)]
    edges += [value for value in (-1, 2**63 - 1, 2**63, -(2**31)) if low <= value <= high]
    return st.sampled_from(edges) | st.integers(-9 if low else 0, 9) | st.integers(low, high)


_SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: _texts,
    Scalar.BOOL: st.booleans(),
    **{scalar: _integers(scalar) for scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)},
    Scalar.F64: st.sampled_from(_edge_floats)
    | st.integers(-(10**6), 10**6).map(lambda n: n / 1000)
    | st.floats(allow_nan=False, allow_infinity=False),
    Scalar.F32: st.sampled_from([0.0, -0.0, 0.5, to_f32(0.1), to_f32(3.4e38), to_f32(1e20), to_f32(1e-45)])
    | st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.DATE: st.sampled_from([date.min, date.max, date(2024, 2, 29), date(1970, 1, 1), date(1969, 12, 31)])
    | st.dates(),
    Scalar.DATETIME: st.sampled_from([-62135596800000, 253402300799999, -1, 0, 951782400000 - 1]).map(
        lambda milliseconds: _EPOCH + timedelta(milliseconds=milliseconds)
    )
    | st.datetimes(timezones=st.just(UTC)).map(lambda m: m.replace(microsecond=m.microsecond // 1000 * 1000)),
}


def _base(word: str) -> BaseType:
    if word.startswith("["):
        return ListType(Scalar(word[1:-1]))
    return VectorType(int(word[7:-1])) if word.startswith("Vector") else ScalarType(Scalar(word))


def _values(base: BaseType) -> st.SearchStrategy[Any]:
    match base:
        case ListType(item):
            return st.lists(st.none() | _SCALARS[item], max_size=3)
        case VectorType(dimension):
            parts = st.sampled_from([0.0, 1.0, -1.0, 3.0]) | st.floats(-1e6, 1e6, width=32)
            return st.lists(parts, min_size=dimension, max_size=dimension).map(tuple)
        case ScalarType(scalar):
            return _SCALARS[scalar]
    raise AssertionError(base)


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return (value - _EPOCH) // timedelta(milliseconds=1)
        case date():
            return value.toordinal() - date(1970, 1, 1).toordinal()
        case list():
            return [_stored(item) for item in value]
    return value


@dataclass(frozen=True)
class Given:
    """An argument: a value per row, or one value for all rows."""

    word: str
    values: tuple[Any, ...]
    is_fixed: bool
    is_literal: bool = False

    @property
    def datum(self) -> Any:
        base = _base(self.word)
        # Columns are slices of others now and then.
        before = self.values[:1]
        array = column(base, [_stored(value) for value in (*before, *self.values)])[len(before) :]
        return array[0] if self.is_fixed else array

    @property
    def argument(self) -> Argument:
        literal = _stored(self.values[0]) if self.is_literal else None
        is_nullable = not self.is_literal and None in self.values
        return Argument(PropertyType(_base(self.word), is_nullable), literal, is_constant=self.is_fixed)

    def at(self, row: int) -> Any:
        return self.values[0 if self.is_fixed else row]


#: Words of arguments that are the same for all rows, as literals.
_LITERALS = {
    "unit": ("String", st.sampled_from(UNITS[:-1])),
    "hour": ("String", st.just("hour")),
    "digits": ("I64", st.integers(-MAX_DIGITS, MAX_DIGITS)),
    "pattern": ("String", st.sampled_from(["a", "^a", "b$", "[0-9]+", "a.b", "(a|é)", "", "𝔸"])),
    "number": ("String", _number_texts),
}
#: Words of columns of texts of one sort.
_TEXTS = {"numbers": _number_texts, "letters": st.text(_ALPHABET, max_size=6)}
_NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")


def _given(data: st.DataObject, word: str, count: int) -> Given:
    if word in _LITERALS:
        type_, values = _LITERALS[word]
        return Given(type_, (data.draw(values),), is_fixed=True, is_literal=word != "number")
    if word in _TEXTS:
        return Given("String", tuple(data.draw(_lists_of(_TEXTS[word], count))), is_fixed=False)
    is_fixed = data.draw(st.booleans())
    values = data.draw(_lists_of(_values(_base(word)), 1 if is_fixed else count))
    return Given(word, tuple(values), is_fixed)


def _lists_of(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values | st.none() if count > 1 else values, min_size=count, max_size=count)


#: Functions, and the types of arguments that they are called with.
CALLS: dict[str, list[tuple[str, ...]]] = {
    **{name: [("letters",)] for name in ("lower", "upper")},
    **{name: [("String",)] for name in ("trim", "length")},
    "substring": [("String", "I64"), ("String", "I32", "I64"), ("String", "U64", "U32")],
    "concat": [("String",), ("String", "String", "String")],
    "replace": [("String", "String", "String")],
    "split": [("String", "String")],
    "matches": [("String", "pattern")],
    **{name: [("String", "String")] for name in ("contains", "starts_with", "ends_with")},
    **{name: [(word,) for word in _NUMBERS] for name in ("abs", "floor", "ceil", "sqrt", "ln", "exp")},
    "round": [*[(word,) for word in _NUMBERS], ("F64", "digits"), ("F32", "digits"), ("I64", "digits")],
    "pow": [("F64", "F64"), ("I64", "I32"), ("F64", "I64")],
    **{
        name: [
            *[(word, word) for word in (*_NUMBERS, "String", "Bool", "Date", "DateTime")],
            *[("I32", "U64", "I64"), ("I64", "F32"), ("F64", "F32", "F64"), ("U64",)],
        ]
        for name in ("least", "greatest")
    },
    "coalesce": [
        *[(word, word) for word in (*_NUMBERS, "String", "Bool", "Date", "DateTime", "[I32]", "Vector(2)")],
        *[("I32", "U64"), ("I64", "F32", "F64"), ("[I32]", "[I64]"), ("U64", "F64")],
    ],
    **{name: [("Date",), ("DateTime",)] for name in ("year", "month", "day")},
    **{name: [("DateTime",)] for name in ("hour", "minute", "second")},
    "date": [("Date",), ("DateTime",)],
    "datetime": [("Date",), ("DateTime",)],
    "add_days": [("Date", "I64"), ("DateTime", "I32"), ("DateTime", "U64")],
    "add_months": [("Date", "I32"), ("DateTime", "I64"), ("Date", "U64")],
    "days_between": [("Date", "Date"), ("DateTime", "DateTime")],
    "seconds_between": [("Date", "Date"), ("DateTime", "DateTime")],
    "truncate": [("Date", "unit"), ("DateTime", "unit"), ("DateTime", "hour")],
    "size": [("[I32]",), ("[String]",)],
    "element": [("[I32]", "I64"), ("[String]", "I32"), ("[DateTime]", "U64")],
    "string": [(word,) for word in (*_NUMBERS, "String", "Bool", "Date", "DateTime")],
    "i64": [*[(word,) for word in _NUMBERS], ("numbers",), ("number",)],
    "f64": [*[(word,) for word in _NUMBERS], ("numbers",), ("number",)],
    "l2": [("Vector(1)", "Vector(1)"), ("Vector(3)", "Vector(3)")],
    "cosine": [("Vector(1)", "Vector(1)"), ("Vector(3)", "Vector(3)")],
}
#: What the processor or a library computes, to the last digits.
_APPROXIMATE = {"sqrt", "pow", "ln", "exp", "l2", "cosine", "round"}


def test_every_function_is_called():
    overflowing = {name for name in names() if function_named(name).can_overflow}
    assert set(CALLS) | overflowing == set(names())


def rows_of(datum: Any, type_: PropertyType, count: int) -> list[Any]:
    """The stored values of a result; all of a scalar are equal."""
    assert datum.type == arrow_type(type_.base)
    if isinstance(datum, pa.Scalar):
        return stored_values(pa.repeat(datum, 1)) * count
    # A full look would demand midnights of `date64`.
    datum.validate()
    assert len(datum) == count
    return stored_values(datum)


def same(name: str, found: Any, wanted: Any) -> bool:
    if name in _APPROXIMATE and isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-12, abs_tol=1e-12)
    is_negative_zero = isinstance(found, float) and found == 0 and math.copysign(1, found) < 0
    return found == wanted and type(found) is type(wanted) and (name == "coalesce" or not is_negative_zero)


@pytest.mark.parametrize("name", CALLS)
@examples(60, thorough=2000)
@given(data=st.data())
def test_a_kernel_gives_what_the_function_means(name: str, data: st.DataObject) -> None:
    words = data.draw(st.sampled_from(CALLS[name]))
    count = data.draw(st.integers(0, 4))
    given_ = [_given(data, word, count) for word in words]
    type_ = function_named(name).result([item.argument for item in given_])

    found = apply(name, [item.datum for item in given_], type_, count)

    types = [item.word for item in given_]
    if name == "round" and types[0] in ("F32", "F64"):
        assume(not any(_is_near_tie(*(item.at(row) for item in given_)) for row in range(count)))
    wanted = [_stored(oracle.call(name, [item.at(row) for item in given_], types)) for row in range(count)]
    for mine, right in zip(rows_of(found, type_, count), wanted, strict=True):
        assert same(name, mine, list(right) if isinstance(right, tuple) else right)
        assert type_.nullable or mine is not None
    assert isinstance(found, pa.Scalar) == all(item.is_fixed for item in given_)


def _is_near_tie(value: float | None, digits: int = 0) -> bool:
    """Whether shifting the point may make a tie of what is none, or the other way round."""
    if value is None:
        return False
    shifted = abs(value) * 10.0**digits
    return shifted != math.inf and shifted % 1 != 0.5 and abs(shifted % 1 - 0.5) <= 1e-9 * max(1.0, shifted)


@examples(400, thorough=20_000)
@given(data=st.data(), left=st.sampled_from(_NUMBERS), right=st.sampled_from(_NUMBERS))
def test_31_arithmetic_is_exact_and_finds_every_overflow(data: st.DataObject, left: str, right: str) -> None:
    integral = left[0] in "IU" and right[0] in "IU"
    operator = data.draw(st.sampled_from(["+", "-", "*", "/", "%", *(["div"] if integral else [])]))
    count = data.draw(st.integers(0, 4))
    first, second = (_given(data, word, count) for word in (left, right))
    type_ = arithmetic_type(operator, first.argument, second.argument)

    found, overflows = calculate(operator, first.datum, second.datum, type_)

    values = rows_of(found, type_, count)
    mask = [False] * count if overflows is None else rows_of(overflows, _BOOL, count)
    for row in range(count):
        try:
            wanted = oracle.calculate(operator, first.at(row), second.at(row))
        except oracle.IntegerOverflowError:
            assert mask[row]
            assert values[row] is None
            continue
        assert same(operator, values[row], wanted)
        assert not mask[row]
        assert type_.nullable or values[row] is not None
    assert overflows is None or (isinstance(overflows, pa.Scalar) == isinstance(found, pa.Scalar))


_BOOL = PropertyType(ScalarType(Scalar.BOOL))


@given(data=st.data(), word=st.sampled_from(_NUMBERS))
def test_31_a_negation_is_exact_and_finds_every_overflow(data: st.DataObject, word: str) -> None:
    count = data.draw(st.integers(0, 4))
    value = _given(data, word, count)
    type_ = negate_type(value.argument)

    found, overflows = negate(value.datum, type_)

    mask = [False] * count if overflows is None else rows_of(overflows, _BOOL, count)
    for row, mine in enumerate(rows_of(found, type_, count)):
        try:
            wanted = oracle.negate(value.at(row))
        except oracle.IntegerOverflowError:
            assert mask[row]
            assert mine is None
            continue
        assert same("-", mine, wanted)
        assert not mask[row]


_moment_texts = (
    st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds"))
    | st.dates().map(date.isoformat)
    | st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]", fullmatch=True)
    | st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][012][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?", fullmatch=True
    )
    | st.from_regex(r"2024-02-[0-3][0-9]T10:00(:00(\.[0-9]{1,3}0*)?)?(Z|[+-][012][0-9]:?[0-9]{2})", fullmatch=True)
    | _texts
)


@given(st.lists(st.none() | _moment_texts, max_size=5))
def test_45_a_moment_is_read_from_a_column_as_from_a_literal(texts: list[str | None]) -> None:
    for name, parse, scalar in (("date", parse_date, Scalar.DATE), ("datetime", parse_datetime, Scalar.DATETIME)):
        type_ = PropertyType(ScalarType(scalar), nullable=True)
        found = apply(name, [pa.array(texts, pa.utf8())], type_, len(texts))

        assert rows_of(found, type_, len(texts)) == [_read(parse, text) for text in texts]


def _read(parse: Any, text: str | None) -> int | None:
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None


@given(_texts)
def test_41_the_other_case_has_as_many_characters(text: str) -> None:
    for name in ("lower", "upper"):
        shown = apply(name, [pa.scalar(text)], PropertyType(ScalarType(Scalar.STRING)), 1).as_py()
        assert len(shown) == len(text)
