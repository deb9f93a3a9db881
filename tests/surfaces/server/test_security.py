"""Ways around the policy, out of the graph and into the server's secrets: each is closed."""

from __future__ import annotations

import json
import logging
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from starlette.testclient import TestClient

from omnigraph.server.boot import open_service
from omnigraph.server.settings import ServerSettings
from support.servers import QUERIES, TOKENS, client_of, configured_server, copy_graph, guarded_server, open_server, post
from support.subtests import each_case

GRAPH = "/graphs/default"
PEOPLE = "query q() { match { $p: Person } return { $p.name as name } }"
ADD = 'query q() { insert Person { name: "eve" } }'
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
UNKNOWN_COMMIT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SECRET = "secret-person"
#: The agent works on drafts; what is on `main` and `vault` is not for it.
POLICY = """
version: 1
groups: { owners: [act-nadia], agents: [act-bot] }
protected_branches: [main, vault]
rules:
  - id: owners
    allow: { actors: { group: owners }, actions: [read, export, change], branch_scope: any }
  - id: owners-branch
    allow: { actors: { group: owners }, actions: [branch_create, branch_delete, branch_merge, schema_apply],
             target_branch_scope: any }
  - id: owners-run
    allow: { actors: { group: owners }, actions: [invoke_query] }
  - id: agents
    allow: { actors: { group: agents }, actions: [read, export, change], branch_scope: unprotected }
  - id: agents-branch
    allow: { actors: { group: agents }, actions: [branch_create, branch_merge], target_branch_scope: unprotected }
"""


@pytest.fixture(scope="module")
def vault(pristine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A graph with a branch that the agent must not see: clients of both, and the commit on it."""
    root = tmp_path_factory.mktemp("vault")
    with (
        guarded_server(copy_graph(pristine, root), root, policy=POLICY) as service,
        client_of(service, "act-nadia") as owner,
        client_of(service, "act-bot") as agent,
    ):
        for name in ("vault", "draft"):
            assert owner.post(f"{GRAPH}/branches", json={"name": name}).status_code == 200
        query = f'query q() {{ insert Person {{ name: "{SECRET}" }} }}'
        made = owner.post(f"{GRAPH}/mutate", json={"query": query, "branch": "vault"}).json()
        yield {"owner": owner, "agent": agent, "commit": made["commit"]["graph_commit_id"]}


# ---- branches and commits under other names

BLANKS = ["{}", " {}", "{}\n", "\u2003{}", "\x1f{}\x85"]


@each_case("form", [*BLANKS, "{}/", "./{}", "{}\0"])
def test_a_branch_that_must_not_be_read_is_not_read_under_another_spelling(vault, form):
    agent: TestClient = vault["agent"]
    name = form.format("vault")
    entity = {"type": "node:Person", "id": SECRET}
    blob = {"entity": "node", "type": "Person", "id": SECRET, "property": "photo"}
    answers = [
        agent.post(f"{GRAPH}/query", json={"query": PEOPLE, "branch": name}),
        agent.post(f"{GRAPH}/read", json={"query_source": PEOPLE, "branch": name}),
        agent.post(f"{GRAPH}/explain", json={"query": PEOPLE, "branch": name}),
        agent.post(f"{GRAPH}/export", json={"branch": name}),
        agent.post(f"{GRAPH}/changes/baseline", json={"branch": name}),
        agent.get(f"{GRAPH}/entity", params={**entity, "branch": name}),
        agent.get(f"{GRAPH}/blob", params={**blob, "branch": name}),
        agent.get(f"{GRAPH}/changes", params={"branch": name, "start": "beginning"}),
        agent.get(f"{GRAPH}/diff", params={"from": "draft", "to": name}),
        *(agent.get(f"{GRAPH}/{path}", params={"branch": name}) for path in ("snapshot", "commits", "log")),
    ]
    for answer in answers:
        assert answer.status_code in (400, 403), answer.text
        assert SECRET not in answer.text.replace(f"id={SECRET}", "")


@each_case("form", BLANKS)
def test_a_commit_of_a_hidden_branch_is_one_that_does_not_exist(vault, form):
    agent: TestClient = vault["agent"]

    def answers(commit: str) -> list[tuple[int, str]]:
        name = form.format(commit)
        entity = {"type": "node:Person", "id": SECRET, "snapshot": name}
        found = [
            agent.post(f"{GRAPH}/query", json={"query": PEOPLE, "snapshot": name}),
            agent.post(f"{GRAPH}/export", json={"snapshot": name}),
            agent.get(f"{GRAPH}/entity", params=entity),
            agent.get(f"{GRAPH}/diff", params={"from": "draft", "to": name}),
            agent.get(f"{GRAPH}/diff", params={"from": name, "to": "draft"}),
            agent.post(f"{GRAPH}/branches", json={"name": "stolen", "from": name}),
            agent.post(f"{GRAPH}/load", json={"data": "", "branch": "stolen", "from": name}),
            agent.get(f"{GRAPH}/commits/{commit}"),
            agent.get(f"{GRAPH}/commits/{commit}/changes"),
            agent.get(f"{GRAPH}/changes", params={"branch": "draft", "start": f"after:{commit}"}),
        ]
        return [(answer.status_code, answer.text.replace(commit, "ID")) for answer in found]

    hidden = answers(str(vault["commit"]))
    assert hidden == answers(UNKNOWN_COMMIT)
    assert {status for status, _ in hidden} <= {400, 404}
    owner: TestClient = vault["owner"]
    assert owner.get(f"{GRAPH}/commits/{vault['commit']}").status_code == 200
    assert owner.get(f"{GRAPH}/branches").json()["branches"] == ["draft", "main", "vault"]


@each_case("form", BLANKS)
def test_a_protected_branch_is_not_written_under_another_spelling(vault, form):
    agent: TestClient = vault["agent"]
    name = form.format("main")
    records = json.dumps({"type": "Person", "data": {"name": "eve"}})
    lines = {"params": {"branch": name, "from": "draft"}, "content": records, "headers": NDJSON}
    answers = [
        agent.post(f"{GRAPH}/mutate", json={"query": ADD, "branch": name}),
        agent.post(f"{GRAPH}/change", json={"query": ADD, "branch": name}),
        agent.post(f"{GRAPH}/load", json={"data": records, "branch": name}),
        agent.post(f"{GRAPH}/load", json={"data": records, "branch": name, "from": "draft"}),
        agent.post(f"{GRAPH}/load/ndjson", **lines),
        agent.post(f"{GRAPH}/branches/merge", json={"source": "draft", "target": name}),
        agent.post(f"{GRAPH}/branches", json={"name": name}),
        agent.delete(f"{GRAPH}/branches/main"),
        agent.post(f"{GRAPH}/schema/apply", json={"schema_source": "node X { a: String @key }"}),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers)


@each_case("name", ["m\u0430in", "main\u200b", "ｍain", "../main", "a/../main"])
def test_names_that_look_like_a_protected_branch_are_no_names(vault, name):
    agent: TestClient = vault["agent"]
    refused = agent.post(f"{GRAPH}/branches", json={"name": name, "from": "draft"})
    assert refused.status_code == 400
    assert "is not a branch name" in refused.json()["error"]


def test_no_branch_can_be_mistaken_for_a_commit(vault):
    agent: TestClient = vault["agent"]
    for name in (vault["commit"], f" {vault['commit']}"):
        refused = agent.post(f"{GRAPH}/branches", json={"name": name, "from": "draft"})
        assert refused.status_code == 400
        assert "mistaken for the commit" in refused.json()["error"]
    load = {"data": "", "branch": vault["commit"], "from": "draft"}
    assert agent.post(f"{GRAPH}/load", json=load).status_code == 400


@pytest.mark.parametrize("name", ["x" * 101, "a/" * 25 + "b"])
def test_a_name_that_no_disk_takes_is_refused_before_anything_is_made(client, name):
    load = {"data": "", "branch": name, "from": "main"}
    for path, body in (("branches", {"name": name}), ("load", load)):
        refused = client.post(f"{GRAPH}/{path}", json=body)
        assert refused.status_code == 400
        assert "at most 100 characters" in refused.json()["error"]
    longest = "a/" * 24 + "b" * 52
    assert client.post(f"{GRAPH}/branches", json={"name": longest}).status_code == 200
    assert client.post(f"{GRAPH}/mutate", json={"query": ADD, "branch": longest}).status_code == 200


# ---- stored queries


@each_case("suffix", ["", "/if-graph-commit"])
@each_case(
    "call",
    [
        {},
        {"json": {}},
        {"json": {"expect_mutation": True}},
        {"json": {"branch": "vault"}},
        {"json": {"nonsense": 1}},
        {"content": b"{", "headers": JSON},
        {"content": b"x", "headers": {"content-type": "text/plain"}},
        {"content": b"x" * 2_000_000, "headers": JSON},
        {"headers": {"Omnigraph-If-Graph-Commit": "nonsense"}},
    ],
)
def test_a_stored_query_that_must_not_be_run_is_one_that_does_not_exist(vault, suffix, call):
    agent: TestClient = vault["agent"]

    def answer(name: str) -> tuple[int, bytes, dict[str, str]]:
        found = agent.post(f"{GRAPH}/queries/{name}{suffix}", **call)
        headers = {name: value for name, value in found.headers.items() if "request-id" not in name}
        return found.status_code, found.content, headers

    answers = [answer(name) for name in ("people", "add_person", "nope", "x" * 500, "%00")]
    assert answers[0][0] == 404
    assert all(other == answers[0] for other in answers)


AROUND = [
    ("people", {"branch": " main"}, 403),
    ("people", {"branch": "vault\n"}, 403),
    ("people", {"snapshot": "HIDDEN"}, 404),
    ("add_person", {"params": {"name": "eve"}}, 403),
    ("add_person", {"params": {"name": "eve"}, "branch": "\u2003vault"}, 403),
    ("add_person", {"params": {"name": "eve"}, "snapshot": "HIDDEN"}, 400),
    ("people", {"branch": "draft"}, 200),
]


def test_a_stored_query_is_no_way_around_the_policy(uri, tmp_path, subtests):
    policy = POLICY.replace("group: owners }, actions: [invoke_query]", "group: agents }, actions: [invoke_query]")
    with (
        guarded_server(uri, tmp_path, policy=policy) as service,
        client_of(service, "act-nadia") as owner,
        client_of(service, "act-bot") as agent,
    ):
        owner.post(f"{GRAPH}/branches", json={"name": "draft"})
        owner.post(f"{GRAPH}/mutate", json={"query": ADD})
        head = owner.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
        for name, body, status in AROUND:
            with subtests.test(f"{name} {body}"):
                sent = {key: head if value == "HIDDEN" else value for key, value in body.items()}
                assert agent.post(f"{GRAPH}/queries/{name}", json=sent).status_code == status
                assert owner.get(f"{GRAPH}/snapshot").json()["graph_commit_id"] == head


def test_what_is_explained_is_not_run(client):
    head = client.get(f"{GRAPH}/snapshot").json()
    body = {"query": ADD, "analyze": True}
    assert client.post(f"{GRAPH}/explain", json=body).status_code == 400
    assert client.post(f"{GRAPH}/query", json={"query": ADD}).status_code == 400
    assert client.get(f"{GRAPH}/snapshot").json() == head


# ---- out of the graph


IDS = ["..", "%2e%2e", "..%2f..%2fetc", "default%2f..%2fdefault", "default%00", "DEFAULT", "%20default", "broken", "é"]


def test_no_other_graph_is_reached_by_its_id(uri, tmp_path, subtests):
    with (
        configured_server(tmp_path, default={"store": uri}, broken={"store": str(tmp_path)}) as service,
        client_of(service) as client,
    ):
        for graph_id in (*IDS, "x" * 5000):
            with subtests.test(graph_id[:100]):
                answer = client.get(f"/graphs/{graph_id}/snapshot")
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
                assert str(tmp_path) not in answer.text
        assert client.get(f"{GRAPH}/snapshot").status_code == 200


@each_case(
    "address",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "../../etc/passwd",
        "https://127.0.0.1/x",
        "http://169.254.169.254/",
        "s3://bucket/key",
        "FILE:///etc/passwd",
    ],
)
def test_no_blob_is_brought_from_outside_that_the_server_does_not_allow(client, address):
    head = client.get(f"{GRAPH}/snapshot").json()
    query = 'query q($b: Blob) { insert Person { name: "eve", photo: $b } }'
    record = json.dumps({"type": "Person", "data": {"name": "eve", "photo": address}})
    answers = [
        client.post(f"{GRAPH}/mutate", json={"query": query, "params": {"b": address}}),
        client.post(f"{GRAPH}/load", json={"data": record}),
        client.post(f"{GRAPH}/load", json={"data": record, "mode": "overwrite"}),
        client.post(f"{GRAPH}/load/ndjson", content=record, headers=NDJSON),
    ]
    for answer in answers:
        assert answer.status_code == 400
        assert "root:" not in answer.text
    assert client.get(f"{GRAPH}/snapshot").json() == head


def test_a_blob_below_an_allowed_base_is_no_way_out_of_it(uri, tmp_path):
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "1.png").write_bytes(b"scan")
    (tmp_path / "private.txt").write_bytes(b"private")
    (tmp_path / "scans" / "link").symlink_to(tmp_path)
    base = f"file://{tmp_path}/scans"
    query = 'query q($b: Blob) { insert Person { name: "eve", photo: $b } }'
    with (
        configured_server(tmp_path, default={"store": uri, "external_blobs": [base]}) as service,
        client_of(service) as client,
    ):
        for path in ("../private.txt", "%2e%2e/private.txt", "..%2fprivate.txt", "link/private.txt"):
            body = {"query": query, "params": {"b": f"{base}/{path}"}}
            refused = client.post(f"{GRAPH}/mutate", json=body)
            assert refused.status_code == 400, path
            assert refused.json()["kind"] == "external_blob_policy"
        body = {"query": query, "params": {"b": f"{base}/1.png"}}
        assert client.post(f"{GRAPH}/mutate", json=body).status_code == 200


def test_a_text_is_never_taken_for_a_path(client, tmp_path):
    (tmp_path / "schema.pg").write_text("node Leak { a: String @key }", encoding="utf-8")
    (tmp_path / "query.gq").write_text(PEOPLE, encoding="utf-8")
    schema, query = str(tmp_path / "schema.pg"), str(tmp_path / "query.gq")
    answers = [
        client.post(f"{GRAPH}/schema/apply", json={"schema_source": schema}),
        client.post(f"{GRAPH}/query", json={"query": query}),
        client.post(f"{GRAPH}/mutate", json={"query": query}),
        client.post(f"{GRAPH}/explain", json={"query": query}),
    ]
    assert [answer.json()["kind"] for answer in answers] == ["compiler"] * 4
    assert not any("Leak" in answer.text for answer in answers)
    load = client.post(f"{GRAPH}/load", json={"data": str(tmp_path / "rows.jsonl")})
    assert load.status_code == 400


# ---- secrets


def test_no_token_is_told_to_anybody(uri, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = "a-token-that-nobody-has"
    told: list[str] = []
    with (
        guarded_server(uri, tmp_path) as service,
        client_of(service, "act-nadia") as nadia,
        client_of(service) as nobody,
    ):
        told += [repr(service.authority), repr(service.authority.tokens), repr(vars(service))]
        token = TOKENS["act-nadia"]
        answers = [
            nadia.get(f"{GRAPH}/snapshot"),
            nadia.get("/metrics"),
            nadia.post(f"{GRAPH}/mutate", json={"query": ADD}),
            nadia.post(f"{GRAPH}/query", content=b"{", headers=JSON),
            nadia.get(f"{GRAPH}/nowhere"),
            nadia.post(f"{GRAPH}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            nobody.get(f"{GRAPH}/snapshot", headers={"Authorization": f"Bearer {wrong}"}),
            nobody.get(f"{GRAPH}/snapshot", headers={"Authorization": wrong}),
            nobody.get(f"{GRAPH}/snapshot", headers={"Authorization": f"Basic {token}"}),
            nobody.get(f"{GRAPH}/snapshot", params={"token": token}),
            nobody.get("/healthz", headers={"Authorization": f"Bearer {token}"}),
        ]
        told += [answer.text + repr(answer.headers) for answer in answers]
    # What the client of this test logs is not said by the server.
    logged = [item for item in caplog.records if not item.name.startswith("httpx")]
    told += [repr(vars(record)) for record in logged]
    assert len(logged) > len(answers)
    for text in told:
        assert wrong not in text
        assert not any(token in text for token in TOKENS.values())


def test_a_token_may_hold_any_character(uri, tmp_path):
    tokens = {"act-nadia": "tökén-✓"}
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens)}
    with guarded_server(uri, tmp_path) as guarded:
        config = guarded.config
    with open_service(config, ServerSettings(), environment=environment) as service:
        for token, status in (("tökén-✓", 200), ("tökén", 401), ("tok\xff", 401)):
            encoded = f"Bearer {token}".encode()
            with client_of(service) as client:
                found = client.get(f"{GRAPH}/snapshot", headers={b"authorization": encoded})
                assert found.status_code == status


@each_case("text", ["{", '{"type":"Person","data":{"name":"ada"}}', "\x00"])
def test_a_refused_load_tells_nothing_about_files_of_the_server(client, text):
    for answer in (
        client.post(f"{GRAPH}/load", json={"data": text, "mode": "append"}),
        client.post(f"{GRAPH}/load/ndjson?mode=append", content=text, headers=NDJSON),
    ):
        assert answer.status_code in (400, 409)
        assert "body:1" in answer.text
        assert "omnigraph-load" not in answer.text


def test_a_refused_schema_tells_nothing_about_files_of_the_server(uri, tmp_path):
    (tmp_path / "queries.gq").write_text(QUERIES, encoding="utf-8")
    queries = tmp_path / "queries.gq"
    with open_server(uri, queries=queries) as service, client_of(service) as client:
        refused = client.post(f"{GRAPH}/schema/apply", json={"schema_source": ""})
        assert refused.status_code == 400
        assert "`people`, line " in refused.json()["error"]
        assert str(tmp_path) not in refused.text


# ---- browsers, proxies and counters


def test_a_page_of_another_origin_cannot_use_an_open_server(uri, tmp_path):
    (tmp_path / "queries.gq").write_text('query wipe() { delete Person where name = "ada" }', encoding="utf-8")
    with open_server(uri, queries=tmp_path / "queries.gq") as service, client_of(service) as client:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:81", "http://127.0.0.1.evil.example", ""):
            # A browser sends this without asking the server first.
            refused = client.post(f"{GRAPH}/queries/wipe", headers={"origin": origin})
            assert (refused.status_code, refused.json()["kind"]) == (403, "forbidden_host"), origin
        own = client.post(f"{GRAPH}/queries/wipe", headers={"origin": "http://127.0.0.1"})
        assert own.json()["affected_nodes"] == 1


def test_a_request_with_two_lengths_is_the_last_one_of_its_connection(uri):
    headers = {**JSON, "content-length": "2", "transfer-encoding": "chunked"}
    with open_server(uri) as service:
        answer = post(service, f"{GRAPH}/query", [b"{}"], headers=headers)
        assert answer.headers["connection"] == "close"
        plain = post(service, f"{GRAPH}/query", [b"{}"], headers=JSON)
        assert "connection" not in plain.headers


def test_methods_that_somebody_makes_up_are_counted_as_one(client):
    for number in range(3):
        assert client.request(f"MADE-UP-{number}", "/healthz").status_code == 405
    text = client.get("/metrics").text
    assert "MADE-UP" not in text
    assert 'method="other",route="/healthz",status="405"} 3.0' in text


@each_case(
    ("path", "methods"),
    [("branches", "GET, POST"), ("blob", "GET, HEAD"), ("query", "POST"), ("branches/merge", "DELETE, POST")],
)
def test_a_wrong_method_is_told_the_right_ones(reader, path, methods):
    refused = reader.put(f"{GRAPH}/{path}")
    assert refused.status_code == 405
    assert refused.headers["allow"] == methods


# ---- cursors that nobody was given


def forged(body: bytes) -> str:
    """A token with the right checksum: it finds damage, it keeps nobody out."""
    check = blake2b(body, digest_size=8, person=b"omni-changes").digest()
    return urlsafe_b64encode(check + body).decode().rstrip("=")


@each_case(
    "body",
    [
        b"[" * 2_900,
        b"{}",
        b'{"v":1}',
        b'{"v":1,"t":"page","b":"\\ud800"}',
        b'{"v":1,"t":"cursor","g":[],"b":{}}',
        b"\xff",
    ],
)
def test_a_forged_cursor_is_refused(reader, body):
    head = reader.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
    token = forged(body)
    for path, params in (
        ("changes", {"cursor": token}),
        ("changes", {"page_token": token}),
        (f"commits/{head}/changes", {"page_token": token}),
        ("diff", {"from": "main", "to": "main", "page_token": token}),
    ):
        refused = reader.get(f"{GRAPH}/{path}", params=params)
        assert refused.status_code == 400
        assert refused.json()["kind"] == "change_cursor_rejected"


def test_a_cursor_of_a_hidden_branch_opens_nothing(vault):
    owner: TestClient = vault["owner"]
    agent: TestClient = vault["agent"]
    params = {"branch": "vault", "start": "beginning", "limit": 1}
    token = owner.get(f"{GRAPH}/changes", params=params).json()["next_page_token"]
    refused = agent.get(f"{GRAPH}/changes", params={"branch": "draft", "page_token": token})
    assert refused.status_code == 400
    denied = agent.get(f"{GRAPH}/changes", params={"branch": "vault", "page_token": token})
    assert denied.status_code == 403


class _Scans(BaseHTTPRequestHandler):
    """Has a scan at every address."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(b"scan")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_address_of_an_external_blob_stays_in_its_header(uri, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Scans) as scans:
        thread = threading.Thread(target=scans.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{scans.server_port}"
        query = 'query q($b: Blob) { insert Person { name: "eve", photo: $b } }'
        address = f"{base}/é%0D%0Ax?名=1"
        people = [{"type": "Person", "data": {"name": name}} for name in ("ada", "grace", "alan")]
        people[0]["data"]["photo"] = address
        with (
            configured_server(tmp_path, default={"store": uri, "external_blobs": [base]}) as service,
            client_of(service) as client,
        ):
            copied = client.post(f"{GRAPH}/mutate", json={"query": query, "params": {"b": address}})
            assert copied.status_code == 200, copied.text
            body = {"data": "\n".join(map(json.dumps, people)), "mode": "overwrite"}
            assert client.post(f"{GRAPH}/load", json=body).status_code == 200
            cell = {"entity": "node", "type": "Person", "id": "ada", "property": "photo"}
            answer = client.get(f"{GRAPH}/blob", params=cell, follow_redirects=False)
        scans.shutdown()
        thread.join()
    assert answer.status_code == 302
    assert answer.headers["location"] == f"{base}/%C3%A9%0D%0Ax?%E5%90%8D=1"
