"""A process that creates a graph dies at every place: there is a whole graph, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.errors import AlreadyInitializedError, NotFoundError
from omnigraph.graph.graph import Graph
from support.killed_writers import SCHEMA, Children, check_sound, every_commit

CLAIM = "__init_claim.json"
BEFORE_THE_CATALOG = [F.INIT_AFTER_CLAIM, F.INIT_AFTER_TABLES, F.INIT_AFTER_SCHEMA]


def initializing(root: Path) -> dict[str, str]:
    return {"action": "init", "root": str(root), "schema": SCHEMA}


def check_new(root: Path) -> None:
    check_sound(root)
    with Graph.open(root) as graph:
        assert [commit.kind for commit in every_commit(graph)] == ["init"]
        assert sum(pin.row_count for pin in graph.snapshot().pins.values()) == 0
        graph.mutate('query w() { insert Person { name: "ann" } }')
        assert len(graph.commits()) == 2
    check_sound(root)


@pytest.mark.parametrize("place", BEFORE_THE_CATALOG)
def test_an_init_killed_before_the_catalog_leaves_no_graph_and_blocks_nobody(
    tmp_path: Path, children: Children, place: F
):
    root = tmp_path / "graph"
    children.kill_at(place, initializing(root))
    for read_only in (True, False):
        with pytest.raises(NotFoundError):
            Graph.open(root, read_only=read_only)
    assert (root / CLAIM).exists()
    Graph.init(root, SCHEMA, force=place is F.INIT_AFTER_SCHEMA).close()
    assert not (root / CLAIM).exists()
    check_new(root)


def test_schema_files_of_a_dead_init_are_replaced_only_by_force(tmp_path: Path, children: Children):
    root = tmp_path / "graph"
    children.kill_at(F.INIT_AFTER_SCHEMA, initializing(root))
    with pytest.raises(AlreadyInitializedError, match="--force"):
        Graph.init(root, SCHEMA)


def test_an_init_killed_after_the_catalog_leaves_a_whole_graph(tmp_path: Path, children: Children):
    root = tmp_path / "graph"
    children.kill_at(F.INIT_AFTER_MANIFEST, initializing(root))
    for force in (False, True):
        with pytest.raises(AlreadyInitializedError):
            Graph.init(root, SCHEMA, force=force)
    check_new(root)


@pytest.mark.parametrize("place", BEFORE_THE_CATALOG)
def test_an_init_that_fails_in_a_living_process_takes_its_claim_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: F
):
    root = tmp_path / "graph"
    monkeypatch.setenv(failpoints.VARIABLE, f"{place}=raise")
    with pytest.raises(FailpointError):
        Graph.init(root, SCHEMA)
    assert not (root / CLAIM).exists()
    Graph.init(root, SCHEMA, force=True).close()
    check_new(root)
