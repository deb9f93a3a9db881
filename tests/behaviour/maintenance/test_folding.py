"""Folding: many small writes leave few fragments, and nobody notices anything else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from omnigraph.commit.environment import GraphSettings
from omnigraph.commit.rows import GraphCommit
from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE
from omnigraph.graph.graph import Graph
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.maintenance.optimize import FOLD_ACTOR, fold_after
from support.races.jobs import overtaken
from support.worn_graphs import (
    DOC,
    add,
    answers,
    change,
    drop,
    fragments,
    new_graph,
    one_by_one,
    run,
    stored,
    worn_graph,
)

pytestmark = pytest.mark.usefixtures("_few_vectors")
MANY = 4


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FOLD_FRAGMENTS", str(MANY))
    failpoints.reset()


def folds(graph: Graph, branch: str = "main") -> list[GraphCommit]:
    return [commit for commit in graph.commits(branch) if commit.actor == FOLD_ACTOR]


def test_a_writer_folds_what_has_collected(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    one_by_one(graph, [add(number) for number in range(MANY)])
    before = stored(graph, DOC)
    assert (fragments(graph, DOC), folds(graph)) == (MANY, [])
    receipt = run(graph, add(MANY), actor="act-user")
    (fold,) = folds(graph)
    assert receipt.commit.actor == "act-user"
    assert (fold.kind, fold.parent_id, fold.tables) == ("optimize", receipt.commit.commit_id, (DOC,))
    assert fragments(graph, DOC) == 1
    assert [row for row in stored(graph, DOC) if row["id"] != f"d{MANY}"] == before
    assert len(answers(graph)["all"]) == MANY + 1


def test_folding_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FOLD", "off")
    graph = new_graph(tmp_path)
    one_by_one(graph, [add(number) for number in range(MANY + 2)])
    assert (fragments(graph, DOC), folds(graph)) == (MANY + 2, [])


def test_what_an_index_covers_is_not_folded(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    before = answers(graph)
    covered = fragments(graph, DOC)
    one_by_one(graph, [change(number, 2040 + number) for number in range(6)])
    assert folds(graph)
    assert fragments(graph, DOC) < covered + 6
    one_by_one(graph, [add(number) for number in (0, 1, 2, 4)])
    one_by_one(graph, [change(3, 2009)])
    after = answers(graph)
    assert after["key"] == before["key"]
    assert after["hop"] == before["hop"]
    # The indexes that cover some fragments answer as those that cover all of them do.
    graph.optimize()
    assert answers(graph) == after


def test_a_branch_that_inherited_its_indexes_folds_too(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    main = answers(graph), stored(graph, DOC)
    graph.create_branch("dev")
    statements = [add(number) for number in range(20, 24)] + [change(1, 2050), change(2, 2051)]
    one_by_one(graph, statements, "dev")
    assert folds(graph, "dev")
    assert not folds(graph)
    with Graph.open(graph.uri, read_only=True) as reader:
        found = answers(reader, "dev")
        assert len(found["all"]) == len(main[0]["all"]) + 4
        assert (answers(reader), stored(reader, DOC)) == main
    assert graph.merge("dev").outcome == "fast_forward"
    assert answers(graph) == found


def test_loads_and_merges_fold_as_well(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    one_by_one(graph, [add(number) for number in range(MANY)])
    lines = tmp_path / "one.jsonl"
    lines.write_text('{"type": "Doc", "data": {"slug": "loaded"}}')
    graph.load(lines, mode="append", engine="local")
    assert len(folds(graph)) == 1
    graph.create_branch("dev")
    run(graph, add(30), branch="dev")
    one_by_one(graph, [add(number) for number in range(10, 9 + MANY)])
    assert fragments(graph, DOC) == MANY
    receipt = graph.merge("dev")
    assert receipt.commit is not None
    assert [commit.commit_id for commit in graph.commits()][1] == receipt.commit.commit_id
    assert (len(folds(graph)), fragments(graph, DOC)) == (2, 1)


@pytest.mark.parametrize("place", ["fold_staged", "before_table_commit@2", "before_publish@2"])
def test_a_fold_that_fails_never_fails_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    graph = new_graph(tmp_path)
    one_by_one(graph, [add(number) for number in range(MANY)])
    monkeypatch.setenv(VARIABLE, f"{place}=raise")
    receipt = run(graph, add(MANY))
    assert receipt.commit is not None
    assert receipt.commit.kind == "mutation"
    monkeypatch.delenv(VARIABLE)
    run(graph, add(MANY + 1))
    assert len(answers(graph)["all"]) == MANY + 2
    assert graph.repair().to_json()["datasets"][1]["classification"] == "no_drift"


def test_a_fold_that_lost_a_race_leaves_no_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = new_graph(tmp_path)
    one_by_one(graph, [add(number) for number in range(MANY)])
    late = overtaken(graph, lambda other: without_folds(other).mutate(CHANGE), write=2)
    before = {path.name for path in tmp_path.rglob("data/*.lance")}
    with caplog.at_level(logging.DEBUG, logger="omnigraph.maintenance.optimize"):
        run(late, add(MANY))
    assert "nothing was folded" in caplog.text
    assert folds(graph) == []
    added = {path.name for path in tmp_path.rglob("data/*.lance")} - before
    assert len(added) == 4, "of two writes, in the table and in the catalog"


CHANGE = f"query w() {{ {change(1, 2060)} }}"


def without_folds(graph: Graph) -> Graph:
    settings = GraphSettings(durable=False, folds=False)
    return Graph(OpenGraph(graph._core.environment, settings, read_only=False))


@pytest.mark.parametrize("statement", [change(1, 2070), drop(1)])
def test_an_update_that_lost_to_a_fold_is_prepared_again(tmp_path: Path, statement: str) -> None:
    graph = without_folds(new_graph(tmp_path))
    one_by_one(graph, [add(number) for number in range(MANY + 1)])
    settings = GraphSettings(durable=False, fold_fragments=MANY)
    last = graph.commits()[0]
    late = overtaken(graph, lambda other: fold_after(other._core.environment, settings, last))
    receipt = run(late, statement)
    assert receipt.affected_nodes == 1
    assert [commit.kind for commit in graph.commits()][:2] == ["mutation", "optimize"]


def test_a_graph_that_is_read_meanwhile_shows_every_row_always(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    with Graph.open(graph.uri, read_only=True) as reader:
        for number in range(3 * MANY):
            run(graph, add(number))
            assert len(answers(reader)["all"]) == number + 1
    assert len(folds(graph)) >= 2
