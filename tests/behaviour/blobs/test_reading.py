"""Reading one cell: ranges, sizes, tags, time travel, and values that are damaged."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.api.results import BLOB_RANGE_BYTES, BlobKind
from omnigraph.core.values import MARK, managed_cell, reference_cell
from omnigraph.errors import (
    BadRequestError,
    BlobIntegrityError,
    BlobRangeError,
    BranchNotFoundError,
    HistoricalVersionReclaimedError,
    LoadRejectedError,
    NotFoundError,
    OmniError,
    ResourceLimitError,
)
from omnigraph.graph import exports
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.export import formats
from omnigraph.storage.datasets import blobs as stored_blobs
from omnigraph.storage.datasets.blob_columns import plain_bytes
from support.papers_with_blobs import SCHEMA, SIZES, add_paper, citation, content, paper, text_of, write_lines
from support.subtests import each_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnigraph.graph.graph import Graph
    from support.cli_graphs import Outcome

    Command = Callable[..., Outcome]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CELLS = [("node:Paper", "scan"), ("edge:Cites", "page")]


@each_case(("key", "name"), CELLS)
@each_case("size", SIZES)
def test_a_range_of_a_cell_is_that_part_of_its_bytes(library: Graph, key: str, name: str, size: str) -> None:
    data = content(SIZES[size])
    end = len(data)
    for offset, length in ((0, 1), (1, 3), (end - 2, 2), (end - 2, 100), (end - 1, None)):
        wanted = data[offset:] if length is None else data[offset : offset + length]
        assert library.read_blob(key, size, name, offset=offset, length=length) == wanted
    assert library.read_blob(key, size, name) == data


@pytest.mark.parametrize(("key", "name"), CELLS)
def test_an_empty_value_is_empty_wherever_a_range_begins(library: Graph, key: str, name: str) -> None:
    assert library.read_blob(key, "empty", name) == b""
    assert library.read_blob(key, "empty", name, offset=7, length=3) == b""
    assert library.stat_blob(key, "empty", name).size == 0


@pytest.mark.parametrize("offset", [5, 6, 2**63])
def test_a_range_that_begins_behind_the_value_is_refused(library: Graph, offset: int) -> None:
    with pytest.raises(BlobRangeError) as caught:
        library.read_blob("node:Paper", "small", "scan", offset=offset, length=2)
    assert caught.value.details() == {"blob_range": {"start": offset, "end": offset + 2, "length": 5}}


@each_case(
    ("offset", "length", "error"),
    [
        (-1, None, BlobRangeError),
        (0, 0, BadRequestError),
        (0, -1, BadRequestError),
        (2**64 - 1, 1, BadRequestError),
        (2**64, None, BadRequestError),
        (0, BLOB_RANGE_BYTES + 1, ResourceLimitError),
    ],
)
def test_a_malformed_range_is_refused_before_anything_is_opened(
    library: Graph, offset: int, length: int | None, error: type[OmniError]
) -> None:
    with pytest.raises(error):
        library.read_blob("node:Nothing", "?", "?", offset=offset, length=length)


@each_case(
    ("key", "entity", "name", "error"),
    [
        ("Paper", "small", "scan", BadRequestError),
        ("thing:Paper", "small", "scan", BadRequestError),
        ("node:", "small", "scan", BadRequestError),
        ("node:Nope", "small", "scan", NotFoundError),
        ("node:paper", "small", "scan", NotFoundError),
        ("edge:Paper", "small", "scan", NotFoundError),
        ("node:Paper", "nobody", "scan", NotFoundError),
        ("node:Paper", "small' OR '1'='1", "scan", NotFoundError),
        ("node:Paper", "small", "id", OmniError),
        ("node:Paper", "small", "nope", NotFoundError),
        ("node:Paper", "none", "scan", NotFoundError),
        ("node:Paper", "small", "title", BadRequestError),
    ],
)
def test_what_is_no_blob_cell_is_told_so(
    library: Graph, key: str, entity: str, name: str, error: type[OmniError]
) -> None:
    for call in (library.read_blob, library.stat_blob, library.open_blob):
        with pytest.raises(error):
            call(key, entity, name)


def test_an_edge_type_is_found_in_any_case(library: Graph) -> None:
    assert library.stat_blob("edge:cITES", "small", "page").cell.type_key == "edge:Cites"


def test_a_stat_names_the_cell_its_size_its_tag_and_the_snapshot(library: Graph) -> None:
    info = library.stat_blob("node:Paper", "large", "scan")
    assert info.kind is BlobKind.MANAGED
    assert info.to_json() == {
        "selector": {"entity": "node", "type": "Paper", "id": "large", "property": "scan"},
        "kind": "managed",
        "size": SIZES["large"],
        "etag": info.etag,
        "target": {"branch": "main", "resolved_snapshot": library.snapshot().commit_id},
    }


# ---- what is read from storage


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that were read from storage."""
    seen: list[tuple[int, int]] = []
    inner = stored_blobs.read_blob_range

    def watched(table: object, blob: object, offset: int, length: int) -> bytes:
        seen.append((offset, length))
        return inner(table, blob, offset, length)  # type: ignore[arg-type]  # handed through as they come

    monkeypatch.setattr("omnigraph.storage.datasets.blobs.read_blob_range", watched)
    return seen


def test_only_the_range_is_read(library: Graph, reads: list[tuple[int, int]]) -> None:
    library.read_blob("node:Paper", "large", "scan", offset=1_000, length=10)
    library.read_blob("node:Paper", "small", "scan", offset=3, length=1_000)
    assert reads == [(1_000, 10), (3, 2)]


def test_a_stat_of_a_large_value_reads_none_of_it(library: Graph, reads: list[tuple[int, int]]) -> None:
    library.stat_blob("node:Paper", "large", "scan")
    assert reads == []


def test_a_large_value_comes_in_pieces(library: Graph, reads: list[tuple[int, int]]) -> None:
    blob = library.open_blob("node:Paper", "large", "scan")
    pieces = blob.chunks(100)
    assert reads == []
    assert len(next(pieces)) == BLOB_RANGE_BYTES
    assert reads == [(100, BLOB_RANGE_BYTES)]
    assert len(next(pieces)) == 900
    assert next(pieces, None) is None


# ---- time and branches


def test_a_cell_is_read_at_any_point_of_its_history(graph: Graph) -> None:
    first = add_paper(graph, "a", text_of(b"one"))
    version = graph.snapshot().graph_version
    moment = EPOCH + timedelta(microseconds=graph.commit(first).created_at)
    graph.create_branch("side")
    add_paper(graph, "a", text_of(b"two"))
    add_paper(graph, "a", text_of(b"three"), branch="side")
    read = graph.read_blob
    assert read("node:Paper", "a", "scan") == b"two"
    assert read("node:Paper", "a", "scan", branch="side") == b"three"
    assert read("node:Paper", "a", "scan", snapshot=first) == b"one"
    assert read("node:Paper", "a", "scan", version=version) == b"one"
    assert read("node:Paper", "a", "scan", as_of=moment) == b"one"
    info = graph.stat_blob("node:Paper", "a", "scan", snapshot=first)
    assert info.to_json()["target"] == {"snapshot": first, "resolved_snapshot": first}
    with pytest.raises(BranchNotFoundError):
        read("node:Paper", "a", "scan", branch="nowhere")


def test_an_open_cell_does_not_see_later_writes(graph: Graph) -> None:
    add_paper(graph, "a", text_of(b"before"))
    blob = graph.open_blob("node:Paper", "a", "scan")
    add_paper(graph, "a", text_of(b"after"))
    assert b"".join(blob.chunks()) == b"before"


def test_an_open_cell_whose_version_was_cleaned_up_says_so(graph: Graph) -> None:
    add_paper(graph, "a", text_of(content(BLOB_RANGE_BYTES)))
    blob = graph.open_blob("node:Paper", "a", "scan")
    for text in (b"b", b"c", b"d"):
        add_paper(graph, "a", text_of(text))
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(HistoricalVersionReclaimedError, match="node:Paper was cleaned up"):
        blob.read()


# ---- tags


def tag(graph: Graph, doi: str, **target: str) -> str:
    found = graph.stat_blob("node:Paper", doi, "scan", **target).etag  # type: ignore[arg-type]  # texts only
    assert found is not None
    assert found[0] == found[-1] == '"', "a strong tag of HTTP"
    return found


@pytest.mark.parametrize("size", SIZES)
def test_a_tag_changes_with_the_bytes(graph: Graph, size: str) -> None:
    data = content(SIZES[size])
    other = data[:-1] + bytes([data[-1] ^ 1])
    add_paper(graph, "a", text_of(data))
    add_paper(graph, "b", text_of(other))
    before = tag(graph, "a")
    assert before != tag(graph, "b")
    graph.create_branch("side")
    assert tag(graph, "a", branch="side") == before
    add_paper(graph, "a", text_of(other))
    assert tag(graph, "a") != before
    assert tag(graph, "a", branch="side") == before


def test_a_tag_of_one_range_follows_from_the_bytes_alone(graph: Graph) -> None:
    add_paper(graph, "a", text_of(b"same"))
    before = tag(graph, "a")
    add_paper(graph, "b", text_of(b"same"))
    graph.mutate('query q() { update Paper set { title: "t" } where doi = "a" }')
    graph.create_branch("side")
    add_paper(graph, "c", text_of(b"same"), branch="side")
    graph.merge("side")
    assert tag(graph, "a") == tag(graph, "b") == tag(graph, "c") == before


# ---- damage


def blob_file(graph: Graph) -> Path:
    (found,) = Path(graph.uri).rglob("*.blob")
    return found


def test_a_missing_file_of_a_value_is_damage(graph: Graph) -> None:
    add_paper(graph, "a", text_of(content(SIZES["packed"])))
    blob_file(graph).unlink()
    with pytest.raises(BlobIntegrityError, match="is missing"):
        graph.read_blob("node:Paper", "a", "scan", offset=10, length=5)


def test_a_file_that_is_too_short_is_damage(graph: Graph) -> None:
    add_paper(graph, "a", text_of(content(SIZES["large"])))
    file = blob_file(graph)
    file.write_bytes(file.read_bytes()[:1_000])
    assert graph.read_blob("node:Paper", "a", "scan", length=100) == content(100)
    with pytest.raises(BlobIntegrityError, match="has 1000 bytes"):
        graph.read_blob("node:Paper", "a", "scan", offset=2_000, length=5)


# ---- `omnigraph blob get` and `stat`


def test_get_writes_raw_bytes_to_stdout(og: Command, library: Graph) -> None:
    seen = og("blob", "get", "node", "Paper", "large", "scan", "--store", library.uri)
    assert seen.code == 0
    assert seen.out.encode("latin-1") == content(SIZES["large"])
    assert seen.err == ""


def test_get_writes_a_range_to_a_file(og: Command, library: Graph, tmp_path: Path) -> None:
    out = tmp_path / "page.bin"
    out.write_bytes(b"old")
    words = ("edge", "cites", "packed", "page", "--offset", "4", "--length", "8")
    seen = og("blob", "get", *words, "--out", str(out), "--store", library.uri)
    assert (seen.code, seen.out) == (0, "")
    assert out.read_bytes() == content(12)[4:]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "words",
    [
        ("node", "Paper", "small", "scan", "--offset", "5"),
        ("node", "Paper", "small", "scan", "--length", "0"),
        ("node", "Paper", "small", "scan", "--offset", str(2**64)),
        ("node", "Paper", "none", "scan"),
        ("node", "Paper", "small", "title"),
    ],
)
def test_a_get_that_fails_leaves_the_file_untouched(
    og: Command, library: Graph, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "kept"
    out.write_bytes(b"kept")
    seen = og("blob", "get", *words, "--out", str(out), "--store", library.uri)
    assert (seen.code, seen.out) == (1, "")
    assert seen.err.strip()
    assert out.read_bytes() == b"kept"
    assert list(tmp_path.iterdir()) == [out]


def test_get_into_a_folder_is_refused(og: Command, library: Graph, tmp_path: Path) -> None:
    words = ("node", "Paper", "small", "scan", "--store", library.uri)
    assert "is not a file" in og("blob", "get", *words, "--out", str(tmp_path)).err
    missing = tmp_path / "no" / "folder"
    assert "cannot be written" in og("blob", "get", *words, "--out", str(missing)).err


def test_only_nodes_and_edges_have_cells(og: Command, library: Graph) -> None:
    words = ("thing", "Paper", "small", "scan", "--store", library.uri)
    assert og("blob", "get", *words).code == 2


def test_stat_shows_what_a_blob_is(og: Command, library: Graph) -> None:
    words = ("blob", "stat", "node", "Paper", "packed", "scan", "--store", library.uri)
    info = library.stat_blob("node:Paper", "packed", "scan")
    assert json.loads(og(*words, "--json").out) == info.to_json()
    text = og(*words).out
    assert "managed" in text
    assert "100,000 bytes" in text
    assert str(info.etag) in text
    at = ("--snapshot", info.snapshot_id)
    assert json.loads(og(*words, *at, "--json").out)["target"]["snapshot"] == info.snapshot_id
    assert og(*words, *at, "--branch", "main").code == 2


# ---- Export and load: managed, empty, null, external and large blobs come back as they were


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
def test_every_kind_of_cell_comes_back(mixed: Graph, tmp_path: Path, outside: Path, format: str) -> None:
    mixed.export(tmp_path / "out", format=format, engine="local")
    with fresh(tmp_path, [outside.as_uri()]) as again:
        given = {"source": tmp_path / "out"} if format == "jsonl" else {"mapping": tmp_path / "out" / "mapping.yaml"}
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


def test_an_export_with_references_loads_only_where_they_are_allowed(mixed: Graph, tmp_path: Path) -> None:
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


def test_a_schema_change_that_writes_rows_anew_keeps_references(mixed: Graph, outside: Path) -> None:
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
