from __future__ import annotations

import json
import threading

import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError, InputFileError, PolicyDeniedError
from omnigraph.server import boot as reloading
from omnigraph.server.boot import open_service, reload
from omnigraph.server.config import read_config, single_graph
from omnigraph.server.service import Tokens, read_tokens
from omnigraph.server.settings import ServerSettings
from support.servers import POLICY, SERVER_POLICY, TOKENS, client_of, guarded_server
from support.subtests import each_case

GRAPH = "/graphs/default"
TOKENS_JSON = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS)}
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
    "text",
    [
        "{}",
        "[]",
        '{"a": 1}',
        '{" ": "t"}',
        '{"a": " "}',
        '{"a": "t", "b": "t"}',
        "sekrit",
        '{"a":"s","a":"t"}',
    ],
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


@pytest.mark.parametrize(
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
    (tmp_path / "q.gq").write_text(
        "query people() { match { $p: Person } return { $p.name } }", encoding="utf-8"
    )
    config = single_graph(uri, queries=tmp_path / "q.gq")
    with (
        open_service(config, ServerSettings(), environment=TOKENS_JSON) as service,
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
    (tmp_path / "server-policy.yaml").write_text(SERVER_POLICY, encoding="utf-8")
    file = tmp_path / "server.yaml"
    file.write_text(
        f"policy: server-policy.yaml\ngraphs: {{people: {{store: {uri}}}}}\n", encoding="utf-8"
    )
    with open_service(read_config(file), ServerSettings(), environment=TOKENS_JSON) as service:
        with client_of(service, "act-nadia") as client:
            assert client.get("/graphs").json() == {
                "graphs": [{"graph_id": "people", "uri": "/graphs/people"}]
            }
        with client_of(service, "act-bot") as client:
            assert client.get("/graphs").status_code == 403


# ---- boot


def test_a_graph_that_cannot_be_served_is_set_aside(uri, tmp_path):
    (tmp_path / "broken.gq").write_text(
        "query q() { match { $r: Robot } return { $r } }", encoding="utf-8"
    )
    file = tmp_path / "server.yaml"
    other = str(tmp_path / "other.omni")
    Graph.init(other, "node Thing { k: String @key }").close()
    file.write_text(
        f"graphs:\n  good: {{store: {uri}}}\n  gone: {{store: {tmp_path / 'gone.omni'}}}\n"
        f"  broken: {{store: {other}, queries: broken.gq}}\n",
        encoding="utf-8",
    )
    config = read_config(file)
    with (
        open_service(config, ServerSettings(), unauthenticated=True, environment={}) as service,
        client_of(service) as client,
    ):
        assert set(service.quarantined) == {"gone", "broken"}
        assert client.get("/graphs/good/schema").status_code == 200
        unknown = client.get("/graphs/unknown/schema")
        for graph_id in ("gone", "broken"):
            answer = client.get(f"/graphs/{graph_id}/schema")
            text = answer.text.replace(graph_id, "unknown")
            assert (answer.status_code, text) == (404, unknown.text)
    strict = ServerSettings(require_all_graphs=True)
    with pytest.raises(BadRequestError, match="not every graph"):
        open_service(config, strict, unauthenticated=True, environment={})


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
    with (
        guarded_server(uri, tmp_path, policy=policy) as service,
        client_of(service, "act-nadia") as nadia,
    ):
        nadia.post(f"{GRAPH}/branches", json={"name": "draft"})
        add(nadia, "zoe", "draft")
        merged = nadia.post(
            f"{GRAPH}/branches/merge", json={"source": "draft", "delete_branch": True}
        )
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
        assert bot.post(f"{GRAPH}/queries/robots").content == unknown.content


def test_a_stored_mutation_needs_the_right_to_change(guarded):
    with guarded("act-bot") as bot:
        body = {"params": {"name": "zoe", "age": None}}
        assert bot.post(f"{GRAPH}/queries/add_person", json=body).status_code == 403


def test_a_stored_query_is_run_as_what_it_is(uri, tmp_path):
    policy = POLICY.replace("callers: [act-bot]", "callers: [act-nadia]").replace(
        "actions: [change], branch_scope: unprotected", "actions: [change], branch_scope: any"
    )
    with (
        guarded_server(uri, tmp_path, policy=policy) as service,
        client_of(service, "act-nadia") as nadia,
    ):
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
    with (
        guarded_server(uri, tmp_path, policy=policy) as service,
        client_of(service, "act-nadia") as nadia,
    ):
        source = nadia.get(f"{GRAPH}/schema").json()["schema_source"]
        without_age = source.replace("age: I32?", "")
        refused = nadia.post(f"{GRAPH}/schema/apply", json={"schema_source": without_age})
        assert refused.status_code == 400
        assert "stored queries would break" in refused.json()["error"]
        assert nadia.get(f"{GRAPH}/schema").json()["schema_source"] == source


# ---- reload


def test_a_reload_replaces_tokens_and_policy(uri, tmp_path, monkeypatch):
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(TOKENS), encoding="utf-8")
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(file))
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    config = single_graph(uri, policy=tmp_path / "policy.yaml")
    with (
        open_service(config, ServerSettings()) as service,
        client_of(service, "act-nadia") as nadia,
    ):
        assert add(nadia, "zoe").status_code == 403
        allowing = POLICY.replace(
            "[change], branch_scope: unprotected", "[change], branch_scope: any"
        )
        (tmp_path / "policy.yaml").write_text(allowing, encoding="utf-8")
        assert reload(service)
        assert add(nadia, "zoe").status_code == 200
        file.write_text('{"act-other": "other"}', encoding="utf-8")
        assert reload(service)
        assert add(nadia, "yan").status_code == 401


def test_a_reload_that_fails_changes_nothing(uri, tmp_path, monkeypatch):
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(TOKENS), encoding="utf-8")
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(file))
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    config = single_graph(uri, policy=tmp_path / "policy.yaml")
    with (
        open_service(config, ServerSettings()) as service,
        client_of(service, "act-nadia") as nadia,
    ):
        file.write_text('{"act-other": "other"}', encoding="utf-8")
        (tmp_path / "policy.yaml").write_text("version: 7", encoding="utf-8")
        assert not reload(service)
        (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
        file.unlink()
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


def test_who_reads_a_branch_reads_its_past(uri, tmp_path):
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
        body = {"query": people, "snapshot": inherited}
        assert agent.post(f"{GRAPH}/query", json=body).json()["row_count"] == 3
        assert agent.get(f"{GRAPH}/commits/{inherited}").status_code == 200
        assert agent.get(f"{GRAPH}/commits/{hidden}").status_code == 404
        body = {"query": people, "snapshot": hidden}
        assert agent.post(f"{GRAPH}/query", json=body).status_code == 404


def test_the_log_tells_nothing_about_branches_that_must_not_be_read(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path, policy=HALF) as service,
        client_of(service, "act-nadia") as owner,
        client_of(service, "act-bot") as agent,
    ):
        owner.post(f"{GRAPH}/branches", json={"name": "draft"})
        add(owner, "later")
        hidden = owner.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
        owner.post(f"{GRAPH}/branches/merge", json={"source": "main", "target": "draft"})
        log = agent.get(f"{GRAPH}/log").json()
        assert list(log["heads"]) == ["draft"]
        assert hidden not in [commit["graph_commit_id"] for commit in log["commits"]]
        assert {commit["branch_deleted"] for commit in log["commits"]} == {False}
        assert hidden in [c["graph_commit_id"] for c in owner.get(f"{GRAPH}/log").json()["commits"]]


def test_a_commit_of_a_deleted_branch_is_told_to_whom_it_was_no_secret(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path, policy=HALF) as service,
        client_of(service, "act-nadia") as owner,
    ):
        owner.post(f"{GRAPH}/branches", json={"name": "draft"})
        made = add(owner, "zoe", "draft").json()["commit"]["graph_commit_id"]
        owner.post(f"{GRAPH}/branches/merge", json={"source": "draft", "delete_branch": True})
        answer = owner.get(f"{GRAPH}/commits/{made}")
        assert answer.status_code == 404
        assert "was deleted" in answer.json()["error"]


def test_a_denial_says_what_is_missing(uri, tmp_path):
    with (
        guarded_server(uri, tmp_path, policy=HALF) as service,
        client_of(service, "act-bot") as bot,
    ):
        refused = bot.post(f"{GRAPH}/branches/merge", json={"source": "draft"}).json()
        assert (
            refused["error"] == "actor `act-bot` may branch_merge on no branch: no rule allows it"
        )
    config = single_graph(uri)
    with (
        open_service(config, ServerSettings(), environment=TOKENS_JSON) as service,
        client_of(service, "act-bot") as bot,
    ):
        assert "the graph has no policy" in add(bot, "zoe").json()["error"]
