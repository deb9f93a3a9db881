"""What is exported and loaded again is the same graph: every row, every value, every id."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.errors import LoadKeyConflictError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.export import job as export_module
from omnigraph.pipeline.load import parts as parts_module
from support.exports import LARGE, SCHEMA, insert_thing, world
from support.graphs import everything, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EDGES_OF_VALUES: list[dict[str, Any]] = [
    {"name": "high", "i32": 2**31 - 1, "i64": 2**63 - 1, "u32": 0, "u64": 0, "f32": 3.4028234663852886e38},
    {"name": "low", "f32": -1e-45, "f64": -5e-324, "day": "0001-01-01", "at": "0001-01-01T00:00:00Z"},
    {"name": "late", "f64": -0.0, "day": "9999-12-31", "at": "9999-12-31T23:59:59.999Z"},
    {"name": "lists", "counts": [], "floats": [-0.0, 1e38], "ats": [], "flags": [], "tags": ["", "\u0000"]},
    {"name": '["1","a"]', "text": "// no comment", "vec": [-0.0, 0.0, 1e-45], "data": "base64:AAEC"},
    {"name": "\ufeff{}\r\n", "text": "\u2028\u2029\x7f\ud7ff\ue000\U0010ffff"},
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with every type of value; tests only read it."""
    found = world(tmp_path_factory.mktemp("world"))
    for row in EDGES_OF_VALUES:
        insert_thing(found, row)
    return found


@pytest.fixture
def fresh(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "fresh.omni", SCHEMA)


def rows(graph: Graph) -> dict[str, list[str]]:
    """All rows with their ids; zeros with their sign."""
    return {key: [repr(row) for row in found] for key, found in everything(graph).items()}


def test_the_world_has_what_is_hard_to_move(graph: Graph) -> None:
    """Otherwise the tests below would say nothing."""
    things = {row["id"]: row for row in everything(graph)["node:Thing"]}
    assert {LARGE, b"", None} <= {row["data"] for row in things.values()}
    assert len(things) == 9
    assert str(things["late"]["f64"]) == "-0.0"
    assert {key: len(found) for key, found in rows(graph).items()} == {
        "edge:Near": 1,
        "edge:Same": 2,
        "node:Empty": 0,
        "node:Slot": 12,
        "node:Thing": 9,
    }


@pytest.mark.parametrize(
    ("mode", "grammar"), [("merge", "strict"), ("overwrite", "strict"), ("append", "compatible")]
)
def test_one_file_of_lines(
    graph: Graph, fresh: Graph, tmp_path: Path, mode: str, grammar: str
) -> None:
    exported = graph.export(tmp_path / "all.jsonl", engine="local")
    result = fresh.load(tmp_path / "all.jsonl", mode=mode, engine="local", grammar=grammar)
    assert rows(fresh) == rows(graph)
    assert result.to_json()["total_entities"] == exported.to_json()["total_entities"]


def test_a_directory_of_parts_read_in_parts(
    graph: Graph, fresh: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    exported = graph.export(tmp_path / "parts", parts=True, engine="local")
    assert len(exported.files) > 10
    monkeypatch.setattr(parts_module, "_SMALLEST_PART_BYTES", 100)
    monkeypatch.setattr(parts_module, "_LARGEST_PART_BYTES", 50_000)
    fresh.load(tmp_path / "parts", mode="append", engine="local")
    assert rows(fresh) == rows(graph)


def test_a_stream_of_lines(graph: Graph, fresh: Graph, tmp_path: Path) -> None:
    sink = io.StringIO()
    graph.export(sink)
    path = tmp_path / "stream.jsonl"
    path.write_bytes(sink.getvalue().encode())
    fresh.load(path, mode="append", engine="local")
    assert rows(fresh) == rows(graph)


def test_standard_output(graph: Graph, fresh: Graph, tmp_path: Path, capfdbinary: Any) -> None:
    graph.export("-")
    path = tmp_path / "stream.jsonl"
    path.write_bytes(capfdbinary.readouterr().out)
    fresh.load(path, mode="overwrite", engine="local")
    assert rows(fresh) == rows(graph)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_parquet_with_its_mapping(
    graph: Graph, fresh: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    graph.export(tmp_path / "out", format="parquet", engine="local")
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    fresh.load(mapping=moved / "mapping.yaml", mode=mode, engine="local")
    assert rows(fresh) == rows(graph)


def test_loading_an_export_again_changes_nothing_or_is_refused(
    graph: Graph, fresh: Graph, tmp_path: Path
) -> None:
    path = tmp_path / "all.jsonl"
    graph.export(path, engine="local")
    fresh.load(path, mode="append", engine="local")
    assert fresh.load(path, mode="merge", engine="local").superseded == 0
    assert rows(fresh) == rows(graph)
    with refused(fresh, LoadKeyConflictError):
        fresh.load(path, mode="append", engine="local")
    again = tmp_path / "again.jsonl"
    fresh.export(again, engine="local")
    assert again.read_bytes() == path.read_bytes()


def test_an_export_of_some_types_replaces_those(graph: Graph, fresh: Graph, tmp_path: Path) -> None:
    graph.export(tmp_path / "all.jsonl", engine="local")
    fresh.load(tmp_path / "all.jsonl", mode="append", engine="local")
    insert_thing(fresh, {"name": "more"})
    graph.export(tmp_path / "things.jsonl", types=["Thing"], engine="local")
    fresh.load(tmp_path / "things.jsonl", mode="overwrite", engine="local")
    assert rows(fresh) == rows(graph)


def test_there_and_back_on_spark(
    graph: Graph, fresh: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    graph.export(tmp_path / "out", format="parquet", spark=spark)
    fresh.load(mapping=tmp_path / "out" / "mapping.yaml", mode="merge", spark=spark)
    assert rows(fresh) == rows(graph)
