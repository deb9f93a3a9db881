"""Rules of the schema on the merged result: two branches that are valid alone need not be valid together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import ConflictKind
from omnigraph.graph.graph import Graph
from support.branched_people import IN_MEMORY_AND_FILES, conflicts_of, edge, named, put
from support.graphs import everything, new_graph, run

pytestmark = IN_MEMORY_AND_FILES

UNIQUE = ConflictKind.UNIQUE_VIOLATION
ORPHAN = ConflictKind.ORPHAN_EDGE
CARD = ConflictKind.CARDINALITY_VIOLATION
VALUE = ConflictKind.VALUE_CONSTRAINT_VIOLATION
INSERT = ConflictKind.DIVERGENT_INSERT
UPDATE = ConflictKind.DIVERGENT_UPDATE
DELETE = ConflictKind.DELETE_VS_UPDATE

Act = str | list[dict[str, Any]]
BOOK, WROTE, CITES = "node:Book", "edge:Wrote", "edge:Cites"
LEADS, REVIEWS = "edge:Leads", "edge:Reviews"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What happens before the fork and on two branches, and the conflicts of a merge in either direction."""

    name: str
    base: tuple[Act, ...] = ()
    left: tuple[Act, ...] = ()
    right: tuple[Act, ...] = ()
    #: Kind, type and what the message says.
    conflicts: tuple[tuple[ConflictKind, str, str], ...] = ()


def review(entity_id: str, book: str, author: str) -> dict[str, Any]:
    return edge("Reviews", entity_id, book, author)


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
        name="two new rows take the same value",
        left=('insert Book { name: "x", isbn: "n" }',),
        right=('insert Book { name: "y", isbn: "n" }',),
        conflicts=((UNIQUE, BOOK, "@unique violation on Book.isbn: 'n' belongs to"),),
    ),
    Scenario(
        name="a new row takes what an updated one took",
        left=('insert Book { name: "x", isbn: "n" }',),
        right=('update Book set { isbn: "n" } where name = "b3"',),
        conflicts=((UNIQUE, BOOK, "Book.isbn"),),
    ),
    Scenario(
        name="two updates take the same value",
        left=('update Book set { isbn: "n" } where name = "b3"',),
        right=('update Book set { isbn: "n" } where name = "b4"',),
        conflicts=((UNIQUE, BOOK, "Book.isbn"),),
    ),
    Scenario(
        name="the empty text is a value",
        left=('insert Book { name: "x", isbn: "" }',),
        right=('insert Book { name: "y", isbn: "" }',),
        conflicts=((UNIQUE, BOOK, "Book.isbn"),),
    ),
    Scenario(
        name="nulls never collide",
        left=('insert Book { name: "x" }', NO_ISBN_1),
        right=('insert Book { name: "y" }', NO_ISBN_2),
    ),
    Scenario(
        name="a value that was given up is free",
        left=(NO_ISBN_1, 'update Book set { isbn: "i1" } where name = "b3"'),
        right=('insert Book { name: "y" }',),
    ),
    Scenario(
        name="a value of a deleted row is free",
        left=('delete Book where name = "b1"', 'insert Book { name: "x", isbn: "i1" }'),
        right=('insert Book { name: "y", isbn: "i3" }',),
    ),
    Scenario(
        name="the same row with the same value on both sides",
        left=('insert Book { name: "x", isbn: "n" }',),
        right=('insert Book { name: "x", isbn: "n" }', 'insert Book { name: "y" }'),
    ),
    Scenario(
        name="two values exchanged",
        left=(
            NO_ISBN_1,
            'update Book set { isbn: "i1" } where name = "b2"',
            'update Book set { isbn: "i2" } where name = "b1"',
        ),
        right=('insert Book { name: "y", isbn: "n" }',),
    ),
    Scenario(
        name="the same tuple",
        left=('insert Book { name: "x", room: "q", slot: 9 }',),
        right=('insert Book { name: "y", room: "q", slot: 9 }',),
        conflicts=((UNIQUE, BOOK, "@unique violation on Book.(room, slot): "),),
    ),
    Scenario(
        name="a tuple put together from both sides is not a tuple of one row",
        left=('insert Book { name: "x", room: "q", slot: 9 }',),
        right=('insert Book { name: "y", room: "q", slot: 8 }',),
    ),
    Scenario(
        name="a tuple with a null never collides",
        left=('insert Book { name: "x", room: "q" }',),
        right=('insert Book { name: "y", room: "q" }',),
    ),
    Scenario(
        name="tuples compare member by member",
        left=('insert Book { name: "x", room: "q1", slot: 1 }',),
        right=('insert Book { name: "y", room: "q", slot: 11 }',),
    ),
    Scenario(
        name="the same ends",
        left=('insert Wrote { from: "a1", to: "b1" }',),
        right=('insert Wrote { from: "a1", to: "b1" }',),
        conflicts=((UNIQUE, WROTE, "Wrote.(src, dst)"),),
    ),
    Scenario(
        name="one end in common",
        left=('insert Wrote { from: "a1", to: "b1" }',),
        right=('insert Wrote { from: "a1", to: "b2" } insert Wrote { from: "a2", to: "b1" }',),
    ),
    Scenario(
        name="two rules at once",
        left=('insert Book { name: "x", isbn: "n", room: "q", slot: 9 }',),
        right=('insert Book { name: "y", isbn: "n", room: "q", slot: 9 }',),
        conflicts=((UNIQUE, BOOK, "(room, slot)"), (UNIQUE, BOOK, "Book.isbn")),
    ),
]

CARDINALITIES = [
    Scenario(
        name="too many from one source",
        left=('insert Leads { from: "a1", to: "b1" }',),
        right=('insert Leads { from: "a1", to: "b2" }',),
        conflicts=((CARD, LEADS, "edge Leads: 'a1' has 2 edges, allowed are 0..1"),),
    ),
    Scenario(
        name="one from each of two sources",
        left=('insert Leads { from: "a1", to: "b1" }',),
        right=('insert Leads { from: "a2", to: "b1" }',),
    ),
    Scenario(
        name="too few are left",
        base=(THREE_REVIEWS,),
        left=('delete Reviews where to = "a1"',),
        right=('delete Reviews where to = "a2"',),
        conflicts=((CARD, REVIEWS, "edge Reviews: 'b1' has 1 edges, allowed are 2..3"),),
    ),
    Scenario(
        name="the same edge deleted on both sides",
        base=(THREE_REVIEWS,),
        left=('delete Reviews where to = "a1"',),
        right=('delete Reviews where to = "a1"', 'insert Author { name: "a5" }'),
    ),
    Scenario(
        name="one goes and another comes",
        base=(THREE_REVIEWS,),
        left=('delete Reviews where to = "a1"',),
        right=('delete Reviews where to = "a2"', 'insert Reviews { from: "b1", to: "a4" }'),
    ),
    Scenario(
        name="too many from above the bound",
        base=(THREE_REVIEWS[:2],),
        left=('insert Reviews { from: "b1", to: "a3" }',),
        right=('insert Reviews { from: "b1", to: "a4" }',),
        conflicts=((CARD, REVIEWS, "'b1' has 4 edges"),),
    ),
    Scenario(
        name="the new source of a moved edge",
        base=([lead("l1", "a1", "b1")],),
        left=([lead("l1", "a2", "b1")],),
        right=('insert Leads { from: "a2", to: "b3" }',),
        conflicts=((CARD, LEADS, "'a2' has 2 edges"),),
    ),
    Scenario(
        name="the old source of a moved edge",
        base=(FIVE_REVIEWS,),
        left=([review("r1", "b2", "a1")],),
        right=('delete Reviews where to = "a3"',),
        conflicts=((CARD, REVIEWS, "'b1' has 1 edges"),),
    ),
    Scenario(
        name="both sources of a moved edge",
        base=(FIVE_REVIEWS,),
        left=([review("r1", "b2", "a1")],),
        right=('delete Reviews where to = "a3"', 'insert Reviews { from: "b2", to: "a4" }'),
        conflicts=((CARD, REVIEWS, "'b1' has 1 edges"), (CARD, REVIEWS, "'b2' has 4 edges")),
    ),
    Scenario(
        name="a moved edge makes room",
        base=([lead("l1", "a1", "b1")],),
        left=([lead("l1", "a2", "b1")], 'insert Leads { from: "a1", to: "b4" }'),
        right=('insert Leads { from: "a3", to: "b3" }',),
    ),
    Scenario(
        name="a source that one side deleted with its edges",
        base=(THREE_REVIEWS,),
        left=('delete Book where name = "b1"',),
        right=('delete Reviews where to = "a1"',),
    ),
    Scenario(
        name="an edge of a deleted source is an orphan and nothing else",
        base=(THREE_REVIEWS[:2],),
        left=('delete Book where name = "b1"',),
        right=([review("r9", "b1", "a3")],),
        conflicts=((ORPHAN, REVIEWS, "edge Reviews 'r9': src 'b1' not found in Book"),),
    ),
]

ORPHANS = [
    Scenario(
        name="the end of a new edge was deleted",
        left=([cite("c1", "b3", "b4")],),
        right=('delete Book where name = "b4"',),
        conflicts=((ORPHAN, CITES, "edge Cites 'c1': dst 'b4' not found in Book"),),
    ),
    Scenario(
        name="the beginning of a new edge was deleted",
        left=([cite("c1", "b3", "b4")],),
        right=('delete Book where name = "b3"',),
        conflicts=((ORPHAN, CITES, "edge Cites 'c1': src 'b3' not found in Book"),),
    ),
    Scenario(
        name="both ends were deleted",
        left=([cite("c1", "b3", "b4")],),
        right=('delete Book where name = "b3"', 'delete Book where name = "b4"'),
        conflicts=((ORPHAN, CITES, "edge Cites 'c1'"),),
    ),
    Scenario(
        name="a loop is one edge",
        left=([cite("c1", "b4", "b4")],),
        right=('delete Book where name = "b4"',),
        conflicts=((ORPHAN, CITES, "edge Cites 'c1'"),),
    ),
    Scenario(
        name="every edge of a deleted node",
        left=([cite("c1", "b3", "b4"), cite("c2", "b1", "b4"), edge("Wrote", "w1", "a1", "b4")],),
        right=('delete Book where name = "b4"',),
        conflicts=((ORPHAN, CITES, "'c1'"), (ORPHAN, CITES, "'c2'"), (ORPHAN, WROTE, "'w1'")),
    ),
    Scenario(
        name="an edge moved to a node that was deleted",
        base=([cite("c1", "b1", "b2")],),
        left=([cite("c1", "b1", "b4")],),
        right=('delete Book where name = "b4"',),
        conflicts=((ORPHAN, CITES, "edge Cites 'c1': dst 'b4' not found in Book"),),
    ),
    Scenario(
        name="an edge that was deleted with its node",
        base=([cite("c1", "b1", "b2"), cite("c2", "b3", "b4")],),
        left=('delete Book where name = "b2"',),
        right=('delete Cites where from = "b3"',),
    ),
    Scenario(
        name="an edge that one side removed before the other deleted its node",
        base=([cite("c1", "b1", "b2")],),
        left=('delete Cites where from = "b1"',),
        right=('delete Book where name = "b2"',),
    ),
    Scenario(
        name="a node that was deleted and came back",
        left=('delete Book where name = "b4"', 'insert Book { name: "b4" }'),
        right=([cite("c1", "b3", "b4")],),
    ),
    Scenario(
        name="a new edge between new nodes",
        left=('insert Book { name: "x" } insert Cites { from: "x", to: "b1" }',),
        right=('insert Book { name: "y" } insert Cites { from: "b1", to: "y" }',),
    ),
    Scenario(
        name="a node deleted on both sides",
        left=('delete Book where name = "b4"',),
        right=('delete Book where name = "b4"', [cite("c1", "b1", "b2")]),
    ),
]

SEVERAL = [
    Scenario(
        name="conflicts about rows of all types are collected, and rules are not asked yet",
        base=([cite("c1", "b1", "b2")],),
        left=(
            'update Book set { year: 1900 } where name = "b1"',
            'insert Author { name: "new" } insert Book { name: "x", year: 1700, isbn: "n" }',
            [cite("c1", "b1", "b3")],
            'insert Leads { from: "a1", to: "b1" }',
        ),
        right=(
            'update Book set { year: 1901 } where name = "b1"',
            'insert Author { name: "new" } insert Book { name: "x", year: 1701, isbn: "m" }',
            [cite("c1", "b1", "b4")],
            'insert Leads { from: "a1", to: "b2" }',
        ),
        conflicts=(
            (INSERT, BOOK, "Book 'x' was inserted on both sides with different values"),
            (UPDATE, CITES, "Cites 'c1' was changed on both sides to different values"),
            (UPDATE, BOOK, "Book 'b1' was changed on both sides to different values"),
        ),
    ),
    Scenario(
        name="violations of all rules are collected",
        base=(THREE_REVIEWS,),
        left=(
            'insert Book { name: "x", isbn: "n" }',
            'insert Leads { from: "a1", to: "b1" }',
            'delete Reviews where to = "a1"',
            [cite("c1", "b3", "b4")],
            'insert Wrote { from: "a1", to: "b1" }',
        ),
        right=(
            'insert Book { name: "y", isbn: "n" }',
            'insert Leads { from: "a1", to: "b2" }',
            'delete Reviews where to = "a2"',
            'delete Book where name = "b4"',
            'insert Wrote { from: "a1", to: "b1" }',
        ),
        conflicts=(
            (CARD, LEADS, "'a1' has 2 edges"),
            (CARD, REVIEWS, "'b1' has 1 edges"),
            (ORPHAN, CITES, "'c1'"),
            (UNIQUE, WROTE, "(src, dst)"),
            (UNIQUE, BOOK, "'n' belongs to"),
        ),
    ),
]


def act(graph: Graph, branch: str, actions: tuple[Act, ...]) -> None:
    for action in actions:
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
def test_rules_hold_on_the_merged_result(rules: Graph, scenario: Scenario) -> None:
    """Whoever is merged into whom, and whatever the strategy: it decides about rows only."""
    prepare(rules, scenario)
    if not scenario.conflicts:
        check_merges(rules)
        return
    for source, target in (("left", "right"), ("right", "left")):
        check_conflicts(rules, source, target, scenario)


def check_merges(graph: Graph) -> None:
    graph.create_branch("from-left", "left")
    assert graph.merge("left", "right").outcome == "merged"
    assert graph.merge("right", "from-left").outcome != "already_up_to_date"
    assert everything(graph, "from-left") == everything(graph, "right")


def check_conflicts(graph: Graph, source: str, target: str, scenario: Scenario) -> None:
    found = conflicts_of(graph, source, target)
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
    if source == "left" and not any(conflict.kind.is_about_a_row for conflict in found):
        for strategy in ("ours", "theirs"):
            again = graph.merge(source, target, strategy=strategy, dry_run=True)
            assert named(list(again.conflicts)) == named(found)


def test_a_unique_violation_names_both_rows(rules: Graph) -> None:
    prepare(rules, UNIQUES[0])
    (conflict,) = conflicts_of(rules, "left", "right")
    assert conflict.entity_id in ("x", "y")
    assert "'x'" in conflict.message
    assert "'y'" in conflict.message


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


@pytest.mark.parametrize(("strategy", "is_merged"), [("ours", False), ("theirs", True)])
def test_a_row_that_a_strategy_decides_has_to_obey_the_rules(rules: Graph, strategy: str, is_merged: bool) -> None:
    """The source passed a value from one row to another; keeping the first of them only takes it twice."""
    rules.create_branch("feature")
    run(rules, 'update Book set { isbn: "z" } where name = "b1"', "feature")
    run(rules, 'update Book set { isbn: "i1" } where name = "b3"', "feature")
    run(rules, 'update Book set { year: 1900 } where name = "b1"')
    assert named(conflicts_of(rules, "feature")) == [(UPDATE, BOOK, "b1")]
    if is_merged:
        rules.merge("feature", strategy=strategy)
        held = {row["id"]: row["isbn"] for row in everything(rules)[BOOK]}
        assert (held["b1"], held["b3"]) == ("z", "i1")
    else:
        (conflict,) = conflicts_of(rules, "feature", strategy=strategy)
        assert (conflict.kind, conflict.type_key) == (UNIQUE, BOOK)


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_strategy_that_keeps_a_node_needs_its_edges(rules: Graph, strategy: str) -> None:
    """The source deletes a node that the target changed and connected."""
    rules.create_branch("feature")
    run(rules, 'delete Book where name = "b4"', "feature")
    run(rules, 'update Book set { year: 1900 } where name = "b4"')
    put(rules, "main", cite("c1", "b3", "b4"))
    assert named(conflicts_of(rules, "feature")) == [(DELETE, BOOK, "b4")]
    if strategy == "ours":
        rules.merge("feature", strategy=strategy)
        assert [row["id"] for row in everything(rules)[CITES]] == ["c1"]
    else:
        found = conflicts_of(rules, "feature", strategy=strategy)
        assert named(found) == [(ORPHAN, CITES, "c1")]


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


def test_a_value_that_is_wrong_on_the_target_already_is_left_alone(rules: Graph) -> None:
    """Only what a merge changes is checked."""
    rules.create_branch("feature")
    with without_value_rules(rules):
        run(rules, 'insert Book { name: "old", year: 1500 }')
    run(rules, 'insert Book { name: "new", year: 1700 }', "feature")
    assert rules.merge("feature").outcome == "merged"


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


def test_large_neighbours_do_not_collide(tmp_path: Path) -> None:
    """As floats they would be equal."""
    graph = new_graph(tmp_path, UNIQUE_TYPES)
    graph.create_branch("feature")
    run(graph, 'insert Thing { name: "x", whole: 9007199254740993 }', "feature")
    run(graph, 'insert Thing { name: "y", whole: 9007199254740992 }')
    assert graph.merge("feature").outcome == "merged"
