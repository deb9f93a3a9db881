"""Merges, writers and branches at once: nothing lost, nothing doubled, every commit follows from its parents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from faults.races.conftest import WorkerProcess
from omnigraph.commit import attempt, schema_change
from omnigraph.commit.snapshot import snapshot_at
from omnigraph.core.failpoints import Failpoint
from omnigraph.errors import (
    BranchesExistError,
    BranchNotFoundError,
    CompilerError,
    ConflictError,
    MergeConflictsError,
    ReadSetConflictError,
    SchemaViolationsError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.lease import Tenure
from omnigraph.storage.locks import CommitLock
from support.races.checks import acknowledged, check_graph, failed, lost
from support.races.jobs import (
    ADD_NOTE,
    ADD_PERSON,
    DELETE_PERSON,
    ENGLISH,
    SCHEMA,
    SET_VISITS,
    WITH_LANGUAGE,
    Outcome,
    table_rows,
    with_lock,
)
from support.races.jobs import overtaken as overtaken_of_schema_races
from support.races.merge_jobs import JOBS, run_job

WORKER = Path(__file__).parents[2] / "support" / "races" / "merge_worker.py"
PARTICIPANTS = 4
#: The name of a job and its arguments.
Part = tuple[str, dict[str, Any]]
Play = Callable[[str, str, int, dict[str, Any]], list[Outcome]]


class MergeWorker(WorkerProcess):
    """One process that runs the jobs of these races."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMNIGRAPH_DURABILITY": "process"},
        )


@pytest.fixture(scope="module")
def workers() -> Iterator[list[MergeWorker]]:
    """Processes are started once: importing Lance takes longer than a race."""
    started = [MergeWorker() for _ in range(PARTICIPANTS)]
    for worker in started:
        worker.wait_ready()
    yield started
    for worker in started:
        worker.stop()


class Stage:
    """Where different jobs begin together."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def run(self, root: Path, *parts: Part) -> list[list[Outcome]]:
        """What each participant reports."""
        barrier = Barrier(len(parts))

        def one(who: int) -> list[Outcome]:
            name, arguments = parts[who]
            barrier.wait()
            return self._play(name, str(root), who, arguments)

        with ThreadPoolExecutor(len(parts)) as pool:
            return list(pool.map(one, range(len(parts))))


def shared_graph() -> Play:
    """Threads that share one graph object."""
    graphs: dict[str, Graph] = {}

    def play(name: str, root: str, who: int, arguments: dict[str, Any]) -> list[Outcome]:
        return JOBS[name](graphs.setdefault(root, Graph.open(root)), who, **arguments)

    return play


@pytest.fixture(params=["threads on one graph", "threads with a graph each", "processes"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """All three kinds of concurrency."""
    if request.param == "threads on one graph":
        return Stage(shared_graph())
    if request.param == "threads with a graph each":
        return Stage(run_job)
    workers: list[MergeWorker] = request.getfixturevalue("workers")
    return Stage(lambda name, root, who, arguments: workers[who].run(name, root, who, arguments))


# ---- checks


def notes(graph: Graph, branch: str = "main") -> list[str]:
    rows = table_rows(graph, graph.snapshot(branch), "node:Note", ["text"])
    return sorted(row["text"] for row in rows)


def notes_on(root: Path, branch: str = "main") -> list[str]:
    with Graph.open(root, read_only=True) as graph:
        return notes(graph, branch)


def check_every_commit_adds_up(root: Path) -> None:
    """Of a history of inserts: a write adds one note to its parent, a merge has what both of its parents have.

    Commits of deleted branches cannot be read any more, and are left out.
    """
    with Graph.open(root, read_only=True) as graph:
        history = graph._core.environment.manifest.history()
        states = {
            commit_id: sorted(
                row["text"] for row in table_rows(graph, snapshot_at(history, commit_id), "node:Note", ["text"])
            )
            for commit_id in {commit.commit_id for branch in graph.branches() for commit in graph.commits(branch)}
        }
        for commit_id, here in states.items():
            commit = history.commits[commit_id]
            assert len(here) == len(set(here)), "a note is there twice"
            if commit.parent_id is None:
                assert here == []
                continue
            before = set(states[commit.parent_id])
            if commit.merged_parent_id is None:
                assert set(here) > before
                assert len(here) == len(before) + 1
            else:
                merged = states.get(commit.merged_parent_id)
                assert set(here) >= before
                assert merged is None or set(here) == {*before, *merged}


def prepared(root: Path, *branches: str) -> list[str]:
    """A note of its own on every branch, all of them made at main; the commits."""
    made = []
    with Graph.open(root) as graph:
        for name in branches:
            graph.create_branch(name)
        for name in branches:
            commit = graph.mutate(ADD_NOTE, {"text": f"of {name}"}, branch=name).commit
            assert commit is not None
            made.append(commit.commit_id)
    return made


def written(who: int, count: int) -> list[str]:
    return [f"{who}-{number}" for number in range(count)]


# ---- merges and writers


def test_a_merge_takes_a_state_of_the_source_while_others_write_to_it(root: Path, stage: Stage):
    earlier = prepared(root, "work")
    writer: Part = ("insert_notes", {"count": 4, "branch": "work"})
    merger: Part = ("merge_often", {"source": "work", "count": 4})
    reports = stage.run(root, writer, writer, merger)
    assert failed(reports) == []
    assert lost(reports) == [], "a source that moves does not matter to a merge"
    last = run_job("merge", str(root), 9, {"source": "work"})
    check_graph(root, acknowledged([*reports, last]), earlier)
    check_every_commit_adds_up(root)
    everything = sorted(["of work", *written(0, 4), *written(1, 4)])
    assert notes_on(root) == notes_on(root, "work") == everything


def test_a_merge_is_planned_again_while_others_write_to_the_target(root: Path, stage: Stage):
    earlier = prepared(root, "one", "two")
    writer: Part = ("insert_notes", {"count": 4})
    reports = stage.run(root, writer, writer, ("merge", {"source": "one"}), ("merge", {"source": "two"}))
    assert failed(reports) == []
    assert lost(reports) == [], "a merge without conflicts is planned again, whoever wins"
    receipts = acknowledged(reports)
    assert len(receipts) == 4 + 4 + 2
    check_graph(root, receipts, earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root) == sorted(["of one", "of two", *written(0, 4), *written(1, 4)])


def test_first_writes_and_a_merge_share_the_forks_of_a_new_branch(root: Path, stage: Stage):
    earlier = prepared(root, "work")
    with Graph.open(root) as graph:
        graph.create_branch("fresh")
    writer: Part = ("insert_notes", {"count": 3, "branch": "fresh"})
    reports = stage.run(root, writer, ("merge", {"source": "work", "into": "fresh"}), writer)
    assert failed(reports) == []
    assert lost(reports) == []
    check_graph(root, acknowledged(reports), earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root, "fresh") == sorted(["of work", *written(0, 3), *written(2, 3)])
    assert notes_on(root) == []


def test_merges_of_different_branches_into_one_all_arrive(root: Path, stage: Stage):
    names = [f"b{number}" for number in range(PARTICIPANTS)]
    earlier = prepared(root, *names)
    reports = stage.run(root, *(("merge", {"source": name}) for name in names))
    assert failed(reports) == []
    assert lost(reports) == []
    receipts = acknowledged(reports)
    assert len(receipts) == len(names)
    assert sorted(receipt["outcome"] for receipt in receipts) == ["fast_forward"] + ["merged"] * 3
    check_graph(root, receipts, earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root) == sorted(f"of {name}" for name in names)


def test_of_several_merges_of_one_branch_one_has_an_effect(root: Path, stage: Stage):
    earlier = prepared(root, "work")
    reports = stage.run(root, *([("merge", {"source": "work"})] * PARTICIPANTS))
    assert failed(reports) == []
    outcomes = sorted(outcome["outcome"] for report in reports for outcome in report)
    assert outcomes == ["already_up_to_date"] * (PARTICIPANTS - 1) + ["fast_forward"]
    check_graph(root, acknowledged(reports), earlier)
    assert notes_on(root) == ["of work"]


def test_branches_that_are_merged_into_each_other_end_equal(root: Path, stage: Stage):
    earlier = prepared(root, "one", "two")
    reports = stage.run(
        root,
        ("merge_often", {"source": "one", "into": "two", "count": 2}),
        ("merge_often", {"source": "two", "into": "one", "count": 2}),
    )
    assert failed(reports) == []
    assert lost(reports) == []
    check_graph(root, acknowledged(reports), earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root, "one") == notes_on(root, "two") == ["of one", "of two"]


# ---- merges and deletions


def test_a_branch_that_is_deleted_while_it_is_merged_is_merged_whole_or_not_at_all(root: Path, stage: Stage):
    names = ["a", "b", "c"]
    prepared(root, *names)
    merged = []
    for name in names:
        (outcome,), (deletion,) = stage.run(root, ("merge", {"source": name}), ("delete", {"name": name}))
        assert deletion == {"deleted": name}
        assert outcome.get("commit") or outcome["error"] == "BranchNotFoundError", outcome
        merged += [f"of {name}"] if outcome.get("commit") else []
        assert notes_on(root) == merged
    with Graph.open(root) as graph:
        assert graph.branches() == ["main"]
        assert graph.pending_recoveries() == []
        assert graph.mutate(ADD_NOTE, {"text": "next"}).commit is not None
        line = [commit.commit_id for commit in graph.commits()]
    assert len(line) == len(set(line)) == 1 + len(merged) + 1
    check_every_commit_adds_up(root)


def test_a_target_that_is_deleted_while_something_is_merged_into_it_leaves_the_rest_alone(root: Path, stage: Stage):
    prepared(root, "source", "target")
    (outcome,), (deletion,) = stage.run(
        root, ("merge", {"source": "source", "into": "target"}), ("delete", {"name": "target"})
    )
    assert deletion == {"deleted": "target"}
    assert outcome.get("commit") or outcome["error"] == "BranchNotFoundError", outcome
    with Graph.open(root) as graph:
        assert graph.branches() == ["main", "source"]
        assert graph.pending_recoveries() == []
        assert notes(graph, "source") == ["of source"]
        graph.create_branch("target")
        assert graph.merge("source", "target").outcome == "fast_forward"
        assert notes(graph, "target") == ["of source"]


def test_of_several_merges_that_delete_their_source_one_does_it(root: Path, stage: Stage):
    prepared(root, "work")
    part: Part = ("merge", {"source": "work", "delete_branch": True})
    reports = stage.run(root, part, part, part)
    outcomes = [outcome for report in reports for outcome in report]
    assert len([outcome for outcome in outcomes if outcome.get("commit")]) == 1
    assert len([outcome for outcome in outcomes if outcome.get("branch_deleted")]) == 1
    assert {item["error"] for item in outcomes if "error" in item} <= {"BranchNotFoundError"}
    assert notes_on(root) == ["of work"]
    with Graph.open(root) as graph:
        assert graph.branches() == ["main"]


# ---- branches


def test_one_name_is_created_once_and_deleted_once(root: Path, stage: Stage):
    creators: list[Part] = [("create", {"name": "same"})] * PARTICIPANTS
    reports = stage.run(root, *creators)
    assert len([outcome for (outcome,) in reports if "created" in outcome]) == 1
    assert all(outcome.get("refused") for (outcome,) in reports if "error" in outcome)
    check_graph(root, [])
    deleters: list[Part] = [("delete", {"name": "same"})] * PARTICIPANTS
    reports = stage.run(root, *deleters)
    assert len([outcome for (outcome,) in reports if "deleted" in outcome]) == 1
    errors = {outcome["error"] for (outcome,) in reports if "error" in outcome}
    assert errors == {"BranchNotFoundError"}


def test_a_branch_and_its_base_are_not_made_and_deleted_at_once(root: Path, stage: Stage):
    prepared(root, "base")
    (made,), (gone,) = stage.run(root, ("create", {"name": "child", "base": "base"}), ("delete", {"name": "base"}))
    with Graph.open(root) as graph:
        if "created" in made:
            assert gone["refused"]
            assert graph.branches() == ["base", "child", "main"]
            assert notes(graph, "child") == ["of base"]
        else:
            assert made["error"] == "BranchNotFoundError"
            assert gone == {"deleted": "base"}
            assert graph.branches() == ["main"]


# ---- fixed interleavings


class OvertakenLock:
    """A commit lock whose takers are overtaken: somebody else acts just before they enter."""

    def __init__(self, inner: CommitLock, overtake: Callable[[], object], times: int) -> None:
        self._inner = inner
        self._overtake = overtake
        self._left = times
        #: How often it was taken.
        self.taken = 0

    @property
    def can_be_lost(self) -> bool:
        return self._inner.can_be_lost

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[Tenure]:
        self.taken += 1
        if self._left:
            self._left -= 1
            self._overtake()
        with self._inner.held(timeout_s) as tenure:
            yield tenure


@pytest.fixture
def graph(root: Path) -> Iterator[Graph]:
    """One note on `work` and one person on main, from before `work` began."""
    with Graph.open(root) as opened:
        opened.mutate(ADD_PERSON, {"name": "hub"})
        opened.create_branch("work")
        opened.mutate(ADD_NOTE, {"text": "of work"}, branch="work")
        yield opened


def overtaken(graph: Graph, overtake: Callable[[Graph], object], times: int = 1) -> tuple[Graph, OvertakenLock]:
    """A second view of the graph, whose writes are overtaken by `overtake`."""
    other = Graph.open(graph.uri)
    lock = OvertakenLock(graph._core.environment.lock, lambda: overtake(other), times)
    return with_lock(graph, lock), lock


def leftovers(graph: Graph) -> int:
    """Data files of notes on main that nothing refers to."""
    pin = graph.snapshot().pins["node:Note"]
    folder = Path(graph.uri) / pin.location / "data"
    return len(list(folder.glob("*.lance"))) - pin.row_count


def test_an_overtaken_merge_is_planned_again_on_the_new_target(graph: Graph):
    late, _ = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    result = late.merge("work")
    assert result.outcome == "merged"
    assert result.commit is not None
    assert result.commit.parent_id == graph.commits()[1].commit_id
    assert notes(graph) == ["first", "of work"]
    assert leftovers(graph) == 0, "what was staged in vain is gone"


def test_a_merge_that_is_overtaken_again_and_again_wins_in_the_end(graph: Graph):
    numbers = iter(range(100))
    late, lock = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": f"n{next(numbers)}"}), times=100)
    assert late.merge("work").commit is not None
    assert lock.taken <= 4
    assert "of work" in notes(graph)
    assert leftovers(graph) == 0


def test_a_merge_does_not_care_whether_its_source_moved(graph: Graph):
    seen = graph.snapshot("work").commit_id
    late, lock = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "more"}, branch="work"))
    commit = late.merge("work").commit
    assert commit is not None
    assert commit.merged_parent_id == seen
    assert lock.taken == 1
    assert notes(graph) == ["of work"]
    assert late.merge("work").outcome == "merged"
    assert notes(graph) == ["more", "of work"]


def test_a_merge_whose_target_got_a_conflict_meanwhile_is_refused_and_leaves_nothing(graph: Graph):
    graph.mutate(SET_VISITS, {"name": "hub", "visits": 1}, branch="work")
    late, _ = overtaken(graph, lambda other: other.mutate(SET_VISITS, {"name": "hub", "visits": 2}))
    with pytest.raises(MergeConflictsError) as caught:
        late.merge("work")
    assert [conflict.entity_id for conflict in caught.value.conflicts] == ["hub"]
    assert graph.pending_recoveries() == []
    assert notes(graph) == []
    assert leftovers(graph) == 0
    assert late.merge("work", strategy="theirs").commit is not None


def test_a_merge_whose_source_is_deleted_before_its_commit_goes_through(graph: Graph):
    seen = graph.snapshot("work").commit_id
    late, _ = overtaken(graph, lambda other: other.delete_branch("work"))
    commit = late.merge("work").commit
    assert commit is not None
    assert commit.merged_parent_id == seen
    assert graph.branches() == ["main"]
    assert notes(graph) == ["of work"]


def test_a_merge_whose_source_is_made_again_meanwhile_takes_what_it_saw(graph: Graph):
    def again(other: Graph) -> None:
        other.delete_branch("work")
        other.create_branch("work")
        other.mutate(ADD_NOTE, {"text": "of the other"}, branch="work")

    late, _ = overtaken(graph, again)
    assert late.merge("work").commit is not None
    assert notes(graph) == ["of work"]
    assert late.merge("work").commit is not None
    assert notes(graph) == ["of the other", "of work"]


def test_a_merge_whose_target_is_deleted_before_its_commit_does_nothing(graph: Graph):
    graph.create_branch("target")
    graph.mutate(ADD_NOTE, {"text": "of target"}, branch="target")
    late, _ = overtaken(graph, lambda other: other.delete_branch("target"))
    before = graph.snapshot()
    with pytest.raises(BranchNotFoundError):
        late.merge("work", "target")
    assert graph.snapshot().commit_id == before.commit_id
    assert graph.pending_recoveries() == []


def test_a_merge_whose_target_is_made_again_meanwhile_goes_into_the_new_one(graph: Graph):
    graph.create_branch("target")
    graph.mutate(ADD_NOTE, {"text": "of target"}, branch="target")

    def again(other: Graph) -> None:
        other.delete_branch("target")
        other.create_branch("target")

    late, _ = overtaken(graph, again)
    assert late.merge("work", "target").outcome == "fast_forward"
    assert notes(graph, "target") == ["of work"]


def test_an_overtaken_merge_of_something_merged_meanwhile_is_up_to_date(graph: Graph):
    late, _ = overtaken(graph, lambda other: other.merge("work"))
    result = late.merge("work")
    assert (result.outcome, result.commit) == ("already_up_to_date", None)
    assert notes(graph) == ["of work"]
    assert leftovers(graph) == 0


# ---- Schema changes beside writers, readers, branches, other changes and maintenance: one order, nothing lost or mixed


READ_OLD = "query all() { match { $n: Note } return { $n.text as text } }"
READ_NEW = "query all() { match { $n: Note } return { $n.text as text, $n.lang as lang } }"
RENAMED = SCHEMA.replace("node Note {", 'node Remark @rename_from("Note") {')
WITHOUT_VISITS = SCHEMA.replace("  visits: I64? }", " }")


def change(graph_of_schema_races: Graph, schema: str = WITH_LANGUAGE, **options: Any) -> Any:
    if schema == WITH_LANGUAGE:
        options.setdefault("backfill", ENGLISH)
    return graph_of_schema_races.apply_schema(schema, engine="local", **options)


def notes_of_schema_races(graph_of_schema_races: Graph) -> dict[str, str | None]:
    """Every note with its language; each must be there once."""
    rows = graph_of_schema_races.query(READ_NEW).to_pylist()
    found = {row["text"]: row["lang"] for row in rows}
    assert len(found) == len(rows)
    return found


def check_heads_and_files(root: Path) -> None:
    """Nothing is left of a change that did not happen, or of one that did."""
    assert list(root.glob("*.staging")) == []
    assert list((root / "__recovery").glob("*")) == []
    with Graph.open(root, read_only=True) as graph_of_schema_races:
        known = {pin.location for pin in graph_of_schema_races.snapshot().pins.values()}
        found = {f"{kind}/{path.name}" for kind in ("nodes", "edges") for path in root.glob(f"{kind}/*")}
    assert found == known


@pytest.fixture
def graph_of_schema_races(root: Path) -> Iterator[Graph]:
    with Graph.open(root) as opened:
        for text in ("one", "two"):
            opened.mutate(ADD_NOTE, {"text": text})
        opened.mutate(ADD_PERSON, {"name": "ann"})
        yield opened


# ---- a change that is overtaken


def test_a_change_that_is_overtaken_by_an_insert_fills_the_new_row_too(graph_of_schema_races: Graph) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: other.mutate(ADD_NOTE, {"text": "three"}))
    assert change(late).applied
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en", "three": "en"}
    graph_of_schema_races.mutate(ADD_NOTE, {"text": "four"})
    assert notes_of_schema_races(graph_of_schema_races)["four"] is None
    assert graph_of_schema_races.recoveries() == []


def test_a_change_that_is_overtaken_by_a_delete_does_not_bring_the_row_back(graph_of_schema_races: Graph) -> None:
    delete = 'query drop() { delete Note where text = "one" }'
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: other.mutate(delete))
    assert change(late).applied
    assert notes_of_schema_races(graph_of_schema_races) == {"two": "en"}


def test_a_rule_is_held_against_rows_that_came_meanwhile(graph_of_schema_races: Graph, root: Path) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: other.mutate(ADD_NOTE, {"text": "one"}))
    before = graph_of_schema_races.schema
    with pytest.raises(SchemaViolationsError):
        change(late, SCHEMA.replace("{ text: String }", "{ text: String @unique }"))
    assert graph_of_schema_races.schema == before
    check_heads_and_files(root)


def test_the_same_change_made_by_somebody_else_meanwhile_is_a_no_op(graph_of_schema_races: Graph) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    result = change(late)
    assert (result.applied, result.commit) == (False, None)
    assert [commit.kind for commit in graph_of_schema_races.commits()].count("schema_apply") == 1
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en"}


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_a_change_never_takes_back_what_another_one_brought_meanwhile(
    graph_of_schema_races: Graph, allow_data_loss: bool
) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    other = SCHEMA.replace("{ text: String }", "{ text: String  size: I32? }")
    with pytest.raises(ConflictError, match="the schema was changed meanwhile"):
        change(late, other, allow_data_loss=allow_data_loss)
    assert graph_of_schema_races.schema == WITH_LANGUAGE
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en"}


def test_a_change_that_is_overtaken_by_a_new_branch_is_refused(graph_of_schema_races: Graph, root: Path) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: other.create_branch("dev"))
    with pytest.raises(BranchesExistError, match="dev"):
        change(late)
    assert graph_of_schema_races.schema == SCHEMA
    check_heads_and_files(root)
    graph_of_schema_races.delete_branch("dev")
    assert change(late).applied


@pytest.mark.parametrize("maintain", ["ensure_indices", "optimize"])
def test_a_change_that_is_overtaken_by_maintenance_is_prepared_again(
    graph_of_schema_races: Graph, maintain: str
) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: getattr(other, maintain)())
    assert change(late, RENAMED).applied
    query = "query all() { match { $r: Remark } return { $r.text as text } order { $r.text asc } }"
    assert graph_of_schema_races.query(query).to_pylist() == [{"text": "one"}, {"text": "two"}]


# ---- overtaken by a change


def test_an_insert_that_was_prepared_under_the_old_schema_is_prepared_again(graph_of_schema_races: Graph) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    assert late.mutate(ADD_NOTE, {"text": "three"}).commit is not None
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en", "three": None}


def test_an_insert_into_a_type_that_was_renamed_meanwhile_is_told_so(graph_of_schema_races: Graph) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: change(other, RENAMED))
    with pytest.raises((CompilerError, ReadSetConflictError)):
        late.mutate(ADD_NOTE, {"text": "three"})
    assert graph_of_schema_races.snapshot().pins["node:Remark"].row_count == 2
    assert graph_of_schema_races.recoveries() == []


@pytest.mark.parametrize(
    ("query", "parameters"),
    [(SET_VISITS, {"name": "ann", "visits": 7}), (DELETE_PERSON, {"name": "ann"})],
    ids=["update", "delete"],
)
def test_an_update_or_delete_that_was_prepared_under_the_old_schema_is_a_conflict(
    graph_of_schema_races: Graph, query: str, parameters: dict[str, Any]
) -> None:
    # Not even the table of the change: nothing is written under a schema that does not count any more.
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    with pytest.raises(ReadSetConflictError, match="the schema"):
        late.mutate(query, parameters)
    rows = graph_of_schema_races.query("query all() { match { $p: Person } return { $p.visits as visits } }")
    assert rows.to_pylist() == [{"visits": 0}]
    assert late.mutate(query, parameters).commit is not None


def test_a_load_that_was_prepared_under_the_old_schema_fits_the_new_one_or_is_refused(
    graph_of_schema_races: Graph, tmp_path: Path
) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(json.dumps({"type": "Note", "data": {"text": "three"}}) + "\n")
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    with pytest.raises(ReadSetConflictError, match="the schema"):
        late.load(file, mode="append", engine="local")
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en"}
    late.load(file, mode="append", engine="local")
    assert notes_of_schema_races(graph_of_schema_races) == {"one": "en", "two": "en", "three": None}


def test_a_branch_that_is_made_while_the_schema_changes_begins_after_the_change(
    graph_of_schema_races: Graph, root: Path
) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, change)
    late.create_branch("dev")
    head, branch = graph_of_schema_races.snapshot("main"), graph_of_schema_races.snapshot("dev")
    assert branch.schema_hash == head.schema_hash
    assert branch.pins == head.pins
    check_heads_and_files(root)


@pytest.mark.parametrize("maintain", ["ensure_indices", "optimize"])
def test_maintenance_that_was_prepared_under_the_old_schema_does_no_harm(
    graph_of_schema_races: Graph, root: Path, maintain: str
) -> None:
    late = overtaken_of_schema_races(graph_of_schema_races, lambda other: change(other, RENAMED))
    with suppress(ConflictError):
        getattr(late, maintain)()
    assert graph_of_schema_races.snapshot().pins["node:Remark"].row_count == 2
    check_heads_and_files(root)
    getattr(late, maintain)()


# ---- readers


def test_a_read_that_began_before_the_change_ends_as_it_began(graph_of_schema_races: Graph) -> None:
    result = graph_of_schema_races.query(READ_OLD)
    persons = graph_of_schema_races.query("query all() { match { $p: Person } return { $p.visits as visits } }")
    with Graph.open(graph_of_schema_races.uri) as other:
        change(other, RENAMED.replace("visits: I64? }", "calls: I32? }"))
    assert sorted(row["text"] for row in result.to_pylist()) == ["one", "two"]
    assert persons.to_pylist() == [{"visits": 0}]


def test_a_reader_with_a_cached_schema_sees_the_new_one_at_once_and_the_old_one_at_its_commits(
    graph_of_schema_races: Graph,
) -> None:
    with Graph.open(graph_of_schema_races.uri, read_only=True) as reader:
        before = reader.snapshot().commit_id
        assert len(reader.query(READ_OLD).to_pylist()) == 2
        change(graph_of_schema_races, WITHOUT_VISITS)
        assert reader.schema == WITHOUT_VISITS
        visits = "query all() { match { $p: Person } return { $p.visits as visits } }"
        with pytest.raises(CompilerError):
            reader.query(visits)
        assert reader.query(visits, snapshot=before).to_pylist() == [{"visits": 0}]


# ---- a change that loses its lock


class _LostLock:
    """A lock that keeps no other writer out."""

    can_be_lost = True

    @contextmanager
    def held(self, _timeout_s: float) -> Iterator[Tenure]:
        yield Tenure()


@pytest.mark.parametrize("place", [Failpoint.BEFORE_NEW_TABLE, Failpoint.BEFORE_PUBLISH])
def test_a_change_that_lost_its_lock_destroys_nothing_of_its_successor(
    graph_of_schema_races: Graph, root: Path, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    wanted = f"{SCHEMA}\nnode Place {{ name: String @key }}"
    with Graph.open(root) as successor:
        for opened in (graph_of_schema_races, successor):
            lost = replace(opened._core.environment, lock=_LostLock())
            monkeypatch.setattr(opened, "_environment", lost)
        stuck = []

        def reach(reached: Failpoint) -> None:
            if reached is place and not stuck:
                stuck.append(place)
                assert change(successor, wanted).applied
                successor.mutate('query q() { insert Place { name: "oslo" } }')

        for module in (schema_change, attempt):
            monkeypatch.setattr(module, "reach", reach)
        assert not change(graph_of_schema_races, wanted).applied
    assert stuck
    with Graph.open(root, read_only=True) as reader:
        rows = reader.query("query q() { match { $p: Place } return { $p.name as name } }")
        assert rows.to_pylist() == [{"name": "oslo"}]
