from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.core import failpoints
from omnigraph.graph.graph import Graph
from support.histories import SCHEMA, add


@pytest.fixture(autouse=True)
def _no_failpoints() -> Iterator[None]:
    yield
    failpoints.reset()


@pytest.fixture(scope="session")
def eight_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight commits with one person each."""
    root = tmp_path_factory.mktemp("eight") / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        for number in range(8):
            add(graph, f"p{number}")
    return root


@pytest.fixture
def graph(eight_commits: Path, tmp_path: Path) -> Iterator[Graph]:
    """A copy of the graph with eight commits after the first one."""
    shutil.copytree(eight_commits, tmp_path / "g.omni")
    with Graph.open(tmp_path / "g.omni") as opened:
        yield opened
