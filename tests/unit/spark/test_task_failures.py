"""Typed failures of tasks reach the driver as what they are, whatever the task gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph import Graph
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.errors import HistoricalVersionReclaimedError, StorageError, StorageFailure
from omnigraph.pipeline.keys import key_scans, text_key
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.joins import SparkJoins
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.location import RECLAIMED_MARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def busy_once(marks: str) -> dict[str, Any]:
    """A task whose store is busy on the first try."""
    mark = Path(marks) / "tried"
    if not mark.exists():
        mark.touch()
        raise StorageError("SlowDown", StorageFailure.TRANSIENT)
    return {"rows": 1}


def always_busy(marks: str) -> dict[str, Any]:
    with (Path(marks) / "tries").open("a", encoding="utf-8") as file:
        file.write("x")
    raise StorageError("SlowDown", StorageFailure.TRANSIENT)


def test_a_busy_store_is_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    workers = SparkWorkers(spark, Silent())
    assert workers.tries == 4
    assert workers.run("write", busy_once, [str(tmp_path)]) == [{"rows": 1}]
    with pytest.raises(StorageError) as caught:
        workers.run("write", always_busy, [str(tmp_path)])
    assert caught.value.failure is StorageFailure.TRANSIENT
    assert (tmp_path / "tries").read_text("utf-8") == "xxxx"


def test_keys_of_a_version_that_was_cleaned_up_are_told_as_such(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Graph.init(tmp_path / "g.omni", "node Note { key: String @key }") as graph:
        lines = tmp_path / "notes.jsonl"
        lines.write_text('{"type": "Note", "data": {"key": "1"}}\n', encoding="utf-8")
        graph.load(lines, mode="append", engine="local")
        store, pin = graph._environment.tables, graph.snapshot().pins["node:Note"]
        table = open_pin(store, pin)
        scans = key_scans(table, None, text_key("id"))
        shutil.rmtree(str(table._dataset.uri))
        joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0)
        with pytest.raises(StorageError), reading_pins(store, [pin]):
            joins.duplicated(scans)
        mark = Path(str(table._dataset.uri)) / RECLAIMED_MARK
        mark.parent.mkdir()
        mark.touch()
        with (
            pytest.raises(HistoricalVersionReclaimedError) as caught,
            reading_pins(store, [pin]),
        ):
            joins.duplicated(scans)
    assert isinstance(caught.value.__cause__, StorageError)
