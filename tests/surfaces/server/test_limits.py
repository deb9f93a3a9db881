"""Bodies that are too large, too slow or never complete, and clients that want too much at once."""

from __future__ import annotations

import itertools
import json
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.server import untrusted_json
from omnigraph.server.service import Service
from omnigraph.server.settings import ServerSettings
from omnigraph.server.untrusted_json import WINDOW_BYTES, measure_json, split_envelope
from support.servers import GONE, POLICY_WITH_GUEST, SILENCE, TOKENS, client_of, guarded_server, open_server, post
from support.subtests import each_case

GRAPH = "/graphs/default"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
TINY = ServerSettings(body_max_bytes=100, load_body_max_bytes=200, body_idle_s=0.02, body_total_s=0.05)
ADD = "query a($n: String) { insert Person { name: $n } }"


@pytest.fixture
def tiny(uri: str) -> Iterator[Service]:
    with open_server(uri, settings=TINY) as service:
        yield service


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bodies of loads are kept while they are read."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def head_of(service: Service) -> str:
    return service.graphs["default"].graph.snapshot().commit_id


# ---- bodies


@each_case(
    ("path", "kind", "limit", "setting"),
    [("query", JSON, 100, "OMNIGRAPH_BODY_MAX_BYTES"), ("load/ndjson", NDJSON, 200, "OMNIGRAPH_LOAD_BODY_MAX_BYTES")],
)
def test_a_body_that_says_it_is_too_large_is_refused_unread(tiny, path, kind, limit, setting):
    headers = {**kind, "content-length": "5000000000"}
    answer = post(tiny, f"{GRAPH}/{path}", [b"x", SILENCE], headers=headers)
    assert answer.status == 413
    assert answer.document["resource_limit"]["limit"] == limit
    assert answer.document["error"] == (
        f"body of the request: 4.7 GiB, above the limit of {limit} B; "
        f"send less at once, or raise {setting} on the server"
    )
    assert answer.headers["connection"] == "close"
    assert answer.taken == 0


@each_case(("path", "kind", "pieces"), [("query", JSON, 3), ("load/ndjson", NDJSON, 5)])
def test_a_body_that_does_not_say_how_large_it_is_is_read_to_the_limit(tiny, path, kind, pieces):
    endless = (b"x" * 50 for _ in iter(int, 1))
    answer = post(tiny, f"{GRAPH}/{path}", endless, headers=kind)
    assert answer.status == 413
    assert answer.document["code"] == "bad_request"
    assert answer.taken == pieces


def test_a_body_that_is_longer_than_it_said_is_refused_at_the_limit(tiny):
    headers = {**JSON, "content-length": "10"}
    answer = post(tiny, f"{GRAPH}/query", [b"x" * 60] * 9, headers=headers)
    assert answer.status == 413
    assert answer.taken == 2


@each_case(("path", "kind"), [("query", JSON), ("load", JSON), ("load/ndjson", NDJSON), ("mcp", JSON)])
def test_a_body_that_stops_coming_is_given_up(tiny, spool, path, kind):
    answer = post(tiny, f"{GRAPH}/{path}", [b"{", SILENCE], headers=kind)
    assert answer.status == 408
    assert answer.document["kind"] == "request_timeout"
    assert answer.headers["connection"] == "close"
    assert not list(spool.iterdir())


def test_a_body_that_drips_is_given_up(uri):
    # Every byte comes at once, so that only the time altogether can end it; there is none.
    settings = ServerSettings(body_idle_s=60, body_total_s=0)
    with open_server(uri, settings=settings) as service:
        answer = post(service, f"{GRAPH}/query", [SILENCE], headers=JSON)
    assert answer.status == 408


def test_who_may_do_it_nowhere_is_refused_before_the_body_is_read(uri, tmp_path):
    token = {"authorization": f"Bearer {TOKENS['act-stranger']}"}
    with guarded_server(uri, tmp_path, policy=POLICY_WITH_GUEST) as service:
        for path in (
            *("load", "load/ndjson", "mutate", "export", "branches", "branches/merge"),
            *("schema/apply", "query", "changes/baseline"),
        ):
            headers = token | (NDJSON if path == "load/ndjson" else JSON)
            answer = post(service, f"{GRAPH}/{path}", [SILENCE], headers=headers)
            assert (answer.status, answer.taken) == (403, 0), path


def test_a_client_that_leaves_during_its_upload_leaves_nothing(tiny, spool):
    before = head_of(tiny)
    record = json.dumps({"type": "Person", "data": {"name": "half"}}).encode()
    answer = post(tiny, f"{GRAPH}/load/ndjson", [record, b"\n", GONE], headers=NDJSON)
    assert answer.status == 400
    assert head_of(tiny) == before
    assert not list(spool.iterdir())
    with tiny.admission.admitted(None, TINY.actor_bytes_max):
        pass  # nobody holds a byte


# ---- streams


@contextmanager
def large_export(uri: str) -> Iterator[Service]:
    with open_server(uri) as service:
        graph = service.graphs["default"].graph
        graph.mutate('query q($b: String) { insert Person { name: "long", bio: $b } }', {"b": "x" * 1_000_000})
        yield service


def test_a_client_that_leaves_during_an_export_frees_its_place(uri):
    with large_export(uri) as service:
        left = post(service, f"{GRAPH}/export", [b"{}"], headers=JSON, leaves_after=1)
        assert (left.status, left.is_complete) == (200, False)
        again = post(service, f"{GRAPH}/export", [b"{}"], headers=JSON)
        assert (again.status, again.is_complete) == (200, True)
        assert len(again.body) > 1_000_000


def test_a_caller_has_two_exports_of_a_graph_and_all_have_four(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path) as service,
        client_of(service, "act-nadia") as nadia,
        client_of(service, "act-bot") as bot,
    ):
        slots = service.graphs["default"].slots
        assert [slots.take("act-nadia") for _ in range(3)] == [True, True, False]
        for path in ("export", "changes/baseline"):
            refused = nadia.post(f"{GRAPH}/{path}", json={})
            assert refused.status_code == 413
            assert refused.json()["resource_limit"]["resource"] == "stream_export_slots"
            assert refused.json()["resource_limit"]["limit"] == 2
            assert "OMNIGRAPH_EXPORTS_PER_CALLER" in refused.json()["error"]
            assert bot.post(f"{GRAPH}/{path}", json={}).status_code == 200, "another caller"
        assert [slots.take("one"), slots.take("two")] == [True, True]
        refused = bot.post(f"{GRAPH}/export", json={})
        assert (refused.status_code, refused.json()["resource_limit"]["limit"]) == (413, 4)
        assert "OMNIGRAPH_EXPORTS_PER_GRAPH" in refused.json()["error"]
        slots.give_back("one")
        assert bot.post(f"{GRAPH}/export", json={}).status_code == 200


def test_eight_exports_of_all_graphs_run_at_a_time(client):
    service = client.app.state.service
    callers = [f"caller {number}" for number in range(9)]
    assert [service.streams.take(name) for name in callers] == [True] * 8 + [False]
    refused = client.post(f"{GRAPH}/export", json={})
    assert refused.status_code == 413
    assert refused.json()["resource_limit"] == {
        "resource": "stream_export_transport_bytes",
        "limit": 2 * 1024 * 1024,
        "actual": 2 * 1024 * 1024 + 256 * 1024,
        "advice": refused.json()["resource_limit"]["advice"],
    }
    service.streams.give_back(callers[0])
    assert client.post(f"{GRAPH}/export", json={}).status_code == 200, "the refused one kept no place"


@each_case("body", [{"branch": "nope"}, {"type_names": ["Nope"]}, {"snapshot": "x"}, {"as_of": "x"}])
def test_an_export_that_is_refused_keeps_no_place(client, body):
    for _ in range(2):
        assert client.post(f"{GRAPH}/export", json=body).status_code in (400, 404)
    assert client.post(f"{GRAPH}/export", json={}).status_code == 200


# ---- admission


WRITES = {
    "mutate": {"json": {"query": ADD, "params": {"n": "x"}, "branch": "draft"}},
    "change": {"json": {"query": ADD, "params": {"n": "x"}, "branch": "draft"}},
    "load": {"json": {"data": "", "branch": "draft"}},
    "ingest": {"json": {"data": "", "branch": "draft"}},
    "load/ndjson?branch=draft": {"content": b"", "headers": NDJSON},
    "branches": {"json": {"name": "other"}},
    "branches/merge": {"json": {"source": "draft"}},
}


def test_the_seventeenth_write_of_an_actor_is_refused(guarded):
    with guarded("act-nadia") as nadia, ExitStack() as held:
        assert nadia.post(f"{GRAPH}/branches", json={"name": "draft"}).status_code == 200
        service = nadia.app.state.service
        for _ in range(16):
            held.enter_context(service.admission.admitted("act-nadia", 1))
        for path, call in WRITES.items():
            refused = nadia.post(f"{GRAPH}/{path}", **call)
            assert (path, refused.status_code) == (path, 429)
            assert refused.headers["retry-after"] == "60"
            assert refused.json()["code"] == "too_many_requests"
        assert nadia.delete(f"{GRAPH}/branches/draft").status_code == 429
        assert nadia.get(f"{GRAPH}/branches").json()["branches"] == ["draft", "main"]
        refusals = 'omnigraph_admission_refused_total{graph="default"} 8.0'
        assert refusals in nadia.get("/metrics").text
    with guarded("act-nadia") as nadia:
        assert nadia.post(f"{GRAPH}/mutate", **WRITES["mutate"]).status_code == 200


def test_the_writes_of_one_actor_do_not_count_for_another(uri, tmp_path):
    settings = ServerSettings(actor_inflight_max=1)
    with (
        guarded_server(uri, tmp_path, settings=settings) as service,
        client_of(service, "act-nadia") as nadia,
        service.admission.admitted("act-bot", 1),
    ):
        assert nadia.post(f"{GRAPH}/branches", json={"name": "draft"}).status_code == 200


def test_the_bytes_of_an_actor_are_limited_too(uri):
    settings = ServerSettings(actor_bytes_max=10_000)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        large = {"query": ADD, "params": {"n": "x" * 3000}}
        assert client.post(f"{GRAPH}/mutate", json=large).status_code == 429
        small = {"query": ADD, "params": {"n": "small"}}
        assert client.post(f"{GRAPH}/mutate", json=small).status_code == 200


def test_policy_is_asked_before_admission(uri, tmp_path):
    settings = ServerSettings(actor_inflight_max=1)
    with (
        guarded_server(uri, tmp_path, settings=settings) as service,
        client_of(service, "act-bot") as bot,
        service.admission.admitted("act-bot", 1),
    ):
        body = {"query": ADD, "params": {"n": "x"}}
        assert bot.post(f"{GRAPH}/mutate", json=body).status_code == 403


def test_a_load_that_does_not_say_its_size_holds_what_has_come(uri):
    settings = ServerSettings(actor_bytes_max=600)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        path = f"{GRAPH}/load/ndjson?mode=append"
        small = [b'{"type":"Person","data":', b'{"name":"zoe"}}']
        assert client.post(path, content=iter(small), headers=NDJSON).status_code == 200
        large = [b'{"type":"Person","data":', b'{"name":"' + b"x" * 90 + b'"}}']
        refused = client.post(path, content=iter(large), headers=NDJSON)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        assert not service.admission._bytes, "everything was given back"


def test_a_load_is_admitted_before_its_body_is_read(uri):
    settings = ServerSettings(actor_bytes_max=50)
    with open_server(uri, settings=settings) as service:
        for path in ("load", "ingest"):
            answer = post(service, f"{GRAPH}/{path}", headers=JSON | {"content-length": "60"}, pieces=[SILENCE])
            assert answer.status == 429, path


def test_a_small_load_needs_no_spark_however_large_one_may_be(uri):
    settings = ServerSettings(load_body_max_bytes=1 << 30)
    with open_server(uri, settings=settings) as service, client_of(service) as client:
        line = '{"type":"Person","data":{"name":"zoe"}}'
        receipt = client.post(f"{GRAPH}/load/ndjson?mode=append", content=line, headers=NDJSON).json()
    assert receipt["engine"] == {"name": "local", "reason": "39 B of input, Spark starts above 32 MiB"}


# ---- JSON of strangers: measured before it is made, and long texts that are never whole in memory


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


def test_a_load_of_brackets_is_refused_at_once(uri):
    bodies = (b"[" + b"[]," * MEBIBYTE, b'{"data":' + b"[" * MEBIBYTE)
    with open_server(uri) as service, client_of(service) as client:
        for path, body in itertools.product(("load", "ingest"), bodies):
            refused = client.post(f"{GRAPH}/{path}", content=body, headers=JSON)
            assert refused.status_code in (400, 413), refused.text
            assert refused.json()["code"] == "bad_request"
        assert service.bodies.held_bytes == 0


def test_a_body_of_many_values_is_refused_and_not_read_to_its_end(uri):
    pieces = [b"[], " * 4096] * 1000
    body = json.dumps({"params": {"x": [[]] * 1000}}).encode()
    with open_server(uri, settings=ServerSettings(body_max_values=1000)) as service, client_of(service) as client:
        for path in ("load", "query"):
            answer = post(service, f"{GRAPH}/{path}", pieces, headers=JSON)
            assert (answer.status, answer.taken) == (413, 4), "64 KiB"
        for path in ("query", "mutate", "mcp", "branches", "schema/apply", "export"):
            refused = client.post(f"{GRAPH}/{path}", content=body, headers=JSON)
            assert refused.status_code == 413, path
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
