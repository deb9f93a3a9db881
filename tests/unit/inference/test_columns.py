"""The type of a column, and how its values are read, from the values themselves."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.core.types import PropertyType
from omnigraph.inference.columns import Column, SampledColumn, look_at
from support.subtests import named_cases

#: Texts of CSV under the name of their column: the type, and the steps that read them.
TEXTS: dict[str, tuple[str, list[str | None], str, dict[str, Any]]] = {
    "small whole numbers": ("year", ["1902", "2018"], "I32", {}),
    "negative numbers and zero": ("delta", ["-3", "0", "12"], "I32", {}),
    "whole numbers with little room left in 32 bits": ("population", ["1400000000", "7"], "I64", {}),
    "ids get room": ("user_id", ["1", "2"], "I64", {}),
    "more digits than 64 bits have": ("serial", ["12345678901234567890"], "String", {}),
    "numbers with fractions": ("price", ["1.50", "2"], "F64", {}),
    "an exponent beside a fraction": ("mass", ["1.5e-3", "2.0"], "F64", {}),
    "an exponent alone is a code": ("part", ["12E5", "13E6"], "String", {}),
    "a number without its first digit": ("p", [".5", "1.5"], "String", {}),
    "thousands": ("budget", ["47,034", "5", "1,000,000"], "I32", {"number": {"thousands": ","}}),
    "thousands and decimals": ("sum", ["1,234.50", "7.25"], "F64", {"number": {"thousands": ","}}),
    "thousands as in German": ("sum", ["1.234,50", "7,25"], "F64", {"number": {"thousands": ".", "decimal": ","}}),
    "decimals as in German": ("sum", ["1234,5", "7"], "F64", {"number": {"decimal": ","}}),
    "thousands as in Switzerland": ("sum", ["1'234", "7"], "I32", {"number": {"thousands": "'"}}),
    "a point and three digits is a fraction": ("sum", ["1.234", "2.5"], "F64", {}),
    "four digits without a separator among others": ("sum", ["1,234", "1234"], "F64", {"number": {"decimal": ","}}),
    "leading zeros": ("nr", ["007", "012"], "String", {}),
    "zip codes": ("zip_code", ["12345", "90210"], "String", {}),
    "phone numbers": ("phone", ["4930123", "4930124"], "String", {}),
    "versions": ("version", ["1.0", "1.10"], "String", {}),
    "a currency": ("price", ["$1.50", "$2"], "String", {}),
    "percents": ("share", ["5%", "7.5%"], "String", {}),
    "a plus sign": ("delta", ["+1", "-2"], "String", {}),
    "truth values as they are": ("x", ["true", "false"], "Bool", {}),
    "truth values in another case": (
        "x",
        ["TRUE", "False"],
        "Bool",
        {"bool": {"true": ["TRUE"], "false": ["FALSE", "False"]}},
    ),
    "yes and no": ("x", ["yes", "no"], "Bool", {"bool": {"true": ["yes"], "false": ["no"]}}),
    "Y and N": ("x", ["Y", "N"], "Bool", {"bool": {"true": ["Y"], "false": ["N"]}}),
    "t and f": ("x", ["t", "f"], "Bool", {"bool": {"true": ["t"], "false": ["f"]}}),
    "only Y, and nothing otherwise": ("codeshare", ["Y", None], "Bool?", {"bool": {"true": ["Y"], "false": ["N"]}}),
    "only Y": ("grade", ["Y", "Y"], "String", {}),
    "only no": ("x", ["no", "no"], "String", {}),
    "0 and 1 of a flag": ("is_active", ["0", "1"], "Bool", {"bool": {"true": ["1"], "false": ["0"]}}),
    "0 and 1 of something else": ("stops", ["0", "1"], "I32", {}),
    "truth values of several origins": (
        "x",
        ["yes", "no", "TRUE", "1"],
        "Bool",
        {"bool": {"true": ["1", "TRUE", "yes"], "false": ["0", "FALSE", "no"]}},
    ),
    "letters and digits without a word": ("x", ["y", "n", "t", "1"], "String", {}),
    "yes among other words": ("x", ["yes", "maybe"], "String", {}),
    "days": ("x", ["2024-02-29", "1999-12-31"], "Date", {}),
    "a day that the calendar does not have": ("x", ["2024-02-30", "1999-12-31"], "String", {}),
    "days with points": ("x", ["31.1.2024", "1.12.2023"], "Date", {"date_format": "%d.%m.%Y"}),
    "months first": ("x", ["12/31/2024", "1/2/2024"], "Date", {"date_format": "%m/%d/%Y"}),
    "days first": ("x", ["31/12/2024", "1/2/2024"], "Date", {"date_format": "%d/%m/%Y"}),
    "days or months first": ("x", ["1/2/2024", "3/4/2024"], "String", {}),
    "short years": ("x", ["31-Jan-99", "01-Feb-07"], "Date", {"date_format": "%d-%b-%y"}),
    "names of months": ("x", ["January 5, 2020", "March 17, 2021"], "Date", {"date_format": "%B %d, %Y"}),
    "two notations": ("x", ["2024-01-31", "31.01.2024"], "Date", {"date_format": ["%Y-%m-%d", "%d.%m.%Y"]}),
    "eight digits of a date": ("order_date", ["20240131", "20240229"], "Date", {"date_format": "%Y%m%d"}),
    "eight digits of something else": ("nr", ["20240131", "20240229"], "I32", {}),
    "times": ("at", ["2024-01-31T10:00:00Z", "2024-01-31T10:00:00.5+01:00"], "DateTime", {}),
    "times finer than milliseconds": ("at", ["2024-01-31 10:00:00.123456"], "DateTime", {}),
    "times at midnight": ("at", ["2024-01-31 00:00:00"], "Date", {"date_format": "%Y-%m-%d %H:%M:%S"}),
    "times of another notation": ("at", ["1/31/2024 1:05 PM"], "DateTime", {"date_format": "%m/%d/%Y %I:%M %p"}),
    "times that name UTC": ("at", ["2015-01-01 10:00:00 UTC"], "DateTime", {"date_format": "%Y-%m-%d %H:%M:%S UTC"}),
    "seconds since 1970": ("timestamp", ["964982703", "1445714994"], "I64", {}),
    "lists with bars": ("genres", ["a|b", "a", "b|c"], "[String]", {"split": "|"}),
    "lists with semicolons and spaces": ("tag", ["a; b", "c; d", "e"], "[String]", {"split": "; "}),
    "lists with some spaces": ("tag", ["a;b", "c; d", "e"], "[String]", {"split": ";", "trim": True}),
    "lists of numbers": ("ids", ["1|2", "3", "4|5"], "[I64]", {"split": "|"}),
    "commas between items that come again": ("genres", ["a, b", "b, c", "c, a"], "[String]", {"split": ", "}),
    "commas in sentences": ("notes", ["first, second", "one, more", "x"], "String", {}),
    "commas in places": ("city", ["Salem, OR", "Portland, OR", "x"], "String", {}),
    "one bar among many texts": ("title", ["a|b", *map(str, range(60)), "x"], "String", {}),
    "addresses": ("pages", ["http://a|b", "http://c|d"], "String", {}),
    "lists as JSON": ("tags", ['["a"]', "[]"], "[String]", {}),
    "vectors as JSON": ("embedding", ["[0.5, 1]", "[2, 0.1]"], "Vector(2)", {}),
    "white space around numbers": ("n", [" 1", "2 "], "I32", {"trim": True}),
    "white space around texts": ("n", [" a", "b "], "String", {"trim": True}),
    "null": ("n", ["1", "\\N", "NULL"], "I32?", {"null": ["NULL", "\\N"]}),
    "words for null among numbers": ("n", ["1", "unknown", "-"], "I32?", {"null": ["-", "unknown"]}),
    "words for null among texts stay": ("n", ["a", "unknown", "NA"], "String", {}),
    "a dash among codes": ("iata", ["LH", "-"], "String?", {"null": "-"}),
    "a dash among signs": ("strand", ["+", "-"], "String", {}),
    "an empty text in quotes": ("n", ["a", ""], "String?", {"null": ""}),
    "numbers and one other text": ("year", ["1999"] * 40 + ["19x9"], "String", {}),
    "no values": ("n", [None, None], "String?", {}),
    "only null": ("alias", ["\\N"], "String?", {"null": "\\N"}),
}


def read(column: Column | None) -> tuple[str, dict[str, Any]]:
    """The type of a column and its steps."""
    assert column is not None
    return str(PropertyType(base=column.base, nullable=column.nulls > 0)), dict(column.steps)


@named_cases(("name", "values", "kind", "steps"), TEXTS)
def test_a_column_of_csv(name: str, values: list[str | None], kind: str, steps: dict[str, Any]) -> None:
    column = SampledColumn(name=name, number=1, values=pa.array(values, pa.utf8()), is_text=True)
    assert read(look_at(column)) == (kind, steps)


#: Typed columns: whether the types of the source are meant, and what follows.
TYPED: dict[str, tuple[str, Any, bool, str, dict[str, Any]]] = {
    "declared integers": ("n", pa.array([1, 2]), True, "I64", {}),
    "integers of pandas": ("n", pa.array([1, 2]), False, "I32", {}),
    "short integers": ("n", pa.array([1], pa.int8()), True, "I32", {}),
    "unsigned integers": ("n", pa.array([2**63], pa.uint64()), True, "U64", {}),
    "fractions": ("n", pa.array([1.0, 2.5]), True, "F64", {}),
    "short fractions": ("n", pa.array([1.5], pa.float32()), True, "F32", {}),
    "whole fractions beside null, of pandas": ("boss_id", pa.array([1.0, None]), False, "I64?", {}),
    "whole fractions beside null, declared": ("n", pa.array([1.0, None]), True, "F64?", {}),
    "decimals": ("n", pa.array([Decimal("1.5")]), True, "F64", {}),
    "truth values": ("n", pa.array([True, None]), True, "Bool?", {}),
    "days": ("n", pa.array([date(2024, 1, 1)]), True, "Date", {}),
    "times": ("n", pa.array([datetime(2024, 1, 1, 10)]), True, "DateTime", {}),
    "times at midnight": ("n", pa.array([datetime(2024, 1, 1)]), False, "Date", {}),
    "bytes": ("n", pa.array([b"x"]), True, "Blob", {}),
    "categories": ("n", pa.array(["a", "b"]).dictionary_encode(), True, "String", {}),
    "declared texts of digits": ("n", pa.array(["1", "2"]), True, "String", {}),
    "declared texts of digits and of null": (
        "n",
        pa.array(["1", "N/A"]),
        True,
        "I32?",
        {"null": "N/A", "number": True},
    ),
    "declared texts of digits, and empty ones": ("n", pa.array(["1", ""]), True, "String?", {"null": ""}),
    "declared texts with thousands": ("n", pa.array(["1,234", "5"]), True, "I32", {"number": {"thousands": ","}}),
    "declared yes and no": ("n", pa.array(["yes", "no"]), True, "Bool", {"bool": {"true": ["yes"], "false": ["no"]}}),
    "texts of digits, of JSON": ("n", pa.array(["1", "2"]), False, "I32", {"number": True}),
    "texts of days": ("n", pa.array(["2024-01-01"]), True, "Date", {}),
    "lists of texts": ("n", pa.array([["a"], None]), True, "[String]?", {}),
    "lists of numbers": ("n", pa.array([[1, 2], [3]]), True, "[I64]", {}),
    "short lists of fractions": ("n", pa.array([[1.5, 2.0], [3.0, 1.0]]), True, "[F64]", {}),
    "embeddings": ("embedding", pa.array([[1.5, 2.0], [3.0, 1.0]]), True, "Vector(2)", {}),
    "long lists of one length": ("n", pa.array([[0.5] * 8, [1.5] * 8]), True, "Vector(8)", {}),
    "lists of a fixed size": ("n", pa.array([[0.5, 1.0]], pa.list_(pa.float32(), 2)), True, "Vector(2)", {}),
}


@named_cases(("name", "values", "is_declared", "kind", "steps"), TYPED)
def test_a_column_with_a_type(name: str, values: Any, is_declared: bool, kind: str, steps: dict[str, Any]) -> None:
    assert read(look_at(SampledColumn(name=name, number=1, values=values, is_declared=is_declared))) == (kind, steps)


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.duration("s"), pa.list_(pa.binary())], ids=str)
def test_a_column_that_no_property_holds(kind: pa.DataType) -> None:
    values = pa.array([[b"x"]] if pa.types.is_list(kind) else [1], kind)
    assert look_at(SampledColumn(name="n", number=1, values=values)) is None


def test_other_columns_tell_whether_days_come_first() -> None:
    column = SampledColumn(name="x", number=1, values=pa.array(["1/2/2024", "3/4/2024"]), is_text=True)
    assert read(look_at(column, order="day")) == ("Date", {"date_format": "%d/%m/%Y"})
    assert read(look_at(column, order="month")) == ("Date", {"date_format": "%m/%d/%Y"})


def test_a_date_that_is_not_sure_beside_others() -> None:
    column = SampledColumn(name="x", number=1, values=pa.array(["2024-01-31", "3/4/2024"]), is_text=True)
    unsure = look_at(column)
    assert read(unsure) == ("String", {})
    assert unsure is not None
    assert unsure.is_ambiguous
    assert "day and month could be exchanged" in unsure.seen
    assert read(look_at(column, order="day")) == ("Date", {"date_format": ["%d/%m/%Y", "%Y-%m-%d"]})


#: Texts again and again: a closed set where the name speaks for it, or much repetition.
CHOICES: dict[str, tuple[str, list[str], bool]] = {
    "a status": ("status", ["open", "done"] * 12, True),
    "a status of few rows": ("status", ["open", "done"] * 3, False),
    "a status with a value that occurs once": ("status", ["open"] * 40 + ["lost"], False),
    "anything, very often": ("mood", ["up", "down"] * 60, True),
    "anything, often": ("mood", ["up", "down"] * 12, False),
    "countries": ("country", ["DE", "FR"] * 60, False),
    "sentences": ("status", ["is open", "is done"] * 12, False),
    "many values": ("status", [f"s{number % 30}" for number in range(600)], False),
}


@named_cases(("name", "values", "is_closed"), CHOICES)
def test_a_closed_set_needs_a_name_or_much_repetition(name: str, values: list[str], is_closed: bool) -> None:
    column = look_at(SampledColumn(name=name, number=1, values=pa.array(values), is_text=True))
    assert column is not None
    assert (column.choices != ()) == is_closed
    assert str(column.as_choices().base).startswith("enum" if is_closed else "String")


#: What a comment says about a column.
EVIDENCE: dict[str, tuple[str, list[str | None], str]] = {
    "numbers": ("year", ["1902", "2018"], "whole numbers 1902 to 2018"),
    "one number": ("stops", ["0", "0"], "always 0"),
    "moments as numbers": ("timestamp", ["964982703"], "always 964982703, probably seconds since 1970"),
    "texts": ("x", ["a", "b", "b"], "2 different texts"),
    "codes": ("x", ["01", "2"], '2 different texts; digits with leading zeros, as in "01", are codes'),
    "nearly numbers": ("x", ["1"] * 39 + ["one"], '2 different texts; 39 of 40 are numbers, and "one" is not'),
    "a currency": ("x", ["$1", "$2"], "2 different texts; a currency is not a part of a number"),
    "days": ("x", ["31.1.2024", "1.2.2024"], "days 2024-01-31 to 2024-02-01, written as %d.%m.%Y"),
    "a text over lines": ("x", ["a\nb"], 'always "a\\nb"'),
}


@named_cases(("name", "values", "seen"), EVIDENCE)
def test_the_evidence_for_a_column(name: str, values: list[str | None], seen: str) -> None:
    column = look_at(SampledColumn(name=name, number=1, values=pa.array(values, pa.utf8()), is_text=True))
    assert column is not None
    assert column.seen == seen
