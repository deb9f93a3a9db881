from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.servers import client_of, guarded_server, make_graph, open_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def shared_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph for tests that only read."""
    return make_graph(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A graph for one test."""
    return make_graph(tmp_path)


@pytest.fixture
def client(uri: str) -> Iterator[TestClient]:
    """A client of an open server with a graph of its own."""
    with open_server(uri) as service, client_of(service) as client:
        yield client


@pytest.fixture(scope="module")
def reader(shared_uri: str) -> Iterator[TestClient]:
    """A client of an open server, for tests that only read."""
    with open_server(shared_uri) as service, client_of(service) as client:
        yield client


@pytest.fixture
def guarded(uri: str, tmp_path: Path):
    """Clients of a server with tokens and a policy, by actor."""
    with guarded_server(uri, tmp_path) as service:
        yield lambda actor=None: client_of(service, actor)
