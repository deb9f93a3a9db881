"""JSON of strangers: measured before it is made, and long texts that are never whole in memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.server import untrusted_json
from omnigraph.server.settings import ServerSettings
from omnigraph.server.untrusted_json import WINDOW_BYTES, measure_json, split_envelope
from support.raw_requests import post
from support.servers import client_of, open_server
from support.subtests import each_case

GRAPH = "/graphs/default"
JSON = {"content-type": "application/json"}
MEBIBYTE = 1024 * 1024
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def count(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def peak_of(work: Callable[[], object]) -> int:
    """The memory that Python objects took at most while something was refused."""
    tracemalloc.start()
    try:
        with pytest.raises((BadRequestError, ResourceLimitError)):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- measuring


@given(json_values, st.booleans())
def test_no_value_escapes_the_count(value, is_ascii):
    body = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert measure_json(body, max_values=10_000).values >= count(value)


@given(st.text(alphabet='\\"[]{},x', max_size=60))
def test_signs_inside_of_texts_are_not_values(text):
    body = json.dumps([text]).encode()
    assert measure_json(body, max_values=100).values == 2


@each_case("shift", range(4))
def test_a_text_goes_on_over_the_end_of_a_window(shift):
    text = "x" * (WINDOW_BYTES - 4 + shift) + '\\\\"\\"' + "," * 200
    assert measure_json(json.dumps([text]).encode(), max_values=3).values == 2


@each_case("piece", [b"[],", b"{},", b"0,", b'"",', b"[", b'{"a":', b'"', b"[[", b'"",""'])
def test_many_values_are_refused_without_being_made(piece):
    body = b"[" + piece * (4 * MEBIBYTE // len(piece))
    assert peak_of(lambda: measure_json(body, max_values=100_000)) < 4 * MEBIBYTE


def test_depth_is_found_in_the_bytes():
    assert measure_json(b"[" * 100 + b"]" * 100, max_values=1000).values == 101
    with pytest.raises(BadRequestError, match="deeply"):
        measure_json(b"[" * 101 + b"]" * 101, max_values=1000)


# ---- the body of a load


@given(text=st.text(max_size=200), is_ascii=st.booleans(), size=st.integers(16, 40))
def test_a_long_text_is_the_text_that_json_reads(text, is_ascii, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(untrusted_json, "_SHORT_BYTES", 0)
        patch.setattr(untrusted_json, "WINDOW_BYTES", size)
        patch.setattr("omnigraph.server.untrusted_json.WINDOW_BYTES", size)
        body = json.dumps({"data": text}, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
        if not text:
            return
        # Only `data` may be long, and here one byte is: the name of the member is left to the patched bound.
        begin, end = next(span for span in untrusted_json._texts(body) if span[0] > 7)
        found = untrusted_json.LongText(body, begin, end)
        assert "".join(found.pieces()) == json.loads(body)["data"]


def test_a_load_of_a_long_text_is_split():
    text = 'a\\"\n\u20ac\U0001f600' * WINDOW_BYTES
    for is_ascii in (True, False):
        body = json.dumps({"branch": "draft", "data": text}, ensure_ascii=is_ascii).encode()
        document, long = split_envelope(body, "data")
        assert document == {"branch": "draft", "data": ""}
        assert long is not None
        assert "".join(long.pieces()) == text


@each_case(
    "body",
    [
        {"branch": "x" * 2 * WINDOW_BYTES},
        {"data": "x" * 2 * WINDOW_BYTES, "branch": "y" * 2 * WINDOW_BYTES},
        {"x" * 2 * WINDOW_BYTES: "data"},
        ["x" * 2 * WINDOW_BYTES],
        {"data": {"data": "x" * 2 * WINDOW_BYTES}},
    ],
)
def test_only_the_data_of_a_load_may_be_long(body):
    with pytest.raises(BadRequestError, match="only `data`"):
        split_envelope(json.dumps(body).encode(), "data")


@each_case("text", ['{"data": "x', '{"data": "x"', '{"data": "x\\q"}', '{"data": "x\x01"}'])
def test_a_load_that_is_not_json_is_refused(text):
    long = text.replace("x", "x" * 2 * WINDOW_BYTES)
    with pytest.raises(BadRequestError):
        list(split_envelope(long.encode(), "data")[1].pieces())


def test_halves_of_characters_in_a_long_text_are_refused():
    for half in ("\\ud83d", "\\ude00", "\\ud83dx", "\\ud83d" * WINDOW_BYTES):
        body = ('{"data": "' + "x" * 2 * WINDOW_BYTES + half + '"}').encode()
        _, long = split_envelope(body, "data")
        assert long is not None
        with pytest.raises(BadRequestError, match="half of a character"):
            list(long.pieces())


# ---- over HTTP


@pytest.mark.parametrize("path", ["load", "ingest"])
def test_a_load_of_brackets_is_refused_at_once(uri, path):
    with open_server(uri) as service, client_of(service) as client:
        for body in (b"[" + b"[]," * MEBIBYTE, b'{"data":' + b"[" * MEBIBYTE):
            refused = client.post(f"{GRAPH}/{path}", content=body, headers=JSON)
            assert refused.status_code in (400, 413), refused.text
            assert refused.json()["code"] == "bad_request"
        assert service.bodies.held_bytes == 0


@pytest.mark.parametrize("path", ["load", "query"])
def test_a_body_that_begins_with_too_many_values_is_not_read_to_its_end(uri, path):
    settings = ServerSettings(body_max_values=1000)
    with open_server(uri, settings=settings) as service:
        pieces = [b"[], " * 4096] * 1000
        answer = post(service, f"{GRAPH}/{path}", pieces, headers=JSON)
        assert answer.status == 413
        assert answer.taken == 4, "64 KiB"


@pytest.mark.parametrize("path", ["query", "mutate", "mcp", "branches", "schema/apply", "export"])
def test_a_body_of_many_values_is_refused(uri, path):
    with (
        open_server(uri, settings=ServerSettings(body_max_values=1000)) as service,
        client_of(service) as client,
    ):
        body = json.dumps({"params": {"x": [[]] * 1000}}).encode()
        refused = client.post(f"{GRAPH}/{path}", content=body, headers=JSON)
        assert refused.status_code == 413
        assert refused.json()["resource_limit"]["resource"] == "http_request_values"


def test_a_long_load_arrives_as_it_was_sent(client):
    bio = 'tab\t quote" back\\slash \u20ac \U0001f600 ' * 4000
    records = [{"type": "Person", "data": {"name": f"n{i}", "bio": bio}} for i in range(3)]
    data = "\n".join(json.dumps(record) for record in records)
    assert client.post(f"{GRAPH}/load", json={"data": data}).json()["total_entities"] == 3
    found = client.get(f"{GRAPH}/entity", params={"type": "node:Person", "id": "n2"}).json()
    assert found["entity"]["properties"]["bio"] == bio


def test_bodies_of_all_requests_share_their_memory(uri):
    settings = ServerSettings(bodies_max_bytes=20_000)
    query = "query q() { match { $p: Person } return { $p.name } }"
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        assert client.post(f"{GRAPH}/query", json={"query": query}).status_code == 200
        service.bodies.add(19_900)
        refused = client.post(f"{GRAPH}/query", json={"query": query})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        service.bodies.add(-19_900)
        unannounced = [b'{"query": "', b"x" * 19_000, b"y" * 19_000]
        assert post(service, f"{GRAPH}/query", unannounced, headers=JSON).status == 429
        assert service.bodies.held_bytes == 0
        assert client.post(f"{GRAPH}/query", json={"query": query}).status_code == 200
