"""One mapping means the same for every source: files of all formats and frames, good values and bad ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load.mapping import value_source
from omnigraph.pipeline.load.transforms import MappedColumn, read_mapped
from omnigraph.pipeline.load.values import Timestamps
from support.graphs import rows_of
from support.spark import spark
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

SCHEMA = """
node Thing {
    key: String @key
    text: String?
    flag: Bool?
    day: Date?
    at: DateTime?
    whole: I64?
    real: F64?
    tags: [String]?
    counts: [I64]?
    vec: Vector(2)?
}
"""
#: Per property: what a mapping may say, and texts that fit some of it.
PROPERTIES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "text": (
        [{}, {"trim": True}, {"null": ["-", "N/A"]}, {"trim": True, "null": "-"}],
        ["a", " a ", "-", " - ", "N/A", "ü🦊", "a,b", 'q"q', "007"],
    ),
    "flag": (
        [
            {"bool": {"true": ["yes", "1"], "false": ["no", "0"]}},
            {"bool": {"true": "x"}, "null": ["-"], "trim": True},
        ],
        ["yes", "no", "1", "0", "x", "-", "YES", " x", "true"],
    ),
    "day": (
        [
            {"date_format": "%d.%m.%Y"},
            {"date_format": ["%d/%m/%Y", "%m/%d/%Y", "%Y%m%d"], "null": "0"},
        ],
        ["1.2.2024", "31.02.2024", "12/31/2024", "31/12/2024", "20240229", "0", "2024-01-01"],
    ),
    "at": (
        [
            {"date_format": ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.%f"]},
            {"trim": True},
            {"date_format": "%d.%m.%Y %I:%M %p %z"},
        ],
        [
            "2024-02-29 12:30",
            "2024-02-29 12:30:59.9995",
            "2024-02-29T12:30:00.1234567Z",
            "1.2.2024 1:05 PM +0200",
            "2024-02-30 00:00",
        ],
    ),
    "whole": (
        [{"number": True}, {"number": {"thousands": ","}}, {"number": {"decimal": ","}}],
        ["1", "1,000", "1000", "-5", "1.5", "1,5", "99999999999999999999", "x"],
    ),
    "real": (
        [{"number": {"decimal": ",", "thousands": "."}}, {"number": {"thousands": "'"}}],
        ["1", "1.000,5", "1,5", "1'000.5", "1e3", "1e999", "-0,0", "1.00"],
    ),
    "tags": ([{"split": "|"}, {"split": ", ", "trim": True}], ["a|b", "a", "|", "a, b", " a "]),
    "counts": (
        [{"split": "|"}, {"split": ";", "number": {"thousands": ","}, "trim": True}],
        ["1|2", "1; 1,000", "x", "1||2", "7"],
    ),
    "vec": (
        [{"split": " "}, {"split": ";", "number": {"decimal": ","}}],
        ["1 2", "0,5;2", "1", "a b"],
    ),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return Graph.init(tmp_path_factory.mktemp("laws") / "g.omni", SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("input")


TYPES: dict[str, Any] = {
    "text": ScalarType(Scalar.STRING),
    "flag": ScalarType(Scalar.BOOL),
    "day": ScalarType(Scalar.DATE),
    "at": ScalarType(Scalar.DATETIME),
    "whole": ScalarType(Scalar.I64),
    "real": ScalarType(Scalar.F64),
    "tags": ListType(Scalar.STRING),
    "counts": ListType(Scalar.I64),
    "vec": VectorType(2),
}


def accepted(name: str, reading: dict[str, Any], timestamps: str) -> list[str]:
    """The texts of a property that a reading accepts."""
    _, texts = PROPERTIES[name]
    source = value_source({"column": "c", **reading}, "here")
    given = MappedColumn(source=source, columns={"c": pa.array(texts)}, count=len(texts))
    type_ = PropertyType(base=TYPES[name], nullable=True)
    _, violations = read_mapped(given, type_, timestamps=Timestamps(timestamps))
    return [text for place, text in enumerate(texts) if place not in violations]


@each_case("name", PROPERTIES)
def test_every_reading_accepts_some_texts_and_refuses_others(name: str) -> None:
    """Otherwise the comparisons below would say little."""
    readings, texts = PROPERTIES[name]
    for reading in readings:
        count = len(accepted(name, reading, "refuse"))
        assert count > 0
        assert count < len(texts) or name in ("text", "tags")


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, str | None]]]:
    """An entry of a mapping, and rows of texts: in half of the cases all of them fit."""
    properties: dict[str, Any] = {
        "key": {"concat": ["first", "second"], "separator": draw(st.sampled_from(["", "-", "⁂"]))}
    }
    timestamps = draw(st.sampled_from(["refuse", "round", "truncate"]))
    is_good = draw(st.booleans())
    pools: dict[str, list[str]] = {}
    for name, (readings, texts) in PROPERTIES.items():
        reading = draw(st.sampled_from(readings))
        properties[name] = {"column": f"c.{name}", **reading}
        pools[f"c.{name}"] = accepted(name, reading, timestamps) if is_good else texts
    rows = [
        {"first": f"k{number}", "second": draw(st.sampled_from(["a", "b"]))}
        | {name: draw(st.none() | st.sampled_from(pool)) for name, pool in pools.items()}
        for number in range(draw(st.integers(1, 4)))
    ]
    return {"columns": {}, "properties": properties, "timestamps": timestamps}, rows


def outcome(graph: Graph, lines_before: int = 0, **given: Any) -> Any:
    """The rows that a load gives, or what it says about bad records."""
    try:
        graph.load(mode="overwrite", **given)
    except LoadRejectedError as refused:
        return sorted(
            ((item.line or 0) - lines_before, item.field, item.value, item.message)
            for item in refused.report.examples
        )
    return rows_of(graph, "node:Thing")


def nested(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, with the columns `c.…` as members of a struct."""
    inner = [
        {name.removeprefix("c."): row[name] for name in row if name.startswith("c.")}
        for row in rows
    ]
    return [
        {"first": row["first"], "second": row["second"], "c": members}
        for row, members in zip(rows, inner, strict=True)
    ]


def tables(rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
    """Rows as columns, flat and with a struct."""
    texts = [(name, pa.utf8()) for name in rows[0]]
    members = pa.struct([(name, pa.utf8()) for name in PROPERTIES])
    schema = pa.schema([("first", pa.utf8()), ("second", pa.utf8()), ("c", members)])
    return pa.Table.from_pylist(rows, pa.schema(texts)), pa.Table.from_pylist(nested(rows), schema)


def write_files(folder: Path, rows: list[dict[str, Any]]) -> dict[str, int]:
    """Files of every format, and how many lines of each come before its first record."""
    flat, deep = tables(rows)
    with (folder / "flat.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (folder / "flat.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "deep.json").write_text(json.dumps(nested(rows)), encoding="utf-8")
    pq.write_table(flat, folder / "flat.parquet")
    pq.write_table(deep, folder / "deep.parquet", row_group_size=2)
    orc.write_table(deep, folder / "deep.orc")
    return {
        "flat.csv": 1,
        "flat.jsonl": 0,
        "deep.json": 0,
        "flat.parquet": 0,
        "deep.parquet": 0,
        "deep.orc": 0,
    }


@settings(max_examples=20)
@given(case=cases())
def test_files_and_frames_with_one_mapping_are_equal(
    graph: Graph, folder: Path, case: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    entry, rows = case
    flat, deep = tables(rows)
    mapping = {"nodes": {"Thing": entry}}
    expected = outcome(graph, frames={"Thing": flat}, mapping=mapping, engine="local")
    assert expected == outcome(graph, frames={"Thing": deep}, mapping=mapping, engine="local")
    for name, before in write_files(folder, rows).items():
        source = {"nodes": {"Thing": {"source": str(folder / name)} | entry}}
        assert outcome(graph, before, mapping=source, engine="local") == expected, name


ROWS = [
    {"first": str(n), "second": "a"}
    | {f"c.{name}": [*texts, None][n % (len(texts) + 1)] for name, (_, texts) in PROPERTIES.items()}
    for n in range(12)
]


def test_spark_reads_a_mapping_as_this_process_does(
    graph: Graph, folder: Path, spark: SparkSession
) -> None:
    """Good rows give equal graphs, and bad ones equal reports, from files and from frames."""
    properties = {
        name: {"column": f"c.{name}", **readings[0]} for name, (readings, _) in PROPERTIES.items()
    }
    properties["key"] = {"concat": ["first", "second"]}
    entry = {"columns": {}, "properties": properties, "timestamps": "round"}
    flat, _ = tables(ROWS)
    local = {"mapping": {"nodes": {"Thing": entry}}, "engine": "local"}
    report = outcome(graph, frames={"Thing": flat}, **local)
    bad = {item[0] for item in report}
    good = [row for number, row in enumerate(ROWS, start=1) if number not in bad]
    assert bad
    assert good
    mapping = {"nodes": {"Thing": entry}}
    write_files(folder, ROWS)
    frame = spark.read.parquet(str(folder / "deep.parquet")).coalesce(1)
    assert outcome(graph, frames={"Thing": frame}, mapping=mapping, spark=spark) == report
    expected = outcome(graph, frames={"Thing": tables(good)[0]}, **local)
    write_files(folder, good)
    frame = spark.read.parquet(str(folder / "deep.parquet"))
    assert outcome(graph, frames={"Thing": frame}, mapping=mapping, spark=spark) == expected
    source = {"nodes": {"Thing": {"source": str(folder / "flat.csv")} | entry}}
    assert outcome(graph, mapping=source, spark=spark) == expected
