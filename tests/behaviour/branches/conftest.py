from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.branched_people import MATRIX_BASE, PEOPLE, RULES, RULES_BASE, use_files
from support.graphs import new_graph, run

#: Graphs that many tests begin with: schema and first mutation.
_TEMPLATES = {"people": (PEOPLE, MATRIX_BASE), "rules": (RULES, RULES_BASE)}


@pytest.fixture
def room_for_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a merge works: with everything in memory, or as if nothing fitted there."""
    if request.param == "in files":
        use_files(monkeypatch)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a graph that is made once and copied by every test."""
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            schema, first = _TEMPLATES[name]
            with new_graph(folder, schema) as graph:
                run(graph, first)
            made[name] = folder / "g.omni"
        return made[name]

    return find


def _copy(source: Path, folder: Path) -> Iterator[Graph]:
    shutil.copytree(source, folder / "g.omni")
    with Graph.open(folder / "g.omni") as graph:
        yield graph


@pytest.fixture
def people(template: Callable[[str], Path], tmp_path: Path) -> Iterator[Graph]:
    """Alice 30, Bob 25, Carol 40, Dan 50, and Bob knows Carol."""
    yield from _copy(template("people"), tmp_path)


@pytest.fixture
def rules(template: Callable[[str], Path], tmp_path: Path) -> Iterator[Graph]:
    """A graph with every kind of rule."""
    yield from _copy(template("rules"), tmp_path)
