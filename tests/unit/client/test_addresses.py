"""Addresses and tokens are judged before anything is sent."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from omnigraph.client.addresses import ServerAddress, check_graph_id, find_token, parse_address
from omnigraph.client.connection import Connection
from omnigraph.errors import BadRequestError
from support.subtests import each_case


@each_case(
    ("url", "base", "graph", "is_loopback"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", None, True),
        ("http://[::1]:8080/", "http://[::1]:8080", None, True),
        ("http://localhost/graphs", "http://localhost", None, True),
        ("https://example.org/graphs/papers", "https://example.org", "papers", False),
        ("https://example.org/a/b/graphs/papers/", "https://example.org/a/b", "papers", False),
        ("https://example.org/graphs/graphs/papers", "https://example.org/graphs", "papers", False),
        (" https://example.org/omni ", "https://example.org/omni", None, False),
    ],
)
def test_an_address_has_a_base_and_may_name_a_graph(url: str, base: str, graph: str | None, is_loopback: bool) -> None:
    assert parse_address(url) == ServerAddress(base=base, graph=graph, is_loopback=is_loopback)


@each_case(
    "url",
    [
        *("", "papers.omni", "s3://bucket/papers.omni", "http://", "http://host:port/", "http://[::1"),
        *("http://me:secret@host/", "http://host/graphs/pa%2Fpers", "http://host/graphs/.."),
        *("http://host/graphs/papers/query", "http://host/?graph=papers", "http://host/#papers"),
    ],
)
def test_other_addresses_are_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_address(url)
    assert "secret" not in caught.value.message


@each_case("name", ["", "a b", "a/b", "ü", "x" * 65, ".."])
def test_an_id_of_a_graph_is_plain(name: str) -> None:
    with pytest.raises(BadRequestError, match="is not a graph id"):
        check_graph_id(name)


def test_a_token_is_the_one_given_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN", raising=False)
    assert find_token(None) is None
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "from-environment\n")
    assert find_token(None) == "from-environment"
    assert find_token("given") == "given"
    assert find_token("") is None


@each_case("token", ["two words", "line\nbreak", "grün", "nul\0"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadRequestError, match="the token holds characters") as caught:
        find_token(token)
    assert token not in caught.value.message


@pytest.mark.parametrize(
    ("url", "token", "is_told"),
    [
        ("http://graphs.example", "t", True),
        ("http://192.0.2.7:8080", "t", True),
        ("http://graphs.example", None, False),
        ("https://graphs.example", "t", False),
        ("http://127.0.0.1:8080", "t", False),
        ("http://[::1]:8080", "t", False),
        ("http://localhost:8080", "t", False),
    ],
)
def test_a_token_that_others_on_the_way_can_read_is_warned_about(url, token, is_told, caplog):
    Connection(parse_address(url), token).close()
    assert ("without encryption" in caplog.text) == is_told


# ---- A client loads neither Spark nor the server


PROBE = """
import json, pkgutil, sys
from importlib import import_module
import omnigraph.client
for module in pkgutil.iter_modules(omnigraph.client.__path__):
    import_module(f"omnigraph.client.{module.name}")
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_a_client_loads_neither_spark_nor_the_server() -> None:
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert "httpx" in loaded, "the probe sees what is loaded"
    assert loaded & {"pyspark", "py4j", "starlette", "uvicorn", "cedarpy", "mcp"} == set()
