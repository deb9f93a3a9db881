"""Nonsense of every kind, made by Hypothesis: it is refused with the one envelope, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from omnigraph.server.routing import openapi_document
from omnigraph.server.service import LONGEST_DELAY_S, UnknownTokens
from support.servers import QUERIES, SCHEMA, client_of, copy_graph, guarded_server, open_server
from support.subtests import each_case

GRAPH = "/graphs/default"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
CODES = {"unauthorized", "forbidden", "bad_request", "not_found", "method_not_allowed", "conflict", "too_many_requests"}
#: Signs of the inside of a server in what it tells.
INSIDE = ("Traceback", 'File "', "site-packages", "omnigraph-load-", "panicked", "LanceError")
#: Words of the library that reads bodies.
INSIDE += ("Input should be", "Field required", "Extra inputs", "Value error", "Invalid JSON")

few = settings(
    max_examples=15,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

POSTS = {
    "query": {
        "query": "query",
        "name": "text",
        "params": "map",
        "branch": "name",
        "snapshot": "name",
        "version": "number",
        "as_of": "moment",
    },
    "read": {"query_source": "query", "query_name": "text", "params": "map", "branch": "name"},
    "explain": {"query": "query", "params": "map", "branch": "name", "analyze": "truth"},
    "mutate": {"query": "query", "params": "map", "branch": "name"},
    "queries/older_than": {"params": "map", "branch": "name", "snapshot": "name", "expect_mutation": "truth"},
    "queries/add_person": {"params": "map", "branch": "name"},
    "schema/apply": {"schema_source": "schema", "allow_data_loss": "truth", "backfill": "map"},
    "load": {"data": "records", "branch": "name", "from": "name", "mode": "text", "grammar": "text"},
    "export": {"branch": "name", "snapshot": "name", "version": "number", "as_of": "moment", "type_names": "list"},
    "changes/baseline": {"branch": "name", "kind": "list", "type": "list", "op": "list"},
    "branches": {"name": "name", "from": "name"},
    "branches/merge": {
        "source": "name",
        "target": "name",
        "strategy": "text",
        "dry_run": "truth",
        "delete_branch": "truth",
    },
    "mcp": {"jsonrpc": "text", "method": "text", "id": "number", "params": "map"},
}
GETS = {
    "snapshot": {"branch": "name", "version": "number"},
    "entity": {
        "type": "text",
        "id": "text",
        "branch": "name",
        "snapshot": "name",
        "version": "number",
        "as_of": "moment",
    },
    "blob": {"entity": "kind", "type": "text", "id": "text", "property": "text", "branch": "name", "snapshot": "name"},
    "commits": {"branch": "name", "actor": "text"},
    "log": {"branch": "name"},
    "diff": {"from": "name", "to": "name", "limit": "number", "page_token": "text", "kind": "kind", "op": "text"},
    "changes": {
        "branch": "name",
        "start": "text",
        "cursor": "text",
        "limit": "number",
        "max_commits": "number",
        "max_bytes": "number",
    },
}

texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "",
            "main",
            " main ",
            "ada",
            "node:Person",
            "Person",
            "now",
            "after:",
            "insert",
            "\0",
            "'",
            '"',
            "`",
            "\\",
            "%",
            "../..",
            "{",
            "ø" * 300,
        ]
    ),
)
numbers = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**53, 2**63, -(2**63) - 1, 2**64, 10**300]),
    st.floats(),
    st.booleans(),
)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8
)
FORMS = {
    "text": texts,
    "name": st.one_of(
        texts, st.sampled_from(["01ARZ3NDEKTSV4RRFFQ69G5FAV", "main/x", "x.lock", "__x", "x" * 300, "\u202emain"])
    ),
    "query": st.one_of(
        texts,
        st.sampled_from(
            [
                "query q() { match { $p: Person } return { $p.name as n } }",
                "query q($a: I32) { match { $p: Person  $p.age > $a } return { count($p) as n } }",
                'query q() { delete Person where name = "nobody" }',
                "query q() { match { " + "not { " * 300,
            ]
        ),
    ),
    "schema": st.one_of(
        texts, st.sampled_from([SCHEMA, "node X {", "node X { a: I32 @range(1..0) }", "edge E: A -> B"])
    ),
    "records": st.one_of(texts, values.map(json.dumps)),
    "moment": st.one_of(
        texts,
        st.datetimes().map(str),
        st.sampled_from(["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-W01"]),
    ),
    "kind": st.one_of(texts, st.sampled_from(["node", "edge"])),
    "number": numbers,
    "truth": st.booleans(),
    "map": st.dictionaries(st.one_of(texts, st.sampled_from(["a", "age", "name"])), values, max_size=3),
    "list": st.lists(texts, max_size=3),
}


def members(fields: dict[str, str]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies and query strings that are nearly right: members may be missing, null, or of another type."""
    right = {name: st.one_of(FORMS[form], FORMS[form], values) for name, form in fields.items()}
    return st.fixed_dictionaries({}, optional=right)


@pytest.fixture(scope="module")
def server(pristine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An open server, so that everything gets through to the graph; stored queries keep the schema as it is."""
    root = tmp_path_factory.mktemp("fuzzed")
    (root / "queries.gq").write_text(QUERIES, encoding="utf-8")
    uri = copy_graph(pristine, root)
    with open_server(uri, queries=root / "queries.gq") as service, client_of(service) as client:
        yield client


def check(answer: Any, *, has_body: bool = True) -> None:
    """Whatever it is, it is no failure of the server, and tells nothing about its inside."""
    assert answer.status_code < 500, answer.text
    assert not any(sign in answer.text for sign in INSIDE), answer.text
    if not has_body:
        return
    if answer.status_code >= 400:
        body = answer.json()
        assert body["error"]
        assert body["kind"]
        assert body.get("code") in CODES | {None}
    elif answer.headers.get("content-type") == "application/json":
        json.loads(answer.text, parse_constant=pytest.fail)


@each_case("path", POSTS)
def test_bodies_that_are_nearly_right(server, path):
    @few
    @given(body=members(POSTS[path]))
    def send(body: dict[str, Any]) -> None:
        text = json.dumps(body).replace("NaN", "1e999").replace("Infinity", "1e999")
        check(server.post(f"{GRAPH}/{path}", content=text, headers=JSON))

    send()


@each_case("path", GETS)
def test_query_strings_that_are_nearly_right(server, path):
    @few
    @given(params=members(GETS[path]), repeated=st.booleans())
    def send(params: dict[str, Any], repeated: bool) -> None:
        text = "&".join(f"{name}={quote(str(value), errors='replace')}" for name, value in params.items())
        check(server.get(f"{GRAPH}/{path}?{text}{f'&{text}' if repeated else ''}"))

    send()


@few
@given(
    body=st.binary(max_size=60) | values.map(json.dumps).map(str.encode), path=st.sampled_from([*POSTS, "load/ndjson"])
)
@example(body=b"[" * 100_000, path="query")
@example(body=b'{"a":' * 100_000, path="mutate")
@example(body=b'{"query":"\\ud800"}', path="query")
@example(body=b'{"version":' + b"9" * 5000 + b"}", path="query")
@example(body=b'{"\\u0000":NaN}', path="export")
@example(body=b"\xff\xfe{\x00}\x00", path="load")
@example(body=b"[" * 100_000, path="load/ndjson")
@example(body=b'{"type":"Person","data":{"name":"\\ud800"}}', path="load/ndjson")
@example(body=b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}", path="query")
def test_bodies_that_are_no_bodies(server, body, path):
    headers = NDJSON if path == "load/ndjson" else JSON
    answer = server.post(f"{GRAPH}/{path}", content=body, headers=headers)
    check(answer)
    assert len(answer.content) < 10_000 or answer.status_code == 200


@few
@given(
    segments=st.lists(texts, min_size=1, max_size=3),
    method=st.sampled_from(["GET", "POST", "DELETE", "HEAD", "PATCH"]),
    below=st.sampled_from(
        ["", f"{GRAPH}/", f"{GRAPH}/commits/", f"{GRAPH}/queries/", f"{GRAPH}/branches/", "/graphs/", "/page/"]
    ),
)
def test_paths_that_nobody_made(server, segments, method, below):
    path = "/".join(quote(segment, safe="", errors="replace") for segment in segments)
    answer = server.request(method, f"{below}/{path}".replace("//", "/"))
    check(answer, has_body=method != "HEAD")


HEADERS = [
    "authorization",
    "content-type",
    "accept",
    "range",
    "if-match",
    "if-none-match",
    "if-range",
    "origin",
    "host",
    "omnigraph-if-graph-commit",
    "content-encoding",
    "x-forwarded-host",
    "cookie",
    "content-length",
]
signs = st.binary(max_size=40).map(lambda raw: bytes(byte for byte in raw if byte >= 32 and byte != 127).strip())


@few
@given(headers=st.lists(st.tuples(st.sampled_from(HEADERS), signs), max_size=4))
@example(headers=[("range", b"bytes=" + b"9" * 500 + b"-")])
@example(headers=[("range", b"bytes=\xb2-\xb3")])
@example(headers=[("authorization", b"Bearer a"), ("authorization", b"Bearer b")])
@example(headers=[("content-length", b"\xb2")])
@example(headers=[("accept", b"application/vnd.apache.arrow.stream")])
@example(headers=[("omnigraph-if-graph-commit", b"\xe9" * 26)])
def test_headers_that_make_no_sense(server, headers):
    sent = [(name.encode(), value) for name, value in headers]
    blob = f"{GRAPH}/blob?entity=node&type=Person&id=grace&property=photo"
    has_type = any(name == "content-type" for name, _ in headers)
    body = b'{"query":"query q() { match { $p: Person } return { $p.name as n } }"}'
    check(server.get(blob, headers=sent))
    check(server.head(blob, headers=sent), has_body=False)
    post = sent if has_type else [*sent, (b"content-type", b"application/json")]
    for path in ("query", "mutate/if-graph-commit"):
        check(server.post(f"{GRAPH}/{path}", content=body, headers=post))


def test_tokens_that_nobody_has(uri, tmp_path):
    delays: list[float] = []

    async def note(delay_s: float) -> None:
        delays.append(delay_s)

    with guarded_server(uri, tmp_path) as service, client_of(service) as client:
        # All of them are guesses of one address: its refusals would wait for minutes.
        service.unknown_tokens = UnknownTokens(sleep=note)

        @few
        @given(
            token=st.binary(max_size=60).map(lambda raw: bytes(b for b in raw if b >= 32 and b != 127)),
            scheme=st.sampled_from([b"Bearer", b"bearer", b"Basic", b"", b"Bearer Bearer"]),
        )
        @example(token=b"x" * 10_000, scheme=b"Bearer")
        def send(token: bytes, scheme: bytes) -> None:
            for path in ("/graphs", f"{GRAPH}/snapshot", "/metrics"):
                answer = client.get(path, headers=[(b"authorization", scheme + b" " + token)])
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                check(answer)

        send()
    assert max(delays) == LONGEST_DELAY_S


def test_after_all_of_it_the_graph_is_as_it_was(server):
    names = "query q() { match { $p: Person } return { $p.name as n } }"
    rows = server.post(f"{GRAPH}/query", json={"query": names}).json()["rows"]
    assert {"ada", "alan", "grace"} <= {row["n"] for row in rows}
    metrics = server.get("/metrics").text
    assert "omnigraph_http_requests_in_flight 1.0" in metrics
    assert "omnigraph_streams_open 0.0" in metrics


# ---- The OpenAPI document against the server: what it says is accepted, refused and answered, for every operation


SCHEMATHESIS_NDJSON = "application/x-ndjson"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    f"{method.upper()} {path}" for path, item in openapi_document(is_open=False)["paths"].items() for method in item
]


@schemathesis.serializer(SCHEMATHESIS_NDJSON)
def text_as_it_is(_context: object, value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def server_of_schemathesis(pristine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An open server, so that every request gets to its route; stored queries keep the schema as it is."""
    root = tmp_path_factory.mktemp("described")
    (root / "queries.gq").write_text(QUERIES, encoding="utf-8")
    uri = copy_graph(pristine, root)
    with open_server(uri, queries=root / "queries.gq") as service, client_of(service) as client:
        yield client


@pytest.fixture(scope="module")
def schema(server_of_schemathesis: TestClient) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_dict(server_of_schemathesis.get("/openapi.json").json())


def check_of_schemathesis(
    schema: schemathesis.BaseSchema, server_of_schemathesis: TestClient, label: str, examples: int
) -> None:
    """Send what the document allows, and what it does not, and hold every answer against it."""
    method, _, path = label.partition(" ")
    operation = schema[path][method]
    modes = [GenerationMode.POSITIVE]
    if operation.query or operation.headers or operation.body:
        # Every text is right in a path, as far as a document can tell.
        modes.append(GenerationMode.NEGATIVE)
    for mode in modes:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case: Case) -> None:
            if "graph_id" in case.path_parameters:
                case.path_parameters["graph_id"] = "default"
            call = case.as_transport_kwargs(base_url="http://127.0.0.1")
            call["content"] = call.pop("data", None)
            known = ("method", "url", "headers", "params", "json", "content")
            answer = server_of_schemathesis.request(
                **{name: call[name] for name in known if call.get(name) is not None}, follow_redirects=False
            )
            assert "Traceback" not in answer.text
            case.validate_response(answer, checks=CHECKS)

        send()


@each_case("label", OPERATIONS)
def test_the_document_tells_what_the_server_does(schema, server_of_schemathesis, label):
    check_of_schemathesis(schema, server_of_schemathesis, label, examples=1)


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
def test_the_document_tells_what_the_server_does_at_length(schema, server_of_schemathesis, label):
    check_of_schemathesis(schema, server_of_schemathesis, label, examples=100)
