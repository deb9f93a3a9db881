"""Objects and paths as columns of results: on every way that rows take to the one who asked."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars
import pytest

from omnigraph import Graph
from omnigraph.api.rows import Result
from omnigraph.cli.rows import RowForm, RowFormat, render_rows, terminal_lines
from omnigraph.cli.tables import TableLayout
from support.servers import client_of, listening, open_server
from support.subtests import each_case

SCHEMA = """
interface Placed { name: String }
node Person implements Placed {
  name: String @key
  age: I32?
  big: I64?
  score: F32?
  born: Date?
  seen: DateTime?
  tags: [String]?
  mood: enum(glad, sad)?
  photo: Blob?
  face: Vector(2)?
}
node Town implements Placed { name: String @key  age: I32?  size: I64? }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
edge LivesIn: Person -> Town { @key(src, dst) }
"""
ROWS = """
insert Person { name: "ann", age: 41, big: 9007199254740993, score: 0.1, born: date("2020-01-02"),
  seen: datetime("2020-01-02T03:04:05.678Z"), tags: ["x", "y"], mood: "glad", face: [1.0, 2.0] }
insert Person { name: "bob" }
insert Person { name: "cy", age: 9 }
insert Town { name: "Rome", size: 3 }
insert Knows { from: "ann", to: "bob", since: 1999 }
insert Knows { from: "bob", to: "cy" }
insert LivesIn { from: "cy", to: "Rome" }
"""
ANN = {
    "@id": "ann",
    "name": "ann",
    "age": 41,
    "big": "9007199254740993",
    "score": 0.1,
    "born": "2020-01-02",
    "seen": "2020-01-02T03:04:05.678Z",
    "tags": ["x", "y"],
    "mood": "glad",
}
NULLS = dict.fromkeys(("age", "big", "score", "born", "seen", "tags", "mood"))
BOB = {"@id": "bob", "name": "bob", **NULLS}
CY = {"@id": "cy", "name": "cy", **NULLS, "age": 9}
ANN_TO_BOB = [
    {"node": "ann", "node_type": "Person", "edge": None, "edge_type": None},
    {"node": "bob", "node_type": "Person", "edge": '["ann","bob"]', "edge_type": "Knows"},
]
BOB_TO_CY = {"node": "cy", "node_type": "Person", "edge": '["bob","cy"]', "edge_type": "Knows"}
CY_TO_ROME = {"node": "Rome", "node_type": "Town", "edge": '["cy","Rome"]', "edge_type": "LivesIn"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(str(tmp_path_factory.mktemp("records") / "people.omni"), SCHEMA)
    graph.mutate(ROWS)
    return graph


@pytest.fixture(scope="module")
def remote(local: Graph) -> Iterator[Any]:
    with listening(open_server(local.uri)) as url, Graph.connect(url) as graph:
        yield graph


def shown(graph: Any, text: str) -> list[dict[str, Any]]:
    return list(graph.query(text).json_rows())


OBJECTS: dict[str, tuple[str, list[object]]] = {
    "nodes": ("match { $p: Person } return { object($p) as o } order { $p.name }", [ANN, BOB, CY]),
    "of an optional variable": (
        "match { $p: Person  optional { $p knows $q } } return { object($q) as o } order { $p.name }",
        [BOB, CY, None],
    ),
    "of several types": (
        "match { $x: Person | Town } return { object($x) as o } order { $x.name } limit 2",
        [
            {"@id": "Rome", "@type": "Town", "name": "Rome", "age": None},
            {"@id": "ann", "@type": "Person", "name": "ann", "age": 41},
        ],
    ),
    "of an interface": (
        'match { $x: Placed  $x.name = "Rome" } return { object($x) as o }',
        [{"@id": "Rome", "@type": "Town", "name": "Rome", "age": None}],
    ),
    "edges": (
        "match { $p: Person  $p $e:knows $q } return { object($e) as o } order { $p.name }",
        [
            {"@id": '["ann","bob"]', "@src": "ann", "@dst": "bob", "since": 1999},
            {"@id": '["bob","cy"]', "@src": "bob", "@dst": "cy", "since": None},
        ],
    ),
    "edges of several types": (
        'match { $p: Person { name: "cy" }  $x: Person | Town  $p $e:<knows | livesIn> $x }'
        " return { object($e) as o } order { $e.@id }",
        [
            {"@id": '["bob","cy"]', "@type": "Knows", "@src": "bob", "@dst": "cy"},
            {"@id": '["cy","Rome"]', "@type": "LivesIn", "@src": "cy", "@dst": "Rome"},
        ],
    ),
    "of a named value": ('match { $p: Person { name: "bob" }  let $o = object($p) } return { $o as o }', [BOB]),
    "one of two": (
        "match { $p: Person  optional { $p knows $q } } return { coalesce(object($q), object($p)) as o }"
        " order { $p.name }",
        [BOB, CY, CY],
    ),
    "where a condition holds": (
        "match { $p: Person } return { case when $p.age > 9 then object($p) end as o } order { $p.name }",
        [ANN, None, None],
    ),
    "as groups": (
        "match { $p: Person  $p knows{1,2} $q } return { object($p) as o, count(*) as n } order { n desc }",
        [ANN, BOB],
    ),
    "as groups of several types": (
        "match { $x: Person | Town  optional { $p: Person  $p livesIn $x } }"
        " return { object($x) as o, count($p) as n } order { n desc } limit 1",
        [{"@id": "Rome", "@type": "Town", "name": "Rome", "age": None}],
    ),
    "distinct": (
        "match { $p: Person  $p knows{1,2} $q } return distinct { object($p) as o, $p.name } order { $p.name }",
        [ANN, BOB],
    ),
    "collected in the order of their ids": (
        "match { $p: Person } return { collect(object($p)) as o }",
        [[ANN, BOB, CY]],
    ),
    "collected in an order": (
        "match { $p: Person } return { collect(object($p) order { $p.age desc nulls last } limit 2) as o }",
        [[ANN, CY]],
    ),
    "collected once each": (
        "match { $p: Person  $p knows{1,2} $q } return { collect(distinct object($p)) as o }",
        [[ANN, BOB]],
    ),
    "collected without nulls": (
        "match { $p: Person  optional { $p knows $q } } return { collect(object($q)) as o }",
        [[BOB, CY]],
    ),
    "collected in a block": (
        "match { $p: Person } return { collect(object($q)) { $p knows $q } as o } order { $p.name }",
        [[BOB], [CY], []],
    ),
    "collected of nothing": ('match { $p: Person { name: "zoe" } } return { collect(object($p)) as o }', [[]]),
    "of nothing": ('match { $p: Person { name: "zoe" } } return { object($p) as o }', []),
}
PATHS: dict[str, tuple[str, list[object]]] = {
    "shortest": (
        'match { $p: Person { name: "ann" }  path $w = shortest $p knows{1,6} $q } return { $w as o } order { $w }',
        [ANN_TO_BOB, [*ANN_TO_BOB, BOB_TO_CY]],
    ),
    "last first, by the name of the column": (
        'match { $p: Person { name: "ann" }  path $w = all $p knows{1,6} $q } return { $w as o } order { o desc }',
        [[*ANN_TO_BOB, BOB_TO_CY], ANN_TO_BOB],
    ),
    "through several types": (
        'match { $p: Person { name: "ann" }  $t: Town  path $w = shortest $p (knows | livesIn){1,6} $t }'
        " return { $w as o }",
        [[*ANN_TO_BOB, BOB_TO_CY, CY_TO_ROME]],
    ),
    "of an optional block": (
        "match { $p: Person  optional { path $w = shortest $p knows{1,1} $q } } return { $w as o } order { $p.name }",
        [ANN_TO_BOB, [{"node": "bob", "node_type": "Person", "edge": None, "edge_type": None}, BOB_TO_CY], None],
    ),
    "with its other columns": (
        'match { $p: Person { name: "ann" }  path $w = all $p knows{2,2} $q }'
        " return { $w as o, length($w) as l, nodes($w) as n, $q.name }",
        [[*ANN_TO_BOB, BOB_TO_CY]],
    ),
}


@each_case("name", OBJECTS)
def test_decision_47_an_object_has_every_property_but_blobs_and_vectors(local: Graph, remote: Any, name: str) -> None:
    text, expected = OBJECTS[name]
    for graph in (local, remote):
        assert [row["o"] for row in shown(graph, text)] == expected


@each_case("name", PATHS)
def test_decision_82_a_path_is_a_list_of_its_steps(local: Graph, remote: Any, name: str) -> None:
    text, expected = PATHS[name]
    for graph in (local, remote):
        assert [row["o"] for row in shown(graph, text)] == expected


EVERYTHING = """match { $p: Person { name: "ann" }  path $w = shortest $p knows{1,1} $q }
  return { object($p) as o, $w, collect(object($x)) { $p knows $x } as l }"""


def of_everything(graph: Any) -> Result:
    found: Result = graph.query(EVERYTHING)
    return found


def test_records_in_python_hold_objects_of_python(local: Graph) -> None:
    (row,) = of_everything(local).to_pylist()
    assert row["o"]["born"] == date(2020, 1, 2)
    assert row["o"]["seen"] == datetime(2020, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert row["o"]["big"] == 9007199254740993
    assert row["w"] == ANN_TO_BOB
    assert row["l"] == [BOB]


def test_a_result_that_was_sent_is_the_result(local: Graph, remote: Any) -> None:
    assert of_everything(remote).to_arrow().equals(of_everything(local).to_arrow())
    assert of_everything(remote).types == of_everything(local).types


def test_records_in_one_document_over_http(local: Graph) -> None:
    with client_of(open_server(local.uri)) as client:
        answer = client.post("/graphs/default/query", json={"query": EVERYTHING}).json()
        plan = client.post("/graphs/default/explain", json={"query": EVERYTHING}).json()
    assert answer["rows"] == [{"o": ANN, "w": ANN_TO_BOB, "l": [BOB]}]
    described = {field["name"]: field for field in plan["operation"]["result"]}
    assert described["o"]["kind"] == "record"
    assert described["o"]["fields"][:3] == [
        {"name": "@id", "kind": "string", "nullable": False},
        {"name": "name", "kind": "string", "nullable": False},
        {"name": "age", "kind": "int", "nullable": True},
    ]
    assert (described["w"]["kind"], described["w"]["item_kind"]) == ("list", "record")
    assert [(field["name"], field["nullable"]) for field in described["w"]["fields"]] == [
        ("node", False),
        ("node_type", False),
        ("edge", True),
        ("edge_type", True),
    ]


def test_records_as_frames(local: Graph) -> None:
    frame = of_everything(local).to_polars()
    assert frame["o"].struct.field("seen").dtype == polars.Datetime("ms", "UTC")
    assert frame["w"].to_list() == [ANN_TO_BOB]
    assert list(of_everything(local).to_pandas()["o"][0]["tags"]) == ["x", "y"]


def lines(local: Graph, form: RowFormat) -> list[str]:
    return list(render_rows(of_everything(local), RowForm(format=form)))


def test_records_on_the_command_line(local: Graph) -> None:
    assert json.loads(lines(local, RowFormat.JSONL)[0]) == {"o": ANN, "w": ANN_TO_BOB, "l": [BOB]}
    assert json.loads("\n".join(lines(local, RowFormat.JSON)))["rows"] == [{"o": ANN, "w": ANN_TO_BOB, "l": [BOB]}]
    header, row = csv.reader(io.StringIO("\n".join(lines(local, RowFormat.CSV))))
    assert header == ["o", "w", "l"]
    assert [json.loads(cell) for cell in row] == [ANN, ANN_TO_BOB, [BOB]]
    assert '{"@id": "ann", "name": "ann"' in "\n".join(lines(local, RowFormat.TABLE))
    assert '  w: [{"node": "ann", "node_type": "Person", "edge": null' in "\n".join(lines(local, RowFormat.KV))
    shown_rows = terminal_lines(of_everything(local), RowForm(), TableLayout(), width=200)
    assert '{"@id": "ann", "name": "ann"' in "\n".join(line.plain for line in shown_rows)


def test_records_at_a_prompt_and_in_a_notebook(local: Graph) -> None:
    assert '{"@id": "ann", "name": "ann"' in repr(of_everything(local))
    assert "node_type" in of_everything(local)._repr_html_()


def test_a_long_list_of_records_is_cut_before_it_is_shown(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "many.omni"), SCHEMA)
    graph.mutate("".join(f'insert Town {{ name: "t{number}" }} ' for number in range(9)))
    result = graph.query("match { $t: Town } return { collect(object($t)) as o }")
    assert "… 3 more]" in result._repr_html_()
