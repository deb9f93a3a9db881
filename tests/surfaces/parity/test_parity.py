"""Reads of one graph, directly and through a server, give the same bytes."""

from __future__ import annotations

import gzip
import inspect
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.core.source import SourceText
from support.parity import ADD, SCHEMA, Pair, exported
from support.subtests import each_case
from support.values import OBJECTS, REFUSED_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.parity import Pair

    Story = dict[str, Callable[[Any], object]]

EVERYTHING = """
query everything() { match { $p: Person } return {
  $p.name as name, $p.age as age, $p.big as big, $p.ratio as ratio, $p.born as born, $p.seen as seen,
  $p.tags as tags, $p.level as level, $p.vec as vec
} order { $p.name } }
"""
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { $p.name } }"
OLDER = "query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name as name } }"
COUNT = "query count() { match { $p: Person } return { count($p) as people, avg($p.age) as age } }"
WROTE_BY = "match { $p: Person  $p $w:wrote $d } return { $p, $d, $w.role as role }"
NONE = 'query none() { match { $p: Person { name: "nobody" } } return { $p.name as name } }'
WRONG = SourceText("query bad() {\n  match { $p: Persn }\n  return { $p.nam }\n}", "bad.gq")


def first_commit(graph: Any) -> str:
    return graph.commits()[-1].commit_id


def load_commit(graph: Any) -> str:
    """The commit that brought everything."""
    return graph.commits()[-2].commit_id


QUERIES: dict[str, Callable[[Any], object]] = {
    "every type of value": lambda g: g.query(EVERYTHING),
    "parameters": lambda g: g.query(OLDER, {"age": 40}),
    "a text without a name": lambda g: g.query("match { $p: Person } return { $p.name } order { $p.name } limit 2"),
    "its parameters": lambda g: g.query("match { $p: Person  $p.age > $a } return { $p.name }", {"a": 40}),
    "a parameter of it without a type": lambda g: g.query("match { $p: Person } return { $x }", {"x": 1}),
    "what it means": lambda g: g.explain("match { $p: Person  $p.age > $a } return { $p.name }"),
    "a prepared read": lambda g: [g.prepare(OLDER)({"age": age}).to_pylist() for age in (30, 40)],
    "the state and the columns of it": lambda g: (
        repr(g.prepare(OLDER, branch="draft/one")),
        g.prepare(EVERYTHING).types,
        g.prepare(NAMES + OLDER, name="names")().to_json(),
    ),
    "a prepared read of a commit": lambda g: g.prepare(NAMES, snapshot=load_commit(g))(),
    "of a commit that a branch names": lambda g: repr(g.prepare(NAMES, snapshot="draft/one")),
    "of a graph version": lambda g: g.prepare(NAMES, version=g.commits()[1].graph_version)(),
    "aggregates": lambda g: g.query(COUNT),
    "no rows": lambda g: g.query(NONE),
    "one of several by name": lambda g: g.query(NAMES + OLDER, name="names"),
    "a branch": lambda g: g.query(NAMES, branch="draft/one"),
    "a commit": lambda g: g.query(NAMES, snapshot=load_commit(g)),
    "a graph version": lambda g: g.query(NAMES, version=g.commits()[1].graph_version),
    "a moment": lambda g: g.query(NAMES, as_of="2100-01-01T00:00:00Z"),
    "batches": lambda g: [batch.to_pylist() for batch in g.query(EVERYTHING)],
    "pandas": lambda g: g.query(EVERYTHING).to_pandas().to_csv(),
    "polars": lambda g: g.query(EVERYTHING).to_polars().rows(),
    "rows as a graph": lambda g: sorted(g.query(WROTE_BY).to_networkx().edges(data=True), key=str),
    "whole types as a graph": lambda g: sorted(g.to_networkx().nodes(data=True), key=str),
    "rows as a matrix": lambda g: g.query(WROTE_BY).to_scipy().matrix.toarray().tolist(),
    "whole types as a matrix": lambda g: [part.tolist() for part in g.to_scipy()[1:]],
    "a picture of a query": lambda g: g.show("match { $p: Person  $p wrote $d } return { $d.year }"),
    "a picture of nodes": lambda g: g.show({"Person": ["ada"]}, hops=2),
    "a picture of everything": lambda g: g.show(title="all"),
    "a picture of rows": lambda g: g.query(WROTE_BY).show(),
    "a picture of a difference": lambda g: g.diff("main", "draft/one").show(),
    "a picture of a schema": lambda g: g.catalog().show(),
    "a graph at a glance": lambda g: (str(g), g._repr_html_()),
    "an explained read": lambda g: g.explain(NAMES),
    "an explained mutation": lambda g: g.explain("query a() { delete Person where age > 3 }"),
    "a plan with parameters": lambda g: g.explain(OLDER, {"age": 3}, branch="draft/one"),
    "parameters of any mapping": lambda g: g.explain(OLDER, MappingProxyType({"age": 3})),
}
REFUSED_QUERIES: dict[str, Callable[[Any], object]] = {
    "wrong": lambda g: g.query(WRONG),
    "wrong to explain": lambda g: g.explain(WRONG),
    "wrong to prepare": lambda g: g.prepare(WRONG),
    "a mutation to prepare": lambda g: g.prepare(ADD),
    "branches to prepare": lambda g: g.prepare("branch list"),
    "a branch that is not there to prepare": lambda g: g.prepare(NAMES, branch="nowhere"),
    "wrong parameter of a prepared read": lambda g: g.prepare(OLDER)({"age": "x", "other": 1}),
    "no text": lambda g: g.query(""),
    "a picture of nothing": lambda g: g.show({"Persn": ["ada"]}),
    "a picture without nodes": lambda g: g.query(COUNT).show(),
    "missing parameter": lambda g: g.query(OLDER),
    "wrong parameter": lambda g: g.query(OLDER, {"age": "x", "other": 1}),
    "too large a number": lambda g: g.query(OLDER, {"age": 2**70}),
    "a mutation": lambda g: g.query('query a() { insert Person { name: "x" } }'),
    "several": lambda g: g.query(NAMES + OLDER),
    "an unknown name": lambda g: g.query(NAMES, name="other"),
    "no such branch": lambda g: g.query(NAMES, branch="nowhere"),
    "no such commit": lambda g: g.query(NAMES, snapshot="01K0000000000000000000000A"),
    "no such version": lambda g: g.query(NAMES, version=10_000),
    "no catalog of a version": lambda g: g.catalog(version=0),
    "no commit": lambda g: g.commit(None),
    "a text as a filter": lambda g: g.diff("main", "draft/one", types="Person"),
    "too early": lambda g: g.query(NAMES, as_of="1999-01-01"),
    "no moment": lambda g: g.query(NAMES, as_of="yesterday"),
    "two targets": lambda g: g.query(NAMES, version=1, as_of="2100-01-01"),
    "branch and commit": lambda g: g.query(NAMES, branch="draft/one", snapshot="x"),
    "a name that is no branch": lambda g: g.query(NAMES, branch="a b"),
}
HISTORY: dict[str, Callable[[Any], object]] = {
    "schema": lambda g: g.schema,
    "catalog": lambda g: g.catalog(),
    "catalog of a branch": lambda g: g.catalog("draft/one"),
    "catalog of a commit": lambda g: g.catalog(snapshot=load_commit(g)),
    "catalog of no branch": lambda g: g.catalog("nowhere"),
    "branches": lambda g: g.branches(),
    "refresh": lambda g: g.refresh(),
    "commits": lambda g: g.commits(),
    "commits of a branch": lambda g: g.commits("draft/one"),
    "commits of an actor": lambda g: g.commits("draft/one", actor="act-nadia"),
    "commits of nobody": lambda g: g.commits(actor="nobody"),
    "commits of all branches": lambda g: g.commits(all_branches=True),
    "what an actor did on any branch": lambda g: g.commits(actor="act-nadia", all_branches=True),
    "a branch and all branches": lambda g: g.commits("draft/one", all_branches=True),
    "no branch": lambda g: g.commits("nowhere"),
    "log": lambda g: g.log(),
    "log of a branch": lambda g: g.log("draft/one"),
    "log of no branch": lambda g: g.log("nowhere"),
    "commit": lambda g: g.commit(load_commit(g)),
    "no commit": lambda g: g.commit("01K0000000000000000000000A"),
    "no id": lambda g: g.commit("nothing"),
    "snapshot": lambda g: g.snapshot(),
    "snapshot of a branch": lambda g: g.snapshot("draft/one"),
    "snapshot of a commit": lambda g: g.snapshot(snapshot=load_commit(g)),
    "snapshot of no branch": lambda g: g.snapshot("nowhere"),
    "entity": lambda g: g.entity_at("node:Person", "ada"),
    "edge": lambda g: g.entity_at("edge:Wrote", "w1"),
    "entity of a branch": lambda g: g.entity_at("node:Person", "emmy", branch="draft/one"),
    "entity of a commit": lambda g: g.entity_at("node:Person", "ada", snapshot=load_commit(g)),
    "no entity": lambda g: g.entity_at("node:Person", "nobody"),
    "no type": lambda g: g.entity_at("node:Nothing", "ada"),
    "changes": lambda g: g.changes(load_commit(g)),
    "a page of changes": lambda g: g.changes(load_commit(g), limit=2),
    "a page of some bytes": lambda g: g.changes(load_commit(g), max_bytes=300),
    "the next page": lambda g: g.changes(
        load_commit(g), limit=2, page_token=g.changes(load_commit(g), limit=2).next_page_token
    ),
    "filtered changes": lambda g: g.changes(load_commit(g), kinds=["edge"], ops=["insert"]),
    "changes of a type": lambda g: g.changes(load_commit(g), types=["Paper"]),
    "changes of the first commit": lambda g: g.changes(first_commit(g)),
    "no changes": lambda g: g.changes("01K0000000000000000000000A"),
    "too large a page": lambda g: g.changes(load_commit(g), limit=100_000),
    "an empty page": lambda g: g.changes(load_commit(g), limit=0),
    "no page": lambda g: g.changes(load_commit(g), page_token="damaged"),
    "an unknown type": lambda g: g.changes(load_commit(g), types=["Nothing"]),
    "diff": lambda g: g.diff("main", "draft/one"),
    "diff of commits": lambda g: g.diff(load_commit(g), "main"),
    "filtered diff": lambda g: g.diff("main", "draft/one", ops=["update"], kinds=["node"]),
    "no difference": lambda g: g.diff("main", "main"),
    "diff of nothing": lambda g: g.diff("main", "nowhere"),
    "feed from now": lambda g: g.feed(),
    "feed from the beginning": lambda g: g.feed(start="beginning"),
    "feed of a branch": lambda g: g.feed("draft/one", start=f"after:{load_commit(g)}"),
    "feed in small pages": lambda g: g.feed(start="beginning", limit=2, max_commits=2),
    "feed from a cursor": lambda g: g.feed(cursor=g.feed(start="beginning", max_commits=1).cursor),
    "feed from nowhere": lambda g: g.feed(cursor="damaged"),
    "feed from two places": lambda g: g.feed(cursor="a", start="now"),
    "feed of no branch": lambda g: g.feed("nowhere"),
}
BLOBS: dict[str, Callable[[Any], object]] = {
    "whole": lambda g: g.read_blob("node:Person", "ada", "photo"),
    "empty": lambda g: g.read_blob("node:Person", 'gr"ace\t', "photo"),
    "behind an empty one": lambda g: g.read_blob("node:Person", 'gr"ace\t', "photo", offset=7),
    "range": lambda g: g.read_blob("node:Person", "ada", "photo", offset=2, length=4),
    "to the end": lambda g: g.read_blob("node:Person", "ada", "photo", offset=6),
    "beyond the end": lambda g: g.read_blob("node:Person", "ada", "photo", offset=6, length=99),
    "behind the end": lambda g: g.read_blob("node:Person", "ada", "photo", offset=11, length=2),
    "far behind the end": lambda g: g.read_blob("node:Person", "ada", "photo", offset=99),
    "negative": lambda g: g.read_blob("node:Person", "ada", "photo", offset=-1),
    "no bytes": lambda g: g.read_blob("node:Person", "ada", "photo", length=0),
    "too many bytes": lambda g: g.read_blob("node:Person", "ada", "photo", length=2**23),
    "of a commit": lambda g: g.read_blob("node:Person", "ada", "photo", snapshot=load_commit(g)),
    "null": lambda g: g.read_blob("node:Person", "alan", "photo"),
    "no entity": lambda g: g.read_blob("node:Person", "nobody", "photo"),
    "no type": lambda g: g.read_blob("node:Nothing", "ada", "photo"),
    "no property": lambda g: g.read_blob("node:Person", "ada", "nothing"),
    "no blob": lambda g: g.read_blob("node:Person", "ada", "age"),
    "no table key": lambda g: g.read_blob("Person", "ada", "photo"),
    "what it is": lambda g: g.stat_blob("node:Person", "ada", "photo"),
    "what an empty one is": lambda g: g.stat_blob("node:Person", 'gr"ace\t', "photo"),
    "what it was": lambda g: g.stat_blob("node:Person", "ada", "photo", snapshot=load_commit(g)),
    "what nothing is": lambda g: g.stat_blob("node:Person", "alan", "photo"),
    "outside": lambda g: g.read_blob("node:Scan", "outside", "file"),
    "a range outside": lambda g: g.read_blob("node:Scan", "outside", "file", offset=1, length=2),
    "what is outside": lambda g: g.stat_blob("node:Scan", "outside", "file"),
    "opened outside": lambda g: g.open_blob("node:Scan", "outside", "file").info,
    "the size of what is outside": lambda g: g.open_blob("node:Scan", "outside", "file").size,
    "pieces from outside": lambda g: g.open_blob("node:Scan", "outside", "file").chunks(),
    "an edge type in any case": lambda g: g.stat_blob("edge:wROTE", "w1", "note"),
    "bytes of an edge": lambda g: g.read_blob("edge:Wrote", "w1", "note"),
    "opened": lambda g: g.open_blob("node:Person", "ada", "photo").info,
    "pieces": lambda g: list(g.open_blob("node:Person", "ada", "photo").chunks(3)),
    "pieces of an empty one": lambda g: list(g.open_blob("node:Person", 'gr"ace\t', "photo").chunks()),
    "opened and read": lambda g: g.open_blob("node:Person", "ada", "photo").read(1, 2),
    "opened and too far": lambda g: g.open_blob("node:Person", "ada", "photo").read(50),
    "size": lambda g: g.open_blob("node:Person", "ada", "photo").size,
}
EXPORTS: dict[str, Callable[[Any], object]] = {
    "everything": exported,
    "some types": lambda g: exported(g, types=["Paper", "edge:Wrote"]),
    "a branch": lambda g: exported(g, branch="draft/one"),
    "a commit": lambda g: exported(g, snapshot=load_commit(g)),
    "no type": lambda g: exported(g, types=["Nothing"]),
    "no branch": lambda g: exported(g, branch="nowhere"),
    "one name as a text": lambda g: exported(g, types="Paper"),
    "no stream": lambda g: g.export(42),
}


@each_case("name", QUERIES)
def test_queries(same: Pair, name: str) -> None:
    remote, embedded = same.outcomes(QUERIES[name])
    assert remote == embedded


@each_case("name", REFUSED_QUERIES)
def test_refused_queries(same: Pair, name: str) -> None:
    remote, embedded = same.outcomes(REFUSED_QUERIES[name])
    assert remote == embedded


@each_case("name", HISTORY)
def test_history(same: Pair, name: str) -> None:
    remote, embedded = same.outcomes(HISTORY[name])
    assert remote == embedded


@each_case("name", BLOBS)
def test_blobs(same: Pair, name: str) -> None:
    remote, embedded = same.outcomes(BLOBS[name])
    assert remote == embedded


@each_case("name", EXPORTS)
def test_exports(same: Pair, name: str) -> None:
    remote, embedded = same.outcomes(EXPORTS[name])
    assert remote == embedded


_OBJECTS = [*((type_, given) for type_, given, _ in OBJECTS), *((type_, given) for type_, given, _ in REFUSED_OBJECTS)]


@each_case(("type_", "given"), _OBJECTS, ids=[f"{type_} {given!r:.60}" for type_, given in _OBJECTS])
def test_python_objects_as_parameters(same: Pair, type_: str, given: Any) -> None:
    declared = "String" if type_.startswith("enum") else type_
    text = f"query q($x: {declared}?) {{ match {{ $p: Paper }} return {{ $p, $x as x }} order {{ p }} }}"
    remote, embedded = same.outcomes(lambda graph: graph.query(text, {"x": given, "y": given}, name="q"))
    assert remote == embedded
    remote, embedded = same.outcomes(lambda graph: graph.query(text, {"x": given}))
    assert remote == embedded


def test_exported_files(same: Pair, tmp_path: Any) -> None:
    same.embedded.export(tmp_path / "embedded.jsonl", engine="local")
    result = same.remote.export(tmp_path / "remote.jsonl")
    expected = (tmp_path / "embedded.jsonl").read_bytes()
    assert (tmp_path / "remote.jsonl").read_bytes() == expected
    assert result.files == (str(tmp_path / "remote.jsonl"),)


def baseline(graph: Any, **filters: Any) -> tuple[str, object]:
    out = io.StringIO()
    result = graph.baseline(out=out, **filters)
    return out.getvalue(), result.to_json()


@each_case(
    "filters",
    [
        {},
        {"branch": "draft/one", "types": ["Person"], "ops": ["insert"]},
        {"branch": "nowhere"},
        {"types": ["Nothing"]},
    ],
    ids=str,
)
def test_baselines(same: Pair, filters: dict[str, Any]) -> None:
    remote, embedded = same.outcomes(lambda graph: baseline(graph, **filters))
    assert remote == embedded


def test_stored_queries_are_queries(same: Pair) -> None:
    people = same.remote.run("people")
    text = (
        'query people() @description("Everybody") { match { $p: Person } return { $p.name as name } order { $p.name } }'
    )
    assert people.to_json() == same.embedded.query(text).to_json()
    older = same.remote.run("older", {"age": 36}, branch="draft/one", expect_mutation=False)
    assert {row["name"] for row in older.to_pylist()} == {"ada", "emmy", 'gr"ace\t'}
    listed = same.remote.queries()
    assert [(item["name"], item["mutation"]) for item in listed] == [
        ("add_person", True),
        ("older", False),
        ("people", False),
    ]


#: What only makes sense with storage at hand, or without a server.
DIRECT = {"init", "from_frames", "open", "connect", "examine", "verify_at"}


def _methods(cls: type) -> dict[str, Any]:
    found = inspect.getmembers(cls, lambda item: inspect.isfunction(item) or inspect.ismethod(item))
    return {name: item for name, item in found if not name.startswith("_")}


def test_a_remote_graph_has_every_method_of_an_embedded_one_with_its_signature() -> None:
    remote = _methods(RemoteGraph)
    for name, method in _methods(Graph).items():
        if name in DIRECT:
            continue
        assert name in remote, f"{name} is neither offered nor refused"
        theirs = inspect.signature(remote[name])
        if "NoReturn" in str(theirs.return_annotation):
            continue
        mine = inspect.signature(method)
        assert {n: (p.kind, p.default) for n, p in theirs.parameters.items()} == {
            n: (p.kind, p.default) for n, p in mine.parameters.items()
        }, name


# ---- Writes to twin graphs, directly and through a server, give the same receipts and leave the same graphs


SET_AGE = "query set_age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
WHOLE = """
query whole($name: String, $age: I32, $ratio: F64, $born: Date, $seen: DateTime, $tags: [String], $vec: Vector(2),
  $photo: Blob) {
  insert Person { name: $name, age: $age, ratio: $ratio, born: $born, seen: $seen, tags: $tags, vec: $vec,
    photo: $photo }
}
"""
PERSON = {
    "name": UUID(int=7),
    "age": np.int16(28),
    "ratio": Decimal("0.25"),
    "born": date(1815, 12, 10),
    "seen": datetime(2026, 5, 1, 12, tzinfo=UTC),
    "tags": ("a", np.str_("b")),
    "vec": np.array([0.5, -1.0], np.float32),
    "photo": b"\x00\xff",
}
WROTE = "query wrote($who: String, $what: String) { insert Wrote { from: $who, to: $what } }"


def person(name: str, **values: object) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **values}})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    (root / "good.jsonl").write_text(f"{person('kurt', age=71)}\n\n{person('ada', age=38)}")
    (root / "bad.jsonl").write_text(
        "\n".join([person("x", agee=1), "{", '{"type": "Persn", "data": {}}', person("y", age="z")])
    )
    many = root / "many"
    many.mkdir()
    (many / "a.jsonl").write_text(person("a1"))
    (many / "b.jsonl.gz").write_bytes(gzip.compress(f"{person('b1')}\n{person('b2')}".encode()))
    (many / "c.ndjson").write_text(f"\ufeff{person('c1')}\n")
    wrong = root / "wrong"
    wrong.mkdir()
    (wrong / "a.jsonl").write_text(person("a2"))
    (wrong / "b.jsonl").write_text(f"{person('b3')}\n{person('b4', age='x')}\n")
    (wrong / "c.jsonl").write_text(json.dumps({"edge": "Wrote", "from": "z", "to": "10.1"}))
    doubtful = root / "doubtful"
    doubtful.mkdir()
    (doubtful / "a.jsonl").write_text(f"{person('d1', age=1)}\n{person('d1', age=2)}\n")
    (doubtful / "b.jsonl").write_text(json.dumps({"edge": "Wrote", "from": "d1", "to": "nowhere", "id": "w1"}))
    (root / "old.json").write_text(f"// old\n{person('old', age=1)} {person('older', age='x')}")
    (root / "new.pg").write_text(SCHEMA.replace("year: I32?", "year: I32?  title: String"))
    (root / "bad.pg").write_text("node Person {\n  name: Strin @key\n}")
    return root


def play(twins: Pair, story: Story) -> None:
    for name, call in story.items():
        remote, embedded = twins.neutral_outcomes(call)
        assert remote == embedded, name
    remote, embedded = twins.neutral_outcomes(exported)
    assert remote == embedded, "what the story left on main"
    remote, embedded = twins.neutral_outcomes(lambda graph: graph.log())
    assert remote == embedded, "the history that the story made"


def test_mutations(twins: Pair) -> None:
    def conditional(graph: Any) -> object:
        head = graph.snapshot().commit_id
        return graph.mutate(SET_AGE, {"name": "alan", "age": 1}, if_commit=head)

    story: Story = {
        "insert": lambda g: g.mutate(ADD, {"name": "new", "age": 3}),
        "update": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 4}, branch="draft/one"),
        "a text without a name": lambda g: g.mutate(
            "update Person set { age: $a } where name = $n", {"a": 5, "n": "ada"}
        ),
        "nothing matches": lambda g: g.mutate(SET_AGE, {"name": "nobody", "age": 4}),
        "a statement that makes a branch": lambda g: g.mutate('branch create "made/one" from main;'),
        "a statement that lists branches": lambda g: g.query("branch list").to_pylist(),
        "a statement that merges a branch": lambda g: g.mutate("branch merge made/one"),
        "a statement that deletes a branch": lambda g: g.mutate("branch delete made/one"),
        "a statement that explains": lambda g: g.query("explain match { $p: Person } delete $p").to_pylist(),
        "rows of a match": lambda g: g.mutate(
            'match { $p: Person { name: "ada" } } update $p set { age: 6 } return { $p.name as name, $p.age as age }'
        ),
        "a preview": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 9}, dry_run=True),
        "a preview of too much": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 9}, dry_run=True, max_affected=0),
        "within a bound": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 9}, max_affected=1),
        "a reason": lambda g: g.mutate(ADD, {"name": "why"}, message=" so ", metadata={"ticket": 7, "a": None}),
        "a blank reason": lambda g: g.mutate(ADD, {"name": "why"}, message=" "),
        "metadata that are not flat": lambda g: g.mutate(ADD, {"name": "why"}, metadata={"a": [1]}),
        "a reason without a commit": lambda g: g.mutate("branch create x", message="so"),
        "one of several": lambda g: g.mutate(ADD + SET_AGE, {"name": "two"}, name="add"),
        "a condition that holds": conditional,
        "a condition that does not": lambda g: g.mutate(ADD, {"name": "never"}, if_commit=g.commits()[-1].commit_id),
        "a condition that is no commit": lambda g: g.mutate(ADD, {"name": "no"}, if_commit="no"),
        "an end that is missing": lambda g: g.mutate(WROTE, {"who": "ada", "what": "10.9"}),
        "reads and writes mixed": lambda g: g.mutate(
            'query m() { insert Person { name: "m" } delete Person where name = "m" }'
        ),
        "a read": lambda g: g.mutate("query r() { match { $p: Person } return { $p.name } }"),
        "wrong": lambda g: g.mutate("query w() { insert Persn { name: 1 } }"),
        "a wrong value": lambda g: g.mutate(ADD, {"name": "x", "age": "old"}),
        "python objects": lambda g: g.mutate(WHOLE, PERSON),
        "python objects that do not fit": lambda g: g.mutate(WHOLE, PERSON | {"born": PERSON["seen"], "age": [b"x"]}),
        "no branch": lambda g: g.mutate(ADD, {"name": "x"}, branch="nowhere"),
        "delete": lambda g: g.mutate('query d() { delete Person where name = "new" }'),
    }
    play(twins, story)


def test_loads(twins: Pair, files: Path) -> None:
    def load(source: object, **options: Any) -> Callable[[Any], object]:
        return lambda graph: graph.load(source, **options)

    story: Story = {
        "a dry run": load(files / "good.jsonl", mode="merge", dry_run=True),
        "merge": load(files / "good.jsonl", mode="merge"),
        "a reason": load(files / "good.jsonl", mode="merge", message="once\nmore", metadata={"é": 1.5, "b": True}),
        "a reason that is too long": load(files / "good.jsonl", mode="merge", message="x" * 20_000),
        "append what exists": load(files / "good.jsonl", mode="append"),
        "wrong records": load(files / "bad.jsonl", mode="merge"),
        "many files": load(files / "many", mode="append"),
        "a pattern": load(str(files / "many" / "*.jsonl"), mode="merge"),
        "many wrong files": load(files / "wrong", mode="merge"),
        "one of equal ids": load(files / "doubtful", mode="append", on_duplicate="first", dangling="drop"),
        "no rule for them": load(files / "doubtful", mode="append", on_duplicate="any"),
        "old files": load(files / "old.json", mode="merge", grammar="compatible"),
        "a missing branch": load(files / "good.jsonl", mode="merge", branch="fresh"),
        "a new branch": load(files / "good.jsonl", mode="overwrite", branch="fresh", base="main"),
        "no base": load(files / "good.jsonl", mode="merge", branch="other", base="nowhere"),
        "no file": load(files / "nothing.jsonl", mode="merge"),
        "no mode": load(files / "good.jsonl", mode="replace"),
        "no grammar": load(files / "good.jsonl", mode="merge", grammar="loose"),
        "no input": lambda graph: graph.load(mode="merge"),
    }
    play(twins, story)


def test_branches(twins: Pair) -> None:
    story: Story = {
        "create": lambda g: g.create_branch("left"),
        "create from a branch": lambda g: g.create_branch("right/hand", "left"),
        "create from a commit": lambda g: g.create_branch("past", g.commits()[0].commit_id),
        "taken": lambda g: g.create_branch("left"),
        "no base": lambda g: g.create_branch("x", "nowhere"),
        "no commit": lambda g: g.create_branch("x", "01K0000000000000000000000A"),
        "no name": lambda g: g.create_branch("a b"),
        "list": lambda g: g.branches(),
        "up to date": lambda g: g.merge("left"),
        "change left": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 100}, branch="left"),
        "preview": lambda g: g.merge("left", dry_run=True),
        "fast": lambda g: g.merge("left", message="reviewed", metadata={"by": "ada"}),
        "change right": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 7}, branch="right/hand"),
        "conflicts": lambda g: g.merge("right/hand"),
        "a preview of conflicts": lambda g: g.merge("right/hand", dry_run=True),
        "no strategy": lambda g: g.merge("right/hand", strategy="mine"),
        "into itself": lambda g: g.merge("left", "left"),
        "from nowhere": lambda g: g.merge("nowhere"),
        "decided": lambda g: g.merge("right/hand", strategy="theirs", delete_branch=True),
        "delete": lambda g: g.delete_branch("past"),
        "delete main": lambda g: g.delete_branch("main"),
        "delete nothing": lambda g: g.delete_branch("nowhere"),
        "list again": lambda g: g.branches(),
    }
    play(twins, story)


def test_schema_changes(twins: Pair, files: Path) -> None:
    def without_branches(graph: Any) -> None:
        for name in reversed(graph.branches()):
            if name != "main":
                graph.delete_branch(name)

    fill = {"Paper.title": "doi"}
    story: Story = {
        "a wrong schema": lambda g: g.apply_schema(files / "bad.pg"),
        "a wrong text": lambda g: g.apply_schema("node Person { name: Strin }"),
        "no file": lambda g: g.apply_schema(files / "nothing.pg"),
        "branches": lambda g: g.apply_schema(files / "new.pg", backfill=fill),
        "delete the branches": without_branches,
        "unsupported": lambda g: g.apply_schema(files / "new.pg"),
        "a wrong backfill": lambda g: g.apply_schema(files / "new.pg", backfill={"A.b": "1"}),
        "violations": lambda g: g.apply_schema(SCHEMA.replace("year: I32?", "year: I32")),
        "applied": lambda g: g.apply_schema(files / "new.pg", backfill=fill, engine="local"),
        "applied again": lambda g: g.apply_schema(files / "new.pg"),
        "a hint without effect": lambda g: [
            warning.render()
            for warning in g.apply_schema(
                (files / "new.pg").read_text().replace("node Paper", 'node Paper @rename_from("Old")')
            ).plan.warnings
        ],
        "the schema": lambda g: g.schema,
    }
    play(twins, story)


def test_stored_mutations_are_mutations(twins: Pair) -> None:
    receipt = twins.remote.run("add_person", {"name": "stored"}, expect_mutation=True)
    assert (receipt.affected_nodes, receipt.commit.kind) == (1, "mutation")
    assert receipt.commit == twins.remote.commits()[0]


# ---- after close


class Closing(io.StringIO):
    """A file that closes a graph at the first text that it takes."""

    def __init__(self, graph: Graph | RemoteGraph) -> None:
        super().__init__()
        self.graph = graph

    def write(self, text: str) -> int:
        self.graph.close()
        return super().write(text)


def test_what_a_graph_gave_out_is_read_to_its_end_when_it_is_closed(twins: Pair, tmp_path: Path) -> None:
    """Both are more than a connection holds."""
    rows = [{"type": "Person", "data": {"name": f"p{number}", "tags": ["x" * 200_000]}} for number in range(80)]
    rows.append({"type": "Person", "data": {"name": "long", "photo": "base64:" + "QUJD" * 4_000_000}})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for graph in (twins.embedded, twins.remote):
        graph.load(tmp_path / "rows.jsonl", mode="merge", engine="local")
        streamed = iter(graph.query("match { $p: Person } return { $p.name, $p.tags }"))
        blob = graph.open_blob("node:Person", "long", "photo")
        pieces = blob.chunks()
        diff = graph.diff("main", "draft/one", engine="local")
        rows_read, bytes_read = next(streamed).num_rows, len(next(pieces))
        graph.close()
        assert rows_read + sum(batch.num_rows for batch in streamed) == len(rows) + 3
        assert bytes_read + sum(map(len, pieces)) == blob.size == 12_000_000
        assert blob.read(0, 3) == b"ABC"
        assert len(diff) == len(diff.changes) > 0
        text = Closing(graph)
        assert graph.export(text, engine="local").nodes["Person"] == text.getvalue().count('{"type":"Person"')


def test_a_graph_that_is_used_after_close_takes_what_it_needs_again(same: Pair) -> None:
    for graph in (same.embedded, same.remote):
        for _ in range(2):
            graph.close()
            assert graph.query(NAMES).row_count
