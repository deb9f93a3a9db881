"""Laws of the bulk load: every shortcut gives what the long way gives, and both engines give the same answers."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ulid import ULID

from omnigraph.core.arrow import stored_array
from omnigraph.core.ids import derive_id
from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.core.values import canonical_spelling
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import keys as keys_module
from omnigraph.pipeline import upsert
from omnigraph.pipeline.exchange import key_files, write_keys
from omnigraph.pipeline.keys import (
    MAX_PARTS,
    Joins,
    KeyScan,
    derived_ids,
    generated_ids,
    key_scans,
    new_id_prefix,
    scan_keys,
    spelled,
    text_key,
)
from omnigraph.pipeline.shape.columns import fast_column, slow_column, stored_column
from omnigraph.pipeline.shape.plan import Grammar, LoadPlan, shapes_of
from omnigraph.pipeline.shape.shaping import RawRecords, shape_records
from omnigraph.pipeline.shape.values import Reading, Timestamps
from omnigraph.pipeline.sources import inputs as lines_module
from omnigraph.pipeline.sources.inputs import line_blocks
from omnigraph.pipeline.sources.jsonl import count_bad, group_records, read_lines
from omnigraph.pipeline.sources.records import BadRecordError, decode_line
from omnigraph.pipeline.upsert import Matcher, Upserted
from omnigraph.pipeline.violations import ViolationCounts
from omnigraph.pipeline.workers import LocalWorkers, Silent
from omnigraph.storage.answers import new_answer_folder
from omnigraph.storage.datasets.fragments import write_rows
from omnigraph.storage.datasets.staged import close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from omnigraph.writes.rules import Found
from support.spark import spark
from support.strategies import KEY_SCALARS, keys, stored_scalars
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

SCHEMA = """
node Thing {
    name: String @key
    flag: Bool?
    small: I32?
    big: I64?
    unsigned: U64?
    half: F32?
    real: F64?
    day: Date?
    at: DateTime?
    stage: enum(draft, final)?
    tags: [String]?
    counts: [I64]?
    days: [Date]?
    vec: Vector(2)?
    data: Blob?
    @range(small, -5..5)
}
node Note { text: String }
node Pair { a: String b: I64 @key(a, b) }
edge Near: Thing -> Note { weight: F64? }
edge Held: Thing -> Note { weight: F64? day: Date @key(src, day, dst) }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return Graph.init(tmp_path_factory.mktemp("laws") / "g.omni", SCHEMA)


@pytest.fixture(scope="module")
def plan(graph: Graph) -> LoadPlan:
    schema = graph._core.schema_of(graph.snapshot().schema_hash)
    edges = schema.catalog.edges.items()
    return LoadPlan(
        shapes=shapes_of(schema.catalog, schema.identities, schema.rules),
        edge_words={name.casefold(): edge.table_key for name, edge in edges},
        grammar=Grammar.STRICT,
        id_prefix=new_id_prefix(),
    )


# ---- columns

BASES = [
    *(ScalarType(scalar) for scalar in Scalar),
    EnumType(("draft", "final")),
    *(ListType(scalar) for scalar in KEY_SCALARS),
    VectorType(2),
]
_EPOCH = datetime(1970, 1, 1)
_SMALL = st.integers(-3, 9)
_FLOATS = st.one_of(
    _SMALL.map(float),
    st.floats(),
    st.sampled_from([0.1, -0.0, 2.0**31, 2.0**53, 2.0**63, 2.0**64, 3.5e38, 3.4028235677973366e38]),
)
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(["true", "false", "draft", "2024-02-29", "2023-02-29", "0000-01-01"]),
    st.sampled_from(["2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5", "2024-05-01T12:00"]),
    st.sampled_from(["2024-05-01T12:00:00.1234Z", "2024-05-01T24:00:00Z", "9999-12-31T23:59:59"]),
    st.sampled_from(["2024-05-01T12:00:00+02:00", "2024-05-01T12:00:60Z", "10000-01-01"]),
    st.sampled_from(["0", "-0", "007", "-07", "+1", " 1", "1 ", "1.0", "1e2", "1.", ".5", "-1.5"]),
    st.sampled_from(["-0.0", "1e999", "nan", "Infinity", "0x10", "1\n", "base64:AA==", "[1,2]"]),
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([str(n) for n in (2**31, 2**32, 2**63, 2**63 - 1, 2**64 - 1, -(2**63))]),
    st.sampled_from(["0.1", "123456789.123456789", "1e-400", "340282356779733661637539395458142568448"]),
)


def _whole(width: int, *, is_signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)
    near = [n for n in (2**31, 2**31 - 1, 2**32, 2**53 + 1, -1, low, high) if low <= n <= high]
    return st.one_of(st.integers(max(low, -3), 9), st.integers(low, high), st.sampled_from(near))


def _decimals(scale: int) -> st.SearchStrategy[Decimal]:
    digits = st.one_of(st.integers(-30, 30).map(lambda n: n * 10**scale), st.integers(-(10**20), 10**20))
    return digits.map(lambda n: Decimal(n).scaleb(-scale))


def _moments(unit: str) -> st.SearchStrategy[datetime]:
    step = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}[unit]
    bound = 2**62 // 1000 if unit == "ns" else 200_000_000_000_000_000 // 4
    counts = st.one_of(
        st.integers(-5, 5).map(lambda n: n * 1000 * step),
        st.integers(-bound // step, bound // step).map(lambda n: n * step // 1000 * 1000),
        st.integers(-bound // step, bound // step).map(lambda n: n * step),
    )
    whole = 1_000_000 if unit == "s" else 1000 if unit == "ms" else 1
    return counts.map(lambda n: _EPOCH + timedelta(microseconds=n // whole * whole))


#: Arrow types of sources with values of them.
SOURCES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    *(
        (getattr(pa, f"{'' if is_signed else 'u'}int{width}")(), _whole(width, is_signed=is_signed))
        for width in (8, 16, 32, 64)
        for is_signed in (True, False)
    ),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), _FLOATS),
    *((pa.decimal128(38, scale), _decimals(scale)) for scale in (0, 3)),
    (pa.decimal256(60, 2), _decimals(2)),
    *((kind, _TEXTS) for kind in (pa.utf8(), pa.large_utf8(), pa.string_view())),
    (pa.dictionary(pa.int8(), pa.utf8()), _TEXTS),
    (pa.dictionary(pa.int32(), pa.int64()), _whole(64, is_signed=True)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    *(
        (pa.timestamp(unit, zone), _moments(unit))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin")
    ),
    (pa.time64("us"), st.times()),
    (pa.binary(), st.binary(max_size=3)),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.null(), st.none()),
]


def _listed(kind: Any, values: st.SearchStrategy[Any], form: int) -> tuple[Any, Any]:
    items = st.none() | values if form == 0 else values
    if form == 3:
        return pa.list_(kind, 2), st.lists(items, min_size=2, max_size=2)
    if form == 4:
        return pa.list_view(kind), st.lists(items, max_size=3)
    make = pa.large_list if form == 1 else pa.list_
    sizes = {"min_size": 2, "max_size": 2} if form == 2 else {"max_size": 3}
    return make(kind), st.lists(items, **sizes)


def _fits(scalar: Scalar, kind: Any) -> bool:
    """Whether a source type may hold good values of a scalar."""
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    match scalar:
        case Scalar.STRING:
            return bool(text or types.is_dictionary(kind))
        case Scalar.BOOL:
            return bool(types.is_boolean(kind))
        case Scalar.DATE:
            is_time = types.is_date(kind) or types.is_timestamp(kind)
            return bool(text or is_time or types.is_integer(kind))
        case Scalar.DATETIME:
            return bool(text or types.is_timestamp(kind) or types.is_integer(kind))
        case Scalar.BLOB:
            return bool(types.is_binary(kind) or types.is_large_binary(kind))
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


@st.composite
def arrow_columns(draw: st.DrawFn, base: Any) -> Any:
    """A column of any Arrow type, with or without nulls, possibly a slice of a longer one."""
    match base:
        case ScalarType(scalar) | ListType(scalar):
            near = [source for source in SOURCES if _fits(scalar, source[0])]
        case EnumType():
            near = [source for source in SOURCES if _fits(Scalar.STRING, source[0])]
        case _:
            near = [source for source in SOURCES if _fits(Scalar.F32, source[0])]
    is_near = draw(st.integers(0, 3)) > 0
    kind, values = draw(st.sampled_from(near if is_near else SOURCES))
    is_list = isinstance(base, ListType | VectorType) if is_near else draw(st.booleans())
    if not pa.types.is_dictionary(kind) and is_list:
        kind, values = _listed(kind, values, draw(st.integers(0, 4)))
    items = draw(st.lists(st.none() | values if draw(st.booleans()) else values, max_size=6))
    try:
        column = pa.array(items, kind)
    except (pa.ArrowInvalid, OverflowError, pa.ArrowNotImplementedError):
        column = pa.array([], kind)
    begin = draw(st.integers(0, len(column)))
    return column.slice(begin, draw(st.integers(0, len(column) - begin)))


def plain(column: Any) -> str:
    """The values of a stored column; moments in full, zeros with their sign."""
    kind = column.type
    if pa.types.is_list(kind):
        numbers = {pa.date64(): pa.int64(), pa.date32(): pa.int32()}
        column = column.cast(pa.list_(numbers.get(kind.value_type, kind.value_type)))
    elif pa.types.is_date64(kind) or pa.types.is_date32(kind):
        column = column.cast(pa.int64() if pa.types.is_date64(kind) else pa.int32())
    return repr(column.to_pylist())


def _check_column(base: Any, column: Any, *, is_text: bool = False) -> None:
    type_ = PropertyType(base=base, nullable=True)
    fast = fast_column(type_, column, Reading(is_text=is_text))
    if fast is None:
        return
    # Not in full: a stored moment is a date64 with a time of day, which Arrow calls invalid.
    fast.validate()
    slow, violations = slow_column(type_, column.to_pylist(), Reading(is_text=is_text))
    assert violations == {}
    assert fast.type == slow.type
    assert plain(fast) == plain(slow)


@pytest.mark.parametrize("base", BASES, ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_a_fast_column_is_the_slow_one(base: Any, data: st.DataObject) -> None:
    _check_column(base, data.draw(arrow_columns(base)))


@settings(max_examples=400)
@given(
    base=st.sampled_from([base for base in BASES if not isinstance(base, ListType | VectorType)]),
    kind=st.sampled_from([pa.utf8(), pa.large_utf8(), pa.string_view()]),
    texts=st.lists(st.none() | _TEXTS, max_size=3),
)
def test_a_fast_column_of_texts_without_types_is_the_slow_one(base: Any, kind: Any, texts: list[str | None]) -> None:
    _check_column(base, pa.array(texts, kind), is_text=True)


_MOMENT = PropertyType(base=ScalarType(Scalar.DATETIME), nullable=True)
_STEPS = {"s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 1000), "ns": Fraction(1, 10**6)}


def _whole_millisecond(exact: Fraction, rule: Timestamps) -> int:
    """What a rule makes of a moment, as its words say it."""
    return math.floor(exact + Fraction(1, 2)) if rule is Timestamps.ROUND else math.floor(exact)


@pytest.mark.parametrize("rule", [Timestamps.ROUND, Timestamps.TRUNCATE])
@settings(max_examples=80)
@given(
    unit=st.sampled_from(list(_STEPS)),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
    numbers=st.lists(st.none() | st.integers(-2000, 2000) | _whole(64, is_signed=True), max_size=5),
)
def test_finer_moments_of_columns_follow_the_rule(
    rule: Timestamps, unit: str, zone: str | None, numbers: list[int | None]
) -> None:
    column = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, zone))
    exact = [None if n is None else n * _STEPS[unit] for n in numbers]
    if any(n is not None and abs(n) >= 2**63 for n in exact):
        return
    expected = [None if n is None else _whole_millisecond(n, rule) for n in exact]
    fast = fast_column(_MOMENT, column, Reading(timestamps=rule))
    assert fast is not None
    assert fast.view(pa.int64()).to_pylist() == expected


@pytest.mark.parametrize("rule", list(Timestamps))
@settings(max_examples=80)
@given(
    texts=st.lists(
        st.none()
        | st.builds(
            lambda day, second, digits, zone: f"{day} 00:00:{second:02}{digits}{zone}",
            st.sampled_from(["2024-02-29", "1969-12-31", "0001-01-01", "9999-12-30", "0000-01-01"]),
            st.integers(0, 60),
            st.text("0459", min_size=1, max_size=9).map(lambda digits: f".{digits}") | st.just(""),
            st.sampled_from(["", "Z", "+01:00"]),
        ),
        max_size=4,
    )
)
def test_finer_moments_of_texts_follow_the_rule(rule: Timestamps, texts: list[str | None]) -> None:
    column = pa.array(texts, pa.utf8())
    fast = fast_column(_MOMENT, column, Reading(timestamps=rule))
    slow, violations = slow_column(_MOMENT, texts, Reading(timestamps=rule))
    if fast is not None:
        assert violations == {}
        assert plain(fast) == plain(slow)
    for text, stored in zip(texts, slow.view(pa.int64()).to_pylist(), strict=True):
        if stored is not None and text is not None:
            head, _, tail = text.partition(".")
            digits = re.sub(r"(Z|[+]01:00)$", "", tail)
            whole = head if digits else re.sub(r"(Z|[+]01:00)$", "", head)
            seconds = (datetime.fromisoformat(whole) - _EPOCH) // timedelta(seconds=1)
            exact = (Fraction(seconds) + Fraction(f"0.{digits or 0}")) * 1000
            exact -= 3_600_000 if text.endswith("+01:00") else 0
            assert stored == _whole_millisecond(exact, rule)
            assert rule is not Timestamps.REFUSE or exact.denominator == 1


def test_a_moment_that_is_too_fine_is_shown_with_all_of_its_digits() -> None:
    moments = pa.array([0, 1_714_565_000_123_456_789, -1], pa.timestamp("ns"))
    _, violations = stored_column(_MOMENT, moments, Reading(timestamps=Timestamps.REFUSE))
    assert set(violations) == {1, 2}
    assert "'2024-05-01T12:03:20.123456789Z' is finer than milliseconds" in violations[1]
    assert "`timestamps: round`" in violations[1]
    lists = pa.array([[0], [1]], pa.list_(pa.timestamp("us")))
    several = PropertyType(base=ListType(Scalar.DATETIME), nullable=True)
    _, violations = stored_column(several, lists, Reading(timestamps=Timestamps.REFUSE))
    assert list(violations) == [1]
    for rule, expected in ((Timestamps.ROUND, [2]), (Timestamps.TRUNCATE, [1])):
        fine = pa.array([[1500], None], pa.list_(pa.timestamp("us", "UTC")))
        stored, violations = stored_column(several, fine, Reading(timestamps=rule))
        slow, more = slow_column(several, fine.to_pylist(), Reading(timestamps=rule))
        assert violations == more == {}
        assert [plain(column) for column in (stored, slow)] == [repr([expected, None])] * 2


@each_case("base", BASES, ids=str)
def test_good_columns_of_every_type_take_the_fast_way(base: Any) -> None:
    """Otherwise the comparison above would say nothing."""
    samples: dict[Any, Any] = {
        Scalar.STRING: pa.array(["a", None]).dictionary_encode(),
        Scalar.BOOL: pa.array([True, None]),
        Scalar.DATE: pa.array([date(2024, 1, 1), None]),
        Scalar.DATETIME: pa.array([datetime(2024, 1, 1, 12), None], pa.timestamp("ns", "UTC")),
        Scalar.U64: pa.array([Decimal(2**64 - 1), None], pa.decimal128(20, 0)),
        Scalar.BLOB: pa.array([b"x", None]),
    }
    numbers = pa.array([1, None], pa.int16())
    match base:
        case ScalarType(scalar):
            column = samples.get(scalar, numbers)
        case EnumType():
            column = samples[Scalar.STRING]
        case ListType(scalar):
            flat = samples.get(scalar, numbers).slice(0, 1)
            if scalar is Scalar.STRING:
                flat = flat.dictionary_decode()
            column = pa.LargeListArray.from_arrays(pa.array([0, 1, 1], pa.int64()), flat)
        case _:
            column = pa.array([[1, 2], None], pa.list_(pa.float64(), 2))
    found = fast_column(PropertyType(base=base, nullable=True), column)
    assert found is not None
    assert len(found) == 2
    _check_column(base, column)


@pytest.mark.parametrize("text", ["-28768807345010842.735", "509278713146260256.253"])
def test_a_decimal_becomes_the_nearest_float(text: str) -> None:
    _check_column(ScalarType(Scalar.F64), pa.array([Decimal(text)], pa.decimal128(38, 3)))


def test_a_moment_finer_than_milliseconds_is_refused_in_every_unit() -> None:
    type_ = PropertyType(base=ScalarType(Scalar.DATETIME), nullable=True)
    for unit, number in (("us", 1), ("us", 1_000_001), ("ns", 1_000), ("ns", 1)):
        column = pa.array([number], pa.timestamp(unit))
        assert fast_column(type_, column) is None
        _, violations = slow_column(type_, column.to_pylist())
        assert list(violations) == [0], f"{number} {unit}"


# ---- lines

_NUMBERS = st.sampled_from(
    "0 1 -1 7 -0 1.0 -0.0 1e2 1E+2 1.5 1e400 -1e-400 01 9007199254740993 0.1 NaN Infinity +1 1. .5 - "
    "123456789012345678901234567890 9223372036854775808 18446744073709551615 3.4028235677973366e38 "
    f"{'1' * 400}".split()
)
_ESCAPED = [r'"\u00e9"', r'"\ud83e\udd8a"', r'"\ud800"', r'"\u0000"', r'"\n\t\"\\\/"', r'"\x01"']
_MOMENTS = ['"2024-02-29"', '"2024-05-01T12:00:00Z"', '"2023-02-29"', '"19000"']
_WORDS = ['"draft"', '"final"', '"other"', '"base64:AA=="', '"base64:"', '"x:y"', '"//"']
_RAW_TEXTS = st.sampled_from(['"a"', '"b"', '""', '"é"', '"🦊"', '"a\tb"', *_ESCAPED, *_MOMENTS, *_WORDS])
_SCALARS = st.one_of(_NUMBERS, _RAW_TEXTS, st.sampled_from(["null", "true", "false"]))
_VALUES = st.one_of(
    _SCALARS,
    st.lists(_SCALARS, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    st.sampled_from(['{"a": 1}', '{"a": 1, "a": 2}', "[[1]]", "[1,]", "{}"]),
)
#: Values that a property usually has, so that most lines are good ones.
_USUAL: dict[str, st.SearchStrategy[str]] = {
    "name": st.sampled_from(['"a"', '"b"', '"\\u0062"', '"ü"']),
    "flag": st.sampled_from(["true", "false", "null"]),
    "small": st.sampled_from(["1", "-5", "9", "null"]),
    "big": st.sampled_from(["1", str(-(2**63)), "null"]),
    "unsigned": st.sampled_from(["1", str(2**64 - 1)]),
    "half": st.sampled_from(["1", "0.1", "-0.0", "1e2", "16777217"]),
    "real": st.sampled_from(["1", "0.1", "1e300", "123456789012345678901234567890"]),
    "day": st.sampled_from(["19000", '"2024-02-29"', "-1", "null"]),
    "at": st.sampled_from(["1700000000000", '"2024-05-01T12:00:00Z"', '"2024-05-01 12:00:00.5"']),
    "stage": st.sampled_from(['"draft"', '"final"']),
    "tags": st.sampled_from(["[]", '["a", "b"]', "null"]),
    "counts": st.sampled_from(["[]", "[1, -2]"]),
    "days": st.sampled_from(["[]", '["2024-02-29"]', "[1]"]),
    "vec": st.sampled_from(["[1, 2]", "[0.1, -0.5]", "null"]),
    "data": st.sampled_from(['"base64:AA=="', "null"]),
}
_SPACE = st.sampled_from(["", "", "", " ", "\t "])


@st.composite
def _objects(draw: st.DrawFn, members: list[tuple[str, str]]) -> str:
    """An object with its members in any order, with any white space, perhaps one of them twice."""
    chosen = draw(st.permutations(members))
    if members and draw(st.integers(0, 14)) == 0:
        chosen.append(draw(st.sampled_from(members)))
    space = draw(_SPACE)
    return "{" + f"{space},{space}".join(f"{name}{space}:{space}{v}" for name, v in chosen) + "}"


def _name(draw: st.DrawFn, name: str) -> str:
    """A member name, now and then with an escape."""
    if draw(st.integers(0, 29)) == 0:
        return f'"\\u{ord(name[0]):04x}{name[1:]}"'
    return f'"{name}"'


@st.composite
def _records(draw: st.DrawFn) -> str:
    is_odd = draw(st.integers(0, 4)) == 0
    kind = draw(st.sampled_from(["Thing", "Thing", "Note", "Pair", "Near", "Held"]))
    match kind:
        case "Thing":
            usual = _USUAL
        case "Note":
            usual = {"text": _RAW_TEXTS, "id": st.sampled_from(['"n1"', '"n2"', "null"])}
        case "Pair":
            usual = {"a": _RAW_TEXTS, "b": st.sampled_from(["1", "-2"])}
        case "Held":
            usual = {"weight": _USUAL["real"], "day": st.sampled_from(["1", '"1970-01-02"', "2"])}
        case _:
            usual = {"weight": _USUAL["real"], "id": st.sampled_from(['"e1"', '"e2"'])}
    required = {"Thing": ["name"], "Note": ["text"], "Pair": ["a", "b"], "Held": ["day"]}.get(kind, [])
    optional = [name for name in usual if name not in required]
    names = [*required, *draw(st.lists(st.sampled_from(optional), unique=True, max_size=4))] if (optional) else required
    members = {name: draw(usual[name]) for name in names}
    if is_odd:
        extra = draw(st.sampled_from([*usual, "id", "zzz", "_rowid", "src"]))
        members[extra] = draw(_VALUES)
    data = draw(_objects([(_name(draw, name), value) for name, value in members.items()]))
    envelope = {"data": data}
    if kind in ("Near", "Held"):
        envelope |= {"edge": f'"{kind}"', "from": '"a"', "to": '"n1"'}
    else:
        envelope["type"] = f'"{kind}"'
    if draw(st.integers(0, 3)) == 0:
        ids = [members.get("id", "null"), members.get("name", '"n1"'), "null", '"e2"']
        ids += [r'"[\"a\",\"n1\",\"1\"]"'] if kind == "Held" else []
        envelope["id"] = draw(st.sampled_from(ids))
    if is_odd and draw(st.booleans()):
        extra = draw(st.sampled_from(["type", "edge", "from", "to", "data", "id", "more"]))
        envelope[extra] = draw(_VALUES)
    if draw(st.integers(0, 9)) == 0:
        del envelope[draw(st.sampled_from(sorted(envelope)))]
    quoted = [(f'"{name}"' if name == "data" else _name(draw, name), value) for name, value in envelope.items()]
    return draw(_SPACE) + draw(_objects(quoted)) + draw(_SPACE)


_NOTE = b'{"type": "Note", "data": {"text": "a"}}'
_ODD_LINES = st.sampled_from(
    [
        *(b"", b"  ", b"// a comment", b" // too", b"{}", b"[]", b"7", b"{", b"}"),
        b'{"type": "Thing"}{}',
        b'{"type": "Note", "data": {"text": "\xff"}}',
        b'\x0c{"type": "Note"}',
        b"\xef\xbb\xbf{}",
        _NOTE + b"\r",
        _NOTE + b" x",
        _NOTE + b" " + _NOTE,
        b'{"type": "note", "data": {}}',
        b'{"edge": null, "type": "Note", "data": {"text": "a"}}',
        b'{"type": "Note", "data": null}',
        b'{"type": "Note", "data": {"text": "a"},}',
        b'{"type": "Note", "data": {"text": ' + b"[" * 3000 + b"]" * 3000 + b"}}",
    ]
)
_LINES = st.lists(
    st.integers(0, 11).flatmap(lambda n: _ODD_LINES if n == 0 else _records().map(lambda text: text.encode())),
    min_size=1,
    max_size=7,
)


def _one_by_one(lines: list[bytes], plan: LoadPlan, violations: ViolationCounts) -> Iterator[RawRecords]:
    """What the module says the format means: every line for itself."""
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.strip().startswith(b"//"):
            continue
        try:
            found.append((number, decode_line(line, plan)))
        except BadRecordError as bad:
            count_bad(bad, number, "f", violations)
    yield from group_records(found, plan)


def _shaped(groups: Iterator[RawRecords], plan: LoadPlan, violations: ViolationCounts) -> dict[str, Any]:
    """Rows per type with their lines, in the order in which they are written."""
    rows: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    for raw in groups:
        if raw.is_refused:
            continue
        key = raw.shape.key
        first = counts.get(key, 0)
        shaped = shape_records(raw, plan, source="f", part=3, first_row=first)
        counts[key] = first + raw.count
        violations.merge(shaped.violations)
        columns = [plain(column.cast(column.type)) for column in shaped.rows.columns]
        if len(shaped.lines):
            rows.setdefault(key, []).append((shaped.lines.tolist(), columns))
    return rows


def _known(violations: ViolationCounts) -> list[tuple[str, int | None, str | None, str]]:
    found = [item for records in violations.examples.values() for item in records]
    return sorted((item.rule, item.line, item.field, item.message) for item in found)


@settings(max_examples=300)
@given(lines=_LINES)
def test_lines_read_together_are_the_lines_read_one_by_one(plan: LoadPlan, lines: list[bytes]) -> None:
    together, alone = ViolationCounts(), ViolationCounts()
    numbers = np.arange(1, len(lines) + 1, dtype=np.int64)
    fast = _shaped(read_lines(list(lines), numbers, plan, together, "f"), plan, together)
    slow = _shaped(_one_by_one(lines, plan, alone), plan, alone)
    assert fast == slow
    assert together.totals == alone.totals
    assert _known(together) == _known(alone)


def test_plain_lines_take_the_fast_way(plan: LoadPlan) -> None:
    """Otherwise the comparison above would say nothing."""
    row = {name: json.loads(_first(values)) for name, values in _USUAL.items()}
    row |= {"day": 3, "at": 4, "days": [1]}
    lines = [json.dumps({"type": "Thing", "data": row}).encode(), b'{"edge":"near","id":"e1","from":"a","to":"b"}']
    groups = list(read_lines(lines, np.array([1, 2]), plan, ViolationCounts(), "f"))
    assert [raw.shape.key for raw in groups] == ["node:Thing", "edge:Near"]
    for raw in groups:
        assert all(isinstance(column, pa.Array) for column in raw.columns.values())
    assert [raw.ids.to_pylist() for raw in groups] == [[None], ["e1"]]


def _first(values: Any) -> str:
    return str(values.elements[0])


def test_edges_named_in_different_case_keep_their_order(plan: LoadPlan) -> None:
    texts = [f'{{"edge":"{name}","from":"a","to":"b","data":{{"id":"e"}}}}' for name in ("near", "Near", "near")]
    lines = [text.encode() for text in texts]
    groups = list(read_lines(lines, np.arange(1, 4), plan, ViolationCounts(), "f"))
    assert [line for raw in groups for line in raw.lines.tolist()] == [1, 2, 3]


def test_a_null_for_data_is_refused_however_its_name_is_written(plan: LoadPlan) -> None:
    for name in ("data", "d\\u0061ta"):
        violations = ViolationCounts()
        line = f'{{"edge":"Near","from":"a","to":"b","{name}":null}}'.encode()
        list(read_lines([line], np.array([1]), plan, violations, "f"))
        assert violations.totals == {"invalid record": 1}


# ---- ids


@settings(max_examples=300)
@given(data=st.data(), drawn=keys())
def test_ids_of_columns_are_the_ids_of_their_rows(data: st.DataObject, drawn: Any) -> None:
    bases, first, second = drawn
    rows = [first, second, [None if data.draw(st.booleans()) else v for v in first]]
    columns = []
    for number, base in enumerate(bases):
        field = pa.field("c", _arrow_type(base))
        columns.append(stored_array(field.type, [row[number] for row in rows]))
    texts = [spelled(base, column) for base, column in zip(bases, columns, strict=True)]
    for number, (base, column) in enumerate(zip(bases, texts, strict=True)):
        wanted = [row[number] for row in rows]
        assert column.to_pylist() == [None if value is None else canonical_spelling(base, value) for value in wanted]
    expected = [
        None if None in row else derive_id([canonical_spelling(b, v) for b, v in zip(bases, row, strict=True)])
        for row in rows
    ]
    assert derived_ids(texts).to_pylist() == expected


def _arrow_type(base: Any) -> Any:
    from omnigraph.core.arrow import arrow_type

    return arrow_type(base)


@pytest.mark.parametrize("scalar", [s for s in KEY_SCALARS if s is not Scalar.STRING])
@settings(max_examples=30)
@given(data=st.data())
def test_a_slice_of_a_column_is_spelled_as_its_rows(scalar: Scalar, data: st.DataObject) -> None:
    base = ScalarType(scalar)
    values = data.draw(st.lists(st.none() | stored_scalars(scalar), min_size=1, max_size=5))
    column = stored_array(_arrow_type(base), values).slice(1)
    assert spelled(base, column).to_pylist() == [
        None if value is None else canonical_spelling(base, value) for value in values[1:]
    ]


@given(part=st.integers(0, MAX_PARTS - 1), first=st.integers(0, 2**30 - 50), count=st.integers(0, 40))
def test_generated_ids_are_repeatable_ulids_in_order(part: int, first: int, count: int) -> None:
    prefix = new_id_prefix()
    ids = generated_ids(prefix, part, first, count).to_pylist()
    assert ids == generated_ids(prefix, part, first, count).to_pylist()
    cut = count // 3
    again = generated_ids(prefix, part, first, cut).to_pylist()
    again += generated_ids(prefix, part, first + cut, count - cut).to_pylist()
    assert ids == again
    assert ids == sorted(set(ids))
    for text in ids:
        assert str(ULID.from_str(text)) == text
        assert text.startswith(prefix)


@given(
    first=st.tuples(st.integers(0, MAX_PARTS - 1), st.integers(0, 2**30 - 1)),
    second=st.tuples(st.integers(0, MAX_PARTS - 1), st.integers(0, 2**30 - 1)),
)
def test_ids_of_different_places_never_meet(first: Any, second: Any) -> None:
    ids = [generated_ids("0" * 16, *place, 1)[0].as_py() for place in (first, second)]
    assert (ids[0] == ids[1]) == (first == second)
    assert (ids[0] < ids[1]) == (first < second)


# ---- lines of parts


@settings(max_examples=400)
@given(
    text=st.lists(st.sampled_from([b"\n", b"a", b"bb\n", b"\r\n", b"longer line"]), max_size=14),
    cuts=st.lists(st.integers(1, 60), max_size=4, unique=True),
    block=st.integers(1, 9),
    longest=st.sampled_from([4, 12, 1000]),
)
def test_parts_hold_every_line_once(text: list[bytes], cuts: list[int], block: int, longest: int) -> None:
    """Wherever a file is cut, also inside a line and a line break, and however it is read."""
    content = b"".join(text)
    begins = [0, *sorted(cut for cut in cuts if cut < len(content))]
    found: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "_BLOCK_BYTES", block)
        patch.setattr(lines_module, "MAX_LINE_BYTES", longest)
        for begin, end in zip(begins, [*begins[1:], None], strict=True):
            stream = io.BytesIO(content)
            stream.seek(max(begin - 1, 0))
            for lines in line_blocks(stream, begin, end):
                found += lines
    whole = content.split(b"\n")
    if whole[-1] == b"":
        whole.pop()
    assert len(found) == len(whole)
    for got, wanted in zip(found, whole, strict=True):
        if len(wanted) <= longest:
            assert got == wanted
        else:
            # It is still too long to be a record, and begins as it did.
            assert len(got) > longest
            assert wanted.startswith(got)


# ---- joins and merges

_KEYS = ["a", "b", "ü", "", "a\x1fb", "z" * 40, "0", "\x00", "🦊"]


def _fragments(graph: Graph, ids: list[str], texts: list[str]) -> list[str]:
    """Notes as staged fragments, two rows each."""
    table = _notes(graph)
    rows = pa.table({"id": ids, "text": texts}, schema=table.schema)
    found: list[str] = []
    for begin in range(0, len(ids), 2):
        found += write_rows(table, rows.slice(begin, 2).to_batches())
    return found


def _notes(graph: Graph) -> Table:
    pin = graph.snapshot().pins["node:Note"]  # type: ignore[index]  # a table key is a text
    return graph._core.environment.tables.open(pin.location, pin.branch, pin.version)


def _same(first: Found, second: Found) -> None:
    assert first.total == second.total
    order = [sorted(found.examples, key=lambda item: (str(item.value), item.addresses)) for found in (first, second)]
    assert order[0] == order[1]


def _questions(joins: Joins, new: list[KeyScan], old: list[KeyScan]) -> Iterator[Found]:
    yield joins.duplicated(new)
    yield joins.shared(new, old)
    yield joins.missing(new, old)
    yield joins.outside(old, new, 2, 2, ["c", "nowhere"])
    folder = new_answer_folder(parse_location(old[0].address.uri))
    batches = [pa.RecordBatch.from_pydict({"k": keys}) for keys in (["c"], ["nowhere"])]
    files = key_files(folder, [write_keys(folder, n, [b]) for n, b in enumerate(batches)])
    assert list(files) == ["c", "nowhere"]
    yield joins.outside(old, new, 2, 2, files)
    some = [key for scan in new for table in scan_keys(scan) for key in table["key"].to_pylist()]
    yield joins.named(new, [*some[:3], "nowhere"])
    yield joins.named(old, some)
    batch = pa.RecordBatch.from_pydict({"k": some})
    yield joins.named(old, key_files(folder, [write_keys(folder, 2, [batch])]))


def test_few_keys_are_looked_up_as_if_all_were_read(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    for pool in (["a", "b", "b", "it's", "\x00", "ü"], ["b", "ü", "it's", "c", "%", "\x00"]):
        fragments = _fragments(graph, pool, ["t"] * len(pool))
        private = open_private(stage_fragments(_notes(graph), fragments))
        scans.append(key_scans(private.table, private.new_fragments, text_key("id")))
    read = list(_questions(Joins(), *scans))
    monkeypatch.setattr(keys_module, "_PROBE_SHARE", 0)
    monkeypatch.setattr(keys_module, "PROBE_CHUNK", 2)
    looked_up = list(_questions(Joins(), *scans))
    assert [found.total for found in read] == [1, 5, 1, 5, 5, 3, 4, 4]
    for expected, found in zip(read, looked_up, strict=True):
        _same(expected, found)


def test_spark_answers_questions_about_keys_as_this_process_does(graph: Graph, spark: SparkSession) -> None:
    from omnigraph.spark.joins import SparkJoins
    from omnigraph.spark.workers import SparkWorkers

    workers = SparkWorkers(spark, Silent())
    local = Joins()
    there = SparkJoins(workers, small_rows=0, small_ids=0)
    random = Random(7)
    scans = []
    for pool in (random.choices(_KEYS, k=9), random.sample(_KEYS, k=5)):
        fragments = _fragments(graph, pool, ["t"] * len(pool))
        private = open_private(stage_fragments(_notes(graph), fragments))
        scans.append(key_scans(private.table, private.new_fragments, text_key("id")))
    for expected, found in zip(_questions(local, *scans), _questions(there, *scans), strict=True):
        assert expected.total
        _same(expected, found)
    few_ids = SparkJoins(workers, small_rows=0, small_ids=100)
    _same(few_ids.missing(*scans), local.missing(*scans))


@pytest.mark.parametrize("is_small", [True, False])
def test_keys_of_one_owner_are_no_violation_wherever_that_is_asked(
    graph: Graph, spark: SparkSession, is_small: bool
) -> None:
    from omnigraph.spark.joins import SparkJoins
    from omnigraph.spark.workers import SparkWorkers

    rows = [("a", "x"), ("a", "x"), ("b", "x"), ("c", "y"), ("c", "y"), ("d", "z"), ("d", "w")]
    #: y belongs to the same owner, x to one that the new rows have too, w to nobody of them.
    old = [("c", "y"), ("b", "x"), ("e", "w")]
    scans = []
    for pool in (rows, old):
        fragments = _fragments(graph, [item for item, _ in pool], [text for _, text in pool])
        private = open_private(stage_fragments(_notes(graph), fragments))
        scans.append(key_scans(private.table, private.new_fragments, text_key("text")))
    local = Joins()
    sizes = {} if is_small else {"small_rows": 0, "broadcast_keys": 0}
    there = SparkJoins(SparkWorkers(spark, Silent()), **sizes)
    found = there.duplicated(scans[0], "id")
    assert [(item.value, len(item.addresses), item.count) for item in found.examples] == [("x", 2, 2)]
    assert found.total == 1
    _same(found, local.duplicated(scans[0], "id"))
    found = there.shared(*scans, "id")
    assert found.total == 3
    assert [item.value for item in found.examples] == ["w", "x"]
    _same(found, local.shared(*scans, "id"))
    # Nothing is left when every key belongs to its owner.
    assert local.shared(scans[1], scans[1], "id").total == 0
    assert there.shared(scans[1], scans[1], "id").total == 0


def test_a_merge_is_decided_alike_wherever_that_happens(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.spark.workers import SparkWorkers

    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    lines = tmp_path / "notes.jsonl"
    for some in (["a", "b", "c"], ["d", "e"], ["f"]):
        rows = [{"type": "Note", "data": {"id": name, "text": f"old {name}"}} for name in some]
        lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        graph.load(lines, mode="append", engine="local")
    base = _notes(graph)
    # Two rows a fragment: replacing, mixed, all replaced by later ones, untouched.
    ids = ["a", "new", "b", "b", "f", "f", "x", "y", "f", "e", "d"]
    fragments = _fragments(graph, ids, [f"new {name} {n}" for n, name in enumerate(ids)])
    # What is decided here is also written by tasks.
    monkeypatch.setattr(upsert, "_IN_PROCESS_ROWS", 0)
    here, there = LocalWorkers(Silent()), SparkWorkers(spark, Silent())
    seen = []
    for matcher in (Matcher(here), Matcher(here, small_rows=0), Matcher(there), Matcher(there, small_rows=0)):
        private = open_private(stage_fragments(base, fragments))
        folder = new_answer_folder(graph._core.environment.location)
        merged = matcher.upsert(base, private, fragments, with_sources=False, ledgers=folder)
        close_private(private, graph._core.environment.objects)
        seen.append(_decided(base, fragments, merged))
    assert seen[0] == seen[1] == seen[2] == seen[3]
    rows, superseded, discarded = seen[0]
    assert superseded == 3
    assert discarded == [True, True, True, False, True, True]
    assert {text for _, text, _ in rows} == {
        *("old c", "new a 0", "new new 1", "new b 3", "new x 6", "new y 7", "new f 8", "new e 9", "new d 10")
    }
    before = {row["id"]: row["_rowid"] for row in _rows(base)}
    kept = {name: row_id for name, _, row_id in rows if name in before}
    assert kept == before


def _decided(base: Table, fragments: list[str], merged: Upserted) -> Any:
    """What a table is after a merge, how many were superseded, and which fragments are not needed any more."""
    from omnigraph.storage.datasets.fragments import stage_replacement

    private = open_private(stage_replacement(base, merged.fragments, merged.shrunk))
    rows = sorted((row["id"], row["text"], row["_rowid"]) for row in _rows(private.table))
    kept = [text in merged.discarded for text in fragments]
    return [row if row[0] in _OLD else (*row[:2], None) for row in rows], merged.superseded, kept


_OLD = set("abcdef")


def _rows(table: Table) -> list[dict[str, Any]]:
    return table._dataset.to_table(columns=["id", "text"], with_row_id=True).to_pylist()


def test_key_texts_of_strange_members_are_told_apart(graph: Graph) -> None:
    """The words of a key may hold what joins them."""
    from omnigraph.pipeline.keys import _joined

    rows = [("a\x1f1", "b"), ("a", "1\x1fb"), ("", "a"), ("a", ""), ("1", "\x1f"), ("1\x1f", "")]
    columns = [pa.array([row[n] for row in rows]) for n in range(2)]
    assert len(set(_joined(columns).to_pylist())) == len(rows)
    assert re.search(r"\x1f", _joined(columns)[0].as_py())
