"""Reading one cell: ranges, sizes, tags, time travel, and values that are damaged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph.api.results import BLOB_RANGE_BYTES, BlobKind
from omnigraph.errors import (
    BadRequestError,
    BlobIntegrityError,
    BlobRangeError,
    BranchNotFoundError,
    HistoricalVersionReclaimedError,
    NotFoundError,
    OmniError,
    ResourceLimitError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets import blobs as stored_blobs
from support.papers_with_blobs import SIZES, add_paper, content, text_of
from support.subtests import each_case

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CELLS = [("node:Paper", "scan"), ("edge:Cites", "page")]


@each_case(("key", "name"), CELLS)
@each_case("size", SIZES)
def test_a_range_of_a_cell_is_that_part_of_its_bytes(
    library: Graph, key: str, name: str, size: str
) -> None:
    data = content(SIZES[size])
    end = len(data)
    for offset, length in ((0, 1), (1, 3), (end - 2, 2), (end - 2, 100), (end - 1, None)):
        wanted = data[offset:] if length is None else data[offset : offset + length]
        assert library.read_blob(key, size, name, offset=offset, length=length) == wanted
    assert library.read_blob(key, size, name) == data


@pytest.mark.parametrize(("key", "name"), CELLS)
def test_an_empty_value_is_empty_wherever_a_range_begins(
    library: Graph, key: str, name: str
) -> None:
    assert library.read_blob(key, "empty", name) == b""
    assert library.read_blob(key, "empty", name, offset=7, length=3) == b""
    assert library.stat_blob(key, "empty", name).size == 0


@pytest.mark.parametrize("offset", [5, 6, 2**63])
def test_a_range_that_begins_behind_the_value_is_refused(library: Graph, offset: int) -> None:
    with pytest.raises(BlobRangeError) as caught:
        library.read_blob("node:Paper", "small", "scan", offset=offset, length=2)
    assert caught.value.details() == {
        "blob_range": {"start": offset, "end": offset + 2, "length": 5}
    }


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


def test_a_stat_of_a_large_value_reads_none_of_it(
    library: Graph, reads: list[tuple[int, int]]
) -> None:
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
