"""One table of values that every way into a graph is tried with: what is stored of each, and what none of them takes.

What only some ways take is tested there: numbers written as texts in parameters, `2020.0` for an integer in files and
literals, nulls inside lists in mutations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

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
