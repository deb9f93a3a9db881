"""One table of values that every way into a graph is tried with: what is stored of each, and what none of them takes.

What only some ways take is tested there: numbers written as texts in parameters, `2020.0` for an integer in files and
literals, nulls inside lists in mutations.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa

from omnigraph.core.values import quote

F32_MAX = 3.4028234663852886e38
#: Halfway between the largest F32 and the next power of two: from here on rounding gives infinity.
F32_OVERFLOW = 3.4028235677973366e38
HUGE = 10**400

#: The property of each type in the graphs that the values go through.
COLUMNS = {
    "String": "text",
    "Bool": "flag",
    "I32": "i32",
    "I64": "i64",
    "U32": "u32",
    "U64": "u64",
    "F32": "f32",
    "F64": "f64",
    "Date": "day",
    "DateTime": "at",
    "enum(draft, final)": "stage",
    "[String]": "tags",
    "[I32]": "numbers",
    "[I64]": "counts",
    "[U64]": "sizes",
    "[F64]": "shares",
    "[Bool]": "flags",
    "[Date]": "days",
    "Vector(3)": "vec",
    "Blob": "data",
}
SCHEMA = "node Thing { name: String @key " + " ".join(f"{column}: {type_}?" for type_, column in COLUMNS.items())
SCHEMA += " }"


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value of a type, and its stored form, which an export shows as JSON."""

    type: str
    given: Any
    stored: Any

    def __str__(self) -> str:
        return f"{self.type} {str(self.given)[:40]!a}"

    @property
    def column(self) -> str:
        return COLUMNS[self.type]


def _same(type_: str, *values: Any) -> list[Value]:
    return [Value(type_, value, value) for value in values]


def _pairs(type_: str, stored: dict[Any, Any]) -> list[Value]:
    return [Value(type_, given, value) for given, value in stored.items()]


ACCEPTED = [
    *_same("String", "", "x", ' "x" ', "naïve 知识 🦊", "line\nfeed\r\ttab", "\x7f\x85\u2028"),
    *_same("Bool", True, False),
    *_same("I32", 0, 5, 2020, -(2**31), 2**31 - 1),
    *_same("I64", -(2**63), 2**53 + 1, 2**63 - 1),
    *_same("U32", 0, 2**32 - 1),
    *_same("U64", 2**63 - 1, 2**63, 2**64 - 1),
    *_pairs("F64", {3: 3.0, 0.1: 0.1, 2.5: 2.5, 5e-324: 5e-324, 1.7976931348623157e308: 1.7976931348623157e308}),
    *_pairs("F32", {7: 7.0, 1.5: 1.5, 0.1: 0.10000000149011612, 16777217: 16777216.0, 1e-60: 0.0}),
    *_pairs("F32", {F32_MAX: F32_MAX, 3.4028235e38: F32_MAX}),
    *_pairs("F32", {math.nextafter(F32_OVERFLOW, 0): F32_MAX, -math.nextafter(F32_OVERFLOW, 0): -F32_MAX}),
    *_pairs("Date", {"1970-01-01": 0, "1970-01-02": 1, "1969-12-31": -1, "2024-02-29": 19782}),
    *_pairs("Date", {"0001-01-01": -719162, "9999-12-31": 2932896}),
    *_pairs("DateTime", {"1970-01-01T00:00:00Z": 0, "1970-01-01T00:00:01Z": 1000, "1970-01-01T00:00:01.500Z": 1500}),
    *_pairs("DateTime", {"1970-01-01T01:00:00+01:00": 0, "1969-12-31T23:59:59.999+01:00": -3600001}),
    *_pairs("DateTime", {"2024-02-29T12:34:56.789Z": 1709210096789}),
    *_same("enum(draft, final)", "draft", "final"),
    *_same("[String]", ["a", "b"], [], ["", "🦉"]),
    *_same("[I32]", [1, 2]),
    *_same("[I64]", [1, 2**63 - 1], []),
    *_same("[U64]", [2**64 - 1]),
    Value("[F64]", [1, 2.5], [1.0, 2.5]),
    *_same("[Bool]", [True, False]),
    Value("[Date]", ["1970-01-01", "1970-01-02"], [0, 1]),
    Value("Vector(3)", [1, 2.5, 0], [1.0, 2.5, 0.0]),
    Value("Vector(3)", [1, 0, 0], [1.0, 0.0, 0.0]),
    Value("Vector(3)", [1, 0.1, -2.5], [1.0, 0.10000000149011612, -2.5]),
    *_same("Blob", "base64:", "base64:aGk=", "base64:AAEC/w=="),
]  # fmt: skip

#: Type → what no way into a graph takes for it.
REFUSED: dict[str, list[Any]] = {
    "String": [5, 1, True, ["a"], {"a": 1}, "half \ud800"],
    "Bool": [1, 0, "true", "yes"],
    "I32": [2**31, -(2**31) - 1, 1.5, 2.7, True, [1], "2147483648", "five", "", "1e3", "2.0", "٣"],
    "I64": [2**63, -(2**63) - 1, 2.0**63 * 4, 1e300, True],
    "U32": [-1, 2**32, 1.5],
    "U64": [-1, 2**64, True],
    "F64": [HUGE, True, "1.5"],
    "F32": [F32_OVERFLOW, -F32_OVERFLOW, 1e39, HUGE, "1.5"],
    "Date": [0, 5, "2024-02-30", "2021-02-29", "20210201", "2024-05-01T00:00:00Z", True],
    "DateTime": [*(0, 5, "yesterday", "2024-02-30T00:00:00Z", "2021-02-01T25:00:00Z"), "2021-02-01T00:00:00.0001Z"],
    "enum(draft, final)": ["other", "Draft", "", 5],
    "[String]": ["a", "not a list", [1], [["a"]], {"a": 1}, [{"a": 1}]],
    "[I64]": [[2**63], {"a": 1}, 1, [1.5]],
    "[U64]": [[2**64], [-1]],
    "Vector(3)": [
        *([1, 2], [1, 2, 3, 4], [], [1, 2, "3"], [1, 2, None], [1, 2, True], [1, 2, 1e39]),
        *("abc", {"a": 1}, 5, ["a", "b", "c"]),
    ],
    "Blob": [5, "base64:not base64", "base64:AAA", "base64:é", "base64:A"],
}
#: What JSON cannot hold, and Python can.
NOT_FINITE = [(type_, value) for type_ in ("F64", "F32", "I32") for value in (math.nan, math.inf, -math.inf)]
REFUSALS = [(type_, value) for type_, values in REFUSED.items() for value in values]


class Stage(Enum):
    """A member of it stands for its value."""

    DRAFT = "draft"


_UUID = UUID("6f1c5a52-6b61-4b8e-9d3a-0d2f7a1f6a10")
_OSLO = timezone(timedelta(hours=1))
#: Python objects as parameters: what they mean is the JSON value beside them.
OBJECTS: list[tuple[str, Any, Any]] = [
    ("String", _UUID, str(_UUID)),
    ("String", np.str_("x"), "x"),
    ("String", pa.scalar("x"), "x"),
    ("enum(draft, final)", Stage.DRAFT, "draft"),
    ("Bool", np.True_, True),
    ("I32", np.int8(5), 5),
    ("I32", Decimal("2020.0"), 2020),
    ("I64", pa.scalar(2**53 + 1), 2**53 + 1),
    ("U64", np.uint64(2**64 - 1), 2**64 - 1),
    ("U64", Decimal(2**64 - 1), 2**64 - 1),
    ("F64", np.float64(2.5), 2.5),
    ("F64", np.float32(1.5), 1.5),
    ("F64", Decimal("0.1"), 0.1),
    ("F32", Decimal("0.1"), 0.1),
    ("Date", date(2024, 2, 29), "2024-02-29"),
    ("Date", datetime(2024, 2, 29, 1, tzinfo=_OSLO), "2024-02-29"),
    ("Date", pd.Timestamp("2024-02-29"), "2024-02-29"),
    ("Date", np.datetime64("2024-02-29"), "2024-02-29"),
    ("Date", pa.scalar(date(2024, 2, 29)), "2024-02-29"),
    ("DateTime", datetime(2024, 2, 29, 12, 34, 56, 789_000), "2024-02-29T12:34:56.789Z"),
    ("DateTime", datetime(2024, 2, 29, 12, tzinfo=_OSLO), "2024-02-29T11:00:00Z"),
    ("DateTime", pd.Timestamp("2024-02-29 12:00:00.001", tz="Europe/Oslo"), "2024-02-29T11:00:00.001Z"),
    ("DateTime", np.datetime64("2024-02-29T12:00:00.001", "ns"), "2024-02-29T12:00:00.001Z"),
    ("DateTime", pa.scalar(1500, pa.timestamp("ms", tz="UTC")), "1970-01-01T00:00:01.500Z"),
    ("[String]", ("a", "b"), ["a", "b"]),
    ("[I64]", np.array([1, 2**53 + 1]), [1, 2**53 + 1]),
    ("[I64]", array("q", [1, 2]), [1, 2]),
    ("[F64]", pd.Series([1.0, 2.5]), [1.0, 2.5]),
    ("[Bool]", pa.array([True, False]), [True, False]),
    ("[Date]", np.array(["1970-01-01", "1970-01-02"], "datetime64[D]"), ["1970-01-01", "1970-01-02"]),
    ("[Date]", [date(1970, 1, 1), pd.Timestamp("1970-01-02")], ["1970-01-01", "1970-01-02"]),
    ("Vector(3)", np.array([1, 0.1, -2.5], np.float32), [1, float(np.float32(0.1)), -2.5]),
    ("Vector(3)", (1, Decimal("2.5"), np.float16(0)), [1, 2.5, 0]),
    ("Blob", b"\x00\x01\x02\xff", "base64:AAEC/w=="),
    ("Blob", bytearray(b"hi"), "base64:aGk="),
    *[("String", missing, None) for missing in (pd.NaT, pd.NA, np.datetime64("NaT"), pa.scalar(None))],
]
#: Python objects that do not fit, and what the message says about them.
REFUSED_OBJECTS: list[tuple[str, Any, str]] = [
    ("String", date(2024, 2, 29), "the date 2024-02-29 is not a String"),
    ("String", Decimal("1.5"), "the decimal 1.5 is not a String"),
    ("String", b"hi", "a bytes value is not a String"),
    ("String", np.int64(5), "5 is not a String"),
    ("Bool", np.int64(1), "1 is not a Bool"),
    ("I32", Decimal("1.5"), "the decimal 1.5 is not an integer, as I32 needs"),
    ("I32", Decimal("1e999999"), "the decimal 1E+999999 is not an integer, as I32 needs"),
    ("I32", Decimal("NaN"), "the decimal NaN is not an integer, as I32 needs"),
    ("I32", np.int64(2**31), "2147483648 is out of range for I32 (-2147483648 to 2147483647)"),
    ("I32", _UUID, f'"{_UUID}" is not a decimal integer'),
    ("F64", Decimal("0.12345678901234567890"), "has more digits than F64 holds, 0.12345678901234568: give a float"),
    ("F64", np.float64("nan"), "nan is not a finite F64"),
    ("F32", Decimal("16777217"), "the decimal 16777217 has more digits than F32 holds, 16777216: give a float"),
    ("F64", Decimal("sNaN"), "the decimal sNaN is not a finite F64"),
    ("F64", 1j, "type `complex` is not a value"),
    ("F64", np.longdouble(1), "is not a value"),
    ("Date", datetime(2024, 2, 29, 1), "2024-02-29 01:00:00 has a time of day (UTC), and a Date has none"),
    ("DateTime", date(2024, 2, 29), "the date 2024-02-29 is not a DateTime"),
    ("DateTime", datetime(2024, 2, 29, 0, 0, 0, 1), "2024-02-29 00:00:00.000001 is finer than milliseconds"),
    ("DateTime", pd.Timestamp(1), "1970-01-01 00:00:00.000000001 is finer than milliseconds"),
    ("DateTime", np.datetime64(1, "ns"), "1970-01-01T00:00:00.000000001 is finer than milliseconds"),
    ("DateTime", timedelta(1), "`timedelta` of datetime is not a value"),
    ("DateTime", np.timedelta64(1, "D"), "a numpy timedelta64[D] is not a value"),
    ("[String]", {"a", "b"}, "type `set` is not a value"),
    ("[I64]", np.zeros((2, 2), int), "a list is not an integer, as I64 needs"),
    ("[I64]", [[date(2024, 2, 29)]], "a list is not an integer, as I64 needs"),
    ("[F64]", pd.DataFrame({"a": [1]}), "`DataFrame` of pandas is not a value"),
    ("Vector(3)", np.zeros(2), "a vector of 2 numbers does not fit Vector(3)"),
    ("Vector(3)", float, "type `type` is not a value"),
    ("Blob", {"$bytes": "="}, "'=' is not a value of `$bytes`"),
]


def label(refusal: tuple[str, Any]) -> str:
    return f"{refusal[0]} {str(refusal[1])[:40]!a}"


def literal(type_: str, given: Any) -> str | None:
    """A value as a literal for a property of a type; None when the query language has none for it."""
    match given:
        case bool():
            return "true" if given else "false"
        case str():
            function = {"Date": "date", "DateTime": "datetime"}.get(type_)
            return f"{function}({quote(given)})" if function else quote(given)
        case int() | float():
            if not 0 <= given < math.inf:
                return None
            digits = format(Decimal(repr(given)), "f") if isinstance(given, float) else str(given)
            return f"{digits}.0" if isinstance(given, float) and "." not in digits else digits
        case list():
            items = [literal(type_.strip("[]"), item) for item in given]
            return None if None in items else f"[{', '.join(map(str, items))}]"
        case _:
            return None
