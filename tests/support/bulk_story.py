"""Everything that moves data in bulk, told once for every kind of session: classic ones and those of Spark Connect."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
node Paper {
    doi: String @key
    title: String
    year: I32?
    mail: String? @unique
    vec: Vector(4)? @embed("title")
}
edge Cites: Paper -> Paper @card(0..5) { context: String? }
"""
PAPERS = 12


def bulk_story(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What every operation found; equal for all sessions."""
    from omnigraph import Graph, OmniGraphDataSource
    from omnigraph.errors import LoadRejectedError, QueryCancelledError
    from omnigraph.pipeline.export import job
    from omnigraph.spark import joins, worker_choice

    report: dict[str, Any] = {}
    lines = folder / "papers.jsonl"
    write(lines, [paper(n) for n in range(PAPERS)] + [cites(n, n - 1) for n in range(1, PAPERS)])
    with pytest.MonkeyPatch.context() as patch, Graph.init(folder / "papers.omni", SCHEMA) as graph:
        patch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
        patch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")
        # Little data goes the way of much data.
        sizes = {"small_rows": 0, "small_ids": 0, "broadcast_keys": 0}
        patch.setattr(joins, "SparkJoins", partial(joins.SparkJoins, **sizes))
        patch.setattr(worker_choice, "SMALL_ROWS", 0)
        patch.setattr(job, "_MIN_TASK_ROWS", 1)
        patch.setattr(job, "_MAX_TASK_ROWS", 1)
        report["appended"] = dict(graph.load(lines, mode="append", spark=spark).rows)
        frame = spark.createDataFrame(
            [("d0", "changed", 1999), ("new", "new", None)], "doi string, title string, year int"
        )
        merged = graph.load(frames={"Paper": frame}, mode="merge", spark=spark)
        report["merged"] = dict(merged.rows)
        bad = folder / "bad.jsonl"
        write(bad, [cites(0, 1), {"edge": "Cites", "from": "d0", "to": "nowhere"}])
        with pytest.raises(LoadRejectedError) as refused:
            graph.load(bad, mode="append", spark=spark)
        report["refused"] = refused.value.message.replace(str(folder), "")

        stop = Event()
        stop.set()
        before = files(folder)
        with pytest.raises(QueryCancelledError):
            graph.load(lines, mode="merge", spark=spark, cancel=stop)
        report["left"] = sorted(files(folder) - before)

        graph.create_branch("review")
        edits = folder / "edits.jsonl"
        write(edits, [paper(n, title="reviewed") for n in range(3)] + [paper(PAPERS)])
        graph.load(edits, mode="merge", branch="review", spark=spark)
        with_spark = {"engine": "spark", "spark": spark}
        with graph.diff("main", "review", **with_spark) as diff:
            report["diff"] = [(str(one.op), one.type_name, one.id) for one in diff]
        outcome = graph.merge("review", into="main", **with_spark)
        report["merge"] = [change.to_json() for change in outcome.changes]
        report["embedded"] = graph.embed(**with_spark).embedded
        graph.optimize(**with_spark)

        graph.export(folder / "all.jsonl", **with_spark)
        graph.export(folder / "local.jsonl", engine="local")
        graph.export(folder / "tables", format="parquet", **with_spark)
        report["same_lines"] = (folder / "all.jsonl").read_text("utf-8") == (folder / "local.jsonl").read_text("utf-8")
        report["titles"] = titles(folder / "all.jsonl")
        report["parquet"] = pq.read_table(folder / "tables" / "nodes" / "Paper").num_rows

        spark.dataSource.register(OmniGraphDataSource)
        papers = spark.read.format("omnigraph").option("type", "Paper").load(graph.uri)
        report["frame"] = [papers.count(), papers.where("year >= 2010").count()]
    report["rubbish"] = sorted(path.name for path in (folder / "papers.omni" / "__staging").glob("*"))
    return report


def paper(number: int, title: str | None = None) -> dict[str, object]:
    data = {"doi": f"d{number}", "title": title or f"title {number}", "year": 2000 + number}
    return {"type": "Paper", "data": data | {"mail": f"{number}@example.org"}}


def cites(one: int, other: int) -> dict[str, object]:
    return {"edge": "Cites", "from": f"d{one}", "to": f"d{other}"}


def write(path: Path, records: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def files(folder: Path) -> set[str]:
    """Data files of the graph."""
    root = folder / "papers.omni"
    return {str(path.relative_to(root)) for path in root.rglob("*.lance") if path.is_file()}


def titles(lines: Path) -> dict[str, str]:
    data = [json.loads(line).get("data", {}) for line in lines.read_text("utf-8").splitlines()]
    found = {one["doi"]: one["title"] for one in data if "doi" in one}
    return {doi: found[doi] for doi in ("d0", "d1", "d5", "new")}
