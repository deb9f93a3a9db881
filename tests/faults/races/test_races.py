"""Many writers at once: exactly one winner per version, nothing lost, nothing doubled."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from faults.races.conftest import ALL_KINDS, Crew
from omnigraph.commit.environment import BranchQueue
from omnigraph.commit.transaction import Transaction
from omnigraph.errors import (
    BadRequestError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
    RetryableCommitConflictError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.locks import FileCommitLock
from support.races.checks import (
    acknowledged,
    check_all_acknowledged,
    check_every_snapshot_is_closed,
    check_graph,
    failed,
    lost,
)
from support.races.jobs import (
    ADD_EDGE,
    ADD_NOTE,
    ADD_PERSON,
    DELETE_PERSON,
    LAST_OF_ALL,
    MOST_TRIES,
    SCHEMA,
    SET_VISITS,
    WITH_LANGUAGE,
    overtaken,
    table_rows,
)


def sizes(small: int, large: int) -> list[object]:
    """Mutations per writer: a few, and many behind the marker."""
    return [
        pytest.param(small, id=f"{small} each"),
        pytest.param(large, id=f"{large} each", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ]


def setup_people(root: Path, *names: str) -> list[str]:
    """Persons from before the race; the ids of their commits."""
    with Graph.open(root) as graph:
        made = [graph.mutate(ADD_PERSON, {"name": name}).commit for name in names]
    return [commit.commit_id for commit in made if commit is not None]


@pytest.mark.parametrize("crew", ALL_KINDS, indirect=True)
@pytest.mark.parametrize("count", sizes(4, 40))
def test_inserts_into_one_table_all_arrive_exactly_once(root: Path, crew: Crew, count: int) -> None:
    reports = crew.run("insert_notes", root, count=count)
    check_all_acknowledged(reports)
    check_graph(root, acknowledged(reports))
    with Graph.open(root, read_only=True) as graph:
        texts = [row["text"] for row in table_rows(graph, graph.snapshot(), "node:Note", ["text"])]
    wanted = [f"{who}-{number}" for who in range(crew.size) for number in range(count)]
    assert sorted(texts) == sorted(wanted)


@pytest.mark.parametrize("count", sizes(4, 40))
def test_a_reader_beside_writers_always_sees_both_tables_of_a_mutation(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub")
    running = crew.start("insert_pairs", root, count=count)
    versions = []
    with Graph.open(root, read_only=True) as graph:
        for _ in range(count * 30):
            snapshot = graph.snapshot()
            people = {row["id"] for row in table_rows(graph, snapshot, "node:Person", ["id"])}
            edges = {row["src"] for row in table_rows(graph, snapshot, "edge:Knows", ["src"])}
            assert people - {"hub"} == edges
            assert len(people) == snapshot.pins["node:Person"].row_count
            assert len(edges) == snapshot.pins["edge:Knows"].row_count
            assert graph.commits()[0].graph_version >= snapshot.graph_version
            versions.append(snapshot.graph_version)
            if all(future.done() for future in running):
                break
    reports = [future.result() for future in running]
    check_all_acknowledged(reports)
    assert versions == sorted(versions), "a reader went back in time"
    check_graph(root, acknowledged(reports), earlier)
    with Graph.open(root, read_only=True) as graph:
        tags = [row["tag"] for row in table_rows(graph, graph.snapshot(), "edge:Knows", ["tag"])]
    assert sorted(tags) == sorted(f"{who}-{number}" for who in range(crew.size) for number in range(count))


@pytest.mark.parametrize("count", sizes(5, 50))
def test_writers_of_different_tables_never_get_a_conflict(root: Path, crew: Crew, count: int) -> None:
    reports = crew.run("write_own_table", root, count=count)
    check_all_acknowledged(reports)
    receipts = acknowledged(reports)
    assert len(receipts) == crew.size * count
    check_graph(root, receipts)
    with Graph.open(root, read_only=True) as graph:
        for who in range(crew.size):
            rows = table_rows(graph, graph.snapshot(), f"node:City{who}", ["name", "visits"])
            assert rows == [{"name": "c", "visits": count - 1}]


@pytest.mark.parametrize("count", sizes(4, 40))
def test_writers_of_different_branches_never_get_a_conflict(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub")
    reports = crew.run("write_own_branch", root, count=count)
    check_all_acknowledged(reports)
    receipts = acknowledged(reports)
    assert Counter(receipt["branch"] for receipt in receipts) == {f"team/{who}": count for who in range(crew.size)}
    check_graph(root, receipts, earlier)
    with Graph.open(root, read_only=True) as graph:
        for branch in graph.branches():
            (row,) = table_rows(graph, graph.snapshot(branch), "node:Person", ["visits"])
            assert row["visits"] == (0 if branch == "main" else count)


@pytest.mark.parametrize("rounds", sizes(3, 30))
def test_of_updates_prepared_against_one_version_exactly_one_wins(
    root: Path, crew: Crew, tmp_path: Path, rounds: int
) -> None:
    earlier = setup_people(root, "hub")
    receipts = []
    for number in range(rounds):
        marks = tmp_path / f"marks-{number}"
        marks.mkdir()
        with FileCommitLock(root).held(60):
            running = crew.start("update_at_the_door", root, name="hub", visits=(number + 1) * 100, marks=str(marks))
            for _ in range(MOST_TRIES):
                if len(list(marks.iterdir())) == crew.size:
                    break
                time.sleep(0.01)  # other processes make the marks; the tries are bounded
            assert len(list(marks.iterdir())) == crew.size, "not everybody reached the door"
        reports = [future.result() for future in running]
        (winner,) = acknowledged(reports)
        receipts.append(winner)
        losers = lost(reports)
        assert len(losers) == crew.size - 1
        assert {loser["error"] for loser in losers} == {"ExpectedVersionMismatchError"}
        assert {loser["exit_code"] for loser in losers} == {75}
        with Graph.open(root, read_only=True) as graph:
            snapshot = graph.snapshot()
            (row,) = table_rows(graph, snapshot, "node:Person", ["visits"])
            actual = snapshot.pins["node:Person"].version
        for loser in losers:
            assert loser["details"]["manifest_conflict"] == {
                "table_key": "node:Person",
                "expected": actual - 1,
                "actual": actual,
            }
        (who,) = [index for index, report in enumerate(reports) if acknowledged([report])]
        assert row["visits"] == (number + 1) * 100 + who
    check_graph(root, receipts, earlier)


@pytest.mark.parametrize("crew", ALL_KINDS, indirect=True)
@pytest.mark.parametrize("count", sizes(3, 30))
def test_a_counter_ends_at_the_number_of_acknowledged_increments(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub")
    reports = crew.run("increment", root, count=count)
    assert failed(reports) == []
    receipts = acknowledged(reports)
    assert len(receipts) == crew.size * count
    check_graph(root, receipts, earlier)
    with Graph.open(root, read_only=True) as graph:
        (row,) = table_rows(graph, graph.snapshot(), "node:Person", ["visits"])
    assert row["visits"] == len(receipts)


@pytest.mark.parametrize("count", sizes(3, 30))
def test_what_a_match_read_is_what_its_statement_counted_on(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub")
    reports = crew.run("increment_by_match", root, count=count)
    assert failed(reports) == []
    receipts = acknowledged(reports)
    assert len(receipts) == crew.size * count
    check_graph(root, receipts, earlier)
    with Graph.open(root, read_only=True) as graph:
        (row,) = table_rows(graph, graph.snapshot(), "node:Person", ["visits"])
    assert row["visits"] == len(receipts)


@pytest.mark.parametrize("count", sizes(3, 30))
def test_nothing_is_written_because_of_rows_that_were_no_more_so(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub")
    reports = crew.run("write_while_open", root, count=count)
    assert failed(reports) == []
    receipts = acknowledged(reports)
    check_graph(root, receipts, earlier)
    (closed,) = [outcome["graph_version"] for outcome in reports[LAST_OF_ALL] if outcome.get("commit")]
    noted = [outcome["graph_version"] for outcome in receipts if outcome["graph_version"] != closed]
    assert all(version < closed for version in noted)
    with Graph.open(root, read_only=True) as graph:
        assert len(table_rows(graph, graph.snapshot(), "node:Note", ["text"])) == len(noted)


@pytest.mark.parametrize("count", sizes(8, 60))
def test_no_published_snapshot_holds_an_edge_without_its_ends(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub", *(f"p{number}" for number in range(count)))
    with Graph.open(root) as graph:
        first = graph.mutate(ADD_EDGE, {"from": "p0", "to": "hub", "tag": "first"}).commit
    assert first is not None
    earlier.append(first.commit_id)
    reports = crew.run("edges_against_deletes", root, count=count)
    for refusal in failed(reports):
        assert refusal["refused"]
        assert "not found in Person" in refusal["message"]
    receipts = acknowledged(reports)
    check_graph(root, receipts, earlier)
    assert check_every_snapshot_is_closed(root) == 1 + len(earlier) + len(receipts)
    with Graph.open(root, read_only=True) as graph:
        people = {row["id"] for row in table_rows(graph, graph.snapshot(), "node:Person", ["id"])}
        edges = table_rows(graph, graph.snapshot(), "edge:Knows", ["src", "tag"])
    deleted_by = crew.size // 2
    doomed = {f"p{number}" for number in range(count) if number % 4 < deleted_by}
    assert people == {"hub", *(f"p{number}" for number in range(count))} - doomed
    # Every acknowledged edge is still there or went with its node, once.
    inserted = 1 + sum(outcome["affected_edges"] for report in reports[0::2] for outcome in acknowledged([report]))
    cascaded = sum(outcome["affected_edges"] for report in reports[1::2] for outcome in acknowledged([report]))
    assert len(edges) == inserted - cascaded
    assert len({edge["tag"] for edge in edges}) == len(edges)


@pytest.mark.parametrize("crew", ALL_KINDS, indirect=True)
@pytest.mark.parametrize("count", sizes(3, 30))
def test_of_one_edge_with_a_key_that_everybody_inserts_there_is_one(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub", *(f"p{number}" for number in range(count)))
    reports = crew.run("rate_alike", root, count=count)
    check_all_acknowledged(reports)
    receipts = acknowledged(reports)
    assert len(receipts) == crew.size * count
    check_graph(root, receipts, earlier)
    with Graph.open(root, read_only=True) as graph:
        edges = table_rows(graph, graph.snapshot(), "edge:Rates", ["id", "by"])
    assert sorted(edge["id"] for edge in edges) == sorted(f'["p{number}","hub"]' for number in range(count))
    assert {edge["by"] for edge in edges} <= set(range(crew.size))


@pytest.mark.parametrize("count", sizes(2, 20))
def test_of_one_edge_with_a_key_that_everybody_appends_the_first_wins(root: Path, crew: Crew, count: int) -> None:
    earlier = setup_people(root, "hub", *(f"p{number}" for number in range(count)))
    reports = crew.run("append_alike", root, count=count)
    for number in range(count):
        outcomes = [report[number] for report in reports]
        losers = [outcome for outcome in outcomes if "error" in outcome]
        assert len(losers) == crew.size - 1
        assert {loser["error"] for loser in losers} == {"LoadKeyConflictError"}
        assert all(f'["p{number}","hub"]' in loser["message"] for loser in losers)
    check_graph(root, acknowledged(reports), earlier)


@pytest.mark.parametrize("count", sizes(2, 20))
def test_first_writes_to_a_type_on_a_new_branch_share_one_fork(root: Path, crew: Crew, count: int) -> None:
    with Graph.open(root) as graph:
        base = graph.mutate('query a() { insert Note { text: "base" } }').commit
        assert base is not None
        graph.create_branch("fresh")
    reports = crew.run("insert_notes", root, count=count, branch="fresh")
    check_all_acknowledged(reports)
    check_graph(root, acknowledged(reports), [base.commit_id])
    with Graph.open(root, read_only=True) as graph:
        snapshot = graph.snapshot("fresh")
        texts = [row["text"] for row in table_rows(graph, snapshot, "node:Note", ["text"])]
        on_main = table_rows(graph, graph.snapshot(), "node:Note", ["text"])
        pin = snapshot.pins["node:Note"]
        pin_on_main = graph.snapshot().pins["node:Note"]
    written = [f"{who}-{number}" for who in range(crew.size) for number in range(count)]
    assert sorted(texts) == sorted(["base", *written])
    assert on_main == [{"text": "base"}]
    assert pin.branch == "fresh"
    assert pin.version == pin_on_main.version + len(written)


def test_first_increments_of_one_row_on_a_new_branch_are_all_counted(root: Path, crew: Crew) -> None:
    earlier = setup_people(root, "hub")
    with Graph.open(root) as graph:
        graph.create_branch("fresh")
    reports = crew.run("increment", root, count=2, branch="fresh")
    assert failed(reports) == []
    receipts = acknowledged(reports)
    check_graph(root, receipts, earlier)
    with Graph.open(root, read_only=True) as graph:
        (row,) = table_rows(graph, graph.snapshot("fresh"), "node:Person", ["visits"])
        (untouched,) = table_rows(graph, graph.snapshot(), "node:Person", ["visits"])
    assert row["visits"] == len(receipts) == crew.size * 2
    assert untouched["visits"] == 0


def test_one_of_several_creators_of_the_same_branch_wins(root: Path, crew: Crew) -> None:
    reports = crew.run("create_branch", root, name="same")
    created = [outcome for report in reports for outcome in report if "created" in outcome]
    refused = [outcome for report in reports for outcome in report if outcome.get("refused")]
    assert len(created) == 1
    assert len(refused) == crew.size - 1
    check_graph(root, [])


def test_one_of_several_creators_of_the_same_graph_wins(tmp_path: Path, crew: Crew) -> None:
    root = tmp_path / "new.omni"
    reports = crew.run("initialize", root)
    created = [outcome["created"] for report in reports for outcome in report if "created" in outcome]
    errors = {outcome["error"] for report in reports for outcome in report if "error" in outcome}
    assert len(created) == 1
    assert errors <= {"AlreadyInitializedError", "InitializationClaimedError"}
    with Graph.open(root, read_only=True) as graph:
        (genesis,) = graph.commits()
        assert genesis.actor == f"init-{created[0]}"
        assert all(pin.row_count == 0 for pin in graph.snapshot().pins.values())
    assert not (root / "__init_claim.json").exists()
    with Graph.open(root) as graph:
        written = graph.mutate(ADD_PERSON, {"name": "first"}).commit
    assert written is not None
    assert written.parent_id == genesis.commit_id


def test_one_of_two_equal_schema_changes_happens_and_fills_exactly_the_rows_that_were_there(
    root: Path, crew: Crew
) -> None:
    reports = crew.run("change_beside_writers", root, count=4)
    check_all_acknowledged(reports)
    (changed,) = [outcome for report in reports[:2] for outcome in report if outcome["applied"]]
    check_graph(root, acknowledged(reports))
    assert list(root.glob("*.staging")) == []
    with Graph.open(root, read_only=True) as graph:
        assert graph.schema == WITH_LANGUAGE
        rows = table_rows(graph, graph.snapshot(), "node:Note", ["text", "lang"])
    expected = [
        (f"{who}-{number}", "en" if note["graph_version"] < changed["graph_version"] else None)
        for who, report in enumerate(reports)
        for number, note in enumerate(report)
        if who > 2
    ]
    assert sorted((row["text"], row["lang"]) for row in rows) == sorted(expected)
    seen = [(outcome["is_new"], outcome["rows"]) for outcome in reports[2]]
    assert seen == sorted(seen), "a reader went back in time"


def test_a_schema_change_and_the_making_of_a_branch_come_one_after_the_other(root: Path, crew: Crew) -> None:
    ((changed,), (made,), *_) = crew.run("change_beside_branches", root)
    assert made == {"created": "dev"}
    with Graph.open(root, read_only=True) as graph:
        assert graph.snapshot("dev").schema_hash == graph.snapshot().schema_hash
        assert graph.schema == (WITH_LANGUAGE if changed.get("applied") else SCHEMA)
    assert changed.get("applied") or changed["error"] == "BranchesExistError"
    assert list(root.glob("*.staging")) == []


# ---- Races with a fixed outcome: one writer stands before the commit window while another one goes through


@pytest.fixture
def graph(root: Path) -> Graph:
    opened = Graph.open(root)
    for name in ("ann", "bob"):
        opened.mutate(ADD_PERSON, {"name": name})
    return opened


def edge_tags(graph: Graph) -> list[str]:
    return sorted(row["tag"] for row in table_rows(graph, graph.snapshot(), "edge:Knows", ["tag"]))


def test_an_edge_whose_end_is_deleted_meanwhile_is_refused(graph: Graph, root: Path) -> None:
    late = overtaken(graph, lambda other: other.mutate(DELETE_PERSON, {"name": "bob"}))
    with pytest.raises(BadRequestError, match="'bob' not found in Person"):
        late.mutate(ADD_EDGE, {"from": "ann", "to": "bob", "tag": "late"})
    assert edge_tags(graph) == []
    check_every_snapshot_is_closed(root)


def test_a_delete_that_misses_a_new_edge_is_a_conflict(graph: Graph, root: Path) -> None:
    edge = {"from": "ann", "to": "bob", "tag": "new"}
    late = overtaken(graph, lambda other: other.mutate(ADD_EDGE, edge))
    with pytest.raises(ReadSetConflictError) as caught:
        late.mutate(DELETE_PERSON, {"name": "bob"})
    assert caught.value.member == "edge:Knows"
    assert caught.value.exit_code == 75
    assert edge_tags(graph) == ["new"]
    check_every_snapshot_is_closed(root)
    assert late.mutate(DELETE_PERSON, {"name": "bob"}).affected_edges == 1


def test_a_delete_that_misses_one_of_two_edges_is_a_conflict(graph: Graph, root: Path) -> None:
    graph.mutate(ADD_EDGE, {"from": "ann", "to": "bob", "tag": "old"})
    edge = {"from": "bob", "to": "ann", "tag": "new"}
    late = overtaken(graph, lambda other: other.mutate(ADD_EDGE, edge))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        late.mutate(DELETE_PERSON, {"name": "bob"})
    assert caught.value.table_key == "edge:Knows"
    assert edge_tags(graph) == ["new", "old"]
    assert late.mutate(DELETE_PERSON, {"name": "bob"}).affected_edges == 2
    check_every_snapshot_is_closed(root)


def test_an_overtaken_insert_is_prepared_again_and_written_once(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    receipt = late.mutate(ADD_NOTE, {"text": "second"}).commit
    assert receipt is not None
    texts = [row["text"] for row in table_rows(graph, graph.snapshot(), "node:Note", ["text"])]
    assert texts == ["first", "second"]
    newest, before = graph.commits()[:2]
    assert newest.commit_id == receipt.commit_id
    assert newest.parent_id == before.commit_id


def test_an_overtaken_update_is_a_conflict_and_changes_nothing(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(SET_VISITS, {"name": "ann", "visits": 1}))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        late.mutate(SET_VISITS, {"name": "bob", "visits": 2})
    pin = graph.snapshot().pins["node:Person"]
    assert (caught.value.expected, caught.value.actual) == (pin.version - 1, pin.version)
    rows = table_rows(graph, graph.snapshot(), "node:Person", ["name", "visits"])
    assert {row["name"]: row["visits"] for row in rows} == {"ann": 1, "bob": 0}
    assert late.mutate(SET_VISITS, {"name": "bob", "visits": 2}).commit is not None


def test_an_overtaken_insert_with_a_condition_is_not_repeated(graph: Graph) -> None:
    seen = graph.snapshot().commit_id
    late = overtaken(graph, lambda other: other.mutate(ADD_PERSON, {"name": "cid"}))
    with pytest.raises(PreconditionFailedError) as caught:
        late.mutate(ADD_NOTE, {"text": "late"}, if_commit=seen)
    assert caught.value.expected == seen
    assert caught.value.actual == graph.snapshot().commit_id
    assert table_rows(graph, graph.snapshot(), "node:Note", ["text"]) == []


def test_a_write_that_was_overtaken_on_another_table_goes_through(graph: Graph) -> None:
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    receipt = late.mutate(SET_VISITS, {"name": "ann", "visits": 7}).commit
    assert receipt is not None
    assert receipt.parent_id == graph.commits()[1].commit_id


def test_a_first_write_on_a_branch_that_another_writer_forked_meanwhile_joins_the_fork(graph: Graph) -> None:
    graph.mutate(ADD_NOTE, {"text": "base"})
    graph.create_branch("new")
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}, branch="new"))
    late.mutate(ADD_NOTE, {"text": "second"}, branch="new")
    rows = table_rows(graph, graph.snapshot("new"), "node:Note", ["text"])
    assert [row["text"] for row in rows] == ["base", "first", "second"]
    assert graph.pending_recoveries() == []
    assert graph.recoveries() == []


def test_a_writer_that_waits_too_long_for_the_lock_has_done_nothing(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "20")
    before = graph.snapshot()
    with FileCommitLock(root).held(1), Graph.open(root) as late, pytest.raises(RetryableCommitConflictError) as caught:
        late.mutate(ADD_NOTE, {"text": "late"})
    assert caught.value.exit_code == 75
    assert graph.snapshot() == before
    assert list((root / "__recovery").glob("*")) == []
    with Graph.open(root) as late:
        assert late.mutate(ADD_NOTE, {"text": "late"}).commit is not None


def test_readers_do_not_wait_for_the_commit_lock(graph: Graph, root: Path) -> None:
    with FileCommitLock(root).held(1), Graph.open(root, read_only=True) as reader:
        assert reader.snapshot() == graph.snapshot()
        assert len(reader.commits()) == 3
        assert reader.branches() == ["main"]


# ---- Mutations of one branch take turns inside a process: nothing is prepared in vain, and nobody waits for long


ADD = "query add($name: String) { insert Person { name: $name } }"


def test_threads_that_mutate_one_branch_prepare_every_mutation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = []
    begin = Transaction.begin

    def counted(self: Transaction) -> object:
        prepared.append(1)
        return begin(self)

    monkeypatch.setattr(Transaction, "begin", counted)
    with Graph.init(tmp_path / "graph", "node Person { name: String @key }") as graph:
        # However slow the machine is: nobody goes on without a turn here.
        graph._core.queue = BranchQueue(longest_wait_s=120)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: graph.mutate(ADD, {"name": f"p{number}"}), range(16)))
        assert graph.snapshot().pins["node:Person"].row_count == 16
    assert len(prepared) == 16


def test_branches_do_not_wait_for_each_other() -> None:
    turns = BranchQueue(longest_wait_s=120)
    with turns.turn("main"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: enter_and_leave(turns, "draft")).result(60)


def test_whoever_waited_long_enough_goes_on_without_a_turn() -> None:
    turns = BranchQueue(longest_wait_s=0.001)
    with turns.turn("main"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: enter_and_leave(turns, "main")).result(60)
    # The one that had no turn has not given the turn of another away.
    assert turns._turns == {}


def test_a_turn_is_given_on_after_a_failure() -> None:
    turns = BranchQueue(longest_wait_s=120)
    may_fail = Event()

    def fail() -> None:
        with turns.turn("main"):
            may_fail.wait(60)
            raise ValueError("no mutation")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fail)
        second = pool.submit(lambda: enter_and_leave(turns, "main"))
        may_fail.set()
        assert isinstance(first.exception(60), ValueError)
        assert second.result(60)
    assert turns._turns == {}


def enter_and_leave(turns: BranchQueue, branch: str) -> bool:
    with turns.turn(branch):
        return True
