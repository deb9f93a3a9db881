"""Export and load: managed, empty, null, external and large blobs come back as they were."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.api.results import BlobKind
from omnigraph.core.values import MARK, managed_cell, reference_cell
from omnigraph.errors import BadRequestError, LoadRejectedError
from omnigraph.graph import exports
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.export import formats
from omnigraph.storage.datasets.blob_columns import plain_bytes
from support.papers_with_blobs import SCHEMA, citation, content, paper, text_of, write_lines

PACKED = content(100_000)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a b.bin").write_bytes(b"outside")
    return folder


@pytest.fixture
def mixed(tmp_path: Path, outside: Path) -> Graph:
    """A graph with every kind of cell."""
    uri = (outside / "a b.bin").as_uri()
    records = [
        paper("external", scan=uri, extra=text_of(b"beside")),
        paper("empty", scan="base64:"),
        paper("none"),
        paper("small", scan=text_of(b"small")),
        paper("packed", scan=text_of(PACKED)),
        citation("external", "small", "none", uri),
        citation("small", "small", "none", text_of(b"small")),
    ]
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, external_blobs=[outside.as_uri()])
    source = write_lines(tmp_path / "in.jsonl", records)
    graph.load(source, mode="overwrite", engine="local")
    return graph


def fresh(tmp_path: Path, bases: list[str]) -> Graph:
    return Graph.init(tmp_path / "fresh.omni", SCHEMA, external_blobs=bases)


def lines(graph: Graph) -> str:
    out = io.StringIO()
    graph.export(out)
    return out.getvalue()


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_every_kind_of_cell_comes_back(
    mixed: Graph, tmp_path: Path, outside: Path, format: str
) -> None:
    mixed.export(tmp_path / "out", format=format, engine="local")
    with fresh(tmp_path, [outside.as_uri()]) as again:
        given = (
            {"source": tmp_path / "out"}
            if format == "jsonl"
            else {"mapping": tmp_path / "out" / "mapping.yaml"}
        )
        again.load(**given, mode="overwrite", engine="local")
        assert lines(again) == lines(mixed)
        assert again.stat_blob("node:Paper", "external", "scan").kind is BlobKind.EXTERNAL
        again.load(**given, mode="merge", engine="local")
        assert again.read_blob("node:Paper", "external", "scan") == b"outside"


def test_parquet_has_plain_bytes_where_nothing_is_external(mixed: Graph, tmp_path: Path) -> None:
    mixed.export(tmp_path / "out", format="parquet", engine="local")
    schema = pq.read_schema(next((tmp_path / "out" / "nodes" / "Paper").iterdir()))
    assert schema.field("extra").type == pa.binary()
    assert [item.name for item in schema.field("scan").type] == ["data", "uri"]


def test_an_export_with_references_loads_only_where_they_are_allowed(
    mixed: Graph, tmp_path: Path
) -> None:
    mixed.export(tmp_path / "out", format="parquet", engine="local")
    with fresh(tmp_path, []) as again, pytest.raises(LoadRejectedError) as caught:
        again.load(mapping=tmp_path / "out" / "mapping.yaml", mode="overwrite", engine="local")
    assert caught.value.report.total == 2


def test_a_frame_may_bring_bytes_and_addresses_side_by_side(tmp_path: Path, outside: Path) -> None:
    uri = (outside / "a b.bin").as_uri()
    cells = [{"data": b"x", "uri": None}, {"data": None, "uri": uri}, None]
    frame = pa.table({"doi": ["a", "b", "c"], "scan": cells})
    both = pa.table({"doi": ["d"], "scan": [{"data": b"x", "uri": uri}]})
    with fresh(tmp_path, [outside.as_uri()]) as graph:
        graph.load(frames={"Paper": frame}, mode="append", engine="local")
        assert graph.read_blob("node:Paper", "a", "scan") == b"x"
        assert graph.read_blob("node:Paper", "b", "scan") == b"outside"
        with pytest.raises(LoadRejectedError):
            graph.load(frames={"Paper": both}, mode="append", engine="local")


@pytest.mark.parametrize("target", ["stream", "file"])
def test_a_line_that_no_load_would_read_is_refused_before_the_first_one(
    mixed: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(exports, "MAX_LINE_BYTES", 100_000)
    stream = io.StringIO()
    with pytest.raises(BadRequestError, match=r"node:Paper 'packed' makes a line of .* Parquet"):
        mixed.export(stream if target == "stream" else tmp_path / "out", engine="local")
    assert stream.getvalue() == ""
    assert not (tmp_path / "out").exists()


def test_a_line_that_is_long_for_other_reasons_is_refused_too(
    mixed: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 1_000)
    with pytest.raises(BadRequestError, match="makes a line"):
        mixed.export(tmp_path / "out", engine="local")
    assert not (tmp_path / "out").exists()


def test_a_schema_change_that_writes_rows_anew_keeps_references(
    mixed: Graph, outside: Path
) -> None:
    uri = mixed.stat_blob("node:Paper", "external", "scan").uri
    (outside / "a b.bin").unlink()
    mixed.apply_schema(SCHEMA.replace("title: String?", ""), allow_data_loss=True)
    assert mixed.stat_blob("node:Paper", "external", "scan").uri == uri
    assert mixed.read_blob("node:Paper", "packed", "scan") == PACKED


def test_readers_of_bytes_alone_are_told_about_references() -> None:
    cells = pa.array([b"x", None, managed_cell(MARK), managed_cell(reference_cell("s3://b/k"))])
    plain = plain_bytes(cells.cast(pa.large_binary()), "scan")
    assert plain.to_pylist() == [b"x", None, MARK, reference_cell("s3://b/k")]
    with pytest.raises(BadRequestError, match=r"scan holds references .* s3://b/k"):
        plain_bytes(pa.array([None, reference_cell("s3://b/k")], pa.large_binary()), "scan")
