"""Whether nothing came to the manifest is known from the time its folder changed, once that time says enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import OmniError
from omnigraph.storage import manifest_table
from omnigraph.storage.location import manifest_name
from omnigraph.storage.manifest_table import _QuietFolder

_SCHEMA = "node Person { name: String @key }"


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    monkeypatch.setattr(manifest_table, "time", made)
    return made


def test_a_time_of_change_counts_only_when_it_is_older_than_a_tick(tmp_path: Path, clock: _Clock) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.changed_ns()
    folder.looked_through(changed)
    assert not folder.is_unchanged(changed)
    clock.now_s += 2.9
    folder.looked_through(changed)
    assert not folder.is_unchanged(changed)
    clock.now_s += 0.1
    assert not folder.is_unchanged(changed), "time alone says nothing: the folder has to be looked through after it"
    folder.looked_through(changed)
    assert folder.is_unchanged(changed)


def test_a_file_in_the_same_tick_is_not_missed(tmp_path: Path, clock: _Clock) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.changed_ns()
    folder.looked_through(changed)
    clock.now_s += 0.5
    (tmp_path / "2.manifest").touch()
    os.utime(tmp_path, ns=(changed, changed))
    assert not folder.is_unchanged(folder.changed_ns())


def test_another_time_of_change_begins_anew(tmp_path: Path, clock: _Clock) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.changed_ns()
    folder.looked_through(changed)
    clock.now_s += 5
    folder.looked_through(changed)
    assert folder.is_unchanged(changed)
    assert not folder.is_unchanged(changed + 1)
    folder.looked_through(changed + 1)
    assert not folder.is_unchanged(changed + 1)


def test_a_folder_that_is_gone_is_never_unchanged(tmp_path: Path, clock: _Clock) -> None:
    folder = _QuietFolder(str(tmp_path / "gone"))
    for _ in range(2):
        folder.looked_through(folder.changed_ns())
        clock.now_s += 5
    assert not folder.is_unchanged(folder.changed_ns())


def test_a_quiet_graph_sees_the_next_commit_of_another_one(tmp_path: Path, clock: _Clock) -> None:
    uri = str(tmp_path / "g.omni")
    count = "match { $p: Person } return { count($p) as n }"
    with Graph.init(uri, _SCHEMA) as writer, Graph.open(uri) as reader:
        for number in range(3):
            for _ in range(3):
                assert reader.query(count).to_pylist() == [{"n": number}]
                clock.now_s += 5
            view = reader._core.environment.manifest._current
            assert view is not None
            folder = view[0]._folder
            assert folder is not None
            changed = folder.changed_ns()
            assert folder.is_unchanged(changed), "the folder is quiet, so its time answers"
            writer.mutate(f'insert Person {{ name: "p{number}" }}')
            # The clock of this test stands for seconds that did not pass: here they do.
            os.utime(folder._path, ns=(changed + 10**10, changed + 10**10))
        assert reader.query(count).to_pylist() == [{"n": 3}]


def test_a_graph_that_was_removed_is_noticed(tmp_path: Path, clock: _Clock) -> None:
    uri = tmp_path / "g.omni"
    with Graph.init(str(uri), _SCHEMA) as graph:
        for _ in range(3):
            assert graph.query("match { $p: Person } return { $p }").to_pylist() == []
            clock.now_s += 5
        uri.rename(tmp_path / "elsewhere.omni")
        with pytest.raises(OmniError):
            graph.query("match { $p: Person } return { $p }")


# ---- within a tick, by the names of versions


def versions(tmp_path: Path, *numbers: int) -> _QuietFolder:
    folder = tmp_path / "_versions"
    folder.mkdir()
    for number in numbers:
        (tmp_path / manifest_name(number)).touch()
    return _QuietFolder(str(folder))


def test_the_name_of_the_next_version_tells_within_a_tick(tmp_path: Path, clock: _Clock) -> None:
    folder = versions(tmp_path, 6, 7)
    changed = folder.changed_ns()
    assert not folder.ends_with(changed, 7), "it was not looked through at that time"
    folder.looked_through(changed)
    assert folder.ends_with(changed, 7)
    (tmp_path / manifest_name(8)).touch()
    os.utime(tmp_path / "_versions", ns=(changed, changed))
    assert not folder.ends_with(changed, 7)


def test_another_time_has_to_be_looked_through_first(tmp_path: Path, clock: _Clock) -> None:
    folder = versions(tmp_path, 7)
    changed = folder.changed_ns()
    folder.looked_through(changed)
    assert not folder.ends_with(changed + 1, 7)
    assert not folder.ends_with(-1, 7)


def test_a_cleanup_that_took_the_next_version_took_this_one_too(tmp_path: Path, clock: _Clock) -> None:
    folder = versions(tmp_path, 9)
    changed = folder.changed_ns()
    folder.looked_through(changed)
    assert not folder.ends_with(changed, 7)
