"""What `verify` says about sound graphs, and about single kinds of damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.cli.commands.maintenance import doctor_lines
from omnigraph.cli.main import main
from omnigraph.core.ids import TableKey
from omnigraph.errors import BranchNotFoundError, DamageError, NotFoundError, StorageError, is_panic
from omnigraph.maintenance.findings import DoctorReport, Finding, Health
from omnigraph.maintenance.repair import UncheckedEdges
from omnigraph.maintenance.verify import FileStatus, VerifyReport, _Run
from omnigraph.storage._failures import translated
from omnigraph.storage.derived import DERIVED_FOLDER, DerivedArrays
from support.damaged_graphs import InThisProcess

SCHEMA = "node A { k: String @key  t: DateTime?  n: I64? @index }"


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.name.startswith(("test_a_process", "test_the_command")):
        monkeypatch.setattr("omnigraph.maintenance.verify.AsideReader", InThisProcess)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "g.omni"
    with Graph.init(folder, SCHEMA) as graph:
        text = "query q($k: String, $t: DateTime) { insert A { k: $k, t: $t, n: 7 } }"
        graph.mutate(text, params={"k": "x", "t": "2020-01-01T10:11:12Z"})
        graph.create_branch("side")
        graph.mutate(text, params={"k": "y", "t": "2021-02-03T04:05:06.789Z"}, branch="side")
        graph.ensure_indices()
    return folder


def data_file(root: Path) -> Path:
    (found,) = (path for path in root.glob("nodes/*/data/*.lance"))
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_sound_graph_is_sound_after_everything_that_writes(root: Path) -> None:
    with Graph.open(root) as graph:
        assert graph.verify().is_sound
        graph.merge("side", "main", delete_branch=True)
        graph.apply_schema(SCHEMA.replace("@index", "@index  m: String?"))
        graph.mutate('query q() { update A set { m: "new" } where k = "x" }')
        graph.optimize()
        graph.mutate('query q() { delete A where k = "x" }')
        report = graph.verify()
        assert report.is_sound, report.problems
        assert report.counts()[FileStatus.UNRECORDED] == 0
        graph.cleanup(keep=3, confirm=True)
        report = graph.verify()
        assert report.is_sound, report.problems
        assert report.counts()[FileStatus.UNRECORDED] == 0


def test_a_fork_whose_first_version_was_cleaned_up_is_sound(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node A { k: String @key  v: I64 }") as graph:
        graph.mutate('query q() { insert A { k: "a", v: 1 } }')
        graph.create_branch("b")
        for value in range(3):
            change = "query q($v: I64) { update A set { v: $v } where v >= 0 }"
            graph.mutate(change, {"v": value}, branch="b")
        graph.cleanup(keep=1, confirm=True)
        assert graph.verify().problems == ()
        for transaction in (tmp_path / "g.omni").glob("nodes/*/tree/b/_transactions/*"):
            transaction.unlink()
        assert {problem.status for problem in graph.verify().problems} == {FileStatus.MISSING}


def gone_during(root: Path, monkeypatch: pytest.MonkeyPatch, remove: Callable[[], object], at: str) -> VerifyReport:
    """What is found when something is removed right before the versions of a line are looked at."""
    verify_version, calls = _Run._verify_version, []

    def verify_and_remove(run: _Run, dataset: Any, wanted: Any) -> None:
        if dataset.path.startswith("nodes/") and str(wanted.fork) == at:
            if not calls:
                remove()
            calls.append(wanted)
        verify_version(run, dataset, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(_Run, "_verify_version", verify_and_remove)
        report = Graph.verify_at(root)
    assert calls
    return report


def delete_side(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the branch, whose fork goes with it as an old one does while there are readers."""
    with monkeypatch.context() as patch, Graph.open(root) as graph:
        patch.setenv("OMNIGRAPH_STAGED_MAX_AGE", "0s")
        graph.delete_branch("side")
    assert not list(root.glob("nodes/*/tree/side/**/*.lance"))


def test_a_branch_that_is_deleted_meanwhile_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = gone_during(root, monkeypatch, lambda: delete_side(root, monkeypatch), "side")
    assert report.problems == ()
    assert not any("tree/side" in item.name for item in report.files)
    assert any(item.name.startswith("nodes/") for item in report.files)


def test_damage_beside_a_branch_that_is_deleted_meanwhile_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(data_file(root))
    report = gone_during(root, monkeypatch, lambda: delete_side(root, monkeypatch), "side")
    assert [item.name for item in report.problems] == [str(data_file(root).relative_to(root))]


def test_a_fork_that_is_being_removed_is_passed_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a new branch of the same name is read all the same."""

    def begin_removal() -> None:
        with Graph.open(root) as graph:
            graph.delete_branch("side")
            graph.create_branch("side")
            graph.mutate('insert A { k: "z" }', branch="side")
        (removed,) = root.glob("nodes/*/tree/side/data/*.lance")
        removed.unlink()

    report = gone_during(root, monkeypatch, begin_removal, "side")
    assert report.problems == ()
    names = [item.name for item in report.files]
    assert not any("tree/side/" in name for name in names)
    assert any("tree/side.2/" in name for name in names)


def test_derived_arrays_that_go_meanwhile_are_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / DERIVED_FOLDER / "group" / "set").mkdir(parents=True)
    load = DerivedArrays.load

    def remove_and_load(arrays: DerivedArrays, group: str, name: str) -> object:
        shutil.rmtree(root / DERIVED_FOLDER / group / name)
        return load(arrays, group, name)

    assert not Graph.verify_at(root).is_sound
    monkeypatch.setattr(DerivedArrays, "load", remove_and_load)
    assert Graph.verify_at(root).is_sound


def test_a_file_that_a_branch_needs_is_missing_though_it_went_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(data_file(root).relative_to(root))
    report = gone_during(root, monkeypatch, data_file(root).unlink, "None")
    assert [(item.name.rpartition("/")[2], item.status) for item in report.problems] == [
        (name.rpartition("/")[2], FileStatus.MISSING)
    ]


def test_a_changed_bit_is_found_and_named(root: Path) -> None:
    flip(data_file(root))
    report = Graph.verify_at(root)
    (problem,) = report.problems
    assert problem.name == str(data_file(root).relative_to(root))
    assert (problem.status, problem.type_key) == (FileStatus.MISMATCH, "node:A")
    assert str(problem) == (f"{problem.name} (node:A): mismatch: its bytes are not those that were written")


def test_damage_comes_before_every_other_advice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.maintenance.doctor._INDEXED_ROWS", 1)
    with Graph.open(root) as graph:
        graph.mutate('query q() { insert A { k: "later" } }')
    assert Graph.examine(root).actions == (f"omnigraph optimize {root}",)
    damaged = min(root.glob("nodes/*/data/*.lance"), key=lambda path: path.stat().st_mtime_ns)
    flip(damaged)
    report = Graph.examine(root, deep=True)
    assert report.is_damaged
    assert report.findings[0].check == "files"
    assert report.actions == (f"omnigraph verify {root}",)
    lines = list(doctor_lines(report))
    assert lines[-1] == (f"restore the files that the errors name from a copy, then run: omnigraph verify {root}")
    assert all("every type of every branch can be read" not in line for line in lines)


def test_damage_that_only_the_check_of_edges_meets_comes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked = UncheckedEdges(branch="main", type_key=TableKey("edge:E"), error=DamageError("scanning edges/e", "odd"))
    monkeypatch.setattr("omnigraph.maintenance.doctor.dangling_edges", lambda *_: ((), (unchecked,)))
    report = Graph.examine(root)
    assert report.is_damaged
    assert report.actions == (f"omnigraph verify {root}",)


def test_what_cannot_be_decoded_is_told_without_the_advice_to_verify(root: Path) -> None:
    for record in root.rglob("_checksums/*.json"):
        record.unlink()
    data_file(root).write_bytes(b"")
    problems = Graph.verify_at(root).problems
    assert problems
    assert not any("omnigraph verify" in str(item) for item in problems)


def test_an_error_is_shown_whole() -> None:
    words = [f"nodes/{number:032}/data.lance" for number in range(40)]
    finding = Finding(check="files", severity=Health.ERROR, message=" ".join(words))
    lines = list(doctor_lines(DoctorReport(uri="g.omni", findings=(finding,))))
    shown = " ".join(lines).split()
    assert [word for word in shown if word.startswith("nodes/")] == words


def test_a_missing_file_is_found_and_named(root: Path) -> None:
    name = str(data_file(root).relative_to(root))
    data_file(root).unlink()
    assert [(item.name, item.status) for item in Graph.verify_at(root).problems] == [(name, FileStatus.MISSING)]


@pytest.mark.parametrize("place", ["none", "empty", "foreign"])
def test_a_place_without_a_graph_is_not_called_damaged(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / place
    if place != "none":
        folder.mkdir()
    if place == "foreign":
        (folder / "nodes").mkdir()
        (folder / "nodes" / "list.txt").write_text("a", encoding="utf-8")
    with pytest.raises(NotFoundError, match=r"there is no graph at .*: create one with"):
        Graph.verify_at(folder)
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(folder)])
    assert ended.value.code == 1
    assert "there is no graph at" in capsys.readouterr().err
    assert [item.check for item in Graph.examine(folder, deep=True).findings] == ["format"]
    assert folder.exists() == (place != "none")


@pytest.mark.parametrize("kept", ["nodes", "_schema.pg"])
def test_a_graph_without_its_catalog_is_damaged(root: Path, kept: str) -> None:
    for path in root.iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (problem,) = Graph.verify_at(root).problems
    assert (problem.name, problem.status) == ("__manifest", FileStatus.MISSING)


def test_only_the_files_of_a_branch_are_read(root: Path) -> None:
    with Graph.open(root) as graph:
        graph.mutate('query q() { insert A { k: "later" } }')
        newest = max(root.glob("nodes/*/data/*.lance"), key=lambda path: path.stat().st_mtime_ns)
        flip(newest)
        assert not graph.verify(branches=["main"]).is_sound
        assert graph.verify(branches=["side"]).is_sound
        with pytest.raises(BranchNotFoundError):
            graph.verify(branches=["none"])


def test_old_files_get_a_checksum_when_it_is_asked_for(root: Path) -> None:
    for record in root.rglob("_checksums/*.json"):
        record.unlink()
    assert Graph.verify_at(root).counts()[FileStatus.UNRECORDED]
    assert Graph.verify_at(root, record=True).recorded
    assert not Graph.verify_at(root).counts()[FileStatus.UNRECORDED]
    flip(data_file(root))
    assert not Graph.verify_at(root).is_sound


def test_a_damaged_graph_gives_no_checksum_to_its_files(root: Path) -> None:
    for record in root.rglob("_checksums/*.json"):
        record.unlink()
    data_file(root).write_bytes(b"")
    assert Graph.verify_at(root, record=True).recorded == 0


def test_the_command_names_the_file_and_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for damage, code in ((None, 0), (flip, 1)):
        if damage is not None:
            damage(data_file(root))
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(root), "--json"])
        assert ended.value.code == code
        body = json.loads(capsys.readouterr().out)
        assert body["sound"] is (code == 0)
        assert body["counts"]["mismatch"] == code


def test_a_process_that_damage_ends_is_a_finding(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The reader cannot even start: as when it is ended in the middle.
    monkeypatch.setattr("omnigraph.maintenance.reading_aside.sys.executable", "/bin/false")
    report = Graph.verify_at(root)
    assert not report.is_sound
    assert "the reading process ended with 1" in str(report.problems[0])


class PanicException(BaseException):  # named as the one that cannot be imported
    """Stands for the class that extension modules make."""


PanicException.__module__ = "pyo3_runtime"


@pytest.mark.parametrize(
    "error",
    [
        PanicException("index out of bounds"),
        ValueError("odd"),
        KeyError("gone"),
        pa.ArrowTypeError("a column of another type"),
    ],
)
def test_what_damaged_bytes_raise_is_a_typed_failure(error: BaseException) -> None:
    with pytest.raises(DamageError, match="reading nodes/x failed") as caught, translated("reading nodes/x"):
        raise error
    assert "omnigraph verify" in caught.value.message
    assert caught.value.__cause__ is error
    assert is_panic(error) == isinstance(error, PanicException)


@pytest.mark.parametrize("error", [TypeError("no"), AttributeError("no"), NameError("no"), AssertionError("no")])
def test_a_mistake_of_the_program_is_not_called_damage(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translated("reading nodes/x"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("malloc of size 9 failed")])
def test_a_lack_of_memory_is_not_called_damage(error: MemoryError) -> None:
    with pytest.raises(StorageError, match="not enough memory") as caught, translated("reading x"):
        raise error
    assert not isinstance(caught.value, DamageError)
    assert "omnigraph verify" in caught.value.message


def test_an_interrupt_stays_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), translated("reading"):
        raise KeyboardInterrupt
