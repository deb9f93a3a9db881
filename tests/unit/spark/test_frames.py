"""`spark_frame`: counts that read nothing, sizes that Spark plans by, tasks by rows."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import pickle
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from omnigraph import Graph, spark_frame
from omnigraph.commit.targets import open_pin
from omnigraph.errors import BadRequestError, InternalError, NotFoundError, StorageError
from omnigraph.pipeline import keys
from omnigraph.pipeline.keys import Joins, cut_scans, key_scans, scan_keys, text_key, total_rows
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.data_source import batch_schema, spare_collections, spark_schema, spark_type, to_spark
from omnigraph.spark.joins import SparkJoins
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.datasets import partitions
from omnigraph.storage.datasets.partitions import (
    TableAddress,
    check_condition,
    group_fragments,
    list_fragment_groups,
    scan_fragments,
    scan_schema,
    table_address,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.location import parse_location

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


# ---- Batches of a scan in Spark's types: the ends of every range, nulls, slices; no JVM runs here


def converted(column: pa.Array) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    wanted = batch_schema(spark_schema(batch.schema))
    result = to_spark(batch, wanted)
    assert result.schema.equals(wanted)
    return result.column(0)


def test_unsigned_integers_keep_their_largest_values() -> None:
    assert converted(pa.array([0, 2**32 - 1, None], pa.uint32())).to_pylist() == [0, 2**32 - 1, None]
    assert converted(pa.array([0, 2**64 - 1, None], pa.uint64())).to_pylist() == [Decimal(0), Decimal(2**64 - 1), None]
    lists = converted(pa.array([[2**64 - 1, None], None, []], pa.list_(pa.uint64())))
    assert lists.to_pylist() == [[Decimal(2**64 - 1), None], None, []]


def test_a_moment_keeps_its_time_of_day() -> None:
    milliseconds = pa.array([-1, 0, 1_777_638_896_789, None], pa.int64()).cast(pa.timestamp("ms"))
    stored = pa.array([-1, 0, 1_777_638_896_789, None], pa.int64()).view(pa.date64())
    assert converted(stored).cast(pa.timestamp("us")).cast(pa.timestamp("ms")) == milliseconds
    offsets = pa.array([0, 2, 2, 4], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, stored)
    result = converted(lists.slice(2))
    assert result.to_pylist()[0][0] == dt.datetime(2026, 5, 1, 12, 34, 56, 789000, dt.UTC)
    assert result.to_pylist()[0][1] is None


def test_a_vector_becomes_an_array_also_in_a_slice() -> None:
    vectors = pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.float32(), 2))
    assert converted(vectors).to_pylist() == [[1, 2], None, [3, 4], [5, 6]]
    assert converted(vectors.slice(1, 2)).to_pylist() == [None, [3, 4]]


def test_large_texts_and_bytes_become_plain() -> None:
    assert converted(pa.array(["a", None], pa.large_string())).to_pylist() == ["a", None]
    assert converted(pa.array([b"a", None], pa.large_binary())).to_pylist() == [b"a", None]


def test_a_type_that_no_table_has_is_an_error() -> None:
    with pytest.raises(InternalError, match="has no Spark type"):
        spark_type(pa.duration("s"))


# ---- Tables in parts: every row is in exactly one part, and tasks read the pinned state


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five fragments of two rows each; one row of the second is deleted, and a sixth came later."""
    uri = str(tmp_path / "nodes" / "t")
    for number in range(5):
        rows = pa.table({"id": [f"{number}a", f"{number}b"], "n": [number, number + 100]})
        lance.write_dataset(rows, uri, mode="append" if number else "create")
    dataset = lance.dataset(uri)
    dataset.delete("id = '1b'")
    pinned = lance.dataset(uri).version
    lance.write_dataset(pa.table({"id": ["late"], "n": [7]}), uri, mode="append")
    return TableStore(parse_location(tmp_path)).open("nodes/t", version=pinned)


def ids_of(table: Table, group_rows: int, where: str | None = None) -> list[str]:
    address = pickle.loads(pickle.dumps(table_address(table)))
    return [
        text
        for group in list_fragment_groups(table, group_rows)
        for batch in scan_fragments(address, group.fragment_ids, ["id"], where)
        for text in batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("group_rows", [1, 3, 4, 1000])
def test_all_groups_together_are_the_pinned_table(table: Table, group_rows: int) -> None:
    expected = ["0a", "0b", "1a", "2a", "2b", "3a", "3b", "4a", "4b"]
    assert sorted(ids_of(table, group_rows)) == expected
    counts = [group.row_count for group in list_fragment_groups(table, group_rows)]
    assert sum(counts) == table.row_count


def test_a_condition_is_evaluated_by_the_scan(table: Table) -> None:
    assert sorted(ids_of(table, 3, "n >= 102")) == ["2b", "3b", "4b"]


def test_columns_of_a_scan(table: Table) -> None:
    assert scan_schema(table).names == ["id", "n"]
    assert scan_schema(table, ["n", "id"]).names == ["n", "id"]
    with pytest.raises(BadRequestError, match="there is no column 'x'; columns are id, n"):
        scan_schema(table, ["x"])


def test_a_wrong_condition_is_found_before_any_task(table: Table) -> None:
    check_condition(table, "n > 1 AND id IS NOT NULL")
    for text in ("x > 1", "n >", "n"):
        with pytest.raises(BadRequestError, match="is wrong"):
            check_condition(table, text)


def test_a_version_or_fragment_that_is_gone_is_a_storage_error(table: Table) -> None:
    address = table_address(table)
    with pytest.raises(StorageError):
        list(scan_fragments(TableAddress(uri=address.uri, version=99), [0], ["id"]))
    with pytest.raises(StorageError, match="no fragment 77"):
        list(scan_fragments(address, [77], ["id"]))


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60))
def test_groups_hold_every_row_once_and_are_not_larger_than_needed(counts: list[int], group_rows: int) -> None:
    groups = group_fragments(enumerate(counts), group_rows)
    ids = [number for group in groups for number in group.fragment_ids]
    assert ids == [number for number, count in enumerate(counts) if count]
    for group in groups:
        assert group.row_count == sum(counts[number] for number in group.fragment_ids)
        assert group.row_count <= group_rows or len(group.fragment_ids) == 1
    for left, right in itertools.pairwise(groups):
        assert left.row_count + counts[right.fragment_ids[0]] > group_rows


# ---- How Spark is told to join: never by sending a side to every executor of which only the data knows the size


JOIN_PLANS_SCHEMA = "node Note { key: String @key  text: String? }"
FRAMES = ("repeated_hashes", "repeated_keys", "common_hashes", "common_keys", "absent_keys")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    graph = Graph.init(tmp_path_factory.mktemp("plans") / "g.omni", JOIN_PLANS_SCHEMA)
    lines = tmp_path_factory.mktemp("data") / "notes.jsonl"
    lines.write_text("\n".join(f'{{"type": "Note", "data": {{"key": "{n}"}}}}' for n in range(40)), encoding="utf-8")
    graph.load(lines, mode="append", engine="local")
    table = open_pin(graph._core.environment.tables, graph.snapshot().pins["node:Note"])
    return key_scans(table, None, text_key("id"))


def join_plan(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def frames_of(joins, scans):
    for name in FRAMES:
        sides = [scans] if name.startswith("repeated") else [scans, scans]
        yield name, getattr(joins, name)(*sides)
    yield "keys_outside", joins.keys_outside(scans, scans, 1, 2, ["more"])
    yield "repeated_keys with owners", joins.repeated_keys(scans, "id")
    yield "keys_of_others", joins.keys_of_others(scans, scans, "id")
    yield "named_keys", joins.named_keys(scans, ["1", "2"])


def test_no_side_of_unknown_size_is_broadcast(spark, scans):
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0, small_ids=0, broadcast_keys=0)
    for name, frame in frames_of(joins, scans):
        plan = join_plan(frame)
        assert "BroadcastExchange" not in plan, name
        assert "BroadcastHashJoin" not in plan, name
        assert "CartesianProduct" not in plan, name


def test_a_side_that_is_counted_and_small_is_broadcast(spark, scans):
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0, small_ids=0)
    plans = {name: join_plan(frame) for name, frame in frames_of(joins, scans)}
    for name in ("common_hashes", "common_keys", "keys_of_others", "absent_keys", "named_keys"):
        assert plans[name].count("BroadcastExchange") == 1, name


def test_keys_are_counted_before_they_are_shuffled(spark, scans, monkeypatch):
    """So that a million rows with one key cross the network as one row per task."""
    monkeypatch.setattr(keys, "_LEAST_TASK_ROWS", 1)
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0, small_ids=0, broadcast_keys=0)
    for name, frame in frames_of(joins, scans):
        plan = join_plan(frame)
        # Spark would move them below the counting.
        assert "LeftAnti" not in plan, name
        assert "LeftSemi" not in plan, name
        partial = "partial_" in plan or plan.count("HashAggregate") >= 2
        assert partial, plan
        assert plan.rindex("HashAggregate") > plan.index("Exchange hashpartitioning"), plan


@pytest.mark.parametrize("tasks", [1, 3, 7, 64])
def test_scans_are_cut_into_equal_windows_that_hold_every_row_once(scans, monkeypatch, tasks):
    monkeypatch.setattr(keys, "_LEAST_TASK_ROWS", 1)
    cut = cut_scans(scans, tasks)
    assert len(cut) == min(tasks, 40)
    assert total_rows(cut) == 40
    read = [key for scan in cut for table in scan_keys(scan) for key in table["key"].to_pylist()]
    assert sorted(read) == sorted(str(n) for n in range(40))
    assert max(scan.rows for scan in cut) - min(scan.rows for scan in cut) <= -(-40 // tasks)


def test_many_given_keys_are_not_held_by_this_process(spark, scans, monkeypatch):
    """A merge that only deletes edges touches no row, and names all sources that lost one."""
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=3)
    monkeypatch.setattr(Joins, "outside", None)
    found = joins.outside(scans, [], 2, None, [str(n) for n in range(4)])
    assert found.total == 4
