"""The failure table of a commit, row by row, in a process that lives on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.commit.publisher import Manifest
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.core.ids import new_ulid
from omnigraph.errors import DriftError, RecoveryRequiredError, StorageError
from omnigraph.graph.graph import Graph
from support.killed_writers import (
    ACTOR,
    DELETE,
    FORK,
    INSERT,
    UPDATE,
    Children,
    Writer,
    check_next_writes,
    check_sound,
    content,
    contents,
    copy,
    dataset_of,
    every_commit,
    mutation,
    sidecars,
)

UNDONE = [
    (INSERT, F.AFTER_SIDECAR, 0),
    (INSERT, "before_table_commit@1", 0),
    (INSERT, "before_table_commit@2", 1),
    (INSERT, "after_table_commit@1", 1),
    (UPDATE, "after_table_commit@1", 1),
    (DELETE, "after_table_commit@2", 1),
    (FORK, "before_table_commit@1", 0),
    (FORK, "after_table_commit@1", 1),
]
COMPLETED = [
    (INSERT, "after_table_commit@2"),
    (INSERT, F.BEFORE_PUBLISH),
    (INSERT, F.BEFORE_CATALOG_COMMIT),
    (INSERT, F.AFTER_PUBLISH),
    (DELETE, F.BEFORE_PUBLISH),
    (FORK, F.BEFORE_PUBLISH),
    (FORK, F.AFTER_PUBLISH),
]


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    return copy(base, tmp_path / "graph")


@pytest.fixture
def after(base: Path, tmp_path: Path):
    """The content after an undisturbed write."""

    def content_after(writer: Writer, source: Path = base) -> dict:
        target = copy(source, tmp_path / f"after-{writer}")
        with Graph.open(target) as graph:
            graph.mutate(writer.query, branch=writer.branch)
        return contents(target)

    return content_after


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    def fail_at(place: str) -> None:
        failpoints.reset()
        monkeypatch.setenv(failpoints.VARIABLE, f"{place}=raise")

    return fail_at


def run(graph: Graph, writer: Writer, **options):
    return graph.mutate(writer.query, branch=writer.branch, actor=ACTOR, **options)


def kinds(graph: Graph) -> list[str]:
    return [record.recovery_kind for record in graph.recoveries()]


# ---- A cannot write


@pytest.mark.parametrize("place", [F.BEFORE_SIDECAR, F.SIDECAR_WRITE])
def test_a_write_whose_intent_cannot_be_written_aborts_before_any_effect(
    root: Path, base: Path, after, failing, place: F
):
    with Graph.open(root) as graph:
        failing(place)
        with pytest.raises(FailpointError):
            run(graph, INSERT)
        assert graph.recoveries() == []
        assert graph.snapshot().pins == Graph.open(base, read_only=True).snapshot().pins
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after(INSERT))


# ---- B or C fails in a living process


@pytest.mark.parametrize(("writer", "place", "added"), UNDONE)
def test_a_write_that_fails_half_way_is_undone_at_once_and_gives_its_own_error(
    root: Path, base: Path, after, failing, writer: Writer, place: str, added: int
):
    with Graph.open(root) as graph:
        known = len(every_commit(graph))
        failing(place)
        with pytest.raises(FailpointError, match=place.partition("@")[0]):
            run(graph, writer)
        assert kinds(graph) == ["RolledBack"]
        undoing = every_commit(graph)[known:]
        assert [(c.actor, c.recovery_for_actor) for c in undoing] == [(RECOVERY_ACTOR, ACTOR)] * added
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, writer, after(writer))


@pytest.mark.parametrize(("writer", "place"), COMPLETED)
def test_a_write_that_fails_after_its_last_table_is_completed_at_once_with_the_normal_receipt(
    root: Path, after, failing, writer: Writer, place: str
):
    with Graph.open(root) as graph:
        known = len(every_commit(graph))
        failing(place)
        result = run(graph, writer)
        assert result.commit is not None
        assert result.actor == ACTOR
        assert result.commit == graph.commits(writer.branch)[0]
        assert len(every_commit(graph)) == known + 1
        assert kinds(graph) == ["RolledForward"]
    check_sound(root)
    assert contents(root) == after(writer)
    check_next_writes(root, writer, contents(root))


def test_a_write_that_fails_inside_the_fold_is_completed_at_once(ready_to_fold: Path, tmp_path: Path, after, failing):
    root = copy(ready_to_fold, tmp_path / "graph")
    with Graph.open(root) as graph:
        failing(F.IN_FOLD)
        assert run(graph, INSERT).commit == graph.commits()[0]
        assert kinds(graph) == ["RolledForward"]
    check_sound(root)
    assert contents(root) == after(INSERT, ready_to_fold)


def test_an_undone_write_succeeds_when_it_is_repeated_with_the_same_precondition(root: Path, failing):
    with Graph.open(root) as graph:
        head = graph.snapshot().commit_id
        failing("after_table_commit@1")
        with pytest.raises(FailpointError):
            run(graph, INSERT, if_commit=head)
        assert run(graph, INSERT, if_commit=head).commit is not None


def test_a_write_that_can_neither_be_completed_nor_undone_says_so_and_is_settled_by_the_next_one(
    root: Path, base: Path, after, failing, monkeypatch: pytest.MonkeyPatch
):
    def broken(_staged):
        raise StorageError("the disk is gone")

    with Graph.open(root) as graph:
        failing(F.AUDIT_WRITE)
        with monkeypatch.context() as patch:
            patch.setattr("omnigraph.commit.attempt.commit_staged", broken)
            with pytest.raises(RecoveryRequiredError, match="the disk is gone") as caught:
                run(graph, INSERT)
        assert sidecars(root) == [f"{caught.value.operation_id}.json"]
        assert graph.recoveries() == []
        graph.refresh()
        assert [r.operation_id for r in graph.recoveries()] == [caught.value.operation_id]
        assert kinds(graph) == ["RolledBack"]
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after(INSERT))


# ---- D cannot delete


def test_a_sidecar_that_cannot_be_deleted_is_only_a_warning(
    root: Path, after, failing, caplog: pytest.LogCaptureFixture
):
    with Graph.open(root) as graph:
        failing(F.SIDECAR_DELETE)
        with caplog.at_level(logging.WARNING, logger="omnigraph"):
            result = run(graph, INSERT)
        assert result.commit is not None
        assert "stays until the next write" in caplog.text
        assert len(sidecars(root)) == 1
        assert graph.recoveries() == []
        graph.mutate('query w() { insert City { name: "oslo", size: 700 } }')
        assert kinds(graph) == ["RolledForward"]
        assert graph.recoveries()[0].graph_commit_id == result.commit.commit_id
        assert [c.commit_id for c in every_commit(graph)].count(result.commit.commit_id) == 1
    check_sound(root)
    assert contents(root) == after(INSERT)


# ---- the folder cannot be listed


def test_a_folder_that_cannot_be_listed_fails_writes_and_opens_loudly_but_not_readers(root: Path, base: Path):
    graph = Graph.open(root)
    folder = root / "__recovery"
    assert sidecars(root) == []
    if folder.exists():
        folder.rmdir()
    folder.write_text("not a folder")
    for attempt in (lambda: run(graph, INSERT), graph.refresh, lambda: Graph.open(root)):
        with pytest.raises(StorageError, match="listing __recovery failed"):
            attempt()
    assert contents(root) == contents(base)
    folder.unlink()
    run(graph, INSERT)
    check_sound(root)


def test_a_write_that_cannot_list_sidecars_has_no_effect(root: Path, base: Path, after, failing):
    with Graph.open(root) as graph:
        failing(str(F.RECOVERY_LIST))
        with pytest.raises(FailpointError):
            run(graph, INSERT)
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after(INSERT))


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
    for attempt in (lambda: run(graph, INSERT), graph.refresh, lambda: Graph.open(root)):
        with pytest.raises(RecoveryRequiredError, match="cannot be read") as caught:
            attempt()
        assert caught.value.operation_id == operation_id
    assert file.read_bytes() == damage
    assert contents(root) == contents(base)
    with Graph.open(root, read_only=True) as reader:
        assert reader.pending_recoveries() == [f"__recovery/{file.name}"]
    file.unlink()
    run(graph, INSERT)
    check_sound(root)


def test_a_sidecar_cut_short_by_hand_stops_writers_and_stays(root: Path, base: Path, children: Children):
    children.kill_at(F.BEFORE_PUBLISH, mutation(root, INSERT))
    (file,) = (root / "__recovery").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecoveryRequiredError):
        Graph.open(root)
    assert contents(root) == contents(base)
    file.write_bytes(whole)
    with Graph.open(root) as graph:
        assert kinds(graph) == ["RolledForward"]
    check_sound(root)


def test_a_sidecar_under_the_name_of_another_operation_is_refused_and_kept(root: Path, children: Children):
    children.kill_at(F.BEFORE_PUBLISH, mutation(root, INSERT))
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
    children.kill_at(place, mutation(root, INSERT))
    (file,) = sidecars(root)
    failing(F.AUDIT_WRITE)
    with pytest.raises(FailpointError):
        Graph.open(root)
    assert sidecars(root) == [file]
    with Graph.open(root) as graph:
        assert kinds(graph) == [kind]
        commits = len(every_commit(graph))
    with Graph.open(root) as graph:
        assert kinds(graph) == [kind]
        assert len(every_commit(graph)) == commits
    check_sound(root)
    assert contents(root) == (after(INSERT) if kind == "RolledForward" else contents(base))
    check_next_writes(root, INSERT, contents(root) if kind == "RolledForward" else after(INSERT))


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
    with Graph.open(root) as graph:
        failing(F.AUDIT_WRITE)
        with pytest.raises(RecoveryRequiredError, match="the network is gone"):
            run(graph, INSERT)
        assert len(sidecars(root)) == 1
        graph.mutate('query w() { insert City { name: "oslo", size: 700 } }')
        assert kinds(graph) == ["RolledForward"]
    assert len(calls) == 3
    check_sound(root)
    assert contents(root) == after(INSERT)


# ---- a table is not where the catalog says


def test_a_table_behind_its_published_version_stops_recovery_loudly_and_keeps_the_sidecar(
    root: Path, children: Children
):
    children.kill_at(F.AFTER_SIDECAR, mutation(root, INSERT))
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
        assert kinds(graph) == ["RolledBack"]
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
            run(graph, INSERT)
        assert caught.value.actual == caught.value.expected + steps
        assert graph.recoveries() == []
        assert sidecars(root) == []
        assert contents(root) == contents(base)
        graph.repair(confirm=True, force=True)
        rows = content(root, "main")[key]
        assert sum(row["id"].startswith("foreign") for row in rows) == steps
        assert run(graph, INSERT).commit is not None
    check_sound(root)


def test_a_foreign_commit_behind_a_dead_writer_is_undone_with_its_write(
    root: Path, base: Path, after, children: Children
):
    children.kill_at(F.BEFORE_PUBLISH, mutation(root, INSERT))
    drift(root, "node:City")
    with Graph.open(root) as graph:
        assert kinds(graph) == ["RolledBack"]
    check_sound(root)
    assert contents(root) == contents(base)
    check_next_writes(root, INSERT, after(INSERT))


# ---- merges


def test_an_undone_merge_leaves_no_merged_parent_in_the_history(root: Path, children: Children):
    children.kill_at("after_table_commit@1", mutation(root, INSERT))
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
