"""The truth table of one id on real graphs: for nodes and edges, without and with a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from omnigraph.api.results import MergeResult
from omnigraph.core.ids import TableKey
from omnigraph.errors import ConflictKind, MergeConflict
from omnigraph.graph.graph import Graph
from support.branched_people import KNOWS, PEOPLE, PERSON, conflicts_of, knows, put
from support.graphs import new_graph, run, table_of
from support.subtests import each_case

DI, DU = ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE
DV = ConflictKind.DELETE_VS_UPDATE

VALUES = {"b": 10, "x": 20, "y": 30}
#: Written again after it was removed: the same values in another row.
AGAIN = "b again"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What base, source and target hold of one id; None is nothing."""

    name: str
    base: str | None = None
    source: str | None = None
    target: str | None = None
    #: What the target holds afterwards, or the conflict.
    result: str | ConflictKind | None = None

    @property
    def id(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def is_conflict(self) -> bool:
        return isinstance(self.result, ConflictKind)

    def expected(self, strategy: str | None) -> str | None:
        """The row that the target holds after a merge."""
        if not isinstance(self.result, ConflictKind):
            return self.result
        return self.source if strategy == "theirs" else self.target

    def is_written(self, strategy: str | None) -> bool:
        expected = self.expected(strategy)
        return expected is not None and value_of(expected) != value_of(self.target)


CASES = [
    Case(name="inserted by the source", source="x", result="x"),
    Case(name="inserted by the target", target="x", result="x"),
    Case(name="inserted alike", source="x", target="x", result="x"),
    Case(name="inserted differently", source="x", target="y", result=DI),
    Case(name="untouched", base="b", source="b", target="b", result="b"),
    Case(name="updated by the source", base="b", source="x", target="b", result="x"),
    Case(name="updated by the target", base="b", source="b", target="x", result="x"),
    Case(name="updated alike", base="b", source="x", target="x", result="x"),
    Case(name="updated differently", base="b", source="x", target="y", result=DU),
    Case(name="deleted by the source", base="b", target="b"),
    Case(name="deleted by the target", base="b", source="b"),
    Case(name="deleted by both", base="b"),
    Case(name="deleted by the source and updated", base="b", target="x", result=DV),
    Case(name="updated and deleted by the target", base="b", source="x", result=DV),
    # Content counts, not the row that holds it.
    Case(name="rewritten by the source", base="b", source=AGAIN, target="b", result="b"),
    Case(name="rewritten by the target", base="b", source="b", target=AGAIN, result="b"),
    Case(name="rewritten by both", base="b", source=AGAIN, target=AGAIN, result="b"),
    Case(name="updated and rewritten", base="b", source="x", target=AGAIN, result="x"),
    Case(name="rewritten and updated", base="b", source=AGAIN, target="x", result="x"),
    Case(name="deleted and rewritten", base="b", target=AGAIN),
    Case(name="rewritten and deleted", base="b", source=AGAIN),
]
STRATEGIES = [None, "ours", "theirs"]
KINDS = ["node", "edge"]


def value_of(state: str | None) -> int | None:
    return None if state is None else VALUES[state[0]]


@dataclass(kw_only=True)
class Ran:
    """One merge of all cases: the rows of the target before and after, and what the merge said."""

    graph: Graph
    key: TableKey
    conflicts: dict[str, MergeConflict] = field(default_factory=dict)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: dict[str, dict[str, Any]] = field(default_factory=dict)
    result: MergeResult | None = None


def record(kind: str, case: Case, state: str | None) -> dict[str, Any]:
    if kind == "node":
        return {"type": "Person", "data": {"name": case.id, "age": value_of(state)}}
    return knows(case.id, f"from {case.id}", "to", value_of(state))


def people_of(case: Case) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"name": name}} for name in (f"from {case.id}", "to")]


def remove(graph: Graph, branch: str, kind: str, cases: list[Case]) -> None:
    column = "name" if kind == "node" else "from"
    type_name, prefix = ("Person", "") if kind == "node" else ("Knows", "from ")
    statements = [f'delete {type_name} where {column} = "{prefix}{c.id}"' for c in cases]
    run(graph, " ".join(statements), branch)


def reach(graph: Graph, branch: str, kind: str, cases: list[Case], side: str) -> None:
    """Bring every id on a branch from the base to what that side holds."""
    wanted = {case: getattr(case, side) for case in cases}
    moved = [case for case in cases if wanted[case] != case.base]
    remove(graph, branch, kind, [c for c in moved if c.base and wanted[c] in (None, AGAIN)])
    put(graph, branch, *(record(kind, c, wanted[c]) for c in moved if wanted[c] is not None))


def rows_by_id(graph: Graph, key: TableKey) -> dict[str, dict[str, Any]]:
    columns = ["id", "age" if key == PERSON else "since", "_rowid", "_row_last_updated_at_version"]
    rows = table_of(graph.uri, graph.snapshot(), key, columns).to_pylist()
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str | None], Ran]]:
    """Merge all cases once per kind and strategy; without a strategy, those that have no conflict."""
    made: dict[tuple[str, str | None], Ran] = {}

    def merge(kind: str, strategy: str | None) -> Ran:
        if (kind, strategy) not in made:
            made[kind, strategy] = make(kind, strategy)
        return made[kind, strategy]

    def make(kind: str, strategy: str | None) -> Ran:
        graph = new_graph(tmp_path_factory.mktemp("truth"), PEOPLE)
        key = PERSON if kind == "node" else KNOWS
        done = Ran(graph=graph, key=key)
        if kind == "edge":
            put(graph, "main", *(person for case in CASES for person in people_of(case)))
        put(graph, "main", *(record(kind, case, case.base) for case in CASES if case.base))
        graph.create_branch("feature")
        cases = CASES if strategy else [case for case in CASES if not case.is_conflict]
        reach(graph, "feature", kind, cases, "source")
        reach(graph, "main", kind, cases, "target")
        done.before = rows_by_id(graph, key)
        if strategy:
            done.conflicts = {str(c.entity_id): c for c in conflicts_of(graph, "feature")}
        done.result = graph.merge("feature", strategy=strategy)
        done.after = rows_by_id(graph, key)
        return done

    yield merge
    for done in made.values():
        done.graph.close()


TABLE = [
    pytest.param(kind, strategy, case, id=f"{kind}, {strategy}: {case.name}")
    for kind in KINDS
    for strategy in STRATEGIES
    for case in CASES
    if strategy is not None or not case.is_conflict
]


@each_case(("kind", "strategy", "case"), TABLE)
def test_the_target_holds_what_the_table_says(
    ran: Callable[[str, str | None], Ran], kind: str, strategy: str | None, case: Case
) -> None:
    done = ran(kind, strategy)
    found = done.after.get(case.id)
    expected = value_of(case.expected(strategy))
    assert (None if found is None else found["age" if kind == "node" else "since"]) == expected


@each_case(("kind", "strategy", "case"), TABLE)
def test_a_row_is_written_only_if_it_changes(
    ran: Callable[[str, str | None], Ran], kind: str, strategy: str | None, case: Case
) -> None:
    done = ran(kind, strategy)
    before, after = done.before.get(case.id), done.after.get(case.id)
    if after is None:
        return
    if not case.is_written(strategy):
        assert after == before
        return
    version = done.graph.snapshot().pins[done.key].version
    assert after["_row_last_updated_at_version"] == version
    if before is not None:
        assert after["_rowid"] == before["_rowid"], "an update keeps the identity of the row"


@each_case("kind", KINDS)
@each_case("strategy", STRATEGIES)
def test_the_receipt_counts_what_was_written(
    ran: Callable[[str, str | None], Ran], kind: str, strategy: str | None
) -> None:
    done = ran(kind, strategy)
    assert done.result is not None
    cases = [case for case in CASES if strategy or not case.is_conflict]
    written = [case for case in cases if case.is_written(strategy)]
    inserted = [case for case in written if case.target is None]
    gone = [c for c in cases if c.target is not None and c.expected(strategy) is None]
    (changes,) = done.result.changes
    assert changes.type_key == done.key
    assert (changes.inserted, changes.updated, changes.deleted) == (
        len(inserted),
        len(written) - len(inserted),
        len(gone),
    )


@each_case("kind", KINDS)
@each_case("strategy", STRATEGIES)
def test_the_strategy_is_recorded_on_the_commit(
    ran: Callable[[str, str | None], Ran], kind: str, strategy: str | None
) -> None:
    done = ran(kind, strategy)
    assert done.result is not None
    assert done.result.strategy == strategy
    assert done.result.commit is not None
    with Graph.open(done.graph.uri, read_only=True) as again:
        commit = again.commit(done.result.commit.commit_id)
    assert commit == done.result.commit
    assert commit.merge_strategy == strategy


# ---- conflicts


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_conflicts_of_the_table_are_reported(
    ran: Callable[[str, str | None], Ran], kind: str
) -> None:
    done = ran(kind, "ours")
    assert {name: conflict.kind for name, conflict in done.conflicts.items()} == {
        case.id: case.result for case in CASES if case.is_conflict
    }
    assert {conflict.type_key for conflict in done.conflicts.values()} == {done.key}


@each_case("kind", KINDS)
@each_case("case", [c for c in CASES if c.is_conflict], ids=lambda case: case.name)
def test_a_conflict_shows_the_row_on_all_sides(
    ran: Callable[[str, str | None], Ran], kind: str, case: Case
) -> None:
    conflict = ran(kind, "ours").conflicts[case.id]

    def image(state: str | None) -> dict[str, Any] | None:
        if state is None:
            return None
        if kind == "node":
            return {"properties": {"name": case.id, "age": value_of(state), "note": None}}
        ends = {"from": f"from {case.id}", "to": "to"}
        return {"properties": {"since": value_of(state)}, "endpoints": ends}

    assert conflict.base == image(case.base)
    assert conflict.ours == image(case.target)
    assert conflict.theirs == image(case.source)


# ---- edges are their ends, too


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_edge_moved_to_different_ends_is_changed_differently(
    people: Graph, strategy: str | None
) -> None:
    put(people, "main", knows("e", "Alice", "Bob"))
    people.create_branch("feature")
    put(people, "feature", knows("e", "Alice", "Carol"))
    put(people, "main", knows("e", "Dan", "Bob"))
    (conflict,) = conflicts_of(people, "feature")
    assert (conflict.kind, conflict.type_key, conflict.entity_id) == (DU, KNOWS, "e")
    assert conflict.ours is not None
    assert conflict.theirs is not None
    assert conflict.ours["endpoints"] == {"from": "Dan", "to": "Bob"}
    assert conflict.theirs["endpoints"] == {"from": "Alice", "to": "Carol"}
    if strategy is not None:
        people.merge("feature", strategy=strategy)
        moved = people.entity_at(KNOWS, "e")
        assert moved is not None
        winner = conflict.ours if strategy == "ours" else conflict.theirs
        assert moved["endpoints"] == winner["endpoints"]


def test_two_sides_that_change_different_properties_conflict(people: Graph) -> None:
    """The unit is the whole row."""
    people.create_branch("feature")
    run(people, 'update Person set { note: "n" } where name = "Alice"', "feature")
    run(people, 'update Person set { age: 31 } where name = "Alice"')
    (conflict,) = conflicts_of(people, "feature")
    assert (conflict.kind, conflict.entity_id) == (DU, "Alice")
