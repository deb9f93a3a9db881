"""`engine="auto"`: small work stays in this process, large work goes to Spark, and the receipt says why."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from omnigraph.api.results import ExportResult, LoadResult
from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import engine_choice
from omnigraph.pipeline.sources import planning as sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE = b'{"type": "Person", "data": {"name": "ann"}}\n'


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with one row, which the tests leave as it is."""
    graph = Graph.init(tmp_path_factory.mktemp("choice") / "g.omni", "node Person { name: String @key }")
    graph.mutate('query q() { insert Person { name: "ann" } }')
    return graph


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(LINE)
    return path


def loaded(graph: Graph, source: Path | None = None, **options: Any) -> str:
    """What the receipt of a load says about its engine, here and after a journey as JSON."""
    receipt = graph.load(source, mode="merge", dry_run=True, **options)
    assert LoadResult.from_json(receipt.document()).engine == receipt.engine
    return str(receipt.engine)


def test_small_inputs_stay_in_this_process(graph: Graph, tmp_path: Path, lines: Path) -> None:
    assert loaded(graph, lines) == "in process: 44 B of input, Spark starts above 32 MiB"
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(LINE, mtime=0))
    size = packed.stat().st_size
    text = f"in process: {size} B of input, about {size * 5} B unpacked, Spark starts above 32 MiB"
    assert loaded(graph, packed) == text
    for frame in (pa.table({"name": ["ann"]}), pd.DataFrame({"name": ["ann"]})):
        text = loaded(graph, frames={"Person": frame})
        assert text.startswith("in process: ")
        assert text.endswith(" B of input, Spark starts above 32 MiB")


def test_large_inputs_and_everything_of_spark_run_on_spark(
    graph: Graph, lines: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(graph, lines, spark=spark) == "on Spark: a Spark session was given"
    frame = spark.range(1).selectExpr("'ann' AS name")
    assert loaded(graph, frames={"Person": frame}) == "on Spark: frame Person is a Spark frame"
    monkeypatch.setenv("OMNIGRAPH_AUTO_LOCAL_MAX_BYTES", "43")
    assert loaded(graph, lines) == "on Spark: 44 B of input, Spark starts above 43 B"
    assert loaded(graph, lines, engine="local") == "in process: as asked"


def test_the_bound_of_this_process_is_never_exceeded(
    graph: Graph, lines: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCAL_LOAD_MAX_BYTES", "40")
    assert loaded(graph, lines) == "on Spark: 44 B of input, Spark starts above 40 B"


def test_without_spark_this_process_works_up_to_its_bound(
    graph: Graph, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (engine_choice, sources):
        monkeypatch.setattr(module, "is_installed", lambda _: False)
    monkeypatch.setenv("OMNIGRAPH_AUTO_LOCAL_MAX_BYTES", "0")
    assert loaded(graph, lines) == "in process: 44 B of input, and Spark is not installed"
    monkeypatch.setenv("OMNIGRAPH_LOCAL_LOAD_MAX_BYTES", "43")
    with pytest.raises(ResourceLimitError, match=r"install Spark .* or raise OMNIGRAPH_LOCAL_LOAD_MAX_BYTES"):
        loaded(graph, lines)
    written = graph.export(tmp_path / "out.jsonl")
    assert str(written.engine).endswith("of tables, and Spark is not installed")


def test_exports_choose_by_the_size_of_their_tables(
    graph: Graph, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exported(name: str, **options: Any) -> str:
        written = graph.export(tmp_path / name, **options)
        assert ExportResult.from_json(written.document()).engine == written.engine
        assert (tmp_path / name).read_bytes() == b'{"type":"Person","data":{"id":"ann","name":"ann"}}\n'
        return str(written.engine)

    small = exported("small.jsonl")
    assert small.startswith("in process: ")
    assert small.endswith(" of tables, Spark starts above 32 MiB")
    assert exported("given.jsonl", spark=spark) == "on Spark: a Spark session was given"
    monkeypatch.setenv("OMNIGRAPH_AUTO_LOCAL_MAX_BYTES", "0")
    assert exported("large.jsonl").startswith("on Spark: ")


def test_an_engine_that_does_not_exist_is_refused(graph: Graph, lines: Path, tmp_path: Path) -> None:
    calls = (
        lambda: graph.load(lines, mode="merge", engine="flink"),
        lambda: graph.export(tmp_path / "out.jsonl", engine="flink"),
        lambda: graph.merge("main", into="other", engine="flink"),
    )
    for call in calls:
        with pytest.raises(BadRequestError, match="there is no engine 'flink': give auto, local, spark"):
            call()
