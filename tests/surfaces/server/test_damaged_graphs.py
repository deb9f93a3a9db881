"""A server in front of damaged files: every answer is the envelope of failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from support.servers import client_of, open_server

PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.bio } }"


class PanicException(BaseException):  # named as the one that cannot be imported
    """Stands for the class that extension modules make."""


PanicException.__module__ = "pyo3_runtime"


@pytest.fixture
def damaged(uri: str) -> Iterator[TestClient]:
    for file in Path(uri).glob("nodes/*/data/*.lance"):
        file.write_bytes(bytes(file.stat().st_size))
    with open_server(uri) as service, client_of(service) as client:
        yield client


def test_a_damaged_file_is_a_storage_failure_in_json(damaged: TestClient) -> None:
    answer = damaged.post("/graphs/default/query", json={"query": PEOPLE})
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert (body["kind"], body["code"]) == ("storage", "internal")
    assert "omnigraph verify" in body["error"]


def test_a_panic_in_storage_is_a_failure_of_damage(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("lance.LanceDataset.scanner", panic)
    answer = client.post("/graphs/default/query", json={"query": PEOPLE})
    assert answer.status_code == 500
    assert answer.json()["failure"] == "permanent"
    assert "damage" in answer.json()


def test_a_panic_elsewhere_is_an_internal_failure_in_json(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("omnigraph.graph.reads.GraphReader.query", panic)
    answer = client.post("/graphs/default/query", json={"query": PEOPLE})
    assert answer.status_code == 500
    assert answer.json()["kind"] == "internal"
