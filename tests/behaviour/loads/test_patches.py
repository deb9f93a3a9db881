"""Mode `patch`: records that give some properties of rows that exist, from every kind of source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import BadRequestError, LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import job
from omnigraph.pipeline.patch import writing as patches
from support.loads import files_of, rows_of
from support.subtests import each_case

SCHEMA = """
node Paper {
    doi: String @key
    title: String
    year: I32?
    code: String? @unique
    vec: Vector(2)?
    @range(year, 1900..2100)
}
node Slot { series: String number: I32 note: String? @key(series, number) }
node Note { text: String tag: String? }
edge Cites: Paper -> Paper @card(0..2) { weight: F64? why: String? }
"""
ROWS = [
    *(
        {"type": "Paper", "data": {"doi": f"d{n}", "title": f"t{n}", "year": 2000 + n, "code": f"c{n}"}}
        for n in range(5)
    ),
    {"type": "Slot", "data": {"series": "s", "number": 1}},
    {"type": "Note", "data": {"id": "n1", "text": "x"}},
    {"edge": "Cites", "from": "d0", "to": "d1", "data": {"id": "e1", "weight": 1.5, "why": "first"}},
]
Load = Callable[..., Any]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    graph.load(lines(tmp_path, ROWS), mode="append")
    return graph


@pytest.fixture
def load(graph: Graph, tmp_path: Path) -> Load:
    return lambda *records, **options: graph.load(lines(tmp_path, records), **{"mode": "patch"} | options)


def lines(folder: Path, records: Any) -> Path:
    path = folder / "x.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def paper(doi: str, **data: Any) -> dict[str, Any]:
    return {"type": "Paper", "data": {"doi": doi, **data}}


def row(graph: Graph, key: str, entity_id: str) -> dict[str, Any]:
    return next(row for row in rows_of(graph, key) if row["id"] == entity_id)


def test_a_record_sets_what_it_brings_and_nothing_else(graph: Graph, load: Load) -> None:
    before = {row["id"]: row for row in rows_of(graph, "node:Paper")}
    receipt = load(
        paper("d3", year=1999),
        {"type": "Paper", "data": {"id": "d4", "title": "new", "code": None}},
        {"type": "Slot", "data": {"series": "s", "number": 1, "note": "a"}},
        {"type": "Note", "id": "n1", "data": {"tag": "T"}},
        {"edge": "cites", "id": "e1", "from": "d0", "to": "d1", "data": {"weight": 2.5}},
    )
    after = {row["id"]: row for row in rows_of(graph, "node:Paper")}
    assert after == before | {"d3": before["d3"] | {"year": 1999}, "d4": before["d4"] | {"title": "new", "code": None}}
    assert row(graph, "node:Slot", '["1","s"]')["note"] == "a"
    assert row(graph, "node:Note", "n1") == {"id": "n1", "text": "x", "tag": "T"}
    assert row(graph, "edge:Cites", "e1") == {"id": "e1", "src": "d0", "dst": "d1", "weight": 2.5, "why": "first"}
    counts = {
        item.name: (item.entities_loaded, item.patched, item.inserted) for item in (*receipt.nodes, *receipt.edges)
    }
    assert counts == {"Note": (1, 1, 0), "Paper": (2, 2, 0), "Slot": (1, 1, 0), "Cites": (1, 1, 0)}
    changes = {change.id: str(change.op) for change in graph.diff(receipt.commit.parent_id, "main")}
    assert changes == dict.fromkeys(["d3", "d4", '["1","s"]', "n1", "e1"], "update")


BAD = [
    (paper("zz", year=2000), "unknown id of Paper: there is no node 'zz'; `--upsert` (upsert=True) inserts it"),
    ({"edge": "Cites", "id": "zz"}, "unknown id of Cites: there is no edge 'zz'; `--upsert`"),
    (paper("d1", title=None), "missing value for Paper.title: it may not be null"),
    (paper("d1", year=1), "@range violation on Paper.year: 1 is outside 1900..2100"),
    (paper("d1", year="x"), "invalid value for Paper.year"),
    (paper("d1", code="c2"), "@unique violation on Paper.code: 'c2' belongs to 'd1' and to 'd2'"),
    (paper("d1", id="d2"), "id of Paper is not its key"),
    ({"type": "Paper", "data": {"title": "x"}}, "missing key of Paper: nothing says which Paper the record is about"),
    ({"type": "Slot", "data": {"id": '["1","s"]', "number": 1}}, 'the id \'["1","s"]\' and a part of the key'),
    ({"type": "Note", "data": {"tag": "x"}}, "missing id of Note: nothing says which Note the record is about"),
    ({"edge": "Cites", "id": "e1", "from": "d4", "to": "d1"}, "the edge 'e1' has other ends"),
]


@each_case(("record", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_record_that_does_not_fit_is_reported_with_its_line(
    graph: Graph, load: Load, record: dict[str, Any], message: str
) -> None:
    before = files_of(Path(graph.uri))
    with pytest.raises(LoadRejectedError) as refused:
        load(paper("d0", year=2001), record)
    (example,) = refused.value.report.examples
    assert message in example.message
    assert (example.line, Path(example.source).name) == (2, "x.jsonl")
    assert files_of(Path(graph.uri)) == before


def test_an_id_is_given_once(load: Load) -> None:
    with pytest.raises(LoadRejectedError, match="the id 'd1' of Paper is given 2 times"):
        load(paper("d1", year=2001), paper("d0"), paper("d1", title="x"))


def test_rules_hold_for_the_rows_that_result(graph: Graph, load: Load) -> None:
    load(paper("d1", code="c2"), paper("d2", code="c1"))
    assert [row(graph, "node:Paper", name)["code"] for name in ("d1", "d2")] == ["c2", "c1"]
    with pytest.raises(LoadRejectedError, match="'c0' belongs to 'new' and to 'd0'"):
        load(paper("new", title="x", code="c0"), upsert=True)


def test_with_upsert_unknown_records_are_new_rows(graph: Graph, load: Load) -> None:
    receipt = load(
        paper("d1", year=2050),
        paper("new", title="N"),
        {"type": "Note", "data": {"text": "no id"}},
        {"edge": "Cites", "from": "new", "to": "d1"},
        {"edge": "Cites", "id": "e1", "data": {"why": "second"}},
        upsert=True,
    )
    counts = {item.name: (item.patched, item.inserted) for item in (*receipt.nodes, *receipt.edges)}
    assert counts == {"Paper": (1, 1), "Note": (0, 1), "Cites": (1, 1)}
    assert row(graph, "node:Paper", "new")["year"] is None
    assert [(row["src"], row["dst"]) for row in rows_of(graph, "edge:Cites")].count(("new", "d1")) == 1


LACKING = [
    (paper("newer", year=2000), "missing value for Paper.title of 'newer': it may not be null"),
    ({"type": "Paper", "data": {"id": "newer", "title": "x"}}, "missing value for Paper.doi of 'newer'"),
    ({"edge": "Cites", "id": "zz", "to": "d1"}, "missing `from` of Cites: an edge needs the id of a Paper"),
    ({"edge": "Cites", "from": "d1", "to": "nowhere"}, "dst 'nowhere' not found in Paper"),
]


@each_case(("record", "message"), LACKING, ids=[message[:30] for _, message in LACKING])
def test_a_new_row_needs_all_that_is_required(graph: Graph, load: Load, record: dict[str, Any], message: str) -> None:
    head = graph.snapshot()
    with pytest.raises(LoadRejectedError) as refused:
        load(record, upsert=True)
    assert message in refused.value.message
    assert graph.snapshot() == head


def test_upsert_belongs_to_patches(load: Load) -> None:
    with pytest.raises(BadRequestError, match="the mode is merge: give mode patch"):
        load(paper("d1", title="x"), mode="merge", upsert=True)


def test_tables_and_frames_set_their_columns(graph: Graph, tmp_path: Path) -> None:
    table = tmp_path / "years.csv"
    table.write_text("paper,year,title\nd1,n/a,t\nd2,2002,u\n", encoding="utf-8")
    mapping = {
        "nodes": {
            "Paper": {
                "source": str(table),
                "columns": {"paper": "doi", "title": "title"},
                "properties": {"year": {"null": ["n/a"]}},
            }
        }
    }
    graph.load(mapping=mapping, mode="patch")
    assert [row(graph, "node:Paper", name)["year"] for name in ("d0", "d1", "d2")] == [2000, None, 2002]
    frame = pa.table({"doi": ["d1", "d2"], "vec": pa.array([[1.0, 2.0], None])})
    edges = pa.table({"id": ["e1"], "why": ["framed"]})
    graph.load(frames={"Paper": frame, "Cites": edges}, mode="patch")
    assert row(graph, "node:Paper", "d1") | {"title": "t", "code": "c1", "vec": [1.0, 2.0]} == row(
        graph, "node:Paper", "d1"
    )
    assert row(graph, "edge:Cites", "e1")["why"] == "framed"
    objects = tmp_path / "objects.json"
    objects.write_text('[{"doi": "d1", "year": 1950}, {"doi": "d2", "title": "left"}]', encoding="utf-8")
    graph.load(mapping={"nodes": {"Paper": {"source": str(objects)}}}, mode="patch")
    assert [(row["year"], row["title"]) for row in rows_of(graph, "node:Paper")[1:3]] == [(1950, "t"), (2002, "left")]


def test_a_column_is_written_beside_the_others(graph: Graph, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other file of the table is written again, and its rows stay at their addresses."""
    monkeypatch.setattr(patches, "is_small_part", lambda *_: False)
    uri = Path(graph.uri)
    before = {name for name in files_of(uri) if name.endswith(".lance")}
    load(*(paper(f"d{n}", vec=[n, 0.5]) for n in range(5)))
    new = {name for name in files_of(uri) if name.endswith(".lance")} - before
    assert len([name for name in new if "/data/" in name and not name.startswith("__manifest")]) == 1
    assert row(graph, "node:Paper", "d3") == {
        "id": "d3",
        "doi": "d3",
        "title": "t3",
        "year": 2003,
        "code": "c3",
        "vec": [3.0, 0.5],
    }
    assert graph.verify().is_sound


def test_a_patch_that_loses_a_race_reads_again(graph: Graph, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    original, left = job.LoadJob.prepare, [1]

    def rival(self: job.LoadJob, *given: Any) -> Any:
        prepared = original(self, *given)
        if left:
            left.pop()
            graph.mutate('query q() { update Paper set { title: "rival", year: 1901 } where doi = "d1" }')
        return prepared

    monkeypatch.setattr(job.LoadJob, "prepare", rival)
    load(paper("d1", year=2099))
    assert row(graph, "node:Paper", "d1") | {"title": "rival", "year": 2099} == row(graph, "node:Paper", "d1")
    assert not (Path(graph.uri) / "__staging").exists()


def test_a_dry_run_counts_and_writes_nothing(graph: Graph, load: Load) -> None:
    before = files_of(Path(graph.uri))
    receipt = load(paper("d1", year=2099), dry_run=True)
    assert (receipt.nodes[0].patched, receipt.commit) == (1, None)
    assert files_of(Path(graph.uri)) == before
