"""Failures in every phase of a write on S3: all or nothing, and the next write works. For disks see `faults/crash`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.commit.attempt import StagedTable, discard_staged
from omnigraph.commit.environment import open_environment
from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import VARIABLE, Failpoint, FailpointError
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import LoadKeyConflictError, RecoveryRequiredError, RetryableCommitConflictError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.doctor import _check_leftovers
from omnigraph.maintenance.findings import Inspection
from omnigraph.pipeline.load import job as stages
from omnigraph.storage.answers import new_answer_folder, write_answer
from omnigraph.storage.datasets.compaction import stage_compaction
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.staged import commit_staged, stage_append
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.datasets.versions import create_fork, find_orphans, list_dataset, remove_files
from omnigraph.storage.location import GraphLocation, parse_location
from omnigraph.storage.objects import ControlObjects, list_files
from support.s3_graphs import (
    ADD_CITING,
    ADD_NOTE,
    ADD_PAPER,
    ADD_SCAN,
    READ,
    SCHEMA,
    add_b,
    check_graph,
    check_whole,
    forget_a,
    interleave,
    make_world,
    rows,
    values,
)
from support.tables import compact, rewrite


@pytest.fixture
def graph(s3_root: str) -> Graph:
    """A graph with one paper."""
    made = Graph.init(s3_root, SCHEMA)
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    return made


def objects_of(uri: str) -> ControlObjects:
    return ControlObjects(parse_location(uri), durable=False)


def check_next_write(uri: str, papers: list[str]) -> None:
    """A fresh open writes at once, and everything fits."""
    with Graph.open(uri) as fresh:
        assert values(fresh, "node:Paper", "doi") == papers
        assert values(fresh, "edge:Cites", "src") == [doi for doi in papers if doi != "a"]
        receipt = fresh.mutate(ADD_CITING, {"doi": "z", "to": "a"}).commit
        assert receipt is not None
        assert fresh.snapshot().commit_id == receipt.commit_id
        assert values(fresh, "node:Paper", "doi") == [*papers, "z"]
    check_graph(uri)


#: The place of a failure, the kind on record, and how many commits the write or its recovery adds.
FAILURES = [
    ("before_sidecar", None, 0),
    ("sidecar_write", None, 0),
    ("after_sidecar", "RolledBack", 0),
    ("before_table_commit", "RolledBack", 0),
    ("after_table_commit", "RolledBack", 1),
    ("before_table_commit@2", "RolledBack", 1),
    pytest.param("after_table_commit@2", "RolledForward", 1, marks=pytest.mark.slow),
    ("before_publish", "RolledForward", 1),
    pytest.param("before_catalog_commit", "RolledForward", 1, marks=pytest.mark.slow),
    ("after_publish", "RolledForward", 1),
]


@pytest.mark.parametrize(("place", "audit", "added"), FAILURES)
def test_a_write_that_fails_is_forgotten_rolled_back_or_healed_at_once(
    graph: Graph, s3_root: str, place: str, audit: str | None, added: int, fail_at: Callable[[str | None], None]
) -> None:
    before, known = graph.snapshot(), graph.commits()
    happened = audit == "RolledForward"
    fail_at(place)
    with nullcontext() if happened else pytest.raises(FailpointError):
        receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}, actor="me").commit
        assert receipt is not None
        assert graph.snapshot().commit_id == receipt.commit_id
    fail_at(None)
    assert graph.commits()[added:] == known
    assert graph.pending_recoveries() == []
    assert added or graph.snapshot() == before
    newest = graph.commits()[0]
    for record in graph.recoveries():
        assert (record.recovery_kind, record.recovery_for_actor) == (audit, "me")
        assert record.graph_commit_id == (newest.commit_id if added else None)
        if added and not happened:
            assert (newest.actor, newest.recovery_for_actor) == (RECOVERY_ACTOR, "me")
            assert record.tables["node:Paper"]["class"] == "RolledPastExpected"
            assert record.tables["edge:Cites"]["class"] == "NoMovement"
    assert len(graph.recoveries()) == (audit is not None)
    check_next_write(s3_root, ["a", "b"] if happened else ["a"])


def test_a_sidecar_that_cannot_be_deleted_is_consumed_by_the_next_open(
    graph: Graph, s3_root: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at("sidecar_delete")
    receipt = graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}).commit
    fail_at(None)
    assert receipt is not None
    (stale,) = graph.pending_recoveries()
    with Graph.open(s3_root, read_only=True) as reader:
        assert reader.pending_recoveries() == [stale]
        assert values(reader, "node:Paper", "doi") == ["a", "b"]
    history = graph.commits()
    with Graph.open(s3_root) as fresh:
        assert fresh.pending_recoveries() == []
        (record,) = fresh.recoveries()
        assert stale == f"__recovery/{record.operation_id}.json"
        assert (record.recovery_kind, record.graph_commit_id) == ("RolledForward", receipt.commit_id)
        assert fresh.commits() == history
    check_next_write(s3_root, ["a", "b"])


def test_a_sidecar_of_an_update_that_was_left_is_consumed_by_the_next_write(
    graph: Graph, s3_root: str, fail_at: Callable[[str | None], None]
) -> None:
    fail_at("sidecar_delete")
    graph.mutate(READ, {"doi": "a", "n": 1})
    fail_at(None)
    graph.mutate(READ, {"doi": "a", "n": 2})
    assert rows(graph, "node:Paper", ["doi", "reads"]) == [{"doi": "a", "reads": 2}]
    assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
    check_next_write(s3_root, ["a"])


def test_an_unreadable_sidecar_stops_writers_and_is_kept(graph: Graph, s3_root: str) -> None:
    name = f"__recovery/{new_ulid()}.json"
    objects_of(s3_root).write(name, b"{ not a sidecar")
    with pytest.raises(RecoveryRequiredError, match="cannot be read"):
        graph.mutate(ADD_NOTE, {"text": "x"})
    with pytest.raises(RecoveryRequiredError, match="cannot be read"):
        Graph.open(s3_root)
    with Graph.open(s3_root, read_only=True) as reader:
        assert values(reader, "node:Paper", "doi") == ["a"]
        assert reader.pending_recoveries() == [name]
    objects_of(s3_root).delete(name)
    check_next_write(s3_root, ["a"])


def test_a_folder_that_cannot_be_listed_stops_the_write(
    graph: Graph, s3_root: str, fail_at: Callable[[str | None], None]
) -> None:
    before = graph.snapshot()
    fail_at("recovery_list")
    with pytest.raises(FailpointError):
        graph.mutate(ADD_NOTE, {"text": "x"})
    fail_at(None)
    assert graph.snapshot() == before
    check_next_write(s3_root, ["a"])


@pytest.mark.parametrize(
    "place", [pytest.param("audit_write", marks=pytest.mark.slow), "before_recovery_publish", "after_audit"]
)
def test_a_recovery_that_fails_too_is_finished_by_the_next_open(
    graph: Graph, s3_root: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.commit import attempt, sidecar, sweep

    places = {"after_table_commit", place}
    reached = set()

    def fail_once(name: str) -> None:
        if name in places - reached:
            reached.add(name)
            raise FailpointError(name)

    for module in (attempt, sidecar, sweep):
        monkeypatch.setattr(module, "reach", fail_once)
    with pytest.raises(RecoveryRequiredError) as caught:
        graph.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    assert reached == places
    with Graph.open(s3_root) as fresh:
        (record,) = fresh.recoveries()
        assert record.operation_id == caught.value.operation_id
        assert record.recovery_kind == "RolledBack"
    check_next_write(s3_root, ["a"])


KILLED = """
import sys
from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_CITING
Graph.open(sys.argv[1]).mutate(ADD_CITING, {"doi": "b", "to": "a"})
"""


def kill_a_writer(root: str, place: str) -> None:
    """A process that dies at a named place of its write, with the commit lock in its hands."""
    tests = str(Path(__file__).parents[2])
    environment = os.environ | {VARIABLE: f"{place}=kill", "PYTHONPATH": tests}
    done = subprocess.run([sys.executable, "-c", KILLED, root], env=environment, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()


def expire_lease(root: str) -> None:
    """As if the lease of the dead owner had ended long ago."""
    lease = objects_of(root).read("__lock")
    assert lease is not None
    body = json.loads(lease.data)
    objects_of(root).write("__lock", json.dumps(body | {"expires_at": 1.0}).encode())


@pytest.mark.parametrize(
    ("place", "kind", "papers"),
    [
        pytest.param("after_sidecar", "RolledBack", ["a"], marks=pytest.mark.slow),
        pytest.param("after_table_commit", "RolledBack", ["a"], marks=pytest.mark.slow),
        ("before_publish", "RolledForward", ["a", "b"]),
        pytest.param("after_publish", "RolledForward", ["a", "b"], marks=pytest.mark.slow),
    ],
)
def test_a_write_whose_process_died_on_s3_is_settled_when_its_lease_is_over(
    s3_root: str, place: str, kind: str, papers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    kill_a_writer(s3_root, place)
    monkeypatch.setenv("OMNIGRAPH_LOCK_TIMEOUT_MS", "0")
    with pytest.raises(RetryableCommitConflictError, match="the commit lock stayed busy"):
        Graph.open(s3_root)
    monkeypatch.delenv("OMNIGRAPH_LOCK_TIMEOUT_MS")
    with Graph.open(s3_root, read_only=True) as reader:
        assert len(reader.pending_recoveries()) == 1
        visible = ["a", "b"] if place == "after_publish" else ["a"]
        assert values(reader, "node:Paper", "doi") == visible
        moment = datetime.now(UTC)
        seen = reader.snapshot(as_of=moment).commit_id
    expire_lease(s3_root)
    with Graph.open(s3_root) as fresh:
        (record,) = fresh.recoveries()
        assert record.recovery_kind == kind
        assert fresh.snapshot(as_of=moment).commit_id == seen, "a moment that was read changed"
        newest = fresh.commits()[0]
        if place == "before_publish":
            assert newest.written_at is not None
            assert newest.written_at < moment.timestamp() * 1e6 < newest.created_at
    check_next_write(s3_root, papers)


# ---- Unreferenced files on an object store: found in listings, removed by age, with forks that read their base


DAY_S = 86_400.0
ID = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)


def names(location: GraphLocation, path: str) -> set[str]:
    return {file.name for file in list_files(location, path)}


def test_abandoned_writes_are_removed_and_forks_stay_readable(root: str) -> None:
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        graph.mutate(ADD_SCAN, {"doi": "d", "scan": "base64:" + "AAAA" * 50_000})
        path = graph.snapshot().pins[TableKey("node:Paper")].location
    location = parse_location(root)
    table = TableStore(location).open(path)
    fork = create_fork(location, table, "feature/x")
    fork = commit_staged(stage_append(fork, table.read().slice(0, 1)))
    before, rows = names(location, path), fork.read()
    for staged in (table, fork):
        stage_append(staged, staged.read())
        stage_delete(staged, [0])
        stage_indices(staged, [ID])
        rewrite(staged)
    added = names(location, path) - before
    listing = list_dataset(location, path)
    leftovers = find_orphans(location, listing)
    assert {file.name for file in leftovers.files} == added
    assert len(added) >= 10
    assert find_orphans(location, listing, time.time() - DAY_S).files == ()
    later = find_orphans(location, listing, time.time() + DAY_S)
    assert later == leftovers
    remove_files(location, leftovers)
    assert names(location, path) == before
    again = TableStore(location).open(path, "feature/x")
    assert again.read() == rows


def test_a_compaction_is_committed_or_discarded(root: str) -> None:
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        pin = graph.snapshot().pins[TableKey("node:Paper")]
    environment = open_environment(parse_location(root), durable=False)
    table = environment.tables.open(pin.location)
    before = names(environment.location, pin.location)
    discarded = stage_compaction(table, rewrite(table))
    assert discarded is not None
    assert names(environment.location, pin.location) - before
    discard_staged(environment, [StagedTable(table_key=pin.table_key, incarnation=pin.incarnation, staged=discarded)])
    assert names(environment.location, pin.location) == before
    compacted = compact(table)
    assert compacted.version == table.version + 1
    assert compacted.fragment_count() == 1
    assert compacted.read(["doi"]).num_rows == 3


def test_an_object_store_removes_by_age_only(s3_root: str) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        path = graph.snapshot().pins[TableKey("node:Paper")].location
    environment = open_environment(parse_location(s3_root), durable=False)
    table = environment.tables.open(path)
    before = names(environment.location, path)
    stage_append(table, table.read())
    done = reclaim_staged_files(environment, [path], DAY_S)
    assert (done.file_count, done.is_complete) == (0, False)
    later = replace(environment, clock=lambda: int((time.time() + 2 * DAY_S) * 1_000_000))
    assert reclaim_staged_files(later, [path], DAY_S, preview=True).file_count == 1
    assert reclaim_staged_files(later, [path], DAY_S).file_count == 1
    assert names(environment.location, path) == before
    check_graph(s3_root)
    with Graph.open(s3_root) as graph:
        graph.mutate(ADD_PAPER, {"doi": "b", "title": "B"})
        assert values(graph, "node:Paper", "doi") == ["a", "b"]


def test_a_load_that_fails_leaves_nothing_in_an_object_store(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There no lock tells who is at work: only the ledgers do."""
    source = tmp_path / "in.jsonl"
    lines = [{"type": "Paper", "data": {"doi": doi, "title": doi}} for doi in ("a", "b")]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def interrupt(place: Failpoint) -> None:
        if place is Failpoint.LOAD_CHECKED:
            raise KeyboardInterrupt

    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        location = graph._core.environment.location
        before = names(location, "")
        for mode in ("append", "merge"):
            with monkeypatch.context() as patch:
                patch.setattr(stages, "reach", interrupt)
                with pytest.raises((KeyboardInterrupt, LoadKeyConflictError)):
                    graph.load(source, mode=mode, engine="local")
            assert names(location, "") == before
        graph.load(source, mode="merge", engine="local")
        assert not [name for name in names(location, "") if name.startswith("__staging")]
        assert values(graph, "node:Paper", "doi") == ["a", "b"]


def test_doctor_cannot_tell_young_files_in_an_object_store(s3_root: str) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        table = graph._core.open_table(graph.snapshot().pins[TableKey("node:Paper")])
        stage_append(table, table.read())
        folder = new_answer_folder(graph._core.environment.location)
        rows = pa.RecordBatch.from_pydict({"n": [1]})
        write_answer(folder, "part-0", rows.schema, [rows])
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
        assert found.severity == "info"
        assert "2 files" in found.message
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 0
        later = replace(graph._core.environment, clock=lambda: int((time.time() + 8 * DAY_S) * 1_000_000))
        (found,) = _check_leftovers(Inspection(later))
        assert found.severity == "warning"
        assert found.action == f"omnigraph cleanup {graph.uri} --keep 10 --confirm"
        assert reclaim_staged_files(later, [table.path], 7 * DAY_S).file_count == 2
        assert not [name for name in names(later.location, "") if name.startswith("__staging")]


# ---- Every pair of a place where a writer stands still and a place where its successor is: nothing is torn or doubled


#: Where a write of two tables can stand still.
FIRST = [
    "before_sidecar",
    "after_sidecar",
    "before_table_commit",
    "after_table_commit",
    "before_table_commit@2",
    "after_table_commit@2",
    "before_publish",
    "before_catalog_commit",
    "after_publish",
    "sidecar_delete",
]
#: Where its successor can be: raising the fence, settling what it finds, and in its own write.
SECOND = [
    "before_catalog_commit",
    "recovery_list@2",
    "before_restore",
    "after_restore",
    "before_recovery_publish",
    "after_recovery_publish",
    "audit_write",
    "after_audit",
    "sidecar_delete",
    "before_sidecar",
    "after_sidecar",
    "before_table_commit",
    "after_table_commit",
    "before_publish",
    "after_publish",
    "after_sidecar_delete",
]


def pairs(*chosen: tuple[str, str], extra: Iterable[str] = ()) -> list[Any]:
    """The chosen pairs always, all others behind `slow`."""
    every = [(one, other) for one in (*FIRST, *extra) for other in SECOND]
    return [
        pytest.param(pair, id="-".join(pair), marks=() if pair in chosen else (pytest.mark.slow,)) for pair in every
    ]


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("after_table_commit", "before_recovery_publish"),
        ("before_catalog_commit", "before_catalog_commit"),
        ("before_catalog_commit", "before_recovery_publish"),
        ("before_table_commit@2", "after_audit"),
        ("after_publish", "after_recovery_publish"),
    ),
)
def test_a_stalled_mutation_and_its_successor_leave_one_history(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    one, other = interleave(s3_root, add_b, lambda graph: graph.mutate(ADD_CITING, {"doi": "c", "to": "a"}), stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = values(graph, "edge:Cites", "src")
    assert papers == sorted(["a", "o", *["b"] * one.acknowledged, *["c"] * other.acknowledged])
    assert edges == sorted(["o", *["b"] * one.acknowledged, *["c"] * other.acknowledged])
    check_whole(s3_root)


@pytest.mark.parametrize("stalls", pairs(("before_publish", "before_recovery_publish")))
def test_an_edge_of_a_stalled_writer_never_outlives_its_end(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    one, other = interleave(s3_root, add_b, forget_a, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = rows(graph, "edge:Cites", ["src", "dst"])
    assert ("a" in papers) is not other.acknowledged
    assert ("b" in papers) is one.acknowledged
    assert all(edge["dst"] in papers and edge["src"] in papers for edge in edges)
    check_whole(s3_root)


LINES = [{"type": "Paper", "data": {"doi": "b"}}, {"edge": "Cites", "from": "b", "to": "a", "data": {"why": "b"}}]


@pytest.mark.parametrize("stalls", pairs(("before_publish", "before_recovery_publish")))
def test_a_stalled_load_is_there_whole_or_not_at_all(s3_root: str, tmp_path: Path, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    file = tmp_path / "b.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    one, other = interleave(s3_root, lambda graph: graph.load(file, mode="append", engine="local"), forget_a, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
    assert ("b" in papers) is one.acknowledged
    assert ("a" in papers) is not other.acknowledged
    check_whole(s3_root)


@pytest.mark.parametrize(
    "stalls", pairs(("after_confirm", "before_recovery_publish"), extra=("before_confirm", "after_confirm"))
)
def test_a_stalled_merge_is_there_whole_or_not_at_all(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    with Graph.open(s3_root) as graph:
        graph.create_branch("work")
        graph.mutate(ADD_CITING, {"doi": "b", "to": "o"}, branch="work")
    one, other = interleave(s3_root, lambda graph: graph.merge("work"), forget_a, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        merged = [commit for commit in graph.commits() if commit.merged_parent_id is not None]
    assert len(merged) == one.acknowledged
    assert ("b" in papers) is one.acknowledged
    assert ("a" in papers) is not other.acknowledged
    check_whole(s3_root)


WIDER = SCHEMA.replace("title: String?", "title: String?  pages: I64?") + "node Tag { name: String @key }\n"


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("before_promotion", "after_sidecar_delete"),
        extra=("before_schema_file", "before_new_table", "after_new_tables", "before_promotion"),
    ),
)
def test_a_stalled_schema_change_happens_or_does_not(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    one, other = interleave(
        s3_root,
        lambda graph: graph.apply_schema(WIDER, engine="local"),
        lambda graph: graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}),
        stalls,
    )
    with Graph.open(s3_root) as graph:
        assert ("Tag" in graph.schema) is one.acknowledged
        assert ("c" in values(graph, "node:Paper", "doi")) is other.acknowledged
    check_whole(s3_root)


@pytest.mark.parametrize(
    "stalls", pairs(("after_table_commit", "before_recovery_publish"), ("before_table_commit", "after_table_commit"))
)
def test_a_stalled_optimize_changes_no_row(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    _, other = interleave(s3_root, lambda graph: graph.optimize(), add_and_cite, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = values(graph, "edge:Cites", "src")
    assert papers == ["a", *["c"] * other.acknowledged, "o"]
    assert edges == [*["c"] * other.acknowledged, "o"]
    check_whole(s3_root)


def add_and_cite(graph: Graph) -> None:
    graph.mutate(ADD_CITING, {"doi": "c", "to": "a"})


def test_what_a_late_writer_did_to_a_table_is_undone_by_the_next_write(
    s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stands still inside the commit of a table, comes back after its sidecar was settled, and dies."""
    from omnigraph.commit import attempt

    make_world(s3_root)
    with monkeypatch.context() as patch:
        patch.setattr(attempt.Attempt, "_settle_in_new_window", dies)
        one, other = interleave(
            s3_root,
            lambda graph: graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}),
            lambda graph: graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}),
            ("before_table_commit@2", "after_sidecar_delete"),
        )
    assert other.acknowledged
    assert not one.acknowledged
    with Graph.open(s3_root) as graph:
        cite_b_to = graph.mutate(ADD_CITING, {"doi": "d", "to": "a"})
        assert cite_b_to.commit is not None
        assert values(graph, "node:Paper", "doi") == ["a", "c", "d", "o"]
        assert values(graph, "edge:Cites", "src") == ["d", "o"]
        (late,) = [
            record
            for record in graph.recoveries()
            if any(table["class"] == "LateWriter" for table in record.tables.values())
        ]
        assert list(late.tables) == ["edge:Cites"]
    check_whole(s3_root)


def dies(*_: object) -> bool:
    """As a process that ends before it can tidy up."""
    return False
