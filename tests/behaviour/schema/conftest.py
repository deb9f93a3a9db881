from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.schema_changes import PAPERS, fill


@pytest.fixture(scope="package")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty graph, and one with rows in several fragments, indexes and a history; tests work on copies."""
    folder = tmp_path_factory.mktemp("templates")
    Graph.init(folder / "empty", PAPERS)
    fill(Graph.init(folder / "full", PAPERS), folder)
    return folder


@pytest.fixture
def copy_of(templates: Path, tmp_path: Path) -> Callable[[str], Graph]:
    """A graph of one's own, as one of the templates."""

    def copy(name: str) -> Graph:
        return Graph.open(shutil.copytree(templates / name, tmp_path / name))

    return copy


@pytest.fixture
def graph(copy_of: Callable[[str], Graph]) -> Graph:
    """A graph with rows in several fragments, indexes and a history."""
    return copy_of("full")
