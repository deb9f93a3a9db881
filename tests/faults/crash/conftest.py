from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from omnigraph.core import failpoints
from omnigraph.graph.graph import Graph
from support.killed_writers import Before, Children, Contents, contents, copy, make_base, make_ready_to_fold
from support.killed_writes import Write

#: What a kind of write begins at, and the content after it when nothing disturbs it.
Worlds = Callable[[Write], tuple[Before, Contents]]


@pytest.fixture(autouse=True)
def _quick_commits_and_no_failpoint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    failpoints.reset()
    yield
    failpoints.reset()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Make a place fail in this process, from now on or for as long as a block lasts."""

    @contextmanager
    def fail_at(place: str) -> Iterator[None]:
        failpoints.reset()
        with monkeypatch.context() as patch:
            patch.setenv(failpoints.VARIABLE, f"{place}=raise")
            yield

    return fail_at


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeded graph; copy it before use."""
    return make_base(tmp_path_factory.mktemp("base") / "graph")


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    """The seeded graph, for one test."""
    return copy(base, tmp_path / "graph")


@pytest.fixture(scope="session")
def ready_to_fold(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeded graph just before a fold; copy it before use."""
    return make_ready_to_fold(base, tmp_path_factory.mktemp("fold") / "graph")


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    made: dict[object, Before] = {}

    @cache
    def world(write: Write) -> tuple[Before, Contents]:
        key = type(write), getattr(write, "is_later", False)
        if key not in made:
            made[key] = Before.of(write.make(tmp_path_factory.mktemp("before") / "graph"))
        before = made[key]
        root = copy(before.root, tmp_path_factory.mktemp("after") / "graph")
        with Graph.open(root) as graph:
            write.check_receipt(write.run(graph))
        return before, contents(root)

    return world


@pytest.fixture(scope="session")
def children():
    started = Children()
    yield started
    started.close()
