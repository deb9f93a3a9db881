"""Graphs as DataFrames by both doors: every type of value, every way to name a snapshot, rows that never change."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from omnigraph import Graph, OmniGraphDataSource
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.spark import data_source, spark_frame
from omnigraph.spark.data_source import ReadRequest, find_table
from support.subtests import each_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]

SCHEMA = """
node Paper { doi: String @key  year: I32? }
node Both { name: String @key }
node Empty { name: String @key }
edge Cites: Paper -> Paper { weight: F64? }
edge Both: Paper -> Paper
"""

VALUES = """
node Thing {
    name: String @key  flag: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?  day: Date?
    at: DateTime?  stage: enum(draft, final)?  order: I32?  tags: [String]?  counts: [U64]?
    moments: [DateTime]?  vec: Vector(3)?  data: Blob?
}
"""


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(OmniGraphDataSource)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Three papers on main; a fourth on branch `review`; the third was added by the last commit of main."""
    graph = Graph.init(tmp_path_factory.mktemp("papers") / "g.omni", SCHEMA)
    add(graph, a=2000, b=2010)
    graph.create_branch("review")
    add(graph, branch="review", d=2030)
    add(graph, c=2020)
    graph.mutate('query q() { insert Cites { from: "a", to: "b", weight: 0.5 } }')
    return graph


def add(graph: Graph, branch: str = "main", **years: int) -> Any:
    inserts = " ".join(f'insert Paper {{ doi: "{k}", year: {y} }}' for k, y in years.items())
    return graph.mutate(f"query q() {{ {inserts} }}", branch=branch)


def by_source(
    spark: SparkSession, graph: Graph, kind: str = "Paper", columns: Sequence[str] | None = None, **options: object
) -> DataFrame:
    reader = spark.read.format("omnigraph").option("type", kind)
    if columns is not None:
        reader = reader.option("columns", ", ".join(columns))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(graph.uri)


def by_function(spark: SparkSession, graph: Graph, kind: str = "Paper", **options: Any) -> DataFrame:
    return spark_frame(spark, graph.uri, kind, **options)


@pytest.fixture(params=[by_source, by_function])
def read(request: pytest.FixtureRequest, spark: SparkSession) -> Read:
    """Both ways to read a type; they have to agree in everything."""
    return partial(request.param, spark)


def dois(frame: DataFrame) -> list[str]:
    return sorted(row["doi"] for row in frame.collect())


def test_every_type_of_value_keeps_its_value(read: Read, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", VALUES)
    graph.mutate(
        """query q($i32: I32, $i64: I64, $u64: U64, $c: [U64], $m: [DateTime], $d: Blob, $v: Vector(3)) {
            insert Thing { name: "full", flag: true, i32: $i32, i64: $i64,
                u32: 4294967295, u64: $u64, f32: 0.5, f64: 0.1, day: date("1969-12-31"),
                at: datetime("2026-05-01T12:34:56.789Z"), stage: "draft", order: 7, tags: ["x", ""],
                counts: $c, moments: $m, vec: $v, data: $d }
            insert Thing { name: "none" }
        }""",
        {"i32": -(2**31), "i64": -(2**63), "u64": 2**63 - 1, "c": [0, 2**63 - 1], "d": "base64:AAH/"}
        | {"m": ["1969-12-31T23:59:59.999Z", "2026-01-01T00:00:00Z"], "v": [1.0, 0.25, -3.0]},
    )
    # The type of each column, and its value in the full row.
    expected = {
        "id": ("string", "full"),
        "name": ("string", "full"),
        "flag": ("boolean", True),
        "i32": ("int", -(2**31)),
        "i64": ("bigint", -(2**63)),
        "u32": ("bigint", 2**32 - 1),
        "u64": ("decimal(20,0)", Decimal(2**63 - 1)),
        "f32": ("float", 0.5),
        "f64": ("double", 0.1),
        "day": ("date", dt.date(1969, 12, 31)),
        "at": ("timestamp", "2026-05-01 12:34:56.789"),
        "stage": ("string", "draft"),
        "order": ("int", 7),
        "tags": ("array<string>", ["x", ""]),
        "counts": ("array<decimal(20,0)>", [Decimal(0), Decimal(2**63 - 1)]),
        "moments": ("array<timestamp>", ["1969-12-31 23:59:59.999", "2026-01-01 00:00:00"]),
        "vec": ("array<float>", [1.0, 0.25, -3.0]),
        "data": ("binary", b"\x00\x01\xff"),
    }
    frame = read(graph, "Thing")
    assert {item.name: item.dataType.simpleString() for item in frame.schema} == {
        name: kind for name, (kind, _) in expected.items()
    }
    # Moments as text: collecting them would turn them into the local time of this machine.
    shown = frame.withColumns({"at": frame["at"].cast("string"), "moments": frame["moments"].cast("array<string>")})
    none, full = sorted((row.asDict() for row in shown.collect()), key=lambda row: row["flag"] or 0)
    assert {name for name, value in none.items() if value is not None} == {"id", "name"}
    assert full == {name: value for name, (_, value) in expected.items()}


def test_a_moment_is_the_same_in_every_time_zone(spark: SparkSession, read: Read, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", VALUES)
    graph.mutate('query q() { insert Thing { name: "x", at: datetime("2026-05-01T12:34:56.789Z") } }')
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        (row,) = read(graph, "Thing", columns=["at"]).selectExpr("unix_millis(at) as at").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert row["at"] == dt.datetime(2026, 5, 1, 12, 34, 56, 789000, dt.UTC).timestamp() * 1000


def test_nodes_and_edges_have_the_columns_of_their_tables(read: Read, papers: Graph) -> None:
    assert read(papers).columns == ["id", "doi", "year"]
    (edge,) = read(papers, "edge:Cites").collect()
    assert (edge["src"], edge["dst"], edge["weight"]) == ("a", "b", 0.5)


def test_branch_snapshot_and_version(read: Read, papers: Graph) -> None:
    assert dois(read(papers)) == ["a", "b", "c"]
    assert dois(read(papers, branch="review")) == ["a", "b", "d"]
    oldest_first = papers.commits()[::-1]
    assert dois(read(papers, snapshot=oldest_first[0].commit_id)) == []
    assert dois(read(papers, snapshot=oldest_first[1].commit_id)) == ["a", "b"]
    assert dois(read(papers, version=oldest_first[1].graph_version)) == ["a", "b"]


def test_columns_and_where_reach_the_scan(read: Read, papers: Graph) -> None:
    frame = read(papers, columns=["year", "doi"], where="year >= 2010 AND doi <> 'c'")
    assert [tuple(row) for row in frame.collect()] == [(2010, "b")]
    assert read(papers, columns=["year"], where="doi = 'c'").collect()[0].asDict() == {"year": 2020}
    assert read(papers, where="year > 9999").count() == 0


def test_an_empty_table_has_columns_and_no_rows(read: Read, papers: Graph) -> None:
    frame = read(papers, "Empty")
    assert frame.columns == ["id", "name"]
    assert frame.collect() == []


def test_a_frame_stays_at_its_snapshot_while_the_head_moves(read: Read, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    add(graph, a=1)
    frame = read(graph)
    add(graph, b=2)
    graph.mutate('query q() { delete Paper where doi = "a" }')
    assert dois(frame) == dois(frame) == ["a"]
    assert dois(frame.union(frame)) == ["a", "a"]
    assert dois(read(graph)) == ["b"]


@pytest.mark.parametrize("where", [None, "year > 0"])
def test_a_frame_whose_version_was_cleaned_up_says_so(read: Read, tmp_path: Path, where: str | None) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    add(graph, a=1)
    frame = read(graph) if where is None else read(graph, where=where)
    for number in range(3):
        add(graph, **{f"b{number}": number})
    graph.cleanup(keep=2, confirm=True)
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    said = str(caught.value)
    assert "HistoricalVersionReclaimedError: version" in said
    assert "of node:Paper was cleaned up" in said


def test_a_frame_whose_files_are_lost_is_damaged(read: Read, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    add(graph, a=1)
    frame = read(graph)
    for file in (tmp_path / "g.omni").rglob("*.manifest"):
        if "nodes" in file.parts:
            file.unlink()
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert "HistoricalVersionReclaimedError" not in str(caught.value)
    assert "DamageError" in str(caught.value)


def test_a_source_with_a_schema_stays_at_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    add(graph, a=1)
    reader = spark.read.format("omnigraph").option("type", "Paper")
    frame = reader.schema("doi string").load(graph.uri)
    assert dois(frame) == ["a"], "Spark makes a source with a given schema at its first use"
    add(graph, b=2)
    assert dois(frame) == ["a"]


@pytest.mark.parametrize(("where", "rows"), [(None, 3), ("year > 2000", 2), ("year > 9999", 0)])
def test_an_empty_schema_counts_rows(spark: SparkSession, papers: Graph, where: str | None, rows: int) -> None:
    reader = spark.read.format("omnigraph").option("type", "Paper").schema(StructType([]))
    frame = (reader if where is None else reader.option("where", where)).load(papers.uri)
    assert (frame.columns, frame.count()) == ([], rows)


def test_many_fragments_are_read_once_each_by_few_tasks(read: Read, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    for number in range(12):
        add(graph, **{f"p{number:02}": number})
    graph.mutate('query q() { delete Paper where doi = "p03" }')
    frame = read(graph)
    assert frame.rdd.getNumPartitions() == 1
    assert dois(frame) == [f"p{number:02}" for number in range(12) if number != 3]


def test_filters_of_spark_do_not_stick_to_the_frame(read: Read, papers: Graph) -> None:
    frame = read(papers)
    assert dois(frame.filter("year > 2010")) == ["c"]
    assert dois(frame) == ["a", "b", "c"]
    assert dois(frame.filter("year > 2010").union(frame)) == ["a", "b", "c", "c"]
    joined = frame.filter("year < 2020").alias("x").join(frame.alias("y"), "doi")
    assert dois(joined) == ["a", "b"]


def test_a_join_with_a_file(spark: SparkSession, read: Read, papers: Graph, tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("doi,note\na,first\nc,third\nz,none\n", encoding="utf-8")
    notes = spark.read.csv(str(tmp_path / "notes.csv"), header=True)
    rows = read(papers).join(notes, "doi").select("doi", "year", "note").collect()
    assert sorted(map(tuple, rows)) == [("a", 2000, "first"), ("c", 2020, "third")]


def test_sql_sees_the_source(spark: SparkSession, papers: Graph) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW papers USING omnigraph "
        f"OPTIONS (path '{papers.uri}', type 'Paper', columns 'doi,year')"
    )
    assert spark.sql("SELECT max(year) AS y FROM papers").collect()[0]["y"] == 2020


@each_case(
    ("options", "said"),
    [
        ({"kind": "Nothing"}, "there is no type Nothing; types are edge:Both, edge:Cites"),
        ({"kind": "Both"}, "Both is a node and an edge type: say edge:Both or node:Both"),
        ({"kind": "Paper", "columns": "doi,nope"}, "there is no column 'nope'; columns are id, doi"),
        ({"kind": "Paper", "where": "nope > 1"}, "the condition 'nope > 1' is wrong"),
        ({"kind": "Paper", "where": "doi ="}, "the condition 'doi =' is wrong"),
        ({"kind": "Paper", "branch": "nope"}, "there is no branch `nope`"),
        ({"kind": "Paper", "snapshot": "nope"}, "there is no commit nope"),
        ({"kind": "Paper", "version": "999"}, "not 999"),
    ],
    ids=lambda item: " ".join(map(str, item.values())) if isinstance(item, dict) else "",
)
def test_a_read_of_what_is_not_there_says_so_before_any_task(papers: Graph, options: dict[str, str], said: str) -> None:
    texts = {"path": papers.uri, "type": options["kind"]} | options
    del texts["kind"]
    with pytest.raises((BadRequestError, NotFoundError)) as caught:
        OmniGraphDataSource(texts).schema()
    assert said in caught.value.message


def test_an_error_of_the_source_reaches_the_caller_of_load(spark: SparkSession, papers: Graph) -> None:
    with pytest.raises(PySparkException, match="there is no type Nothing; types are"):
        by_source(spark, papers, "Nothing")


def test_a_schema_of_the_caller_has_to_fit(papers: Graph) -> None:
    source = OmniGraphDataSource({"path": papers.uri, "type": "Paper"})
    with pytest.raises(BadRequestError, match="asks for year bigint, the graph has int"):
        source.reader(StructType([StructField("year", LongType())]))
    with pytest.raises(BadRequestError, match="the graph has no such column"):
        source.reader(StructType([StructField("nope", StringType())]))


def test_the_source_does_not_write(spark: SparkSession, papers: Graph) -> None:
    frame = spark.createDataFrame([("x",)], "doi string")
    with pytest.raises(PySparkException, match=r"write with graph\.load"):
        frame.write.format("omnigraph").option("type", "Paper").mode("append").save(papers.uri)


def test_a_path_without_a_graph(tmp_path: Path) -> None:
    source = OmniGraphDataSource({"path": str(tmp_path / "none.omni"), "type": "Paper"})
    with pytest.raises(NotFoundError, match="there is no graph at"):
        source.schema()


def test_one_source_looks_at_the_catalog_once(papers: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = data_source.pin_read
    monkeypatch.setattr(data_source, "pin_read", lambda request: looks.append(1) or real(request))
    source = OmniGraphDataSource({"path": papers.uri, "type": "Paper"})
    reader = source.reader(source.schema())
    source.__getstate__()
    (part,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(part)) == 3
    assert looks == [1]


@each_case(
    ("options", "said"),
    [
        ({"type": "Paper"}, "name the graph"),
        ({"path": "g"}, "name the type"),
        ({"path": "g", "type": "P", "brunch": "x"}, "there is no option 'brunch'"),
        ({"path": "g", "type": "P", "version": "new"}, "version=new"),
        ({"path": "g", "type": "P", "version": "1", "snapshot": "x"}, "one of snapshot, version"),
        ({"path": "g", "type": "P", "branch": "b", "snapshot": "x"}, "give no branch"),
        ({"path": "g", "type": "P", "columns": "a,,b"}, "empty name"),
        ({"path": "g", "type": "P", "columns": "a,b,a"}, "names a column twice"),
    ],
)
def test_options_that_have_no_meaning(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        ReadRequest.from_options(options)


def test_names_of_types() -> None:
    known = ["node:Paper", "edge:Cites", "node:Cites"]
    assert find_table("Paper", known) == "node:Paper"
    assert find_table("edge:Cites", known) == "edge:Cites"
    with pytest.raises(NotFoundError):
        find_table("edge:Paper", known)
