"""One mapping for files, frames and tables: renamed columns, transforms, members of structs, times, tables by name."""

from __future__ import annotations

import csv
import json
import re
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.graph import loads
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.shape.value_sources import column_source
from omnigraph.pipeline.sources.column_map import ColumnMap, plain_columns
from omnigraph.pipeline.sources.mapping import MappedType
from omnigraph.pipeline.sources.planning import Frame, FrameSource, chosen_columns
from omnigraph.spark.frames import SparkFrames
from support.graphs import ends_of, ids_of, refused, rejected, rows_of
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Member {
    code: String @key  name: String?  active: Bool?  born: Date?  seen: DateTime?  balance: F64?  points: I64?
    tags: [String]?  scores: [I64]?  country: String?  city: String?  photo: Blob?
}
node Day { day: Date @key }
node Slot { series: String number: I32 @key(series, number) }
node Note { text: String? at: DateTime? }
edge Follows: Member -> Member { since: Date? }
edge On: Member -> Day
edge At: Member -> Slot
"""
#: The columns of three rows.
COLUMNS: dict[str, list[Any]] = {
    "nr": ["1", "2", "3"],
    "land": ["DE", "AT", "CH"],
    "full name": ["  Ada ", "N/A", "Cleo"],
    "on": ["yes", "0", None],
    "birthday": ["10.12.1815", "1990-11-23", None],
    "last": ["1.2.2024 13:30:00.5", None, "29.2.2024 0:00:00"],
    "saldo": ["1.234,50", "-", None],
    "pts": ["47,034", "7", None],
    "tags": ["a|b", None, "c"],
    "marks": ["1; 2", "-3", None],
    "address": [{"city": "London", "geo": {"zip": "W1"}}, {"city": None, "geo": None}, None],
}


def rows_of_columns(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


ROWS = rows_of_columns(COLUMNS)
MEMBER: dict[str, Any] = {
    "columns": {"full name": "name", "tags": "tags", "address.city": "city"},
    "properties": {
        "code": {"concat": ["land", "nr"], "separator": "-"},
        "name": {"trim": True, "null": ["", "N/A"]},
        "active": {"column": "on", "bool": {"true": ["yes", "1"], "false": ["no", "0"]}},
        "born": {"column": "birthday", "date_format": ["%d.%m.%Y", "%Y-%m-%d"]},
        "seen": {"column": "last", "date_format": ["%d.%m.%Y %H:%M:%S.%f", "%d.%m.%Y %H:%M:%S"]},
        "balance": {"column": "saldo", "number": {"decimal": ",", "thousands": "."}, "null": "-"},
        "points": {"column": "pts", "number": {"thousands": ","}},
        "tags": {"split": "|"},
        "scores": {"column": "marks", "split": ";", "trim": True},
        "country": {"constant": "Earth"},
    },
}
FOLLOWS: dict[str, Any] = {
    "from": {"concat": ["a_land", "a_nr"], "separator": "-", "trim": True},
    "to": "target",
    "id": {"concat": [{"constant": "f:"}, "key"]},
    "columns": {"when": "since"},
    "properties": {"since": {"date_format": "%d/%m/%Y"}},
}
EDGES: list[dict[str, Any]] = [
    {"a_land": "DE ", "a_nr": "1", "target": "AT-2", "key": "1", "when": "31/12/2020"},
    {"a_land": "AT", "a_nr": " 2", "target": "CH-3", "key": "2", "when": None},
]
EXPECTED = rows_of_columns(
    {
        "id": ["AT-2", "CH-3", "DE-1"],
        "code": ["AT-2", "CH-3", "DE-1"],
        "name": [None, "Cleo", "Ada"],
        "active": [False, None, True],
        "born": [date(1990, 11, 23), None, date(1815, 12, 10)],
        "seen": [None, datetime(2024, 2, 29), datetime(2024, 2, 1, 13, 30, 0, 500_000)],
        "balance": [None, None, 1234.5],
        "points": [7, None, 47034],
        "tags": [None, ["c"], ["a", "b"]],
        "scores": [[-3], None, [1, 2]],
        "country": ["Earth"] * 3,
        "city": [None, None, "London"],
        "photo": [None] * 3,
    }
)
ADDRESS = pa.struct([("city", pa.utf8()), ("geo", pa.struct([("zip", pa.utf8())]))])
MEMBER_SCHEMA = pa.schema([*((name, pa.utf8()) for name in ROWS[0] if name != "address"), ("address", ADDRESS)])


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph for tests whose loads are refused."""
    return Graph.init(tmp_path_factory.mktemp("untouched") / "g.omni", SCHEMA)


def load(graph: Graph, mode: str = "merge", **rest: Any) -> Any:
    return graph.load(mode=mode, **({"engine": "local"} | rest))


def members(rows: list[dict[str, Any]] | None = None) -> pa.Table:
    return pa.Table.from_pylist(ROWS if rows is None else rows, MEMBER_SCHEMA)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    flat = []
    for row in rows:
        address = row.get("address")
        flat.append({name: value for name, value in row.items() if name != "address"})
        if "address" in row:
            flat[-1]["address.city"] = None if address is None else address["city"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(flat[0]))
        writer.writeheader()
        writer.writerows(flat)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    schema = MEMBER_SCHEMA if "address" in rows[0] else None
    match path.suffix:
        case ".csv":
            write_csv(path, rows)
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        case ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
        case ".orc":
            orc.write_table(pa.Table.from_pylist(rows, schema), path)


def check(graph: Graph) -> None:
    assert rows_of(graph, "node:Member") == EXPECTED
    assert ends_of(graph, "edge:Follows") == [("AT-2", "CH-3"), ("DE-1", "AT-2")]
    assert {row["id"]: row["since"] for row in rows_of(graph, "edge:Follows")} == {
        "f:1": date(2020, 12, 31),
        "f:2": None,
    }


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet", "orc"])
def test_files_of_every_format_are_read_alike(graph: Graph, folder: Path, ending: str) -> None:
    write_rows(folder / f"m.{ending}", ROWS)
    write_rows(folder / f"f.{ending}", EDGES)
    mapping = {
        "nodes": {"Member": {"source": str(folder / f"m.{ending}")} | MEMBER},
        "edges": {"Follows": {"source": str(folder / f"f.{ending}")} | FOLLOWS},
    }
    load(graph, mapping=mapping)
    check(graph)


@pytest.mark.parametrize("kind", ["arrow", "batch", "pandas", "flat"])
def test_frames_of_every_kind_are_read_as_files_are(graph: Graph, kind: str) -> None:
    nodes: Any = members()
    edges: Any = pa.Table.from_pylist(EDGES)
    match kind:
        case "batch":
            nodes, edges = nodes.to_batches()[0], edges.to_batches()[0]
        case "pandas":
            nodes, edges = pd.DataFrame(ROWS), edges.to_pandas()
        case "flat":
            cities = [None if row["address"] is None else row["address"]["city"] for row in ROWS]
            nodes = nodes.drop_columns("address").append_column("address.city", pa.array(cities))
    mapping = {"nodes": {"Member": MEMBER}, "edges": {"Follows": FOLLOWS}}
    result = load(graph, frames={"Member": nodes, "edge:Follows": edges}, mapping=mapping)
    assert (result.nodes_loaded, result.edges_loaded) == ({"Member": 3}, {"Follows": 2})
    check(graph)


def test_a_mapping_file_for_frames(graph: Graph, folder: Path) -> None:
    path = folder / "m.yaml"
    path.write_text(
        """
        timestamps: truncate
        nodes:
          Member:
            columns: {nr: code, full name: name}
            properties:
              active: {column: on, bool: {true: [yes, 1], false: [no, 0]}, null: [~x, ""]}
        edges:
          Follows:
            from: a_nr
            to: target
            columns: {}
        """,
        encoding="utf-8",
    )
    frames = {"Member": members(), "Follows": pa.table({"a_nr": ["1"], "target": ["2"]})}
    load(graph, frames=frames, mapping=path)
    assert {row["id"]: (row["name"], row["active"]) for row in rows_of(graph, "node:Member")} == {
        "1": ("  Ada ", True),
        "2": ("N/A", False),
        "3": ("Cleo", None),
    }
    assert ends_of(graph, "edge:Follows") == [("1", "2")]


def test_other_columns_keep_their_names_beside_properties(graph: Graph) -> None:
    frame = pa.table({"code": ["a"], "name": ["x"], "born": ["1.2.2024"], "extra": [1]})
    mapping = {"nodes": {"Member": {"properties": {"born": {"date_format": "%d.%m.%Y"}}}}}
    with refused(graph, BadRequestError, "Member has no property `extra`"):
        load(graph, frames={"Member": frame}, mapping=mapping)
    load(graph, frames={"Member": frame.drop_columns("extra")}, mapping=mapping)
    (row,) = rows_of(graph, "node:Member")
    assert (row["name"], row["born"]) == ("x", date(2024, 2, 1))
    mapping["nodes"]["Member"]["properties"]["points"] = {"column": "extra"}
    load(graph, frames={"Member": frame}, mapping=mapping)
    assert rows_of(graph, "node:Member")[0]["points"] == 1


def test_columns_that_spark_connect_cannot_tell_apart_are_explained() -> None:
    class Lazy:
        """A frame of Spark Connect, which finds out when its schema is asked for."""

        def selectExpr(self, *_: str) -> Lazy:
            return self

        @property
        def schema(self) -> Any:
            raise AnalysisException("[AMBIGUOUS_REFERENCE] `name` is ambiguous")

    key = TableKey("node:Member")
    mapped = MappedType(type_key=key, source="frame Member")
    frame = Frame(type_key=key, data=Lazy(), columns=plain_columns(["name"]), mapped=mapped)
    chosen = ColumnMap(properties={"name": column_source("name")}, id=None, ends=None)
    source = FrameSource(name="frame Member", type_key=key, chosen=chosen, paths=("name",))
    with pytest.raises(BadRequestError, match="frame Member: Spark cannot select its columns"):
        chosen_columns(frame, source, SparkFrames())


def test_a_column_beside_the_one_that_is_read_instead_is_refused(graph: Graph) -> None:
    frame = pa.table({"code": ["a"], "name": ["x"], "id": ["i"], "title": ["t"]})
    entry: dict[str, Any] = {"id": "title"}
    mapping = {"nodes": {"Member": entry}}
    with refused(graph, BadRequestError, "nothing reads the column `id`: the id of Member"):
        load(graph, frames={"Member": frame}, mapping=mapping)
    entry |= {"id": None, "properties": {"name": {"column": "title"}}}
    with refused(graph, BadRequestError, "nothing reads the column `name`: the property `name`"):
        load(graph, frames={"Member": frame}, mapping=mapping)


def test_files_and_frames_are_one_commit(graph: Graph, folder: Path) -> None:
    before = len(graph.commits())
    write_rows(folder / "m.parquet", ROWS)
    mapping = {"nodes": {"Member": {"source": str(folder / "m.parquet")} | MEMBER}, "edges": {"Follows": FOLLOWS}}
    load(graph, frames={"Follows": pa.Table.from_pylist(EDGES)}, mapping=mapping)
    check(graph)
    assert len(graph.commits()) == before + 1
    both = {"nodes": {"Member": [{"source": str(folder / "m.parquet")} | MEMBER, {}]}}
    load(graph, frames={"Member": pa.table({"code": ["new"]})}, mapping=both)
    assert ids_of(graph, "node:Member") == {"AT-2", "CH-3", "DE-1", "new"}


def test_ends_from_members_of_keys(graph: Graph) -> None:
    frames = {
        "Member": pa.table({"code": ["a"]}),
        "Day": pa.table({"when": ["31.12.2024"]}),
        "Slot": pa.table({"series": ["s"], "number": [1000]}),
        "On": pa.table({"who": ["a"], "when": ["31.12.2024"]}),
        "At": pa.table({"who": ["a"], "s": ["s "], "n": ["1,000"]}),
    }
    form = {"date_format": "%d.%m.%Y"}
    number = {"column": "n", "number": {"thousands": ","}}
    mapping = {
        "nodes": {"Day": {"properties": {"day": {"column": "when"} | form}}},
        "edges": {
            "On": {"from": "who", "to": {"column": "when"} | form},
            "At": {"from": "who", "to": {"series": {"column": "s", "trim": True}, "number": number}},
        },
    }
    load(graph, frames=frames, mapping=mapping)
    assert ends_of(graph, "edge:On") == [("a", "20088")]
    assert ends_of(graph, "edge:At") == [("a", '["1000","s"]')]
    mapping["edges"]["On"]["to"] = {"day": {"column": "when"} | form}
    frames["At"] = pa.table({"who": ["a"], "s": ["s"], "n": ["1,00"]})
    frames["On"] = pa.table({"who": ["a", "a"], "when": ["31.12.2024", "31.13.2024"]})
    found = rejected(graph, lambda: load(graph, frames=frames, mapping=mapping))
    assert {(item.rule, item.line, item.field, item.value) for item in found} == {
        ("invalid `to` of On", 2, "to", "31.13.2024"),
        ("invalid `to` of At", 1, "to", "1,00"),
    }


# ---- values that nothing accepts


BROKEN = {
    "nr": None,
    "full name": "x",
    "on": "maybe",
    "birthday": "31.02.2024",
    "last": "1.2.2024 25:00:00",
    "saldo": "1.23,4",
    "pts": "4,7",
    "tags": "a",
    "marks": "1;x",
    "address": None,
}
COMPLAINTS = {
    "code": (None, "it may not be null"),
    "active": ("maybe", "'maybe' is neither true (yes, 1) nor false (no, 0)"),
    "born": ("31.02.2024", "'31.02.2024' is not a date of the form %d.%m.%Y or %Y-%m-%d"),
    "seen": ("1.2.2024 25:00:00", "is not a date of the form"),
    "balance": ("1.23,4", "is not a number with the decimal separator ',' and '.' every 3 digits"),
    "points": ("4,7", "is not a number"),
    "scores": ("1;x", "item 2: 'x' is not a whole number"),
}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "frame"])
def test_a_value_that_no_transform_accepts_is_a_bad_record(untouched: Graph, folder: Path, kind: str) -> None:
    rows = [ROWS[0], {name: BROKEN.get(name) for name in ROWS[0]}]
    given: dict[str, Any] = {"mapping": {"nodes": {"Member": MEMBER}}, "frames": {"Member": members(rows)}}
    source, line = "frame Member, partition 0", 2
    if kind != "frame":
        source, line = str(folder / f"m.{kind}"), 3 if kind == "csv" else 2
        write_rows(folder / f"m.{kind}", rows)
        given = {"mapping": {"nodes": {"Member": {"source": source} | MEMBER}}}
    found = {item.field: item for item in rejected(untouched, lambda: load(untouched, **given))}
    assert set(found) == set(COMPLAINTS)
    for name, (value, text) in COMPLAINTS.items():
        item = found[name]
        assert (item.source, item.line, item.type_key) == (source, line, "node:Member")
        assert item.value == value
        assert text in item.message


# ---- times


FINE = pd.Timestamp("2024-05-01 12:00:00.001500500")


@pytest.mark.parametrize("kind", ["arrow", "pandas", "parquet", "csv", "json"])
def test_one_rule_for_times_that_are_finer_than_milliseconds(graph: Graph, folder: Path, kind: str) -> None:
    table = pa.table({"text": ["a"], "at": pa.array([FINE], pa.timestamp("ns"))})
    entry: dict[str, Any] = {}
    frames: dict[str, Any] | None = {"Note": table}
    match kind:
        case "pandas":
            frames = {"Note": table.to_pandas()}
        case "parquet":
            pq.write_table(table, folder / "n.parquet")
        case "csv":
            (folder / "n.csv").write_text(f"text,at\na,{FINE.isoformat()}\n", encoding="utf-8")
        case "json":
            row = {"text": "a", "at": FINE.isoformat()}
            (folder / "n.json").write_text(json.dumps([row]), encoding="utf-8")
    if kind not in ("arrow", "pandas"):
        frames, entry = None, {"source": str(folder / f"n.{kind}")}
    for rule, milliseconds in (("round", 2), ("truncate", 1)):
        for mapping in (
            {"timestamps": rule, "nodes": {"Note": entry}},
            {"timestamps": "refuse", "nodes": {"Note": entry | {"timestamps": rule}}},
        ):
            load(graph, "overwrite", frames=frames, mapping=mapping)
            (row,) = rows_of(graph, "node:Note")
            assert row["at"] == datetime(2024, 5, 1, 12, 0, 0, milliseconds * 1000)
    for mapping in ({"nodes": {"Note": entry}}, {"nodes": {"Note": entry}, "timestamps": "refuse"}):
        (found,) = rejected(graph, lambda m=mapping: load(graph, frames=frames, mapping=m))
        assert (found.field, found.line) == ("at", 2 if kind == "csv" else 1)
        assert "2024-05-01T12:00:00.001500500" in str(found.value)
        assert "is finer than milliseconds, the precision of DateTime" in found.message
        assert "`timestamps: round`" in found.message


def test_a_rule_for_times_needs_no_entry_of_the_type(graph: Graph) -> None:
    table = pa.table({"at": pa.array([1500, None], pa.timestamp("us"))})
    load(graph, frames={"Note": table}, mapping={"timestamps": "round"})
    assert {row["at"] for row in rows_of(graph, "node:Note")} == {None, datetime(1970, 1, 1, 0, 0, 0, 2000)}
    (found,) = rejected(graph, lambda: load(graph, frames={"Note": table}))
    assert found.value == "1970-01-01T00:00:00.001500Z"


# ---- members of structs


def test_a_struct_is_refused_with_the_way_to_its_members(untouched: Graph, folder: Path) -> None:
    nested = members().select(["nr", "address"]).rename_columns(["code", "city"])
    pq.write_table(nested, folder / "n.parquet")
    text = (
        "the column `city` is a struct, and a property holds one value. Its members are city, geo: name them in the "
        "mapping, as in `columns: {city.city: city}`, or select them before, as in "
        'df.select("code", F.col("city.city").alias("city"))'
    )
    with refused(untouched, BadRequestError, "frame Member: ", text):
        load(untouched, frames={"Member": nested})
    with refused(untouched, BadRequestError, "n.parquet: ", text):
        load(untouched, mapping={"nodes": {"Member": {"source": str(folder / "n.parquet")}}})
    with refused(untouched, BadRequestError, "Member has no property `address`; the column `address` is a struct"):
        load(untouched, frames={"Member": nested.rename_columns(["code", "address"])})
    cases = {
        "city.cty": "there is no column `city.cty`: did you mean `city.city`?",
        "city.geo": "the column `city.geo` is a struct, and a property holds one value. Its members are zip: name",
        "city.city.x": "there is no column `city.city.x`",
    }
    for path, said in cases.items():
        mapping = {"nodes": {"Member": {"columns": {"code": "code", path: "name"}}}}
        with refused(untouched, BadRequestError, said):
            load(untouched, frames={"Member": nested}, mapping=mapping)
    with refused(untouched, BadRequestError, "the column `city` is a struct"):
        load(untouched, frames={"Note": nested}, mapping={"nodes": {"Note": {"id": "city", "columns": {}}}})


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        (
            "map",
            pa.array([[("a", "b")]], pa.map_(pa.utf8(), pa.utf8())),
            "the column `name` is a map, and a property holds one value: select what you need before, as in "
            'df.select("code", F.col("name")["key"].alias("name"))',
        ),
        (
            "list",
            pa.array([[{"n": "x"}]]),
            "the column `name` is a list of structs, and a property holds one value: select what you need before, "
            'as in df.select("code", F.col("name.member").alias("name"))',
        ),
    ],
)
def test_maps_and_lists_of_structs_are_refused(untouched: Graph, kind: str, column: Any, text: str) -> None:
    with refused(untouched, BadRequestError, text):
        load(untouched, frames={"Member": pa.table({"code": ["a"], "name": column})})


def test_a_struct_may_still_be_a_blob(graph: Graph) -> None:
    photos = pa.array([{"data": b"x", "uri": None}])
    load(graph, frames={"Member": pa.table({"code": ["a"], "photo": photos})})
    assert rows_of(graph, "node:Member")[0]["photo"] == b"x"


def test_the_name_of_a_column_goes_before_the_path_of_a_member(graph: Graph, folder: Path) -> None:
    inner = pa.array([{"b": "inner"}])
    both = pa.table({"code": ["x"], "a": inner, "a.b": ["flat"]})
    mapping = {"columns": {"code": "code", "a.b": "name"}}
    load(graph, frames={"Member": both}, mapping={"nodes": {"Member": mapping}})
    assert rows_of(graph, "node:Member")[0]["name"] == "flat"
    pq.write_table(both, folder / "b.parquet")
    source = {"source": str(folder / "b.parquet")}
    load(graph, mapping={"nodes": {"Member": mapping | source}})
    assert rows_of(graph, "node:Member")[0]["name"] == "flat"
    pq.write_table(both.drop_columns("a.b"), folder / "b.parquet")
    load(graph, mapping={"nodes": {"Member": mapping | source}})
    assert rows_of(graph, "node:Member")[0]["name"] == "inner"


def test_paths_through_json_objects(graph: Graph, folder: Path) -> None:
    rows: list[Any] = [
        {"code": "1", "a": {"b": {"c": "x"}}},
        {"code": "2", "a": None},
        {"code": "3"},
        {"code": "4", "a": {"b": None}},
        {"code": "5", "a.b.c": "flat"},
    ]
    path = folder / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    mapping = {"nodes": {"Member": {"source": str(path), "columns": {"code": "code", "a.b.c": "name"}}}}
    load(graph, mapping=mapping)
    found = {row["id"]: row["name"] for row in rows_of(graph, "node:Member")}
    assert found == {"1": "x", "2": None, "3": None, "4": None, "5": "flat"}
    rows += [{"code": "6", "a": "text"}, {"code": "7", "a": {"b": 1}}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    bad = rejected(graph, lambda: load(graph, mapping=mapping))
    assert [(item.line, item.value) for item in bad] == [(6, "text"), (7, "1")]
    assert "it has no `a.b.c`" in bad[0].message


# ---- mappings that do not fit


PLAIN = pa.table({"code": ["a"]})
BAD_FRAME_MAPPINGS: list[tuple[Any, str]] = [
    ({"nodes": {"Member": {"source": "x.csv"}}}, "a type with a frame has an entry without `source`"),
    ({"nodes": {"Member": {"table": "t"}}}, "a type with a frame has an entry without `source`"),
    ({"nodes": {"Member": [{}, {}]}}, "two entries have neither `source` nor `table`"),
    ({"nodes": {"Note": {}}}, "Note: give `source` (files) or `table` (a Spark table), or a frame of Note"),
    ({"nodes": {"Member": {"delimiter": ";"}}}, "`delimiter` is about files"),
    ({"nodes": {"Member": {"null": "NA"}}}, "`null` of a property works with any source"),
    ({"timestamps": "keep"}, "one of refuse, round, truncate, not `keep`; a DateTime holds milliseconds"),
    ({"nodes": {"Member": {"timestamps": "up"}}}, "Member: `timestamps` is one of"),
    ({"nodes": {"Member": {"properties": {"nam": {"column": "code"}}}}}, "no property `nam`: did you mean"),
    ({"nodes": {"Member": {"properties": {"name": {"column": "cde"}}}}}, "no column `cde`: did you mean `code`"),
    (
        {"nodes": {"Member": {"columns": {"code": "code"}, "properties": {"code": {"column": "code"}}}}},
        "`columns` and `properties` both say what feeds the property `code`",
    ),
    ({"nodes": {"Member": {"properties": {"code": {"split": "|"}}}}}, "Member.code is a String: `split` makes lists"),
    (
        {"nodes": {"Member": {"properties": {"code": {"number": True}}}}},
        "Member.code is a String: `number` is for numbers",
    ),
    (
        {"nodes": {"Member": {"properties": {"points": {"column": "code", "bool": {"true": "1"}}}}}},
        "`bool` is for Bool",
    ),
    (
        {"nodes": {"Member": {"properties": {"born": {"column": "code", "date_format": "%Y-%m-%d%z"}}}}},
        "Member.born is a Date, which has no time zone",
    ),
    ({"nodes": {"Member": {"properties": {"photo": {"column": "code", "trim": True}}}}}, "is a Blob"),
    ({"nodes": {"Member": {"properties": {"points": {"constant": "x"}}}}}, "the constant does not fit Member.points"),
    ({"nodes": {"Member": {"id": {"column": "code", "split": "|"}}}}, "`split` does not fit"),
    ({"nodes": {"Member": {"properties": {"born": {"date_format": "%d"}}}}}, "Member, born: `%d` is not a date format"),
]


@each_case(("mapping", "text"), BAD_FRAME_MAPPINGS, ids=[text for _, text in BAD_FRAME_MAPPINGS])
def test_a_mapping_that_does_not_fit_a_frame_is_explained(untouched: Graph, mapping: Any, text: str) -> None:
    with refused(untouched, BadRequestError, text):
        load(untouched, frames={"Member": PLAIN}, mapping=mapping)


def test_ends_that_do_not_fit_are_explained(untouched: Graph) -> None:
    edges = pa.table({"who": ["a"], "s": ["s"]})
    form = {"column": "s", "date_format": "%d.%m.%Y"}
    for end, text in (
        (form, "`to` of At is a text: `date_format` fits the members of a key"),
        ({"series": "s"}, "`to` has to map number, series of Slot"),
        ({"series": "s", "number": form}, "Slot.number is a I32: `date_format` is for Date"),
        ({"series": "s", "number": {"constant": "x"}}, "the constant does not fit Slot.number"),
        ({"series": "s", "number": {}}, "`to`, number: give one of `column`, `concat`, `first` and `constant`"),
    ):
        mapping = {"edges": {"At": {"from": "who", "to": end}}}
        with refused(untouched, BadRequestError, text):
            load(untouched, frames={"At": edges}, mapping=mapping)
    with refused(untouched, BadRequestError, "an edge needs the columns `from` and `to`"):
        load(untouched, frames={"At": edges}, mapping={"edges": {"At": {"from": "who"}}})
    with refused(untouched, BadRequestError, "there are two frames of node:Member"):
        load(untouched, frames={"Member": PLAIN, "node:Member": PLAIN})


# ---- Spark


def test_spark_frames_and_tables_are_read_as_files_are(graph: Graph, folder: Path, spark: SparkSession) -> None:
    """One mapping for Spark frames, a table by its full name, and Parquet files on Spark: equal graphs."""
    frame = spark.createDataFrame(
        [tuple(row[name] if name != "address" else _pair(row) for name in ROWS[0]) for row in ROWS],
        ", ".join(f"`{name}` string" for name in ROWS[0] if name != "address")
        + ", address struct<city: string, geo: struct<zip: string>>",
    )
    edges = spark.createDataFrame(pd.DataFrame(EDGES))
    edges.createOrReplaceTempView("follows_view")
    mapping = {"nodes": {"Member": MEMBER}, "edges": {"Follows": FOLLOWS}}
    graph.load(frames={"Member": frame, "Follows": edges}, mapping=mapping, mode="append", spark=spark)
    check(graph)
    write_rows(folder / "m.parquet", ROWS)
    spark.sql("DROP TABLE IF EXISTS spark_catalog.default.members")
    frame.write.saveAsTable("members", path=str(folder / "table"))
    try:
        for node in ({"table": "spark_catalog.default.members"}, {"source": str(folder / "m.parquet")}):
            tables = {"nodes": {"Member": node | MEMBER}, "edges": {"Follows": {"table": "follows_view"} | FOLLOWS}}
            graph.load(mapping=tables, mode="overwrite", spark=spark)
            check(graph)
    finally:
        spark.sql("DROP TABLE spark_catalog.default.members")
    rows = [{name: BROKEN.get(name) for name in ROWS[0]}]
    bad = spark.createDataFrame([tuple(row[name] for name in row) for row in rows], frame.schema).coalesce(1)
    found = rejected(
        graph, lambda: graph.load(frames={"Member": bad}, mapping=mapping | {"edges": {}}, mode="merge", spark=spark)
    )
    assert {item.field: item.value for item in found} == {name: value for name, (value, _) in COMPLAINTS.items()}
    assert {(item.source, item.line) for item in found} == {("frame Member, partition 0", 1)}


def _pair(row: dict[str, Any]) -> Any:
    address = row["address"]
    if address is None:
        return None
    return (address["city"], None if address["geo"] is None else (address["geo"]["zip"],))


def test_times_and_structs_of_spark_frames(graph: Graph, spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'a' AS text, TIMESTAMP '2024-05-01 12:00:00.0015 UTC' AS at")
    for rule, milliseconds in (("round", 2), ("truncate", 1)):
        graph.load(frames={"Note": frame}, mapping={"timestamps": rule}, mode="overwrite", spark=spark)
        (row,) = rows_of(graph, "node:Note")
        assert row["at"] == datetime(2024, 5, 1, 12, 0, 0, milliseconds * 1000)
    (found,) = rejected(graph, lambda: graph.load(frames={"Note": frame}, mode="merge", spark=spark))
    assert found.value == "2024-05-01T12:00:00.001500Z"
    nested = spark.sql("SELECT 'a' AS code, named_struct('city', 'x') AS name, map('k', 'v') AS city")
    text = 'df.select("code", F.col("name.city").alias("city"))'
    with refused(graph, BadRequestError, "the column `name` is a struct", text):
        graph.load(frames={"Member": nested}, mode="merge", spark=spark)
    constants = {"nodes": {"Note": {"columns": {}, "properties": {"text": {"constant": "c"}}}}}
    graph.load(frames={"Note": frame}, mapping=constants, mode="overwrite", spark=spark)
    assert [row["text"] for row in rows_of(graph, "node:Note")] == ["c"]
    dotted = spark.sql("SELECT 'a' AS `a.b`, 'c' AS `x``y`")
    odd = {"nodes": {"Member": {"columns": {"a.b": "code", "x`y": "name"}}}}
    graph.load(frames={"Member": dotted}, mapping=odd, mode="merge", spark=spark)
    assert [(row["code"], row["name"]) for row in rows_of(graph, "node:Member")] == [("a", "c")]


def test_a_table_that_cannot_be_found_or_read_is_explained(untouched: Graph, folder: Path, spark: SparkSession) -> None:
    def mapping(name: str) -> dict[str, Any]:
        return {"nodes": {"Member": {"table": name, "columns": {"code": "code"}}}}

    with refused(untouched, BadRequestError, "`table: a.b.c` is a Spark table", "--engine spark"):
        load(untouched, mapping=mapping("a.b.c"))
    with refused(untouched, BadRequestError, "frame Member is a Spark frame"):
        load(untouched, frames={"Member": spark.range(1).selectExpr("'a' AS code")})
    (folder / "x.parquet").write_bytes(b"")
    damaged = {"nodes": {"Member": {"source": str(folder / "x.parquet")}}}
    with refused(untouched, InputFileError, "x.parquet: it is damaged"):
        untouched.load(mapping=damaged, mode="merge", spark=spark)
    spark.conf.set("spark.sql.catalog.lake", "no.such.Catalog")
    try:
        for name, text in (
            ("lost", "Spark has no table lost in its catalogs (spark_catalog, lake)"),
            ("no_database.lost", "Spark has no table no_database.lost"),
            ("no_catalog.db.lost", "Spark has no table no_catalog.db.lost"),
            ("lake.db.t", "Spark cannot read the table lake.db.t"),
            ("a b", "`table: a b` is not the name of a table"),
        ):
            with refused(untouched, BadRequestError, text):
                untouched.load(mapping=mapping(name), mode="merge", spark=spark)
    finally:
        spark.conf.unset("spark.sql.catalog.lake")


# ---- mistakes that are found before any work begins


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "frame"])
def test_a_mapping_that_does_not_fit_costs_no_start_of_spark(
    graph: Graph, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(loads, "make_engine", lambda *given: started.append(given))
    row = {"name": "Ada", "nr": 1}
    path = folder / f"x.{kind}"
    match kind:
        case "csv":
            path.write_text("name,nr\nAda,1\n")
        case "json":
            path.write_text(json.dumps(row))
        case "parquet":
            pq.write_table(pa.Table.from_pylist([row]), path)
    given = {"frames": {"Member": pa.Table.from_pylist([row])}} if kind == "frame" else {}
    for entry, words in (
        ({"columns": {"nam": "name", "nr": "code"}}, "there is no column `nam`"),
        ({"columns": {"name": "nam"}}, "Member has no property `nam`"),
        ({"columns": {"name": "name", "nr": "code"}, "properties": {"name": {"number": True}}}, "`number` is for"),
        ({"columns": {}, "properties": {"code": {"constant": 1}, "points": {"constant": "x"}}}, "constant does not"),
        ({"columns": {"nr": "code"}, "properties": {"points": {"column": "nr", "null": "0.5"}}}, "`null: 0.5`"),
    ):
        # Objects of JSON have no columns before they are read, and texts no types.
        if (kind == "json" and "no column" in words) or (kind in ("csv", "json") and "null" in words):
            continue
        source = {} if kind == "frame" else {"source": str(path)}
        with pytest.raises(BadRequestError, match=re.escape(words)):
            graph.load(mapping={"nodes": {"Member": source | entry}}, mode="append", **given)
    assert not started
