from __future__ import annotations

import gzip
import json
from pathlib import Path

import httpx
import pytest

from omnigraph.graph.graph import Graph
from support.servers import client_of, open_server
from support.subtests import each_case

GRAPH = "/graphs/default"
ADD = "query add($name: String) { insert Person { name: $name } }"
AGE = "query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
HEADER = "Omnigraph-If-Graph-Commit"
NDJSON = {"Content-Type": "application/x-ndjson"}


def head(client, branch="main"):
    return client.get(f"{GRAPH}/snapshot", params={"branch": branch}).json()["graph_commit_id"]


# ---- mutations


def test_a_mutation_answers_with_the_commit_that_it_published_if_it_changed_something(client):
    answer = client.post(f"{GRAPH}/mutate", json={"query": ADD, "params": {"name": "zoe"}}).json()
    assert (answer["branch"], answer["query_name"], answer["affected_nodes"]) == ("main", "add", 1)
    before = head(client)
    assert answer["commit"]["graph_commit_id"] == before
    body = {"query": AGE, "params": {"name": "nobody", "age": 1}}
    assert client.post(f"{GRAPH}/mutate", json=body).json()["commit"] is None
    read = {"query": "query q() { match { $p: Person } return { $p.name } }"}
    assert client.post(f"{GRAPH}/mutate", json=read).status_code == 400
    assert head(client) == before


def test_rows_that_statements_return_come_with_the_receipt(client):
    text = 'insert Person { name: "zoe", age: 3 } as $p return { $p.@id as id, $p.age + 1 as next }'
    answer = client.post(f"{GRAPH}/mutate", json={"query": text}).json()
    assert answer["rows"] == [{"id": "zoe", "next": 4}]
    assert "rows" not in client.post(f"{GRAPH}/mutate", json={"query": ADD, "params": {"name": "ann"}}).json()


def test_older_names_of_members_and_of_the_route_are_understood(client):
    body = {"query_source": ADD, "query_name": "add", "params": {"name": "zoe"}}
    answer = client.post(f"{GRAPH}/change", json=body)
    assert answer.json()["affected_nodes"] == 1
    assert answer.headers["link"] == '</graphs/default/mutate>; rel="successor-version"'


def test_a_conditional_mutation_runs_once(client):
    body = {"query": ADD, "params": {"name": "zoe"}}
    condition = {HEADER: head(client)}
    path = f"{GRAPH}/mutate/if-graph-commit"
    assert client.post(path, json=body, headers=condition).status_code == 200
    lost = client.post(path, json=body, headers=condition)
    assert lost.status_code == 412
    assert "code" not in lost.json()
    failure = lost.json()["precondition_failure"]
    assert (failure["expected"], failure["actual"]) == (condition[HEADER], head(client))


@each_case("value", ["", "*", '"01M7JHXX5HKC4A232RCKPQ9CAG"', "W/x", "a, b"])
def test_a_condition_is_one_plain_commit_id(client, value):
    path = f"{GRAPH}/mutate/if-graph-commit"
    answer = client.post(path, json={"query": ADD}, headers={HEADER: value})
    assert answer.status_code == 400


def test_a_condition_stands_on_its_own_routes_only(client):
    body = {"query": ADD, "params": {"name": "zoe"}}
    answer = client.post(f"{GRAPH}/mutate", json=body, headers={HEADER: head(client)})
    assert answer.status_code == 400
    assert client.post(f"{GRAPH}/mutate/if-graph-commit", json=body).status_code == 400


# ---- loads


def line(name):
    return json.dumps({"type": "Person", "data": {"name": name}})


def test_a_load_is_one_commit_and_a_dry_run_none(client):
    before = head(client)
    path = f"{GRAPH}/load/ndjson?mode=append&dry_run=true"
    assert client.post(path, content=line("zoe"), headers=NDJSON).json()["commit"] is None
    assert head(client) == before
    body = {"data": f"{line('zoe')}\n{line('yan')}\n", "mode": "append"}
    answer = client.post(f"{GRAPH}/load", json=body).json()
    assert answer["nodes"] == [{"name": "Person", "entities_loaded": 2}]
    assert answer["commit"]["graph_commit_id"] == head(client)
    assert answer["uri"] == "/graphs/default"


def test_a_raw_load_creates_its_branch_on_demand(client):
    path = f"{GRAPH}/load/ndjson?branch=draft&mode=merge"
    missing = client.post(path, content=line("zoe"), headers=NDJSON)
    assert missing.status_code == 404
    assert client.get(f"{GRAPH}/branches").json() == {"branches": ["main"]}
    made = client.post(f"{path}&from=main", content=line("zoe"), headers=NDJSON).json()
    assert (made["branch_created"], made["base_branch"], made["uri"]) == (True, "main", GRAPH)
    assert client.get(f"{GRAPH}/branches").json() == {"branches": ["draft", "main"]}


def test_a_bad_record_or_a_known_id_refuses_the_load_and_names_the_source_of_the_caller(client):
    before = head(client)
    content = f"{line('zoe')}\n" + '{"type":"Person","data":{"nam":"x"}}'
    path = f"{GRAPH}/load/ndjson?mode=append&source=people.jsonl"
    refused = client.post(path, content=content, headers=NDJSON)
    assert refused.status_code == 400
    (rule,) = refused.json()["report"]["rules"]
    assert (rule["examples"][0]["source"], rule["examples"][0]["line"]) == ("people.jsonl", 2)
    assert "omnigraph-load-" not in refused.text
    known = client.post(f"{GRAPH}/load", json={"data": line("ada"), "mode": "append"})
    assert (known.status_code, known.json()["key_conflict"]["type_name"]) == (409, "Person")
    assert "omnigraph-load-" not in known.text
    assert head(client) == before


@pytest.mark.parametrize("route", ["load", "load/ndjson"])
def test_a_patch_changes_rows_and_with_upsert_makes_them(client, route: str):
    def patch(*records: dict[str, object], **options: object) -> httpx.Response:
        data = "".join(f"{json.dumps(record)}\n" for record in records)
        if route == "load":
            return client.post(f"{GRAPH}/load", json={"data": data, "mode": "patch", **options})
        params = {"mode": "patch"} | {name: str(value).lower() for name, value in options.items()}
        return client.post(f"{GRAPH}/load/ndjson", params=params, content=data, headers=NDJSON)

    ada, zoe = ({"type": "Person", "data": {"name": name, "age": 50}} for name in ("ada", "zoe"))
    refused = patch(ada, zoe)
    assert (refused.status_code, refused.json()["report"]["rules"][0]["rule"]) == (400, "unknown id of Person")
    (made,) = patch(ada, zoe, upsert=True).json()["nodes"]
    assert (made["patched"], made["inserted"]) == (1, 1)
    assert patch(ada, ada).status_code == 400
    once = patch(ada, ada, on_duplicate="last").json()
    assert (once["superseded"], once["nodes"][0]["patched"]) == (1, 1)
    merged = client.post(f"{GRAPH}/load", json={"data": json.dumps(zoe), "mode": "merge", "upsert": True})
    assert (merged.status_code, "give mode patch" in merged.text) == (400, True)


def test_a_load_holds_every_node_against_its_minimum_where_that_is_asked_for(tmp_path: Path):
    uri = tmp_path / "teams.omni"
    Graph.init(uri, "node Team { name: String @key }  edge Has: Team -> Team @card(1..)").close()
    team = json.dumps({"type": "Team", "data": {"name": "a"}})
    with open_server(uri) as service, client_of(service) as client:
        for answer in (
            client.post(f"{GRAPH}/load", json={"data": team, "mode": "append", "check_minimum": True}),
            client.post(f"{GRAPH}/load/ndjson?mode=append&check_minimum=true", content=team, headers=NDJSON),
        ):
            assert (answer.status_code, "'a' has 0 edges" in answer.text) == (400, True)
        assert client.post(f"{GRAPH}/load", json={"data": team, "mode": "append"}).status_code == 200


def test_the_older_load_forgives_unknown_properties(client):
    data = '{"type":"Person","id":"zoe","data":{"name":"zoe","shoe":44,"age":"old"}}'
    assert client.post(f"{GRAPH}/load", json={"data": data}).status_code == 400
    answer = client.post(f"{GRAPH}/ingest", json={"data": data})
    assert answer.status_code == 200
    assert answer.headers["deprecation"] == "true"
    assert answer.json()["nulled"] == {"Person.age": 1}


def test_another_content_type_is_refused(client):
    path = f"{GRAPH}/load/ndjson?mode=append"
    assert client.post(path, content=line("zoe")).status_code == 415
    plain = {"Content-Type": "text/plain"}
    body = json.dumps({"query": ADD, "params": {"name": "zoe"}})
    assert client.post(f"{GRAPH}/mutate", content=body, headers=plain).status_code == 415


@each_case("encoding", ["gzip", "zstd", "br", "identity, gzip"])
def test_a_packed_body_is_refused_before_it_is_read(client, encoding: str):
    packed = {"Content-Type": "application/x-ndjson", "Content-Encoding": encoding}
    path = f"{GRAPH}/load/ndjson?mode=append"
    answer = client.post(path, content=gzip.compress(line("zoe").encode()), headers=packed)
    assert answer.status_code == 415
    assert "without a content encoding" in answer.text


# ---- branches


def test_a_branch_lives_and_is_merged_and_deleted(client):
    made = client.post(f"{GRAPH}/branches", json={"name": "team/draft"}).json()
    assert (made["name"], made["from"], made["actor_id"]) == ("team/draft", "main", None)
    again = client.post(f"{GRAPH}/branches", json={"name": "team/draft"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    body = {"query": ADD, "params": {"name": "zoe"}, "branch": "team/draft"}
    client.post(f"{GRAPH}/mutate", json=body)
    preview = client.post(f"{GRAPH}/branches/merge", json={"source": "team/draft", "dry_run": True})
    assert (preview.json()["outcome"], preview.json()["commit"]) == ("fast_forward", None)
    merged = client.post(f"{GRAPH}/branches/merge", json={"source": "team/draft", "delete_branch": True}).json()
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
    assert client.get(f"{GRAPH}/branches").json() == {"branches": ["main"]}


def test_the_name_of_a_branch_is_one_segment_and_it_may_begin_at_a_commit(client):
    first = head(client)
    client.post(f"{GRAPH}/mutate", json={"query": ADD, "params": {"name": "zoe"}})
    client.post(f"{GRAPH}/branches", json={"name": "team/draft", "from": first})
    rows = {"query": "query q() { match { $p: Person } return { $p.name } }", "branch": "team/draft"}
    assert client.post(f"{GRAPH}/query", json=rows).json()["row_count"] == 3
    assert client.delete(f"{GRAPH}/branches/team/draft").status_code == 404
    assert client.delete(f"{GRAPH}/branches/team%2Fdraft").json()["name"] == "team/draft"
    assert client.delete(f"{GRAPH}/branches/team%2Fdraft").status_code == 404


def test_conflicts_of_a_merge_are_listed(client):
    client.post(f"{GRAPH}/branches", json={"name": "draft"})
    for branch, age in (("main", 1), ("draft", 2)):
        body = {"query": AGE, "params": {"name": "ada", "age": age}, "branch": branch}
        assert client.post(f"{GRAPH}/mutate", json=body).json()["affected_nodes"] == 1
    refused = client.post(f"{GRAPH}/branches/merge", json={"source": "draft"})
    assert refused.status_code == 409
    (conflict,) = refused.json()["merge_conflicts"]
    assert (conflict["kind"], conflict["entity_id"]) == ("divergent_update", "ada")
    decided = client.post(f"{GRAPH}/branches/merge", json={"source": "draft", "strategy": "theirs"})
    assert decided.json()["outcome"] == "merged"


# ---- schema


def test_a_schema_is_applied(client):
    source = client.get(f"{GRAPH}/schema").json()["schema_source"]
    wanted = source + "\nnode Robot { serial: String @key }"
    answer = client.post(f"{GRAPH}/schema/apply", json={"schema_source": wanted}).json()
    assert (answer["applied"], answer["step_count"]) == (True, 1)
    assert client.get(f"{GRAPH}/schema").json()["schema_source"] == wanted
