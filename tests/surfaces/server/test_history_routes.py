from __future__ import annotations

import json

import pytest

from omnigraph.pipeline import deltas
from omnigraph.spark import worker_choice
from support.servers import client_of, make_graph, open_server
from support.subtests import each_case

GRAPH = "/graphs/default"


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A client of a graph with a few commits on two branches, which nobody changes."""
    uri = make_graph(tmp_path_factory.mktemp("past"))
    with open_server(uri) as service, client_of(service) as client:
        client.post(f"{GRAPH}/branches", json={"name": "draft"})
        for branch, name in (("main", "zoe"), ("draft", "yan"), ("draft", "xia")):
            body = {"query": f'query a() {{ insert Person {{ name: "{name}" }} }}', "branch": branch}
            assert client.post(f"{GRAPH}/mutate", json=body).status_code == 200
        yield client


def test_commits_come_newest_first(past):
    commits = past.get(f"{GRAPH}/commits?branch=draft").json()["commits"]
    versions = [commit["graph_manifest_version"] for commit in commits]
    assert versions == sorted(versions, reverse=True)
    assert commits[0]["graph_branch"] == "draft"
    assert past.get(f"{GRAPH}/commits?actor=nobody").json() == {"commits": []}


def test_commits_of_all_branches_are_those_of_the_log(past):
    listed = past.get(f"{GRAPH}/commits?all_branches=true").json()["commits"]
    log = past.get(f"{GRAPH}/log").json()["commits"]
    assert [commit["graph_commit_id"] for commit in listed] == [commit["graph_commit_id"] for commit in log]
    assert past.get(f"{GRAPH}/commits?all_branches=true&actor=nobody").json() == {"commits": []}
    refused = past.get(f"{GRAPH}/commits?all_branches=true&branch=draft")
    assert refused.status_code == 400
    assert "the branch draft or all_branches" in refused.json()["error"]


def test_one_commit_by_id(past):
    newest = past.get(f"{GRAPH}/commits").json()["commits"][0]
    assert past.get(f"{GRAPH}/commits/{newest['graph_commit_id']}").json() == newest
    assert past.get(f"{GRAPH}/commits/01M7JHXX5HKC4A232RCKPQ9CAG").status_code == 404


def test_the_log_holds_all_branches_and_their_heads(past):
    log = past.get(f"{GRAPH}/log").json()
    assert set(log["heads"]) == {"draft", "main"}
    assert {commit["graph_branch"] for commit in log["commits"]} == {"draft", "main"}
    one = past.get(f"{GRAPH}/log?branch=main").json()
    assert {commit["graph_branch"] for commit in one["commits"]} == {"main"}


def test_changes_of_a_commit_come_in_pages(past):
    loaded = past.get(f"{GRAPH}/commits").json()["commits"][-2]
    path = f"{GRAPH}/commits/{loaded['graph_commit_id']}/changes"
    whole = past.get(path).json()
    assert whole["cause"]["graph_commit_id"] == loaded["graph_commit_id"]
    assert len(whole["changes"]) == 8
    first = past.get(path, params={"limit": 5}).json()
    token = {"limit": 5, "page_token": first["next_page_token"]}
    assert first["changes"] + past.get(path, params=token).json()["changes"] == whole["changes"]
    edges = past.get(f"{path}?kind=edge&type=Wrote&type=Knows&op=insert").json()["changes"]
    assert len(edges) == 3


def test_the_first_commit_has_no_changes(past):
    first = past.get(f"{GRAPH}/commits").json()["commits"][-1]
    refused = past.get(f"{GRAPH}/commits/{first['graph_commit_id']}/changes")
    assert refused.status_code == 409
    assert refused.json()["change_diff_refusal"]["reason"] == "parentless_commit"


@each_case(
    ("query", "status"), [("limit=0", 400), ("limit=9000", 413), ("limit=x", 400), ("page_token=x", 400), ("op=x", 400)]
)
def test_pages_have_limits(past, query, status):
    loaded = past.get(f"{GRAPH}/commits").json()["commits"][-2]["graph_commit_id"]
    assert past.get(f"{GRAPH}/commits/{loaded}/changes?{query}").status_code == status
    assert past.get(f"{GRAPH}/changes?{query}").status_code == status
    assert past.get(f"{GRAPH}/diff?from=main&to=draft&{query}").status_code == status


def test_a_diff_comes_in_pages_of_two_fixed_commits(past):
    whole = past.get(f"{GRAPH}/diff?from=main&to=draft").json()
    assert {(change["id"], change["op"]) for change in whole["changes"]} == {
        ("zoe", "delete"),
        ("yan", "insert"),
        ("xia", "insert"),
    }
    ends = {"from": whole["from_graph_commit_id"], "to": whole["to_graph_commit_id"], "limit": 2}
    first = past.get(f"{GRAPH}/diff", params=ends).json()
    rest = past.get(f"{GRAPH}/diff", params=ends | {"page_token": first["next_page_token"]}).json()
    assert first["changes"] + rest["changes"] == whole["changes"]
    assert "next_page_token" not in rest
    other = {"from": "draft", "to": "main", "page_token": first["next_page_token"]}
    assert past.get(f"{GRAPH}/diff", params=other).status_code == 400


def test_pages_of_a_large_diff_are_read_from_one_comparison(past, monkeypatch):
    url, states = f"{GRAPH}/diff", {"from": "main", "to": "draft"}
    whole = past.get(url, params=states).json()
    monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", 0)
    graph = past.app.state.service.graphs["default"].graph
    graph._core.history.close()
    # The graph remembers small differences: here nothing is small any more.
    monkeypatch.setattr(graph._core.history._reader._held, "put", lambda *_: None)
    compared = []
    real = deltas.filed_deltas
    monkeypatch.setattr(deltas, "filed_deltas", lambda *given: compared.append(1) or real(*given))
    page = past.get(url, params=states | {"limit": 1}).json()
    assert page["next_page_token"]
    changes = page["changes"]
    commits = {"from": page["from_graph_commit_id"], "to": page["to_graph_commit_id"], "limit": 1}
    first_calls = len(compared)
    assert first_calls > 0
    while token := page.get("next_page_token"):
        page = past.get(url, params=commits | {"page_token": token}).json()
        changes += page["changes"]
        assert page["stats"] == whole["stats"]
    assert changes == whole["changes"]
    assert len(compared) == first_calls
    # Another filter is another diff.
    some = past.get(url, params=commits | {"op": "delete"}).json()
    assert [change["id"] for change in some["changes"]] == ["zoe"]


def test_a_feed_ends_with_a_cursor_and_goes_on_from_it(past):
    page = past.get(f"{GRAPH}/changes?branch=draft&start=beginning").json()
    assert page["caught_up"]
    assert [change["id"] for block in page["blocks"][-2:] for change in block["changes"]] == ["yan", "xia"]
    again = past.get(f"{GRAPH}/changes", params={"branch": "draft", "cursor": page["cursor"]})
    assert again.json()["blocks"] == []
    both = past.get(f"{GRAPH}/changes", params={"start": "now", "cursor": page["cursor"]})
    assert both.status_code == 400


def test_a_baseline_ends_with_its_handshake(past):
    answer = past.post(f"{GRAPH}/changes/baseline", json={"branch": "draft"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *entities, last = [json.loads(line) for line in answer.text.splitlines()]
    assert len(entities) == 10
    handshake = last["baseline"]
    assert handshake["snapshot_commit_id"] == past.get(f"{GRAPH}/log").json()["heads"]["draft"]
    cursor = {"branch": "draft", "cursor": handshake["resume_cursor"]}
    assert past.get(f"{GRAPH}/changes", params=cursor).json()["caught_up"]


def test_an_export_is_what_the_library_exports(past):
    answer = past.post(f"{GRAPH}/export", json={"type_names": ["Person"]})
    assert answer.status_code == 200
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["data"]["id"] for line in lines] == ["ada", "alan", "grace", "zoe"]
    head = past.get(f"{GRAPH}/log").json()["heads"]["main"]
    assert answer.headers["omnigraph-snapshot-id"] == head


@each_case(("body", "status"), [({"type_names": ["Robot"]}, 400), ({"branch": "no"}, 404), ({"typ": 1}, 400)])
def test_a_wrong_export_is_refused_before_it_begins(past, body, status):
    assert past.post(f"{GRAPH}/export", json=body).status_code == status
    assert past.post(f"{GRAPH}/export", json={}).status_code == 200
