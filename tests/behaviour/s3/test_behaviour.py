"""One suite over two storages: a graph behaves the same on a disk and on S3."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, from_url

from faults.s3.test_recovery import expire_lease
from omnigraph.api.results import BlobKind
from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE, Failpoint, FailpointError
from omnigraph.core.ids import TableKey
from omnigraph.embedding import row_vectors
from omnigraph.embedding.client import EmbeddingSettings, ProviderName
from omnigraph.embedding.row_vectors import KeptVectors, kept_address
from omnigraph.errors import (
    AlreadyInitializedError,
    BadRequestError,
    BlobRangeError,
    BranchNotFoundError,
    ConflictKind,
    ExpectedVersionMismatchError,
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    HistoricalVersionReclaimedError,
    InitializationClaimedError,
    InputFileError,
    MergeConflictsError,
    NotFoundError,
    PreconditionFailedError,
)
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.optimize import FOLD_ACTOR
from omnigraph.maintenance.verify import FileStatus
from omnigraph.storage.location import INIT_CLAIM, parse_location
from omnigraph.storage.locks import LeaseCommitLock, held_file
from omnigraph.storage.objects import ControlObjects, list_files
from support.portable_folders import add, build, everything
from support.s3_graphs import ADD_CITING, ADD_NOTE, ADD_PAPER, ADD_SCAN, FORGET, READ, SCHEMA, check_graph, rows, values


@pytest.fixture
def graph(root: str) -> Graph:
    """A graph with papers a and b, and b cites a."""
    made = Graph.init(root, SCHEMA, actor="me")
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    return made


def test_a_new_graph_is_empty_and_opens_again(root: str) -> None:
    with Graph.init(root, SCHEMA, actor="me") as graph:
        assert graph.uri == root
        (genesis,) = graph.commits()
        assert (genesis.graph_version, genesis.actor, genesis.parent_id) == (1, "me", None)
    with Graph.open(root) as graph:
        assert graph.schema == SCHEMA
        assert graph.branches() == ["main"]
        assert graph.snapshot().commit_id == genesis.commit_id
        assert {pin.row_count for pin in graph.snapshot().pins.values()} == {0}
    check_graph(root)


def test_a_second_init_is_refused_and_leaves_the_graph_alone(graph: Graph, root: str) -> None:
    before = graph.snapshot()
    with pytest.raises(AlreadyInitializedError, match="it holds a graph of 3 types with 3 entities"):
        Graph.init(root, "node Other { x: String @key }")
    with pytest.raises(AlreadyInitializedError, match="it holds a graph of 3 types with 3 entities"):
        Graph.init(root, "node Other { x: String @key }", force=True)
    with Graph.open(root) as again:
        assert again.schema == SCHEMA
        assert again.snapshot() == before


def test_an_init_beside_a_claimed_one_is_refused(root: str) -> None:
    location = parse_location(root)
    objects = ControlObjects(location, durable=False)
    with ExitStack() as other:
        if location.is_local:
            location.path.mkdir()
            other.enter_context(held_file(location.path / INIT_CLAIM))
        else:
            other.enter_context(LeaseCommitLock(objects, INIT_CLAIM, lease_s=2, renewal_s=0.05).held(0))
        with pytest.raises(InitializationClaimedError):
            Graph.init(root, SCHEMA)
    Graph.init(root, SCHEMA).close()
    assert objects.read(INIT_CLAIM) is None
    check_graph(root)


@pytest.mark.parametrize("left", [b'{"operation_id": "x"}', b"{", b'{"owner": "dead", "expires_at": 1}'])
def test_the_claim_of_a_dead_init_blocks_nobody(root: str, left: bytes) -> None:
    objects = ControlObjects(parse_location(root), durable=False)
    objects.write(INIT_CLAIM, left)
    Graph.init(root, SCHEMA).close()
    assert objects.read(INIT_CLAIM) is None
    check_graph(root)


def test_where_no_graph_is_opening_says_how_to_make_one(root: str) -> None:
    for read_only in (False, True):
        with pytest.raises(NotFoundError, match=r"there is no graph at .* `omnigraph init`"):
            Graph.open(root, read_only=read_only)
    Graph.init(root, SCHEMA).close()


def test_inserts_upserts_updates_and_cascading_deletes_are_visible_together(graph: Graph, root: str) -> None:
    graph.mutate(ADD_PAPER, {"doi": "a", "title": "A2"})
    updated = graph.mutate(READ, {"doi": "b", "n": 3})
    assert (updated.affected_nodes, updated.affected_edges) == (1, 0)
    assert rows(graph, "node:Paper", ["doi", "title", "reads"]) == [
        {"doi": "a", "title": "A2", "reads": None},
        {"doi": "b", "title": None, "reads": 3},
    ]
    deleted = graph.mutate(FORGET, {"doi": "a"})
    assert (deleted.affected_nodes, deleted.affected_edges) == (1, 1)
    assert values(graph, "node:Paper", "doi") == ["b"]
    assert rows(graph, "edge:Cites", ["src", "dst"]) == []
    check_graph(root)


def test_a_refused_mutation_leaves_no_trace(graph: Graph, root: str) -> None:
    before = graph.snapshot()
    with pytest.raises(BadRequestError, match="not found in Paper"):
        graph.mutate(ADD_CITING, {"doi": "c", "to": "nobody"})
    assert graph.snapshot() == before
    assert graph.mutate(READ, {"doi": "nobody", "n": 1}).commit is None
    assert graph.snapshot() == before
    check_graph(root)


def test_snapshots_and_commits_tell_the_history(graph: Graph) -> None:
    newest, middle, genesis = graph.commits()
    assert [c.graph_version for c in (genesis, middle, newest)] == [1, 2, 3]
    assert newest.tables == ("node:Paper", "edge:Cites")
    assert graph.commit(middle.commit_id) == middle
    assert [c.commit_id for c in graph.commits(actor="me")] == [genesis.commit_id]
    snapshot = graph.snapshot()
    assert snapshot.commit_id == newest.commit_id
    assert {key: pin.row_count for key, pin in snapshot.pins.items()} == {
        "node:Paper": 2,
        "node:Note": 0,
        "edge:Cites": 1,
    }
    with pytest.raises(NotFoundError):
        graph.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_an_open_graph_sees_what_another_one_writes(graph: Graph, root: str) -> None:
    with Graph.open(root) as other:
        other.mutate(ADD_PAPER, {"doi": "c", "title": "C"})
        assert values(graph, "node:Paper", "doi") == ["a", "b", "c"]
        graph.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
        assert values(other, "node:Paper", "doi") == ["a", "b", "c", "d"]
    check_graph(root)


def test_a_stale_condition_is_refused(graph: Graph) -> None:
    seen = graph.snapshot().commit_id
    assert graph.mutate(READ, {"doi": "a", "n": 1}, if_commit=seen).commit is not None
    with pytest.raises(PreconditionFailedError):
        graph.mutate(READ, {"doi": "a", "n": 2}, if_commit=seen)
    assert values(graph, "node:Paper", "reads") == [1, None]


def test_a_branch_forks_only_the_tables_it_writes(graph: Graph, root: str) -> None:
    graph.create_branch("team/x")
    assert graph.snapshot("team/x").pins == graph.snapshot().pins
    graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}, branch="team/x")
    graph.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
    pins = graph.snapshot("team/x").pins
    assert pins["node:Paper"].branch == "team/x"
    assert pins["edge:Cites"].branch is None
    assert values(graph, "node:Paper", "doi", "team/x") == ["a", "b", "c"]
    assert values(graph, "node:Paper", "doi") == ["a", "b", "d"]
    graph.mutate(FORGET, {"doi": "a"}, branch="team/x")
    assert rows(graph, "edge:Cites", ["src"], "team/x") == []
    assert rows(graph, "edge:Cites", ["src"]) == [{"src": "b"}]
    check_graph(root)


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_branch_of_a_branch_starts_where_its_base_is(graph: Graph, root: str) -> None:
    graph.create_branch("one")
    graph.mutate(ADD_NOTE, {"text": "one"}, branch="one")
    graph.create_branch("two", "one")
    graph.mutate(ADD_NOTE, {"text": "two"}, branch="two")
    graph.mutate(ADD_NOTE, {"text": "one again"}, branch="one")
    assert values(graph, "node:Note", "text", "two") == ["one", "two"]
    assert values(graph, "node:Note", "text", "one") == ["one", "one again"]
    assert values(graph, "node:Note", "text") == []
    with Graph.open(root) as again:
        assert again.branches() == ["main", "one", "two"]
        assert values(again, "node:Note", "text", "two") == ["one", "two"]
    with pytest.raises(BranchNotFoundError):
        graph.create_branch("three", "nowhere")
    with pytest.raises(BadRequestError, match="exists already"):
        graph.create_branch("two")
    check_graph(root)


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_a_blob_cell_comes_back_byte_for_byte(graph: Graph, root: str, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    text = "base64:" + base64.b64encode(data).decode()
    graph.mutate(ADD_SCAN, {"doi": "s", "scan": text})
    with Graph.open(root, read_only=True) as reader:
        assert reader.read_blob("node:Paper", "s", "scan") == data
        if size:
            assert reader.read_blob("node:Paper", "s", "scan", offset=1, length=3) == data[1:4]
            with pytest.raises(BlobRangeError):
                reader.read_blob("node:Paper", "s", "scan", offset=size)
        with pytest.raises(NotFoundError):
            reader.read_blob("node:Paper", "a", "scan")


def test_a_read_only_graph_refuses_to_write(graph: Graph, root: str) -> None:
    with Graph.open(root, read_only=True) as reader:
        with pytest.raises(BadRequestError, match="reading only"):
            reader.mutate(ADD_NOTE, {"text": "x"})
        assert values(reader, "node:Paper", "doi") == ["a", "b"]


def test_many_commits_fold_the_catalog_and_lose_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.commit.publisher.FOLD_THRESHOLD", 6)
    with Graph.init(root, SCHEMA) as graph:
        told = [graph.mutate(ADD_NOTE, {"text": f"{n:02}"}).commit for n in range(9)]
    with Graph.open(root) as graph:
        history = graph.commits()[::-1]
        assert [c.commit_id for c in history[1:]] == [c.commit_id for c in told if c is not None]
        assert values(graph, "node:Note", "text") == [f"{n:02}" for n in range(9)]
    check_graph(root)


def test_threads_that_insert_pairs_lose_and_double_nothing(graph: Graph, root: str) -> None:
    barrier = Barrier(3)

    def writer(who: int) -> list[str]:
        with Graph.open(root) as own:
            barrier.wait()
            made = [own.mutate(ADD_CITING, {"doi": f"{who}-{n}", "to": "a"}).commit for n in range(2)]
        return [commit.commit_id for commit in made if commit is not None]

    with ThreadPoolExecutor(3) as pool:
        told = [commit for report in pool.map(writer, range(3)) for commit in report]
    names = [f"{who}-{n}" for who in range(3) for n in range(2)]
    assert values(graph, "node:Paper", "doi") == sorted([*names, "a", "b"])
    assert values(graph, "edge:Cites", "why") == sorted([*names, "b"])
    history = [commit.commit_id for commit in graph.commits()]
    assert len(told) == 6
    assert sorted(history[:6]) == sorted(told)
    assert graph.recoveries() == []
    check_graph(root)


@pytest.mark.slow  # threads that insert pairs race in the default run
def test_threads_that_count_lose_no_acknowledged_update(graph: Graph, root: str) -> None:
    barrier = Barrier(3)

    def writer(_: int) -> int:
        told = 0
        with Graph.open(root) as own:
            barrier.wait()
            while told < 2:
                seen = own.snapshot()
                count = rows(own, "node:Paper", ["doi", "reads"])[0]["reads"] or 0
                try:
                    own.mutate(READ, {"doi": "a", "n": count + 1}, if_commit=seen.commit_id)
                except (PreconditionFailedError, ExpectedVersionMismatchError):
                    continue
                told += 1
        return told

    with ThreadPoolExecutor(3) as pool:
        told = sum(pool.map(writer, range(3)))
    assert rows(graph, "node:Paper", ["doi", "reads"])[0] == {"doi": "a", "reads": told}
    assert told == 6
    assert graph.recoveries() == []
    check_graph(root)


# ---- Branches, merges and the change feed behave the same on a disk and on S3


@pytest.fixture
def branched(root: str) -> Graph:
    """A graph with papers a and b, and b cites a; a branch where c cites b and a new title of a."""
    made = Graph.init(root, SCHEMA, actor="me")
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    made.create_branch("work")
    made.mutate(ADD_CITING, {"doi": "c", "to": "b"}, branch="work")
    made.mutate('query q() { update Paper set { title: "new" } where doi = "a" }', branch="work")
    return made


def ids(branched: Graph, branch: str = "main") -> list[object]:
    found = branched.query("query q() { match { $p: Paper } return { $p.doi as doi } order { doi } }", branch=branch)
    return [row["doi"] for row in found.to_pylist()]


def test_a_branch_is_merged_and_deleted(branched: Graph, root: str) -> None:
    branched.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
    assert {change.id for change in branched.diff("main", "work")} >= {"a", "c", "d"}
    result = branched.merge("work", delete_branch=True)
    assert (result.outcome, result.branch_deleted) == ("merged", True)
    assert ids(branched) == ["a", "b", "c", "d"]
    assert branched.branches() == ["main"]
    assert result.commit is not None
    changed = branched.changes(result.commit.commit_id, kinds=["node"])
    assert [(change.op, change.id) for change in changed.changes] == [("update", "a"), ("insert", "c")]
    with pytest.raises(NotFoundError, match="deleted"):
        branched.commit(str(result.commit.merged_parent_id))
    check_graph(root, has_deleted=True)


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_conflict_leaves_the_target_alone(branched: Graph, root: str) -> None:
    branched.mutate(FORGET, {"doi": "a"})
    before = branched.snapshot()
    with pytest.raises(MergeConflictsError) as caught:
        branched.merge("work")
    assert [item.kind for item in caught.value.conflicts] == [ConflictKind.DELETE_VS_UPDATE]
    assert branched.snapshot() == before
    assert branched.merge("work", strategy="ours").outcome == "merged"
    assert ids(branched) == ["b", "c"]
    check_graph(root)


def test_a_feed_goes_on_behind_a_merge(branched: Graph) -> None:
    cursor = branched.feed().cursor
    branched.merge("work")
    page = branched.feed(cursor=cursor)
    assert [len(block.changes) for block in page.blocks] == [3]
    assert page.caught_up


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_name_is_used_again(branched: Graph, root: str) -> None:
    branched.delete_branch("work")
    branched.create_branch("work")
    assert ids(branched, "work") == ["a", "b"]
    branched.mutate(ADD_PAPER, {"doi": "z", "title": "Z"}, branch="work")
    assert ids(branched, "work") == ["a", "b", "z"]
    assert branched.merge("work").outcome == "fast_forward"
    assert ids(branched) == ["a", "b", "z"]
    check_graph(root, has_deleted=True)


# ---- Cleanup on an object store: nobody can tell who reads or writes, so age decides what else stays


TITLES = "query q() { match { $p: Paper } return { $p.doi as doi } }"


def test_old_versions_go_and_heads_and_branches_stay(root: str, monkeypatch: pytest.MonkeyPatch):
    with Graph.init(root, SCHEMA) as graph:
        for doi in "abcd":
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        graph.create_branch("dev", base=graph.commits()[2].commit_id)
        graph.mutate(ADD_PAPER, {"doi": "x", "title": "x"}, branch="dev")
        before = sum(file.size_bytes for file in list_files(parse_location(root), ""))
        if root.startswith("s3://"):
            report = graph.cleanup(keep=3, confirm=True)
            assert report.kept_because["reader"] == 6, "an hour of grace"
            assert len(graph.query(TITLES, snapshot=graph.commits()[3].commit_id)) == 1
        monkeypatch.setenv("OMNIGRAPH_READER_GRACE", "0s")
        preview = graph.cleanup(keep=3, commits=True)
        report = graph.cleanup(keep=3, commits=True, confirm=True)
        assert report.errors == ()
        assert report.old_versions_removed == preview.old_versions_removed > 0
        after = sum(file.size_bytes for file in list_files(parse_location(root), ""))
        assert before - after >= report.bytes_removed - report.catalog_bytes_removed > 0
    with Graph.open(root) as graph:
        assert values(graph, "node:Paper", "doi") == list("abcd")
        assert values(graph, "node:Paper", "doi", "dev") == ["a", "b", "x"]
        states = []
        for commit in graph.commits():
            try:
                states.append(len(graph.query(TITLES, snapshot=commit.commit_id)))
            except HistoricalVersionReclaimedError:
                states.append(None)
        assert states[:3] == [4, 3, 2]
        graph.merge("dev", engine="local")
        assert values(graph, "node:Paper", "doi") == [*"abcd", "x"]
        assert graph.pending_recoveries() == []
        assert graph.doctor().is_healthy
        with graph._core.environment.window():
            (lock,) = [item for item in graph.doctor().findings if item.check == "lock"]
        assert (lock.severity, "writer" in lock.message) == ("info", True)


# ---- A graph with branches is copied from disk to an object store, inside of it, and back: it reads the same


#: A fork of a fork: it reads files of everything below.
DEEPEST = ("draft-2/deep",)


def copy(source: str, target: str) -> None:
    """As a tool that knows nothing about graphs."""
    stores = [
        from_url(place) if place.startswith("s3://") else LocalStore(place, mkdir=True) for place in (source, target)
    ]
    for batch in obstore.list(stores[0]):
        for meta in batch:
            obstore.put(stores[1], meta["path"], bytes(obstore.get(stores[0], meta["path"]).bytes()))


def test_a_graph_travels_between_disk_and_object_store(s3_root: str, tmp_path: Path) -> None:
    disk, back = str(tmp_path / "g.omni"), str(tmp_path / "back.omni")
    build(disk, tmp_path / "outside.bin")
    with Graph.open(disk, read_only=True) as graph:
        expected = everything(graph, DEEPEST)
    copy(disk, s3_root)
    with Graph.open(s3_root, read_only=True) as graph:
        assert everything(graph, DEEPEST) == expected
    with Graph.open(s3_root) as graph:
        add(graph, "s3", "draft-2/deep")
        expected = everything(graph, DEEPEST)
    copy(s3_root, f"{s3_root}.copy")
    copy(s3_root, back)
    for place in (f"{s3_root}.copy", back):
        with Graph.open(place, read_only=True) as graph:
            assert everything(graph, DEEPEST) == expected
    with Graph.open(back) as graph:
        add(graph, "back", "draft-2/deep")
        graph.cleanup(keep=3, confirm=True)
        assert graph.doctor().is_healthy


# ---- Optimize, folding and repair of graphs on disk and on S3


PAPER = TableKey("node:Paper")
MAINTENANCE_TITLES = "query q() { match { $p: Paper } return { $p.title as t } order { $p.title } }"


def test_an_export_to_an_object_store_is_what_an_export_to_a_disk_is(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one file, in parts and as Parquet; in requests of their own and in one of many parts; nothing is replaced."""
    bucket = s3_root.rpartition("/")[0]
    place = parse_location(f"{bucket}/out")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
        for name, options, limit in (
            ("all.jsonl", {}, 64 << 20),
            ("large.jsonl", {}, 0),
            ("parts", {"parts": True}, 64 << 20),
            ("parquet", {"format": "parquet"}, 64 << 20),
        ):
            monkeypatch.setattr("omnigraph.storage.uploads._ONE_REQUEST_BYTES", limit)
            local = graph.export(tmp_path / name, engine="local", **options)
            remote = graph.export(f"{place}/{name}", engine="local", **options)
            assert remote.files == tuple(f.replace(str(tmp_path), str(place)) for f in local.files)
            assert (remote.target, remote.nodes, remote.edges) == (f"{place}/{name}", local.nodes, local.edges)
            for file, key in zip(local.files, remote.files, strict=True):
                data = bytes(obstore.get(from_url(bucket), key.removeprefix(f"{bucket}/")).bytes())
                assert data == Path(file).read_bytes() or file.endswith(".parquet")
            with pytest.raises(BadRequestError, match="an export replaces nothing"):
                graph.export(f"{place}/{name}", engine="local", **options)
        # A name that is taken meanwhile: what went up before is deleted, what was there stays.
        monkeypatch.setattr("omnigraph.pipeline.export.files.holds_objects", lambda _: False)
        taken = f"out/late/{Path(graph.export(tmp_path / 'p2', engine='local', parts=True).files[-1]).name}"
        obstore.put(from_url(bucket), taken, b"mine")
        with pytest.raises(BadRequestError, match="an export replaces nothing"):
            graph.export(f"{place}/late", engine="local", parts=True)
        assert [file.name for file in list_files(parse_location(f"{place}/late"), "")] == [Path(taken).name]


def test_a_quarantine_in_an_object_store_is_corrected_and_loaded_from_there(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_root.rpartition("/")[0]
    store, bad = from_url(bucket), f"{bucket}/kept/bad"
    table, records = tmp_path / "papers.csv", tmp_path / "in.jsonl"
    table.write_text("doi,title\na,A\nb,B,C\n")
    records.write_text('{"type": "Paper", "data": {"doi": "x", "title": 1}}\n')
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        mapping = {"nodes": {"Paper": {"source": str(table)}}}
        with monkeypatch.context() as patch:
            patch.setenv(failpoints.VARIABLE, "before_sidecar=raise")
            failpoints.reset()
            with pytest.raises(RuntimeError):
                graph.load(mapping=mapping, mode="append", quarantine=bad)
        assert list(list_files(parse_location(bad), "")) == []
        receipt = graph.load(mapping=mapping, mode="append", quarantine=bad)
        assert receipt.quarantine is not None
        assert receipt.quarantine.folder == bad
        assert f"--mapping {bad}/mapping.yaml" in (receipt.quarantine.command or "")
        with pytest.raises(BadRequestError, match="a quarantine replaces nothing"):
            graph.load(mapping=mapping, mode="append", quarantine=bad)
        kept = bytes(obstore.get(store, "kept/bad/nodes/Paper/papers.csv").bytes())
        assert kept == b"doi,title\nb,B,C\n"
        obstore.put(store, "kept/bad/nodes/Paper/papers.csv", b"doi,title\nb,B\n")
        assert graph.load(mapping=f"{bad}/mapping.yaml", mode="append").nodes_loaded == {"Paper": 1}
        graph.load(records, mode="append", quarantine=f"{bucket}/kept/more")
        obstore.put(store, "kept/more/in.jsonl", b'{"type": "Paper", "data": {"doi": "x", "title": "1"}}\n')
        assert graph.load(f"{bucket}/kept/more", mode="append").nodes_loaded == {"Paper": 1}
        with pytest.raises(InputFileError):
            graph.load(mapping=f"{bucket}/kept/none.yaml", mode="append")


def test_a_graph_is_folded_and_optimized(root: str, monkeypatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FOLD_FRAGMENTS", "2")
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c", "d"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        assert [commit.actor for commit in graph.commits()].count(FOLD_ACTOR) == 1
        before = graph.query(MAINTENANCE_TITLES).to_pylist()
        report = graph.optimize()
        assert report.commit is not None
        assert graph.optimize().commit is None
        assert graph.pending_indexes() == []
        assert graph.query(MAINTENANCE_TITLES).to_pylist() == before
        assert graph._core.open_table(graph.snapshot().pins[PAPER]).fragment_count() == 1
        assert {str(table.classification) for table in graph.repair().tables} == {"no_drift"}
        path = graph.snapshot().pins[PAPER].location
    names = [file.name for file in list_files(parse_location(root), path)]
    assert not [name for name in names if "/_versions/d" in name], "no private version is left"


# ---- Blobs of a graph on S3, and external ones that lie there


BLOBS_SCHEMA = "node Paper { doi: String @key  scan: Blob? }"
ADD = "query q($d: String, $s: Blob) { insert Paper { doi: $d, scan: $s } }"
DATA = bytes(range(256)) * 1_000


def test_blobs_are_copied_from_s3_or_referred_to(s3_root: str, tmp_path: Path) -> None:
    bucket = s3_root.rpartition("/")[0]
    key = "out side/a+b.bin"
    obstore.put(from_url(bucket), key, DATA)
    uri = f"{bucket}/{key.replace(' ', '%20')}"
    bases = [f"{bucket}/out%20side"]
    with Graph.init(s3_root, BLOBS_SCHEMA, external_blobs=bases) as graph:
        graph.mutate(ADD, {"d": "copied", "s": uri})
        assert graph.read_blob("node:Paper", "copied", "scan", offset=255, length=2) == b"\xff\x00"
        tag = graph.stat_blob("node:Paper", "copied", "scan").etag
        assert graph.read_blob("node:Paper", "copied", "scan") == DATA
        with pytest.raises(ExternalBlobSourceError):
            graph.mutate(ADD, {"d": "x", "s": f"{uri}-missing"})
        with pytest.raises(ExternalBlobPolicyError):
            graph.mutate(ADD, {"d": "x", "s": f"{bucket}/elsewhere"})
        lines = tmp_path / "in.jsonl"
        lines.write_text(json.dumps({"type": "Paper", "data": {"doi": "kept", "scan": uri}}))
        graph.load(lines, mode="overwrite", engine="local")
        info = graph.stat_blob("node:Paper", "kept", "scan")
        assert (info.kind, info.uri) == (BlobKind.EXTERNAL, uri)
        graph.load(lines, mode="merge", engine="local")
        assert graph.stat_blob("node:Paper", "kept", "scan").etag == tag


# ---- Vectors of rows are kept, committed and found again on a disk and on S3 alike


EMBEDDINGS_SCHEMA = 'node Note { slug: String @key  body: String?  vec: Vector(4)? @embed("body") }'


def test_a_run_that_failed_goes_on_and_leaves_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failpoints.reset()
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")
    monkeypatch.setattr(row_vectors, "FEW_ROWS", 0)
    monkeypatch.setattr(row_vectors, "SMALL_PART", 1000)
    with Graph.init(root, EMBEDDINGS_SCHEMA) as graph:
        graph.mutate('query add() { insert Note { slug: "a", body: "x" } insert Note { slug: "b", body: "y" } }')
        monkeypatch.setenv(VARIABLE, f"{Failpoint.EMBED_STAGED}=raise")
        with pytest.raises(FailpointError):
            graph.embed(engine="local")
        monkeypatch.delenv(VARIABLE)
        result = graph.embed(engine="local")
        assert (result.embedded, result.reused) == (0, 2)
        assert graph.embed(engine="local").commit is None
    settings = EmbeddingSettings(provider=ProviderName.MOCK)
    assert KeptVectors(kept_address(root, settings, 4)).parts() == ()


# ---- Checksums and `verify` of a graph in an object store


VERIFY_SCHEMA = "node A { k: String @key  n: I64? @index }"


def test_objects_are_recorded_and_compared(s3_root: str) -> None:
    with Graph.init(s3_root, VERIFY_SCHEMA) as graph:
        graph.mutate('query q() { insert A { k: "x", n: 1 } }')
        graph.create_branch("side")
        graph.mutate('query q() { insert A { k: "y", n: 2 } }', branch="side")
        graph.ensure_indices()
    report = Graph.verify_at(s3_root)
    assert report.is_sound, report.problems
    assert report.counts()[FileStatus.UNRECORDED] == 0

    store = from_url(s3_root)
    # Not one of the catalog, which may become unreadable as a whole.
    files = [item.name for item in report.files if item.name.startswith("nodes/")]
    name = next(name for name in files if name.endswith(".lance"))
    data = bytearray(bytes(obstore.get(store, name).bytes()))
    data[len(data) // 2] ^= 1
    obstore.put(store, name, bytes(data))
    assert [(item.name, item.status) for item in Graph.verify_at(s3_root).problems] == [(name, FileStatus.MISMATCH)]


# ---- Schema changes on S3: columns, new, renamed, dropped and destroyed tables, and a change that died


#: A property becomes required under another name, others come and go; one type is new, one renamed, one dropped.
WANTED = """
node Article @rename_from("Paper") {
    doi: String @key  name: String @rename_from("title")  reads: I64?  lang: String
}
node Tag { word: String @key }
edge Cites: Article -> Article { why: String?  weight: F32? }
"""
BACKFILL = {"Article.name": '"untitled"', "Article.lang": '"en"'}
ARTICLES = [{"doi": "a", "name": "A", "lang": "en"}, {"doi": "b", "name": "untitled", "lang": "en"}]


def change(papers: Graph, **options: Any) -> Any:
    return papers.apply_schema(WANTED, backfill=BACKFILL, engine="local", actor="me", **options)


def names_below(root: str) -> list[str]:
    return [file.name for file in list_files(parse_location(root), "")]


def check_changed(root: str) -> None:
    """The change is there as a whole, and nothing else of it."""
    with Graph.open(root, read_only=True) as papers:
        assert papers.schema == WANTED
        assert set(papers.snapshot().pins) == {"node:Article", "node:Tag", "edge:Cites"}
        assert rows(papers, "node:Article", ["doi", "name", "lang"]) == ARTICLES
    assert [name for name in names_below(root) if name.endswith(".staging")] == []
    check_graph(root)


@pytest.fixture
def papers(s3_root: str) -> Graph:
    """A graph with two papers, one of them citing, and a note."""
    return populated(s3_root)


def populated(root: str) -> Graph:
    made = Graph.init(root, SCHEMA)
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    made.mutate(ADD_NOTE, {"text": "hello"})
    return made


@pytest.mark.parametrize(
    "allow_data_loss", [pytest.param(False, id="soft", marks=pytest.mark.slow), pytest.param(True, id="hard")]
)
def test_a_change_with_everything_happens_in_one_commit(papers: Graph, s3_root: str, allow_data_loss: bool) -> None:
    before = papers.snapshot()
    result = change(papers, allow_data_loss=allow_data_loss)
    assert papers.snapshot().commit_id == result.commit.commit_id
    assert result.commit.parent_id == before.commit_id
    check_changed(s3_root)
    assert not change(papers, allow_data_loss=allow_data_loss).applied
    notes = "query all() { match { $n: Note } return { $n.text as text } }"
    left = [name for name in names_below(s3_root) if name.startswith(before.pins["node:Note"].location)]
    if allow_data_loss:
        assert [name.rpartition("/")[2] for name in left] == ["_reclaimed"]
        with pytest.raises(HistoricalVersionReclaimedError):
            papers.query(notes, snapshot=before.commit_id).to_pylist()
    else:
        found = papers.query(notes, snapshot=before.commit_id)
        assert found.to_pylist() == [{"text": "hello"}]
    papers.mutate('query add() { insert Article { doi: "c", name: "C", lang: "no" } }')
    assert values(papers, "node:Article", "doi") == ["a", "b", "c"]
    check_graph(s3_root)


@pytest.mark.parametrize(("place", "happens"), [("after_table_commit", False), ("before_publish", True)])
def test_a_change_that_fails_settles_itself(
    papers: Graph, s3_root: str, place: str, happens: bool, fail_at: Callable[[str | None], None]
) -> None:
    fail_at(place)
    if happens:
        assert change(papers).applied
    else:
        with pytest.raises(FailpointError):
            change(papers)
    fail_at(None)
    (record,) = papers.recoveries()
    assert record.recovery_kind == ("RolledForward" if happens else "RolledBack")
    assert (papers.schema == WANTED) is happens
    assert change(papers).applied is not happens
    check_changed(s3_root)


KILLED = """
import sys
from omnigraph.graph.graph import Graph
from behaviour.s3.test_behaviour import change
change(Graph.open(sys.argv[1]), allow_data_loss=True)
"""


def kill_a_change(root: str, place: str) -> None:
    """A process that dies at a named place of its change, with the commit lock in its hands."""
    tests = str(Path(__file__).parents[2])
    environment = os.environ | {VARIABLE: f"{place}=kill", "PYTHONPATH": tests}
    done = subprocess.run([sys.executable, "-c", KILLED, root], env=environment, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.slow  # a write whose process died shows the same in the default run
def test_a_change_whose_process_died_on_s3_is_completed_when_its_lease_is_over(s3_root: str) -> None:
    populated(s3_root).close()
    kill_a_change(s3_root, "before_promotion@2")
    with Graph.open(s3_root, read_only=True) as reader:
        # Published, but its files do not have their names yet.
        assert reader.schema == WANTED
        assert rows(reader, "node:Article", ["doi", "name", "lang"]) == ARTICLES
    expire_lease(s3_root)
    with Graph.open(s3_root) as fresh:
        (record,) = fresh.recoveries()
        assert (record.recovery_kind, record.recovery_for_actor) == ("RolledForward", "me")
    check_changed(s3_root)
