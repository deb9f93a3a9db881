"""Copies, moves and restored backups of a graph with branches are graphs of their own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from folders.worlds import build, everything, tree
from omnigraph.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with branches of branches; tests copy it and never open it."""
    folder = tmp_path_factory.mktemp("original")
    build(folder / "g.omni", folder / "outside.bin")
    return folder / "g.omni"


@pytest.fixture(scope="session")
def expected(original: Path) -> dict[str, object]:
    """What readers see of the original."""
    with Graph.open(original, read_only=True) as graph:
        return everything(graph)


@pytest.fixture
def moved(original: Path, tmp_path: Path) -> Path:
    """The graph at another place; nothing is left where its forks were recorded."""
    first = tmp_path / "first.omni"
    shutil.copytree(original, first)
    with Graph.open(first):
        # Its forks hold this address now.
        pass
    return first.rename(tmp_path / "moved.omni")


def test_a_moved_graph_reads_as_before_and_reading_changes_nothing(moved, expected):
    before = tree(moved)
    with Graph.open(moved, read_only=True) as graph:
        assert everything(graph) == expected
    after = tree(moved)
    after.pop("__reading.lock", None)
    before.pop("__reading.lock", None)
    assert after == before


def test_a_writable_open_repairs_a_moved_graph_once(moved, expected, tmp_path):
    with Graph.open(moved) as graph:
        assert everything(graph) == expected
    held = [data for name, data in tree(moved).items() if name.endswith(".manifest")]
    assert not any(
        str(tmp_path / "first.omni").encode() in data.partition(b"\x92\x01")[2] for data in held
    )
