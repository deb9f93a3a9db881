"""How Spark is told to join: never by sending a side to every executor of which only the data knows the size."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.commit.targets import open_pin
from omnigraph.pipeline import keys
from omnigraph.pipeline.keys import cut_scans, key_scans, scan_keys, text_key, total_rows
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.joins import SparkJoins
from omnigraph.spark.workers import SparkWorkers

SCHEMA = "node Note { key: String @key  text: String? }"
FRAMES = ("repeated_hashes", "repeated_keys", "common_hashes", "common_keys", "absent_keys")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    graph = Graph.init(tmp_path_factory.mktemp("plans") / "g.omni", SCHEMA)
    lines = tmp_path_factory.mktemp("data") / "notes.jsonl"
    lines.write_text(
        "\n".join(f'{{"type": "Note", "data": {{"key": "{n}"}}}}' for n in range(40)),
        encoding="utf-8",
    )
    graph.load(lines, mode="append", engine="local")
    table = open_pin(graph._environment.tables, graph.snapshot().pins["node:Note"])
    return key_scans(table, None, text_key("id"))


def plan_of(frame) -> str:
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
        plan = plan_of(frame)
        assert "BroadcastExchange" not in plan, name
        assert "BroadcastHashJoin" not in plan, name
        assert "CartesianProduct" not in plan, name


def test_a_side_that_is_counted_and_small_is_broadcast(spark, scans):
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0, small_ids=0)
    plans = {name: plan_of(frame) for name, frame in frames_of(joins, scans)}
    for name in ("common_hashes", "common_keys", "keys_of_others", "absent_keys", "named_keys"):
        assert plans[name].count("BroadcastExchange") == 1, name


def test_keys_are_counted_before_they_are_shuffled(spark, scans, monkeypatch):
    """So that a million rows with one key cross the network as one row per task."""
    monkeypatch.setattr(keys, "_LEAST_TASK_ROWS", 1)
    joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0, small_ids=0, broadcast_keys=0)
    for name, frame in frames_of(joins, scans):
        plan = plan_of(frame)
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
    monkeypatch.setattr(joins._local, "outside", None)
    found = joins.outside(scans, [], 2, None, [str(n) for n in range(4)])
    assert found.total == 4
