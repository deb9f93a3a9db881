"""A merge, or the making or deletion of a branch, dies by SIGKILL anywhere: the next one finds all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.errors import BadRequestError, BranchNotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import reclaim_forks
from support.killed_writers import (
    ACTOR,
    FORGOTTEN,
    NEXT,
    NOTHING,
    OF_CLEANUPS,
    OF_MOVES,
    OF_OPTIMIZE,
    OF_SCHEMA_CHANGES,
    ROLLED_BACK,
    ROLLED_FORWARD,
    Before,
    Children,
    Outcome,
    check_sound,
    content,
    contents,
    copy,
    dataset_of,
    deaths,
    every_commit,
    of_main,
    opening,
    publishing,
    reclaim,
    sidecars,
    table_commits,
    table_files,
)

#: What happened on the source: rows come, change and go in all four tables.
ON_DEV = (
    'query a() { insert Person { name: "dan", age: 1 } insert City { name: "bonn" }'
    ' insert LivesIn { from: "dan", to: "bonn" } insert Person { name: "ann", age: 31 } }',
    'query b() { delete Person where name = "cid" }',
)
#: What happened on main meanwhile.
ON_MAIN = 'query c() { insert Person { name: "eve" } insert City { name: "rome", size: 9 } }'


@dataclass(frozen=True, slots=True)
class Merge:
    """One kind of merge, and how many tables it moves."""

    name: str
    source: str
    target: str
    tables: int
    outcome: str

    def __str__(self) -> str:
        return self.name


INTO_MAIN = Merge("into_main", "dev", "main", 4, "merged")
#: The target reads tables of main until this merge writes to them.
INTO_UNFORKED = Merge("into_an_unforked_branch", "dev", "side", 4, "fast_forward")
#: The source changed something and changed it back: one commit, and no table moves.
NET_ZERO = Merge("of_nothing", "zero", "main", 0, "merged")
MERGES = (INTO_MAIN, INTO_UNFORKED, NET_ZERO)


def places(merge: Merge) -> list[tuple[str, Outcome]]:
    """Every place that the merge passes, in order, with what a death there leads to."""
    # A merge without tables has no effect before its publish, so nothing has to be undone or completed.
    undone, complete = (ROLLED_BACK, ROLLED_FORWARD) if merge.tables else (FORGOTTEN, FORGOTTEN)
    cells: list[tuple[str, Outcome]] = [
        (F.MERGE_PLANNED, NOTHING),
        (F.MERGE_STAGED, NOTHING),
        (F.MERGE_CHECKED, NOTHING),
        (F.BEFORE_SIDECAR, NOTHING),
        (f"{F.SIDECAR_WRITE}@1", NOTHING),
        (F.AFTER_SIDECAR, FORGOTTEN),
    ]
    # Until the versions are confirmed nothing tells that all tables moved.
    cells += table_commits(merge.tables, undone, complete=undone)
    cells += [
        (F.BEFORE_CONFIRM, undone),
        (f"{F.SIDECAR_WRITE}@2", undone),
        (F.AFTER_CONFIRM, complete),
        *publishing(complete),
    ]
    return [(str(name), outcome) for name, outcome in cells]


#: The places of merges, and every kind in and after its commit; all of them behind the marker.
CHOSEN = {
    INTO_MAIN.name: (
        *(F.MERGE_PLANNED, F.MERGE_STAGED, F.MERGE_CHECKED, f"{F.SIDECAR_WRITE}@1"),
        *("after_table_commit@2", "after_table_commit@4"),
        *(f"{F.SIDECAR_WRITE}@2", F.AFTER_CONFIRM, F.BEFORE_PUBLISH),
    ),
    INTO_UNFORKED.name: (
        *(F.MERGE_CHECKED, "after_table_commit@1", F.BEFORE_CONFIRM, F.AFTER_CONFIRM),
        F.AFTER_PUBLISH,
    ),
    NET_ZERO.name: (F.AFTER_SIDECAR, F.AFTER_CONFIRM, F.AFTER_PUBLISH),
}
MATRIX = [(merge, place, outcome) for merge in MERGES for place, outcome in places(merge)]
DURABLE = [(INTO_MAIN, "after_table_commit@2", ROLLED_BACK), (INTO_UNFORKED, str(F.AFTER_CONFIRM), ROLLED_FORWARD)]


@pytest.fixture(scope="module")
def diverged(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeded graph with work on `dev`, on main and, in vain, on `zero`; copy it before use."""
    root = copy(base, tmp_path_factory.mktemp("diverged") / "graph")
    with Graph.open(root) as graph:
        graph.create_branch("side")
        graph.create_branch("zero")
        for query in ON_DEV:
            graph.mutate(query, branch="dev")
        for age in (99, 40):
            graph.mutate(f'query w() {{ update Person set {{ age: {age} }} where name = "bob" }}', branch="zero")
        graph.mutate(ON_MAIN)
    return root


@pytest.fixture(scope="module")
def before(diverged: Path) -> Before:
    return Before.of(diverged)


@pytest.fixture(scope="module")
def after(diverged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """The content of the graph after each undisturbed merge."""
    found = {}
    for merge in MERGES:
        root = copy(diverged, tmp_path_factory.mktemp(merge.name) / "graph")
        with Graph.open(root) as graph:
            result = graph.merge(merge.source, merge.target)
        assert result.outcome == merge.outcome
        assert result.commit is not None
        assert len(result.commit.tables) == merge.tables
        found[merge.name] = contents(root)
    return found


def merging(root: Path, merge: Merge, *, delete_branch: bool = False) -> dict[str, Any]:
    return {
        "action": "merge",
        "root": str(root),
        "source": merge.source,
        "into": merge.target,
        "delete_branch": delete_branch,
        "engine": "local",
        "actor": ACTOR,
    }


def deleting(root: Path, name: str) -> dict[str, Any]:
    return {"action": "delete_branch", "root": str(root), "name": name, "actor": ACTOR}


def creating(root: Path, name: str, base: str = "main") -> dict[str, Any]:
    return {"action": "create_branch", "root": str(root), "name": name, "base": base, "actor": ACTOR}


# ---- what is left of a merge


def check_settled(root: Path, before: Before, merge: Merge, outcome: Outcome, after: Any) -> None:
    """Opening settles; all of the merge is there or nothing, with one commit and one record at most."""
    with Graph.open(root) as graph:
        commits = every_commit(graph)
        records = graph.recoveries()
        source = graph.snapshot(merge.source).commit_id
    check_sound(root)
    assert contents(root) == (after if outcome.happened else before.content)
    assert [commit.commit_id for commit in commits[: len(before.commits)]] == before.commits
    added = commits[len(before.commits) :]
    assert tuple(commit.actor for commit in added) == outcome.added
    assert [record.recovery_kind for record in records] == ([] if outcome.audit is None else [outcome.audit])
    for record in records:
        assert (record.writer_kind, record.recovery_for_actor) == ("branch_merge", ACTOR)
        assert record.graph_commit_id == (added[0].commit_id if added else None)
        assert len(record.tables) == merge.tables
    for commit in added:
        assert commit.branch == merge.target
        # What was undone was not merged.
        assert commit.kind == ("branch_merge" if outcome.happened else "rollback")
        assert commit.merged_parent_id == (source if outcome.happened else None)


def check_goes_on(root: Path, merge: Merge, outcome: Outcome, after: Any) -> None:
    """The same merge again ends as an undisturbed one does, and other writes work."""
    with Graph.open(root) as graph:
        again = graph.merge(merge.source, merge.target)
        assert (again.commit is None) is outcome.happened
        assert contents(root) == after
        assert graph.merge(merge.source, merge.target).outcome == "already_up_to_date"
        for branch in (merge.target, merge.source):
            graph.mutate(NEXT, branch=branch)
            names = [row["name"] for row in content(root, branch)["node:Person"]]
            assert names.count("zoe") == 1
    check_sound(root)


def check_history_tells_the_truth(root: Path, before: Before, after: Any) -> None:
    """The changes of all new commits together lead from the content before to the content after."""
    with Graph.open(root, read_only=True) as graph:
        new = [commit for commit in every_commit(graph) if commit.commit_id not in before.commits]
        for commit in new:
            changes = graph.changes(commit.commit_id).changes
            is_effective = commit.kind == "branch_merge" and after != before.content
            assert bool(changes) == is_effective


def check_death(root: Path, before: Before, merge: Merge, outcome: Outcome, after: Any) -> None:
    check_settled(root, before, merge, outcome, after)
    check_history_tells_the_truth(root, before, after)
    reclaim(root)
    assert reclaim(root, preview=True) == set()
    if outcome == NOTHING:
        assert of_main(table_files(root)) == of_main(table_files(before.root))
    check_goes_on(root, merge, outcome, after)


# ---- merges


@pytest.mark.parametrize(("merge", "place", "outcome"), deaths(MERGES, places, CHOSEN))
def test_a_merge_killed_anywhere_leaves_all_of_it_or_nothing(
    before: Before,
    after: dict[str, Any],
    tmp_path: Path,
    children: Children,
    merge: Merge,
    place: str,
    outcome: Outcome,
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, merging(root, merge))
    check_death(root, before, merge, outcome, after[merge.name])


@pytest.mark.parametrize(("merge", "place", "outcome"), DURABLE)
def test_a_durable_merge_killed_anywhere_leaves_all_of_it_or_nothing(
    before: Before,
    after: dict[str, Any],
    tmp_path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    merge: Merge,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, merging(root, merge), OMNIGRAPH_DURABILITY="full")
    check_death(root, before, merge, outcome, after[merge.name])


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "place", "outcome"), MATRIX)
def test_a_durable_merge_killed_at_any_place_is_settled_by_another_process(
    before: Before,
    after: dict[str, Any],
    tmp_path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    merge: Merge,
    place: str,
    outcome: Outcome,
):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "full")
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, merging(root, merge), OMNIGRAPH_DURABILITY="full")
    done = children.run({**opening(root), "environment": {"OMNIGRAPH_DURABILITY": "full"}})
    assert done.code == 0, done.err
    check_death(root, before, merge, outcome, after[merge.name])


def test_an_undisturbed_merge_acknowledges_the_commit_that_it_made(
    before: Before, after: dict[str, Any], tmp_path: Path, children: Children
):
    root = copy(before.root, tmp_path / "graph")
    done = children.run({**merging(root, INTO_MAIN), "environment": {}})
    assert done.code == 0, done.err
    with Graph.open(root) as graph:
        assert [graph.snapshot().commit_id] == done.out.split()
        assert graph.recoveries() == []
    assert contents(root) == after[INTO_MAIN.name]


def test_a_writer_of_another_branch_settles_what_a_dead_merge_left(
    before: Before, after: dict[str, Any], tmp_path: Path, children: Children
):
    root = copy(before.root, tmp_path / "graph")
    with Graph.open(root) as graph:
        children.kill_at(F.AFTER_CONFIRM, merging(root, INTO_MAIN))
        graph.mutate(NEXT, branch="side")
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_sound(root)
    assert contents(root)["main"] == after[INTO_MAIN.name]["main"]


def test_the_source_can_be_deleted_after_its_merge_died(
    before: Before, after: dict[str, Any], tmp_path: Path, children: Children
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(F.AFTER_CONFIRM, merging(root, INTO_MAIN))
    with Graph.open(root) as graph:
        graph.delete_branch("dev")
    check_sound(root)
    assert contents(root)["main"] == after[INTO_MAIN.name]["main"]


def test_the_target_can_be_deleted_after_a_merge_into_it_died(before: Before, tmp_path: Path, children: Children):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at("after_table_commit@2", merging(root, INTO_UNFORKED))
    with Graph.open(root) as graph:
        graph.delete_branch("side")
        assert graph.branches() == ["dev", "main", "zero"]
        assert "side" not in {fork for _, fork in forks(root)}
    check_sound(root)


# ---- merges that fail and live on


FAILING = [
    (INTO_UNFORKED, F.MERGE_STAGED, False),
    (INTO_UNFORKED, F.MERGE_CHECKED, False),
    (INTO_UNFORKED, f"{F.SIDECAR_WRITE}@1", False),
    (INTO_UNFORKED, "after_table_commit@2", False),
    (INTO_MAIN, "after_table_commit@2", False),
    (INTO_UNFORKED, f"{F.SIDECAR_WRITE}@2", False),
    (INTO_UNFORKED, F.AFTER_CONFIRM, True),
    (INTO_MAIN, F.BEFORE_CATALOG_COMMIT, True),
    (INTO_UNFORKED, F.AFTER_PUBLISH, True),
]


@pytest.mark.parametrize(("merge", "place", "happens"), FAILING)
def test_a_merge_that_fails_settles_itself_and_stops_nobody(
    before: Before,
    after: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    merge: Merge,
    place: str,
    happens: bool,
):
    root = copy(before.root, tmp_path / "graph")
    with Graph.open(root) as graph:
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, f"{place}=raise")
            if happens:
                assert graph.merge(merge.source, merge.target).commit is not None
            else:
                with pytest.raises(FailpointError):
                    graph.merge(merge.source, merge.target)
        assert graph.pending_recoveries() == []
        check_sound(root)
        assert contents(root) == (after[merge.name] if happens else before.content)
        outcome = graph.merge(merge.source, merge.target)
        assert (outcome.commit is None) is happens
        assert contents(root) == after[merge.name]
        graph.mutate(NEXT, branch=merge.target)
    check_sound(root)


# ---- recovery of merges

INTERRUPTED = {
    "rolled_back": (str(F.BEFORE_CONFIRM), ROLLED_BACK),
    "rolled_forward": (str(F.AFTER_CONFIRM), ROLLED_FORWARD),
}
#: What else recovery passes is the same for all writers: `test_killed_recovery`.
RECOVERING = [
    ("rolled_back", f"{F.BEFORE_RESTORE}@2"),
    ("rolled_back", f"{F.AFTER_RESTORE}@4"),
    ("rolled_back", F.AFTER_RECOVERY_PUBLISH),
    ("rolled_back", F.AUDIT_WRITE),
    ("rolled_forward", F.BEFORE_RECOVERY_PUBLISH),
    ("rolled_forward", F.AUDIT_WRITE),
    *(
        pytest.param(way, str(place), marks=pytest.mark.slow)
        for way, places in {
            "rolled_back": [
                *(f"{F.AFTER_RESTORE}@1", F.BEFORE_RECOVERY_PUBLISH, F.BEFORE_CATALOG_COMMIT),
                *(F.AFTER_AUDIT, F.SIDECAR_DELETE),
            ],
            "rolled_forward": [F.RECOVERY_LIST, F.AFTER_RECOVERY_PUBLISH],
        }.items()
        for place in places
    ),
]


@pytest.mark.parametrize(("way", "place"), RECOVERING)
def test_recovery_of_a_merge_killed_anywhere_is_finished_by_the_next_one(
    before: Before, after: dict[str, Any], tmp_path: Path, children: Children, way: str, place: str
):
    # Both kinds of targets take part; together they see every place.
    merge = INTO_MAIN if way == "rolled_back" else INTO_UNFORKED
    died, outcome = INTERRUPTED[way]
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(died, merging(root, merge))
    children.kill_at(place, opening(root))
    check_settled(root, before, merge, outcome, after[merge.name])
    check_goes_on(root, merge, outcome, after[merge.name])


@pytest.mark.parametrize(
    ("place", "classes"),
    [
        (F.AFTER_SIDECAR, ["NoMovement"] * 4),
        ("after_table_commit@2", ["IncompletePhaseB"] * 2 + ["NoMovement"] * 2),
        (F.BEFORE_CONFIRM, ["IncompletePhaseB"] * 4),
        (F.AFTER_CONFIRM, ["RolledPastExpected"] * 4),
    ],
)
def test_a_record_names_what_became_of_every_table(
    before: Before, tmp_path: Path, children: Children, place: str, classes: list[str]
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, merging(root, INTO_MAIN))
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
    assert sorted(str(table["class"]) for table in record.tables.values()) == classes


# ---- branches


def forks(root: Path) -> set[tuple[str, str]]:
    """Every fork on disk, by table and name."""
    with Graph.open(root, read_only=True) as graph:
        pins = graph.snapshot().pins
    return {
        (str(key), fork)
        for key, pin in pins.items()
        for fork in lance.dataset(str(root / pin.location)).branches.list()
    }


def check_heads(root: Path) -> None:
    """Every branch is at the head of the tables that it forked, whatever its forks are called."""
    assert sidecars(root) == []
    with Graph.open(root, read_only=True) as graph:
        for branch in graph.branches():
            snapshot = graph.snapshot(branch)
            for key, pin in snapshot.pins.items():
                head = dataset_of(root, pin, at_pin=False)
                if pin.branch == snapshot.fork_name:
                    assert (key, head.version) == (key, pin.version)


@pytest.mark.parametrize(
    ("place", "happened"),
    [(F.BEFORE_BRANCH_PUBLISH, False), (F.BEFORE_CATALOG_COMMIT, False), (F.AFTER_BRANCH_PUBLISH, True)],
)
@pytest.mark.parametrize("base_name", ["main", "dev"])
def test_a_branch_whose_maker_was_killed_is_there_or_not(
    before: Before, tmp_path: Path, children: Children, place: F, happened: bool, base_name: str
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, creating(root, "new", base_name))
    with Graph.open(root) as graph:
        assert ("new" in graph.branches()) is happened
        assert graph.recoveries() == []
        if happened:
            with pytest.raises(BadRequestError, match="exists already"):
                graph.create_branch("new", base_name)
        else:
            graph.create_branch("new", base_name)
        assert content(root, "new") == before.content[base_name]
        graph.mutate(NEXT, branch="new")
        assert graph.merge("new", base_name).outcome == "fast_forward"
        graph.delete_branch("new")
    check_sound(root)
    assert "new" not in {fork for _, fork in forks(root)}


@pytest.mark.parametrize("place", [F.BEFORE_BRANCH_PUBLISH, F.BEFORE_CATALOG_COMMIT])
def test_a_branch_whose_deletion_was_killed_early_is_as_it_was(
    before: Before, tmp_path: Path, children: Children, place: F
):
    root = copy(before.root, tmp_path / "graph")
    known = forks(root)
    children.kill_at(place, deleting(root, "dev"))
    check_sound(root)
    assert contents(root) == before.content
    assert forks(root) == known
    with Graph.open(root) as graph:
        graph.delete_branch("dev")
        assert graph.branches() == ["main", "side", "zero"]
    assert {fork for _, fork in forks(root)} == {"zero"}
    check_sound(root)


HALF_DELETED = [(str(F.AFTER_BRANCH_PUBLISH), 4), (f"{F.BEFORE_FORK_REMOVAL}@1", 4), (f"{F.BEFORE_FORK_REMOVAL}@3", 2)]


@pytest.mark.parametrize(("place", "left"), HALF_DELETED)
def test_what_is_left_of_a_half_deleted_branch_is_removed_by_the_next_deletion(
    before: Before, tmp_path: Path, children: Children, place: str, left: int
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, deleting(root, "dev"))
    with Graph.open(root) as graph:
        assert graph.branches() == ["main", "side", "zero"]
        with pytest.raises(BranchNotFoundError):
            graph.delete_branch("dev")
        assert len([fork for _, fork in forks(root) if fork == "dev"]) == left
        graph.delete_branch("side")
    assert {fork for _, fork in forks(root)} == {"zero"}
    check_sound(root)
    wanted = {name: before.content[name] for name in ("main", "zero")}
    assert contents(root) == wanted


@pytest.mark.parametrize(("place", "left"), HALF_DELETED)
def test_the_name_of_a_half_deleted_branch_can_be_used_again(
    before: Before, tmp_path: Path, children: Children, place: str, left: int
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, deleting(root, "dev"))
    with Graph.open(root) as graph:
        graph.create_branch("dev")
        assert content(root, "dev") == before.content["main"]
        graph.mutate(NEXT, branch="dev")
        names = {row["name"] for row in content(root, "dev")["node:Person"]}
        assert names == {"ann", "bob", "cid", "eve", "zoe"}
        assert graph.merge("dev").outcome == "fast_forward"
        removed = reclaim_forks(graph._environment)
        assert len(removed) == left
        assert content(root, "dev") == content(root, "main")
        graph.delete_branch("dev")
    assert {fork for _, fork in forks(root)} == {"zero"}
    check_heads(root)


@pytest.mark.parametrize("place", [F.BEFORE_BRANCH_PUBLISH, F.AFTER_BRANCH_PUBLISH])
def test_a_merge_killed_while_it_deletes_its_source_is_complete(
    before: Before, after: dict[str, Any], tmp_path: Path, children: Children, place: F
):
    root = copy(before.root, tmp_path / "graph")
    children.kill_at(place, merging(root, INTO_MAIN, delete_branch=True))
    is_deleted = place is F.AFTER_BRANCH_PUBLISH
    with Graph.open(root) as graph:
        assert ("dev" in graph.branches()) is not is_deleted
        assert graph.recoveries() == []
        (commit,) = [c for c in every_commit(graph) if c.commit_id not in before.commits]
        assert (commit.kind, commit.actor) == ("branch_merge", ACTOR)
        if not is_deleted:
            assert graph.merge("dev", delete_branch=True).branch_deleted
        graph.delete_branch("side")
    check_sound(root)
    assert content(root, "main") == after[INTO_MAIN.name]["main"]
    assert "dev" not in {fork for _, fork in forks(root)}


# ---- the matrix


def test_the_matrix_names_every_place_of_merges_and_branches():
    covered = {place.partition("@")[0] for merge in MERGES for place, _ in places(merge)}
    chosen = {str(place).partition("@")[0] for names in CHOSEN.values() for place in names}
    assert chosen >= {F.MERGE_PLANNED, F.MERGE_STAGED, F.MERGE_CHECKED, F.BEFORE_CONFIRM}
    branches = {F.BEFORE_BRANCH_PUBLISH, F.AFTER_BRANCH_PUBLISH, F.BEFORE_FORK_REMOVAL}
    cells = (getattr(cell, "values", cell) for cell in RECOVERING)
    recovery = {str(place).partition("@")[0] for _, place in cells}
    # Folding is the same for every writer, and what happens in tasks is a retry.
    others = {place for place in F if place.startswith(("init_", "load_", "embed_", "in_"))}
    others |= OF_OPTIMIZE | OF_SCHEMA_CHANGES | OF_CLEANUPS | OF_MOVES
    assert covered | branches | recovery | others == set(F)
    for merge in MERGES:
        assert {str(name) for name in CHOSEN[merge.name]} <= {name for name, _ in places(merge)}
