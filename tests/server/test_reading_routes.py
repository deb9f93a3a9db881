from __future__ import annotations

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
