"""Equal ids of one input, and edges without an end: refused, or left out and counted, as call or mapping say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import BadRequestError, LoadRejectedError
from omnigraph.graph.graph import Graph
from support.graphs import everything
from support.loads import files_of
from support.spark import spark

__all__ = ["spark"]

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique }
edge Knows: Person -> Person @card(0..2) { since: I32? }
"""
GROUND = """query seed() {
    insert Person { name: "ann", age: 1 }
    insert Person { name: "bob", age: 1 }
    insert Knows { from: "ann", to: "bob" }
}"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    graph.mutate(GROUND)
    return graph


def person(name: str, age: int | None = None, **data: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age, **data}}


def knows(source: str, target: str, **data: object) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def ages(graph: Graph) -> dict[str, int]:
    return {row["id"]: row["age"] for row in everything(graph)["node:Person"]}


def ends(graph: Graph) -> list[tuple[str, str]]:
    return sorted((row["src"], row["dst"]) for row in everything(graph)["edge:Knows"])


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """In this process, and on Spark with little data on the way of much data."""
    if request.param == "local":
        return {"engine": "local"}
    from omnigraph.pipeline import tally
    from omnigraph.spark import worker_choice

    monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)
    monkeypatch.setattr(tally, "_HELD_KEYS", 0)
    return {"spark": request.getfixturevalue("spark")}


#: Records, a mode, the rules, and what the load leaves: ages, ends, superseded and dropped records.
CASES: list[tuple[list[dict[str, Any]], str, dict[str, str], dict[str, int], int, int]] = [
    ([person("x", 1), person("x", 2), person("x", 3)], "append", {"on_duplicate": "first"}, {"x": 1}, 2, 0),
    ([person("x", 1), person("x", 2), person("x", 3)], "append", {"on_duplicate": "last"}, {"x": 3}, 2, 0),
    ([person("ann", 5), person("ann", 6)], "merge", {"on_duplicate": "first"}, {"ann": 5}, 1, 0),
    ([person("ann", 5), person("ann", 6)], "merge", {}, {"ann": 6}, 1, 0),
    ([person("x", 1), knows("x", "ghost"), knows("x", "ann")], "append", {"dangling": "drop"}, {"x": 1}, 0, 1),
    ([person("x", 1), knows("no", "ghost"), knows("ann", "no")], "merge", {"dangling": "drop"}, {"x": 1}, 0, 2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[2]}")
def test_what_is_left_out_is_counted_and_everything_else_is_loaded(graph: Graph, tmp_path: Path, case: Any) -> None:
    records, mode, rules, expected, superseded, dropped = case
    source = write(tmp_path / "in.jsonl", *records)
    preview = graph.load(source, mode=mode, dry_run=True, **rules)
    receipt = graph.load(source, mode=mode, **rules)
    assert ages(graph) == {"ann": 1, "bob": 1} | expected
    assert (receipt.superseded, receipt.dropped) == (superseded, dropped)
    assert receipt.total_entities + receipt.dropped == len(records)
    assert [preview.nodes, preview.edges, preview.report] == [receipt.nodes, receipt.edges, receipt.report]
    assert type(receipt).from_json(receipt.document()) == receipt
    if dropped:
        assert receipt.report is not None
        nowhere = ({"ghost", "no"} & set(map(str, record.values())) for record in records)
        lines = {number for number, names in enumerate(nowhere, start=1) if names}
        assert {item.line for item in receipt.report.examples} == lines
        assert all("not found in Person" in item.rule for item in receipt.report.examples)


def test_both_engines_leave_out_the_same(graph: Graph, tmp_path: Path, engine: dict[str, Any]) -> None:
    records = [person(f"p{n % 40}", n) for n in range(60)] + [knows(f"p{n}", f"p{n + 35}") for n in range(10)]
    rules = {"on_duplicate": "first", "dangling": "drop"}
    receipt = graph.load(write(tmp_path / "in.jsonl", *records), mode="append", **rules, **engine)
    assert (receipt.superseded, receipt.dropped, receipt.rows) == (20, 5, {"node:Person": 60, "edge:Knows": 5})
    assert {name: age for name, age in ages(graph).items() if name.startswith("p")} == {f"p{n}": n for n in range(40)}
    assert ends(graph) == [("ann", "bob"), *((f"p{n}", f"p{n + 35}") for n in range(5))]
    assert receipt.report is not None
    assert receipt.report.totals == {"dst of Knows not found in Person": 5}
    assert [item.line for item in receipt.report.examples] == [66, 67, 68, 69, 70]


def test_what_is_left_out_counts_for_no_other_rule(graph: Graph, tmp_path: Path) -> None:
    """Three edges of a source were too many, and two records of one mail."""
    records = [knows("bob", "ann"), knows("bob", "ghost"), knows("bob", "bob"), person("x", mail="m"), person("x")]
    source = write(tmp_path / "in.jsonl", *records)
    receipt = graph.load(source, mode="append", on_duplicate="last", dangling="drop")
    assert (receipt.superseded, receipt.dropped) == (1, 1)
    # What no rule leaves out still refuses everything, and is told with its line.
    more = write(tmp_path / "more.jsonl", knows("no", "ann"), knows("bob", "ann"), person("y", 1), person("y", 2))
    before = files_of(Path(graph.uri))
    with pytest.raises(LoadRejectedError) as refused:
        graph.load(more, mode="append", dangling="drop")
    assert refused.value.report.totals == {"duplicate id of Person": 1, "@card violation on edge Knows": 1}
    assert sorted(item.line or 0 for item in refused.value.report.examples) == [2, 4]
    assert files_of(Path(graph.uri)) == before


def test_edges_to_bad_records_are_not_dropped(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age=2**40), knows("x", "ann"), knows("ghost", "ann"))
    with pytest.raises(LoadRejectedError) as refused:
        graph.load(source, mode="append", dangling="drop")
    assert refused.value.report.totals == {
        "invalid value for Person.age": 1,
        "src of Knows is a bad record of Person": 1,
    }


def test_an_edge_that_is_dropped_leaves_the_one_that_it_would_have_replaced(graph: Graph, tmp_path: Path) -> None:
    graph.load(write(tmp_path / "a.jsonl", knows("bob", "ann", id="e", since=1)), mode="append")
    receipt = graph.load(
        write(tmp_path / "b.jsonl", knows("bob", "ghost", id="e", since=2)), mode="merge", dangling="drop"
    )
    assert receipt.dropped == 1
    assert [row["since"] for row in everything(graph)["edge:Knows"] if row["id"] == "e"] == [1]


def test_a_lost_race_is_followed_by_another_look(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an edge goes while the load is prepared, and comes while it is prepared again."""
    from omnigraph.pipeline.load.job import LoadJob

    graph.mutate('query add() { insert Person { name: "cid" } }')
    original, changes = LoadJob.prepare, ['delete Person where name = "cid"', 'insert Person { name: "dan" }']

    def prepare(job: LoadJob, *given: Any) -> Any:
        prepared = original(job, *given)
        if changes:
            with Graph.open(graph.uri) as other:
                other.mutate(f"query q() {{ {changes.pop(0)} }}")
        return prepared

    monkeypatch.setattr(LoadJob, "prepare", prepare)
    source = write(tmp_path / "in.jsonl", knows("ann", "cid"), knows("bob", "dan"), knows("bob", "ghost"))
    receipt = graph.load(source, mode="append", dangling="drop")
    assert (receipt.dropped, receipt.edges_loaded) == (2, {"Knows": 1})
    assert ends(graph) == [("ann", "bob"), ("bob", "dan")]


# ---- where the rules come from


def frames(*names: str) -> dict[str, Any]:
    return {"Person": pa.table({"name": list(names), "age": pa.array(range(len(names)), pa.int32())})}


def test_rows_of_a_frame_in_this_process_have_an_order(graph: Graph) -> None:
    with pytest.raises(LoadRejectedError):
        graph.load(frames=frames("x", "x"), mode="merge")
    assert graph.load(frames=frames("x", "x"), mode="merge", on_duplicate="first").superseded == 1
    assert ages(graph)["x"] == 0
    assert graph.load(frames=frames("x", "y", "x"), mode="merge", on_duplicate="last").superseded == 1
    assert ages(graph)["x"] == 2


def test_rows_of_spark_have_none(graph: Graph, spark: Any) -> None:
    frame = spark.range(1).selectExpr("'x' AS name")
    for given in (
        {"on_duplicate": "first"},
        {"mapping": {"nodes": {"Person": {"duplicates": "last"}}}},
        {"mapping": {"duplicates": "last"}},
    ):
        with pytest.raises(BadRequestError, match="frame Person: its rows have no order"):
            graph.load(frames={"Person": frame}, mode="merge", **given)


def test_a_mapping_says_it_per_type_or_for_all_and_the_call_goes_first(graph: Graph, tmp_path: Path) -> None:
    people, edges = tmp_path / "people.csv", tmp_path / "knows.csv"
    people.write_text("name,age\nx,1\nx,2\n")
    edges.write_text("from,to\nx,ann\nx,ghost\n")
    nodes: dict[str, Any] = {"source": str(people)}
    links: dict[str, Any] = {"source": str(edges), "from": "from", "to": "to", "columns": {}}

    def load(top: dict[str, str], **rules: str) -> tuple[int, int, int]:
        mapping, branch = {**top, "nodes": {"Person": nodes}, "edges": {"Knows": links}}, f"b{len(graph.branches())}"
        receipt = graph.load(mapping=mapping, mode="append", branch=branch, base="main", **rules)
        rows = everything(graph, branch)["node:Person"]
        return receipt.superseded, receipt.dropped, next(row["age"] for row in rows if row["id"] == "x")

    assert load({"duplicates": "first", "dangling": "drop"}) == (1, 1, 1)
    nodes["duplicates"], links["dangling"] = "last", "drop"
    assert load({"duplicates": "first"}) == (1, 1, 2)
    assert load({}, on_duplicate="first") == (1, 1, 1)
    with pytest.raises(LoadRejectedError, match="not found in Person"):
        load({}, dangling="error")


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"on_duplicate": "any"}, "on_duplicate is one of first, last, error, not 'any'"),
    ({}, {"dangling": True}, "dangling is one of drop, error, not True"),
    ({"duplicates": "newest"}, {}, "the mapping: `duplicates` is one of first, last, error, not 'newest'"),
    ({"nodes": {"Person": {"dangling": "drop"}}}, {}, "`dangling` is for edges, and a node has no ends"),
    ({"nodes": {"Person": {"duplicates": "x"}}}, {}, "Person: `duplicates` is one of"),
]


@pytest.mark.parametrize(("mapping", "rules", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_rule_that_does_not_exist_is_refused(graph: Graph, mapping: Any, rules: Any, words: str) -> None:
    given: dict[str, Any] = {"mapping": mapping} if mapping else {}
    with pytest.raises(BadRequestError, match=words):
        graph.load(frames=frames("x"), mode="append", **given, **rules)


def test_sources_of_one_type_have_one_rule(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name\nx\n")
    entry = {"source": str(tmp_path / "x.csv")}
    mapping = {"nodes": {"Person": [entry | {"duplicates": "first"}, entry | {"duplicates": "last"}]}}
    with pytest.raises(BadRequestError, match="Person: its entries say `first` and `last`"):
        graph.load(mapping=mapping, mode="append")
