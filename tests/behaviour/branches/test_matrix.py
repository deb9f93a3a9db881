"""Seven operations on the source against seven on the target: every pair has one known outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from omnigraph.errors import ConflictKind
from omnigraph.graph.graph import Graph
from support.branched_people import (
    KNOWS,
    MATRIX_IN_MEMORY_AND_FILES,
    PERSON,
    add_person,
    ages,
    all_branches,
    conflicts_of,
    ends,
)
from support.graphs import everything, run

pytestmark = MATRIX_IN_MEMORY_AND_FILES

U, F, M = "already_up_to_date", "fast_forward", "merged"
DI = (ConflictKind.DIVERGENT_INSERT, PERSON, "Eve")
DU = (ConflictKind.DIVERGENT_UPDATE, PERSON, "Alice")
DV = (ConflictKind.DELETE_VS_UPDATE, PERSON, "Alice")
#: The edge has a generated id.
OE = (ConflictKind.ORPHAN_EDGE, KNOWS, "the edge from Alice")

OPERATIONS = ["noop", "+n", "-n", "+e", "-e", "set", "0e"]

#: Rows are operations on the source, columns those on the target.
TABLE = {
    "noop": [U, U, U, U, U, U, U],
    "+n": [F, DI, M, M, M, M, M],
    "-n": [F, M, M, OE, M, DV, M],
    "+e": [F, M, OE, M, M, M, M],
    "-e": [F, M, M, M, M, M, M],
    "set": [F, M, DV, M, M, DU, M],
    "0e": [F, M, M, M, M, M, M],
}
CELLS = [
    pytest.param(source, target, outcome, id=f"{source} into {target}")
    for source, outcomes in TABLE.items()
    for target, outcome in zip(OPERATIONS, outcomes, strict=True)
]


@dataclass
class Model:
    """What a branch holds, as plain values."""

    people: dict[str, int] = field(
        default_factory=lambda: {"Alice": 30, "Bob": 25, "Carol": 40, "Dan": 50}
    )
    knows: list[tuple[str, str]] = field(default_factory=lambda: [("Bob", "Carol")])

    def apply(self, operation: str, *, is_source: bool) -> Model:
        match operation:
            case "+n":
                self.people["Eve"] = 20 if is_source else 22
            case "-n":
                self.people.pop("Alice", None)
            case "+e":
                self.knows = sorted([*self.knows, ("Alice", "Carol")])
            case "-e":
                self.knows = [ends for ends in self.knows if ends != ("Bob", "Carol")]
            case "set":
                self.people["Alice"] = 31 if is_source else 33
        return self


def act(graph: Graph, branch: str, operation: str, *, is_source: bool) -> None:
    match operation:
        case "+n":
            add_person(graph, branch, "Eve", 20 if is_source else 22)
        case "-n":
            run(graph, 'delete Person where name = "Alice"', branch)
        case "+e":
            run(graph, 'insert Knows { from: "Alice", to: "Carol" }', branch)
        case "-e":
            run(graph, 'delete Knows where from = "Bob"', branch)
        case "set":
            age = 31 if is_source else 33
            run(graph, f'update Person set {{ age: {age} }} where name = "Alice"', branch)
        case "0e":
            run(graph, 'insert Knows { from: "Dan", to: "Carol" }', branch)
            run(graph, 'delete Knows where from = "Dan"', branch)


def held(graph: Graph, branch: str) -> Model:
    return Model(people=dict(ages(graph, branch)), knows=ends(graph, branch))


def check_cell(graph: Graph, source: str, target: str, cell: tuple[str, str, object]) -> None:
    """Do both operations, merge, and look at everything that the outcome promises."""
    on_source, on_target, expected = cell
    act(graph, source, on_source, is_source=True)
    act(graph, target, on_target, is_source=False)
    source_before, target_before = everything(graph, source), everything(graph, target)
    if isinstance(expected, str):
        check_merge(graph, source, target, cell)
    else:
        check_conflict(graph, source, target, cell)
        assert everything(graph, target) == target_before
        assert held(graph, target) == Model().apply(on_target, is_source=False)
    assert everything(graph, source) == source_before
    add_person(graph, target, "later")
    assert "later" in ages(graph, target)


def check_merge(graph: Graph, source: str, target: str, cell: tuple[str, str, object]) -> None:
    on_source, on_target, outcome = cell
    heads = graph.snapshot(source).commit_id, graph.snapshot(target).commit_id
    history = graph.commits(target)
    before = graph.snapshot(target)
    preview = graph.merge(source, target, dry_run=True)
    result = graph.merge(source, target)
    assert (preview.outcome, result.outcome) == (outcome, outcome)
    assert preview.changes == result.changes
    model = Model().apply(on_target, is_source=False).apply(on_source, is_source=True)
    assert held(graph, target) == model
    if outcome == U:
        assert result.commit is None
        assert graph.snapshot(target) == before
    else:
        assert result.commit is not None
        assert (result.commit.merged_parent_id, result.commit.parent_id) == heads
        assert graph.commits(target) == [result.commit, *history]
        moved = {key for key, pin in graph.snapshot(target).pins.items() if pin != before.pins[key]}
        assert moved == set(result.commit.tables) == {item.type_key for item in result.changes}
    if outcome == F:
        assert everything(graph, target) == everything(graph, source)
    settled = all_branches(graph)
    again = graph.merge(source, target)
    assert (again.outcome, again.commit, again.changes) == (U, None, ())
    assert all_branches(graph) == settled


def check_conflict(graph: Graph, source: str, target: str, cell: tuple[str, str, object]) -> None:
    on_source, _, expected = cell
    assert isinstance(expected, tuple)
    kind, type_key, entity_id = expected
    if kind is ConflictKind.ORPHAN_EDGE:
        side = source if on_source == "+e" else target
        (entity_id,) = [r["id"] for r in everything(graph, side)[KNOWS] if r["src"] == "Alice"]
    (conflict,) = conflicts_of(graph, source, target)
    assert (conflict.kind, conflict.type_key, conflict.entity_id) == (kind, type_key, entity_id)


Layout = tuple[str, str]


def into_main(graph: Graph) -> Layout:
    graph.create_branch("feature")
    return "feature", "main"


def from_main(graph: Graph) -> Layout:
    graph.create_branch("feature")
    return "main", "feature"


def beside_each_other(graph: Graph) -> Layout:
    graph.create_branch("left")
    graph.create_branch("right")
    return "left", "right"


def into_the_parent(graph: Graph) -> Layout:
    """Types that the parent wrote to already, and types that it has not."""
    graph.create_branch("parent")
    run(graph, 'insert Place { name: "own" }', "parent")
    graph.create_branch("child", "parent")
    return "child", "parent"


@pytest.mark.parametrize(("source", "target", "outcome"), CELLS)
def test_a_branch_is_merged_into_main(
    people: Graph, source: str, target: str, outcome: object
) -> None:
    check_cell(people, *into_main(people), (source, target, outcome))


LAYOUTS = [beside_each_other, from_main, into_the_parent]
#: Every operation against itself, and every conflict.
REDUCED = {
    f"{source} into {target}"
    for source, outcomes in TABLE.items()
    for target, outcome in zip(OPERATIONS, outcomes, strict=True)
    if source == target or isinstance(outcome, tuple)
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda it: it.__name__)
@pytest.mark.parametrize(
    ("source", "target", "outcome"),
    [
        pytest.param(*cell.values, id=cell.id, marks=() if cell.id in REDUCED else pytest.mark.slow)
        for cell in CELLS
    ],
)
def test_branches_are_merged_whatever_their_relation(
    people: Graph,
    layout: Callable[[Graph], Layout],
    source: str,
    target: str,
    outcome: object,
) -> None:
    check_cell(people, *layout(people), (source, target, outcome))


def test_the_same_edge_added_on_both_sides_stays_twice(people: Graph) -> None:
    """Edges without a key get fresh ids."""
    source, target = into_main(people)
    for branch in (source, target):
        act(people, branch, "+e", is_source=True)
    people.merge(source)
    assert ends(people) == [("Alice", "Carol"), ("Alice", "Carol"), ("Bob", "Carol")]
    assert len({row["id"] for row in everything(people)[KNOWS]}) == 3
