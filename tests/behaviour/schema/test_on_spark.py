"""Schema changes on Spark, and Spark's own ways to read a graph whose schema changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph import OmniGraphDataSource
from omnigraph.errors import SchemaViolationsError
from omnigraph.graph.graph import Graph
from support.graphs import everything
from support.schema_changes import CITES, PAPER, PAPERS, apply, edited, no_trace, row_ids
from support.spark import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

EDITS = (
    ("year: I32? @index", 'born: I64 @index @rename_from("year")'),
    ("day: Date?", "day: Date? lang: String @range(born, 1900..2100) @unique(lang)"),
    ("edge Cites: Paper -> Paper", "edge Cites: Paper -> Paper @card(1..2)"),
)
FILL: dict[str, object] = {"Paper.born": 1900, "Paper.lang": 'concat(doi, "-", doi)'}


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark also does what is usually little enough for this process."""
    from omnigraph.spark import joins, worker_choice

    sizes = {"small_rows": 0, "small_ids": 0, "broadcast_keys": 0}
    monkeypatch.setattr(joins.SparkJoins.__init__, "__kwdefaults__", sizes)
    monkeypatch.setattr(worker_choice, "SMALL_ROWS", 0)


@pytest.mark.usefixtures("_large")
def test_both_engines_change_and_refuse_alike(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    other = Graph.open(shutil.copytree(graph.uri, tmp_path / "other"))
    strict = (("note: String?", "note: String @unique(src)"), EDITS[1], EDITS[0])
    reports = []
    for one, engine in ((graph, "local"), (other, "spark")):
        options: dict[str, Any] = {"spark": spark} if engine == "spark" else {}
        with no_trace(one, SchemaViolationsError) as caught:
            one.apply_schema(
                edited(PAPERS, *strict),
                backfill=FILL | {"Paper.born": 1800},
                engine=engine,
                **options,
            )
        reports.append((caught.value.report.totals, sorted(map(str, caught.value.report.examples))))
        one.apply_schema(edited(PAPERS, *EDITS), backfill=FILL, engine=engine, **options)
    assert reports[0] == reports[1]
    assert reports[0][0] == {
        "@range violation on Paper.born": 1,
        "@unique violation on Cites.src": 1,
    }
    assert everything(graph) == everything(other)
    for key in (PAPER, CITES):
        assert row_ids(graph, key) == row_ids(other, key)


def test_frames_and_exports_of_the_past_have_its_columns(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    spark.dataSource.register(OmniGraphDataSource)
    old, rows = graph.commits()[0].commit_id, everything(graph)[PAPER]
    before = tmp_path / "before.jsonl"
    graph.export(before, engine="local")
    apply(
        graph,
        EDITS[0],
        ("day: Date?", ""),
        ("score: F32?", "score: F64?"),
        backfill={"Paper.born": 1},
    )

    def frame(**options: str) -> Any:
        reader = spark.read.format("omnigraph").option("type", "Paper")
        return reader.options(**options).load(graph.uri)

    then, now = frame(snapshot=old), frame()
    assert {"year", "day"} < set(then.columns)
    assert {"born"} < set(now.columns) - {"year", "day"}
    years = {row["id"]: row["year"] for row in rows}
    assert {row["id"]: row["year"] for row in then.select("id", "year").collect()} == years
    born = {row["id"]: row["born"] for row in now.where("born > 2000").collect()}
    assert born == {name: year for name, year in years.items() if year and year > 2000}
    after = tmp_path / "after.jsonl"
    graph.export(after, snapshot=old, engine="spark", spark=spark)
    assert sorted(after.read_text().splitlines()) == sorted(before.read_text().splitlines())
    changed = graph.diff(old, "main", engine="spark", spark=spark)
    local = graph.diff(old, "main", engine="local")
    assert [item.to_json() for item in changed] == [item.to_json() for item in local]
    assert {item.id for item in local} == {row["id"] for row in rows}
