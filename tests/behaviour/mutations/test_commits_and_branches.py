"""Receipts, history, snapshots, preconditions, branches, and two handles on one graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    NotFoundError,
    PreconditionFailedError,
    QuerySelectionError,
    ReadSetConflictError,
    ResourceLimitError,
)
from omnigraph.graph.graph import Graph
from support.graphs import PEOPLE, ends_of, ids_of, interrupted, new_graph, refused, rows_of, run, run_typed, table_of

ADA = 'insert Person { name: "ada", age: 1 }'
BOB = 'insert Person { name: "bob", age: 2 }'


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, PEOPLE)
    run(graph, f"{ADA} {BOB}")
    return graph


@pytest.fixture
def other(graph: Graph) -> Graph:
    return Graph.open(graph.uri)


# ---- receipts and history


def test_a_receipt_names_the_query_the_branch_the_actor_and_the_commit(graph: Graph) -> None:
    parent = graph.snapshot().commit_id
    result = graph.mutate(f"query add() {{ {ADA} }}", actor="me")
    body = result.to_json()
    assert body.pop("commit") == {
        "graph_commit_id": graph.snapshot().commit_id,
        "graph_branch": "main",
        "graph_manifest_version": graph.snapshot().graph_version,
        "parent_commit_id": parent,
        "merged_parent_commit_id": None,
        "actor_id": "me",
        "created_at": result.commit.created_at,
    }
    counts = {"affected_nodes": 1, "affected_edges": 0}
    assert body == {"branch": "main", "query_name": "add", "actor_id": "me"} | counts
    assert graph.commit(result.commit.commit_id) == result.commit


def test_commits_are_listed_newest_first_and_by_actor(graph: Graph) -> None:
    for number, actor in enumerate(["x", "y", "x", None]):
        graph.mutate(f'query q() {{ insert Note {{ text: "{number}" }} }}', actor=actor)
    history = graph.commits()
    assert [commit.actor for commit in history] == [None, "x", "y", "x", None, None]
    assert [commit.parent_id for commit in history] == [*[commit.commit_id for commit in history[1:]], None]
    versions = [commit.graph_version for commit in history]
    assert versions == sorted(versions, reverse=True)
    assert graph.commits(actor="x") == [history[1], history[3]]
    assert graph.commits(actor="nobody") == []


def test_an_unknown_commit_is_not_found(graph: Graph) -> None:
    for name in ("nope", "x' OR '1'='1"):
        with pytest.raises(NotFoundError):
            graph.commit(name)


def test_a_snapshot_stays_while_the_branch_moves_on(graph: Graph) -> None:
    snapshot = graph.snapshot()
    before = table_of(graph.uri, snapshot, "node:Person").to_pylist()
    run(graph, 'update Person set { age: 9 } where name = "ada"')
    run(graph, 'delete Person where name = "bob"')
    assert table_of(graph.uri, snapshot, "node:Person").to_pylist() == before
    assert graph.snapshot() != snapshot
    assert ids_of(graph, "node:Person") == {"ada"}


# ---- preconditions


def test_a_mutation_runs_while_the_head_is_the_expected_commit(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    result = graph.mutate(f"query q() {{ {ADA} }}", if_commit=head)
    assert result.commit.parent_id == head


@pytest.mark.parametrize(
    "statement",
    [
        ADA,
        "update Person set { age: 3 } where age = 1",
        'update Person set { age: 3 } where name = "nobody"',
        'delete Person where name = "nobody"',
        # The precondition comes first: a caller with an old view learns that, not what is wrong in it.
        'insert Knows { from: "ghost", to: "ada" }',
    ],
)
def test_a_mutation_with_another_expected_head_is_refused(graph: Graph, statement: str) -> None:
    old = graph.snapshot().commit_id
    run(graph, 'insert Note { text: "unrelated" }')
    with refused(graph, PreconditionFailedError) as caught:
        graph.mutate(f"query q() {{ {statement} }}", if_commit=old)
    error = caught.value
    assert (error.branch, error.expected, error.actual) == ("main", old, graph.snapshot().commit_id)


def test_a_lost_precondition_is_not_prepared_again(graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = graph.snapshot().commit_id
    with (
        interrupted(monkeypatch, lambda: run(other, 'insert Note { text: "n" }')) as prepared,
        pytest.raises(PreconditionFailedError),
    ):
        graph.mutate(f"query q() {{ {ADA} }}", if_commit=head)
    assert len(prepared) == 1


# ---- choosing a query

TWO = f'query add() {{ {ADA} }} query drop() {{ delete Person where name = "bob" }}'


def test_one_of_several_queries_is_run_by_name(graph: Graph) -> None:
    assert graph.mutate(TWO, name="drop").query_name == "drop"
    assert ids_of(graph, "node:Person") == {"ada"}


@pytest.mark.parametrize(
    ("text", "name"), [(TWO, None), (TWO, "nope"), ("query r() { match { $p: Person } return { $p } }", None)]
)
def test_a_text_without_exactly_that_mutation_is_refused(graph: Graph, text: str, name: str | None) -> None:
    with refused(graph, QuerySelectionError):
        graph.mutate(text, name=name)


# ---- limits


def test_a_mutation_beyond_the_memory_limit_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MUTATION_MAX_BYTES", "2000")
    small = Graph.open(graph.uri)
    with refused(small, ResourceLimitError, "OMNIGRAPH_MUTATION_MAX_BYTES") as caught:
        run(small, "insert Note { text: $t }", t="x" * 3000)
    assert (caught.value.limit, caught.value.actual > 3000) == (2000, True)
    with refused(small, ResourceLimitError):
        run(small, "insert Note { text: $t } insert Note { text: $t }", t="x" * 1200)
    assert run(small, "insert Note { text: $t }", t="x" * 1200).affected_nodes == 1


# ---- reading only


def test_a_graph_that_is_open_for_reading_refuses_writes(graph: Graph) -> None:
    reader = Graph.open(graph.uri, read_only=True)
    with refused(reader, BadRequestError, "reading only"):
        run(reader, ADA)
    with refused(reader, BadRequestError, "reading only"):
        reader.create_branch("b")
    run(graph, 'insert Person { name: "cy" }')
    assert ids_of(reader, "node:Person") == {"ada", "bob", "cy"}


# ---- branches


def test_branches_do_not_see_each_other(graph: Graph) -> None:
    graph.create_branch("side")
    graph.create_branch("feature/x", "side")
    assert graph.branches() == ["feature/x", "main", "side"]
    run(graph, 'insert Person { name: "m" }')
    run(graph, 'insert Person { name: "s" } update Person set { age: 9 } where age = 1', "side")
    run(graph, 'delete Person where name = "ada"', "feature/x")
    ages = {
        branch: {row["id"]: row["age"] for row in rows_of(graph, "node:Person", branch)} for branch in graph.branches()
    }
    assert ages == {
        "main": {"ada": 1, "bob": 2, "m": None},
        "side": {"ada": 9, "bob": 2, "s": None},
        "feature/x": {"bob": 2},
    }


def test_a_branch_keeps_its_base_while_main_moves(graph: Graph) -> None:
    graph.create_branch("side")
    for age in range(3):
        run(graph, f'update Person set {{ age: {age} }} where name = "bob"')
    run(graph, 'insert Knows { from: "ada", to: "bob" }', "side")
    run(graph, 'update Person set { city: "x" } where age = 2', "side")
    assert {row["id"]: (row["age"], row["city"]) for row in rows_of(graph, "node:Person", "side")} == {
        "ada": (1, None),
        "bob": (2, "x"),
    }
    assert ends_of(graph, "edge:Knows", "side") == [("ada", "bob")]
    assert ends_of(graph, "edge:Knows") == []


def test_the_history_of_a_branch_includes_what_it_inherited(graph: Graph) -> None:
    before = graph.commits()
    graph.create_branch("side")
    result = run(graph, 'insert Note { text: "x" }', "side")
    assert result.branch == "side"
    assert result.commit.branch == "side"
    assert graph.commits("side") == [result.commit, *before]
    assert graph.commits() == before


def test_rules_are_judged_on_the_branch(graph: Graph) -> None:
    graph.create_branch("side")
    run(graph, 'insert Person { name: "main-only" }')
    with refused(graph, BadRequestError, "not found in Person", branch="side"):
        run(graph, 'insert Knows { from: "ada", to: "main-only" }', "side")
    run(graph, 'delete Person where name = "ada"', "side")
    assert run(graph, 'insert Knows { from: "ada", to: "bob" }').affected_edges == 1


def test_an_unknown_branch_is_not_found(graph: Graph) -> None:
    for act in (
        lambda: run(graph, ADA, "nope"),
        lambda: graph.snapshot("nope"),
        lambda: graph.commits("nope"),
        lambda: graph.create_branch("x", "nope"),
    ):
        with pytest.raises(BranchNotFoundError) as caught:
            act()
        assert caught.value.branch == "nope"
    assert graph.branches() == ["main"]


# ---- two handles


def test_two_handles_see_each_others_commits(graph: Graph, other: Graph) -> None:
    for handle, name in ((graph, "x"), (other, "y"), (graph, "z")):
        run(handle, "insert Person { name: $n }", n=name)
    assert ids_of(graph, "node:Person") == ids_of(other, "node:Person") == {"ada", "bob", "x", "y", "z"}
    other.create_branch("side")
    assert run(graph, ADA, "side").branch == "side"
    assert graph.commits("side") == other.commits("side")


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize(
    "statement", ["update Person set { age: 7 } where age = 1", 'delete Person where name = "ada"']
)
def test_an_update_or_delete_that_lost_a_race_reports_the_table(
    graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch, statement: str, branch: str
) -> None:
    graph.create_branch("side")
    read = graph.snapshot(branch).pins["node:Person"].version

    def winner() -> None:
        run(other, 'update Person set { age: 8 } where name = "ada"', branch)

    with interrupted(monkeypatch, winner) as prepared, pytest.raises(ExpectedVersionMismatchError) as caught:
        run(graph, statement, branch)
    error = caught.value
    assert (error.table_key, error.expected, error.actual) == ("node:Person", read, read + 1)
    assert len(prepared) == 1
    assert [(row["id"], row["age"]) for row in rows_of(graph, "node:Person", branch)] == [("ada", 8), ("bob", 2)]
    assert graph.pending_recoveries() == []
    assert run(graph, 'update Person set { age: 0 } where name = "bob"', branch).affected_nodes == 1


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize(
    ("mine", "theirs", "people"),
    [
        ('insert Person { name: "x" }', 'insert Person { name: "y" }', {"ada", "bob", "x", "y"}),
        ('insert Person { name: "x", age: 1 }', 'insert Person { name: "x" }', {"ada", "bob", "x"}),
        ('insert Knows { from: "ada", to: "bob" }', 'insert Person { name: "y" }', {"ada", "bob", "y"}),
        ('insert Person { name: "x" }', 'delete Person where name = "bob"', {"ada", "x"}),
    ],
)
def test_an_insert_that_lost_a_race_is_prepared_again(
    graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str, people: set[str], branch: str
) -> None:
    graph.create_branch("side")
    with interrupted(monkeypatch, lambda: run(other, theirs, branch)) as prepared:
        result = run(graph, mine, branch)
    assert len(prepared) == 2
    assert result.commit.parent_id == graph.commits(branch)[1].commit_id
    assert ids_of(graph, "node:Person", branch) == people


def test_a_unique_value_cannot_be_taken_twice_in_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = new_graph(tmp_path, "node N { k: I32 @key u: I32 @unique }")
    other = Graph.open(graph.uri)
    with (
        interrupted(monkeypatch, lambda: run(other, "insert N { k: 1, u: 5 }")),
        pytest.raises(BadRequestError, match="@unique violation"),
    ):
        run(graph, "insert N { k: 2, u: 5 }")
    assert ids_of(graph, "node:N") == {"1"}


def test_an_edge_loses_against_the_delete_of_its_endpoint(
    graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        interrupted(monkeypatch, lambda: run(other, 'delete Person where name = "bob"')),
        pytest.raises(BadRequestError, match="'bob' not found in Person"),
    ):
        run(graph, 'insert Knows { from: "ada", to: "bob" }')
    assert ends_of(graph, "edge:Knows") == []


@pytest.mark.parametrize("seeded", [False, True])
def test_a_delete_loses_against_a_new_edge_of_its_node(
    graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch, seeded: bool
) -> None:
    if seeded:
        run(graph, 'insert Knows { from: "bob", to: "bob" }')
    before = len(ends_of(graph, "edge:Knows"))
    with (
        interrupted(monkeypatch, lambda: run(other, 'insert Knows { from: "ada", to: "bob" }')),
        pytest.raises(ConflictError) as caught,
    ):
        run(graph, 'delete Person where name = "bob"')
    expected = ExpectedVersionMismatchError if seeded else ReadSetConflictError
    assert type(caught.value) is expected
    assert ids_of(graph, "node:Person") == {"ada", "bob"}
    assert len(ends_of(graph, "edge:Knows")) == before + 1
    result = run(graph, 'delete Person where name = "bob"')
    assert (result.affected_nodes, result.affected_edges) == (1, before + 1)


def test_a_conflict_leaves_other_types_alone(graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted(monkeypatch, lambda: run(other, 'insert Note { text: "n" }')) as prepared:
        run(graph, "update Person set { age: 5 } where age = 1")
    assert len(prepared) == 1, "another type moved: no reason to fail or to prepare again"


def test_now_is_fixed_over_repeated_preparations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = new_graph(tmp_path, "node N { k: I32 @key at: DateTime }")
    other = Graph.open(graph.uri)
    ticks = iter(range(1_000_000, 10_000_000_000, 1_000_000))
    object.__setattr__(graph._core.environment, "clock", lambda: next(ticks))
    with interrupted(monkeypatch, lambda: run(other, "insert N { k: 2, at: now() }")) as prepared:
        run(graph, "insert N { k: 1, at: now() }")
    assert len(prepared) == 2
    (row,) = [row for row in rows_of(graph, "node:N") if row["id"] == "1"]
    assert row["at"].isoformat() == "1970-01-01T00:00:01"


def test_parameters_are_checked_before_anything_happens(graph: Graph) -> None:
    with refused(graph, BadRequestError, "missing"):
        run_typed(graph, "$n: String", "insert Person { name: $n }")
    with refused(graph, BadRequestError, "not declared"):
        graph.mutate(f"query q() {{ {ADA} }}", {"extra": 1})
