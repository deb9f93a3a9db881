"""External blobs: kept as references by an overwrite, copied by everything else, never followed by a read."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.api.results import BlobKind
from omnigraph.commit.environment import GraphSettings
from omnigraph.core.values import MARK, reference_cell
from omnigraph.errors import (
    BadRequestError,
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    LoadRejectedError,
    ResourceLimitError,
    without_credentials,
)
from omnigraph.graph import mutations as facade
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import staging
from omnigraph.storage import external
from omnigraph.storage.external import EXTERNAL_URI_BYTES, fetch, normal_form, policy_of, probe
from support.cli_graphs import Outcome
from support.papers_with_blobs import SCHEMA, add_paper, citation, paper, text_of, write_lines
from support.subtests import each_case

DATA = b"bytes outside of the graph"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that writers may bring."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.bin").write_bytes(DATA)
    return folder


@pytest.fixture
def graph(tmp_path: Path, outside: Path) -> Iterator[Graph]:
    """A graph whose writers may bring blobs from the folder."""
    with Graph.init(tmp_path / "g.omni", SCHEMA, external_blobs=[outside.as_uri()]) as graph:
        yield graph


@pytest.fixture
def referring(graph: Graph, outside: Path, tmp_path: Path) -> str:
    """The address that a node and an edge of the graph refer to; a managed blob is beside it."""
    uri = (outside / "a.bin").as_uri()
    records = [
        paper("ext", scan=uri, extra=text_of(b"managed")),
        paper("own", scan=text_of(b"own")),
        citation("e", "ext", "own", uri),
    ]
    load(graph, tmp_path, records, "overwrite")
    return uri


def load(graph: Graph, folder: Path, records: list[dict[str, object]], mode: str) -> None:
    graph.load(write_lines(folder / "in.jsonl", records), mode=mode, engine="local")


def lines(graph: Graph, branch: str = "main") -> list[dict[str, Any]]:
    out = io.StringIO()
    graph.export(out, branch=branch)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def kind(graph: Graph, doi: str, branch: str = "main") -> BlobKind:
    return graph.stat_blob("node:Paper", doi, "scan", branch=branch).kind


# ---- copies


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_adds_copies_the_bytes(graph: Graph, outside: Path, tmp_path: Path, mode: str) -> None:
    uri = (outside / "a.bin").as_uri()
    load(graph, tmp_path, [paper("a", scan=uri), paper("b"), citation("e", "a", "b", uri)], mode)
    (outside / "a.bin").unlink()
    assert graph.read_blob("node:Paper", "a", "scan") == DATA
    assert graph.read_blob("edge:Cites", "e", "page") == DATA


def test_a_mutation_copies_the_bytes(graph: Graph, outside: Path) -> None:
    uri = (outside / "a.bin").as_uri()
    add_paper(graph, "a", uri)
    add_paper(graph, "b", None)
    graph.mutate('query q($u: Blob) { update Paper set { scan: $u } where doi = "b" }', {"u": uri})
    (outside / "a.bin").write_bytes(b"other")
    assert graph.read_blob("node:Paper", "a", "scan") == DATA
    assert graph.read_blob("node:Paper", "b", "scan") == DATA


def test_a_mutation_that_is_prepared_again_does_not_read_again(
    graph: Graph, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = (outside / "a.bin").as_uri()
    inner = facade.prepare_mutation

    def overtaken(*given: Any, **named: Any) -> Any:
        prepared = inner(*given, **named)
        monkeypatch.setattr(facade, "prepare_mutation", inner)
        (outside / "a.bin").write_bytes(b"other")
        with Graph.open(graph.uri) as other:
            add_paper(other, "winner", None)
        return prepared

    monkeypatch.setattr(facade, "prepare_mutation", overtaken)
    add_paper(graph, "loser", uri)
    assert graph.read_blob("node:Paper", "loser", "scan") == DATA
    assert graph.entity_at("node:Paper", "winner") is not None


def test_many_records_with_external_blobs_keep_their_order(graph: Graph, outside: Path, tmp_path: Path) -> None:
    records = []
    for number in range(40):
        (outside / f"{number}").write_bytes(b"%d" % number)
        scan = (outside / f"{number}").as_uri() if number % 3 else text_of(b"%d" % number)
        records.append(paper(f"{number}", scan=scan))
    load(graph, tmp_path, records, "append")
    for number in range(40):
        assert graph.read_blob("node:Paper", f"{number}", "scan") == b"%d" % number


# ---- references


def test_an_overwrite_keeps_the_reference(graph: Graph, referring: str, outside: Path) -> None:
    (outside / "a.bin").unlink()
    info = graph.stat_blob("node:Paper", "ext", "scan")
    assert (info.kind, info.uri, info.size, info.etag) == (BlobKind.EXTERNAL, referring, None, None)
    assert info.to_json() == {
        "selector": {"entity": "node", "type": "Paper", "id": "ext", "property": "scan"},
        "kind": "external",
        "uri": referring,
        "target": {"branch": "main", "resolved_snapshot": graph.snapshot().commit_id},
    }
    assert graph.stat_blob("edge:Cites", "e", "page").uri == referring
    assert graph.read_blob("node:Paper", "ext", "extra") == b"managed"


def test_a_reference_is_never_followed(graph: Graph, referring: str) -> None:
    blob = graph.open_blob("node:Paper", "ext", "scan")
    for read in (blob.read, blob.chunks, lambda: graph.read_blob("node:Paper", "ext", "scan")):
        with pytest.raises(BadRequestError, match="never followed") as caught:
            read()
        assert referring in caught.value.message


def test_storage_itself_cannot_follow_a_reference(graph: Graph, referring: str) -> None:
    pin = graph.snapshot().pins["node:Paper"]
    dataset = lance.dataset(f"{graph.uri}/{pin.location}", version=pin.version)
    with pytest.raises((OSError, ValueError), match="Not found"):
        dataset.to_table(columns=["scan"], filter="id = 'ext'", blob_handling="all_binary")
    assert referring not in str(dataset.to_table(columns=["scan"]).to_pylist())


def test_get_prints_the_address_and_fails(
    graph: Graph, referring: str, og: Callable[..., Outcome], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("node", "Paper", "ext", "scan", "--store", graph.uri)
    seen = og("blob", "get", *words, "--out", str(out))
    assert (seen.code, seen.out) == (1, "")
    assert referring in seen.err
    assert not out.exists()
    assert f"uri       {referring}\n" in og("blob", "stat", *words).out


def test_reads_of_references_need_no_permission(graph: Graph, referring: str) -> None:
    with Graph.open(graph.uri, read_only=True, external_blobs=[]) as reader:
        assert reader.stat_blob("node:Paper", "ext", "scan").uri == referring


def test_an_update_carries_a_reference_and_its_row_id(graph: Graph, referring: str) -> None:
    def row_ids() -> dict[str, int]:
        pin = graph.snapshot().pins["node:Paper"]
        dataset = lance.dataset(f"{graph.uri}/{pin.location}", version=pin.version)
        rows = dataset.to_table(columns=["id", "_rowid"]).to_pylist()
        return {row["id"]: row["_rowid"] for row in rows}

    before = row_ids()
    graph.mutate('query q() { update Paper set { title: "t" } where doi >= "a" }')
    assert row_ids() == before
    assert graph.stat_blob("node:Paper", "ext", "scan").uri == referring
    assert graph.read_blob("node:Paper", "ext", "extra") == b"managed"
    assert graph.read_blob("node:Paper", "own", "scan") == b"own"
    assert {row["data"]["title"] for row in lines(graph) if row.get("type")} == {"t"}
    graph.mutate('query q($n: Blob?) { update Paper set { scan: $n } where doi = "ext" }', {"n": None})
    assert graph.entity_at("node:Paper", "ext")["properties"]["scan"] is None


def test_branches_merges_and_changes_keep_references(graph: Graph, referring: str) -> None:
    graph.create_branch("side")
    graph.mutate('query q() { update Paper set { title: "t" } where doi = "ext" }', branch="side")
    assert graph.stat_blob("node:Paper", "ext", "scan", branch="side").uri == referring
    add_paper(graph, "more", text_of(b"more"))
    (change,) = graph.diff("main", "side", types=["Paper"], ops=["update"]).changes
    assert change.id == "ext"
    assert graph.merge("side").commit is not None
    assert graph.stat_blob("node:Paper", "ext", "scan").uri == referring
    image = graph.entity_at("node:Paper", "ext")
    assert image is not None
    assert image["properties"] == {"doi": "ext", "title": "t", "scan": referring, "extra": text_of(b"managed")}


def test_optimize_keeps_references_and_bytes(graph: Graph, referring: str, outside: Path) -> None:
    for name in "abc":
        add_paper(graph, name, text_of(name.encode() * 100_000))
    graph.mutate('query q() { update Paper set { title: "t" } where doi = "ext" }')
    before = lines(graph)
    tag = graph.stat_blob("node:Paper", "a", "scan").etag
    blob = graph.open_blob("node:Paper", "a", "scan")
    (outside / "a.bin").unlink()
    places = {pin.version for pin in graph.snapshot().pins.values()}
    graph.optimize(engine="local")
    assert {pin.version for pin in graph.snapshot().pins.values()} != places, "it did something"
    assert lines(graph) == before
    assert graph.stat_blob("node:Paper", "ext", "scan").uri == referring
    assert graph.stat_blob("node:Paper", "a", "scan").etag == tag
    assert b"".join(blob.chunks()) == b"a" * 100_000


def test_bytes_that_spell_a_reference_are_bytes(graph: Graph, tmp_path: Path) -> None:
    forged = reference_cell("https://evil/x")
    add_paper(graph, "a", text_of(forged))
    add_paper(graph, "b", text_of(MARK))
    records = [paper("c", scan=text_of(forged))]
    load(graph, tmp_path, records, "merge")
    graph.mutate('query q() { update Paper set { title: "t" } where doi >= "a" }')
    for name, data in (("a", forged), ("b", MARK), ("c", forged)):
        assert kind(graph, name) is BlobKind.MANAGED
        assert graph.read_blob("node:Paper", name, "scan") == data
    (tmp_path / "again").mkdir()
    with Graph.init(tmp_path / "again" / "g.omni", SCHEMA) as again:
        graph.export(tmp_path / "out.jsonl", engine="local")
        again.load(tmp_path / "out.jsonl", mode="overwrite", engine="local")
        assert lines(again) == lines(graph)


# ---- export and import


def test_an_export_writes_the_address_unopened_and_loads_again(
    graph: Graph, referring: str, outside: Path, tmp_path: Path
) -> None:
    (outside / "a.bin").rename(outside / "away")
    exported = lines(graph)
    assert [row["data"]["scan"] for row in exported if row.get("type")] == [referring, text_of(b"own")]
    (outside / "away").rename(outside / "a.bin")
    bases = [outside.as_uri()]
    with Graph.init(tmp_path / "again.omni", SCHEMA, external_blobs=bases) as again:
        load(again, tmp_path, exported, "overwrite")
        assert lines(again) == exported
        assert kind(again, "ext") is BlobKind.EXTERNAL


# ---- refusals: nothing is written


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_load_with_a_forbidden_address_writes_nothing(graph: Graph, outside: Path, tmp_path: Path, mode: str) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    records = [
        paper("good", scan=(outside / "a.bin").as_uri()),
        paper("bad", scan=(tmp_path / "secret").as_uri()),
        paper("worse", scan="https://me:hush@example.org/x"),
    ]
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, tmp_path, records, mode)
    assert caught.value.report.total == 2
    assert lines(graph) == []


def test_a_mutation_with_a_forbidden_address_writes_nothing(graph: Graph) -> None:
    with pytest.raises(ExternalBlobPolicyError):
        add_paper(graph, "a", "file:///etc/passwd")
    with Graph.open(graph.uri) as strict, pytest.raises(ExternalBlobPolicyError, match="no external"):
        add_paper(strict, "a", "https://example.org/x")
    assert lines(graph) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_source_that_cannot_be_read_is_told_before_any_effect(
    graph: Graph, outside: Path, tmp_path: Path, mode: str
) -> None:
    os.mkfifo(outside / "pipe")
    for name in ("missing", "pipe", "."):
        with pytest.raises(ExternalBlobSourceError) as caught:
            load(graph, tmp_path, [paper("a", scan=f"{outside.as_uri()}/{name}")], mode)
        assert caught.value.http_status == 424
    with pytest.raises(ExternalBlobSourceError):
        add_paper(graph, "a", (outside / "missing").as_uri())
    assert lines(graph) == []


def test_an_operation_has_a_largest_number_of_external_blobs(
    graph: Graph, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = (outside / "a.bin").as_uri()
    monkeypatch.setattr(external, "EXTERNAL_CELLS", 2)
    monkeypatch.setattr(staging, "COPIED_TOGETHER", 1)
    with pytest.raises(ResourceLimitError, match="external blobs of one operation"):
        load(graph, tmp_path, [paper(name, scan=uri) for name in "abc"], "append")
    inserts = " ".join(f'insert Paper {{ doi: "{name}", scan: $u }}' for name in "abc")
    with pytest.raises(ResourceLimitError, match="external blobs of one operation"):
        graph.mutate(f"query q($u: Blob) {{ {inserts} }}", {"u": uri})
    load(graph, tmp_path, [paper(name, scan=uri) for name in "ab"], "append")


def test_too_many_bytes_are_refused_before_they_are_read(
    graph: Graph, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = (outside / "a.bin").as_uri()
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_MAX_BYTES", str(len(DATA)))
    load(graph, tmp_path, [paper("a", scan=uri)], "append")
    monkeypatch.setattr(external, "fetch", None)
    with pytest.raises(ResourceLimitError, match="OMNIGRAPH_EXTERNAL_BLOB_MAX_BYTES"):
        load(graph, tmp_path, [paper("b", scan=uri), paper("c", scan=uri)], "append")
    load(graph, tmp_path, [paper("b", scan=uri), paper("c", scan=uri)], "overwrite")


def test_an_update_that_carries_too_many_bytes_is_refused_before_they_are_read(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        add_paper(graph, name, text_of(bytes(60_000)))
    monkeypatch.setenv("OMNIGRAPH_MUTATION_MAX_BYTES", "100000")
    monkeypatch.setattr("omnigraph.storage.datasets.blob_columns.with_cells", None)
    with (
        Graph.open(graph.uri) as small,
        pytest.raises(ResourceLimitError, match=r"117\.2 KiB, above the limit of 97\.7 KiB"),
    ):
        small.mutate('query q() { update Paper set { title: "t" } where doi >= "a" }')


# ---- HTTP


class _Server(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        status = {"/ok": 200, "/moved": 302, "/gone": 404, "/get-only": 200}[self.path]
        if self.path == "/get-only" and not with_body:
            status = 405
        self.send_response(status)
        self.send_header("Location", "/ok")
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        if with_body:
            self.wfile.write(DATA)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_blob_comes_from_a_server(web: str, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA, external_blobs=[web]) as graph:
        for path in ("/ok", "/get-only"):
            add_paper(graph, path, f"{web}{path}")
            assert graph.read_blob("node:Paper", path, "scan") == DATA
        for path in ("/moved", "/gone"):
            with pytest.raises(ExternalBlobSourceError):
                add_paper(graph, path, f"{web}{path}")
        load(graph, tmp_path, [paper("ref", scan=f"{web}/ok")], "overwrite")
        assert graph.stat_blob("node:Paper", "ref", "scan").uri == f"{web}/ok"


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, external_blobs=["http://127.0.0.1:9"])
    with graph, pytest.raises(ExternalBlobSourceError, match="ConnectError"):
        add_paper(graph, "a", "http://127.0.0.1:9/x")


# ---- Which external addresses are allowed: one normal form, borders of segments, links, credentials, limits


@each_case(
    ("given", "normal"),
    [
        ("HTTPS://Example.ORG:443/a/./b/../c", "https://example.org/a/c"),
        ("http://example.org:80", "http://example.org/"),
        ("http://example.org:8080/x/", "http://example.org:8080/x/"),
        ("https://h/%7Euser/%41%20b", "https://h/~user/A%20b"),
        ("https://h/a?b=c%20d&e", "https://h/a?b=c%20d&e"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("file://localhost//scans//a%23b", "file:///scans/a%23b"),
        ("s3://bucket/deep/käy", "s3://bucket/deep/k%C3%A4y"),
    ],
)
def test_spellings_that_mean_the_same_have_one_normal_form(given: str, normal: str) -> None:
    assert str(normal_form(given)) == normal
    assert str(normal_form(normal)) == normal


@each_case(
    "uri",
    [
        *("", "plain", "file:relative", "file://host/x", "ftp://h/x", "data:,x", "BASE64:AAAA"),
        *("http:///x", "s3:///x", "s3://Bucket/x", "s3://b:80/x", "http://h%41/x", "http://[::1/x"),
        *("https://me:secret@h/x", "https://me@h/x", "s3://id:key@b/x", "http://h:port/x"),
        *("https://h/x?X-Amz-Signature=1", "https://h/x?a=1&TOKEN=2", "https://h/x?sig"),
        *("https://h/x#part", "s3://b/x?versionId=1", "file:///x?y"),
        *("http://h/../x", "http://h/%2e%2e/x", "http://h/a%2Fb", "http://h/a%5Cb", "http://h\\@g/"),
        *("s3://b/a/../b", "s3://b/a//b", "http://h/a//b", "http://h/%00", "http://h/%FF"),
        *("http://h/a b", "http://h/a\nb", " http://h/a"),
    ],
)
def test_what_is_malformed_or_ambiguous_or_secret_has_none(uri: str) -> None:
    with pytest.raises(ValueError):  # the kind matters here, texts are for people
        normal_form(uri)
    with pytest.raises(ExternalBlobPolicyError):
        policy_of(["http://h", "file:///", "s3://b"]).check(uri)


@each_case(
    ("base", "inside", "outside"),
    [
        ("https://h/a", "https://H:443/a", "https://h/ab"),
        ("https://h/a/", "https://h/x/../a/b", "https://h/a/../b"),
        ("https://h", "https://h/anything", "https://h.evil/anything"),
        ("https://h", "https://h/%61", "http://h/a"),
        ("https://h:8443/", "https://h:8443/a", "https://h/a"),
        ("s3://b/p", "s3://b/p/k", "s3://b/pk"),
        ("s3://b", "s3://b/k", "s3://bb/k"),
    ],
)
def test_a_base_ends_at_the_border_of_a_segment(base: str, inside: str, outside: str) -> None:
    policy = policy_of([base])
    assert str(policy.check(inside))
    with pytest.raises(ExternalBlobPolicyError, match="none of the allowed bases"):
        policy.check(outside)


def test_links_are_followed_before_local_paths_are_compared(tmp_path: Path) -> None:
    for name in ("open", "shut"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    (tmp_path / "open" / "escape").symlink_to(tmp_path / "shut")
    (tmp_path / "alias").symlink_to(tmp_path / "open")
    policy = policy_of([(tmp_path / "open").as_uri()])
    assert policy.check((tmp_path / "alias" / "file").as_uri())
    assert policy_of([(tmp_path / "alias").as_uri()]).check((tmp_path / "open" / "file").as_uri())
    for outside in (tmp_path / "shut" / "file", tmp_path / "open" / "escape" / "file", tmp_path):
        with pytest.raises(ExternalBlobPolicyError):
            policy.check(outside.as_uri())
    assert policy_of(["file:///"]).check((tmp_path / "shut" / "file").as_uri())


def test_an_address_has_a_longest_length() -> None:
    policy = policy_of(["https://h"])
    longest = "https://h/" + "x" * (EXTERNAL_URI_BYTES - 10)
    assert str(policy.check(longest)) == longest
    with pytest.raises(ResourceLimitError):
        policy.check(longest + "x")


@each_case("bases", ["https://h", ["nowhere"], ["https://h/?a=b"], [1]])
def test_a_malformed_base_is_refused(bases: list[str]) -> None:
    with pytest.raises(BadRequestError):
        policy_of(bases)


def test_secrets_are_never_shown() -> None:
    uri = "https://me:hush@h/x?X-Amz-Signature=hush#hush"
    assert without_credentials(uri) == "https://h/x"
    assert "hush" not in without_credentials("http://[me:hush@h/x")
    with pytest.raises(ExternalBlobPolicyError) as caught:
        policy_of(["https://h"]).check(uri)
    assert "hush" not in json.dumps(caught.value.to_json())


@pytest.mark.parametrize("text", ["", "https://h", '{"a": 1}', "[1]", '["nowhere"]', "[" * 100_000])
def test_a_variable_that_cannot_be_read_allows_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_BASES", text)
    assert GraphSettings.from_environment().external_blobs.bases == ()
    assert "allows nothing" in caplog.text


def test_the_variable_lists_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_BASES", '["s3://b/p", "https://h"]')
    found = GraphSettings.from_environment().external_blobs.bases
    assert [str(base) for base in found] == ["s3://b/p", "https://h/"]


# ---- A link that is put into the path of an external blob while it is read leads nowhere


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A base with a file, and a secret of the same name outside of it."""
    for name, data in (("open", b"scan"), ("shut", b"secret")):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / "file").write_bytes(data)
    return tmp_path


def swap_folder(world: Path) -> None:
    (world / "open" / "folder").rename(world / "was")
    (world / "open" / "folder").symlink_to(world / "shut" / "folder")


def swap_file(world: Path) -> None:
    (world / "open" / "folder" / "file").unlink()
    (world / "open" / "folder" / "file").symlink_to(world / "shut" / "folder" / "file")


SWAPS = pytest.mark.parametrize("swap", [swap_folder, swap_file])


@SWAPS
@pytest.mark.parametrize("read", [probe, lambda uri: fetch(uri, 100)], ids=["probe", "fetch"])
def test_a_link_after_the_check_is_refused(
    world: Path, swap: Callable[[Path], None], read: Callable[..., object]
) -> None:
    policy = policy_of([(world / "open").as_uri()])
    allowed = policy.check((world / "open" / "folder" / "file").as_uri())
    swap(world)
    with pytest.raises(ExternalBlobPolicyError, match="none of the allowed bases"):
        read(allowed)


@SWAPS
def test_a_link_between_the_look_and_the_opening_is_not_followed(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of([(world / "open").as_uri()])
    allowed = policy.check((world / "open" / "folder" / "file").as_uri())
    look = external.real_parts

    def look_then_swap(uri: object) -> tuple[str, ...]:
        parts = look(uri)
        monkeypatch.setattr(external, "real_parts", look)
        swap(world)
        return parts

    monkeypatch.setattr(external, "real_parts", look_then_swap)
    with pytest.raises(ExternalBlobSourceError, match="changed while it was opened"):
        fetch(allowed, 100)


@SWAPS
def test_a_link_after_the_opening_changes_nothing(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = policy_of([(world / "open").as_uri()]).check((world / "open" / "folder" / "file").as_uri())
    status = os.fstat

    def swap_then_status(descriptor: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", status)
        swap(world)
        return status(descriptor)

    monkeypatch.setattr(os, "fstat", swap_then_status)
    assert fetch(allowed, 100) == b"scan"


def test_an_address_that_no_policy_allowed_is_not_opened(world: Path) -> None:
    with pytest.raises(ExternalBlobPolicyError):
        fetch(normal_form((world / "open" / "folder" / "file").as_uri()), 100)


def test_links_that_stay_below_the_base_are_followed(world: Path) -> None:
    (world / "open" / "alias").symlink_to(world / "open" / "folder")
    (world / "base").symlink_to(world / "open")
    for base in ("open", "base"):
        policy = policy_of([(world / base).as_uri()])
        assert fetch(policy.check((world / "base" / "alias" / "file").as_uri()), 100) == b"scan"


def test_a_folder_or_a_missing_file_is_told(world: Path) -> None:
    policy = policy_of([(world / "open").as_uri()])
    for name, message in (
        ("folder", "is not a file"),
        ("folder/none", "No such file"),
        ("folder/file/more", "Not a directory"),
    ):
        with pytest.raises(ExternalBlobSourceError, match=message):
            fetch(policy.check((world / "open" / name).as_uri()), 100)


@SWAPS
def test_a_mutation_takes_nothing_from_behind_the_link(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = (world / "open").as_uri()
    with Graph.init(world / "g.omni", SCHEMA, external_blobs=[base]) as graph:
        opened = external._open_parts

        def swap_then_open(*args: object) -> int:
            monkeypatch.setattr(external, "_open_parts", opened)
            swap(world)
            return opened(*args)

        monkeypatch.setattr(external, "_open_parts", swap_then_open)
        with pytest.raises(ExternalBlobSourceError):
            add_paper(graph, "10.1", (world / "open" / "folder" / "file").as_uri())
        assert graph.query("query q() { match { $p: Paper } return { $p.doi as d } }").to_pylist() == []
