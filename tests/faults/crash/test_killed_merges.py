"""Branches around a dead merge, and branches whose making or deletion was killed; more in `test_killed_writes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

from faults.crash.conftest import Worlds
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.errors import BadRequestError, BranchNotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import reclaim_forks
from support.killed_writers import (
    ACTOR,
    NEXT,
    Before,
    Children,
    check_sound,
    content,
    contents,
    copy,
    dataset_of,
    every_commit,
    recovery_kinds,
    sidecars,
)
from support.killed_writes import INTO_MAIN, INTO_UNFORKED


@pytest.fixture
def before(worlds: Worlds) -> Before:
    return worlds(INTO_MAIN)[0]


@pytest.fixture
def merged(worlds: Worlds) -> dict[str, list[Any]]:
    """The content of main after an undisturbed merge."""
    return worlds(INTO_MAIN)[1]["main"]


@pytest.fixture
def root(before: Before, tmp_path: Path) -> Path:
    return copy(before.root, tmp_path / "graph")


def deleting(root: Path, name: str) -> dict[str, Any]:
    return {"action": "delete_branch", "root": str(root), "name": name, "actor": ACTOR}


def creating(root: Path, name: str, base: str = "main") -> dict[str, Any]:
    return {"action": "create_branch", "root": str(root), "name": name, "base": base, "actor": ACTOR}


# ---- merges


def test_a_writer_of_another_branch_settles_what_a_dead_merge_left(
    root: Path, before: Before, merged: dict[str, list[Any]], children: Children
):
    with Graph.open(root) as graph:
        children.kill_at(F.AFTER_CONFIRM, INTO_MAIN.job(root))
        graph.mutate(NEXT, branch="side")
        assert recovery_kinds(graph) == ["RolledForward"]
    check_sound(root)
    assert contents(root)["main"] == merged


def test_the_source_can_be_deleted_after_its_merge_died(
    root: Path, before: Before, merged: dict[str, list[Any]], children: Children
):
    children.kill_at(F.AFTER_CONFIRM, INTO_MAIN.job(root))
    with Graph.open(root) as graph:
        graph.delete_branch("dev")
    check_sound(root)
    assert contents(root)["main"] == merged


def test_the_target_can_be_deleted_after_a_merge_into_it_died(root: Path, before: Before, children: Children):
    children.kill_at("after_table_commit@2", INTO_UNFORKED.job(root))
    with Graph.open(root) as graph:
        graph.delete_branch("side")
        assert graph.branches() == ["dev", "main", "zero"]
        assert "side" not in {fork for _, fork in forks(root)}
    check_sound(root)


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
    root: Path, before: Before, children: Children, place: str, classes: list[str]
):
    children.kill_at(place, INTO_MAIN.job(root))
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
    root: Path, before: Before, children: Children, place: F, happened: bool, base_name: str
):
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
    root: Path, before: Before, children: Children, place: F
):
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
    root: Path, before: Before, children: Children, place: str, left: int
):
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
    root: Path, before: Before, children: Children, place: str, left: int
):
    children.kill_at(place, deleting(root, "dev"))
    with Graph.open(root) as graph:
        graph.create_branch("dev")
        assert content(root, "dev") == before.content["main"]
        graph.mutate(NEXT, branch="dev")
        names = {row["name"] for row in content(root, "dev")["node:Person"]}
        assert names == {"ann", "bob", "cid", "eve", "zoe"}
        assert graph.merge("dev").outcome == "fast_forward"
        removed = reclaim_forks(graph._core.environment)
        assert len(removed) == left
        assert content(root, "dev") == content(root, "main")
        graph.delete_branch("dev")
    assert {fork for _, fork in forks(root)} == {"zero"}
    check_heads(root)


@pytest.mark.parametrize("place", [F.BEFORE_BRANCH_PUBLISH, F.AFTER_BRANCH_PUBLISH])
def test_a_merge_killed_while_it_deletes_its_source_is_complete(
    root: Path, before: Before, merged: dict[str, list[Any]], children: Children, place: F
):
    children.kill_at(place, {**INTO_MAIN.job(root), "delete_branch": True})
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
    assert content(root, "main") == merged
    assert "dev" not in {fork for _, fork in forks(root)}
