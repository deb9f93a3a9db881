"""Merges, writers and branches at once: nothing lost, nothing doubled, every commit follows from its parents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.races.conftest import ALL_KINDS, Crew, Part
from omnigraph.commit.snapshot import snapshot_at
from omnigraph.errors import BranchNotFoundError, MergeConflictsError
from omnigraph.graph.graph import Graph
from support.races.checks import acknowledged, check_all_acknowledged, check_graph, failed
from support.races.jobs import ADD_NOTE, ADD_PERSON, SET_VISITS, overtaken, run_job, table_rows

PARTICIPANTS = 4


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


def test_a_merge_takes_a_state_of_the_source_while_others_write_to_it(root: Path, crew: Crew):
    earlier = prepared(root, "work")
    writer: Part = ("insert_notes", {"count": 4, "branch": "work"})
    merger: Part = ("merge", {"source": "work", "count": 4})
    reports = crew.run_parts(root, writer, writer, merger)
    check_all_acknowledged(reports)
    last = run_job("merge", str(root), 9, {"source": "work"})
    check_graph(root, acknowledged([*reports, last]), earlier)
    check_every_commit_adds_up(root)
    everything = sorted(["of work", *written(0, 4), *written(1, 4)])
    assert notes_on(root) == notes_on(root, "work") == everything


@pytest.mark.parametrize("crew", ALL_KINDS, indirect=True)
def test_a_merge_is_planned_again_while_others_write_to_the_target(root: Path, crew: Crew):
    earlier = prepared(root, "one", "two")
    writer: Part = ("insert_notes", {"count": 4})
    reports = crew.run_parts(root, writer, writer, ("merge", {"source": "one"}), ("merge", {"source": "two"}))
    check_all_acknowledged(reports)
    receipts = acknowledged(reports)
    assert len(receipts) == 4 + 4 + 2
    check_graph(root, receipts, earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root) == sorted(["of one", "of two", *written(0, 4), *written(1, 4)])


def test_first_writes_and_a_merge_share_the_forks_of_a_new_branch(root: Path, crew: Crew):
    earlier = prepared(root, "work")
    with Graph.open(root) as graph:
        graph.create_branch("fresh")
    writer: Part = ("insert_notes", {"count": 3, "branch": "fresh"})
    reports = crew.run_parts(root, writer, ("merge", {"source": "work", "into": "fresh"}), writer)
    check_all_acknowledged(reports)
    check_graph(root, acknowledged(reports), earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root, "fresh") == sorted(["of work", *written(0, 3), *written(2, 3)])
    assert notes_on(root) == []


def test_merges_of_different_branches_into_one_all_arrive(root: Path, crew: Crew):
    names = [f"b{number}" for number in range(PARTICIPANTS)]
    earlier = prepared(root, *names)
    reports = crew.run_parts(root, *(("merge", {"source": name}) for name in names))
    check_all_acknowledged(reports)
    receipts = acknowledged(reports)
    assert len(receipts) == len(names)
    assert sorted(receipt["outcome"] for receipt in receipts) == ["fast_forward"] + ["merged"] * 3
    check_graph(root, receipts, earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root) == sorted(f"of {name}" for name in names)


def test_of_several_merges_of_one_branch_one_has_an_effect(root: Path, crew: Crew):
    earlier = prepared(root, "work")
    reports = crew.run_parts(root, *([("merge", {"source": "work"})] * PARTICIPANTS))
    assert failed(reports) == []
    outcomes = sorted(outcome["outcome"] for report in reports for outcome in report)
    assert outcomes == ["already_up_to_date"] * (PARTICIPANTS - 1) + ["fast_forward"]
    check_graph(root, acknowledged(reports), earlier)
    assert notes_on(root) == ["of work"]


def test_branches_that_are_merged_into_each_other_end_equal(root: Path, crew: Crew):
    earlier = prepared(root, "one", "two")
    reports = crew.run_parts(
        root,
        ("merge", {"source": "one", "into": "two", "count": 2}),
        ("merge", {"source": "two", "into": "one", "count": 2}),
    )
    check_all_acknowledged(reports)
    check_graph(root, acknowledged(reports), earlier)
    check_every_commit_adds_up(root)
    assert notes_on(root, "one") == notes_on(root, "two") == ["of one", "of two"]


# ---- merges and deletions


def test_a_branch_that_is_deleted_while_it_is_merged_is_merged_whole_or_not_at_all(root: Path, crew: Crew):
    names = ["a", "b", "c"]
    prepared(root, *names)
    merged = []
    for name in names:
        (outcome,), (deletion,) = crew.run_parts(root, ("merge", {"source": name}), ("delete_branch", {"name": name}))
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


def test_a_target_that_is_deleted_while_something_is_merged_into_it_leaves_the_rest_alone(root: Path, crew: Crew):
    prepared(root, "source", "target")
    (outcome,), (deletion,) = crew.run_parts(
        root, ("merge", {"source": "source", "into": "target"}), ("delete_branch", {"name": "target"})
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


def test_of_several_merges_that_delete_their_source_one_does_it(root: Path, crew: Crew):
    prepared(root, "work")
    part: Part = ("merge", {"source": "work", "delete_branch": True})
    reports = crew.run_parts(root, part, part, part)
    outcomes = [outcome for report in reports for outcome in report]
    assert len([outcome for outcome in outcomes if outcome.get("commit")]) == 1
    assert len([outcome for outcome in outcomes if outcome.get("branch_deleted")]) == 1
    assert {item["error"] for item in outcomes if "error" in item} <= {"BranchNotFoundError"}
    assert notes_on(root) == ["of work"]
    with Graph.open(root) as graph:
        assert graph.branches() == ["main"]


# ---- branches


def test_one_name_is_created_once_and_deleted_once(root: Path, crew: Crew):
    creators: list[Part] = [("create_branch", {"name": "same"})] * PARTICIPANTS
    reports = crew.run_parts(root, *creators)
    assert len([outcome for (outcome,) in reports if "created" in outcome]) == 1
    assert all(outcome.get("refused") for (outcome,) in reports if "error" in outcome)
    check_graph(root, [])
    deleters: list[Part] = [("delete_branch", {"name": "same"})] * PARTICIPANTS
    reports = crew.run_parts(root, *deleters)
    assert len([outcome for (outcome,) in reports if "deleted" in outcome]) == 1
    errors = {outcome["error"] for (outcome,) in reports if "error" in outcome}
    assert errors == {"BranchNotFoundError"}


def test_a_branch_and_its_base_are_not_made_and_deleted_at_once(root: Path, crew: Crew):
    prepared(root, "base")
    (made,), (gone,) = crew.run_parts(
        root, ("create_branch", {"name": "child", "base": "base"}), ("delete_branch", {"name": "base"})
    )
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


@pytest.fixture
def graph(root: Path) -> Iterator[Graph]:
    """One note on `work` and one person on main, from before `work` began."""
    with Graph.open(root) as opened:
        opened.mutate(ADD_PERSON, {"name": "hub"})
        opened.create_branch("work")
        opened.mutate(ADD_NOTE, {"text": "of work"}, branch="work")
        yield opened


def leftovers(graph: Graph) -> int:
    """Data files of notes on main that nothing refers to."""
    pin = graph.snapshot().pins["node:Note"]
    folder = Path(graph.uri) / pin.location / "data"
    return len(list(folder.glob("*.lance"))) - pin.row_count


def test_an_overtaken_merge_is_planned_again_on_the_new_target(graph: Graph):
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "first"}))
    result = late.merge("work")
    assert result.outcome == "merged"
    assert result.commit is not None
    assert result.commit.parent_id == graph.commits()[1].commit_id
    assert notes(graph) == ["first", "of work"]
    assert leftovers(graph) == 0, "what was staged in vain is gone"


def test_a_merge_that_is_overtaken_again_and_again_wins_in_the_end(graph: Graph):
    numbers = iter(range(100))
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": f"n{next(numbers)}"}), times=100)
    assert late.merge("work").commit is not None
    assert late._core.environment.lock.taken <= 4
    assert "of work" in notes(graph)
    assert leftovers(graph) == 0


def test_a_merge_does_not_care_whether_its_source_moved(graph: Graph):
    seen = graph.snapshot("work").commit_id
    late = overtaken(graph, lambda other: other.mutate(ADD_NOTE, {"text": "more"}, branch="work"))
    commit = late.merge("work").commit
    assert commit is not None
    assert commit.merged_parent_id == seen
    assert late._core.environment.lock.taken == 1
    assert notes(graph) == ["of work"]
    assert late.merge("work").outcome == "merged"
    assert notes(graph) == ["more", "of work"]


def test_a_merge_whose_target_got_a_conflict_meanwhile_is_refused_and_leaves_nothing(graph: Graph):
    graph.mutate(SET_VISITS, {"name": "hub", "visits": 1}, branch="work")
    late = overtaken(graph, lambda other: other.mutate(SET_VISITS, {"name": "hub", "visits": 2}))
    with pytest.raises(MergeConflictsError) as caught:
        late.merge("work")
    assert [conflict.entity_id for conflict in caught.value.conflicts] == ["hub"]
    assert graph.pending_recoveries() == []
    assert notes(graph) == []
    assert leftovers(graph) == 0
    assert late.merge("work", strategy="theirs").commit is not None


def test_a_merge_whose_source_is_deleted_before_its_commit_goes_through(graph: Graph):
    seen = graph.snapshot("work").commit_id
    late = overtaken(graph, lambda other: other.delete_branch("work"))
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

    late = overtaken(graph, again)
    assert late.merge("work").commit is not None
    assert notes(graph) == ["of work"]
    assert late.merge("work").commit is not None
    assert notes(graph) == ["of the other", "of work"]


def test_a_merge_whose_target_is_deleted_before_its_commit_does_nothing(graph: Graph):
    graph.create_branch("target")
    graph.mutate(ADD_NOTE, {"text": "of target"}, branch="target")
    late = overtaken(graph, lambda other: other.delete_branch("target"))
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

    late = overtaken(graph, again)
    assert late.merge("work", "target").outcome == "fast_forward"
    assert notes(graph, "target") == ["of work"]


def test_an_overtaken_merge_of_something_merged_meanwhile_is_up_to_date(graph: Graph):
    late = overtaken(graph, lambda other: other.merge("work"))
    result = late.merge("work")
    assert (result.outcome, result.commit) == ("already_up_to_date", None)
    assert notes(graph) == ["of work"]
    assert leftovers(graph) == 0
