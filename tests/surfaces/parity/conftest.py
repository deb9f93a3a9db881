from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.settings import ServerSettings
from support.parity import QUERIES, Pair, make_history
from support.servers import copy_graph, listening


def _pair(embedded: str, served: str, queries: Path) -> Iterator[Pair]:
    service = open_service(
        single_graph(served, queries=queries), ServerSettings(), unauthenticated=True, environment={}
    )
    with listening(service) as url, Graph.open(embedded) as local, Graph.connect(url, graph="default") as remote:
        yield Pair(embedded=local, remote=remote)


@pytest.fixture(scope="session")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "queries.gq"
    path.write_text(QUERIES)
    return path


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "scan.bin"
    path.write_bytes(b"bytes outside of the graph")
    return path


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> str:
    """The graph that others are copies of: making one takes longer."""
    return make_history(tmp_path_factory.mktemp("history"), outside)


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory, queries: Path, history: str) -> Iterator[Pair]:
    """One graph, read in both ways."""
    uri = copy_graph(history, tmp_path_factory.mktemp("same"))
    yield from _pair(uri, uri, queries)


@pytest.fixture
def twins(tmp_path: Path, queries: Path, history: str) -> Iterator[Pair]:
    """Two graphs with the same history, one to be written directly and one through a server."""
    yield from _pair(copy_graph(history, tmp_path / "one"), copy_graph(history, tmp_path / "other"), queries)
