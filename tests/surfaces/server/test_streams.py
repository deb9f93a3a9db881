"""Responses that are made while they are sent, and readers that pause."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from omnigraph import Graph
from omnigraph.api.operation import ARROW_STREAM
from omnigraph.server.settings import ServerSettings
from support.server_processes import wait_for_metrics
from support.servers import listening, make_graph, open_server, sent

BIOS = "query q() { match { $p: Person } return { $p.name as name, $p.bio as bio } }"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph whose rows do not fit into the buffers of a connection."""
    root = tmp_path_factory.mktemp("streams")
    uri = make_graph(root)
    lines = root / "many.jsonl"
    with lines.open("w", encoding="utf-8") as file:
        for number in range(12_000):
            person = {"name": f"p{number}", "bio": f"{number:06d}" * 200}
            file.write(json.dumps({"type": "Person", "data": person}) + "\n")
    with Graph.open(uri) as graph:
        graph.load(lines, mode="append", engine="local")
    return uri


@pytest.fixture
def url(uri: str) -> Iterator[str]:
    """A server with two threads for readers, and little patience."""
    settings = ServerSettings(read_threads=2, send_idle_s=0.2, exports_per_graph=1)
    with listening(open_server(uri, settings=settings)) as url:
        yield url


def paused(url: str, path: str, body: object) -> socket.socket:
    """A reader that takes the first bytes of an answer, and no more."""
    reader = sent(url, "POST", path, body, Accept=ARROW_STREAM)
    assert reader.recv(12) == b"HTTP/1.1 200"
    return reader


def test_readers_that_pause_in_the_middle_of_rows_keep_no_thread(uri: str) -> None:
    settings = ServerSettings(read_threads=2)
    with listening(open_server(uri, settings=settings)) as url:
        readers = [paused(url, "query", {"query": BIOS}) for _ in range(6)]
        answer = httpx.get(f"{url}/graphs/default/branches", timeout=30)
        assert answer.json() == {"branches": ["main"]}
        for reader in readers:
            reader.close()


def test_results_of_remote_graphs_may_be_read_side_by_side(uri: str) -> None:
    with listening(open_server(uri, settings=ServerSettings(read_threads=2))) as url, Graph.connect(url) as graph:
        results = [iter(graph.query(BIOS)) for _ in range(4)]
        assert all(next(result).num_rows for result in results)
        assert graph.branches() == ["main"]
        rows = [sum(batch.num_rows for batch in result) for result in results]
        assert len(set(rows)) == 1


def test_an_export_that_nobody_reads_gives_its_place_back(url: str) -> None:
    reader = paused(url, "export", {})
    # The server breaks off by itself: nothing reads, and nothing closes the reader before.
    host, _, port = url.removeprefix("http://").partition(":")
    wait_for_metrics((host, int(port)), "streams_open 0.0")
    with httpx.stream("POST", f"{url}/graphs/default/export", json={"type_names": ["Paper"]}) as done:
        assert done.status_code == 200
    reader.close()


def test_many_answers_at_once_are_whole(uri: str) -> None:
    with listening(open_server(uri, settings=ServerSettings(read_threads=2))) as url:
        counts: list[int] = []

        def read() -> None:
            with Graph.connect(url) as graph:
                counts.append(graph.query(BIOS).row_count)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [12_003] * 4
