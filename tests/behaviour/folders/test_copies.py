"""Copies, moves and restored backups of a graph with branches are graphs of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint, FailpointError
from omnigraph.errors import StorageError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.findings import Health
from omnigraph.storage.datasets.checksums import recorded_sums, sum_bytes
from omnigraph.storage.location import RECORDED_ROOT
from support.portable_folders import BRANCHES, PAPERS, add, as_recorded_elsewhere, build, everything, tree

#: Files that hold no data and appear when somebody reads or writes.
_LOCKS = ("__lock", "__reading.lock", "__staging.lock")


@pytest.fixture(autouse=True)
def _no_failpoints() -> Iterator[None]:
    yield
    failpoints.reset()


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with branches of branches; tests copy it and never open it."""
    folder = tmp_path_factory.mktemp("original")
    build(folder / "g.omni", folder / "outside.bin")
    return folder / "g.omni"


@pytest.fixture(scope="session")
def expected(original: Path) -> dict[str, object]:
    """What readers see of the original."""
    with Graph.open(original, read_only=True) as graph:
        return everything(graph)


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    """A graph whose forks hold its own address."""
    shutil.copytree(original, tmp_path / "source.omni")
    Graph.open(tmp_path / "source.omni").close()
    return tmp_path / "source.omni"


def data_of(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(root).items() if name not in _LOCKS}


def holds(root: Path, address: Path | str) -> bool:
    """Whether the message of any version of a fork holds an address; what stands before it tells its origin only."""
    found = [path.read_bytes() for path in root.glob("*/*/tree/**/_versions/*.manifest")]
    assert found
    return any(str(address).encode() in data[int.from_bytes(data[-16:-8], "little") :] for data in found)


def assert_sums_hold(root: Path) -> None:
    """The checksums of forks are those of the manifests that hold the new address."""
    lines = {path.parent for path in root.glob("*/*/tree/**/_checksums")}
    assert lines
    for line in lines:
        sums = recorded_sums(str(line)).sums
        names = [name for name in sums if name.startswith("_versions/")]
        assert names
        for name in names:
            assert sums[name] == sum_bytes((line / name).read_bytes()), (line, name)


def papers(graph: Graph, branch: str) -> set[str]:
    return {row["doi"] for row in graph.query(PAPERS, branch=branch).to_pylist()}


# ---- reading


def test_a_moved_graph_reads_as_before_and_reading_changes_nothing(source, expected, tmp_path):
    moved = source.rename(tmp_path / "moved.omni")
    before = data_of(moved)
    with Graph.open(moved, read_only=True) as graph:
        assert everything(graph) == expected
        assert graph.doctor().is_healthy
    assert data_of(moved) == before


def test_a_copy_reads_its_own_files_while_the_original_is_there(source, expected, tmp_path):
    shutil.copytree(source, tmp_path / "copy.omni")
    for path in source.rglob("*.lance"):
        if path.is_file():
            path.write_bytes(b"not what the copy reads")
    with Graph.open(tmp_path / "copy.omni", read_only=True) as graph:
        assert everything(graph) == expected


# ---- the first writable open


def test_a_writable_open_repairs_a_moved_graph_once(source, expected, tmp_path):
    assert holds(source, source)
    moved = source.rename(tmp_path / "moved.omni")
    with Graph.open(moved) as graph:
        assert not holds(moved, source)
        assert holds(moved, moved)
        assert everything(graph) == expected
        assert_sums_hold(moved)
    repaired = data_of(moved)
    Graph.open(moved).close()
    assert data_of(moved) == repaired


def test_a_graph_of_an_earlier_release_is_repaired_by_its_first_writable_open(source, expected):
    as_recorded_elsewhere(source, "/gone/since/long.omni")
    (source / RECORDED_ROOT).unlink()
    with Graph.open(source, read_only=True) as graph:
        assert everything(graph) == expected
    with Graph.open(source) as graph:
        assert everything(graph) == expected
    assert not holds(source, "/gone/since/long.omni")
    assert (source / RECORDED_ROOT).is_file()


@pytest.mark.parametrize(
    ("place", "count"), [(Failpoint.BEFORE_REBASE, 1), (Failpoint.BEFORE_REBASE, 3), (Failpoint.BEFORE_ROOT_RECORD, 1)]
)
def test_a_repair_that_dies_is_finished_by_the_next_open(source, expected, tmp_path, monkeypatch, place, count):
    moved = source.rename(tmp_path / "moved.omni")
    monkeypatch.setenv(failpoints.VARIABLE, f"{place}@{count}=raise")
    failpoints.reset()
    with pytest.raises(FailpointError):
        Graph.open(moved)
    monkeypatch.delenv(failpoints.VARIABLE)
    failpoints.reset()
    # What a process leaves that dies while it writes.
    manifest = next(moved.glob("nodes/*/tree/**/_versions/*.manifest"))
    manifest.with_name(f"{manifest.name}#1").write_bytes(b"half")
    with Graph.open(moved, read_only=True) as graph:
        assert everything(graph) == expected
    with Graph.open(moved) as graph:
        assert everything(graph) == expected
        assert_sums_hold(moved)
        graph.cleanup(keep=100, confirm=True)
    assert not holds(moved, source)
    assert not manifest.with_name(f"{manifest.name}#1").exists()


def test_a_process_that_is_killed_in_a_repair_leaves_work_for_the_next(source, expected, tmp_path):
    moved = source.rename(tmp_path / "moved.omni")
    killed = subprocess.run(
        [sys.executable, "-c", f"from omnigraph.graph.graph import Graph; Graph.open({str(moved)!r})"],
        env=os.environ | {failpoints.VARIABLE: f"{Failpoint.BEFORE_REBASE}@2=kill"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert holds(moved, source)
    assert holds(moved, moved)
    with Graph.open(moved) as graph:
        assert everything(graph, BRANCHES[-1:]).items() <= expected.items()
    assert not holds(moved, source)
    assert_sums_hold(moved)


def test_a_graph_that_cannot_be_written_is_opened_all_the_same(source, expected, tmp_path, monkeypatch):
    from omnigraph.errors import StorageFailure
    from omnigraph.storage.objects import ControlObjects

    def refuse(*_: object) -> None:
        raise StorageError("read-only", StorageFailure.CONFIGURATION)

    moved = source.rename(tmp_path / "moved.omni")
    monkeypatch.setattr(ControlObjects, "write", refuse)
    with Graph.open(moved) as graph:
        assert everything(graph) == expected


def test_a_graph_without_branches_gets_no_record(tmp_path):
    Graph.init(tmp_path / "g.omni", "node A { name: String @key }").close()
    Graph.open(tmp_path / "g.omni").close()
    assert not (tmp_path / "g.omni" / RECORDED_ROOT).exists()


# ---- writing


def test_a_copy_does_everything_that_the_original_did(source, tmp_path):
    copy = shutil.copytree(source, tmp_path / "copy.omni")
    shutil.rmtree(source)
    with Graph.open(copy) as graph:
        for branch in BRANCHES:
            add(graph, f"new-{branch}", branch)
        graph.create_branch("later", base="draft-2/deep")
        add(graph, "later", "later")
        graph.ensure_indices("draft")
        merged = papers(graph, "draft-2/deep") | papers(graph, "later")
        assert graph.merge("later", "draft-2/deep").commit is not None
        assert papers(graph, "draft-2/deep") == merged
        graph.merge("draft-2/deep", "draft", strategy="theirs")
        graph.cleanup(keep=3, confirm=True)
        for branch in (*BRANCHES, "later"):
            assert papers(graph, branch)
        for branch in ("later", "draft-2/deep", "draft"):
            graph.delete_branch(branch)
        graph.apply_schema(graph.schema.replace("year: I32? @index", "year: I32? @index  pages: I32?"))
        graph.cleanup(keep=3, confirm=True)
        assert "m0" in papers(graph, "main")
        assert not [item for item in graph.doctor().findings if item.severity is Health.ERROR]


def test_a_copy_and_its_original_do_not_harm_each_other(source, expected, tmp_path):
    copy = shutil.copytree(source, tmp_path / "copy.omni")
    with Graph.open(copy) as graph:
        graph.delete_branch("draft-2/deep")
        graph.delete_branch("draft")
        graph.optimize()
        graph.cleanup(keep=3, confirm=True, commits=True)
    with Graph.open(source) as graph:
        assert everything(graph) == expected
    other = shutil.copytree(source, tmp_path / "other.omni")
    with Graph.open(source) as graph:
        graph.delete_branch("draft-2/deep")
        graph.delete_branch("draft")
        graph.cleanup(keep=3, confirm=True, commits=True)
    with Graph.open(other) as graph:
        assert everything(graph) == expected


def test_a_backup_is_restored_in_the_place_of_the_original(source, expected, tmp_path):
    backup = shutil.copytree(source, tmp_path / "backup.omni")
    with Graph.open(backup, read_only=True) as graph:
        assert everything(graph) == expected
    with Graph.open(source) as graph:
        add(graph, "lost", "draft")
        graph.delete_branch("draft-2/deep")
    shutil.rmtree(source)
    shutil.copytree(backup, source)
    with Graph.open(source) as graph:
        assert everything(graph) == expected


def test_a_graph_behind_a_link_forks_a_fork(source, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    for name, base in (("second", "draft"), ("third", "second"), ("fourth", "third")):
        # A new process each time: what the one before recorded is read from disk.
        with Graph.open(tmp_path / "link" / source.name) as graph:
            graph.create_branch(name, base=base)
            add(graph, name, name)
            assert {"second", name} <= papers(graph, name)


@pytest.mark.parametrize("name", ["with space ü.omni", "tree", "100%.omni", "a#b.omni"])
def test_a_graph_may_have_an_odd_name(source, expected, tmp_path, name):
    moved = source.rename(tmp_path / name)
    with Graph.open(moved) as graph:
        assert everything(graph) == expected
        graph.create_branch("more", base="draft")
        add(graph, "one", "more")
        assert "one" in papers(graph, "more")


def test_a_place_where_lance_would_put_forks_elsewhere_has_no_branches(tmp_path):
    with Graph.init(tmp_path / "what?.omni", "node A { name: String @key }") as graph:
        graph.create_branch("draft")
        with pytest.raises(StorageError, match="cannot have branches"):
            graph.mutate('query add() { insert A { name: "x" } }', branch="draft")
    assert [path.name for path in tmp_path.iterdir()] == ["what?.omni"]


def test_a_copy_in_such_a_place_is_read_and_says_why_a_branch_is_not_written(source, expected, tmp_path):
    moved = source.rename(tmp_path / "what?.omni")
    with Graph.open(moved) as graph:
        assert everything(graph) == expected
        with pytest.raises(StorageError, match="cannot have branches: rename its folder"):
            add(graph, "more", "draft")
