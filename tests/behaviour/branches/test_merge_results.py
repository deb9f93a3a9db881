"""When two rows are the same row: typed, null-aware, and whatever the files behind them are."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.results import MergeResult
from omnigraph.core.ids import TableKey
from omnigraph.errors import ConflictKind, MergeConflict
from omnigraph.graph.graph import Graph
from support.branched_people import KNOWS, PEOPLE, PERSON, conflicts_of, knows, named, put
from support.graphs import everything, new_graph, run, table_of
from support.subtests import each_case

SCHEMA = """
node Thing {
    name: String @key  text: String?  tags: [String]?  counts: [I64]?  flags: [Bool]?  days: [Date]?
    vec: Vector(3)?  data: Blob?  i64: I64?  f64: F64?  flag: Bool?  day: Date?  at: DateTime?
    stage: enum(draft, final)?  _row_note: String?
}
"""
THING = TableKey("node:Thing")


def blob(value: bytes) -> str:
    return f"base64:{base64.b64encode(value).decode()}"


#: A property and values of it that are all different.
DIFFERENT: dict[str, list[Any]] = {
    "text": [None, "", " ", "a", "a\u0301", "\u00e1"],
    "tags": [None, [], [""], ["a", "b"], ["b", "a"], ["ab"], ["a,b"]],
    "counts": [None, [], [0], [1, 2], [2, 1]],
    "flags": [None, [], [False], [True], [True, False]],
    "days": [None, [], ["2020-01-01"], ["2020-01-02"]],
    "vec": [None, [0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
    "data": [None, blob(b""), blob(b"\0"), blob(b"\0" * 100_000), blob(b"\0" * 99_999 + b"\1")],
    "i64": [None, 0, 9007199254740992, 9007199254740993],
    "f64": [None, 0.0, 0.1, 0.30000000000000004, 0.3],
    "flag": [None, False, True],
    "day": [None, "1970-01-01", "1969-12-31"],
    "at": [None, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001Z"],
    "stage": [None, "draft", "final"],
    "_row_note": [None, "", "a", "b"],
}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, SCHEMA) as graph:
        yield graph


def thing(name: str, property_: str, value: object) -> dict[str, Any]:
    return {"type": "Thing", "data": {"name": name, property_: value}}


def held(graph: Graph, property_: str, branch: str = "main") -> dict[str, Any]:
    return {row["id"]: row[property_] for row in everything(graph, branch)[THING]}


@pytest.mark.parametrize("property_", DIFFERENT)
def test_different_values_conflict_and_equal_ones_do_not(graph: Graph, property_: str) -> None:
    """Every pair of values of a property, one on each branch."""
    values = DIFFERENT[property_]
    pairs = {(one, other) for one in range(len(values)) for other in range(len(values))}
    put(graph, "main", *(thing(f"{a} {b}", "text", "before") for a, b in pairs))
    graph.create_branch("feature")
    put(graph, "feature", *(thing(f"{a} {b}", property_, values[a]) for a, b in pairs))
    put(graph, "main", *(thing(f"{a} {b}", property_, values[b]) for a, b in pairs))
    theirs, ours = held(graph, property_, "feature"), held(graph, property_)
    found = conflicts_of(graph, "feature")
    assert named(found) == sorted((ConflictKind.DIVERGENT_UPDATE, THING, f"{a} {b}") for a, b in pairs if a != b)
    graph.merge("feature", strategy="theirs")
    assert held(graph, property_) == theirs
    assert theirs != ours


@pytest.mark.parametrize("property_", DIFFERENT)
def test_a_change_of_a_value_arrives(graph: Graph, property_: str) -> None:
    values = DIFFERENT[property_]
    put(graph, "main", *(thing(f"{n}", property_, value) for n, value in enumerate(values)))
    graph.create_branch("feature")
    moved = [*values[1:], values[0]]
    put(graph, "feature", *(thing(f"{n}", property_, value) for n, value in enumerate(moved)))
    put(graph, "main", thing("other", property_, values[1]))
    expected = held(graph, property_, "feature") | {"other": held(graph, property_)["other"]}
    result = graph.merge("feature")
    assert [(c.inserted, c.updated, c.deleted) for c in result.changes] == [(0, len(values), 0)]
    assert held(graph, property_) == expected


def test_rows_with_values_of_every_type_are_equal_after_they_were_written_again(graph: Graph) -> None:
    """Blobs get other files; their bytes count."""
    rows = [
        thing(f"{property_} {n}", property_, value)
        for property_, values in DIFFERENT.items()
        for n, value in enumerate(values)
    ]
    put(graph, "main", *rows)
    graph.create_branch("feature")
    put(graph, "feature", *rows, mode="overwrite")
    pins = graph.snapshot().pins
    assert graph.snapshot("feature").pins != pins
    result = graph.merge("feature")
    assert (result.changes, graph.snapshot().pins) == ((), pins)


def test_values_of_every_type_are_copied_as_they_are(graph: Graph) -> None:
    graph.create_branch("feature")
    rows = [
        thing(f"{property_} {n}", property_, value)
        for property_, values in DIFFERENT.items()
        for n, value in enumerate(values)
    ]
    put(graph, "feature", *rows)
    put(graph, "main", thing("own", "text", "x"))
    graph.merge("feature")
    merged = {row["id"]: row for row in everything(graph)[THING]}
    assert merged.pop("own")["text"] == "x"
    assert merged == {row["id"]: row for row in everything(graph, "feature")[THING]}
    assert graph.read_blob(THING, "data 3", "data") == b"\0" * 100_000


def test_a_conflict_shows_values_of_every_type(graph: Graph) -> None:
    values = {name: items[1] for name, items in DIFFERENT.items()}
    graph.create_branch("feature")
    put(graph, "feature", {"type": "Thing", "data": {"name": "x", **values}})
    put(graph, "main", {"type": "Thing", "data": {"name": "x"}})
    (conflict,) = conflicts_of(graph, "feature")
    assert conflict.ours == {"properties": {**dict.fromkeys(values), "name": "x"}}
    assert conflict.theirs is not None
    shown = {**values, "name": "x", "at": "1970-01-01T00:00:00.000Z"}
    assert conflict.theirs == {"properties": shown}


# ---- The truth table of one id on real graphs: for nodes and edges, without and with a strategy


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
KINDS = ["node", "edge", "keyed edge"]
#: The same people, whose acquaintances have a key.
KEYED = PEOPLE.replace("{ since: I32? }", "{ since: I32?  @key(src, dst) }")


def value_of(state: str | None) -> int | None:
    return None if state is None else VALUES[state[0]]


def id_of(kind: str, case: Case) -> str:
    return f'["from {case.id}","to"]' if kind == "keyed edge" else case.id


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
    return knows(id_of(kind, case), f"from {case.id}", "to", value_of(state))


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
        graph = new_graph(tmp_path_factory.mktemp("truth"), KEYED if kind == "keyed edge" else PEOPLE)
        key = PERSON if kind == "node" else KNOWS
        done = Ran(graph=graph, key=key)
        if kind != "node":
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
    found = done.after.get(id_of(kind, case))
    expected = value_of(case.expected(strategy))
    assert (None if found is None else found["age" if kind == "node" else "since"]) == expected


@each_case(("kind", "strategy", "case"), TABLE)
def test_a_row_is_written_only_if_it_changes(
    ran: Callable[[str, str | None], Ran], kind: str, strategy: str | None, case: Case
) -> None:
    done = ran(kind, strategy)
    before, after = (rows.get(id_of(kind, case)) for rows in (done.before, done.after))
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
def test_exactly_the_conflicts_of_the_table_are_reported(ran: Callable[[str, str | None], Ran], kind: str) -> None:
    done = ran(kind, "ours")
    assert {name: conflict.kind for name, conflict in done.conflicts.items()} == {
        id_of(kind, case): case.result for case in CASES if case.is_conflict
    }
    assert {conflict.type_key for conflict in done.conflicts.values()} == {done.key}


@each_case("kind", KINDS)
@each_case("case", [c for c in CASES if c.is_conflict], ids=lambda case: case.name)
def test_a_conflict_shows_the_row_on_all_sides(ran: Callable[[str, str | None], Ran], kind: str, case: Case) -> None:
    conflict = ran(kind, "ours").conflicts[id_of(kind, case)]

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
def test_an_edge_moved_to_different_ends_is_changed_differently(people: Graph, strategy: str | None) -> None:
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
