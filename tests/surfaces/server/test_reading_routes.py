from __future__ import annotations

import json

from omnigraph.api.operation import ARROW_STREAM
from omnigraph.api.row_streams import decode_result
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.server.routes.reads import types_of
from support.servers import SCHEMA

GRAPH = "/graphs/default"
PEOPLE = "query q() { match { $p: Person } return { $p.name as name } order { $p.name } }"


def test_a_query_answers_rows_and_the_commit_that_they_show(reader):
    answer = reader.post(f"{GRAPH}/query", json={"query": PEOPLE})
    head = reader.get(f"{GRAPH}/snapshot").json()["graph_commit_id"]
    assert answer.status_code == 200
    assert answer.json() == {
        "query_name": "q",
        "target": {"branch": "main"},
        "row_count": 3,
        "columns": ["name"],
        "rows": [{"name": "ada"}, {"name": "alan"}, {"name": "grace"}],
        "graph_commit_id": head,
    }


def test_the_older_form_of_a_query_names_its_successor_and_no_commit(reader):
    answer = reader.post(f"{GRAPH}/read", json={"query_source": PEOPLE})
    assert list(answer.json()) == ["query_name", "target", "row_count", "columns", "rows"]
    assert answer.headers["deprecation"] == "true"
    assert answer.headers["link"] == '</graphs/default/query>; rel="successor-version"'


def test_a_mutation_is_no_query(reader):
    body = {"query": 'query a() { insert Person { name: "x" } }'}
    answer = reader.post(f"{GRAPH}/query", json=body)
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"


def test_a_body_of_another_shape_is_told_field_by_field(reader):
    body = {"query": 1, "branch": ["main"], "brunch": "main", "timeout_s": 0}
    answer = reader.post(f"{GRAPH}/query", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == (
        "invalid request: `query` is a text, not a number; `branch` is a text, not a list; "
        "`timeout_s` is not above 0; `brunch` is not a known field"
    )


def test_a_wrong_query_is_refused_with_its_place(reader):
    answer = reader.post(f"{GRAPH}/query", json={"query": "query q() {\n match { $p: Persn } return { $p } }"})
    assert answer.status_code == 400
    assert answer.json()["kind"] == "compiler"
    (finding,) = answer.json()["diagnostics"]
    assert (finding["line"], finding["column"]) == (2, 14)


def test_a_query_reads_the_past(client):
    before = client.get(f"{GRAPH}/snapshot").json()
    client.post(f"{GRAPH}/mutate", json={"query": 'query a() { insert Person { name: "zoe" } }'})

    def count(**target: object) -> int:
        answer = client.post(f"{GRAPH}/query", json={"query": PEOPLE, **target})
        assert answer.status_code == 200, answer.text
        return answer.json()["row_count"]

    assert count() == 4
    assert count(snapshot=before["graph_commit_id"]) == 3
    assert count(branch="main", version=before["graph_manifest_version"]) == 3
    assert count(as_of="2999-01-01T00:00:00Z") == 4


def test_a_query_names_one_target(reader):
    body = {"query": PEOPLE, "branch": "main", "snapshot": "01M7JHXX5HKC4A232RCKPQ9CAG"}
    assert reader.post(f"{GRAPH}/query", json=body).status_code == 400
    body = {"query": PEOPLE, "version": 10**30}
    assert reader.post(f"{GRAPH}/query", json=body).status_code == 400
    assert reader.post(f"{GRAPH}/query", json={"query": PEOPLE, "branch": "no"}).status_code == 404


def test_rows_come_as_arrow_on_demand(reader):
    answer = reader.post(f"{GRAPH}/query", json={"query": PEOPLE}, headers={"Accept": ARROW_STREAM})
    assert answer.headers["content-type"] == ARROW_STREAM
    result = decode_result(iter([answer.content]))
    assert result.to_pylist() == [{"name": "ada"}, {"name": "alan"}, {"name": "grace"}]


def test_many_rows_stream_as_arrow(client):
    lines = "\n".join(
        json.dumps({"type": "Person", "data": {"name": f"p{n}", "bio": "b" * 1000}}) for n in range(4_000)
    )
    loaded = client.post(f"{GRAPH}/load", json={"data": lines})
    assert loaded.status_code == 200, loaded.text
    query = "query q() { match { $p: Person } return { $p.name as name, $p.bio as bio } }"
    answer = client.post(f"{GRAPH}/query", json={"query": query}, headers={"Accept": ARROW_STREAM})
    assert "content-length" not in answer.headers
    assert decode_result(iter([answer.content])).row_count == 4_003


def test_a_plan_is_explained(reader):
    answer = reader.post(f"{GRAPH}/explain", json={"query": PEOPLE, "analyze": True}).json()
    assert answer["kind"] == "read"
    assert answer["plan"] == answer["text"].splitlines()
    assert answer["operation"]["reads"] == [{"kind": "node", "type_name": "Person"}]


def test_one_entity_or_none(reader):
    found = reader.get(f"{GRAPH}/entity", params={"type": "node:Person", "id": "alan"}).json()
    assert found["entity"]["properties"]["age"] == 41
    missing = reader.get(f"{GRAPH}/entity", params={"type": "node:Person", "id": "nobody"})
    assert missing.json() == {"entity": None}
    unknown = reader.get(f"{GRAPH}/entity", params={"type": "node:Robot", "id": "r"})
    assert unknown.status_code == 404


def test_the_schema_comes_as_text_and_as_types(reader):
    answer = reader.get(f"{GRAPH}/schema").json()
    assert answer["schema_source"] == SCHEMA
    person = next(node for node in answer["types"]["nodes"] if node["name"] == "Person")
    assert person["properties"][0] == {
        "name": "name",
        "type": "String",
        "nullable": False,
        "description": None,
        "annotations": ["@key"],
    }
    wrote = next(edge for edge in answer["types"]["edges"] if edge["name"] == "Wrote")
    assert (wrote["from"], wrote["to"], wrote["cardinality"]) == ("Person", "Paper", "0..")
    assert "key" not in wrote


def test_the_types_of_a_schema_tell_the_keys_of_edges():
    catalog = compile_schema("node P {} edge E: P -> P { year: I32  note: String  @key(@dst, @src, year) }").catalog
    (edge,) = types_of(catalog)["edges"]
    assert edge.key == ["dst", "src", "year"]
    assert {item.name: item.annotations for item in edge.properties} == {"year": ["@key"], "note": []}


def test_unknown_and_repeated_parameters_are_refused(reader):
    assert reader.get(f"{GRAPH}/snapshot?brunch=main").status_code == 400
    assert reader.get(f"{GRAPH}/snapshot?branch=main&branch=main").status_code == 400


def test_unknown_paths_graphs_and_methods_have_the_envelope(reader):
    for method, path, status, code in [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/graphs/other/schema", 404, "not_found"),
        ("GET", f"{GRAPH}/nothing", 404, "not_found"),
        ("PUT", f"{GRAPH}/query", 405, "method_not_allowed"),
    ]:
        answer = reader.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
    assert "POST" in reader.put(f"{GRAPH}/query").headers["allow"]
