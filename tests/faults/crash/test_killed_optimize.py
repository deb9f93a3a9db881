"""A process that optimizes or folds dies by SIGKILL anywhere: no row changes, and the next run completes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.fold import FOLD_ACTOR
from support.killed_writers import (
    ACTOR,
    NEXT,
    OF_OPTIMIZE,
    SCHEMA,
    SEED,
    Children,
    check_sound,
    contents,
    copy,
    opening,
)

MORE = (
    'query w() { insert Person { name: "dan", age: 3 } }',
    'query w() { update Person set { age: 31 } where name = "ann" }',
    'query w() { insert City { name: "bonn" } }',
    'query w() { insert Knows { from: "dan", to: "ann" } }',
    'query w() { delete Person where name = "cid" }',
)
QUESTIONS = (
    'match { $p: Person { name: "ann" } } return { $p.age as x }',
    "match { $p: Person  $p.age >= 3 } return { $p.name as x }",
    'match { $p: Person  search($p.name, "ann dan cid") } return { $p.name as x }',
    "match { $p: Person  $p knows{1,3} $q } return { $p.name as x, $q.name as y }",
)
#: That have something to gain.
TABLES = 3
#: Every place that a run passes, the commit records that it leaves, and how often each counts.
PLACES = (
    (F.OPTIMIZE_STAGED, None),
    (F.BEFORE_SIDECAR, None),
    (F.AFTER_SIDECAR, "RolledBack"),
    ("between_versions@1", "RolledForward"),
    ("between_versions@2", "RolledForward"),
    ("after_table_commit@1", "RolledForward"),
    ("before_table_commit@3", "RolledForward"),
    (f"after_table_commit@{TABLES}", "RolledForward"),
    (F.BEFORE_PUBLISH, "RolledForward"),
    (F.BEFORE_CATALOG_COMMIT, "RolledForward"),
    (F.AFTER_PUBLISH, "RolledForward"),
    (F.SIDECAR_DELETE, "RolledForward"),
    (F.AFTER_SIDECAR_DELETE, None),
    # The fold of the catalog, after the commit.
    (F.IN_FOLD, None),
    ("before_catalog_commit@2", None),
)
QUICK = {
    *("optimize_staged", "between_versions@1", "between_versions@2", "before_table_commit@3"),
    *("before_publish", "in_fold"),
}


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some fragments with indexes, some without, moved and deleted rows in both."""
    root = tmp_path_factory.mktemp("worn") / "graph"
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(SEED)
        graph.ensure_indices()
        graph.create_branch("dev")
        for text in MORE:
            graph.mutate(text)
    return root


def answers(root: Path) -> list[list[str]]:
    with Graph.open(root, read_only=True) as graph:
        found = [graph.query(f"query q() {{ {text} }}").to_pylist() for text in QUESTIONS]
    return [sorted(map(str, rows)) for rows in found]


def optimizing(root: Path) -> dict[str, Any]:
    return {"action": "optimize", "root": str(root), "actor": ACTOR}


@pytest.mark.parametrize(
    ("place", "audit"),
    [
        pytest.param(
            str(place), audit, id=str(place), marks=() if place in QUICK else pytest.mark.slow
        )
        for place, audit in PLACES
    ],
)
def test_a_run_killed_anywhere_changes_no_row_and_the_next_completes(
    worn: Path, tmp_path: Path, children: Children, place: str, audit: str | None
) -> None:
    root = copy(worn, tmp_path / "graph")
    rows, found = contents(worn), answers(worn)
    children.kill_at(place, optimizing(root))
    assert answers(root) == found, "a reader settles nothing and reads right"
    with Graph.open(root) as graph:
        kinds = [record.recovery_kind for record in graph.recoveries()]
        assert kinds == ([] if audit is None else [audit])
    check_sound(root)
    assert (contents(root), answers(root)) == (rows, found)
    with Graph.open(root) as graph:
        graph.optimize()
        assert graph.optimize().commit is None
        assert graph.pending_indexes() == []
        pins = graph.snapshot().pins.values()
        assert {graph._open(pin).fragment_count() for pin in pins} == {1}
        assert (contents(root), answers(root)) == (rows, found)
        graph.mutate(NEXT)
    check_sound(root)


def test_recovery_of_a_run_may_be_killed_as_well(
    worn: Path, tmp_path: Path, children: Children
) -> None:
    root = copy(worn, tmp_path / "graph")
    rows, found = contents(worn), answers(worn)
    children.kill_at("between_versions@2", optimizing(root))
    children.kill_at(F.BEFORE_RECOVERY_PUBLISH, opening(root))
    with Graph.open(root) as graph:
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_sound(root)
    assert (contents(root), answers(root)) == (rows, found)


@pytest.mark.parametrize(
    ("place", "folded"),
    [("fold_staged", False), ("before_table_commit@2", False), ("after_table_commit@2", True)],
)
def test_a_writer_that_dies_while_it_folds_has_written(
    worn: Path, tmp_path: Path, children: Children, place: str, folded: bool
) -> None:
    root = copy(worn, tmp_path / "graph")
    job = {"action": "mutate", "root": str(root), "branch": "main", "actor": ACTOR}
    text = 'query w() { insert Person { name: "eve" } }'
    children.kill_at(place, {**job, "text": text}, OMNIGRAPH_FOLD_FRAGMENTS="1")
    with Graph.open(root) as graph:
        folds = [c for c in graph.commits() if c.recovery_for_actor == FOLD_ACTOR]
        assert len(folds) == folded
        names = [row["name"] for row in contents(root)["main"]["node:Person"]]
        assert sorted(names) == ["ann", "bob", "dan", "eve"]
        graph.mutate(NEXT)
    check_sound(root)


def test_the_matrix_names_every_place_of_an_optimize() -> None:
    named = {str(place).partition("@")[0] for place, _ in PLACES} | {F.FOLD_STAGED}
    assert named >= OF_OPTIMIZE
    assert {str(place) for place, _ in PLACES} >= QUICK
