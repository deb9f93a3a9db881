"""Dry runs of mutations say what the mutation then does, and a bound keeps one from changing more than that."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError, PreconditionFailedError, ResourceLimitError
from omnigraph.graph.graph import Graph
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  age: I32?  note: Blob? }
node Visit { at: DateTime  seen: I64? }
edge Knows: Person -> Person { since: Date? }
"""
FILL = """
query fill() {
  insert Person { name: "ada", age: 36 }   insert Person { name: "bob", age: 41, note: "base64:AAAA" }
  insert Person { name: "cid", age: 41 }   insert Person { name: "dan" }
  insert Visit { at: datetime("2024-02-29T12:00:00Z"), seen: 9007199254740993 }
  insert Knows { from: "ada", to: "bob", since: date("2020-01-01") }
  insert Knows { from: "bob", to: "cid" }
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    with Graph.init(tmp_path / "people.omni", SCHEMA) as graph:
        graph.mutate(FILL)
        yield graph


STATEMENTS = {
    "insert": 'insert Person { name: "eve" } insert Knows { from: "eve", to: "ada" }',
    "replace": 'insert Person { name: "ada", age: 1 } insert Person { name: "eve", age: 2 }',
    "update": "update Person set { age: 50 } where age = 41",
    "update twice": 'update Person set { age: 50 } where age = 41 update Person set { age: 60 } where name = "ada"',
    "delete": 'delete Person where name = "bob"',
    "delete edges": 'delete Knows where from = "ada"',
    "no key": 'insert Visit { at: datetime("2024-03-01T00:00:00Z") } update Visit set { seen: 1 } where seen > 1',
    "nothing": 'update Person set { age: 1 } where name = "nobody"',
}


@each_case("name", STATEMENTS)
def test_a_preview_is_what_the_mutation_then_does(graph: Graph, name: str) -> None:
    before = graph.commits()
    preview = graph.mutate(STATEMENTS[name], dry_run=True)
    assert (graph.commits(), preview.commit, preview.dry_run) == (before, None, True)
    assert graph.mutate(STATEMENTS[name], dry_run=True).changes == preview.changes
    done = graph.mutate(STATEMENTS[name])
    assert (done.affected_nodes, done.affected_edges) == (preview.affected_nodes, preview.affected_edges)
    assert not done.dry_run
    if done.commit is None:
        assert preview.changes == preview.examples == ()
        return
    changes = graph.changes(done.commit.commit_id).changes
    counted = Counter((f"{change.kind}:{change.type_name}", str(change.op)) for change in changes)
    promised = {
        (item.type_key, op): number
        for item in preview.changes
        for op, number in (("insert", item.inserted), ("update", item.updated), ("delete", item.deleted))
        if number
    }
    assert promised == counted
    real = {change.id: change for change in changes}
    for example in preview.examples:
        if example.id in real:  # entities without a key get a new id each time
            change = real[example.id]
            assert str(change.op) == example.op
            for shown, stored in ((example.before, change.before), (example.after, change.after)):
                assert (shown is None) == (stored is None)
                if shown is not None and stored is not None:
                    assert shown.get("endpoints") == stored.get("endpoints")
                    assert shown["properties"].items() <= stored["properties"].items()
    assert all("note" not in (item.after or item.before)["properties"] for item in preview.examples)


def test_a_preview_shows_a_few_rows_of_every_kind(graph: Graph) -> None:
    graph.mutate("query more() {" + " ".join(f'insert Person {{ name: "p{i}" }}' for i in range(9)) + "}")
    preview = graph.mutate('update Person set { age: 1 } where name > "p"', dry_run=True)
    (change,) = preview.changes
    assert (change.type_key, change.updated) == ("node:Person", 9)
    assert [(item.id, item.op) for item in preview.examples] == [(f"p{i}", "update") for i in range(3)]
    assert preview.examples[0].before == {"properties": {"name": "p0", "age": None}}
    assert preview.examples[0].after == {"properties": {"name": "p0", "age": 1}}


def test_a_preview_is_refused_for_what_the_mutation_would_be_refused_for(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="Knows"):
        graph.mutate('insert Knows { from: "ada", to: "nobody" }', dry_run=True)
    with pytest.raises(PreconditionFailedError):
        graph.mutate(STATEMENTS["update"], dry_run=True, if_commit=graph.commits()[-1].commit_id)
    with pytest.raises(ResourceLimitError):
        graph.mutate(STATEMENTS["update"], dry_run=True, max_affected=1)


def test_a_preview_needs_no_right_to_write_files(graph: Graph) -> None:
    with Graph.open(graph.uri, read_only=True) as reader:
        assert reader.mutate(STATEMENTS["delete"], dry_run=True).affected_edges == 2


def test_a_bound_is_the_most_that_a_mutation_changes(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    with pytest.raises(
        ResourceLimitError, match="nodes and edges that would change: 3, above the limit of 2"
    ) as refused:
        graph.mutate(STATEMENTS["delete"], max_affected=2)
    assert (refused.value.resource, refused.value.actual) == ("affected_rows", 3)
    assert graph.snapshot().commit_id == before
    assert graph.mutate(STATEMENTS["delete"], max_affected=3).affected_edges == 2
