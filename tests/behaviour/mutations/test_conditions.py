"""Conditions are three-valued and compare by value, for every operator and every scalar type.

The expectation is computed in Python from exact numbers; it shares no code with the filters. The storage tests try
many more values against the filters themselves.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import CompilerError
from omnigraph.graph.graph import Graph
from support.graphs import SCALARS, new_graph, refused, rows_of, run, run_typed
from support.subtests import each_case

NAMES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
OPERATORS = {sign: getattr(operator, name) for sign, name in NAMES.items()}

STRINGS = [
    *("", "a", "A", "b", "it's", "''", '"quoted"', "`ticks`", "back\\slash", "\\' OR 1=1 --", "' OR '1'='1"),
    *("x'; drop table t; --", "line\nbreak", "tab\there", "🦉", "e\u0301", "\u00e9", "%", "_", "null"),
    *("${text}", "{0}", "\x00", "a\x00b"),
]
F32_TENTH = 0.10000000149011612

#: Per column: the type of its parameter and the stored values, as parameters give them.
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "text": ("String", STRINGS),
    "flag": ("Bool", [True, False]),
    "i32": ("I32", [-(2**31), -3, -1, 0, 1, 2, 3, 2**31 - 1]),
    "i64": ("I64", [-(2**63), -(2**53) - 1, -1, 0, 2, 3, 2**53, 2**53 + 1, 2**63 - 1]),
    "u32": ("U32", [0, 2, 3, 2**32 - 1]),
    "u64": ("U64", [0, 2, 3, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "f32": ("F32", [-1.5, -0.0, 0.0, 0.1, 0.5, 2.0, 16777216.0, 3.4028234663852886e38, 1e-45]),
    "f64": ("F64", [-1.5, -0.0, 0.0, 0.1, F32_TENTH, 2.0, 2.0**53, 1e308, 5e-324]),
    "day": ("Date", ["0001-01-01", "1969-12-31", "1970-01-01", "2020-02-29", "9999-12-31"]),
    "at": (
        "DateTime",
        [
            "0001-01-01T00:00:00.000Z",
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00.000Z",
            "2020-02-29T12:00:00.001Z",
            "9999-12-31T23:59:59.999Z",
        ],
    ),
    "stage": ("String", ["draft", "final"]),
    "camelCase": ("I32", [-1, 0, 2, 3]),
}

#: What columns of other types than their parameter's are compared with.
INTEGERS_ASKED = [("I64", 2), ("F64", 2.7), ("F64", 2.0)]
FLOATS_ASKED = [("I64", 2), ("F64", 0.1), ("F32", 0.1)]
ASKED: dict[str, list[tuple[str, Any]]] = {
    "i32": [*INTEGERS_ASKED, ("I64", 2**31), ("F64", -1e300)],
    "i64": [*INTEGERS_ASKED, ("I64", 2**53 + 1), ("I64", -(2**63)), ("F64", 2.0**63)],
    "u32": [*INTEGERS_ASKED, ("I64", -1), ("F64", 2.0**32)],
    "u64": [*INTEGERS_ASKED, ("I64", 2**63 - 1), ("U64", 2**63), ("U64", 2**64 - 1), ("F64", -0.5)],
    "f32": [*FLOATS_ASKED, ("I64", 16777217), ("F64", -0.0), ("F64", 3.5e38)],
    "f64": [*FLOATS_ASKED, ("I64", 2**53 + 1), ("F64", -0.0), ("F64", 5e-324)],
    "text": [("String", "it's"), ("String", "e\u0301"), ("String", "back\\slash")],
    "flag": [("Bool", True), ("Bool", False)],
    "day": [("Date", "1969-12-31"), ("Date", "2020-03-01")],
    "at": [("DateTime", "1970-01-01T00:00:00.000Z"), ("DateTime", "2020-02-29T13:00:00.001+01:00")],
    "stage": [("String", "final"), ("String", "e")],
    "camelCase": INTEGERS_ASKED,
}


def to_f32(value: float) -> float:
    import numpy

    with numpy.errstate(over="ignore"):
        return float(numpy.float32(value))


def exact(type_: str, value: Any) -> Any:
    """A value as something that Python compares exactly."""
    match type_:
        case "F32":
            return to_f32(value)
        case "F64" | "I32" | "I64" | "U32" | "U64":
            return Fraction(value)
        case "Date":
            return date.fromisoformat(value)
        case "DateTime":
            return datetime.fromisoformat(value)
        case "String":
            return value.encode()
    return value


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    """One row per stored value, all other columns null, and one row of nulls."""
    found: dict[str, dict[str, Any]] = {"nulls": {}}
    for column, (_, values) in COLUMNS.items():
        for number, value in enumerate(values):
            found[f"{column}-{number}"] = {column: value}
    return found


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory, rows: dict[str, dict[str, Any]]) -> Graph:
    graph = new_graph(tmp_path_factory.mktemp("conditions"), SCALARS)
    declared, statements, params = [], [], {}
    for number, (name, values) in enumerate(rows.items()):
        assigned = [f'name: "{name}"']
        for column, value in values.items():
            declared.append(f"$p{number}: {COLUMNS[column][0]}")
            assigned.append(f"{column}: $p{number}")
            params[f"p{number}"] = value
        statements.append(f"insert Thing {{ {', '.join(assigned)} }}")
    run_typed(graph, ", ".join(declared), " ".join(statements), **params)
    return graph


MARKS = count(1)


@dataclass(frozen=True)
class Asked:
    """A comparison of a column with a value."""

    column: str
    op: str
    type_: str
    value: Any

    def __str__(self) -> str:
        return f"{self.column} {self.op} {self.type_} {self.value!a}"


def matched(graph: Graph, declared: str, *conditions: str, **params: Any) -> list[set[str]]:
    """Which rows updates with these conditions touch, all of them in one mutation."""
    marks = {next(MARKS): condition for condition in conditions}
    updates = (f"update Thing set {{ order: {mark} }} where {condition}" for mark, condition in marks.items())
    result = run_typed(graph, declared, " ".join(updates), **params)
    rows = rows_of(graph, "node:Thing", columns=["id", "order"])
    found = [{row["id"] for row in rows if row["order"] == mark} for mark in marks]
    assert result.affected_nodes == sum(map(len, found))
    return found


def rounds() -> list[list[Asked]]:
    """Every comparison, at most one per column in a round: no row has values in two columns."""
    of_columns = (
        [Asked(column, op, type_, value) for type_, value in asked for op in OPERATORS]
        for column, asked in ASKED.items()
    )
    return [[item for item in items if item is not None] for items in zip_longest(*of_columns)]


@each_case("asked", rounds(), ids=lambda asked: ", ".join(map(str, asked)))
def test_a_condition_matches_by_value_and_never_matches_null(
    things: Graph, rows: dict[str, dict[str, Any]], asked: list[Asked]
) -> None:
    wanted = {}
    for item in asked:
        own = COLUMNS[item.column][0]
        stored = {name: exact(own, row[item.column]) for name, row in rows.items() if item.column in row}
        # Beside an F32 only a parameter of F32 is rounded.
        value = exact(item.type_, item.value)
        wanted[str(item)] = {name for name, held in stored.items() if OPERATORS[item.op](held, value)}
    found = matched(
        things,
        ", ".join(f"${item.column}: {item.type_}" for item in asked),
        *(f"{item.column} {item.op} ${item.column}" for item in asked),
        **{item.column: item.value for item in asked},
    )
    assert dict(zip(map(str, asked), found, strict=True)) == wanted


@each_case("op", OPERATORS)
@each_case("column", COLUMNS)
def test_a_null_value_matches_nothing(things: Graph, column: str, op: str) -> None:
    before = things.snapshot()
    result = run_typed(
        things, f"$v: {COLUMNS[column][0]}?", f"update Thing set {{ order: 1 }} where {column} {op} $v", v=None
    )
    assert (result.affected_nodes, result.commit) == (0, None)
    assert things.snapshot() == before


@each_case(
    ("condition", "wanted"),
    [
        ("i32 = 2", {"i32-5"}),
        ("i32 = 2.7", set()),
        ("i32 > 2.7", {"i32-6", "i32-7"}),
        ("i32 >= 9000000000", set()),
        ("u32 < 9000000000", {"u32-0", "u32-1", "u32-2", "u32-3"}),
        ("f32 = 0.1", {"f32-3"}),
        ("f32 != 0.1", {f"f32-{number}" for number in range(9) if number != 3}),
        ("f32 > 0.1", {"f32-4", "f32-5", "f32-6", "f32-7"}),
        ("f32 = 16777217", {"f32-6"}),
        ("f64 = 0.1", {"f64-3"}),
        ("f64 = 2", {"f64-5"}),
        ('day = date("2020-02-29")', {"day-3"}),
        ('at > datetime("2020-02-29T13:00:00.001+01:00")', {"at-4"}),
        ('at = datetime("2020-02-29T13:00:00.001+01:00")', {"at-3"}),
        ("at < now()", {"at-0", "at-1", "at-2", "at-3"}),
        ("flag = true", {"flag-0"}),
        ("flag != true", {"flag-1"}),
        ('stage = "final"', {"stage-1"}),
        ("camelCase = 3", {"camelCase-3"}),
        ('text = "it\'s"', {"text-4"}),
    ],
)
def test_a_condition_with_a_literal_means_the_same(things: Graph, condition: str, wanted: set[str]) -> None:
    assert matched(things, "", condition) == [wanted]


@each_case("condition", ['data = "x"', 'tags = "x"', "vec = 1", 'day = "2020-02-29"', "text = 1", "i32 = true"])
def test_what_cannot_be_compared_is_refused(things: Graph, condition: str) -> None:
    with refused(things, CompilerError):
        run(things, f"update Thing set {{ order: 1 }} where {condition}")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = new_graph(tmp_path_factory.mktemp("texts"), "node N { key: String @key body: String count: I32? }")
    run(graph, 'insert N { key: "other", body: "other" }')
    return graph


@each_case("value", STRINGS, ids=ascii)
def test_any_text_is_only_a_value(texts: Graph, value: str) -> None:
    run(texts, "insert N { key: $v, body: $v }", v=value)
    result = run(texts, "insert N { key: $v, body: $v } update N set { count: 7 } where key = $v", v=value)
    assert result.affected_nodes == 2
    assert {(row["id"], row["body"], row["count"]) for row in rows_of(texts, "node:N")} == {
        (value, value, 7),
        ("other", "other", None),
    }
    assert run(texts, "delete N where body = $v", v=value).affected_nodes == 1
    assert {row["id"] for row in rows_of(texts, "node:N")} == {"other"}


PENDING = [
    ("camelCase", "I32", -3, "<", 2.5, "F64", True),
    ("i64", "I64", 2**53 + 1, "=", 2**53, "I64", False),
    ("i64", "I64", 2**53 + 1, ">", 2.0**53, "F64", True),
    ("u64", "U64", 2**63 - 1, ">=", -1, "I64", True),
    ("f32", "F32", 0.1, "=", 0.1, "F32", True),
    ("f32", "F32", 0.1, "=", 0.1, "F64", False),
    ("f32", "F32", 0.1, ">", 0.1, "F64", True),
    ("f64", "F64", -0.0, "=", 0, "I64", True),
    ("f64", "F64", 0.0, ">", -0.0, "F64", False),
    ("day", "Date", "1969-12-31", "<", "1970-01-01", "Date", True),
    ("at", "DateTime", "1969-12-31T23:59:59.999Z", ">=", "1970-01-01T00:00:00Z", "DateTime", False),
    ("flag", "Bool", False, "<", True, "Bool", True),
    ("stage", "String", "draft", "!=", "final", "String", True),
    ("text", "String", "it's \\ `x`", "=", "it's \\ `x`", "String", True),
]


@pytest.mark.parametrize(
    ("column", "own", "stored", "op", "value", "type_", "holds"), PENDING, ids=list(map(str, PENDING))
)
@pytest.mark.parametrize("pending", [True, False], ids=["pending", "committed"])
def test_pending_and_committed_rows_are_judged_alike(
    tmp_path: Path, column: str, own: str, stored: Any, op: str, value: Any, type_: str, holds: bool, pending: bool
) -> None:
    graph = new_graph(tmp_path, SCALARS)
    insert = f'insert Thing {{ name: "a", {column}: $s }} insert Thing {{ name: "nulls" }}'
    update = f"update Thing set {{ order: 1 }} where {column} {op} $v"
    if pending:
        declared = f"$s: {own}, $v: {type_}"
        affected = run_typed(graph, declared, f"{insert} {update}", s=stored, v=value)
        updated = affected.affected_nodes - 2
    else:
        run_typed(graph, f"$s: {own}", insert, s=stored)
        updated = run_typed(graph, f"$v: {type_}", update, v=value).affected_nodes
    assert updated == int(holds)
    assert {row["id"]: row["order"] for row in rows_of(graph, "node:Thing")} == {
        "a": 1 if holds else None,
        "nulls": None,
    }
