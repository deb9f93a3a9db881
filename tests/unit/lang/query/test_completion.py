"""What may stand at a place of a text that is still typed, and how far such a text gets."""

from __future__ import annotations

import pytest

from omnigraph.lang.query.check.places import FUNCTIONS
from omnigraph.lang.query.describe.completion import completions
from omnigraph.lang.query.syntax.parser import keywords, progress_of
from omnigraph.lang.schema.compiler import compile_schema

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Town { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> Town
"""
CATALOG = compile_schema(SCHEMA).catalog


def words(before: str, after: str = "", *parameters: str) -> list[str]:
    return [item.word for item in completions(before, after, CATALOG, parameters).items]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", ["delete", "insert", "match", "query", "update", "upsert"]),
        ("ma", ["match"]),
        ("match { $p: ", ["Person", "Town"]),
        ("match { $p: pe", ["Person"]),
        ("match { $p: Person { ", ["name", "age", "city"]),
        ('match { $p: Person { name: "x", ', ["age", "city"]),
        ('match { $p: Person { name: "x" ', ["age", "city"]),
        ("match { $p: Person  $p.", ["name", "age", "city", "id"]),
        ("match { $p: Person  $p.a", ["age"]),
        ("match { $a knows $b  $b.", ["name", "age", "city", "id"]),
        ("match { $a livesIn{1,2} $t  $t.", ["name", "id"]),
        ("match { $a <knows> $b  $b.c", ["city"]),
        ("match { $a (knows | livesIn) $b  $b.", ["name", "age", "city", "id"]),
        ("match { $a (knows | l", ["livesIn"]),
        ("match { $p: Person  optional { $p li", ["livesIn"]),
        ("match { $p: Person | ", ["Person", "Town"]),
        ("match { $a knows $q: ", ["Person", "Town"]),
        ("match { $a $e:knows $b } return { $e.", ["since"]),
        ("match { $a $e:", ["knows", "livesIn"]),
        ("match { $p: Person  $p k", ["knows"]),
        ("match { $t: Town  $t k", []),
        ("match { $p: Person  not { $p l", ["livesIn", "let"]),
        ("match { $p: Person } return { $p } ", ["having", "limit", "offset", "order"]),
        ("match { $p: Person } return { $p.name as n } order { n", ["n", "not", "null", "nearest", "nodes", "now"]),
        ("match { $p: Person } return { $p.name as ", []),
        ("match { $p: Person } return { $", ["$p"]),
        ("insert ", ["Person", "Town", "Knows", "LivesIn"]),
        ("insert Knows { ", ["from", "to", "since"]),
        ('insert Knows { from: "a" ', ["to", "since"]),
        ("update ", ["Person", "Town"]),
        ("update Person set { ", ["name", "age", "city"]),
        ("upsert ", ["Person", "Town", "Knows", "LivesIn"]),
        ("upsert Person { ", ["name", "age", "city"]),
        ("match { $p: Town } update $", ["$p"]),
        ("match { $p: Town } update $p set { ", ["name"]),
        ("query q($d: Date", ["DateTime", "Date"]),
        ("query q($v: V", ["Vector"]),
        ("query ", []),
        ('match { $p: Person { name: "m', []),
        ("// m", []),
        ("/* m", []),
        ("/* m */ m", ["match"]),
        ('match { $p: Person { name: "a // b" } } ret', ["return"]),
        ("match { $p: Person } return { $p } limit 1", []),
    ],
)
def test_what_may_stand_somewhere_follows_from_the_grammar_and_the_schema(before: str, expected: list[str]) -> None:
    found = words(before)
    # A variable may begin the next clause wherever an edge may follow one.
    assert [word for word in found if not word.startswith("$") or before.endswith("$")] == expected


def test_every_function_is_offered_where_a_value_may_stand() -> None:
    assert set(words("match { $p: Person } return { ")) >= {*FUNCTIONS, "$p"}


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("update Person set { age: 1 } where ", ["name", "age", "city"]),
        ("update Person set { age: ", ["name", "age", "city"]),
        ('delete Person where name = "x" and ', ["name", "age", "city"]),
        ("delete LivesIn where ", ["from", "to"]),
        ("match { $t: Town } delete Town where ", ["name"]),
    ],
)
def test_properties_of_the_changed_row_come_first_where_they_may_stand_alone(before: str, names: list[str]) -> None:
    assert words(before)[: len(names)] == names


def test_every_keyword_is_offered_behind_a_mistake() -> None:
    assert set(words("match ] ")) >= {*keywords().values()}


def test_variables_and_parameters_are_offered_for_values() -> None:
    found = words("match { $p: Person { name: ", " } $q: Town }", "who")
    assert found[:3] == ["$p", "$q", "$who"]


def test_a_type_that_stands_behind_the_place_is_known() -> None:
    assert words("match { $t.", "  $t: Town }") == ["name", "id"]


def test_without_a_schema_there_is_the_grammar() -> None:
    assert [item.word for item in completions("match { $p: Person } re").items] == ["return"]
    assert completions("match { $p: ").items == ()


def test_the_word_that_is_replaced_begins_at_its_first_letter() -> None:
    assert completions("match { $p: Per", "", CATALOG).start == len("match { $p: ")


def test_a_text_beyond_the_limits_is_completed_by_the_schema_alone() -> None:
    assert words(f"match {'{' * 100} $p: ") == ["Person", "Town"]


@pytest.mark.parametrize(
    ("text", "is_whole", "failed_at"),
    [
        ("match { $p: Person", False, None),
        ("match { $p: Person } return { $p }", True, None),
        ("match { $p: Person } return { $p } order", False, None),
        ("match { $p: Person } retrun", False, 21),
        ('match { $p: Person { name: "ab', False, None),
        ("/* open", False, None),
        ('insert Person { name: "\\q" }', False, 23),
        ("limit 3", False, 0),
        ("query q() { insert Town { name: $n } }", True, None),
    ],
)
def test_how_far_a_text_gets(text: str, is_whole: bool, failed_at: int | None) -> None:
    found = progress_of(text)
    assert (found.is_whole, found.failed_at) == (is_whole, failed_at)
