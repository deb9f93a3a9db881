"""Loads, merges and diffs that are stopped: by their time, and by a client that goes away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from omnigraph import Graph
from omnigraph.branches import deltas as comparing
from omnigraph.core.budget import check_work
from omnigraph.errors import DirectOnlyError, QueryTimeoutError
from omnigraph.graph import branches
from omnigraph.pipeline.load import job as loading
from omnigraph.server.settings import ServerSettings
from support.servers import client_of, listening, make_graph, open_server, sent

LINE = '{"type": "Person", "data": {"name": "new"}}'
#: What a client can leave behind, as path, body and the function that goes on for as long as it is wanted.
WORK = {
    "load": ("POST", "load", {"data": LINE, "timeout_s": 500}, (loading, "stage_part")),
    "ndjson": ("POST", "load/ndjson?timeout_s=500", LINE, (loading, "stage_part")),
    "merge": ("POST", "branches/merge", {"source": "review"}, (branches, "find_base")),
    "diff": ("GET", "diff?from=main&to=review", None, (comparing, "delta_between")),
}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = make_graph(tmp_path)
    with Graph.open(uri) as graph:
        graph.create_branch("review")
        graph.mutate('query q() { insert Person { name: "eve" } }', branch="review")
    return uri


@pytest.fixture
def url(uri: str) -> Iterator[str]:
    """A server with one thread of each kind: work that goes on keeps all other work out."""
    settings = ServerSettings(read_threads=1, write_threads=1)
    with listening(open_server(uri, settings=settings)) as url:
        yield url


@pytest.mark.parametrize("name", WORK)
def test_work_ends_when_its_client_goes_away(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, path, body, (module, function) = WORK[name]
    begun, stopped = threading.Event(), threading.Event()

    def endless(*_arguments: Any, **_rest: Any) -> NoReturn:
        begun.set()
        try:
            while not stopped.wait(0.01):
                check_work()
            raise AssertionError("nothing else sets it")
        finally:
            stopped.set()

    with monkeypatch.context() as patch:
        patch.setattr(module, function, endless)
        client = sent(url, method, path, body)
        assert begun.wait(60)
        client.close()
        assert stopped.wait(60)
    # The threads are free again, and nothing was written.
    with Graph.connect(url) as graph:
        assert len(graph.commits("main")) == 2
        graph.mutate('query q() { insert Person { name: "later" } }')
        assert len(graph.diff("main", "review")) == 2
        assert graph.merge("review").commit is not None


@pytest.mark.parametrize("name", WORK)
def test_work_ends_after_the_time_that_its_caller_gives(uri: str, name: str) -> None:
    method, path, body, _ = WORK[name]
    with open_server(uri) as service, client_of(service) as client:
        address = f"/graphs/default/{path.partition('?')[0]}"
        params = dict(pair.split("=") for pair in path.partition("?")[2].split("&") if pair)
        if isinstance(body, dict):
            answer = client.request(method, address, json=body | {"timeout_s": 1e-9})
        else:
            answer = client.request(
                method,
                address,
                params=params | {"timeout_s": 1e-9},
                content=body,
                headers={"Content-Type": "application/x-ndjson"} if body else {},
            )
        assert (answer.status_code, answer.json()["kind"]) == (504, "query_timeout")
        assert "was stopped, nothing was" in answer.json()["error"]
        assert len(client.get("/graphs/default/commits").json()["commits"]) == 2


def test_the_server_has_a_longest_time_for_writes(uri: str) -> None:
    settings = ServerSettings(longest_write_s=1e-9)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        stopped = client.post("/graphs/default/load", json={"data": LINE})
        refused = client.post("/graphs/default/load", json={"data": LINE, "timeout_s": 1})
        merge = client.post("/graphs/default/branches/merge", json={"source": "review", "timeout_s": 1})
    assert stopped.status_code == 504
    assert (refused.status_code, merge.status_code) == (400, 400)
    assert "OMNIGRAPH_WRITE_TIMEOUT" in refused.json()["error"]


def test_the_longest_time_of_a_write_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ServerSettings.from_environment().write_timeout_s(None) is None
    assert ServerSettings.from_environment().write_timeout_s(10**6) == 10**6
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "2m")
    assert ServerSettings.from_environment().write_timeout_s(None) == 120


def test_a_remote_graph_passes_its_time_on(url: str, tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(LINE, encoding="utf-8")
    with Graph.connect(url) as graph:
        for work in (
            lambda **bounds: graph.load(path, mode="merge", **bounds),
            lambda **bounds: graph.merge("review", **bounds),
            lambda **bounds: graph.diff("main", "review", **bounds),
        ):
            with pytest.raises(QueryTimeoutError):
                work(timeout_s=1e-9)
        # What became of a write that nothing waits for would be unknown.
        with pytest.raises(DirectOnlyError):
            graph.load(path, mode="merge", cancel=threading.Event())
        with pytest.raises(DirectOnlyError):
            graph.merge("review", cancel=threading.Event())
        assert graph.load(path, mode="merge", timeout_s=500).commit is not None


def test_a_load_over_http_needs_no_time(url: str) -> None:
    answer = httpx.post(f"{url}/graphs/default/load", json={"data": LINE}, timeout=60)
    assert answer.status_code == 200
