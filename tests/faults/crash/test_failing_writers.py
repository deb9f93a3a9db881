"""The failure table of a commit, row by row, in a process that lives on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from faults.crash.conftest import Worlds
from omnigraph.commit.publisher import Manifest
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.core.ids import new_ulid
from omnigraph.errors import DriftError, RecoveryRequiredError, StorageError
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    Children,
    Contents,
    check_sound,
    content,
    contents,
    dataset_of,
    every_commit,
    recovery_kinds,
    sidecars,
)
from support.killed_writes import INSERT, check_next_writes


@pytest.fixture
def after(worlds: Worlds) -> Contents:
    """The content after an undisturbed insert."""
    return worlds(INSERT)[1]


# ---- A cannot write


@pytest.mark.parametrize("place", [F.BEFORE_SIDECAR, F.SIDECAR_WRITE])
def test_a_write_whose_intent_cannot_be_written_aborts_before_any_effect(
    root: Path, base: Path, after, failing, place: F
):
    with Graph.open(root) as graph, failing(place):
        with pytest.raises(FailpointError):
            INSERT.run(graph)
        assert graph.recoveries() == []
        assert graph.snapshot().pins == Graph.open(base, read_only=True).snapshot().pins
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after)


# ---- B or C fails in a living process: more in `test_killed_writes`


def test_an_undone_write_succeeds_when_it_is_repeated_with_the_same_precondition(root: Path, failing):
    with Graph.open(root) as graph, failing("after_table_commit@1"):
        head = graph.snapshot().commit_id
        with pytest.raises(FailpointError):
            graph.mutate(INSERT.query, if_commit=head)
        assert graph.mutate(INSERT.query, if_commit=head).commit is not None


def test_a_write_that_can_neither_be_completed_nor_undone_says_so_and_is_settled_by_the_next_one(
    root: Path, base: Path, after, failing, monkeypatch: pytest.MonkeyPatch
):
    def broken(_staged):
        raise StorageError("the disk is gone")

    with Graph.open(root) as graph, failing(F.AUDIT_WRITE):
        with monkeypatch.context() as patch:
            patch.setattr("omnigraph.commit.attempt.commit_staged", broken)
            with pytest.raises(RecoveryRequiredError, match="the disk is gone") as caught:
                INSERT.run(graph)
        assert sidecars(root) == [f"{caught.value.operation_id}.json"]
        assert graph.recoveries() == []
        graph.refresh()
        assert [r.operation_id for r in graph.recoveries()] == [caught.value.operation_id]
        assert recovery_kinds(graph) == ["RolledBack"]
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after)


# ---- D cannot delete


def test_a_sidecar_that_cannot_be_deleted_is_only_a_warning(
    root: Path, after, failing, caplog: pytest.LogCaptureFixture
):
    with Graph.open(root) as graph, failing(F.SIDECAR_DELETE):
        with caplog.at_level(logging.WARNING, logger="omnigraph"):
            result = INSERT.run(graph)
        assert result.commit is not None
        assert "stays until the next write" in caplog.text
        assert len(sidecars(root)) == 1
        assert graph.recoveries() == []
        graph.mutate('query w() { insert City { name: "oslo", size: 700 } }')
        assert recovery_kinds(graph) == ["RolledForward"]
        assert graph.recoveries()[0].graph_commit_id == result.commit.commit_id
        assert [c.commit_id for c in every_commit(graph)].count(result.commit.commit_id) == 1
    check_sound(root)
    assert contents(root) == after


# ---- the folder cannot be listed


def test_a_folder_that_cannot_be_listed_fails_writes_and_opens_loudly_but_not_readers(root: Path, base: Path):
    graph = Graph.open(root)
    folder = root / "__recovery"
    assert sidecars(root) == []
    if folder.exists():
        folder.rmdir()
    folder.write_text("not a folder")
    for attempt in (lambda: INSERT.run(graph), graph.refresh, lambda: Graph.open(root)):
        with pytest.raises(StorageError, match="listing __recovery failed"):
            attempt()
    assert contents(root) == contents(base)
    folder.unlink()
    INSERT.run(graph)
    check_sound(root)


def test_a_write_that_cannot_list_sidecars_has_no_effect(root: Path, base: Path, after, failing):
    with Graph.open(root) as graph, failing(F.RECOVERY_LIST), pytest.raises(FailpointError):
        INSERT.run(graph)
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after)


# ---- a sidecar is unreadable

DAMAGE = {
    "empty": b"",
    "not_json": b"{",
    "not_text": b"\xff\xfe\x00",
    "another_format": b'{"format_version": 2}',
    "not_an_object": b"[]",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_an_unreadable_sidecar_stops_writers_loudly_and_stays_but_readers_go_on(root: Path, base: Path, damage: bytes):
    graph = Graph.open(root)
    operation_id = new_ulid()
    file = root / "__recovery" / f"{operation_id}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(damage)
    for attempt in (lambda: INSERT.run(graph), graph.refresh, lambda: Graph.open(root)):
        with pytest.raises(RecoveryRequiredError, match="cannot be read") as caught:
            attempt()
        assert caught.value.operation_id == operation_id
    assert file.read_bytes() == damage
    assert contents(root) == contents(base)
    with Graph.open(root, read_only=True) as reader:
        assert reader.pending_recoveries() == [f"__recovery/{file.name}"]
    file.unlink()
    INSERT.run(graph)
    check_sound(root)


def test_a_sidecar_cut_short_by_hand_stops_writers_and_stays(root: Path, base: Path, children: Children):
    children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
    (file,) = (root / "__recovery").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecoveryRequiredError):
        Graph.open(root)
    assert contents(root) == contents(base)
    file.write_bytes(whole)
    with Graph.open(root) as graph:
        assert recovery_kinds(graph) == ["RolledForward"]
    check_sound(root)


def test_a_sidecar_under_the_name_of_another_operation_is_refused_and_kept(root: Path, children: Children):
    children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
    (file,) = (root / "__recovery").iterdir()
    renamed = file.rename(file.with_name(f"{new_ulid()}.json"))
    with pytest.raises(RecoveryRequiredError):
        Graph.open(root)
    assert renamed.exists()


# ---- the audit cannot be written


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (F.BEFORE_PUBLISH, "RolledForward"),
        (F.AFTER_PUBLISH, "RolledForward"),
        ("after_table_commit@1", "RolledBack"),
        (F.AFTER_SIDECAR, "RolledBack"),
    ],
)
def test_a_recovery_that_cannot_be_recorded_fails_and_its_repetition_records_it_once(
    root: Path, base: Path, after, failing, children: Children, place: str, kind: str
):
    children.kill_at(place, INSERT.job(root))
    (file,) = sidecars(root)
    with failing(F.AUDIT_WRITE), pytest.raises(FailpointError):
        Graph.open(root)
    assert sidecars(root) == [file]
    with Graph.open(root) as graph:
        assert recovery_kinds(graph) == [kind]
        commits = len(every_commit(graph))
    with Graph.open(root) as graph:
        assert recovery_kinds(graph) == [kind]
        assert len(every_commit(graph)) == commits
    check_sound(root)
    assert contents(root) == (after if kind == "RolledForward" else contents(base))
    check_next_writes(root, INSERT, contents(root) if kind == "RolledForward" else after)


def test_a_living_writer_whose_recovery_cannot_be_recorded_reports_it_and_keeps_its_commit(
    root: Path, after, failing, monkeypatch: pytest.MonkeyPatch
):
    publish, calls = Manifest.publish, []

    def fail_once(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise StorageError("the network is gone")
        return publish(self, *arguments, **options)

    monkeypatch.setattr(Manifest, "publish", fail_once)
    with Graph.open(root) as graph, failing(F.AUDIT_WRITE):
        with pytest.raises(RecoveryRequiredError, match="the network is gone"):
            INSERT.run(graph)
        assert len(sidecars(root)) == 1
        graph.mutate('query w() { insert City { name: "oslo", size: 700 } }')
        assert recovery_kinds(graph) == ["RolledForward"]
    assert len(calls) == 3
    check_sound(root)
    assert contents(root) == after


# ---- a table is not where the catalog says


def test_a_table_behind_its_published_version_stops_recovery_loudly_and_keeps_the_sidecar(
    root: Path, children: Children
):
    children.kill_at(F.AFTER_SIDECAR, INSERT.job(root))
    (file,) = sidecars(root)
    with Graph.open(root, read_only=True) as graph:
        pin = graph.snapshot().pins["node:City"]
    newest = root / pin.location / "_versions" / f"{2**64 - 1 - pin.version}.manifest"
    kept = newest.read_bytes()
    newest.unlink()
    for _ in range(2):
        with pytest.raises(RecoveryRequiredError, match="node:City is behind"):
            Graph.open(root)
        assert sidecars(root) == [file]
    newest.write_bytes(kept)
    with Graph.open(root) as graph:
        assert recovery_kinds(graph) == ["RolledBack"]
    check_sound(root)


def drift(root: Path, key: str, *, steps: int = 1) -> None:
    """Commits of somebody else, directly on a dataset."""
    with Graph.open(root, read_only=True) as graph:
        pin = graph.snapshot().pins[key]
    for number in range(steps):
        dataset = dataset_of(root, pin, at_pin=False)
        row = {name: None for name in dataset.schema.names} | {"id": f"foreign{number}", "name": f"foreign{number}"}
        rows = pa.Table.from_pylist([row], schema=dataset.schema)
        lance.write_dataset(rows, dataset, mode="append")


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("key", ["node:Person", "node:City"])
def test_a_foreign_commit_on_a_table_stops_a_writer_before_any_effect_until_it_is_repaired(
    root: Path, base: Path, key: str, steps: int
):
    drift(root, key, steps=steps)
    assert contents(root) == contents(base), "a foreign commit is never visible"
    with Graph.open(root) as graph:
        with pytest.raises(DriftError, match="omnigraph repair") as caught:
            INSERT.run(graph)
        assert caught.value.actual == caught.value.expected + steps
        assert graph.recoveries() == []
        assert sidecars(root) == []
        assert contents(root) == contents(base)
        graph.repair(confirm=True, force=True)
        rows = content(root, "main")[key]
        assert sum(row["id"].startswith("foreign") for row in rows) == steps
        assert INSERT.run(graph).commit is not None
    check_sound(root)


def test_a_foreign_commit_behind_a_dead_writer_is_undone_with_its_write(
    root: Path, base: Path, after, children: Children
):
    children.kill_at(F.BEFORE_PUBLISH, INSERT.job(root))
    drift(root, "node:City")
    with Graph.open(root) as graph:
        assert recovery_kinds(graph) == ["RolledBack"]
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after)


# ---- merges


def test_an_undone_merge_leaves_no_merged_parent_in_the_history(root: Path, children: Children):
    children.kill_at("after_table_commit@1", INSERT.job(root))
    (file,) = (root / "__recovery").iterdir()
    body = json.loads(file.read_text())
    body["writer_kind"] = "branch_merge"
    body["commit"]["merged_parent_id"] = body["commit"]["parent_id"]
    file.write_text(json.dumps(body))
    with Graph.open(root) as graph:
        (record,) = graph.recoveries()
        assert record.recovery_kind == "RolledBack"
        assert {o["class"] for o in record.tables.values()} == {"IncompletePhaseB", "NoMovement"}
        assert graph.commits()[0].actor == RECOVERY_ACTOR
        assert graph.commits()[0].merged_parent_id is None
