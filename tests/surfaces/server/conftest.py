from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from support.servers import client_of, copy_graph, guarded_server, make_graph, open_server


@pytest.fixture(scope="module")
def shared_uri(pristine: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph for tests that only read."""
    return copy_graph(pristine, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The graph that others are copies of: making one takes longer."""
    return make_graph(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def uri(pristine: str, tmp_path: Path) -> str:
    """A graph for one test."""
    return copy_graph(pristine, tmp_path)


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
