"""Conditions that hold or not for a state of a table: how they are named, and what is kept of them."""

from __future__ import annotations

from omnigraph.engine.predicates import constant_text
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

CATALOG = compile_schema(
    "node Person { name: String @key  age: I32?  tags: [String]?  score: F32? } edge Knows: Person -> Person"
).catalog


def named(condition: str, variable: str = "b") -> str | None:
    text = f"match {{ $a: Person  $a knows ${variable}  {condition} }} return {{ ${variable}.name }}"
    query = compile_query(text, CATALOG).ir
    assert isinstance(query, ir.ReadIR)
    hop = query.pipeline[1]
    assert isinstance(hop, ir.Expand)
    assert hop.filters, "the condition is one of the hop"
    return constant_text(hop.filters, hop.target)


FIXED = [
    "$b.age > 9",
    "$b.age > 9.0",
    "$b.age >= 9",
    "not $b.age > 9",
    "$b.score > 9",
    "$b.age is null",
    "$b.age is not null",
    '$b.name = "ann" or $b.name = "bo"',
    '$b.name = "ann"  $b.name = "bo"',
    '$b.tags contains "x"',
    "$b.age > $b.score",
]


def test_different_conditions_have_different_names() -> None:
    names = [named(condition) for condition in FIXED]
    assert None not in names
    assert len(set(names)) == len(FIXED)


@each_case("condition", FIXED)
def test_a_condition_has_one_name_whatever_its_variable_is_called(condition: str) -> None:
    assert named(condition) == named(condition.replace("$b", "$other"), "other")


@each_case(
    "condition",
    ["$b.age > $least", "$b.age + 1 > 9", 'lower($b.name) = "ann"', 'search($b.name, "ann")', "$b.age in $l"],
)
def test_what_takes_anything_else_has_no_name(condition: str) -> None:
    assert named(condition) is None
