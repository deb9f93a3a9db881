"""Good records are loaded, and every bad one is in the quarantine as its source has it, ready to be loaded again."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core import failpoints
from omnigraph.errors import BadRequestError, InputFileError, LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import quarantine
from omnigraph.pipeline.load.job import LoadJob
from omnigraph.pipeline.sources import inputs, parts
from support.graphs import everything
from support.loads import files_of
from support.spark import spark

__all__ = ["spark"]

SCHEMA = """
node Person { name: String @key  tag: I64?  age: I32?  mail: String? @unique }
edge Knows: Person -> Person @card(0..2) { tag: I64?  since: I32? }
edge Needs: Person -> Person @card(2..3) { tag: I64? }
edge Rates: Person -> Person @card(0..2) { tag: I64?  since: I32?  @key(src, dst) }
"""
GROUND = """query seed() {
    insert Person { name: "ann", mail: "ann" }
    insert Person { name: "bob" }
    insert Knows { from: "ann", to: "bob" }
}"""


def new_graph(root: Path) -> Graph:
    graph = Graph.init(root, SCHEMA)
    graph.mutate(GROUND)
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "g.omni")


def write(path: Path, *records: object) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def person(name: object, **data: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: object) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def reasons(folder: Path) -> Counter[tuple[str, str]]:
    """Why records are in a quarantine: the rules and messages."""
    files = sorted((folder / "_reasons").rglob("*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return Counter((item["rule"], item["message"]) for item in found)


def names(graph: Graph) -> set[str]:
    return {row["id"] for row in everything(graph)["node:Person"]}


# ---- records of every source, as they stand

ROWS = [
    {"name": "x1", "age": "1", "note": 'a "quoted", note'},
    {"name": "x2", "age": "old", "note": ""},
    {"name": "x3", "age": "3", "note": "same"},
    {"name": "x3", "age": "4", "note": "same"},
    {"name": "x5", "age": "5", "note": "last"},
]
BAD = [ROWS[1], ROWS[2], ROWS[3]]
ENTRY: dict[str, Any] = {"columns": {"name": "name"}, "properties": {"age": {"number": True}}}


def written(path: Path, kind: str) -> dict[str, Any]:
    """The rows as a source, and what loads them."""
    entry = dict(ENTRY)
    match kind:
        case "csv" | "multiline" | "packed":
            file = path / "people.csv"
            with file.open("w", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, list(ROWS[0]), lineterminator="\r\n" if kind == "csv" else "\n")
                writer.writeheader()
                writer.writerows(ROWS)
            entry |= {"multiline": True} if kind == "multiline" else {}
            if kind == "packed":
                (path / "people.csv.gz").write_bytes(gzip.compress(file.read_bytes()))
                file.unlink()
                file = path / "people.csv.gz"
        case "json":
            file = path / "people.json"
            file.write_text(json.dumps(ROWS, indent=2), encoding="utf-8")
        case "lines":
            file = write(path / "people.jsonl", *ROWS)
        case "folder":
            (path / "in" / "land=D E").mkdir(parents=True)
            file = path / "in"
            pq.write_table(pa.Table.from_pylist(ROWS), file / "land=D E" / "part.parquet", row_group_size=2)
        case _:
            return {"frames": {"Person": pa.Table.from_pylist(ROWS)}, "mapping": {"nodes": {"Person": entry}}}
    return {"mapping": {"nodes": {"Person": entry | {"source": str(file)}}}}


def kept_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    files = sorted(path for path in (folder / "nodes").rglob("*") if path.is_file())
    match kind:
        case "csv" | "multiline" | "packed":
            texts = [io.StringIO(file.read_bytes().decode(), newline="") for file in files]
            return [dict(row) for text in texts for row in csv.DictReader(text)]
        case "json":
            return [row for file in files for row in json.loads(file.read_text("utf-8"))]
        case "lines":
            return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    # Without the names of folders, which readers of Parquet take for columns.
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.mark.parametrize("kind", ["csv", "multiline", "packed", "json", "lines", "folder", "frame"])
def test_bad_records_of_every_source_are_kept_as_they_stand(graph: Graph, tmp_path: Path, kind: str) -> None:
    bad = tmp_path / "bad"
    receipt = graph.load(mode="append", engine="local", quarantine=bad, **written(tmp_path, kind))
    assert names(graph) == {"ann", "bob", "x1", "x5"}
    assert (receipt.nodes_loaded, receipt.quarantined) == ({"Person": 2}, 3)
    assert receipt.quarantine is not None
    assert receipt.quarantine.nodes == {"Person": 3}
    assert receipt.quarantine.rules == {"invalid value for Person.age": 1, "duplicate id of Person": 2}
    assert receipt.report is not None
    assert receipt.report.total == 3
    assert type(receipt).from_json(receipt.document()) == receipt
    assert kept_rows(bad, kind) == BAD
    # Loaded again as it is it says the same, and corrected it is loaded.
    again = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local", quarantine=tmp_path / "again")
    assert again.total_entities == 0
    assert reasons(tmp_path / "again") == reasons(bad)
    assert kept_rows(tmp_path / "again", kind) == BAD
    if kind == "csv":
        (file,) = (bad / "nodes").rglob("*.csv")
        text = file.read_bytes().replace(b"old", b"7").replace(b"x3,4", b"x4,4")
        assert b"\r\nx2,7,\r\n" in text
        file.write_bytes(text)
        mended = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local")
        assert mended.nodes_loaded == {"Person": 3}


def test_graph_records_are_kept_line_by_line(graph: Graph, tmp_path: Path) -> None:
    """Also lines that are not records, and those that are longer than a record may be."""
    long = json.dumps(person("long", mail="m" * 400_000))
    lines = ["// a comment", "{", json.dumps(person("x", agee=1)), long, json.dumps(person("y")), '{"edge": "Far"}']
    first, second = tmp_path / "in" / "a.jsonl", tmp_path / "in" / "b.jsonl"
    first.parent.mkdir()
    first.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    write(second, knows("x", "y"), knows("y", "ann"), knows("ghost", "ann"))
    with pytest.MonkeyPatch.context() as patch:
        for module in (inputs, __import__("omnigraph.pipeline.sources.records", fromlist=["records"])):
            patch.setattr(module, "MAX_LINE_BYTES", 100_000)
        receipt = graph.load(tmp_path / "in", mode="append", engine="local", quarantine=tmp_path / "bad")
    assert (receipt.total_entities, receipt.quarantined) == (2, 6)
    assert (tmp_path / "bad" / "a.jsonl").read_text("utf-8").splitlines() == [lines[1], lines[2], long, lines[5]]
    kept = (tmp_path / "bad" / "b.jsonl").read_text("utf-8").splitlines()
    assert list(map(json.loads, kept)) == [knows("x", "y"), knows("ghost", "ann")]
    told = [
        json.loads(line) for line in (tmp_path / "bad" / "_reasons" / "a.jsonl.jsonl").read_text("utf-8").splitlines()
    ]
    assert [(item["line"], item["source_line"]) for item in told] == [(1, 2), (2, 3), (3, 4), (4, 6)]
    assert "--data" in (tmp_path / "bad" / "_README.md").read_text("utf-8")


BROKEN_RESTS = {
    "cut": b'{"name": "x5", "age": 5}, {"na',
    "no comma": b'{"name": "x5", "age": 5} {"name": "x6"}]',
    "other bytes": b'{"name": "x5", "age": 5}, {"name": "\xf6"}]',
    "more": b'{"name": "x5", "age": 5}] and more',
}


@pytest.mark.parametrize("rest", BROKEN_RESTS)
def test_the_rest_of_a_list_that_breaks_off_is_one_bad_record(graph: Graph, tmp_path: Path, rest: str) -> None:
    path, bad = tmp_path / "people.json", tmp_path / "bad"
    good = '[{"name": "grün", "age": 1}, {"name": "x2", "age": "old"},{"name": "x3", "age": NaN}, {"name": "x4"}, '
    path.write_bytes(good.encode() + BROKEN_RESTS[rest])
    receipt = graph.load(
        mapping={"nodes": {"Person": {"source": str(path)}}}, mode="append", engine="local", quarantine=bad
    )
    kept = (bad / "nodes" / "Person" / "people.json").read_bytes()
    begin = b'[{"name": "x2", "age": "old"},\n{"name": "x3", "age": NaN},\n'
    assert kept.startswith(begin)
    assert path.read_bytes().endswith(kept.removeprefix(begin).rstrip())
    assert (receipt.quarantined, names(graph) >= {"grün", "x4"}) == (3, True)
    # Nothing is missing in between.
    loaded_of_rest = names(graph) & {"x5"}
    assert loaded_of_rest == (set() if b'"x5"' in kept else {"x5"})
    if rest == "cut":
        again = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local", quarantine=tmp_path / "again")
        assert again.total_entities == 0
        assert (tmp_path / "again" / "nodes" / "Person" / "people.json").read_bytes() == kept
        (bad / "nodes" / "Person" / "people.json").write_bytes(
            kept.replace(b'"old"', b"2").replace(b"NaN", b"3").removesuffix(b'{"na') + b'{"name": "x6"}]'
        )
        mended = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local")
        assert mended.nodes_loaded == {"Person": 3}


def test_compatible_records_keep_their_text(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(
        '{"type": "Person",\n "data": {"name": "x", "age": 99999999999}} {"type": "Person", "data": {"name": "y"}}'
    )
    options: dict[str, Any] = {"mode": "append", "engine": "local", "grammar": "compatible"}
    assert graph.load(path, quarantine=tmp_path / "bad", **options).quarantined == 1
    assert json.loads((tmp_path / "bad" / "old.jsonl").read_text("utf-8"))["data"]["name"] == "x"
    path.write_text('{"type": "Person", "data": {"name": "z"}} {"type": ')
    assert graph.load(path, quarantine=tmp_path / "other", **options).nodes_loaded == {"Person": 1}
    assert (tmp_path / "other" / "old.jsonl").read_text("utf-8").strip() == '{"type":'


@pytest.mark.parametrize("kind", ["csv", "json", "frame"])
def test_a_record_of_which_each_item_is_one_is_kept_as_a_whole(graph: Graph, tmp_path: Path, kind: str) -> None:
    """With an item that is bad by itself, that names a bad node, or that breaks a rule between records."""
    graph.load(write(tmp_path / "n.jsonl", *(person(name) for name in "xyz")), mode="append", engine="local")
    rows = [
        {"who": "x", "whom": ["y", "z"]},
        {"who": "y", "whom": ["ghost", "x"]},
        {"who": "z", "whom": ["x", "y", "z"]},
        {"who": "ann", "whom": []},
        {"who": "bob", "whom": ["ann", None]},
    ]
    entry: dict[str, Any] = {"each": {"column": "whom"}, "columns": {}, "from": "who", "to": "whom"}
    given: dict[str, Any] = {}
    if kind == "frame":
        given["frames"] = {"Knows": pa.Table.from_pylist(rows)}
    elif kind == "json":
        (tmp_path / "k.json").write_text(json.dumps(rows))
        entry["source"] = str(tmp_path / "k.json")
    else:
        lines = [f"{row['who']},{'|'.join(item or '' for item in row['whom'])}" for row in rows]
        (tmp_path / "k.csv").write_text("\n".join(["who,whom", *lines, ""]))
        entry |= {"source": str(tmp_path / "k.csv"), "each": {"column": "whom", "split": "|"}}
    bad = tmp_path / "bad"
    receipt = graph.load(
        mapping={"edges": {"Knows": entry}}, mode="append", engine="local", quarantine=bad, dangling="error", **given
    )
    assert receipt.edges_loaded == {"Knows": 2}
    assert receipt.quarantined == 3
    assert sorted((row["src"], row["dst"]) for row in everything(graph)["edge:Knows"]) == [
        ("ann", "bob"),
        ("x", "y"),
        ("x", "z"),
    ]
    (file,) = (path for path in (bad / "edges").rglob("*") if path.is_file())
    if kind == "csv":
        assert file.read_text() == "who,whom\ny,ghost|x\nz,x|y|z\nbob,ann|\n"
        file.write_text("who,whom\ny,x\nz,x|y\nbob,ann\n")
        assert graph.load(mapping=bad / "mapping.yaml", mode="append").edges_loaded == {"Knows": 4}
        return
    kept = json.loads(file.read_text()) if kind == "json" else pq.ParquetFile(file).read().to_pylist()
    assert kept == [rows[1], rows[2], rows[4]]
    again = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local", quarantine=tmp_path / "again")
    assert reasons(tmp_path / "again") == reasons(bad)
    assert again.total_entities == 0


def test_what_another_record_replaced_stays_replaced_when_its_record_is_kept(graph: Graph, tmp_path: Path) -> None:
    rows = [{"names": ["x", "y"], "age": 1}, {"names": ["y", "z"], "age": 2}, {"names": ["x", "w", None], "age": 3}]
    frames = {"Person": pa.Table.from_pylist(rows)}
    mapping = {"nodes": {"Person": {"each": "names", "columns": {"names": "name", "age": "age"}}}}
    receipt = graph.load(
        frames=frames, mapping=mapping, mode="append", on_duplicate="last", engine="local", quarantine=tmp_path / "bad"
    )
    assert {row["id"]: row["age"] for row in everything(graph)["node:Person"] if row["age"]} == {"x": 1, "y": 2, "z": 2}
    assert (receipt.quarantined, receipt.superseded, receipt.total_entities) == (1, 1, 4)


def test_columns_that_stand_in_folders_do_so_in_the_quarantine(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "age=x%2Fy"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("name\nx\n")
    mapping = {"nodes": {"Person": {"source": str(tmp_path / "in")}}}
    graph.load(mapping=mapping, mode="append", engine="local", quarantine=tmp_path / "bad")
    assert [str(path.relative_to(tmp_path / "bad")) for path in (tmp_path / "bad" / "nodes").rglob("*.csv")] == [
        "nodes/Person/age=x%2Fy/a.csv"
    ]


UNUSUAL: dict[str, pa.Array] = {
    "day": pa.array([date(2020, 2, 29), date(1600, 1, 1)]),
    "at": pa.array([datetime(2020, 1, 1, 12, 30, 0, 7000, UTC), None], pa.timestamp("ms", "UTC")),
    "price": pa.array([Decimal("12345678901234567.89"), Decimal("-0.01")], pa.decimal128(20, 2)),
    "tags": pa.array([["a", "", "ü"], []], pa.list_(pa.utf8())),
    "days": pa.array([[date(2020, 1, 1), None], None], pa.list_(pa.date32())),
    "place": pa.array([{"city": "Oslo", "at": {"lat": 1.5}}, None]),
    "data": pa.array([b"\x00\xff", b""], pa.binary()),
    "vec": pa.array([[0.1, -2.5], [1e-30, 3.0]], pa.list_(pa.float32(), 2)),
    "big": pa.array([2**64 - 1, 0], pa.uint64()),
    "clock": pa.array([time(23, 59, 59, 999999), None]),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.utf8(), pa.int64())),
    "code": pa.array(["red", "blue"]).dictionary_encode(),
    "odd": pa.array([float("nan"), float("-inf")]),
}


def test_rows_of_frames_with_unusual_values_are_kept_exactly_and_loaded_when_corrected(tmp_path: Path) -> None:
    schema = """node Thing {
        name: String @key  age: I32?  day: Date?  at: DateTime?  price: F64?  tags: [String]?  lat: F64?  data: Blob?
        vec: Vector(2)?  big: U64?
    }"""
    graph, bad = Graph.init(tmp_path / "g.omni", schema), tmp_path / "bad"
    frame = pa.table({"name": ["x", "y"], "age": ["old", "older"], **UNUSUAL})
    columns = {name: name for name in ("name", "day", "at", "tags", "data", "vec", "big")}
    properties = {"age": {"number": True}, "price": {"number": True}, "lat": "place.at.lat"}
    mapping: dict[str, Any] = {"nodes": {"Thing": {"columns": columns, "properties": properties}}}
    options: dict[str, Any] = {"mode": "append", "engine": "local"}
    receipt = graph.load(frames={"Thing": frame}, mapping=mapping, quarantine=bad, **options)
    assert (receipt.total_entities, receipt.quarantined) == (0, 2)
    (file,) = (bad / "nodes" / "Thing").iterdir()
    kept = pq.ParquetFile(file).read()
    plain = frame.set_column(frame.column_names.index("code"), "code", pa.array(["red", "blue"]))
    assert kept.schema.equals(plain.schema)
    assert repr(kept.to_pylist()) == repr(plain.to_pylist())
    pq.write_table(kept.set_column(1, "age", pa.array(["7", "8"])), file)
    graph.load(mapping=bad / "mapping.yaml", **options)
    expected = Graph.init(tmp_path / "h.omni", schema)
    corrected = frame.set_column(1, "age", pa.array(["7", "8"]))
    expected.load(frames={"Thing": corrected}, mapping=mapping, **options)
    assert everything(graph) == everything(expected)


def test_values_that_parquet_has_no_type_for_are_kept_as_text(tmp_path: Path) -> None:
    graph, bad = Graph.init(tmp_path / "g.omni", "node Thing { name: String @key  age: I32?  code: String? }"), "bad"
    codes = pl.DataFrame({"code": pl.Series(["r", "g", "r"], dtype=pl.Categorical)}).to_arrow()["code"]
    frame = pa.table(
        {
            "name": pa.array(["x", "y", "z"], pa.string_view()),
            "age": ["1", "old", "older"],
            "code": codes,
            "empty": pa.array([{}, {}, None], pa.struct([])),
            "span": pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval()),
            "runs": pa.chunked_array([pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])]),
        }
    )
    entry = {"columns": {"name": "name", "code": "code"}, "properties": {"age": {"number": True}}}
    options: dict[str, Any] = {"mapping": {"nodes": {"Thing": entry}}, "engine": "local", "mode": "append"}
    receipt = graph.load(frames={"Thing": frame}, quarantine=tmp_path / bad, **options)
    assert (receipt.total_entities, receipt.quarantined) == (1, 2)
    (file,) = (tmp_path / bad / "nodes" / "Thing").iterdir()
    kept = pq.ParquetFile(file).read().to_pylist()
    assert [(row["name"], row["code"], row["empty"], row["runs"]) for row in kept] == [
        ("y", "g", "{}", "a"),
        ("z", "r", None, "b"),
    ]


# ---- the rules between records


def test_what_depends_on_a_bad_record_follows_it_and_nothing_else_does(graph: Graph, tmp_path: Path) -> None:
    records = [
        person("x", age="?"),
        knows("x", "ann"),
        person("u1", mail="same"),
        person("u2", mail="same"),
        knows("u1", "ann"),
        person("taken", mail="ann"),
        person("ann"),
        knows("bob", "ann"),
        knows("bob", "bob"),
        knows("bob", "u2"),
        {"edge": "Needs", "from": "bob", "to": "ann"},
        {"edge": "Needs", "from": "bob", "to": "ghost"},
        person("good", mail="good"),
    ]
    source = write(tmp_path / "in.jsonl", *records)
    receipt = graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad")
    assert receipt.quarantine is not None
    # The third edge of bob is bad: the other two are not too many.
    assert receipt.edges_loaded == {"Knows": 2, "Needs": 0}
    assert receipt.quarantine.rules == {
        "invalid value for Person.age": 1,
        "src of Knows is a bad record of Person": 2,
        "dst of Knows is a bad record of Person": 1,
        "@unique violation on Person.mail": 3,
        "key_conflict of Person": 1,
        "dst of Needs not found in Person": 1,
        "@card violation on edge Needs": 1,
    }
    assert names(graph) == {"ann", "bob", "good"}


def test_a_row_of_an_upsert_that_stays_counts_again(graph: Graph, tmp_path: Path) -> None:
    """The record that would have freed a mail is bad, so that the mail is taken."""
    records = [
        person("ann", mail="bobs"),
        person("bob", mail="bobs"),
        person("cid", mail="ann"),
        person("dan", mail="d"),
    ]
    source = write(tmp_path / "in.jsonl", *records)
    receipt = graph.load(source, mode="merge", engine="local", quarantine=tmp_path / "bad")
    assert receipt.quarantine is not None
    assert receipt.quarantine.rules == {"@unique violation on Person.mail": 3}
    assert {row["id"]: row["mail"] for row in everything(graph)["node:Person"]} == {
        "ann": "ann",
        "bob": None,
        "dan": "d",
    }


def test_an_edge_that_moves_away_from_a_source_which_needs_it_is_bad(graph: Graph, tmp_path: Path) -> None:
    needs = [{"edge": "Needs", "from": "ann", "to": to, "id": f"e{to}"} for to in ("ann", "bob")]
    graph.load(write(tmp_path / "a.jsonl", *needs), mode="append", engine="local")
    moved = [{"edge": "Needs", "from": "bob", "to": to, "id": name} for to, name in (("ann", "eann"), ("bob", "new"))]
    receipt = graph.load(write(tmp_path / "b.jsonl", *moved), mode="merge", engine="local", quarantine=tmp_path / "bad")
    assert receipt.quarantined == 2
    assert sorted((row["id"], row["src"]) for row in everything(graph)["edge:Needs"]) == [
        ("eann", "ann"),
        ("ebob", "ann"),
    ]


def test_edges_that_an_overwrite_strands_refuse_it_all_the_same(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("ann", age="?"), person("bob"), person("new"))
    before = files_of(Path(graph.uri))
    with pytest.raises(LoadRejectedError) as refused:
        graph.load(source, mode="overwrite", engine="local", quarantine=tmp_path / "bad")
    assert "src of Knows is a bad record of Person" in refused.value.report.totals
    assert files_of(Path(graph.uri)) == before
    assert not (tmp_path / "bad").exists()


def test_an_overwrite_by_bad_records_alone_is_refused(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    graph.mutate('query q() { insert Person { name: "kept" } }')
    with pytest.raises(LoadRejectedError, match="no good record of Person"):
        graph.load(
            write(tmp_path / "in.jsonl", person("x", age="?"), person("y", age="?")),
            mode="overwrite",
            engine="local",
            quarantine=tmp_path / "bad",
        )
    assert names(graph) == {"kept"}


def test_dropped_and_superseded_records_are_not_in_the_quarantine(graph: Graph, tmp_path: Path) -> None:
    records = [person("x", age=1), person("x", age=2), person("x", age="?"), knows("x", "ghost"), knows("x", "ann")]
    source = write(tmp_path / "in.jsonl", *records)
    rules: dict[str, Any] = {"on_duplicate": "first", "dangling": "drop", "quarantine": tmp_path / "bad"}
    receipt = graph.load(source, mode="append", engine="local", **rules)
    assert (receipt.total_entities, receipt.superseded, receipt.dropped, receipt.quarantined) == (3, 1, 1, 1)
    assert receipt.quarantine is not None
    assert receipt.quarantine.command is not None
    assert receipt.quarantine.command.endswith("--mode append --on-duplicate first --dangling drop")


@pytest.mark.parametrize("broken", ["dan,1,1", '"dan'], ids=["too many values", "an open quote"])
def test_an_edge_that_may_name_an_unreadable_record_is_kept_with_it(graph: Graph, tmp_path: Path, broken: str) -> None:
    people, edges = tmp_path / "people.csv", tmp_path / "knows.csv"
    people.write_text(f"name,age\neve,1\n{broken}\n", encoding="utf-8")
    edges.write_text("from,to\ndan,eve\neve,ann\n", encoding="utf-8")
    mapping = {
        "nodes": {"Person": {"source": str(people)}},
        "edges": {"Knows": {"source": str(edges), "from": "from", "to": "to", "dangling": "drop"}},
    }
    bad = tmp_path / "bad"
    receipt = graph.load(mapping=mapping, mode="merge", engine="local", quarantine=bad)
    assert (receipt.nodes_loaded, receipt.edges_loaded, receipt.dropped) == ({"Person": 1}, {"Knows": 1}, 0)
    assert receipt.quarantined == 2
    (file,) = (bad / "nodes" / "Person").glob("*.csv")
    file.write_text("name,age\ndan,1\n", encoding="utf-8")
    again = graph.load(mapping=bad / "mapping.yaml", mode="merge", engine="local")
    assert (again.nodes_loaded, again.edges_loaded, again.dropped) == ({"Person": 1}, {"Knows": 1}, 0)


# ---- patches


def patched(graph: Graph, folder: Path, *records: object, name: str = "p.jsonl", **options: Any) -> Any:
    return graph.load(write(folder / name, *records), mode="patch", **{"engine": "local"} | options)


def test_bad_records_of_a_patch_are_kept_and_the_others_change_their_rows(graph: Graph, tmp_path: Path) -> None:
    (edge,) = everything(graph)["edge:Knows"]
    records = [
        person("ann", tag=1),
        person("nobody", tag=2),
        person("bob", age="old", tag=3),
        person("bob", tag=4),
        person("bob", tag=5),
        {"type": "Person", "data": {"tag": 6}},
        knows("bob", "ann", tag=7) | {"id": edge["id"]},
        "{",
    ]
    receipt = patched(graph, tmp_path, *records, quarantine=tmp_path / "bad")
    assert receipt.quarantine is not None
    assert receipt.quarantine.rules == {
        "unknown id of Person": 1,
        "invalid value for Person.age": 1,
        "duplicate id of Person": 2,
        "missing key of Person": 1,
        "other ends of Knows": 1,
        "invalid JSON": 1,
    }
    assert receipt.report.totals == receipt.quarantine.rules
    assert {row["id"]: row["tag"] for row in everything(graph)["node:Person"]} == {"ann": 1, "bob": None}
    assert [(item.patched, item.inserted) for item in receipt.nodes] == [(1, 0)]
    kept = (tmp_path / "bad" / "p.jsonl").read_text("utf-8").splitlines()
    assert kept == [line if isinstance(line, str) else json.dumps(line) for line in records[1:]]
    assert receipt.quarantine.command.endswith("--mode patch")
    assert (
        "--upsert"
        in json.loads((tmp_path / "bad" / "_reasons" / "p.jsonl.jsonl").read_text("utf-8").splitlines()[0])["message"]
    )


def test_a_value_that_a_patch_does_not_take_away_is_still_taken(graph: Graph, tmp_path: Path) -> None:
    """A record that is left out leaves the old value of its row to collide with, and so on."""
    patched(graph, tmp_path, *(person(name, mail=name) for name in "abcde"), upsert=True, name="seed.jsonl")
    chain = [person(name, mail=mail, tag=1) for name, mail in ("ab", "bc", "cd", "de", "ea")]
    assert patched(graph, tmp_path, *chain, quarantine=tmp_path / "none").quarantined == 0
    back = [person(name, mail=name, tag=2) for name in "abcd"]
    receipt = patched(graph, tmp_path, *back, person("bob", tag=2), quarantine=tmp_path / "bad")
    assert receipt.quarantine.rules == {"@unique violation on Person.mail": 4}
    assert {row["id"]: row["mail"] for row in everything(graph)["node:Person"]} == {
        "ann": "ann",
        "bob": None,
        "a": "b",
        "b": "c",
        "c": "d",
        "d": "e",
        "e": "a",
    }


def test_new_rows_of_a_patch_that_break_a_rule_are_kept(graph: Graph, tmp_path: Path) -> None:
    records = [
        person("new", tag=1),
        knows("new", "ghost", tag=2),
        *(knows("bob", to, tag=3) for to in ("ann", "bob", "new")),
        knows("ann", "new", tag=4),
        {"edge": "Knows", "from": "ann", "data": {"tag": 5}},
    ]
    receipt = patched(graph, tmp_path, *records, quarantine=tmp_path / "bad", upsert=True)
    assert receipt.quarantine.rules == {
        "dst of Knows not found in Person": 1,
        "@card violation on edge Knows": 3,
        "missing `to` of Knows": 1,
    }
    assert sorted(row["tag"] or 0 for row in everything(graph)["edge:Knows"]) == [0, 4]
    assert receipt.quarantine.command.endswith("--mode patch --upsert")


@pytest.mark.parametrize(("rule", "tag"), [("first", 1), ("last", 3)])
def test_one_of_the_records_of_a_row_changes_it(graph: Graph, tmp_path: Path, rule: str, tag: int) -> None:
    records = [person("ann", tag=1), person("ann", tag=2, age=9), person("bob", tag=8), person("ann", tag=3)]
    receipt = patched(graph, tmp_path, *records, on_duplicate=rule)
    assert {row["id"]: (row["tag"], row["age"]) for row in everything(graph)["node:Person"]} == {
        "ann": (tag, None),
        "bob": (8, None),
    }
    assert (receipt.superseded, receipt.nodes[0].patched) == (2, 2)


# ---- the folder


def test_a_folder_that_holds_something_is_refused_before_anything_is_read(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age="?"), person("y"))
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder in (taken, tmp_path / "link", tmp_path / "no" / "parent", Path(graph.uri) / "bad", source):
        with pytest.raises(BadRequestError):
            graph.load(source, mode="append", engine="local", quarantine=folder)
    assert (taken / "mine.txt").read_text() == "mine"
    assert names(graph) == {"ann", "bob"}
    (tmp_path / "empty").mkdir()
    assert graph.load(source, mode="append", engine="local", quarantine=tmp_path / "empty").quarantined == 1
    assert (tmp_path / "empty" / "in.jsonl").exists()


def test_a_folder_that_the_next_load_would_read_is_refused(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "more").mkdir(parents=True)
    write(folder / "a.jsonl", person("x", age="?"))
    (folder / "a.csv").write_text("name,age\ny,?\n")
    mapping = {"nodes": {"Person": {"source": f"{folder}/**/*.csv"}}}
    given: list[dict[str, Any]] = [{"source": folder}, {"mapping": mapping}, {"source": f"{folder}/../in"}]
    for arguments in given:
        for bad in (folder / "bad", folder / "more" / "bad"):
            with pytest.raises(BadRequestError, match="which the next load reads"):
                graph.load(**arguments, mode="append", engine="local", quarantine=bad)
    assert sorted(path.name for path in folder.rglob("*")) == ["a.csv", "a.jsonl", "more"]
    # One file is not a folder.
    assert graph.load(folder / "a.jsonl", mode="append", engine="local", quarantine=folder / "bad").quarantined == 1


def test_without_bad_records_there_is_no_folder(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("x"))
    receipt = graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad")
    assert (receipt.quarantine, receipt.quarantined, receipt.report) == (None, 0, None)
    assert not (tmp_path / "bad").exists()


def test_a_dry_run_counts_and_leaves_nothing(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age="?"), knows("x", "ann"), person("y"))
    before = files_of(Path(graph.uri))
    options: dict[str, Any] = {"mode": "append", "engine": "local", "quarantine": tmp_path / "bad"}
    preview = graph.load(source, dry_run=True, **options)
    assert files_of(Path(graph.uri)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.omni", "in.jsonl"]
    receipt = graph.load(source, **options)
    assert preview.quarantine is not None
    assert receipt.quarantine is not None
    assert (preview.quarantine.rules, preview.nodes, preview.edges) == (
        receipt.quarantine.rules,
        receipt.nodes,
        receipt.edges,
    )
    assert (preview.quarantine.folder, preview.quarantine.command) == (None, None)


def test_a_new_branch_appears_with_its_quarantine(graph: Graph, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age="?"), person("y"))
    options: dict[str, Any] = {"mode": "append", "engine": "local", "branch": "work", "base": "main"}
    receipt = graph.load(source, quarantine=tmp_path / "bad", **options)
    assert receipt.branch_created
    assert receipt.quarantine is not None
    assert "--branch work" in (receipt.quarantine.command or "")


@pytest.mark.parametrize("place", ["load_checked", "quarantine_written", "quarantine_published", "before_sidecar"])
def test_a_load_that_fails_leaves_no_folder(
    graph: Graph, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age="?"), person("y"))
    monkeypatch.setenv(failpoints.VARIABLE, f"{place}=raise")
    failpoints.reset()
    with pytest.raises(RuntimeError):
        graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad")
    monkeypatch.delenv(failpoints.VARIABLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.omni", "in.jsonl"]
    assert graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad").quarantined == 1


def test_a_file_that_changes_before_its_records_are_copied_is_told(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.jsonl", person("x", age="?"), person("y"))
    original = LoadJob.write_quarantine

    def changed(job: LoadJob, *given: Any) -> Any:
        write(source, person("z", age="?"), person("other"))
        return original(job, *given)

    monkeypatch.setattr(LoadJob, "write_quarantine", changed)
    with pytest.raises(InputFileError, match="it changed while it was read"):
        graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad")
    assert names(graph) == {"ann", "bob"}
    assert not (tmp_path / "bad").exists()


def test_a_record_that_becomes_bad_in_a_race_is_in_the_quarantine(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, rivals = LoadJob.write_quarantine, ["y"]

    def rival(job: LoadJob, *given: Any) -> Any:
        if rivals:
            with Graph.open(graph.uri) as other:
                other.mutate(f'query q() {{ insert Person {{ name: "{rivals.pop()}" }} }}')
        return original(job, *given)

    monkeypatch.setattr(LoadJob, "write_quarantine", rival)
    source = write(tmp_path / "in.jsonl", person("x", age="?"), person("y", age=1), person("z"))
    receipt = graph.load(source, mode="append", engine="local", quarantine=tmp_path / "bad")
    assert receipt.quarantine is not None
    assert receipt.quarantine.rules == {"invalid value for Person.age": 1, "key_conflict of Person": 1}
    kept = (tmp_path / "bad" / "in.jsonl").read_text("utf-8").splitlines()
    assert list(map(json.loads, kept)) == [person("x", age="?"), person("y", age=1)]


def test_what_no_quarantine_takes_is_refused(graph: Graph, tmp_path: Path) -> None:
    frame = {"Person": pa.table({"names": [["x"]]})}
    mapping = {"nodes": {"Person": {"each": "names", "columns": {"names": "name"}}}}
    with pytest.raises(BadRequestError, match="`each` makes several records"):
        graph.load(frames=frame, mapping=mapping, mode="patch", quarantine=tmp_path / "bad")
    with pytest.raises(BadRequestError, match="a patch drops no edges"):
        graph.load(frames={"Person": pa.table({"name": ["ann"]})}, mode="patch", dangling="drop")


# ---- laws

#: What a random record is about; several of them are wrong, alone or together.
NAMES = ["ann", "bob", "x", "y", "z", "ghost"]
NODES = st.builds(
    lambda name, age, mail: ("node", name, None, age, mail),
    st.sampled_from([*NAMES[:5], None]),
    st.sampled_from([None, 1, 2, "old"]),
    st.sampled_from([None, None, "ann", "m", "n"]),
)
EDGES = st.builds(
    lambda kind, source, target, since: (kind, source, target, since, None),
    st.sampled_from(["Knows", "Knows", "Needs", "Rates", "Rates"]),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from([None, 1, "then"]),
)
INPUTS = st.lists(NODES | EDGES, min_size=1, max_size=14)
RULE_OF_EQUALS = st.sampled_from(["first", "last", "error"])
RULES = st.fixed_dictionaries(
    {}, optional={"on_duplicate": RULE_OF_EQUALS, "dangling": st.sampled_from(["drop", "error"])}
)


def as_record(tag: int, item: tuple[Any, ...]) -> dict[str, Any]:
    kind, first, second, number, mail = item
    if kind == "node":
        return {"type": "Person", "data": {"name": first, "tag": tag, "age": number, "mail": mail}}
    data = {"tag": tag} | ({"since": number} if kind in ("Knows", "Rates") else {})
    given = {} if kind == "Rates" else {"id": f"e{tag}"}
    return {"edge": kind, "from": first, "to": second, **given, "data": data}


def tags_of_graph(graph: Graph) -> Counter[int]:
    rows = everything(graph)
    return Counter(row["tag"] for some in rows.values() for row in some if row["tag"] is not None)


def tags_of_folder(folder: Path) -> Counter[int]:
    files = [path for path in folder.glob("*.jsonl") if not path.name.startswith("_")] if folder.exists() else []
    return Counter(json.loads(line)["data"]["tag"] for file in files for line in file.read_text("utf-8").splitlines())


def check_law(root: Path, items: list[tuple[Any, ...]], mode: str, rules: dict[str, str], **engine: Any) -> Any:
    """What becomes of every record, checked; and the same in a form to compare."""
    graph = new_graph(root / "g.omni")
    source = write(root / "in.jsonl", *(as_record(tag, item) for tag, item in enumerate(items)))
    bad = root / "bad"
    try:
        receipt = graph.load(source, mode=mode, quarantine=bad, **rules, **engine)
    except LoadRejectedError as refused:
        # Rows of the graph would be stranded, or nothing would be left: then nothing happened.
        assert mode == "overwrite"
        assert not bad.exists()
        return refused.report.totals
    loaded, kept = tags_of_graph(graph), tags_of_folder(bad)
    assert not loaded.keys() & kept.keys()
    assert all(count == 1 for count in (loaded | kept).values())
    assert len(items) == len(loaded) + receipt.superseded + receipt.dropped + len(kept)
    assert receipt.quarantined == len(kept)
    assert receipt.total_entities == len(loaded) + receipt.superseded
    found = (loaded, kept, receipt.superseded, receipt.dropped, reasons(bad) if kept else None)
    if kept:
        again = graph.load(
            bad, mode="append" if mode == "overwrite" else mode, quarantine=root / "again", **rules, **engine
        )
        assert (again.total_entities, again.superseded, again.dropped) == (0, 0, 0)
        assert reasons(root / "again") == reasons(bad)
        assert tags_of_folder(root / "again") == kept
    return found


@settings(max_examples=25, deadline=None)
@given(items=INPUTS, mode=st.sampled_from(["append", "merge", "overwrite"]), rules=RULES)
def test_every_record_is_loaded_superseded_dropped_or_in_the_quarantine(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[Any, ...]], mode: str, rules: dict[str, str]
) -> None:
    check_law(tmp_path_factory.mktemp("law"), items, mode, rules, engine="local")


PATCHES = st.lists(
    st.tuples(
        st.sampled_from(["node", "node", "edge", "keyed edge"]),
        st.sampled_from(["ann", "bob", "cid", "ghost"]),
        st.sampled_from([None, None, "ann", "m", "n"]),
        st.sampled_from([None, 1, "old"]),
    ),
    min_size=1,
    max_size=10,
)
#: Every person whom a patch may name has a mail, so that what it leaves behind is taken.
SEED = [person("cid", mail="m", tag=-1), person("bob", mail="n", tag=-1), person("ann", tag=-1)]
EDGES_OF_SEED = [knows(name, "ann", tag=-1) | {"id": f"e-{name}"} for name in ("ann", "bob")]
EDGES_OF_SEED += [{"edge": "Rates", "from": name, "to": "ann", "data": {"tag": -1}} for name in ("ann", "bob", "cid")]


def patch_record(tag: int, item: tuple[Any, ...]) -> dict[str, Any]:
    kind, name, mail, number = item
    if kind == "node":
        return person(name, tag=tag, age=number, **({} if mail is None else {"mail": mail}))
    if kind == "keyed edge":
        # Its ends name it; without one of them nothing does.
        return {"edge": "Rates", "from": name, "data": {"tag": tag, "since": number}} | (
            {} if mail is None else {"to": mail}
        )
    ends = {} if mail is None else {"from": name, "to": mail}
    return {"edge": "Knows", "id": f"e-{name}", "data": {"tag": tag, "since": number}} | ends


def check_patch_law(root: Path, items: list[tuple[Any, ...]], options: dict[str, Any], **engine: Any) -> Any:
    """What becomes of every record of a patch, checked; and the same in a form to compare."""
    graph = new_graph(root / "g.omni")
    graph.load(write(root / "seed.jsonl", *SEED, *EDGES_OF_SEED), mode="merge", engine="local")
    source, bad = write(root / "in.jsonl", *(patch_record(*item) for item in enumerate(items))), root / "bad"
    receipt = graph.load(source, mode="patch", quarantine=bad, **options, **engine)
    loaded, kept = tags_of_graph(graph), tags_of_folder(bad)
    del loaded[-1]
    assert not loaded.keys() & kept.keys()
    assert all(count == 1 for count in (loaded | kept).values())
    assert len(items) == len(loaded) + receipt.superseded + len(kept)
    assert receipt.quarantined == len(kept)
    assert sum(item.patched + item.inserted for item in (*receipt.nodes, *receipt.edges)) == len(loaded)
    assert graph.verify().is_sound
    if kept:
        graph.load(bad, mode="patch", quarantine=root / "again", **options, **engine)
        assert reasons(root / "again") == reasons(bad)
    return loaded, kept, receipt.superseded, reasons(bad) if kept else None


@settings(max_examples=15, deadline=None)
@given(
    items=PATCHES, options=st.fixed_dictionaries({}, optional={"on_duplicate": RULE_OF_EQUALS, "upsert": st.booleans()})
)
def test_every_record_of_a_patch_changes_its_row_or_is_in_the_quarantine(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    check_patch_law(tmp_path_factory.mktemp("law"), items, options, engine="local")


#: Pieces of lines of CSV: cells, separators, quotes and ends of lines as they come in files that people edit.
PIECES = st.sampled_from(["x", "1", "old", "", ",", '"', '"a, b"', '""', " ", "é", "\r"])
LINES = st.lists(st.lists(PIECES, max_size=5).map("".join), min_size=1, max_size=8)
TAG = re.compile(r"T(\d+)")


@settings(max_examples=60, deadline=None)
@given(
    lines=LINES, ends=st.sampled_from(["\n", "\r\n"]), multiline=st.booleans(), has_end=st.booleans(), bom=st.booleans()
)
def test_every_line_of_csv_is_loaded_or_in_the_quarantine(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: str, multiline: bool, has_end: bool, bom: bool
) -> None:
    """Whatever stands in them, with every byte of those that are not loaded."""
    root = tmp_path_factory.mktemp("csv")
    graph = Graph.init(root / "g.omni", "node Line { name: String @key  age: I32?  note: String? }")
    texts = [f"T{number},{line}" for number, line in enumerate(lines)]
    text = ends.join(["name,age,note", *texts]) + (ends if has_end else "")
    path, bad = root / "lines.csv", root / "bad"
    path.write_bytes(b"\xef\xbb\xbf" * bom + text.encode())
    entry = {"source": str(path), "multiline": multiline}
    try:
        receipt = graph.load(mapping={"nodes": {"Line": entry}}, mode="append", engine="local", quarantine=bad)
    except LoadRejectedError as refused:
        raise AssertionError(refused) from refused
    loaded = " ".join(f"{row['id']} {row['note']}" for row in everything(graph)["node:Line"])
    files = [file for file in (bad / "nodes").rglob("*") if file.is_file()] if bad.exists() else []
    kept = "".join(file.read_bytes().decode() for file in files)
    # A value over several lines may hold others.
    assert Counter(TAG.findall(loaded + kept)) == Counter(TAG.findall(text))
    assert all(line in text for line in kept.removeprefix("name,age,note").split("\n"))
    assert receipt.quarantined == len(reasons_by_record(bad))
    if kept:
        again = graph.load(mapping=bad / "mapping.yaml", mode="append", engine="local", quarantine=root / "again")
        assert (again.total_entities, again.quarantined) == (0, receipt.quarantined)


def reasons_by_record(folder: Path) -> set[tuple[str, int]]:
    """The records that a quarantine has reasons for."""
    files = sorted((folder / "_reasons").rglob("*.jsonl")) if folder.exists() else []
    found = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return {(item["file"], item.get("line") or item["record"]) for item in found}


ROW = st.fixed_dictionaries(
    {"name": st.sampled_from(["ann", "bob", "x", "y", "z", None]), "age": st.sampled_from(["1", "2", "old", None])},
    optional={"mail": st.sampled_from(["ann", "m", "n"]), "more": st.lists(st.integers(0, 9), max_size=2)},
)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=10), kind=st.sampled_from(["frame", "json", "lines", "parquet"]))
def test_every_row_is_loaded_or_in_the_quarantine(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], kind: str
) -> None:
    root = tmp_path_factory.mktemp("rows")
    graph, bad = new_graph(root / "g.omni"), root / "bad"
    tagged = [{"tag": tag, "name": None, "age": None, "mail": None} | row for tag, row in enumerate(rows)]
    entry: dict[str, Any] = {
        "columns": {"name": "name", "tag": "tag", "mail": "mail"},
        "properties": {"age": {"number": True}},
    }
    given_rows: dict[str, Any] = {}
    if kind == "frame":
        given_rows["frames"] = {"Person": pa.Table.from_pylist([{"more": None} | row for row in tagged])}
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist([{"more": None} | row for row in tagged]), root / "p.parquet")
        entry["source"] = str(root / "p.parquet")
    else:
        ending = "json" if kind == "json" else "jsonl"
        text = json.dumps(tagged) if kind == "json" else "\n".join(map(json.dumps, tagged))
        (root / f"p.{ending}").write_text(text, encoding="utf-8")
        entry["source"] = str(root / f"p.{ending}")
    receipt = graph.load(
        mapping={"nodes": {"Person": entry}}, mode="append", engine="local", quarantine=bad, **given_rows
    )
    kept = kept_rows(bad, "json" if kind == "json" else "lines" if kind == "lines" else "rows") if bad.exists() else []
    loaded = tags_of_graph(graph)
    assert loaded + Counter(row["tag"] for row in kept) == Counter(range(len(rows)))
    assert receipt.quarantined == len(kept)
    # As they were given, also what is not read.
    assert [{name: row[name] for name in row if row[name] is not None} for row in kept] == [
        {name: tagged[row["tag"]][name] for name in tagged[row["tag"]] if tagged[row["tag"]][name] is not None}
        for row in kept
    ]


MANY: list[tuple[Any, ...]] = [
    ("node", "x", None, 1, "m"),
    ("node", "y", None, "old", None),
    ("node", "z", None, 2, "ann"),
    ("node", "x2", None, 2, "n"),
    ("node", "x2", None, 3, None),
    ("node", "w", None, 3, "w"),
    ("Knows", "x", "y", 1, None),
    ("Knows", "w", "x", 1, None),
    ("Knows", "w", "ghost", 1, None),
    ("Knows", "w", "z", 1, None),
    ("Needs", "w", "x", None, None),
    ("Needs", "x", "w", None, None),
    ("Needs", "x", "x", None, None),
    ("Knows", "ann", "w", "then", None),
    ("Rates", "x", "ann", 1, None),
    ("Rates", "x", "ann", 2, None),
    ("Rates", "x", "ann", "then", None),
    ("Rates", "w", "z", 1, None),
]


MANY_PATCHES: list[tuple[Any, ...]] = [
    ("node", "ann", "n", 1),
    ("node", "bob", "m", None),
    ("node", "cid", "ann", "old"),
    ("node", "ghost", "g", 1),
    ("node", "ghost2", "m", 1),
    ("edge", "ann", None, 3),
    ("edge", "cid", "ann", 1),
    ("edge", "bob", "ghost3", 1),
    ("edge", "ghost", "ghost3", 1),
    ("edge", "ghost4", None, 1),
    ("keyed edge", "bob", "ann", 1),
    ("keyed edge", "bob", "ann", "old"),
    ("keyed edge", "cid", "ghost", 1),
    ("keyed edge", "cid", None, 1),
    ("keyed edge", "cid", "m", 1),
]


def pairs_of(lines: list[str]) -> list[tuple[str, str]]:
    split = (line.split(",") for line in lines)
    return [(who, one) for who, several in split for one in several.split("|") if one]


def check_each(root: Path, lines: list[str], **engine: Any) -> Any:
    """What becomes of records of which each item is one: the edges, and the lines that are kept as a whole."""
    graph, bad = new_graph(root / "g.omni"), root / "bad"
    (root / "k.csv").write_text("\n".join(["who,whom", *lines, ""]))
    entry = {"source": str(root / "k.csv"), "each": {"column": "whom", "split": "|"}, "from": "who", "to": "whom"}
    mapping = {"edges": {"Knows": entry | {"columns": {}}}}
    receipt = graph.load(mapping=mapping, mode="append", quarantine=bad, **engine)
    kept = sorted(line for file in (bad / "edges").rglob("*.csv") for line in file.read_text().splitlines()[1:])
    loaded = sorted((row["src"], row["dst"]) for row in everything(graph)["edge:Knows"])
    assert receipt.quarantined == len(kept)
    assert sorted([*loaded, *pairs_of(kept)]) == sorted([*pairs_of(lines), ("ann", "bob")])
    return loaded, kept


EACH = ["ann,bob", "bob,ann|ghost", "bob,bob|ann", "ann,ann", "ghost,ann|bob", "bob,", "ann,bob|bob"]


@pytest.mark.parametrize(
    ("check", "arguments"),
    [(check_law, (MANY, "merge", {})), (check_patch_law, (MANY_PATCHES, {"upsert": True})), (check_each, (EACH,))],
    ids=["merge", "patch", "each"],
)
def test_both_engines_keep_the_same(
    tmp_path: Path, spark: Any, check: Any, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ranges and parts as small as they can be, with little data on the way of much data."""
    from omnigraph.spark import worker_choice

    (tmp_path / "local").mkdir()
    expected = check(tmp_path / "local", *arguments, engine="local")
    monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)
    monkeypatch.setattr(quarantine, "_RANGE", 3)
    monkeypatch.setattr(parts, "_SMALLEST_PART_BYTES", 400)
    monkeypatch.setattr(parts, "_LARGEST_PART_BYTES", 400)
    (tmp_path / "spark").mkdir()
    assert check(tmp_path / "spark", *arguments, spark=spark) == expected
