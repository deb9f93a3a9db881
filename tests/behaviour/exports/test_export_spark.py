"""Exports through Spark give what exports in process give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.export import job as export_module
from support.exports import key_of, lines_of, world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_export_on_spark_is_the_one_of_this_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = world(tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    whole = io.StringIO()
    graph.export(whole)
    expected = graph.export(folder / "local", format="parquet", engine="local")

    one = graph.export(folder / "all.jsonl", spark=spark)
    parts = graph.export(folder / "parts", parts=True, spark=spark)
    files = graph.export(folder / "parquet", format="parquet")

    assert (folder / "all.jsonl").read_bytes().decode() == whole.getvalue()
    lines = [line for path in parts.files for line in lines_of(Path(path).read_text("utf-8"))]
    assert sorted(lines, key=key_of) == lines_of(whole.getvalue())
    for result in (one, parts, files):
        assert (result.nodes, result.edges) == (expected.nodes, expected.edges)
    for name in ("nodes/Thing", "nodes/Slot", "nodes/Empty", "edges/Near"):
        local, there = (
            pq.read_table(folder / "local" / name),
            pq.read_table(folder / "parquet" / name),
        )
        assert there.sort_by("id").equals(local.sort_by("id"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "all.jsonl",
        "local",
        "parquet",
        "parts",
    ]
    with pytest.raises(BadRequestError, match="replaces nothing"):
        graph.export(folder / "parts", spark=spark)
