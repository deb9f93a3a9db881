"""`spark_frame`: counts that read nothing, sizes that Spark plans by, tasks by rows."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from omnigraph import Graph, spark_frame
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.spark.data_source import spare_collections
from omnigraph.storage.datasets import partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
node Paper {
    doi: String @key
    year: I32
    vec: Vector(64)
}
node Empty {
    name: String @key
}
"""
ROWS = 500
VECTOR_BYTES = 64 * 4


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(tmp_path_factory.mktemp("frames") / "g.omni", SCHEMA)
    fill(graph)
    return graph


def fill(graph: Graph) -> None:
    papers = pa.table(
        {
            "doi": [f"d{number:03}" for number in range(ROWS)],
            "year": pa.array(range(ROWS), pa.int32()),
            "vec": [[float(number)] * 64 for number in range(ROWS)],
        }
    )
    graph.load(frames={"Paper": papers}, mode="append", engine="local")


def size_of(frame: DataFrame) -> int:
    """What Spark takes for the size of a frame."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().sparkPlan().toString())


def test_counting_rows_without_columns_reads_no_file(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    fill(graph)
    rows = spark_frame(spark, graph.uri, "Paper", columns=[])
    with_column = spark_frame(spark, graph.uri, "Paper", columns=["year"])
    for file in tmp_path.glob("g.omni/nodes/*/data/*.lance"):
        file.unlink()
    assert rows.columns == []
    assert rows.count() == ROWS
    assert "Arrow" not in plan_of(rows), "no Python runs"
    with pytest.raises(PySparkException, match="scanning version"):
        with_column.count()


@pytest.mark.parametrize(("where", "rows"), [("year < 40", 40), ("year > 9999", 0)])
def test_counting_matching_rows(spark: SparkSession, graph: Graph, where: str, rows: int) -> None:
    frame = spark_frame(spark, graph.uri, "Paper", columns=[], where=where)
    assert (frame.columns, frame.count()) == ([], rows)


def test_counting_an_empty_type(spark: SparkSession, graph: Graph) -> None:
    for columns in ([], ["name"], None):
        assert spark_frame(spark, graph.uri, "Empty", columns=columns).count() == 0
    assert spark_frame(spark, graph.uri, "Empty", where="name = 'x'").count() == 0


def test_a_frame_has_the_columns_in_their_order(spark: SparkSession, graph: Graph) -> None:
    frame = spark_frame(spark, graph.uri, "Paper", columns=["year", "doi"], where="year = 7")
    assert [tuple(row) for row in frame.collect()] == [(7, "d007")]
    assert [item.nullable for item in frame.schema] == [False, False]


def test_spark_knows_the_size_of_a_frame(spark: SparkSession, graph: Graph) -> None:
    vectors = size_of(spark_frame(spark, graph.uri, "Paper", columns=["vec"]))
    assert ROWS * VECTOR_BYTES * 0.9 < vectors < ROWS * VECTOR_BYTES * 1.2
    years = size_of(spark_frame(spark, graph.uri, "Paper", columns=["year"]))
    assert years < ROWS * 8


def test_joins_broadcast_the_small_side_and_only_that(spark: SparkSession, graph: Graph) -> None:
    numbers = spark.range(0, 10**9).withColumnRenamed("id", "year")
    limit = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(limit)
    spark.conf.set(limit, ROWS * VECTOR_BYTES // 2)
    try:
        small = spark_frame(spark, graph.uri, "Paper", columns=["year"])
        large = spark_frame(spark, graph.uri, "Paper", columns=["year", "vec"])
        assert "BroadcastHashJoin" in plan_of(numbers.join(small, "year"))
        assert "SortMergeJoin" in plan_of(numbers.join(large, "year"))
    finally:
        spark.conf.set(limit, before)


@pytest.mark.parametrize("where", [None, "year >= 100"])
def test_tasks_are_cut_by_rows(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    monkeypatch.setattr(partitions, "PART_BYTES", ROWS * (VECTOR_BYTES + 32) // 3)
    frame = spark_frame(spark, graph.uri, "Paper", columns=["vec"], where=where)
    # Conditions are evaluated over whole fragments, and a load of this size writes one.
    assert frame.rdd.getNumPartitions() == (4 if where is None else 1)
    found = sorted(row["vec"][0] for row in frame.collect())
    assert found == [float(number) for number in range(100 if where else 0, ROWS)]


def test_no_context_is_needed(spark: SparkSession, graph: Graph) -> None:
    """A session of Spark Connect has none."""

    class Connected:
        def __getattr__(self, name: str) -> Any:
            assert name not in ("sparkContext", "_jsparkSession", "_sc")
            return getattr(spark, name)

    session: Any = Connected()
    assert spark_frame(session, graph.uri, "Paper", columns=["doi"]).count() == ROWS
    assert spark_frame(session, graph.uri, "Paper", columns=[]).count() == ROWS


def test_mistakes_are_typed_errors_of_the_call(spark: SparkSession, graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="there is no type Nothing"):
        spark_frame(spark, graph.uri, "Nothing")
    with pytest.raises(BadRequestError, match="there is no column 'nope'"):
        spark_frame(spark, graph.uri, "Paper", columns=["nope"])
    with pytest.raises(BadRequestError, match="names a column twice"):
        spark_frame(spark, graph.uri, "Paper", columns=["doi", "doi"])
    with pytest.raises(BadRequestError, match="is wrong"):
        spark_frame(spark, graph.uri, "Paper", where="nope > 1")
    with pytest.raises(BadRequestError, match="one of snapshot, version"):
        spark_frame(spark, graph.uri, "Paper", snapshot="x", version=1)


def frozen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        spare_collections()
        yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})


def test_workers_leave_what_they_loaded_out_of_collections(spark: SparkSession) -> None:
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(frozen, "objects long").collect()
    assert row["objects"] > 10_000
    before = gc.get_freeze_count()
    spare_collections()
    assert gc.get_freeze_count() == before, "this process is not a worker"
