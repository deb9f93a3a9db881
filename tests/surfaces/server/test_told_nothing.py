"""What answers must not tell: where graphs are stored, and what the caller may not read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from omnigraph import Graph
from omnigraph.errors import StorageError, StorageFailure
from omnigraph.server.boot import open_service
from omnigraph.server.config import ServedGraph, ServerConfig, read_config
from omnigraph.server.routing import openapi_document
from omnigraph.server.service import HiddenPlaces
from omnigraph.server.settings import ServerSettings
from support.servers import (
    POLICY,
    POLICY_WITH_GUEST,
    QUERIES,
    SERVER_POLICY,
    TOKENS,
    client_of,
    copy_graph,
    guarded_server,
)
from support.subtests import each_case

GRAPH = "/graphs/default"
NDJSON = {"content-type": "application/x-ndjson"}
PEOPLE = "query q() { match { $p: Person } return { $p.name as name } }"
ADD = 'query q() { insert Person { name: "eve" } }'
CHOSEN = {"entity": "node", "type": "Person", "id": "grace", "property": "photo"}
#: One request of every operation that does what it is for, and one that fails. `{head}` is a commit.
REQUESTS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "get_schema": [("GET", "/schema", {})],
    "apply_schema": [
        ("POST", "/schema/apply", {"json": {"schema_source": "node X { y: Nope }"}}),
        ("POST", "/schema/apply", {"json": {"schema_source": "node X { k: String @key }"}}),
    ],
    "query": [
        ("POST", "/query", {"json": {"query": PEOPLE}}),
        ("POST", "/query", {"json": {"query": "query q() { match { $p: Nope } return { $p } }"}}),
    ],
    "read": [("POST", "/read", {"json": {"query_source": PEOPLE}})],
    "explain": [("POST", "/explain", {"json": {"query": PEOPLE, "analyze": True}})],
    "get_entity": [("GET", "/entity", {"params": {"type": "node:Person", "id": "ada"}})],
    "get_snapshot": [("GET", "/snapshot", {}), ("GET", "/snapshot?version=999", {})],
    "mutate": [
        ("POST", "/mutate", {"json": {"query": ADD, "branch": "draft"}}),
        ("POST", "/mutate", {"json": {"query": ADD, "branch": "nope"}}),
    ],
    "change": [("POST", "/change", {"json": {"query": ADD, "branch": "draft"}})],
    "mutate_if_graph_commit": [("POST", "/mutate/if-graph-commit", {"json": {"query": ADD}})],
    "load": [
        ("POST", "/load", {"json": {"data": "", "branch": "draft"}}),
        ("POST", "/load", {"json": {"data": "{", "branch": "draft"}}),
    ],
    "ingest": [("POST", "/ingest", {"json": {"data": "", "branch": "draft"}})],
    "load_ndjson": [
        ("POST", "/load/ndjson?branch=new&from=main", {"content": b"", "headers": NDJSON}),
        ("POST", "/load/ndjson?branch=draft", {"content": b"{", "headers": NDJSON}),
    ],
    "export": [("POST", "/export", {"json": {}}), ("POST", "/export", {"json": {"branch": "no"}})],
    "get_changes_baseline": [("POST", "/changes/baseline", {"json": {}})],
    "poll_changes": [("GET", "/changes", {"params": {"start": "beginning"}})],
    "get_commit_changes": [("GET", "/commits/{head}/changes", {})],
    "get_commit": [("GET", "/commits/{head}", {}), ("GET", "/commits/nope", {})],
    "list_commits": [("GET", "/commits", {})],
    "get_log": [("GET", "/log", {})],
    "get_diff": [("GET", "/diff", {"params": {"from": "main", "to": "draft"}})],
    "get_blob": [("GET", "/blob", {"params": CHOSEN})],
    "head_blob": [("HEAD", "/blob", {"params": CHOSEN})],
    "list_branches": [("GET", "/branches", {})],
    "create_branch": [
        ("POST", "/branches", {"json": {"name": "other"}}),
        ("POST", "/branches", {"json": {"name": "main"}}),
    ],
    "merge_branches": [
        ("POST", "/branches/merge", {"json": {"source": "draft", "delete_branch": True}}),
        ("POST", "/branches/merge", {"json": {"source": "nope"}}),
    ],
    "delete_branch": [("DELETE", "/branches/other", {}), ("DELETE", "/branches/main", {})],
    "list_queries": [("GET", "/queries", {})],
    "invoke_query": [
        ("POST", "/queries/people", {}),
        ("POST", "/queries/people", {"json": {"params": {"x": 1}}}),
    ],
    "invoke_query_if_graph_commit": [("POST", "/queries/people/if-graph-commit", {})],
    "mcp": [
        ("POST", "/mcp", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
        (
            "POST",
            "/mcp",
            {
                "json": {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": "branch_create", "arguments": {"name": "by-agent"}},
                }
            },
        ),
    ],
    "health": [("GET", "/healthz", {})],
    "metrics": [("GET", "/metrics", {})],
    "openapi": [("GET", "/openapi.json", {})],
    "list_graphs": [("GET", "/graphs", {})],
}
_FLAT = ("health", "metrics", "openapi", "list_graphs")


@pytest.fixture
def served(uri: str, tmp_path: Path) -> Iterator[TestClient]:
    """An open server of one graph with a draft and stored queries."""
    (tmp_path / "queries.gq").write_text(QUERIES, encoding="utf-8")
    file = tmp_path / "server.yaml"
    file.write_text(
        f"graphs: {{default: {{store: {uri}, queries: queries.gq}}}}\n", encoding="utf-8"
    )
    config = read_config(file)
    with (
        open_service(config, ServerSettings(), unauthenticated=True, environment={}) as service,
        client_of(service) as client,
    ):
        assert client.post(f"{GRAPH}/branches", json={"name": "draft"}).status_code == 200
        yield client


def exchange(client: TestClient) -> Iterator[tuple[str, int, str]]:
    """Every request of the list, with the whole text of its answer, headers included."""
    head = client.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
    for name, requests in REQUESTS.items():
        for method, path, options in requests:
            place = "" if name in _FLAT else GRAPH
            answer = client.request(method, place + path.replace("{head}", head), **options)
            headers = "\n".join(f"{key}: {value}" for key, value in answer.headers.items())
            yield f"{method} {path}", answer.status_code, headers + answer.text


def test_every_operation_is_in_the_list():
    operations = {
        operation["operationId"].removeprefix("cluster_")
        for path in openapi_document(is_open=False)["paths"].values()
        for operation in path.values()
    }
    assert operations == set(REQUESTS)


def test_no_answer_tells_where_a_graph_is_stored(served, uri, tmp_path):
    answers = list(exchange(served))
    assert {200, 400, 404, 409} <= {status for _, status, _ in answers}
    for request, status, text in answers:
        assert status < 500, request
        assert str(tmp_path) not in text, request
        assert uri.lstrip("/") not in text, request


def test_no_failure_of_the_storage_tells_where_it_is(served, uri, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        message = f"{uri}/nodes/x.lance: cannot read file://{uri}/nodes/x.lance ({uri.lstrip('/')})"
        raise StorageError(message, StorageFailure.NOT_FOUND)

    for name in ("query", "mutate", "merge", "branches", "snapshot", "commits", "log", "load"):
        monkeypatch.setattr(Graph, name, broken)
    failed = 0
    for path in ("query", "mutate", "branches/merge", "load"):
        for method, route, options in REQUESTS[path if "/" not in path else "merge_branches"]:
            answer = served.request(method, GRAPH + route, **options)
            failed += answer.status_code == 500
            assert str(tmp_path) not in answer.text
            assert uri.lstrip("/") not in answer.text
            if answer.status_code == 500:
                assert "default/nodes/x.lance" in answer.json()["error"]
    assert failed >= 4


@each_case(
    ("store", "text", "shown"),
    [
        ("/srv/g/p.omni", "at file:///srv/g/p.omni/x and /srv/g/p.omni", "at papers/x and papers"),
        ("/srv/g/p.omni", "srv/g/p.omni/nodes", "papers/nodes"),
        ("/srv/g/p.omni", "/srv/g/p.omni2 stays", "/srv/g/p.omni2 stays"),
        ("/srv/a b/p", "/srv/a%20b/p/x", "papers/x"),
        (
            "s3://lab/g/p.omni",
            "s3://lab/g/p.omni/x, lab/g/p.omni, g/p.omni",
            "papers/x, papers, papers",
        ),
        (
            "s3://lab/p.omni",
            "no bucket lab at http://lab.s3.example",
            "no bucket papers at http://papers.s3.example",
        ),
        ("s3://data/p.omni", "the data of a load", "the data of a load"),
    ],
)
def test_every_spelling_of_a_place_is_hidden(store, text, shown):
    config = ServerConfig(graphs=(ServedGraph(graph_id="papers", store=store),))
    assert HiddenPlaces.of(config).in_text(text) == shown


# ---- what the caller may read

DRAFTS = """
version: 1
groups: { owners: [act-nadia], agents: [act-bot] }
protected_branches: [main, vault]
rules:
  - id: owners
    allow: { actors: { group: owners }, actions: [read, export, change], branch_scope: any }
  - id: owners-branch
    allow: { actors: { group: owners }, actions: [branch_create, branch_merge], target_branch_scope: any }
  - id: agents
    allow: { actors: { group: agents }, actions: [read, change], branch_scope: unprotected }
  - id: agents-branch
    allow: { actors: { group: agents }, actions: [branch_create, branch_merge], target_branch_scope: any }
"""


@pytest.fixture
def drafts(uri: str, tmp_path: Path) -> Iterator[dict[str, TestClient]]:
    with (
        guarded_server(uri, tmp_path, policy=DRAFTS) as service,
        client_of(service, "act-nadia") as owner,
        client_of(service, "act-bot") as agent,
        client_of(service, "act-stranger") as stranger,
    ):
        for name in ("draft", "vault"):
            assert owner.post(f"{GRAPH}/branches", json={"name": name}).status_code == 200
        yield {"owner": owner, "agent": agent, "stranger": stranger}


def test_branches_are_listed_that_may_be_read(drafts):
    found = {name: client.get(f"{GRAPH}/branches") for name, client in drafts.items()}
    assert found["owner"].json() == {"branches": ["draft", "main", "vault"]}
    assert found["agent"].json() == {"branches": ["draft"]}
    assert found["stranger"].status_code == 404
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "branches"}}
    told = drafts["agent"].post(f"{GRAPH}/mcp", json=call).json()
    assert json.loads(told["result"]["content"][0]["text"]) == {"branches": ["draft"]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("branches", {"name": "stolen"}),
        ("branches", {"name": "stolen", "from": "vault"}),
        ("branches", {"name": "stolen", "from": " vault\n"}),
        ("branches/merge", {"source": "vault", "target": "draft"}),
        ("branches/merge", {"source": "draft", "target": "vault"}),
        ("branches/merge", {"source": "draft"}),
        ("branches/merge", {"source": "draft", "dry_run": True}),
        ("load", {"data": "", "branch": "stolen", "from": "vault"}),
        ("load/ndjson?branch=stolen&from=vault", None),
    ],
)
def test_nothing_is_branched_or_merged_that_may_not_be_read(drafts, path, body):
    content = {"content": b"", "headers": NDJSON} if body is None else {"json": body}
    refused = drafts["agent"].post(f"{GRAPH}/{path}", **content)
    assert refused.status_code == 403
    assert refused.json()["policy_denial"]["action"] == "read"
    assert drafts["owner"].get(f"{GRAPH}/branches").json()["branches"] == ["draft", "main", "vault"]
    if path.startswith("branches"):
        tool = "branch_create" if path == "branches" else "branch_merge"
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": body},
        }
        told = drafts["agent"].post(f"{GRAPH}/mcp", json=call).json()["result"]
        assert told["isError"]
        assert "may not read" in told["content"][0]["text"]


def test_what_may_be_read_is_branched_and_merged(drafts):
    agent = drafts["agent"]
    assert (
        agent.post(f"{GRAPH}/branches", json={"name": "mine", "from": "draft"}).status_code == 200
    )
    body = {"source": "mine", "target": "draft"}
    assert agent.post(f"{GRAPH}/branches/merge", json=body).status_code == 200


def test_metrics_tell_about_graphs_that_may_be_read(pristine, tmp_path):
    stores = {}
    for name in ("hidden", "shown"):
        (tmp_path / name).mkdir()
        stores[name] = copy_graph(pristine, tmp_path / name)
    (tmp_path / "server-policy.yaml").write_text(SERVER_POLICY, encoding="utf-8")
    (tmp_path / "nobody.yaml").write_text("version: 1\n", encoding="utf-8")
    file = tmp_path / "server.yaml"
    file.write_text(
        f"policy: server-policy.yaml\ngraphs:\n  hidden: {{store: {stores['hidden']}, policy: nobody.yaml}}\n"
        f"  shown: {{store: {stores['shown']}}}\n",
        encoding="utf-8",
    )
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS)}
    with open_service(read_config(file), ServerSettings(), environment=environment) as service:
        told = {}
        for actor in ("act-nadia", "act-bot"):
            with client_of(service, actor) as client:
                for name in stores:
                    client.get(f"/graphs/{name}/branches")
                told[actor] = client.get("/metrics").text
    graphs = {actor: set(re.findall(r'graph="([^"]*)"', text)) for actor, text in told.items()}
    assert graphs["act-nadia"] >= {"hidden", "shown"}, "it may list the graphs"
    assert graphs["act-bot"] == {"shown"}
    assert "omnigraph_graphs{" in told["act-nadia"]
    assert "omnigraph_graphs{" not in told["act-bot"]
    assert "omnigraph_http_requests_total" in told["act-bot"]


def test_an_open_server_lists_its_graphs(client):
    assert client.get("/graphs").json() == {
        "graphs": [{"graph_id": "default", "uri": "/graphs/default"}]
    }


# ---- graphs that the caller may not know of

ROUTES = [
    (method, path)
    for path, methods in openapi_document(is_open=False)["paths"].items()
    for method in methods
    if path.startswith("/graphs/{graph_id}")
]


def answers(client: TestClient, method: str, path: str, graph_id: str) -> tuple[Any, ...]:
    """What a route answers about a graph, without what differs between any two requests."""
    address = re.sub(r"\{\w+\}", "x", path.replace("{graph_id}", graph_id))
    found = client.request(method.upper(), address, headers={"content-type": "application/json"})
    own = ("omnigraph-request-id", "content-length")
    headers = {name: text for name, text in found.headers.items() if name not in own}
    return (
        found.status_code,
        found.text.replace(graph_id, "ID"),
        str(headers).replace(graph_id, "ID"),
    )


@each_case(("method", "path"), ROUTES, ids=" ".join)
def test_a_graph_that_is_hidden_answers_as_one_that_is_absent(hidden, method, path):
    found = answers(hidden, method, path, "default")
    assert found == answers(hidden, method, path, "nothing")
    assert found[0] == 404


@pytest.fixture(scope="module")
def hidden(shared_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A caller without any right on the graph."""
    with (
        guarded_server(shared_uri, tmp_path_factory.mktemp("hidden")) as service,
        client_of(service, "act-stranger") as stranger,
    ):
        yield stranger


def test_who_may_do_something_to_a_graph_is_told_what_is_denied(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path, policy=POLICY_WITH_GUEST) as service,
        client_of(service, "act-stranger") as guest,
    ):
        assert guest.get(f"{GRAPH}/snapshot").status_code == 403
        assert guest.get("/graphs/nothing/snapshot").status_code == 404


def test_who_may_list_graphs_is_told_what_is_denied(uri, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.replace("act-nadia", "act-ivo"))
    (tmp_path / "server.yaml").write_text(SERVER_POLICY)
    graphs = {"default": {"store": uri, "policy": "policy.yaml"}}
    (tmp_path / "serve.yaml").write_text(json.dumps({"graphs": graphs, "policy": "server.yaml"}))
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS)}
    config = read_config(tmp_path / "serve.yaml")
    with (
        open_service(config, ServerSettings(), environment=environment) as service,
        client_of(service, "act-nadia") as lister,
        client_of(service, "act-stranger") as stranger,
    ):
        assert lister.get(f"{GRAPH}/snapshot").status_code == 403
        assert stranger.get(f"{GRAPH}/snapshot").status_code == 404
