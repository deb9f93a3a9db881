"""Who may remove staged files, and which: everything when nobody stages, old files otherwise, nothing when in doubt."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from omnigraph.commit.environment import GraphEnvironment, open_environment
from omnigraph.commit.leftovers import reclaim_staged_files, staged_max_age_s
from omnigraph.core import failpoints
from omnigraph.core.failpoints import FailpointError
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import RecoveryRequiredError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.storage.location import MANIFEST, RECOVERIES, parse_location
from omnigraph.storage.locks import StagingLock

SCHEMA = "node A { k: String @key }"
ADD = "query q($k: String) { insert A { k: $k } }"
WEEK_S = 7 * 86_400.0


class World:
    """A graph, its environment, and files that a dead writer staged into its table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with Graph.init(root, SCHEMA) as graph:
            for key in ("a", "b"):
                graph.mutate(ADD, {"k": key})
            self.pin = graph.snapshot().pins[TableKey("node:A")]
        self.environment: GraphEnvironment = open_environment(parse_location(root), durable=False)
        self.paths = [self.pin.location, MANIFEST, RECOVERIES]
        self.before = self.files()
        table = self.environment.tables.open(self.pin.location)
        stage_append(table, table.read())
        self.staged = self.files() - self.before
        assert self.staged

    def files(self) -> set[str]:
        return {str(it.relative_to(self.root)) for it in self.root.rglob("*") if it.is_file()}

    def age(self, seconds: float) -> None:
        then = time.time() - seconds
        for name in self.staged:
            os.utime(self.root / name, (then, then))

    def reclaim(self, *, preview: bool = False) -> set[str]:
        done = reclaim_staged_files(self.environment, self.paths, WEEK_S, preview=preview)
        assert not done.failures
        return {file.name for item in done.removals for file in item.files}

    def keys(self) -> list[str]:
        with Graph.open(self.root) as graph:
            pin = graph.snapshot().pins[TableKey("node:A")]
            table = self.environment.tables.open(pin.location, pin.branch, pin.version)
            return sorted(table.read(["k"])["k"].to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "g.omni")


def test_without_writers_everything_unreferenced_goes(world: World) -> None:
    done = reclaim_staged_files(world.environment, world.paths, WEEK_S)
    assert {file.name for item in done.removals for file in item.files} == world.staged
    assert done.is_complete
    assert done.file_count == len(world.staged)
    assert world.staged.isdisjoint(world.files())
    assert world.keys() == ["a", "b"]
    assert world.reclaim() == set()


def test_beside_a_writer_only_old_files_go(world: World) -> None:
    with world.environment.staging.shared():
        assert world.reclaim() == set()
        world.age(WEEK_S + 60)
        assert world.reclaim() == world.staged


def test_a_preview_removes_nothing(world: World) -> None:
    assert world.reclaim(preview=True) == world.staged
    assert world.staged <= world.files()
    with world.environment.staging.shared():
        assert world.reclaim(preview=True) == set()


def test_what_a_dead_writer_committed_is_settled_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise FailpointError("dead")

    with Graph.open(world.root) as graph, monkeypatch.context() as patch:
        failpoints.reset()
        patch.setenv(failpoints.VARIABLE, "after_table_commit=raise")
        # It cannot settle its own write, so the sidecar stays as after a death.
        patch.setattr("omnigraph.commit.attempt.settle", die)
        with pytest.raises(RecoveryRequiredError):
            graph.mutate(ADD, {"k": "c"})
    failpoints.reset()
    assert world.reclaim(preview=True) == set(), "what it staged may still become visible"
    assert world.reclaim() == world.staged
    assert world.keys() == ["a", "b", "c"]


def test_an_unreadable_sidecar_stops_it(world: World) -> None:
    folder = world.root / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / f"{new_ulid()}.json").write_text("{")
    with pytest.raises(RecoveryRequiredError):
        world.reclaim()
    assert world.staged <= world.files()


def test_a_sidecar_that_appears_meanwhile_stops_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.commit.leftovers.has_unsettled", lambda _: True)
    assert world.reclaim() == set()
    assert world.staged <= world.files()


def test_a_dataset_that_cannot_be_read_is_reported_and_the_others_are_cleaned(world: World) -> None:
    broken = world.root / "nodes/00000000000000aa"
    (broken / "_versions").mkdir(parents=True)
    (broken / "data").mkdir()
    (broken / "_versions" / f"{2**64 - 2}.manifest").write_bytes(b"garbage")
    (broken / "data" / "0101.lance").write_bytes(b"x")
    done = reclaim_staged_files(world.environment, ["nodes/00000000000000aa", *world.paths], WEEK_S)
    assert set(done.failures) == {"nodes/00000000000000aa"}
    assert (broken / "data" / "0101.lance").exists()
    assert world.staged.isdisjoint(world.files())


def test_a_writer_waits_until_the_files_are_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that starts while files are removed stages after that, and loses nothing."""
    from omnigraph.commit import leftovers as module

    started, remove = Event(), module.remove_files
    outcome: list[object] = []

    def write() -> None:
        with Graph.open(world.root) as graph:
            started.set()
            outcome.append(graph.mutate(ADD, {"k": "c"}).commit)

    writer = Thread(target=write)

    def slow(*arguments):
        writer.start()
        assert started.wait(10)
        # A writer that did not wait would be done long before this.
        writer.join(timeout=0.2)
        assert writer.is_alive()
        assert outcome == []
        return remove(*arguments)

    monkeypatch.setattr(module, "remove_files", slow)
    assert world.reclaim() == world.staged
    writer.join(30)
    assert len(outcome) == 1
    assert world.keys() == ["a", "b", "c"]


def test_the_lock_is_taken_alone_only_when_nobody_holds_it(tmp_path: Path) -> None:
    lock = StagingLock(parse_location(tmp_path))
    with lock.try_exclusive() as first:
        assert first
        with lock.try_exclusive() as second:
            assert not second
    with lock.shared(), lock.try_exclusive() as beside:
        assert not beside
    with lock.try_exclusive() as again:
        assert again


def test_an_object_store_never_gives_the_lock() -> None:
    with StagingLock(parse_location("s3://bucket/graph")).try_exclusive() as held:
        assert not held


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", WEEK_S), ("12h", 43_200), ("30m", 1_800), (" 45s ", 45), ("0s", 0)]
)
def test_durations(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("OMNIGRAPH_STAGED_MAX_AGE", text)
    assert staged_max_age_s() == seconds


@pytest.mark.parametrize("text", ["", "d", "-7d", "7 d", "7y", "1.5h", "٣d", "9" * 30 + "d"])
def test_a_duration_that_cannot_be_read_falls_back_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_STAGED_MAX_AGE", text)
    assert staged_max_age_s() == WEEK_S
    assert "OMNIGRAPH_STAGED_MAX_AGE" in caplog.text


def test_without_the_variable_the_default_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_STAGED_MAX_AGE", raising=False)
    assert staged_max_age_s() == WEEK_S
