from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnigraph import Graph
from omnigraph.server import ServerSettings, open_service
from omnigraph.serving import single_graph
from parity.worlds import QUERIES, Pair, make_history
from server.servers import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _pair(embedded: str, served: str, queries: Path) -> Iterator[Pair]:
    service = open_service(
        single_graph(served, queries=queries),
        ServerSettings(),
        unauthenticated=True,
        environment={},
    )
    with (
        listening(service) as url,
        Graph.open(embedded) as local,
        Graph.connect(url, graph="default") as remote,
    ):
        yield Pair(embedded=local, remote=remote)


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "queries.gq"
    path.write_text(QUERIES)
    return path


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "scan.bin"
    path.write_bytes(b"bytes outside of the graph")
    return path


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory, queries: Path, outside: Path) -> Iterator[Pair]:
    """One graph, read in both ways."""
    uri = make_history(tmp_path_factory.mktemp("same"), outside)
    yield from _pair(uri, uri, queries)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory, queries: Path, outside: Path) -> Iterator[Pair]:
    """Two graphs with the same history, one written directly and one through a server."""
    one, other = (make_history(tmp_path_factory.mktemp(name), outside) for name in ("one", "other"))
    yield from _pair(one, other, queries)
