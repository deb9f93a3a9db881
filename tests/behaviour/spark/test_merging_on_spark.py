"""A merge of many rows on executors: replaced rows keep their ids beside the data, and answers stay small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.core.ids import TableKey
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.exchange import KeyFiles
from omnigraph.pipeline.upsert import ExchangeMatcher, LocalMatcher, Upserted
from omnigraph.pipeline.workers import LocalWorkers, Silent, detail, operation
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.datasets.fragments import stage_replacement, write_rows
from omnigraph.storage.datasets.staged import close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table
from support.tables import answer_folder

SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
KNOWS = TableKey("edge:Knows")
PEOPLE, EDGES = 50, 3_000


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    people = [f"p{number}" for number in range(PEOPLE)]
    for begin in (0, EDGES // 2):
        numbers = range(begin, begin + EDGES // 2)
        frames = {"Person": pa.table({"name": people})} if not begin else {}
        frames["Knows"] = pa.table(
            {
                "id": [f"e{number}" for number in numbers],
                "from": [people[number % PEOPLE] for number in numbers],
                "to": [people[0]] * len(numbers),
                "since": pa.array([0] * len(numbers), pa.int32()),
            }
        )
        graph.load(frames=frames, mode="append", engine="local")
    return graph


def new_edges(table: Table) -> list[str]:
    """Two fragments of a merge: most edges in no order from other sources, some twice, and new ones."""
    numbers = np.random.default_rng(3).permutation(EDGES)[:2_500].tolist()
    numbers = [*numbers[:10], *numbers, *range(EDGES, EDGES + 100)]
    written = []
    for begin in range(0, len(numbers), 2_000):
        some = numbers[begin : begin + 2_000]
        rows = pa.table(
            {
                "id": [f"e{number}" for number in some],
                "src": ["p1"] * len(some),
                "dst": ["p2"] * len(some),
                "since": pa.array([begin + place for place in range(len(some))], pa.int32()),
            },
            schema=table.schema,
        )
        written += write_rows(table, rows.to_batches())
    return written


def made(base: Table, merged: Upserted) -> list[dict[str, Any]]:
    """The table after a merge; new rows get their ids in the order of their fragments."""
    private = open_private(stage_replacement(base, merged.fragments, merged.shrunk))
    columns = ["id", "src", "since", "_rowid", "_row_created_at_version"]
    rows = private.table._dataset.to_table(columns=columns).sort_by("id").to_pylist()
    for row in rows:
        if int(row["id"][1:]) >= EDGES:
            del row["_rowid"]
    return rows


def test_many_rows_are_replaced_as_this_process_does(
    graph: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    base = graph._open(graph.snapshot().pins[KNOWS])
    before = base._dataset.to_table(columns=["id", "_rowid"])
    fragments = new_edges(base)
    workers = SparkWorkers(spark, Silent())
    answers: list[str] = []
    run_batches = workers.run_batches

    def listened(*given: Any) -> list[Any]:
        found = run_batches(*given)
        answers.extend(map(json.dumps, found))
        return found

    monkeypatch.setattr(workers, "run_batches", listened)
    seen = []
    with (
        answer_folder(graph._environment.location) as folder,
        operation("load", graph.uri),
        detail("Knows"),
    ):
        for matcher in (
            LocalMatcher(LocalWorkers(Silent())),
            ExchangeMatcher(workers, small_rows=0),
        ):
            private = open_private(stage_fragments(base, fragments))
            merged = matcher.upsert(base, private, fragments, with_sources=True, ledgers=folder)
            close_private(private, graph._environment.objects)
            sources = sorted(set(merged.old_sources))
            seen.append((made(base, merged), merged.superseded, sources, len(merged.fragments)))
        assert isinstance(merged.old_sources, KeyFiles)
    assert seen[0] == seen[1]
    rows, superseded, sources, _ = seen[0]
    assert superseded == 10
    assert sources == sorted(f"p{number}" for number in range(PEOPLE))
    kept = {row["id"]: row["_rowid"] for row in rows if "_rowid" in row}
    assert kept == dict(zip(before["id"].to_pylist(), before["_rowid"].to_pylist(), strict=True))
    hidden = [text for text in merged.fragments if json.loads(text)["row_id_meta"] == "Column"]
    assert hidden, "the first fragment replaces many"
    assert answers
    assert max(map(len, answers)) < 10_000
    told = "omnigraph load g.omni: {} (Knows)"
    stages = {"match ids", "replace rows"}
    assert {told.format(stage) for stage in stages} <= descriptions(spark)


def descriptions(spark: Any) -> set[str]:
    """What Spark shows of the jobs of a session."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(place).description() for place in range(jobs.size()))
    return {text.get() for text in found if text.isDefined()}
