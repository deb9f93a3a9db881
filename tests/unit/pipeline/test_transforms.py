"""What a mapping says about a value, and what becomes of a column: every transform, alone and together."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.pipeline.shape.columns import stored_column
from omnigraph.pipeline.shape.transforms import MappedColumn, read_mapped
from omnigraph.pipeline.shape.value_sources import value_source
from omnigraph.pipeline.shape.values import Reading, Timestamps, date_format, read_moments
from omnigraph.pipeline.sources.column_map import ColumnMap, raw_records
from omnigraph.pipeline.sources.inputs import find_files
from support.subtests import each_case


class Bad:
    """Stands for a value that is refused; its name is the same in every process, for the names of tests."""

    def __repr__(self) -> str:
        return "BAD"


BAD = Bad()
STRING, BOOL, DAY, MOMENT = (ScalarType(item) for item in (Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME))
I64, F64, F32 = (ScalarType(item) for item in (Scalar.I64, Scalar.F64, Scalar.F32))
WORDS = {"true": ["yes", "1"], "false": ["no", "0"]}
GERMAN = {"decimal": ",", "thousands": "."}


def read(spec: dict[str, Any], base: Any, *columns: Any, **options: Any) -> tuple[list[Any], dict[int, str]]:
    """The stored values of columns `a`, `b`, …, and what is said about those that are bad."""
    named = dict(zip("abc", columns, strict=False))
    spec = spec if {"concat", "first", "constant"} & set(spec) else {"column": "a", **spec}
    count = len(columns[0]) if columns else 2
    timestamps = options.pop("timestamps", Timestamps.REFUSE)
    given = MappedColumn(source=value_source(spec, "here"), columns=named, count=count, **options)
    stored, violations = read_mapped(given, PropertyType(base=base, nullable=True), Reading(timestamps=timestamps))
    stored.validate()
    if pa.types.is_date64(stored.type):
        stored = stored.view(pa.timestamp("ms"))
    values = stored.to_pylist()
    for place in violations:
        assert values[place] is None
        values[place] = BAD
    return values, violations


CASES: list[tuple[dict[str, Any], Any, list[Any], list[Any]]] = [
    ({"trim": True}, STRING, [" a\t", "\u00a0b", "c", "", None], ["a", "b", "c", "", None]),
    ({"null": ["", "N/A"]}, STRING, ["", "N/A", "n/a", " "], [None, None, "n/a", " "]),
    ({"null": "-", "trim": True}, STRING, [" - ", "--"], [None, "--"]),
    ({"bool": WORDS}, BOOL, ["yes", "no", "1", "0", None, "Yes", ""], [True, False, True, False, None, BAD, BAD]),
    ({"bool": {"true": "x"}, "null": ""}, BOOL, ["x", "", "y"], [True, None, BAD]),
    (
        {"date_format": ["%d.%m.%Y", "%Y-%m-%d"]},
        DAY,
        ["1.2.2024", "2024-02-03", "31.02.2024", None, "soon"],
        [date(2024, 2, 1), date(2024, 2, 3), BAD, None, BAD],
    ),
    ({"date_format": "%d.%m.%Y %H:%M"}, DAY, ["1.2.2024 00:00", "1.2.2024 00:01"], [date(2024, 2, 1), BAD]),
    ({"date_format": "%d.%m.%Y %H:%M"}, MOMENT, ["1.2.2024 13:30", "1.2.2024"], [datetime(2024, 2, 1, 13, 30), BAD]),
    (
        {"number": GERMAN},
        F64,
        ["1.234,5", "47", "-1.000.000", "1234,5", "1.23,4", "12.34", "1,5e3", "1,", ",5", "x"],
        [1234.5, 47.0, -1e6, 1234.5, BAD, BAD, 1500.0, BAD, BAD, BAD],
    ),
    (
        {"number": {"thousands": ","}},
        I64,
        ["47,034", "47034", "4,7034", "47.0", str(2**63), "-9,223,372,036,854,775,808"],
        [47034, 47034, BAD, BAD, BAD, -(2**63)],
    ),
    ({"number": {"thousands": " "}}, F32, ["1 000.5", "1 00"], [1000.5, BAD]),
    ({"number": True}, I64, ["1", "1.5", "0x1", "+1"], [1, BAD, BAD, BAD]),
    (
        {"split": "|"},
        ListType(Scalar.STRING),
        ["a|b", "a", "", "|", None, "a||b"],
        [["a", "b"], ["a"], [], ["", ""], None, ["a", "", "b"]],
    ),
    ({"split": ", "}, ListType(Scalar.I64), ["1, 2", "1,2"], [[1, 2], BAD]),
    ({"split": "|", "trim": True}, ListType(Scalar.I64), [" 1 | 2", "1|x"], [[1, 2], BAD]),
    ({"split": "|", "number": GERMAN}, ListType(Scalar.F64), ["1,5|2.000", "1.5|2"], [[1.5, 2000.0], BAD]),
    ({"split": "/", "bool": WORDS}, ListType(Scalar.BOOL), ["1/no", "1/2"], [[True, False], BAD]),
    (
        {"split": ";", "date_format": "%d.%m.%Y"},
        ListType(Scalar.DATE),
        ["1.2.2024;3.2.2024", "1.2.2024;"],
        [[date(2024, 2, 1), date(2024, 2, 3)], BAD],
    ),
    ({"split": " "}, VectorType(2), ["0.5 2", "1", "1 x"], [[0.5, 2.0], BAD, BAD]),
    ({"trim": True}, EnumType(("draft", "final")), [" draft "], ["draft"]),
]


@each_case(("spec", "base", "given", "expected"), CASES, ids=lambda item: str(item)[:40])
@each_case("form", ["utf8", "large", "view", "dictionary", "slice", "python", "untyped"])
def test_a_transform_gives_the_same_for_every_form_of_texts(
    spec: dict[str, Any], base: Any, given: list[Any], expected: list[Any], form: str
) -> None:
    column: Any = pa.array(given, pa.utf8())
    match form:
        case "large":
            column = column.cast(pa.large_utf8())
        case "view":
            column = column.cast(pa.string_view())
        case "dictionary":
            column = column.dictionary_encode()
        case "slice":
            column = pa.array(["x", *given, "x"], pa.utf8()).slice(1, len(given))
        case "python":
            column = given
    values, violations = read(spec, base, column, is_text=form == "untyped")
    assert values == expected
    assert list(violations) == [place for place, value in enumerate(expected) if value is BAD]


TYPED: list[tuple[dict[str, Any], Any, Any, list[Any]]] = [
    ({"null": ["-1", "N/A", "0x7", "1.0"]}, I64, pa.array([-1, 7, 1]), [None, 7, 1]),
    ({"null": ["-1", "NaN"]}, F64, pa.array([-1.0, float("nan"), 2.0]), [None, None, 2.0]),
    ({"null": ["1900-01-01"]}, DAY, pa.array([date(1900, 1, 1), date(2024, 1, 1)]), [None, date(2024, 1, 1)]),
    (
        {"null": ["1900-01-01 00:00:00"]},
        MOMENT,
        pa.array([datetime(1900, 1, 1), datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
        [None, datetime(2024, 1, 1)],
    ),
    ({"null": ["1", "false"]}, BOOL, pa.array([True, False]), [True, None]),
    ({"null": ["0"]}, F64, pa.array([Decimal("0.00"), Decimal("1.50")]), [None, 1.5]),
    ({"bool": WORDS}, BOOL, pa.array([1, 0, 2]), [True, False, BAD]),
    ({"bool": WORDS}, BOOL, pa.array([True, None]), [True, None]),
    ({"date_format": "%Y%m%d"}, DAY, pa.array([20240131, 3]), [date(2024, 1, 31), BAD]),
    ({"date_format": "%Y%m%d"}, DAY, pa.array([date(2024, 1, 31)]), [date(2024, 1, 31)]),
    ({"number": GERMAN}, F64, pa.array([1.5, None]), [1.5, None]),
    ({"number": GERMAN}, ListType(Scalar.I64), pa.array([["1.000"], ["x"], None]), [[1000], BAD, None]),
    ({"number": GERMAN}, ListType(Scalar.I64), pa.array([["1.000", None], []]), [BAD, []]),
    ({"split": "|"}, ListType(Scalar.STRING), pa.array([["a"], None]), [["a"], None]),
    ({"split": "|", "number": True}, VectorType(2), pa.array([[1.0, 2.0]]), [[1.0, 2.0]]),
    ({"trim": True}, I64, pa.array([1, None]), [1, None]),
    ({"trim": True}, STRING, pa.array([1]), [BAD]),
    ({"trim": True}, I64, pa.array(["1"]), [BAD]),
    ({"number": True}, ListType(Scalar.I64), pa.array(["1"]), [BAD]),
    ({"trim": True}, I64, pa.nulls(2), [None, None]),
]


@each_case(("spec", "base", "column", "expected"), TYPED, ids=lambda item: str(item)[:30])
def test_values_that_have_a_type_keep_it(spec: dict[str, Any], base: Any, column: Any, expected: list[Any]) -> None:
    assert read(spec, base, column)[0] == expected


FAR = pa.array([4_000_000, 0], pa.int32()).cast(pa.date32())


@each_case(
    ("base", "column", "expected"),
    [
        (STRING, FAR, [BAD, BAD]),
        (DAY, pa.array([None, 1], pa.int32()).cast(pa.date32()), [None, date(1970, 1, 2)]),
        (ListType(Scalar.STRING), pa.ListArray.from_arrays([0, 1, 2], FAR), [BAD, BAD]),
        (VectorType(1), pa.ListArray.from_arrays([0, 1, 2], FAR), [BAD, BAD]),
        (
            ListType(Scalar.DATETIME),
            pa.array([[2**60], [5, None]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us"))),
            [BAD, BAD],
        ),
    ],
    ids=str,
)
def test_values_beyond_the_calendar_of_python_are_bad_values(base: Any, column: Any, expected: list[Any]) -> None:
    stored, violations = stored_column(PropertyType(base=base, nullable=True), column)
    values = [BAD if place in violations else item for place, item in enumerate(stored.to_pylist())]
    assert values == expected


def test_a_day_beyond_the_calendar_is_read_beside_a_bad_one() -> None:
    days = pa.array([4_000_000, None, 7], pa.int32()).cast(pa.date32())
    column = pa.ListArray.from_arrays([0, 1, 3], days)
    type_ = PropertyType(base=ListType(Scalar.DATE), nullable=True)
    stored, violations = stored_column(type_, column)
    assert stored.cast(pa.list_(pa.int32())).to_pylist() == [[4_000_000], None]
    assert list(violations) == [1]


@each_case(
    ("column", "text", "base", "expected"),
    [
        (pa.array([1.5, 2.0], pa.float16()), "1.5", F64, [None, 2.0]),
        (pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal32(5, 1)), "1.5", F64, [None, 2.0]),
        (pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal64(12, 1)), "1.5", F64, [None, 2.0]),
        (pa.array([b"x", b"y"], pa.binary_view()), "x", STRING, [None, BAD]),
    ],
    ids=lambda item: str(item)[:20],
)
def test_texts_for_null_in_types_that_arrow_does_not_compare(
    column: Any, text: str, base: Any, expected: list[Any]
) -> None:
    assert read({"null": text}, base, column)[0] == expected


def test_values_of_several_types_as_json_has_them() -> None:
    values = [20240131, "20240201", None, True, 1.5, "x", {"a": 1}, 10**30]
    found, violations = read({"date_format": "%Y%m%d"}, DAY, values)
    assert found == [date(2024, 1, 31), date(2024, 2, 1), None, *[BAD] * 5]
    assert violations[5] == "'x' is not a date of the form %Y%m%d"
    assert "an object" in violations[6]
    assert read({"trim": True}, STRING, [])[0] == []


LISTS: list[tuple[dict[str, Any], Any, list[Any], list[Any]]] = [
    (
        {"date_format": "%Y%m%d"},
        ListType(Scalar.DATE),
        [[20240131], ["20240201", 20240202], [], None, ["x"], [None], "20240131", [[1]], 7],
        [[date(2024, 1, 31)], [date(2024, 2, 1), date(2024, 2, 2)], *([], None), *[BAD] * 5],
    ),
    (
        {"number": GERMAN, "trim": True},
        ListType(Scalar.I64),
        [["1.000 ", 2], [1.5], [10**30], {"a": 1}],
        [[1000, 2], BAD, BAD, BAD],
    ),
    ({"bool": WORDS}, ListType(Scalar.BOOL), [["yes", 0, True], ["maybe"]], [[True, False, True], BAD]),
    ({"number": GERMAN}, VectorType(2), [["0,5", 2], ["1,5"]], [[0.5, 2.0], BAD]),
    ({"date_format": "%Y%m%d"}, ListType(Scalar.DATE), [], []),
]


@each_case(("spec", "base", "values", "expected"), LISTS, ids=lambda item: str(item)[:30])
def test_items_of_json_lists_are_read_as_single_values_are(
    spec: dict[str, Any], base: Any, values: list[Any], expected: list[Any]
) -> None:
    assert read(spec, base, values)[0] == expected


def test_moments_in_json_lists_keep_their_time() -> None:
    source = value_source({"column": "a", "date_format": "%d.%m.%Y %H:%M"}, "here")
    given = MappedColumn(source=source, columns={"a": [["1.1.1970 00:01"], ["x"]]}, count=2)
    type_ = PropertyType(base=ListType(Scalar.DATETIME), nullable=True)
    stored, violations = read_mapped(given, type_, Reading(timestamps=Timestamps.REFUSE))
    assert stored.flatten().view(pa.int64()).to_pylist() == [60_000]
    assert violations == {1: "item 1: 'x' is not a date of the form %d.%m.%Y %H:%M"}


@pytest.mark.parametrize("kind", [pa.large_utf8(), pa.string_view(), pa.dictionary(pa.int8(), pa.utf8())], ids=str)
def test_items_of_lists_are_read_for_every_form_of_texts(kind: Any) -> None:
    items = pa.array(["31.1.2024", "x"]).cast(kind)
    column = pa.ListArray.from_arrays([0, 1, 2], items)
    found, _ = read({"date_format": "%d.%m.%Y"}, ListType(Scalar.DATE), column)
    assert found == [[date(2024, 1, 31)], BAD]


@each_case(
    "text",
    [
        "1970-01-01T00:00:00Z",
        "1970-01-01T02:00:00+02:00",
        "1970-01-01 00:00:00.000000",
        "1970-01-01T00:00:00.0Z",
        "1970-01-01",
    ],
)
@each_case("unit", ["s", "ms", "us", "ns"])
@each_case("zone", [None, "UTC", "Europe/Berlin"])
def test_a_moment_for_null_in_any_notation(text: str, unit: str, zone: str | None) -> None:
    column = pa.array([0, 86_400 * 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]]).cast(pa.timestamp(unit, zone))
    assert read({"null": text}, MOMENT, column)[0] == [None, datetime(1970, 1, 2)]
    fine = pa.array([100_000, 1], pa.timestamp("us"))
    assert read({"null": "1970-01-01T00:00:00.100Z"}, MOMENT, fine)[0] == [None, BAD]


@each_case(
    ("null", "column", "is_refused"),
    [
        ("31.12.9999", pa.array([0], pa.timestamp("us")), True),
        (["31.12.9999", "9999-12-31"], pa.array([0], pa.timestamp("us")), False),
        ("1970-01-01T00:00:00Z", pa.array([0], pa.int32()).cast(pa.date32()), True),
        ("1,000", pa.array([1000]).dictionary_encode(), True),
        ("1,000", pa.array([1000.5]), True),
        (["", "N/A"], pa.array([1]), False),
        ("0", pa.array([True]), False),
        ("31.12.9999", pa.array(["x"]), False),
        ("31.12.9999", [1, "x"], False),
    ],
    ids=lambda item: str(item)[:20],
)
def test_a_text_for_null_that_no_value_can_be_is_refused(null: Any, column: Any, is_refused: bool) -> None:
    definition = SimpleNamespace(name="Thing", definition=SimpleNamespace(properties={}))
    source = value_source({"column": "a", "null": null}, "here")
    chosen = ColumnMap(properties={"p": source}, id=None, ends=None)
    batch = {"a": column} if isinstance(column, list) else pa.table({"a": column})
    context = pytest.raises(BadRequestError, match="is not a value of the column `a`")
    with context if is_refused else nullcontext():
        raw_records(cast("Any", definition), batch, chosen, range(len(column)))


def test_columns_are_joined() -> None:
    country, number = pa.array([" DE", "AT ", None, "CH"]), pa.array([1, None, 3, 4])
    spec = {"concat": ["a", "b"], "separator": "-", "trim": True, "null": ["CH"]}
    assert read(spec, STRING, country, number)[0] == ["DE-1", None, None, None]
    days, times = pa.array([date(2024, 1, 2), None]), pa.array(["3:04", "5:06"])
    spec = {"concat": ["a", "b"], "separator": " ", "date_format": "%Y-%m-%d %H:%M"}
    assert read(spec, MOMENT, days, times)[0] == [datetime(2024, 1, 2, 3, 4), None]
    spec = {"concat": [{"constant": "user:"}, "a"]}
    assert read(spec, STRING, pa.array(["x", None]))[0] == ["user:x", None]
    found, violations = read({"concat": ["a", "b"]}, STRING, ["x", 1, True, None], ["y", 2, 1.5, {}])
    assert found == ["xy", "12", BAD, BAD]
    assert violations[2] == "1.5 is not a text, a whole number or a date, which can be joined"
    assert read({"concat": ["a", "b"]}, STRING, pa.array(["x"]), pa.array([1.5]))[0] == [BAD]


def test_the_first_of_some_columns_counts() -> None:
    code, number = pa.array([" AER ", None, "-", None]), pa.array([1, 2, 3, None])
    spec = {"first": ["a", "b"], "trim": True, "null": ["-"]}
    assert read(spec, STRING, code, number)[0] == ["AER", "2", "3", None]
    assert read({"first": ["a", "b", {"constant": "x"}]}, STRING, [None, None], [None, True])[0] == ["x", "true"]
    given = MappedColumn(source=value_source(spec, "here"), columns={"a": code, "b": number}, count=4)
    assert [given.value(place) for place in range(4)] == [" AER ", 2, "-", None]


def test_long_numbers_keep_all_of_their_digits() -> None:
    long = 10**250
    assert read({"concat": ["a", "b"]}, STRING, [long], ["!"])[0] == [f"{long}!"]
    assert read({"constant": long}, STRING)[0] == [str(long)] * 2
    assert read({"null": [long]}, STRING, [str(long), "1"])[0] == [None, "1"]


@each_case(
    ("value", "base", "expected"),
    [
        ("DE", STRING, "DE"),
        (7, I64, 7),
        ("7", I64, 7),
        (1.5, F64, 1.5),
        (True, BOOL, True),
        (date(2024, 1, 2), DAY, date(2024, 1, 2)),
        (7, STRING, "7"),
        ('["a"]', ListType(Scalar.STRING), ["a"]),
    ],
)
def test_a_constant_is_read_as_csv_would_be(value: Any, base: Any, expected: Any) -> None:
    assert read({"constant": value}, base) == ([expected, expected], {})


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Timestamps.REFUSE, [BAD, BAD, datetime(2024, 1, 1)]),
        (
            Timestamps.ROUND,
            [datetime(2024, 1, 1, 0, 0, 1), datetime(2023, 12, 31, 0, 0, 0, 1000), datetime(2024, 1, 1)],
        ),
        (
            Timestamps.TRUNCATE,
            [datetime(2024, 1, 1, 0, 0, 0, 999_000), datetime(2023, 12, 31, 0, 0, 0, 1000), datetime(2024, 1, 1)],
        ),
    ],
)
def test_finer_times_in_a_format_follow_the_rule(rule: Timestamps, expected: list[Any]) -> None:
    texts = pa.array(["1.1.2024 0:00:00.9995", "31.12.2023 0:00:00.001499999", "1.1.2024 0:00:00.000000"])
    spec = {"date_format": "%d.%m.%Y %H:%M:%S.%f"}
    assert read(spec, MOMENT, texts, timestamps=rule)[0] == expected
    listed = pa.array([f"{text}|{text}" for text in texts.to_pylist()])
    pairs = [item if item is BAD else [item, item] for item in expected]
    found, violations = read({**spec, "split": "|"}, ListType(Scalar.DATETIME), listed, timestamps=rule)
    # Python shows the milliseconds of a list as a day: the numbers of bad values are enough here.
    assert [item is BAD for item in found] == [item is BAD for item in pairs]
    assert all("item 1: " in text and "finer than milliseconds" in text for text in violations.values())


def test_what_is_said_about_bad_values() -> None:
    def said(spec: dict[str, Any], base: Any, text: str) -> str:
        return read(spec, base, pa.array([None, text]))[1][1]

    assert said({"bool": WORDS}, BOOL, "maybe") == "'maybe' is neither true (yes, 1) nor false (no, 0)"
    assert said({"number": GERMAN}, F64, "1.5") == (
        "'1.5' is not a number with the decimal separator ',' and '.' every 3 digits"
    )
    assert said({"date_format": "%d.%m.%Y"}, DAY, "x") == ("'x' is not a date of the form %d.%m.%Y")
    assert said({"split": "|", "number": True}, ListType(Scalar.I64), "1|x|y") == (
        "item 2: 'x' is not a number with the decimal separator '.'"
    )
    assert "`split` makes one of a text" in said({"number": True}, ListType(Scalar.I64), "1")
    long = said({"date_format": "%d.%m.%Y"}, DAY, "x" * 5000)
    assert len(long) < 400


def test_texts_that_are_not_utf8_are_bad_values() -> None:
    column = pa.array([b"a ", b"\xff", None], pa.binary()).view(pa.utf8())
    found, violations = read({"trim": True}, STRING, column)
    assert found == ["a", BAD, None]
    assert violations == {1: "the text is not UTF-8"}
    found, violations = read({"trim": True}, STRING, ["a ", "\ud800"])
    assert found[0] == "a"
    assert list(violations) == [1]


def test_a_slice_of_a_mapped_column_is_that_part_of_it() -> None:
    source = value_source({"concat": ["a", "b"], "separator": "/"}, "here")
    given = MappedColumn(source=source, columns={"a": pa.array(["x", "y", None]), "b": [1, 2, 3]}, count=3)
    part = given[1:3]
    assert len(part) == 2
    assert part.value(0) == "y/2"
    assert part.value(1) == "/3"
    stored, _ = read_mapped(part, PropertyType(base=STRING, nullable=True))
    assert stored.to_pylist() == ["y/2", None]


BAD_SPECS: list[tuple[Any, str]] = [
    ({}, "give one of `column`, `concat`, `first` and `constant`"),
    ({"first": []}, "`first` is a list of columns, with at least one"),
    ({"first": ["a"], "separator": "-"}, "`separator` belongs to `concat`"),
    ({"column": "a", "constant": 1}, "give one of"),
    ({"columns": "a"}, "`columns` is not a known field"),
    ({"column": 7}, "`column` is a text, not a number"),
    ({"column": "a", "separator": "-"}, "`separator` belongs to `concat`"),
    ({"concat": []}, "`concat` is a list of columns, with at least one"),
    ({"concat": [{"constant": "x"}]}, "with at least one"),
    ({"constant": None}, "`constant` is a text, a number"),
    ({"constant": [1]}, "`constant` is a text, a number"),
    ({"constant": "x", "trim": True}, "a `constant` is written as it is stored"),
    ({"column": "a", "bool": WORDS, "number": True}, "give one of `bool` and `number`"),
    ({"column": "a", "bool": {}}, "`bool`: give the texts, as in `{true: [yes], false: [no]}`"),
    ({"column": "a", "bool": "yes"}, "`bool`: keys and values are expected here, not 'yes'"),
    ({"concat": ["a", 7]}, "an item of `concat` is a column or `{constant: text}`, not '7'"),
    ({"concat": "a"}, "`concat` is a list, not a text"),
    ({"column": "a", "bool": {"true": ["1"], "false": ["1"]}}, "'1' stands for true and for false"),
    ({"column": "a", "bool": {"yes": ["1"]}}, "`bool`: `yes` is not a known field"),
    ({"column": "a", "split": ""}, "`split` is the text between two items"),
    ({"column": "a", "date_format": "%Q"}, "`%Q` is not a date format: `%Q` is not a directive"),
    ({"column": "a", "number": {"decimal": ""}}, "`decimal` is one character"),
    ({"column": "a", "number": {"decimal": "1"}}, "`decimal` is one character"),
    ({"column": "a", "number": {"thousands": "-"}}, "`thousands` is one character"),
    ({"column": "a", "number": {"thousands": "."}}, "are the same character"),
    ({"column": "a", "number": "47,034"}, "`number`: keys and values are expected here"),
    ({"column": "a", "number": {"dec": ","}}, "`number`: `dec` is not a known field"),
    ({"column": "a", "null": [None]}, "null"),
    (7, "here"),
]


@each_case(("spec", "text"), BAD_SPECS, ids=[text for _, text in BAD_SPECS])
def test_a_description_that_is_wrong_is_explained(spec: Any, text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        value_source(spec, "here")
    assert text in caught.value.message
    assert caught.value.message.startswith("here")


def test_words_that_other_readers_of_yaml_make_values_of() -> None:
    read_by_them = {"column": "a", None: ["", 7], "bool": {True: [True, 1], False: [False]}}
    texts = {"column": "a", "null": ["", "7"], "bool": {"true": ["true", "1"], "false": "false"}}
    assert value_source(read_by_them, "here") == value_source(texts, "here")


# ---- Notations of dates and times: what they take, what they refuse, and that they agree with Python's


EPOCH = datetime(1970, 1, 1)


def read_date(texts: list[str | None], *formats: str) -> list[str | None]:
    """What texts say: the day, with the time where it is not midnight."""
    found = read_moments(tuple(map(date_format, formats)), pa.array(texts, pa.utf8()))
    values: list[str | None] = []
    for is_read, seconds, nanoseconds in zip(
        found.is_read, found.seconds.tolist(), found.nanoseconds.tolist(), strict=True
    ):
        moment = EPOCH + timedelta(seconds=seconds)
        text = f"{moment:%H:%M:%S}.{nanoseconds:09}"
        day = moment.date().isoformat()
        values.append((f"{day} {text}" if text != "00:00:00.000000000" else day) if is_read else None)
    return values


@each_case(
    ("form", "good", "bad"),
    [
        (
            "%d.%m.%Y",
            {"1.2.2024": "2024-02-01", "29.02.2024": "2024-02-29", "31.12.9999": "9999-12-31"},
            ["31.02.2024", "29.02.2023", "0.1.2024", "1.13.2024", "1.2.24", "1.2.0000", " 1.2.2024"],
        ),
        ("%Y%m%d", {"20240131": "2024-01-31"}, ["2024131", "202401311", "2024-01-31"]),
        (
            "%m/%d/%y",
            {"1/2/69": "1969-01-02", "1/2/68": "2068-01-02", "12/31/00": "2000-12-31"},
            ["31/12/00", "1/2/1969"],
        ),
        (
            "%d %b %Y",
            {"1 Mar 2020": "2020-03-01", "1 DEC 2020": "2020-12-01"},
            ["1 March 2020", "1 Mär 2020", "1 ſep 2020"],
        ),
        ("%d %B %Y", {"1 AUGUST 2024": "2024-08-01"}, ["1 Auguſt 2024", "1 ſeptember 2024"]),
        ("%B %d, %Y", {"may 5, 2020": "2020-05-05"}, ["Ma 5, 2020"]),
        (
            "%Y-%m-%d %H:%M:%S.%f",
            {
                "2024-01-01 23:59:59.5": "2024-01-01 23:59:59.500000000",
                "2024-01-01 0:00:00.123456789": "2024-01-01 00:00:00.123456789",
            },
            ["2024-01-01 24:00:00.0", "2024-01-01 00:60:00.0", "2024-01-01 00:00:60.0"],
        ),
        (
            "%d.%m.%Y %I:%M %p",
            {
                "1.1.2024 12:30 am": "2024-01-01 00:30:00.000000000",
                "1.1.2024 12:30 PM": "2024-01-01 12:30:00.000000000",
            },
            ["1.1.2024 0:30 am", "1.1.2024 13:30 pm", "1.1.2024 12:30"],
        ),
        (
            "%Y-%m-%dT%H:%M%z",
            {
                "2024-01-01T01:00Z": "2024-01-01 01:00:00.000000000",
                "2024-01-01T01:00+02:00": "2023-12-31 23:00:00.000000000",
                "2024-01-01T01:00-0130": "2024-01-01 02:30:00.000000000",
            },
            ["2024-01-01T01:00", "2024-01-01T01:00+24:00", "2024-01-01T01:00+02"],
        ),
        ("100%% %d.%m.%Y", {"100% 1.2.2024": "2024-02-01"}, ["100 1.2.2024"]),
    ],
)
def test_a_format_takes_whole_texts_of_the_calendar(form: str, good: dict[str, str], bad: list[str]) -> None:
    expected = [*good.values(), *[None] * (len(bad) + 1)]
    assert read_date([*good, None, *bad], form) == expected
    assert read_date([*good, None, *bad] * 3, form) == expected * 3


def test_the_first_format_that_fits_the_calendar_counts() -> None:
    texts = ["12/31/2024", "1/2/2024", "2024-02-01", "x", None]
    assert read_date(texts, "%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d") == [
        "2024-12-31",
        "2024-02-01",
        "2024-02-01",
        None,
        None,
    ]


@each_case(
    ("form", "text"),
    [
        ("%d.%m", "it has no year (%Y, %y)"),
        ("%Y", "it has no month"),
        ("%Y-%m", "it has no day"),
        ("%q", "`%q` is not a directive; known are %Y"),
        ("%Y-%m-%d %", "`%` is not a directive"),
        ("%d.%m.%Y %d", "more than one of %d"),
        ("%d.%m.%Y %B", "more than one of %m, %b, %B"),
        ("%d.%m.%Y %I:%M", "%I (hours up to 12) and %p (AM or PM) belong together"),
        ("%d.%m.%Y %H:%M %p", "belong together"),
        ("%d.%m.%Y %H %S", "%S without %M"),
        ("%d.%m.%Y %M", "%M without %H"),
        ("%d.%m.%Y %f", "%f without %S"),
    ],
)
def test_a_format_that_says_too_little_or_too_much_is_refused(form: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        date_format(form)
    assert text in str(caught.value)


@given(
    moment=st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2068, 12, 31)),
    form=st.sampled_from(
        ["%d.%m.%Y", "%Y%m%d%H%M%S", "%m/%d/%y %I:%M:%S %p", "%d-%b-%Y %H:%M:%S.%f", "%B %d, %Y", "%Y/%m/%d %H:%M"]
    ),
)
def test_formats_mean_what_they_mean_in_python(moment: datetime, form: str) -> None:
    text = moment.strftime(form)
    exact = datetime.strptime(text, form).replace(tzinfo=UTC)
    found = read_moments((date_format(form),), pa.array([text]))
    assert found.is_read.tolist() == [True]
    whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(found.seconds[0]))
    assert whole + timedelta(microseconds=int(found.nanoseconds[0]) // 1000) == exact


# ---- Which files of a folder a directory or a pattern stands for


FILES = (
    *("a.csv", "b.txt", "_SUCCESS", ".a.csv.crc", "2024/b.csv", "2024/05/c.csv", "2024/_c.csv"),
    *("_temporary/0/c.csv", ".git/d.csv"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**/*.csv", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**.csv", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**", ["2024/05/c.csv", "2024/b.csv", "a.csv", "b.txt"]),
        ("2024/**/*.csv", ["2024/05/c.csv", "2024/b.csv"]),
        ("**/05/*.csv", ["2024/05/c.csv"]),
        ("**/2024/**/c*", ["2024/05/c.csv"]),
        ("*", ["a.csv", "b.txt"]),
        ("*/*.csv", ["2024/b.csv"]),
        ("*.c[!x]v", ["a.csv"]),
        ("?.csv", ["a.csv"]),
        ("_*", ["_SUCCESS"]),
        (".*", [".a.csv.crc"]),
        ("**/_*.csv", ["2024/_c.csv"]),
        ("_temporary/**/*.csv", ["_temporary/0/c.csv"]),
        ("*/_c.csv", ["2024/_c.csv"]),
    ],
)
def test_a_pattern_takes_these_files(folder: Path, pattern: str, expected: list[str]) -> None:
    for source in (f"{folder}/{pattern}", f"file://{folder}/{pattern}"):
        found = find_files(source, ("csv",))
        assert [file.path.removeprefix(f"{folder}/") for file in found] == expected


def test_folders_stand_for_columns(tmp_path: Path) -> None:
    names = ("k=a%2Fb/day=1/x.csv", "k=__HIVE_DEFAULT_PARTITION__/plain/x.csv", "x=/=y/x.csv")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    expected = [(("k", None),), (("k", "a/b"), ("day", "1")), (("x", ""),)]
    for source in (f"{tmp_path}", f"{tmp_path}/**/*.csv"):
        assert [file.partitions for file in find_files(source)] == expected
    assert find_files(f"{tmp_path}/k=a%2Fb/day=1/x.csv")[0].partitions == ()
    assert find_files(f"{tmp_path}/k=a%2Fb")[0].partitions == (("day", "1"),)
    (tmp_path / "k=1" / "k=2").mkdir(parents=True)
    (tmp_path / "k=1" / "k=2" / "x.csv").touch()
    with pytest.raises(InputFileError, match="two of its folders give the column `k`"):
        find_files(f"{tmp_path}")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
@pytest.mark.parametrize("pattern", ["", "**/*.csv", "2024/b*", "2*/b.csv"])
def test_the_folder_of_a_table_is_refused(folder: Path, log: str, kind: str, pattern: str) -> None:
    at = folder / "2024" / log
    at.parent.mkdir()
    at.touch()
    with pytest.raises(InputFileError, match=f"/2024 is a table of {kind}.*`table:`"):
        find_files(f"{folder}/{pattern}", ("csv",))
    assert len(find_files(f"{folder}/*.csv")) == 1


def test_a_pattern_without_a_file_is_an_error(folder: Path) -> None:
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/*/x.csv")
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/missing/*.csv")
