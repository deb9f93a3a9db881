"""Whether nothing came to the manifest is known from the time its folder changed, where that time says enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import OmniError
from omnigraph.storage import manifest_table
from omnigraph.storage.location import manifest_name
from omnigraph.storage.manifest_table import _FolderTrust, _QuietFolder, _tells_of_changes, file_system_of
from support.subtests import each_case

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


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the file system of every folder tells of changes, whatever that of this machine does."""
    answers = [True]
    monkeypatch.setattr(manifest_table, "_tells_of_changes", lambda _: answers[0])
    return answers


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up `/proc/self` in which every open file lies on the mount 40."""
    made = tmp_path / "self"
    (made / "fdinfo").mkdir(parents=True)
    for number in range(64):
        (made / "fdinfo" / str(number)).write_text("pos:\t0\nflags:\t0100000\nmnt_id:\t40\nino:\t7\n")
    monkeypatch.setattr(manifest_table, "_PROCESS", str(made))
    return made


#: Two mounts over one point, blanks in names, fields that only some mounts have, and a type with a part behind a dot.
_MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
31 27 0:40 / /data rw - nfs4 10.0.0.1:/data rw,vers=4.2
33 27 254:3 / /data rw shared:7 - xfs /dev/vdb rw
35 33 0:52 / /data/my\040graphs\040-\040old rw,nosuid shared:9 master:3 propagate_from:2 - fuse.s3fs s3fs rw
36 33 0:53 /a /data/my\040graphs ro - overlay overlay rw,lowerdir=/l\040-\040xfs,upperdir=/u
38 33 0:54 / /cut rw
"""
_TYPES = {"27": "ext4", "31": "nfs4", "33": "xfs", "35": "fuse.s3fs", "36": "overlay", "2": None, "38": None, "": None}


@each_case("mount_id", _TYPES)
def test_the_type_of_a_mount_is_found_by_its_id(mount_id: str) -> None:
    assert file_system_of(mount_id, _MOUNTS) == _TYPES[mount_id]


#: Where the graph lies, and whether the time of a folder there counts.
_TRUSTED = {
    **dict.fromkeys(("ext4", "xfs", "btrfs", "zfs", "tmpfs", "f2fs", "overlay", "bcachefs"), True),
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuseblk", "ceph", "autofs", ""), False),
    **dict.fromkeys(("fuse", "fuse.s3fs", "fuse.gcsfuse", "fuse.dbfs", "fuse.ext4", "ext4.fuse", "vboxsf"), False),
}


@each_case("kind", _TRUSTED, ids=lambda kind: kind or "no type")
def test_only_file_systems_that_are_known_to_tell_are_trusted(kind: str, process: Path, tmp_path: Path) -> None:
    (process / "mountinfo").write_text(f"27 1 254:0 / / rw - ext4 /dev/vda rw\n40 27 0:9 / /g rw - {kind} source rw\n")
    assert _tells_of_changes(str(tmp_path)) is _TRUSTED[kind]


def test_what_cannot_be_known_is_not_trusted(process: Path, tmp_path: Path) -> None:
    mounts = process / "mountinfo"
    assert not _tells_of_changes(str(tmp_path)), "there is no list of mounts"
    mounts.write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    assert not _tells_of_changes(str(tmp_path)), "the mount is not in the list"
    mounts.write_text("40 1 254:0 / / rw - ext4 /dev/vda rw\n")
    assert _tells_of_changes(str(tmp_path))
    assert not _tells_of_changes(str(tmp_path / "gone"))
    for file in (process / "fdinfo").iterdir():
        file.write_text("pos:\t0\nflags:\t0100000\n")
    assert not _tells_of_changes(str(tmp_path)), "the kernel names no mount"


def test_the_mounts_are_read_once_per_place(process: Path, tmp_path: Path, clock: _Clock) -> None:
    mounts = process / "mountinfo"
    mounts.write_text("40 1 254:0 / / rw - ext4 /dev/vda rw\n")
    place = tmp_path / "g"
    place.mkdir()
    trust = _FolderTrust(str(place))
    assert trust.holds(_QuietFolder(str(place)).state())
    mounts.write_text("40 1 254:0 / / rw - nfs4 server:/ rw\n")
    (place / "2.manifest").touch()
    assert trust.holds(_QuietFolder(str(place)).state())
    place.rename(tmp_path / "old")
    place.mkdir()
    assert not trust.holds(_QuietFolder(str(place)).state())
    assert not trust.holds(None)


@pytest.mark.parametrize("is_telling", [False, True])
def test_a_folder_that_does_not_tell_is_always_looked_through(
    tmp_path: Path, clock: _Clock, telling: list[bool], is_telling: bool
) -> None:
    telling[0] = is_telling
    folder = _QuietFolder(str(tmp_path))
    state = folder.state()
    for _ in range(3):
        folder.looked_through(state)
        clock.now_s += 5
    assert folder.is_unchanged(state) is is_telling


def test_another_folder_in_the_same_place_begins_again(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    place = tmp_path / "g"
    place.mkdir()
    folder = _QuietFolder(str(place))
    for _ in range(2):
        folder.looked_through(folder.state())
        clock.now_s += 5
    assert folder.is_unchanged(folder.state())
    times = place.stat()
    place.rename(tmp_path / "old")
    place.mkdir()
    os.utime(place, ns=(times.st_mtime_ns, times.st_mtime_ns))
    assert not folder.is_unchanged(folder.state())


def test_a_time_of_change_counts_only_when_it_is_older_than_a_tick(
    tmp_path: Path, clock: _Clock, telling: list[bool]
) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.state()
    folder.looked_through(changed)
    assert not folder.is_unchanged(changed)
    clock.now_s += 2.9
    folder.looked_through(changed)
    assert not folder.is_unchanged(changed)
    clock.now_s += 0.1
    assert not folder.is_unchanged(changed), "time alone says nothing: the folder has to be looked through after it"
    folder.looked_through(changed)
    assert folder.is_unchanged(changed)


def test_a_file_in_the_same_tick_is_not_missed(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.state()
    folder.looked_through(changed)
    clock.now_s += 0.5
    (tmp_path / "2.manifest").touch()
    assert changed is not None
    os.utime(tmp_path, ns=(changed[2], changed[2]))
    assert not folder.is_unchanged(folder.state())


def test_another_time_of_change_begins_again(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    folder = _QuietFolder(str(tmp_path))
    changed = folder.state()
    folder.looked_through(changed)
    clock.now_s += 5
    folder.looked_through(changed)
    assert folder.is_unchanged(changed)
    os.utime(tmp_path, ns=(1, 1))
    later = folder.state()
    assert later != changed
    assert not folder.is_unchanged(later)
    folder.looked_through(later)
    assert not folder.is_unchanged(later)


def test_a_folder_that_is_gone_is_never_unchanged(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    folder = _QuietFolder(str(tmp_path / "gone"))
    for _ in range(2):
        folder.looked_through(folder.state())
        clock.now_s += 5
    assert not folder.is_unchanged(folder.state())


def test_a_quiet_graph_sees_the_next_commit_of_another_one(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
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
            changed = folder.state()
            assert folder.is_unchanged(changed), "the folder is quiet, so its time answers"
            writer.mutate(f'insert Person {{ name: "p{number}" }}')
            # The clock of this test stands for seconds that did not pass: here they do.
            assert changed is not None
            os.utime(folder._path, ns=(changed[2] + 10**10, changed[2] + 10**10))
        assert reader.query(count).to_pylist() == [{"n": 3}]


def test_a_graph_that_was_removed_is_noticed(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
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


def test_the_name_of_the_next_version_tells_within_a_tick(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    folder = versions(tmp_path, 6, 7)
    changed = folder.state()
    assert not folder.ends_with(changed, 7), "it was not looked through at that time"
    folder.looked_through(changed)
    assert folder.ends_with(changed, 7)
    (tmp_path / manifest_name(8)).touch()
    assert not folder.ends_with(changed, 7)


def test_another_time_has_to_be_looked_through_first(tmp_path: Path, clock: _Clock, telling: list[bool]) -> None:
    folder = versions(tmp_path, 7)
    changed = folder.state()
    folder.looked_through(changed)
    assert changed is not None
    assert not folder.ends_with((*changed[:3], changed[3] + 1), 7)
    assert not folder.ends_with(None, 7)
    assert folder.ends_with(changed, 7)
    telling[0] = False
    assert not _looked_through_at(folder, tmp_path).ends_with(changed, 7), "names may be as old as times"


def _looked_through_at(folder: _QuietFolder, tmp_path: Path) -> _QuietFolder:
    other = _QuietFolder(str(tmp_path / "_versions"))
    other.looked_through(folder.state())
    return other


def test_a_cleanup_that_took_the_next_version_took_this_one_too(
    tmp_path: Path, clock: _Clock, telling: list[bool]
) -> None:
    folder = versions(tmp_path, 9)
    changed = folder.state()
    folder.looked_through(changed)
    assert not folder.ends_with(changed, 7)
