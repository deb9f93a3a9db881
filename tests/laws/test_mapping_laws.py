"""One mapping means the same for every source: files of all formats and frames, good values and bad ones."""

from __future__ import annotations

import csv
import json
import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_field, arrow_type
from omnigraph.core.ids import derive_id, split_id
from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
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
from omnigraph.errors import LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.shape.transforms import MappedColumn, read_mapped
from omnigraph.pipeline.shape.value_sources import value_source
from omnigraph.pipeline.shape.values import Reading, Timestamps
from support.graphs import rows_of
from support.spark import spark
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

SCHEMA = """
node Thing {
    key: String @key
    text: String?
    flag: Bool?
    day: Date?
    at: DateTime?
    whole: I64?
    real: F64?
    tags: [String]?
    counts: [I64]?
    vec: Vector(2)?
}
"""
#: Per property: what a mapping may say, and texts that fit some of it.
PROPERTIES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "text": (
        [{}, {"trim": True}, {"null": ["-", "N/A"]}, {"trim": True, "null": "-"}],
        ["a", " a ", "-", " - ", "N/A", "ü🦊", "a,b", 'q"q', "007"],
    ),
    "flag": (
        [{"bool": {"true": ["yes", "1"], "false": ["no", "0"]}}, {"bool": {"true": "x"}, "null": ["-"], "trim": True}],
        ["yes", "no", "1", "0", "x", "-", "YES", " x", "true"],
    ),
    "day": (
        [{"date_format": "%d.%m.%Y"}, {"date_format": ["%d/%m/%Y", "%m/%d/%Y", "%Y%m%d"], "null": "0"}],
        ["1.2.2024", "31.02.2024", "12/31/2024", "31/12/2024", "20240229", "0", "2024-01-01"],
    ),
    "at": (
        [
            {"date_format": ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.%f"]},
            {"trim": True},
            {"date_format": "%d.%m.%Y %I:%M %p %z"},
        ],
        [
            "2024-02-29 12:30",
            "2024-02-29 12:30:59.9995",
            "2024-02-29T12:30:00.1234567Z",
            "1.2.2024 1:05 PM +0200",
            "2024-02-30 00:00",
        ],
    ),
    "whole": (
        [{"number": True}, {"number": {"thousands": ","}}, {"number": {"decimal": ","}}],
        ["1", "1,000", "1000", "-5", "1.5", "1,5", "99999999999999999999", "x"],
    ),
    "real": (
        [{"number": {"decimal": ",", "thousands": "."}}, {"number": {"thousands": "'"}}],
        ["1", "1.000,5", "1,5", "1'000.5", "1e3", "1e999", "-0,0", "1.00"],
    ),
    "tags": ([{"split": "|"}, {"split": ", ", "trim": True}], ["a|b", "a", "|", "a, b", " a "]),
    "counts": (
        [{"split": "|"}, {"split": ";", "number": {"thousands": ","}, "trim": True}],
        ["1|2", "1; 1,000", "x", "1||2", "7"],
    ),
    "vec": ([{"split": " "}, {"split": ";", "number": {"decimal": ","}}], ["1 2", "0,5;2", "1", "a b"]),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return Graph.init(tmp_path_factory.mktemp("laws") / "g.omni", SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("input")


TYPES: dict[str, Any] = {
    "text": ScalarType(Scalar.STRING),
    "flag": ScalarType(Scalar.BOOL),
    "day": ScalarType(Scalar.DATE),
    "at": ScalarType(Scalar.DATETIME),
    "whole": ScalarType(Scalar.I64),
    "real": ScalarType(Scalar.F64),
    "tags": ListType(Scalar.STRING),
    "counts": ListType(Scalar.I64),
    "vec": VectorType(2),
}


def accepted(name: str, reading: dict[str, Any], timestamps: str) -> list[str]:
    """The texts of a property that a reading accepts."""
    _, texts = PROPERTIES[name]
    source = value_source({"column": "c", **reading}, "here")
    given = MappedColumn(source=source, columns={"c": pa.array(texts)}, count=len(texts))
    type_ = PropertyType(base=TYPES[name], nullable=True)
    _, violations = read_mapped(given, type_, Reading(timestamps=Timestamps(timestamps)))
    return [text for place, text in enumerate(texts) if place not in violations]


@each_case("name", PROPERTIES)
def test_every_reading_accepts_some_texts_and_refuses_others(name: str) -> None:
    """Otherwise the comparisons below would say little."""
    readings, texts = PROPERTIES[name]
    for reading in readings:
        count = len(accepted(name, reading, "refuse"))
        assert count > 0
        assert count < len(texts) or name in ("text", "tags")


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, str | None]]]:
    """An entry of a mapping, and rows of texts: in half of the cases all of them fit."""
    properties: dict[str, Any] = {
        "key": {"concat": ["first", "second"], "separator": draw(st.sampled_from(["", "-", "⁂"]))}
    }
    timestamps = draw(st.sampled_from(["refuse", "round", "truncate"]))
    is_good = draw(st.booleans())
    pools: dict[str, list[str]] = {}
    for name, (readings, texts) in PROPERTIES.items():
        reading = draw(st.sampled_from(readings))
        properties[name] = {"column": f"c.{name}", **reading}
        pools[f"c.{name}"] = accepted(name, reading, timestamps) if is_good else texts
    rows = [
        {"first": f"k{number}", "second": draw(st.sampled_from(["a", "b"]))}
        | {name: draw(st.none() | st.sampled_from(pool)) for name, pool in pools.items()}
        for number in range(draw(st.integers(1, 4)))
    ]
    return {"columns": {}, "properties": properties, "timestamps": timestamps}, rows


def outcome(graph: Graph, lines_before: int = 0, **given: Any) -> Any:
    """The rows that a load gives, or what it says about bad records."""
    try:
        graph.load(mode="overwrite", **given)
    except LoadRejectedError as refused:
        return sorted(
            ((item.line or 0) - lines_before, item.field, item.value, item.message) for item in refused.report.examples
        )
    return rows_of(graph, "node:Thing")


def nested(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, with the columns `c.…` as members of a struct."""
    inner = [{name.removeprefix("c."): row[name] for name in row if name.startswith("c.")} for row in rows]
    return [
        {"first": row["first"], "second": row["second"], "c": members} for row, members in zip(rows, inner, strict=True)
    ]


def tables(rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
    """Rows as columns, flat and with a struct."""
    texts = [(name, pa.utf8()) for name in rows[0]]
    members = pa.struct([(name, pa.utf8()) for name in PROPERTIES])
    schema = pa.schema([("first", pa.utf8()), ("second", pa.utf8()), ("c", members)])
    return pa.Table.from_pylist(rows, pa.schema(texts)), pa.Table.from_pylist(nested(rows), schema)


def write_files(folder: Path, rows: list[dict[str, Any]]) -> dict[str, int]:
    """Files of every format, and how many lines of each come before its first record."""
    flat, deep = tables(rows)
    with (folder / "flat.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (folder / "flat.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "deep.json").write_text(json.dumps(nested(rows)), encoding="utf-8")
    pq.write_table(flat, folder / "flat.parquet")
    pq.write_table(deep, folder / "deep.parquet", row_group_size=2)
    orc.write_table(deep, folder / "deep.orc")
    return {"flat.csv": 1, "flat.jsonl": 0, "deep.json": 0, "flat.parquet": 0, "deep.parquet": 0, "deep.orc": 0}


@settings(max_examples=20)
@given(case=cases())
def test_files_and_frames_with_one_mapping_are_equal(
    graph: Graph, folder: Path, case: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    entry, rows = case
    flat, deep = tables(rows)
    mapping = {"nodes": {"Thing": entry}}
    expected = outcome(graph, frames={"Thing": flat}, mapping=mapping, engine="local")
    assert expected == outcome(graph, frames={"Thing": deep}, mapping=mapping, engine="local")
    for name, before in write_files(folder, rows).items():
        source = {"nodes": {"Thing": {"source": str(folder / name)} | entry}}
        assert outcome(graph, before, mapping=source, engine="local") == expected, name


ROWS = [
    {"first": str(n), "second": "a"}
    | {f"c.{name}": [*texts, None][n % (len(texts) + 1)] for name, (_, texts) in PROPERTIES.items()}
    for n in range(12)
]


def test_spark_reads_a_mapping_as_this_process_does(graph: Graph, folder: Path, spark: SparkSession) -> None:
    """Good rows give equal graphs, and bad ones equal reports, from files and from frames."""
    properties = {name: {"column": f"c.{name}", **readings[0]} for name, (readings, _) in PROPERTIES.items()}
    properties["key"] = {"concat": ["first", "second"]}
    entry = {"columns": {}, "properties": properties, "timestamps": "round"}
    flat, _ = tables(ROWS)
    local = {"mapping": {"nodes": {"Thing": entry}}, "engine": "local"}
    report = outcome(graph, frames={"Thing": flat}, **local)
    bad = {item[0] for item in report}
    good = [row for number, row in enumerate(ROWS, start=1) if number not in bad]
    assert bad
    assert good
    mapping = {"nodes": {"Thing": entry}}
    write_files(folder, ROWS)
    frame = spark.read.parquet(str(folder / "deep.parquet")).coalesce(1)
    assert outcome(graph, frames={"Thing": frame}, mapping=mapping, spark=spark) == report
    expected = outcome(graph, frames={"Thing": tables(good)[0]}, **local)
    write_files(folder, good)
    frame = spark.read.parquet(str(folder / "deep.parquet"))
    assert outcome(graph, frames={"Thing": frame}, mapping=mapping, spark=spark) == expected
    source = {"nodes": {"Thing": {"source": str(folder / "flat.csv")} | entry}}
    assert outcome(graph, mapping=source, spark=spark) == expected


# ---- Laws of stored values: spellings inside ids, coercion, and their way through Arrow


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
    | st.sampled_from(["", "0", "-0", "00", "+1", "1.0", "1e3", "inf", "nan", "1_0", " 1", "١", "9" * 5000])
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
    fits = value in range(low, high + 1) if isinstance(value, int) else (value.is_integer() and low <= value <= high)
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
    expected = (moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
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
