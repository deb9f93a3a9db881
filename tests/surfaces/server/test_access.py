from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from omnigraph import Graph
from omnigraph.errors import BadRequestError, InputFileError, PolicyDeniedError, StorageError, StorageFailure
from omnigraph.server import boot as reloading
from omnigraph.server.boot import open_service, reload
from omnigraph.server.config import ServedGraph, ServerConfig, single_graph
from omnigraph.server.routing import openapi_document
from omnigraph.server.service import HiddenPlaces, Tokens, read_tokens
from omnigraph.server.settings import ServerSettings
from support.servers import (
    POLICY,
    POLICY_WITH_GUEST,
    QUERIES,
    SERVER_POLICY,
    TOKEN_SETTINGS,
    TOKENS,
    client_of,
    configured_server,
    copy_graph,
    guarded_server,
    open_server,
)
from support.subtests import each_case

GRAPH = "/graphs/default"
ADD = "query add($name: String) { insert Person { name: $name } }"


def add(client, name, branch="main"):
    body = {"query": ADD, "params": {"name": name}, "branch": branch}
    return client.post(f"{GRAPH}/mutate", json=body)


# ---- tokens


def test_the_first_source_of_tokens_wins(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"from-file": "t1"}', encoding="utf-8")
    single = {"OMNIGRAPH_SERVER_BEARER_TOKEN": "t3"}
    inline = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"inline": "t2"}', **single}
    both = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file), **inline}
    assert read_tokens({}) is None
    assert read_tokens(single).actor_of("t3") == "default"
    assert read_tokens(inline).actor_of("t2") == "inline"
    assert read_tokens(both).actor_of("t1") == "from-file"
    assert read_tokens(both).actor_of("t2") is None


@each_case(
    "text", ["{}", "[]", '{"a": 1}', '{" ": "t"}', '{"a": " "}', '{"a": "t", "b": "t"}', "sekrit", '{"a":"s","a":"t"}']
)
def test_wrong_tokens_are_refused_without_being_repeated(text):
    with pytest.raises(BadRequestError) as refused:
        read_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": text})
    assert "sekrit" not in str(refused.value)


def test_a_missing_file_of_tokens_is_refused():
    with pytest.raises(InputFileError):
        read_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": "no-such-file"})


def test_only_digests_of_tokens_are_kept():
    tokens = Tokens({"someone": "a-very-secret-token"}, "here")
    assert "a-very-secret-token" not in repr(vars(tokens))


@each_case(
    "headers",
    [
        [],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", "Basic bmFkaWE=")],
        [("Authorization", "Bearer wrong")],
        [("Authorization", "Bearer nadia-token"), ("Authorization", "Bearer nadia-token")],
        [("Authorization", "nadia-token")],
    ],
)
def test_without_one_known_token_nothing_is_answered(guarded, headers):
    with guarded() as client:
        for path in (f"{GRAPH}/snapshot", "/graphs", "/metrics", "/graphs/unknown/snapshot"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/healthz", headers=headers).status_code == 200
        assert client.get("/openapi.json", headers=headers).status_code == 200


def test_the_token_alone_decides_the_actor(guarded):
    with guarded("act-nadia") as client:
        client.post(f"{GRAPH}/branches", json={"name": "draft"})
        forged = {"X-Actor": "act-root", "From": "act-root"}
        body = {"query": ADD, "params": {"name": "zoe"}, "branch": "draft"}
        answer = client.post(f"{GRAPH}/mutate", json=body, headers=forged).json()
        assert answer["actor_id"] == answer["commit"]["actor_id"] == "act-nadia"
        forged_body = body | {"actor": "act-root"}
        assert client.post(f"{GRAPH}/mutate", json=forged_body).status_code == 400


# ---- states of the server


def test_without_tokens_a_server_starts_only_when_it_is_told_to(uri, tmp_path):
    config = single_graph(uri)
    with pytest.raises(BadRequestError, match="--unauthenticated"):
        open_service(config, ServerSettings(), environment={})
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    guarded = single_graph(uri, policy=tmp_path / "policy.yaml")
    with pytest.raises(BadRequestError, match="no token"):
        open_service(guarded, ServerSettings(), unauthenticated=True, environment={})


def test_with_tokens_and_no_policy_everybody_reads_and_nobody_writes(uri, tmp_path):
    (tmp_path / "q.gq").write_text("query people() { match { $p: Person } return { $p.name } }", encoding="utf-8")
    config = single_graph(uri, queries=tmp_path / "q.gq")
    with (
        open_service(config, ServerSettings(), environment=TOKEN_SETTINGS) as service,
        client_of(service, "act-stranger") as client,
    ):
        assert client.get(f"{GRAPH}/snapshot").status_code == 200
        assert client.get(f"{GRAPH}/queries").json() == {"queries": []}
        assert client.post(f"{GRAPH}/queries/people").status_code == 404
        assert add(client, "zoe").status_code == 403
        assert client.post(f"{GRAPH}/export", json={}).status_code == 403
        assert client.post(f"{GRAPH}/branches", json={"name": "draft"}).status_code == 403
        assert client.get("/graphs").status_code == 403


def test_an_open_server_answers_to_its_own_names_only(client):
    for host in ("127.0.0.1", "localhost:8080", "[::1]:80", "10.0.0.7"):
        assert client.get(f"{GRAPH}/snapshot", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil"):
        refused = client.get(f"{GRAPH}/snapshot", headers={"Host": host})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_graphs_are_listed_only_where_a_policy_of_the_server_grants_it(uri, tmp_path):
    with configured_server(tmp_path, policy=SERVER_POLICY, people={"store": uri}) as service:
        with client_of(service, "act-nadia") as client:
            assert client.get("/graphs").json() == {"graphs": [{"graph_id": "people", "uri": "/graphs/people"}]}
        with client_of(service, "act-bot") as client:
            assert client.get("/graphs").status_code == 403


# ---- boot


def test_a_graph_that_cannot_be_served_is_set_aside(uri, tmp_path):
    (tmp_path / "broken.gq").write_text("query q() { match { $r: Robot } return { $r } }", encoding="utf-8")
    other = str(tmp_path / "other.omni")
    Graph.init(other, "node Thing { k: String @key }").close()
    broken = {"store": other, "queries": "broken.gq"}
    graphs = {"good": {"store": uri}, "gone": {"store": str(tmp_path / "gone.omni")}, "broken": broken}
    with configured_server(tmp_path, **graphs) as service, client_of(service) as client:
        assert set(service.quarantined) == {"gone", "broken"}
        assert client.get("/graphs/good/schema").status_code == 200
        unknown = client.get("/graphs/unknown/schema")
        for graph_id in ("gone", "broken"):
            answer = client.get(f"/graphs/{graph_id}/schema")
            text = answer.text.replace(graph_id, "unknown")
            assert (answer.status_code, text) == (404, unknown.text)
    with pytest.raises(BadRequestError, match="not every graph"):
        configured_server(tmp_path, settings=ServerSettings(require_all_graphs=True), **graphs)


def test_without_one_healthy_graph_there_is_no_server(tmp_path):
    config = single_graph(str(tmp_path / "gone.omni"))
    with pytest.raises(BadRequestError, match="no graph can be served"):
        open_service(config, ServerSettings(), unauthenticated=True, environment={})


# ---- policy


def test_the_policy_decides_per_branch(guarded):
    with guarded("act-nadia") as nadia:
        assert add(nadia, "zoe").status_code == 403
        assert nadia.post(f"{GRAPH}/branches", json={"name": "draft"}).status_code == 200
        assert add(nadia, "zoe", "draft").status_code == 200
        assert nadia.post(f"{GRAPH}/branches/merge", json={"source": "draft"}).status_code == 200
        denied = nadia.post(f"{GRAPH}/branches/merge", json={"source": "main", "target": "draft"})
        assert denied.status_code == 403
    with guarded("act-bot") as bot:
        assert bot.post(f"{GRAPH}/export", json={"type_names": ["Paper"]}).status_code == 200
        assert add(bot, "yan", "draft").status_code == 403
        assert bot.delete(f"{GRAPH}/branches/draft").status_code == 403


def test_the_refused_deletion_of_a_merged_branch_does_not_fail_the_merge(uri, tmp_path):
    policy = POLICY.replace("branch_create, branch_delete", "branch_create")
    with guarded_server(uri, tmp_path, policy=policy) as service, client_of(service, "act-nadia") as nadia:
        nadia.post(f"{GRAPH}/branches", json={"name": "draft"})
        add(nadia, "zoe", "draft")
        merged = nadia.post(f"{GRAPH}/branches/merge", json={"source": "draft", "delete_branch": True})
        assert merged.status_code == 200
        assert merged.json()["branch_deleted"] is False
        assert "act-nadia" in merged.json()["branch_delete_error"]
        assert nadia.get(f"{GRAPH}/branches").json() == {"branches": ["draft", "main"]}


def test_the_engine_asks_the_policy_again(uri, tmp_path):
    with guarded_server(uri, tmp_path) as service:
        graph = service.graphs["default"].graph
        with pytest.raises(PolicyDeniedError, match="act-bot"):
            graph.mutate(ADD, {"name": "zoe"}, actor="act-bot")
        with pytest.raises(PolicyDeniedError, match="actor"):
            graph.mutate(ADD, {"name": "zoe"})


# ---- stored queries


def test_stored_queries_are_listed_and_run(guarded):
    with guarded("act-bot") as bot:
        names = [entry["name"] for entry in bot.get(f"{GRAPH}/queries").json()["queries"]]
        assert names == ["add_person", "older_than", "people"]
        rows = bot.post(f"{GRAPH}/queries/older_than", json={"params": {"age": 40}}).json()
        assert rows["rows"] == [{"name": "alan"}, {"name": "grace"}]
        assert bot.post(f"{GRAPH}/queries/people").json()["row_count"] == 3


def test_who_may_not_run_stored_queries_cannot_tell_whether_there_are_any(guarded):
    with guarded("act-nadia") as nadia:
        assert nadia.get(f"{GRAPH}/queries").json() == {"queries": []}
        known, unknown = (nadia.post(f"{GRAPH}/queries/{name}") for name in ("people", "robots"))
        assert known.status_code == unknown.status_code == 404
        assert known.content == unknown.content
    with guarded("act-bot") as bot:
        told = bot.post(f"{GRAPH}/queries/peple").json()["error"]
        assert told == f"{unknown.json()['error']}: did you mean `people`?"


def test_a_stored_mutation_needs_the_right_to_change(guarded):
    with guarded("act-bot") as bot:
        body = {"params": {"name": "zoe", "age": None}}
        assert bot.post(f"{GRAPH}/queries/add_person", json=body).status_code == 403


def test_a_stored_query_is_run_as_what_it_is(uri, tmp_path):
    policy = POLICY.replace("callers: [act-bot]", "callers: [act-nadia]").replace(
        "actions: [change], branch_scope: unprotected", "actions: [change], branch_scope: any"
    )
    with guarded_server(uri, tmp_path, policy=policy) as service, client_of(service, "act-nadia") as nadia:
        path = f"{GRAPH}/queries/add_person"
        body = {"params": {"name": "zoe", "age": 9}}
        head = nadia.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
        wrong = nadia.post(path, json=body | {"expect_mutation": False})
        assert (wrong.status_code, "mutate" in wrong.json()["error"]) == (400, True)
        wrong = nadia.post(f"{GRAPH}/queries/people", json={"expect_mutation": True})
        assert (wrong.status_code, "query" in wrong.json()["error"]) == (400, True)
        assert nadia.post(path, json=body | {"snapshot": head}).status_code == 400
        condition = {"Omnigraph-If-Graph-Commit": head}
        twin = f"{path}/if-graph-commit"
        assert nadia.post(twin, json=body, headers=condition).json()["affected_nodes"] == 1
        assert nadia.post(twin, json=body, headers=condition).status_code == 412
        people = f"{GRAPH}/queries/people/if-graph-commit"
        assert nadia.post(people, headers=condition).status_code == 400


def test_a_schema_must_not_break_stored_queries(uri, tmp_path):
    policy = POLICY.replace("actions: [branch_merge]", "actions: [branch_merge, schema_apply]")
    with guarded_server(uri, tmp_path, policy=policy) as service, client_of(service, "act-nadia") as nadia:
        source = nadia.get(f"{GRAPH}/schema").json()["schema_source"]
        without_age = source.replace("age: I32?", "")
        refused = nadia.post(f"{GRAPH}/schema/apply", json={"schema_source": without_age})
        assert refused.status_code == 400
        assert "stored queries would break" in refused.json()["error"]
        assert nadia.get(f"{GRAPH}/schema").json()["schema_source"] == source


# ---- reload


@pytest.fixture
def reloadable(uri, tmp_path, monkeypatch):
    """A server whose tokens and policy are in files: the files, the service and a client."""
    tokens, policy = tmp_path / "tokens.json", tmp_path / "policy.yaml"
    tokens.write_text(json.dumps(TOKENS), encoding="utf-8")
    policy.write_text(POLICY, encoding="utf-8")
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(tokens))
    config = single_graph(uri, policy=policy)
    with open_service(config, ServerSettings()) as service, client_of(service, "act-nadia") as nadia:
        yield tokens, policy, service, nadia


def test_a_reload_replaces_tokens_and_policy(reloadable):
    tokens, policy, service, nadia = reloadable
    assert add(nadia, "zoe").status_code == 403
    allowing = POLICY.replace("[change], branch_scope: unprotected", "[change], branch_scope: any")
    policy.write_text(allowing, encoding="utf-8")
    assert reload(service)
    assert add(nadia, "zoe").status_code == 200
    tokens.write_text('{"act-other": "other"}', encoding="utf-8")
    assert reload(service)
    assert add(nadia, "yan").status_code == 401


def test_a_reload_that_fails_changes_nothing(reloadable, monkeypatch):
    tokens, policy, service, nadia = reloadable
    tokens.write_text('{"act-other": "other"}', encoding="utf-8")
    policy.write_text("version: 7", encoding="utf-8")
    assert not reload(service)
    policy.write_text(POLICY, encoding="utf-8")
    tokens.unlink()
    assert not reload(service)
    monkeypatch.delenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE")
    assert not reload(service)
    assert nadia.get(f"{GRAPH}/snapshot").status_code == 200
    assert add(nadia, "zoe").status_code == 403


def test_what_was_read_first_is_never_put_in_place_last(uri, tmp_path, monkeypatch):
    file = tmp_path / "tokens.json"
    file.write_text('{"act-nadia": "old"}', encoding="utf-8")
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(file))
    with open_service(single_graph(uri), ServerSettings()) as service:
        has_read, may_go_on = threading.Event(), threading.Event()
        read = reloading.read_authority

        def slowly(*arguments, **options):
            fresh = read(*arguments, **options)
            has_read.set()
            may_go_on.wait(30)
            return fresh

        monkeypatch.setattr(reloading, "read_authority", slowly)
        first = threading.Thread(target=reload, args=(service,))
        first.start()
        assert has_read.wait(30)
        file.write_text('{"act-nadia": "new"}', encoding="utf-8")
        second = threading.Thread(target=reload, args=(service,))
        second.start()
        may_go_on.set()
        first.join()
        second.join()
        assert service.authority.tokens.actor_of("new") == "act-nadia"
        assert service.authority.tokens.actor_of("old") is None


def test_a_reload_that_breaks_is_told_and_changes_nothing(uri, monkeypatch, caplog):
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKEN", "token")
    with open_service(single_graph(uri), ServerSettings()) as service:

        def explode(*_, **__):
            raise RuntimeError("the secret manager is away")

        monkeypatch.setattr(reloading, "read_authority", explode)
        assert not reload(service)
        assert "the secret manager is away" in caplog.text
        assert service.authority.tokens.actor_of("token") == "default"


# ---- what forks inherit

HALF = """
version: 1
groups: { owners: [act-nadia], agents: [act-bot] }
protected_branches: [main]
rules:
  - id: owners
    allow: { actors: { group: owners }, actions: [read, change], branch_scope: any }
  - id: owners-branch
    allow:
      actors: { group: owners }
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: any
  - id: agents
    allow: { actors: { group: agents }, actions: [read], branch_scope: unprotected }
"""


def test_who_reads_a_branch_reads_its_past_and_nothing_of_branches_that_must_not_be_read(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path, policy=HALF) as service,
        client_of(service, "act-nadia") as owner,
        client_of(service, "act-bot") as agent,
    ):
        owner.post(f"{GRAPH}/branches", json={"name": "draft"})
        add(owner, "later")
        inherited = agent.get(f"{GRAPH}/snapshot?branch=draft").json()["graph_commit_id"]
        hidden = owner.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
        people = "query q() { match { $p: Person } return { $p.name } }"
        shown = agent.post(f"{GRAPH}/query", json={"query": people, "snapshot": inherited})
        assert shown.json()["row_count"] == 3
        assert agent.get(f"{GRAPH}/commits/{inherited}").status_code == 200
        assert agent.get(f"{GRAPH}/commits/{hidden}").status_code == 404
        assert agent.post(f"{GRAPH}/query", json={"query": people, "snapshot": hidden}).status_code == 404
        check_short_names(agent, people, inherited, hidden)
        check_references(agent, people, inherited)
        check_tags(owner, agent, people, inherited)
        # A branch that is hidden is not suggested.
        assert agent.get(f"{GRAPH}/snapshot?branch=mein").json()["hint"] == "known here: `draft`"
        assert owner.get(f"{GRAPH}/snapshot?branch=mein").json()["hint"] == "did you mean `main`?"
        owner.post(f"{GRAPH}/branches/merge", json={"source": "main", "target": "draft"})
        log = agent.get(f"{GRAPH}/log").json()
        assert list(log["heads"]) == ["draft"]
        assert hidden not in [commit["graph_commit_id"] for commit in log["commits"]]
        listed = agent.get(f"{GRAPH}/commits?all_branches=true").json()["commits"]
        assert [c["graph_commit_id"] for c in listed] == [c["graph_commit_id"] for c in log["commits"]]
        assert {commit["branch_deleted"] for commit in log["commits"]} == {False}
        assert hidden in [c["graph_commit_id"] for c in owner.get(f"{GRAPH}/log").json()["commits"]]


def check_short_names(agent, people, inherited, hidden):
    """What names a commit that the caller may read is completed among such commits; all others are unknown."""
    shown, secret = inherited[-8:], hidden[-8:].lower()
    assert agent.get(f"{GRAPH}/commits/{shown}").json()["graph_commit_id"] == inherited
    assert agent.get(f"{GRAPH}/commits/{shown}/changes").json()["cause"]["graph_commit_id"] == inherited
    assert agent.get(f"{GRAPH}/snapshot?snapshot={shown}").json()["graph_commit_id"] == inherited
    answer = agent.post(f"{GRAPH}/query", json={"query": people, "snapshot": shown}).json()
    assert answer["target"] == {"snapshot": inherited}
    diff = agent.get(f"{GRAPH}/diff?from={shown}&to=draft").json()
    assert diff["from_graph_commit_id"] == inherited
    # The beginning of all ids of the day: those that may be read are few, and only they are told.
    ambiguous = agent.get(f"{GRAPH}/commits/{inherited[:5]}").json()
    assert (ambiguous["kind"], hidden in ambiguous["candidates"]) == ("ambiguous_commit", False)
    for path in (f"commits/{secret}", f"commits/{secret}/changes", f"snapshot?snapshot={secret}"):
        refused = agent.get(f"{GRAPH}/{path}")
        assert (refused.status_code, refused.json()["error"]) == (404, f"there is no commit {secret}")
        assert refused.json()["candidates"] == []
    unknown = agent.get(f"{GRAPH}/diff?from={secret}&to=draft").json()
    assert unknown == agent.get(f"{GRAPH}/diff?from=3aaaaaaa&to=draft").json() | {
        "error": unknown["error"],
        "branch": secret,
    }
    assert unknown["kind"] == "branch_not_found"


def check_tags(owner, agent, people, inherited):
    """Tags are known to those who may read their commits."""
    assert owner.post(f"{GRAPH}/tags", json={"name": "secret"}).status_code == 200
    assert owner.post(f"{GRAPH}/tags", json={"name": "shown", "commit": "draft"}).status_code == 200
    assert [tag["name"] for tag in owner.get(f"{GRAPH}/tags").json()["tags"]] == ["secret", "shown"]
    assert [tag["name"] for tag in agent.get(f"{GRAPH}/tags").json()["tags"]] == ["shown"]
    answer = agent.post(f"{GRAPH}/query", json={"query": people, "snapshot": "shown"}).json()
    assert answer["target"] == {"snapshot": inherited}
    for name in ("secret", "secret~0", "nowhere"):
        refused = agent.get(f"{GRAPH}/commits/{name}")
        assert (refused.status_code, refused.json()["error"]) == (404, f"there is no commit {name}")
    assert agent.post(f"{GRAPH}/tags", json={"name": "mine"}).status_code == 403
    assert agent.delete(f"{GRAPH}/tags/shown").status_code == 403
    assert owner.delete(f"{GRAPH}/tags/none").status_code == 404
    assert owner.delete(f"{GRAPH}/tags/secret").status_code == 200


def check_references(agent, people, inherited):
    """Ways lead from what the caller may read to what it may read; any other is one to no commit."""
    answer = agent.post(f"{GRAPH}/query", json={"query": people, "snapshot": "draft~0"}).json()
    assert answer["target"] == {"snapshot": inherited}
    assert agent.get(f"{GRAPH}/commits/draft").json()["graph_commit_id"] == inherited
    assert agent.get(f"{GRAPH}/commits/{inherited[-8:]}~1").status_code == 200
    assert agent.get(f"{GRAPH}/diff?from=draft~1&to=draft").status_code == 200
    for way in ("main", "main~0", "main~1", "main~99", "main@2500-01-01", "nowhere~1", "draft^2", "draft~99"):
        for path in (f"commits/{way}", f"commits/{way}/changes", f"snapshot?snapshot={way}"):
            refused = agent.get(f"{GRAPH}/{path}")
            assert (refused.status_code, refused.json()["error"]) == (404, f"there is no commit {way}"), path
        created = agent.post(f"{GRAPH}/branches", json={"name": "mine", "from": way})
        assert created.status_code == 403, way
    assert agent.get(f"{GRAPH}/commits/draft~x").status_code == 400


def test_a_commit_of_a_deleted_branch_is_told_to_whom_it_was_no_secret(uri, tmp_path):
    with guarded_server(uri, tmp_path, policy=HALF) as service, client_of(service, "act-nadia") as owner:
        owner.post(f"{GRAPH}/branches", json={"name": "draft"})
        made = add(owner, "zoe", "draft").json()["commit"]["graph_commit_id"]
        owner.post(f"{GRAPH}/branches/merge", json={"source": "draft", "delete_branch": True})
        answer = owner.get(f"{GRAPH}/commits/{made}")
        assert answer.status_code == 404
        assert "was deleted" in answer.json()["error"]


def test_a_denial_says_what_is_missing(uri, tmp_path):
    with guarded_server(uri, tmp_path, policy=HALF) as service, client_of(service, "act-bot") as bot:
        refused = bot.post(f"{GRAPH}/branches/merge", json={"source": "draft"}).json()
        assert refused["error"] == "actor `act-bot` may branch_merge on no branch: no rule allows it"
    config = single_graph(uri)
    with (
        open_service(config, ServerSettings(), environment=TOKEN_SETTINGS) as service,
        client_of(service, "act-bot") as bot,
    ):
        assert "the graph has no policy" in add(bot, "zoe").json()["error"]


# ---- What answers must not tell: where graphs are stored, and what the caller may not read


NDJSON = {"content-type": "application/x-ndjson"}
PEOPLE = "query q() { match { $p: Person } return { $p.name as name } }"
TOLD_NOTHING_ADD = 'query q() { insert Person { name: "eve" } }'
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
        ("POST", "/mutate", {"json": {"query": TOLD_NOTHING_ADD, "branch": "draft"}}),
        ("POST", "/mutate", {"json": {"query": TOLD_NOTHING_ADD, "branch": "nope"}}),
    ],
    "change": [("POST", "/change", {"json": {"query": TOLD_NOTHING_ADD, "branch": "draft"}})],
    "mutate_if_graph_commit": [("POST", "/mutate/if-graph-commit", {"json": {"query": TOLD_NOTHING_ADD}})],
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
    "list_commits": [("GET", "/commits", {}), ("GET", "/commits", {"params": {"all_branches": "true"}})],
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
    "list_tags": [("GET", "/tags", {})],
    "create_tag": [
        ("POST", "/tags", {"json": {"name": "v1"}}),
        ("POST", "/tags", {"json": {"name": "v2", "commit": "nope"}}),
    ],
    "delete_tag": [("DELETE", "/tags/v1", {}), ("DELETE", "/tags/nope", {})],
    "list_queries": [("GET", "/queries", {})],
    "invoke_query": [("POST", "/queries/people", {}), ("POST", "/queries/people", {"json": {"params": {"x": 1}}})],
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
    with open_server(uri, queries=tmp_path / "queries.gq") as service, client_of(service) as client:
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
        ("s3://lab/g/p.omni", "s3://lab/g/p.omni/x, lab/g/p.omni, g/p.omni", "papers/x, papers, papers"),
        ("s3://lab/p.omni", "no bucket lab at http://lab.s3.example", "no bucket papers at http://papers.s3.example"),
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


@each_case(
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
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": body}}
        told = drafts["agent"].post(f"{GRAPH}/mcp", json=call).json()["result"]
        assert told["isError"]
        assert "may not read" in told["content"][0]["text"]


def test_what_may_be_read_is_branched_and_merged(drafts):
    agent = drafts["agent"]
    assert agent.post(f"{GRAPH}/branches", json={"name": "mine", "from": "draft"}).status_code == 200
    body = {"source": "mine", "target": "draft"}
    assert agent.post(f"{GRAPH}/branches/merge", json=body).status_code == 200


def test_metrics_tell_about_graphs_that_may_be_read(pristine, tmp_path):
    stores = {}
    for name in ("hidden", "shown"):
        (tmp_path / name).mkdir()
        stores[name] = copy_graph(pristine, tmp_path / name)
    (tmp_path / "nobody.yaml").write_text("version: 1\n", encoding="utf-8")
    hidden = {"store": stores["hidden"], "policy": "nobody.yaml"}
    with configured_server(tmp_path, policy=SERVER_POLICY, hidden=hidden, shown={"store": stores["shown"]}) as service:
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
    assert client.get("/graphs").json() == {"graphs": [{"graph_id": "default", "uri": "/graphs/default"}]}


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
    return (found.status_code, found.text.replace(graph_id, "ID"), str(headers).replace(graph_id, "ID"))


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
    with (
        configured_server(tmp_path, policy=SERVER_POLICY, default={"store": uri, "policy": "policy.yaml"}) as service,
        client_of(service, "act-nadia") as lister,
        client_of(service, "act-stranger") as stranger,
    ):
        assert lister.get(f"{GRAPH}/snapshot").status_code == 403
        assert stranger.get(f"{GRAPH}/snapshot").status_code == 404
