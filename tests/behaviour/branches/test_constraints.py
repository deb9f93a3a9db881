"""Rules of the schema on the merged result: two branches that are valid alone need not be valid together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import ConflictKind, MergeConflict, MergeConflictsError
from omnigraph.graph.graph import Graph
from support.branched_people import (
    all_branches,
    conflicts_of,
    edge,
    files,
    in_memory_and_files,
    named,
    put,
    refusal_of,
    use_files,
)
from support.graphs import everything, new_graph, run

UNIQUE = ConflictKind.UNIQUE_VIOLATION
ORPHAN = ConflictKind.ORPHAN_EDGE
CARD = ConflictKind.CARDINALITY_VIOLATION
VALUE = ConflictKind.VALUE_CONSTRAINT_VIOLATION
INSERT = ConflictKind.DIVERGENT_INSERT
UPDATE = ConflictKind.DIVERGENT_UPDATE
DELETE = ConflictKind.DELETE_VS_UPDATE

Act = str | list[dict[str, Any]]
#: One act, or several.
Acts = Act | tuple[Act, ...]
Conflict = tuple[ConflictKind, str, str]
BOOK, WROTE, CITES = "node:Book", "edge:Wrote", "edge:Cites"
LEADS, REVIEWS = "edge:Leads", "edge:Reviews"


@dataclass(frozen=True)
class Scenario:
    """What happens before the fork and on two branches, and the conflicts of a merge in either direction."""

    name: str
    left: Acts
    right: Acts
    #: One or several: kind, type and what the message says.
    told: Conflict | tuple[Conflict, ...] = ()
    base: Acts = ()

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return (self.told,) if self.told and isinstance(self.told[0], str) else self.told


def book(name: str, **values: object) -> str:
    given = "".join(f", {key}: {json.dumps(value)}" for key, value in values.items())
    return f'insert Book {{ name: "{name}"{given} }}'


def no_book(name: str) -> str:
    return f'delete Book where name = "{name}"'


def isbn(name: str, value: str) -> str:
    return f'update Book set {{ isbn: "{value}" }} where name = "{name}"'


def link(kind: str, source: str, target: str) -> str:
    return f'insert {kind} {{ from: "{source}", to: "{target}" }}'


def review(entity_id: str, book: str, author: str) -> dict[str, Any]:
    return edge("Reviews", entity_id, book, author)


def no_review(author: str) -> str:
    return f'delete Reviews where to = "{author}"'


def lead(entity_id: str, author: str, book: str) -> dict[str, Any]:
    return edge("Leads", entity_id, author, book)


def cite(entity_id: str, source: str, target: str) -> dict[str, Any]:
    return edge("Cites", entity_id, source, target)


THREE_REVIEWS = [review(f"r{n}", "b1", f"a{n}") for n in (1, 2, 3)]
FIVE_REVIEWS = [*THREE_REVIEWS, review("r4", "b2", "a1"), review("r5", "b2", "a2")]

#: There is no null literal in the language, but a whole row can be replaced.
NO_ISBN_1, NO_ISBN_2 = ([{"type": "Book", "data": {"name": f"b{slot}", "room": "r", "slot": slot}}] for slot in (1, 2))

UNIQUES = [
    Scenario(
        "two new rows take the same value",
        book("x", isbn="n"),
        book("y", isbn="n"),
        (UNIQUE, BOOK, "@unique violation on Book.isbn: 'n' belongs to"),
    ),
    Scenario(
        "a new row takes what an updated one took", book("x", isbn="n"), isbn("b3", "n"), (UNIQUE, BOOK, "Book.isbn")
    ),
    Scenario("two updates take the same value", isbn("b3", "n"), isbn("b4", "n"), (UNIQUE, BOOK, "Book.isbn")),
    Scenario("the empty text is a value", book("x", isbn=""), book("y", isbn=""), (UNIQUE, BOOK, "Book.isbn")),
    Scenario("nulls never collide", (book("x"), NO_ISBN_1), (book("y"), NO_ISBN_2)),
    Scenario("a value that was given up is free", (NO_ISBN_1, isbn("b3", "i1")), book("y")),
    Scenario("a value of a deleted row is free", (no_book("b1"), book("x", isbn="i1")), book("y", isbn="i3")),
    Scenario("the same row with the same value on both sides", book("x", isbn="n"), (book("x", isbn="n"), book("y"))),
    Scenario("two values exchanged", (NO_ISBN_1, isbn("b2", "i1"), isbn("b1", "i2")), book("y", isbn="n")),
    Scenario(
        "the same tuple",
        book("x", room="q", slot=9),
        book("y", room="q", slot=9),
        (UNIQUE, BOOK, "@unique violation on Book.(room, slot): "),
    ),
    Scenario(
        "a tuple put together from both sides is not a tuple of one row",
        book("x", room="q", slot=9),
        book("y", room="q", slot=8),
    ),
    Scenario("a tuple with a null never collides", book("x", room="q"), book("y", room="q")),
    Scenario("tuples compare member by member", book("x", room="q1", slot=1), book("y", room="q", slot=11)),
    Scenario(
        "the same ends", link("Wrote", "a1", "b1"), link("Wrote", "a1", "b1"), (UNIQUE, WROTE, "Wrote.(src, dst)")
    ),
    Scenario("one end in common", link("Wrote", "a1", "b1"), (link("Wrote", "a1", "b2"), link("Wrote", "a2", "b1"))),
    Scenario(
        "two rules at once",
        book("x", isbn="n", room="q", slot=9),
        book("y", isbn="n", room="q", slot=9),
        ((UNIQUE, BOOK, "(room, slot)"), (UNIQUE, BOOK, "Book.isbn")),
    ),
]

CARDINALITIES = [
    Scenario(
        "too many from one source",
        link("Leads", "a1", "b1"),
        link("Leads", "a1", "b2"),
        (CARD, LEADS, "edge Leads: 'a1' has 2 edges, allowed are 0..1"),
    ),
    Scenario("one from each of two sources", link("Leads", "a1", "b1"), link("Leads", "a2", "b1")),
    Scenario(
        "too few are left",
        no_review("a1"),
        no_review("a2"),
        (CARD, REVIEWS, "edge Reviews: 'b1' has 1 edges, allowed are 2..3"),
        THREE_REVIEWS,
    ),
    Scenario(
        "the same edge deleted on both sides",
        no_review("a1"),
        (no_review("a1"), 'insert Author { name: "a5" }'),
        base=THREE_REVIEWS,
    ),
    Scenario(
        "one goes and another comes",
        no_review("a1"),
        (no_review("a2"), link("Reviews", "b1", "a4")),
        base=THREE_REVIEWS,
    ),
    Scenario(
        "too many from above the bound",
        link("Reviews", "b1", "a3"),
        link("Reviews", "b1", "a4"),
        (CARD, REVIEWS, "'b1' has 4 edges"),
        THREE_REVIEWS[:2],
    ),
    Scenario(
        "the new source of a moved edge",
        [lead("l1", "a2", "b1")],
        link("Leads", "a2", "b3"),
        (CARD, LEADS, "'a2' has 2 edges"),
        [lead("l1", "a1", "b1")],
    ),
    Scenario(
        "the old source of a moved edge",
        [review("r1", "b2", "a1")],
        no_review("a3"),
        (CARD, REVIEWS, "'b1' has 1 edges"),
        FIVE_REVIEWS,
    ),
    Scenario(
        "both sources of a moved edge",
        [review("r1", "b2", "a1")],
        (no_review("a3"), link("Reviews", "b2", "a4")),
        ((CARD, REVIEWS, "'b1' has 1 edges"), (CARD, REVIEWS, "'b2' has 4 edges")),
        FIVE_REVIEWS,
    ),
    Scenario(
        "a moved edge makes room",
        ([lead("l1", "a2", "b1")], link("Leads", "a1", "b4")),
        link("Leads", "a3", "b3"),
        base=[lead("l1", "a1", "b1")],
    ),
    Scenario("a source that one side deleted with its edges", no_book("b1"), no_review("a1"), base=THREE_REVIEWS),
    Scenario(
        "an edge of a deleted source is an orphan and nothing else",
        no_book("b1"),
        [review("r9", "b1", "a3")],
        (ORPHAN, REVIEWS, "edge Reviews 'r9': src 'b1' not found in Book"),
        THREE_REVIEWS[:2],
    ),
]

ORPHANS = [
    Scenario(
        "the end of a new edge was deleted",
        [cite("c1", "b3", "b4")],
        no_book("b4"),
        (ORPHAN, CITES, "edge Cites 'c1': dst 'b4' not found in Book"),
    ),
    Scenario(
        "the beginning of a new edge was deleted",
        [cite("c1", "b3", "b4")],
        no_book("b3"),
        (ORPHAN, CITES, "edge Cites 'c1': src 'b3' not found in Book"),
    ),
    Scenario(
        "both ends were deleted",
        [cite("c1", "b3", "b4")],
        (no_book("b3"), no_book("b4")),
        (ORPHAN, CITES, "edge Cites 'c1'"),
    ),
    Scenario("a loop is one edge", [cite("c1", "b4", "b4")], no_book("b4"), (ORPHAN, CITES, "edge Cites 'c1'")),
    Scenario(
        "every edge of a deleted node",
        [cite("c1", "b3", "b4"), cite("c2", "b1", "b4"), edge("Wrote", "w1", "a1", "b4")],
        no_book("b4"),
        ((ORPHAN, CITES, "'c1'"), (ORPHAN, CITES, "'c2'"), (ORPHAN, WROTE, "'w1'")),
    ),
    Scenario(
        "an edge moved to a node that was deleted",
        [cite("c1", "b1", "b4")],
        no_book("b4"),
        (ORPHAN, CITES, "edge Cites 'c1': dst 'b4' not found in Book"),
        [cite("c1", "b1", "b2")],
    ),
    Scenario(
        "an edge that was deleted with its node",
        no_book("b2"),
        'delete Cites where from = "b3"',
        base=[cite("c1", "b1", "b2"), cite("c2", "b3", "b4")],
    ),
    Scenario(
        "an edge that one side removed before the other deleted its node",
        'delete Cites where from = "b1"',
        no_book("b2"),
        base=[cite("c1", "b1", "b2")],
    ),
    Scenario("a node that was deleted and came back", (no_book("b4"), book("b4")), [cite("c1", "b3", "b4")]),
    Scenario(
        "a new edge between new nodes",
        'insert Book { name: "x" } insert Cites { from: "x", to: "b1" }',
        'insert Book { name: "y" } insert Cites { from: "b1", to: "y" }',
    ),
    Scenario("a node deleted on both sides", no_book("b4"), (no_book("b4"), [cite("c1", "b1", "b2")])),
]

SEVERAL = [
    Scenario(
        "conflicts about rows of all types are collected, and what their decision leaves in the way",
        (
            'update Book set { year: 1900 } where name = "b1"',
            'insert Author { name: "new" } insert Book { name: "x", year: 1700, isbn: "n" }',
            [cite("c1", "b1", "b3")],
            link("Leads", "a1", "b1"),
        ),
        (
            'update Book set { year: 1901 } where name = "b1"',
            'insert Author { name: "new" } insert Book { name: "x", year: 1701, isbn: "m" }',
            [cite("c1", "b1", "b4")],
            link("Leads", "a1", "b2"),
        ),
        (
            (INSERT, BOOK, "Book 'x' was inserted on both sides with different values"),
            (UPDATE, CITES, "Cites 'c1' was changed on both sides to different values"),
            (UPDATE, BOOK, "Book 'b1' was changed on both sides to different values"),
            (CARD, LEADS, "'a1' has 2 edges"),
        ),
        [cite("c1", "b1", "b2")],
    ),
    Scenario(
        "violations of all rules are collected",
        (
            book("x", isbn="n"),
            link("Leads", "a1", "b1"),
            no_review("a1"),
            [cite("c1", "b3", "b4")],
            link("Wrote", "a1", "b1"),
        ),
        (book("y", isbn="n"), link("Leads", "a1", "b2"), no_review("a2"), no_book("b4"), link("Wrote", "a1", "b1")),
        (
            (CARD, LEADS, "'a1' has 2 edges"),
            (CARD, REVIEWS, "'b1' has 1 edges"),
            (ORPHAN, CITES, "'c1'"),
            (UNIQUE, WROTE, "(src, dst)"),
            (UNIQUE, BOOK, "'n' belongs to"),
        ),
        THREE_REVIEWS,
    ),
]


def act(graph: Graph, branch: str, actions: Acts) -> None:
    for action in actions if isinstance(actions, tuple) else (actions,):
        if isinstance(action, str):
            run(graph, action, branch)
        else:
            put(graph, branch, *action)


def prepare(graph: Graph, scenario: Scenario) -> None:
    act(graph, "main", scenario.base)
    graph.create_branch("left")
    graph.create_branch("right")
    act(graph, "left", scenario.left)
    act(graph, "right", scenario.right)


@pytest.mark.parametrize(
    "scenario", [pytest.param(item, id=item.name) for item in (*UNIQUES, *CARDINALITIES, *ORPHANS, *SEVERAL)]
)
def test_rules_hold_on_the_merged_result(
    rules: Graph, scenario: Scenario, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is merged into the other, and whatever the strategy: it decides about rows only."""
    prepare(rules, scenario)
    before = all_branches(rules)
    for room in ("memory", "files"):
        if room == "files":
            use_files(monkeypatch)
        with subtests.test(msg=room):
            if not scenario.conflicts:
                check_merges(rules, room)
                continue
            found = check_conflicts(rules, "left", "right", scenario)
            if room == "memory":
                check_conflicts(rules, "right", "left", scenario)
                check_strategies(rules, found)
            assert all_branches(rules) == before
            assert rules.pending_recoveries() == []


def check_merges(graph: Graph, room: str) -> None:
    for side in ("left", "right"):
        graph.create_branch(f"{room}-{side}", side)
    graph.create_branch(f"{room}-from-left", "left")
    assert graph.merge(f"{room}-left", f"{room}-right").outcome == "merged"
    assert graph.merge(f"{room}-right", f"{room}-from-left").outcome != "already_up_to_date"
    assert everything(graph, f"{room}-from-left") == everything(graph, f"{room}-right")


def check_conflicts(graph: Graph, source: str, target: str, scenario: Scenario) -> list[MergeConflict]:
    found = refusal_of(graph, source, target)
    expected = sorted((kind, key) for kind, key, _ in scenario.conflicts)
    assert sorted((item.kind, item.type_key) for item in found) == expected
    for kind, key, words in scenario.conflicts:
        messages = [c.message for c in found if (c.kind, c.type_key) == (kind, key)]
        assert any(words in message for message in messages), messages
    for conflict in found:
        if conflict.kind.is_about_a_row:
            continue
        has_id = conflict.kind not in (CARD, VALUE)
        assert (conflict.entity_id is not None) is has_id
        assert (conflict.base, conflict.ours, conflict.theirs) == (None, None, None)
    return found


def check_strategies(graph: Graph, without: list[MergeConflict]) -> None:
    """A strategy changes nothing about conflicts of which none is about a row."""
    if any(conflict.kind.is_about_a_row for conflict in without):
        return
    for strategy in ("ours", "theirs"):
        found = graph.merge("left", "right", strategy=strategy, dry_run=True).conflicts
        assert named(list(found)) == named(without)


@in_memory_and_files
def test_a_unique_violation_names_both_rows(rules: Graph) -> None:
    prepare(rules, UNIQUES[0])
    (conflict,) = conflicts_of(rules, "left", "right")
    assert conflict.entity_id in ("x", "y")
    assert "'x'" in conflict.message
    assert "'y'" in conflict.message


@in_memory_and_files
def test_an_orphan_names_the_edge(rules: Graph) -> None:
    prepare(rules, ORPHANS[0])
    (conflict,) = conflicts_of(rules, "left", "right")
    assert (conflict.type_key, conflict.entity_id) == ("edge:Cites", "c1")
    assert conflict.to_json() == {
        "entity_kind": "edge",
        "type_name": "Cites",
        "entity_id": "c1",
        "kind": "orphan_edge",
        "message": conflict.message,
    }


@in_memory_and_files
@pytest.mark.parametrize(("strategy", "is_merged"), [("ours", False), ("theirs", True)])
def test_a_row_that_a_strategy_decides_has_to_obey_the_rules(rules: Graph, strategy: str, is_merged: bool) -> None:
    """The source passed a value from one row to another; keeping the first of them only takes it twice."""
    rules.create_branch("feature")
    run(rules, 'update Book set { isbn: "z" } where name = "b1"', "feature")
    run(rules, 'update Book set { isbn: "i1" } where name = "b3"', "feature")
    run(rules, 'update Book set { year: 1900 } where name = "b1"')
    row, taken = conflicts_of(rules, "feature")
    assert (row.kind, row.entity_id, row.with_strategy) == (UPDATE, "b1", None)
    assert (taken.kind, taken.type_key, taken.with_strategy) == (UNIQUE, BOOK, "ours")
    assert taken.to_json()["with_strategy"] == "ours"
    if is_merged:
        rules.merge("feature", strategy=strategy)
        held = {row["id"]: row["isbn"] for row in everything(rules)[BOOK]}
        assert (held["b1"], held["b3"]) == ("z", "i1")
    else:
        (conflict,) = conflicts_of(rules, "feature", strategy=strategy)
        assert (conflict.kind, conflict.type_key) == (UNIQUE, BOOK)


@in_memory_and_files
@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_strategy_that_keeps_a_node_needs_its_edges(rules: Graph, strategy: str) -> None:
    """The source deletes a node that the target changed and connected."""
    rules.create_branch("feature")
    run(rules, 'delete Book where name = "b4"', "feature")
    run(rules, 'update Book set { year: 1900 } where name = "b4"')
    put(rules, "main", cite("c1", "b3", "b4"))
    row, orphan = conflicts_of(rules, "feature")
    assert (row.kind, row.entity_id) == (DELETE, "b4")
    assert (orphan.kind, orphan.entity_id, orphan.with_strategy) == (ORPHAN, "c1", "theirs")
    with pytest.raises(MergeConflictsError, match=r"or decide all of them with the strategy `ours`$"):
        rules.merge("feature")
    if strategy == "ours":
        rules.merge("feature", strategy=strategy)
        assert [row["id"] for row in everything(rules)[CITES]] == ["c1"]
    else:
        found = conflicts_of(rules, "feature", strategy=strategy)
        assert named(found) == [(ORPHAN, CITES, "c1")]


@in_memory_and_files
def test_many_conflicts_of_one_kind_hide_no_other(rules: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report with room for three shows some of every kind, and counts all; no file of the attempt stays."""
    monkeypatch.setattr("omnigraph.branches.merge.MAX_CONFLICTS", 3)
    rules.create_branch("feature")
    put(rules, "main", *({"type": "Book", "data": {"name": f"n{number}", "year": 1900}} for number in range(9)))
    put(rules, "feature", *({"type": "Book", "data": {"name": f"n{number}", "year": 1901}} for number in range(9)))
    for branch in ("main", "feature"):
        run(rules, link("Leads", "a1", "b1"), branch)
    before = files(rules)
    preview = rules.merge("feature", dry_run=True)
    kinds = [conflict.kind for conflict in preview.conflicts]
    assert (kinds, preview.conflict_total) == ([INSERT, INSERT, CARD], 10)
    assert preview.exit_code == MergeConflictsError.exit_code
    assert files(rules) == before


# ---- values


@contextmanager
def without_value_rules(graph: Graph) -> Iterator[None]:
    """Writes in the block do not look at values, as a release with a gap would."""
    schema = graph._core.schema_of(graph.snapshot().schema_hash)
    kept = schema.rules
    schema.__dict__["rules"] = {key: replace(rule, values=()) for key, rule in kept.items()}
    try:
        yield
    finally:
        schema.__dict__["rules"] = kept


@in_memory_and_files
@pytest.mark.parametrize(("statement", "words"), [("year: 1500", "Book.year"), ('code: "low"', "Book.code")])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_value_that_breaks_a_rule_is_a_conflict(rules: Graph, statement: str, words: str, is_new: bool) -> None:
    rules.create_branch("feature")
    with without_value_rules(rules):
        if is_new:
            run(rules, f'insert Book {{ name: "x", {statement} }}', "feature")
        else:
            run(rules, f'update Book set {{ {statement} }} where name = "b3"', "feature")
    run(rules, 'insert Book { name: "y" }')
    (conflict,) = conflicts_of(rules, "feature")
    assert (conflict.kind, conflict.type_key, conflict.entity_id) == (VALUE, BOOK, None)
    assert words in conflict.message
    assert named(conflicts_of(rules, "feature", strategy="theirs")) == [(VALUE, BOOK, None)]


@in_memory_and_files
def test_a_value_that_is_wrong_on_the_target_already_is_left_alone(rules: Graph) -> None:
    """Only what a merge changes is checked."""
    rules.create_branch("feature")
    with without_value_rules(rules):
        run(rules, 'insert Book { name: "old", year: 1500 }')
    run(rules, 'insert Book { name: "new", year: 1700 }', "feature")
    assert rules.merge("feature").outcome == "merged"


@in_memory_and_files
def test_a_fast_forward_is_checked_too(rules: Graph) -> None:
    rules.create_branch("feature")
    with without_value_rules(rules):
        run(rules, 'insert Book { name: "x", year: 1500 }', "feature")
    assert named(conflicts_of(rules, "feature")) == [(VALUE, BOOK, None)]


# ---- every type of a unique property

UNIQUE_TYPES = """
node Thing {
    name: String @key  whole: I64? @unique  ratio: F64? @unique  day: Date? @unique  at: DateTime? @unique
    stage: enum(draft, final)? @unique
}
"""


@in_memory_and_files
@pytest.mark.parametrize(
    "value",
    [
        "whole: 9007199254740993",
        "ratio: 0.1",
        'day: date("2020-02-29")',
        'at: datetime("2020-02-29T12:00:00.001Z")',
        'stage: "draft"',
    ],
)
def test_a_unique_value_of_any_type_collides(tmp_path: Path, value: str) -> None:
    graph = new_graph(tmp_path, UNIQUE_TYPES)
    graph.create_branch("feature")
    run(graph, f'insert Thing {{ name: "x", {value} }}', "feature")
    run(graph, f'insert Thing {{ name: "y", {value} }}')
    (conflict,) = conflicts_of(graph, "feature")
    assert (conflict.kind, conflict.type_key) == (UNIQUE, "node:Thing")


@in_memory_and_files
def test_large_neighbours_do_not_collide(tmp_path: Path) -> None:
    """As floats they would be equal."""
    graph = new_graph(tmp_path, UNIQUE_TYPES)
    graph.create_branch("feature")
    run(graph, 'insert Thing { name: "x", whole: 9007199254740993 }', "feature")
    run(graph, 'insert Thing { name: "y", whole: 9007199254740992 }')
    assert graph.merge("feature").outcome == "merged"
