"""Seven operations on the source against seven on the target: every pair has one known outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.merge import MergeJob
from omnigraph.commit.transaction import Transaction
from omnigraph.errors import MAX_CONFLICTS, BadRequestError, BranchNotFoundError, ConflictKind, MergeConflictsError
from omnigraph.graph.graph import Graph
from support.branched_people import (
    KNOWS,
    LIVES,
    MATRIX_IN_MEMORY_AND_FILES,
    PERSON,
    PLACE,
    add_person,
    ages,
    all_branches,
    conflicts_of,
    ends,
    files,
    named,
    put,
    remove_person,
    set_age,
)
from support.graphs import everything, new_graph, rows_of, run, table_of

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

    people: dict[str, int] = field(default_factory=lambda: {"Alice": 30, "Bob": 25, "Carol": 40, "Dan": 50})
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
def test_a_branch_is_merged_into_main(people: Graph, source: str, target: str, outcome: object) -> None:
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
    [pytest.param(*cell.values, id=cell.id, marks=() if cell.id in REDUCED else pytest.mark.slow) for cell in CELLS],
)
def test_branches_are_merged_whatever_their_relation(
    people: Graph, layout: Callable[[Graph], Layout], source: str, target: str, outcome: object
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


def test_an_edge_with_a_key_conflicts_by_its_key_alone(tmp_path: Path) -> None:
    """A `@unique` over its members adds no conflict of its own; other keys between the same nodes add none."""
    schema = """
    node Person { name: String @key }
    edge Rates: Person -> Person { topic: String  stars: I32?  @key(src, dst, topic)  @unique(src, dst, topic) }
    """
    with new_graph(tmp_path, schema) as graph:
        run(graph, 'insert Person { name: "a" } insert Person { name: "b" }')
        graph.create_branch("side")
        for branch, stars in (("main", 1), ("side", 2)):
            insert = 'insert Rates { from: "a", to: "b", topic: "%s", stars: %d }'
            run(graph, f"{insert % ('alike', 0)} {insert % (branch, stars)} {insert % ('contested', stars)}", branch)
        found = conflicts_of(graph, "side")
        assert [(item.kind, item.entity_id) for item in found] == [
            (ConflictKind.DIVERGENT_INSERT, '["a","b","contested"]')
        ]
        graph.merge("side", strategy="theirs")
        held = {row["topic"]: row["stars"] for row in rows_of(graph, "edge:Rates")}
        assert held == {"alike": 0, "main": 1, "side": 2, "contested": 2}


# ---- What every merge promises: its commit, its receipt, what it leaves alone, and what a failure leaves behind


@pytest.fixture
def graph(people: Graph) -> Graph:
    people.create_branch("feature")
    return people


# ---- the call


def test_a_branch_that_is_not_there_cannot_be_merged(graph: Graph) -> None:
    for source, target in (("nope", "main"), ("feature", "nope"), ("nope", "nope2")):
        with pytest.raises(BranchNotFoundError):
            graph.merge(source, target)


def test_a_call_that_makes_no_sense_is_refused(graph: Graph) -> None:
    add_person(graph, "feature", "Eve")
    before = all_branches(graph)
    for name in ("main", "feature"):
        with pytest.raises(BadRequestError, match="itself"):
            graph.merge(name, f" {name} ")
    for strategy in ("", "OURS", "mine", "union"):
        with pytest.raises(BadRequestError, match="strategy"):
            graph.merge("feature", strategy=strategy)
    with pytest.raises(BadRequestError, match="engine"):
        graph.merge("feature", engine="abacus")
    assert all_branches(graph) == before


# ---- commits


@pytest.mark.parametrize("is_fast_forward", [True, False])
def test_a_merge_is_one_commit_with_two_parents(graph: Graph, is_fast_forward: bool) -> None:
    add_person(graph, "feature", "Eve")
    run(graph, 'insert Place { name: "Rome" }', "feature")
    if not is_fast_forward:
        add_person(graph, "main", "Fay")
    source, target = graph.commits("feature"), graph.commits()
    result = graph.merge("feature", actor="me")
    commit = result.commit
    assert commit is not None
    assert (commit.parent_id, commit.merged_parent_id) == (target[0].commit_id, source[0].commit_id)
    assert (commit.branch, commit.kind, commit.actor) == ("main", "branch_merge", "me")
    assert set(commit.tables) == {PERSON, PLACE}
    assert graph.commits() == [commit, *target]
    assert graph.commits("feature") == source
    assert graph.commit(commit.commit_id) == commit
    assert set(graph.log()) == {commit, *source, *target}
    assert graph.log() == sorted(graph.log(), key=lambda item: -item.graph_version)


def test_a_merge_that_is_up_to_date_makes_no_commit(graph: Graph) -> None:
    add_person(graph, "main", "Eve")
    before = all_branches(graph), files(graph)
    result = graph.merge("feature")
    assert (result.outcome, result.commit, result.changes) == ("already_up_to_date", None, ())
    assert (all_branches(graph), files(graph)) == before


def test_the_receipt_as_json(graph: Graph) -> None:
    add_person(graph, "feature", "Eve")
    set_age(graph, "feature", "Alice", 31)
    remove_person(graph, "feature", "Bob")
    result = graph.merge("feature", actor="me", delete_branch=True)
    assert result.commit is not None
    body = result.to_json()
    assert body.pop("commit")["graph_commit_id"] == result.commit.commit_id
    assert body == {
        "source": "feature",
        "target": "main",
        "outcome": "fast_forward",
        "changes": [
            {"entity_kind": "edge", "type_name": "Knows", "inserted": 0, "updated": 0, "deleted": 1},
            {"entity_kind": "node", "type_name": "Person", "inserted": 1, "updated": 1, "deleted": 1},
        ],
        "strategy": None,
        "dry_run": False,
        "actor_id": "me",
        "branch_deleted": True,
    }


@pytest.mark.parametrize("target_moved", [False, True])
def test_net_zero_work_is_one_commit_and_moves_no_table(graph: Graph, target_moved: bool) -> None:
    add_person(graph, "feature", "Eve")
    remove_person(graph, "feature", "Eve")
    set_age(graph, "feature", "Alice", 31)
    set_age(graph, "feature", "Alice", 30)
    if target_moved:
        add_person(graph, "main", "Fay")
    pins, history = graph.snapshot().pins, graph.commits()
    result = graph.merge("feature")
    assert result.outcome == ("merged" if target_moved else "fast_forward")
    assert (result.changes, graph.snapshot().pins) == ((), pins)
    assert result.commit is not None
    assert result.commit.tables == ()
    assert graph.commits() == [result.commit, *history]
    assert graph.merge("feature").outcome == "already_up_to_date"
    add_person(graph, "feature", "Gus")
    graph.merge("feature")
    assert "Gus" in ages(graph)


def test_a_table_that_was_overwritten_with_the_same_rows_has_no_changes(graph: Graph) -> None:
    pins = graph.snapshot().pins
    put(
        graph,
        "feature",
        *({"type": "Person", "data": {"name": name, "age": age}} for name, age in ages(graph).items()),
        mode="overwrite",
    )
    assert graph.snapshot("feature").pins[PERSON] != pins[PERSON]
    result = graph.merge("feature")
    assert (result.changes, graph.snapshot().pins) == ((), pins)


def test_only_types_that_change_are_written(graph: Graph) -> None:
    run(graph, 'insert Place { name: "Rome" } insert Lives { from: "Bob", to: "Rome" }', "feature")
    add_person(graph, "main", "Eve")
    before = graph.snapshot().pins
    graph.merge("feature")
    after = graph.snapshot().pins
    assert {key for key in after if after[key] != before[key]} == {PLACE, LIVES}


def test_version_counters_belong_to_branches(graph: Graph) -> None:
    """The lower number is the newer content."""
    for age in range(26, 32):
        set_age(graph, "main", "Bob", age)
    set_age(graph, "feature", "Alice", 31)
    graph.merge("main", "feature")
    newer, older = graph.snapshot("feature").pins[PERSON], graph.snapshot().pins[PERSON]
    assert newer.version < older.version
    assert ages(graph, "feature") == {"Alice": 31, "Bob": 31, "Carol": 40, "Dan": 50}
    assert graph.merge("feature").outcome == "fast_forward"
    assert ages(graph) == ages(graph, "feature")


def test_rows_that_do_not_change_are_not_rewritten(graph: Graph) -> None:
    set_age(graph, "feature", "Alice", 31)
    add_person(graph, "main", "Eve")
    before = versions_of_rows(graph)
    graph.merge("feature")
    after = versions_of_rows(graph)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"Alice"}
    assert after["Alice"][0] == before["Alice"][0], "it was created when it was"


def test_a_fast_forward_rewrites_changed_rows_only(graph: Graph) -> None:
    """Also when the source wrote every row again on the way."""
    put(
        graph,
        "feature",
        *({"type": "Person", "data": {"name": n, "age": age}} for n, age in ages(graph).items()),
        {"type": "Person", "data": {"name": "Eve", "age": 1}},
    )
    before = versions_of_rows(graph)
    graph.merge("feature")
    after = versions_of_rows(graph)
    assert after.keys() - before.keys() == {"Eve"}
    assert {name: after[name] for name in before} == before


def versions_of_rows(graph: Graph, branch: str = "main") -> dict[str, tuple[int, int]]:
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    return {
        row["id"]: (row["_row_created_at_version"], row["_row_last_updated_at_version"])
        for row in rows_of(graph, PERSON, branch, columns=columns)
    }


def test_every_row_of_a_type_can_go_and_come(graph: Graph) -> None:
    run(graph, "delete Person where age > 0", "feature")
    add_person(graph, "main", "Eve")
    graph.merge("feature")
    assert ages(graph) == {"Eve": 1}
    assert everything(graph)[KNOWS] == []
    graph.create_branch("again")
    put(graph, "again", *({"type": "Person", "data": {"name": f"p{n}"}} for n in range(300)))
    graph.merge("again")
    assert len(ages(graph)) == 301


def test_ids_of_any_spelling_are_merged(graph: Graph) -> None:
    names = ["it's", 'a"b', "x' OR '1'='1", "ü\u0301\U0001f600", "x" * 900, " "]

    def rows(age: int) -> list[dict[str, Any]]:
        return [{"type": "Person", "data": {"name": name, "age": age}} for name in names]

    put(graph, "main", *rows(1))
    graph.create_branch("other")
    put(graph, "other", *rows(2))
    put(graph, "main", *rows(3))
    found = named(conflicts_of(graph, "other"))
    assert found == sorted((ConflictKind.DIVERGENT_UPDATE, PERSON, name) for name in names)
    graph.merge("other", strategy="theirs")
    assert [ages(graph)[name] for name in names] == [2] * len(names)
    graph.create_branch("last")
    for name in names:
        graph.mutate("query q($n: String) { delete Person where name = $n }", {"n": name}, branch="last")
    graph.merge("last")
    assert not ages(graph).keys() & set(names)


# ---- children and forks of the target


@pytest.mark.parametrize("has_written", [False, True])
def test_children_of_a_target_keep_reading_what_they_began_with(graph: Graph, has_written: bool) -> None:
    graph.create_branch("target")
    if has_written:
        add_person(graph, "target", "own")
    graph.create_branch("child", "target")
    before = everything(graph, "child")
    add_person(graph, "feature", "Eve")
    set_age(graph, "feature", "Alice", 31)
    graph.merge("feature", "target")
    assert everything(graph, "child") == before
    add_person(graph, "child", "Fay")
    assert ages(graph, "child").keys() - {row["id"] for row in before[PERSON]} == {"Fay"}
    assert ages(graph, "child")["Alice"] == 30
    graph.merge("child", "target")
    assert {"Eve", "Fay"} <= ages(graph, "target").keys()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_target_that_reads_an_old_version_of_main_is_merged_into(graph: Graph, dry_run: bool) -> None:
    """Its own fork begins at the version it is pinned to, whatever main did since."""
    graph.create_branch("target")
    for age in (31, 32, 33):
        set_age(graph, "main", "Alice", age)
    remove_person(graph, "main", "Dan")
    set_age(graph, "feature", "Bob", 26)
    result = graph.merge("feature", "target", dry_run=dry_run)
    assert [(c.inserted, c.updated, c.deleted) for c in result.changes] == [(0, 1, 0)]
    expected = {"Alice": 30, "Bob": 25 if dry_run else 26, "Carol": 40, "Dan": 50}
    assert ages(graph, "target") == expected
    assert ages(graph) == {"Alice": 33, "Bob": 25, "Carol": 40}


# ---- dry runs


@pytest.mark.parametrize("into", ["main", "target"])
@pytest.mark.parametrize("outcome", ["already_up_to_date", "fast_forward", "merged", "conflicts"])
def test_a_dry_run_leaves_nothing_behind(graph: Graph, into: str, outcome: str) -> None:
    graph.create_branch("target")
    if outcome != "already_up_to_date":
        add_person(graph, "feature", "Eve", 1)
        run(graph, 'insert Place { name: "Rome" }', "feature")
    if outcome == "merged":
        add_person(graph, into, "Fay")
    if outcome == "conflicts":
        add_person(graph, into, "Eve", 2)
    before, listing = all_branches(graph), files(graph)
    result = graph.merge("feature", into, dry_run=True, delete_branch=True)
    assert (result.outcome, result.commit, result.dry_run) == (outcome, None, True)
    assert result.branch_deleted is None
    assert all_branches(graph) == before
    assert files(graph) == listing
    assert graph.pending_recoveries() == []


def test_a_dry_run_that_breaks_a_rule_leaves_nothing_behind(rules: Graph) -> None:
    for name in ("feature", "target"):
        rules.create_branch(name)
        run(rules, f'insert Book {{ name: "{name}", isbn: "n" }}', name)
    before, listing = all_branches(rules), files(rules)
    assert rules.merge("feature", "target", dry_run=True).outcome == "conflicts"
    assert (all_branches(rules), files(rules)) == (before, listing)


# ---- failures


def test_a_failed_merge_leaves_no_file_and_stops_no_writer(rules: Graph) -> None:
    rules.create_branch("feature")
    run(rules, 'insert Book { name: "x", isbn: "n" }', "feature")
    run(rules, 'insert Author { name: "a5" }', "feature")
    run(rules, 'insert Book { name: "y", isbn: "n" }')
    listing = files(rules)
    for _ in range(2):
        with pytest.raises(MergeConflictsError):
            rules.merge("feature")
        assert rules.pending_recoveries() == []
        assert files(rules) == listing
    run(rules, 'update Book set { isbn: "m" } where name = "y"')
    assert rules.merge("feature").outcome == "merged"
    assert rules.recoveries() == []


def test_a_merge_that_fails_after_staging_leaves_no_file(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add_person(graph, "feature", "Eve")
    before, listing = all_branches(graph), files(graph)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.branches.merge.check", fail)
        with pytest.raises(OSError, match="space"):
            graph.merge("feature")
    assert (all_branches(graph), files(graph)) == (before, listing)
    assert graph.pending_recoveries() == []
    assert graph.merge("feature").outcome == "fast_forward"


def test_many_conflicts_are_counted_and_the_first_are_shown(graph: Graph) -> None:
    count = MAX_CONFLICTS + 7
    for branch, age in (("feature", 1), ("main", 2)):
        rows = [{"type": "Person", "data": {"name": f"p{n:05}", "age": age}} for n in range(count)]
        put(graph, branch, *rows)
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("feature")
    error = caught.value
    assert (error.total, len(error.conflicts)) == (count, MAX_CONFLICTS)
    assert [item.entity_id for item in error.conflicts[:3]] == ["p00000", "p00001", "p00002"]
    assert graph.merge("feature", strategy="theirs").changes[0].updated == count


# ---- races


def interrupted(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> pytest.MonkeyPatch:
    """Between planning and committing the first merge, `act` happens once."""
    commit = Transaction.commit
    done: list[int] = []

    def act_and_commit(transaction: Transaction, **named_: Any) -> Any:
        if not done:
            done.append(1)
            act()
        return commit(transaction, **named_)

    monkeypatch.setattr(Transaction, "commit", act_and_commit)
    return monkeypatch


@pytest.mark.parametrize("into", ["main", "target"])
def test_a_target_that_moved_meanwhile_is_planned_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, into: str
) -> None:
    graph.create_branch("target")
    add_person(graph, "feature", "Eve")
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: add_person(other, into, "Fay"))
        result = graph.merge("feature", into)
    assert result.outcome == "merged", "by then it is no fast-forward any more"
    assert {"Eve", "Fay"} <= ages(graph, into).keys()
    assert result.commit is not None
    assert result.commit.parent_id == graph.commits(into)[1].commit_id


def test_a_conflict_that_arises_meanwhile_is_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add_person(graph, "feature", "Eve", 1)
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: add_person(other, "main", "Eve", 2))
        with pytest.raises(MergeConflictsError):
            graph.merge("feature")
    assert ages(graph)["Eve"] == 2


def test_commits_of_other_types_on_the_target_do_not_matter(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is planned again; but what was a fast-forward is a merge now."""
    add_person(graph, "feature", "Eve")
    planned: list[int] = []
    plan = MergeJob.plan
    monkeypatch.setattr(MergeJob, "plan", lambda job: (planned.append(1), plan(job))[1])
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: run(other, 'insert Place { name: "Rome" }'))
        result = graph.merge("feature")
    assert (result.outcome, len(planned)) == ("merged", 1)
    assert "Eve" in ages(graph)
    assert [commit.kind for commit in graph.commits()][:2] == ["branch_merge", "mutation"]


def test_a_merge_into_the_target_meanwhile_is_planned_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have brought what this merge brings, so the base is another one."""
    add_person(graph, "feature", "Eve")
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: other.merge("feature"))
        assert graph.merge("feature").outcome == "already_up_to_date"
    assert [commit.kind for commit in graph.commits()].count("branch_merge") == 1


def test_a_source_that_moved_meanwhile_is_merged_as_it_was(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add_person(graph, "feature", "Eve")
    head = graph.snapshot("feature").commit_id
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: add_person(other, "feature", "Fay"))
        result = graph.merge("feature")
    assert result.commit is not None
    assert result.commit.merged_parent_id == head
    assert "Fay" not in ages(graph)
    assert graph.merge("feature").outcome == "merged"
    assert "Fay" in ages(graph)


def test_a_source_that_was_deleted_meanwhile_is_merged_all_the_same(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_person(graph, "feature", "Eve")
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: other.delete_branch("feature"))
        assert graph.merge("feature").outcome == "fast_forward"
    assert "Eve" in ages(graph)
    assert graph.branches() == ["main"]


def test_a_target_that_was_deleted_meanwhile_is_not_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.create_branch("target")
    add_person(graph, "feature", "Eve")
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: other.delete_branch("target"))
        with pytest.raises(BranchNotFoundError):
            graph.merge("feature", "target")
    assert graph.pending_recoveries() == []
    graph.create_branch("target")
    assert "Eve" not in ages(graph, "target")
    assert graph.merge("feature", "target").outcome == "fast_forward"


# ---- deleting the source


def test_the_source_stays_unless_its_deletion_is_asked_for(graph: Graph) -> None:
    add_person(graph, "feature", "Eve")
    result = graph.merge("feature")
    assert (result.branch_deleted, result.branch_delete_error) == (None, None)
    assert "branch_deleted" not in result.to_json()
    assert graph.branches() == ["feature", "main"]


@pytest.mark.parametrize("is_new", [True, False])
def test_the_source_is_deleted_after_the_merge(graph: Graph, is_new: bool) -> None:
    """Also when there was nothing left to merge."""
    add_person(graph, "feature", "Eve")
    if not is_new:
        graph.merge("feature")
    result = graph.merge("feature", delete_branch=True)
    assert result.outcome == ("fast_forward" if is_new else "already_up_to_date")
    assert (result.branch_deleted, result.branch_delete_error) == (True, None)
    assert graph.branches() == ["main"]
    assert "Eve" in ages(graph)


def test_a_source_that_moved_during_the_merge_is_not_deleted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the late commit would be lost: it was not merged."""
    add_person(graph, "feature", "Eve")
    with Graph.open(graph.uri) as other:
        interrupted(monkeypatch, lambda: add_person(other, "feature", "Fay"))
        result = graph.merge("feature", delete_branch=True)
    assert (result.outcome, result.branch_deleted) == ("fast_forward", False)
    assert "merge it again" in str(result.branch_delete_error)
    assert graph.branches() == ["feature", "main"]
    assert graph.merge("feature", delete_branch=True).branch_deleted
    assert {"Eve", "Fay"} <= ages(graph).keys()


def test_a_source_that_cannot_be_deleted_is_reported_and_merged(graph: Graph) -> None:
    add_person(graph, "feature", "Eve")
    graph.create_branch("child", "feature")
    result = graph.merge("feature", delete_branch=True)
    assert result.outcome == "fast_forward"
    assert result.branch_deleted is False
    assert result.branch_delete_error is not None
    assert "child" in result.branch_delete_error
    assert result.to_json()["branch_delete_error"] == result.branch_delete_error
    assert graph.branches() == ["child", "feature", "main"]
    assert "Eve" in ages(graph)


def test_main_is_merged_but_not_deleted(graph: Graph) -> None:
    add_person(graph, "main", "Eve")
    result = graph.merge("main", "feature", delete_branch=True)
    assert (result.outcome, result.branch_deleted) == ("fast_forward", False)
    assert "main" in graph.branches()


def test_a_conflict_deletes_nothing(graph: Graph) -> None:
    for branch, age in (("feature", 1), ("main", 2)):
        add_person(graph, branch, "Eve", age)
    with pytest.raises(MergeConflictsError):
        graph.merge("feature", delete_branch=True)
    assert graph.branches() == ["feature", "main"]


def test_old_commits_read_as_before_after_merges(graph: Graph) -> None:
    seen = {}
    for step in (
        lambda: add_person(graph, "feature", "Eve"),
        lambda: set_age(graph, "main", "Alice", 31),
        lambda: graph.merge("feature"),
        lambda: remove_person(graph, "main", "Eve"),
        lambda: graph.merge("main", "feature"),
    ):
        step()
        for name in graph.branches():
            snapshot = graph.snapshot(name)
            seen[snapshot.commit_id] = (snapshot, everything(graph, name))
    for snapshot, rows in seen.values():
        found = {
            key: sorted(table_of(graph.uri, snapshot, key).to_pylist(), key=lambda row: str(row["id"]))
            for key in snapshot.pins
        }
        assert found == rows
