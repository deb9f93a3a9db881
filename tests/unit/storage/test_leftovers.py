"""What no version refers to is found, and nothing else."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import OutsideRootError, StorageError
from omnigraph.storage.datasets import versions
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import stage_indices
from omnigraph.storage.datasets.staged import _for_writing, commit_staged, stage_append, stage_overwrite, stage_upsert
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import Removal, create_fork, find_orphans, list_dataset, remove_files
from omnigraph.storage.location import (
    GraphLocation,
    attached_version,
    check_dataset_path,
    check_fork_name,
    fork_of,
    inside,
    is_dataset_path,
    is_deletable,
    is_fork_name,
    line_folder,
    parse_location,
    placed,
    reference,
    refuse_links,
    table_location,
    walk,
)
from omnigraph.storage.objects import delete_files, list_files, list_folders
from support.subtests import each_case
from support.tables import ID, NUMBER, content, delete, everything, make_table, rows, with_text_index

DAY_S = 86_400.0


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def files(location: GraphLocation) -> set[str]:
    root = location.path
    return {it.relative_to(root).as_posix() for it in root.rglob("*") if it.is_file()}


def orphans(
    location: GraphLocation, path: str = "nodes/t", older_than_s: float | None = None, now_s: float | None = None
) -> Removal:
    limit_s = None if older_than_s is None else (now_s or time.time()) - older_than_s
    return find_orphans(location, list_dataset(location, path), limit_s)


def found(location: GraphLocation, path: str = "nodes/t", **named: float) -> set[str]:
    return {file.name for file in orphans(location, path, **named).files}


def abandon(table: Table) -> None:
    """Every kind of write, staged and forgotten."""
    stage_append(table, rows(500, 10))
    stage_overwrite(table, rows(600, 10))
    stage_upsert(table, rows(0, 10))
    stage_delete(table, [(table._dataset.get_fragments()[0].fragment_id << 32) + 3])
    stage_indices(table, [ID, NUMBER])


def make_detached(table: Table, first: int = 700) -> LanceDataset:
    """A private version, as a load makes it."""
    data = _for_writing(rows(first, 10), table)
    transaction = write_fragments(data, table._dataset, return_transaction=True)
    return LanceDataset.commit(table._dataset, transaction, detached=True)


def age(location: GraphLocation, names: set[str], seconds: float) -> None:
    then = time.time() - seconds
    for name in names:
        os.utime(location.path / name, (then, then))


def rich(location: GraphLocation) -> Table:
    """A history with deletes, updates, replaced indexes, forks and a fork of a fork that use files of each other."""
    table = with_text_index(make_table(location, specs=(ID,)))
    table = commit_staged(stage_upsert(table, rows(20, 15)))
    staged = stage_indices(table, (ID,))
    assert staged is not None
    fork = create_fork(location, table, "feature/x")
    # From here on only old versions and the fork use the first indexes.
    table = commit_staged(staged)
    fork = commit_staged(stage_append(fork, rows(800, 10)))
    fork = delete(fork, "k5", "k801")
    inner = create_fork(location, fork, "data")
    inner = commit_staged(stage_append(inner, rows(850, 10)))
    built = stage_indices(inner, (NUMBER,))
    assert built is not None
    commit_staged(built)
    return commit_staged(stage_overwrite(table, rows(0, 5)))


def test_a_history_without_abandoned_writes_has_none(location: GraphLocation) -> None:
    rich(location)
    assert found(location) == set()


def test_every_abandoned_write_is_found_and_every_version_stays_readable(location: GraphLocation) -> None:
    table = rich(location)
    remove_files(location, orphans(location))
    before, readable = files(location), everything(table._dataset.uri)
    abandon(table)
    abandon(Table(lance.dataset(f"{table._dataset.uri}/tree/feature/x"), "nodes/t", "feature/x"))
    abandon(Table(lance.dataset(f"{table._dataset.uri}/tree/data"), "nodes/t", "data"))
    added = files(location) - before
    kinds = {re.sub(r"(?:tree/(?:feature/x|data)/)?(\w+)/.*", r"\1", name[8:]) for name in added}
    assert kinds == {"data", "_deletions", "_indices"}
    assert any(name.endswith(".blob") for name in added)
    leftovers = orphans(location)
    assert {file.name for file in leftovers.files} == added
    assert leftovers.size_bytes == sum((location.path / name).stat().st_size for name in added)
    remove_files(location, leftovers)
    assert files(location) == before
    assert found(location) == set()
    assert everything(table._dataset.uri) == readable


@pytest.mark.parametrize("branch", ["feature/x", "data"])
def test_what_a_fork_reads_of_its_base_is_in_use_for_its_sake_alone(location: GraphLocation, branch: str) -> None:
    """As if nothing but the fork were left: no version of the base tells what is in use."""
    table = rich(location)
    stage_append(table, rows(500, 10))
    listed = list_dataset(location, "nodes/t")
    lines = tuple(line for line in listed.lines if line.fork == branch)
    alone = find_orphans(location, replace(listed, lines=lines))
    unused = {file.name for file in alone.files}
    fork = lance.dataset(f"{table._dataset.uri}/tree/{branch}")
    parts = [fragment.metadata for fragment in fork.get_fragments()]
    used = [file.path for part in parts for file in part.files]
    used += [file.path.removesuffix(".lance") + "/" for part in parts for file in part.files]
    used += [part.deletion_file.path(part.id) for part in parts if part.deletion_file is not None]
    used += [str(it.uuid) for index in fork.describe_indices() for it in index.segments]
    assert not [name for name in unused for part in used if part in name]
    newest = table._dataset.get_fragments()[0].metadata.files[0].path
    assert f"nodes/t/data/{newest}" in unused, "what only the base reads is not"


def test_no_empty_folders_stay(location: GraphLocation) -> None:
    table = make_table(location)
    before = {it for it in location.path.rglob("*") if it.is_dir()}
    abandon(table)
    remove_files(location, orphans(location))
    shared = {"data", "_indices", "_deletions"}
    assert {it.name for it in location.path.rglob("*") if it.is_dir() and it not in before} <= shared


def test_writes_go_on_afterwards(location: GraphLocation) -> None:
    table = make_table(location, specs=(ID,))
    abandon(table)
    remove_files(location, orphans(location))
    table = commit_staged(stage_append(table, rows(500, 10)))
    table = delete(table, "k501")
    staged = stage_indices(table, (ID, NUMBER))
    assert staged is not None
    table = commit_staged(staged)
    assert table.row_count == 67
    assert table._dataset.to_table(filter="id = 'k502'").num_rows == 1


def test_private_versions_go_with_their_files(location: GraphLocation) -> None:
    table = make_table(location)
    before = files(location)
    make_detached(table)
    added = files(location) - before
    assert any("/_versions/d" in name for name in added)
    assert any("/_transactions/" in name for name in added)
    names = [file.name for file in orphans(location).files]
    assert set(names) == added
    assert "/_versions/d" in names[0], "first, so that no version ever names a missing file"


def test_files_of_a_private_version_that_were_committed_stay(location: GraphLocation) -> None:
    table = make_table(location)
    data = _for_writing(rows(700, 10), table)
    transaction = write_fragments(data, table._dataset, return_transaction=True)
    LanceDataset.commit(table._dataset, transaction, detached=True)
    committed = LanceDataset.commit(table._dataset, transaction, max_retries=0)
    expected = content(committed)
    leftovers = orphans(location)
    assert not any("/data/" in file.name for file in leftovers.files)
    remove_files(location, leftovers)
    assert content(lance.dataset(table._dataset.uri)) == expected


def test_with_an_age_limit_young_files_stay(location: GraphLocation) -> None:
    table = make_table(location)
    before = files(location)
    stage_append(table, rows(500, 10))
    old = files(location) - before
    stage_append(table, rows(600, 10))
    age(location, old, 3 * DAY_S)
    assert found(location, older_than_s=2 * DAY_S) == old
    assert found(location, older_than_s=4 * DAY_S) == set()
    assert found(location, older_than_s=4 * DAY_S, now_s=time.time() + 2 * DAY_S) == old


def test_a_young_private_version_keeps_its_old_files(location: GraphLocation) -> None:
    """A long load: its files are old when it makes the version that it goes on with."""
    table = make_table(location, specs=(ID,))
    before = files(location)
    private = make_detached(table)
    added = files(location) - before
    manifest = {name for name in added if "/_versions/d" in name}
    age(location, added - manifest, 3 * DAY_S)
    names = found(location, older_than_s=2 * DAY_S)
    assert not any("/data/" in name for name in names)
    remove_files(location, orphans(location, older_than_s=2 * DAY_S))
    again = lance.dataset(table._dataset.uri, version=private.version)
    assert len(content(again)) == table.row_count + 10
    age(location, manifest, 3 * DAY_S)
    assert any("/data/" in name for name in found(location, older_than_s=2 * DAY_S))


def test_a_private_version_that_is_committed_during_the_look_keeps_its_old_files(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer commits and removes it between the listing of files and the look at versions."""
    table = make_table(location)
    before = files(location)
    data = _for_writing(rows(700, 10), table)
    transaction = write_fragments(data, table._dataset, return_transaction=True)
    LanceDataset.commit(table._dataset, transaction, detached=True)
    added = files(location) - before
    (manifest,) = (name for name in added if "/_versions/d" in name)
    age(location, added - {manifest}, 3 * DAY_S)
    look = versions._detached_references

    def finished_meanwhile(*given: object) -> set[str]:
        LanceDataset.commit(table._dataset, transaction, max_retries=0)
        (location.path / manifest).unlink()
        return look(*given)

    monkeypatch.setattr(versions, "_detached_references", finished_meanwhile)
    names = found(location, older_than_s=2 * DAY_S)
    assert not any("/data/" in name for name in names)


def test_what_a_killed_process_was_writing_goes(location: GraphLocation) -> None:
    make_table(location, specs=(ID,))
    root = location.path / "nodes/t"
    index = next((root / "_indices").iterdir())
    for folder in (root / "data", index, root / "_versions"):
        (folder / ".tmpAb12cd").write_bytes(b"x" * 10)
    assert {Path(name).name for name in found(location)} == {".tmpAb12cd"}
    assert len(found(location)) == 3


@pytest.mark.parametrize(
    "name",
    [
        *("notes.txt", "data/readme.md", "_versions/latest_version_hint.json", "_versions/99.manifest.bak"),
        *("_refs/branches/gone.json", "tree/orphan/data/0101.lance", "other/data/0101.lance"),
    ],
)
def test_foreign_files_are_left_alone(location: GraphLocation, name: str) -> None:
    make_table(location)
    path = location.path / "nodes/t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"x")
    assert found(location) == set()


def test_a_write_committed_after_the_listing_is_seen(location: GraphLocation) -> None:
    table = make_table(location)
    staged = stage_append(table, rows(500, 10))
    listed = list_dataset(location, "nodes/t")
    assert find_orphans(location, listed).files
    table = commit_staged(staged)
    assert find_orphans(location, listed).files == ()


def test_nothing_is_known_when_a_version_cannot_be_read(location: GraphLocation) -> None:
    table = make_table(location)
    stage_append(table, rows(500, 10))
    oldest = max((location.path / "nodes/t/_versions").glob("*.manifest"))
    oldest.write_bytes(b"garbage")
    with pytest.raises(StorageError):
        orphans(location)


def test_a_dataset_that_does_not_exist_has_none(location: GraphLocation) -> None:
    assert found(location, "nodes/none") == set()
    assert not (location.path / "nodes").exists()


# ---- The names of Lance as they are, compared with what Lance writes


def test_versions_are_read_from_the_names_that_lance_gives(tmp_path: Path):
    root = tmp_path / "d"
    rows = pa.table({"id": ["a"]})
    for _ in range(3):
        lance.write_dataset(rows, str(root), mode="append" if root.exists() else "create")
    lance.dataset(str(root)).create_branch("a/b", 2)
    found = {attached_version(path.relative_to(root).as_posix()) for path in root.rglob("*.manifest")}
    assert found == {("", 1), ("", 2), ("", 3), ("tree/a/b", 2)}


@pytest.mark.parametrize("fork", [None, "dev", "a/b"])
def test_the_folder_of_a_fork(fork: str | None):
    assert fork_of(line_folder(fork)) == fork


@each_case(
    ("name", "expected"),
    [
        ("_versions/7.manifest", ("", 7)),
        ("_versions/18446744073709551608.manifest", ("", 7)),
        ("_versions/d7.manifest", None),
        ("_versions/latest_version_hint.json", None),
    ],
)
def test_names_of_both_schemes_and_others(name: str, expected: object):
    assert attached_version(name) == expected


def test_a_file_belongs_to_the_innermost_fork():
    folders = ["tree/a/b", "tree/a", ""]
    assert placed("tree/a/b/data/x.lance", folders) == ("tree/a/b", "data/x.lance")
    assert placed("tree/a/data/x.lance", folders) == ("tree/a", "data/x.lance")
    assert placed("_refs/branches/a.json", folders) is None
    assert reference("data/x/0.blob") == reference("data/x.lance") == "data/x"


# ---- The border of a graph: which names are ours, and that no link leads out


@each_case("key", ["node:Paper", "edge:Cites"])
@each_case("incarnation", [None, 0, 17])
def test_every_path_that_we_give_is_ours(key: str, incarnation: int | None) -> None:
    path = table_location(TableKey(key), incarnation)
    assert is_dataset_path(path)
    assert is_dataset_path(f"{path}-{new_ulid().lower()}"), "as on object stores"


@each_case("name", ["draft", "draft.2", "a/b-c/d_e", "nodes/da89d00e1b71df59"])
def test_every_fork_that_we_name_is_ours(name: str) -> None:
    assert is_fork_name(name)
    assert check_fork_name(name) == name
    assert check_fork_name(None) is None


@each_case("name", ["", "/", "a/", "/a", "a//b", ".", "..", "a/..", "a..b", "ü", "a b", "a\n", "a\0"])
def test_other_names_of_forks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name that omnigraph gives"):
        check_fork_name(name)


@each_case(
    "path",
    [
        *("", "nodes", "nodes/x", "other/da89d00e1b71df59", "nodes/da89d00e1b71df59/", "nodes/da89d00e1b71df59\n"),
        *("nodes/da89d00e1b71df59-x", "../nodes/da89d00e1b71df59"),
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path that omnigraph gives"):
        check_dataset_path(path)


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc", "a//b", ".", "a/.", "a\0b"])
def test_a_name_that_is_not_plain_leads_nowhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutsideRootError):
        inside(parse_location(tmp_path), name)


def test_links_are_neither_followed_nor_listed_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "outside" / "data").mkdir(parents=True)
    (tmp_path / "outside" / "data" / "0101.lance").write_bytes(b"x")
    root = tmp_path / "g"
    dataset = root / "nodes" / "da89d00e1b71df59"
    (dataset / "data").mkdir(parents=True)
    (dataset / "data" / "01.lance").write_bytes(b"x")
    (dataset / "data" / "02.lance").symlink_to(tmp_path / "outside" / "data" / "0101.lance")
    (dataset / "tree").symlink_to(tmp_path / "outside")
    location = parse_location(root)
    path = "nodes/da89d00e1b71df59"
    assert [file.name for file in list_files(location, path)] == [f"{path}/data/01.lance"]
    assert list_folders(location, path) == ["data"]
    assert sorted(entry.name for entry in walk(location, path)) == ["01.lance", "02.lance", "data", "tree"]
    with pytest.raises(OutsideRootError):
        refuse_links(location, path)
    for name in (f"{path}/tree/data/0101.lance", f"{path}/data/02.lance"):
        with pytest.raises(OutsideRootError):
            delete_files(location, [f"{path}/data/01.lance", name])
    with pytest.raises(OutsideRootError):
        list(list_files(location, f"{path}/tree"))
    assert (dataset / "data" / "01.lance").exists(), "all or nothing"
    assert (tmp_path / "outside" / "data" / "0101.lance").exists()


UUID = "04f233d0-4d6d-4ba2-8e46-b469f616099a"


@each_case(
    "name",
    [
        "data/001000111101010011100010cf8820447297a553c0df91cf71.lance",
        "data/0010001111010100/01000000000000000000000000000000.blob",
        *("_deletions/0-3-13594106866179992589.arrow", "_deletions/0-3-13594106866179992589.bin"),
        *(f"_indices/{UUID}/page_data.lance", f"_indices/{UUID}/index.idx", f"_transactions/4-{UUID}.txn"),
        *("_versions/18446744073709551611.manifest", "_versions/d9223372036854775809.manifest"),
        *("_versions/18446744073709551611.manifest#1", "_versions/latest_version_hint.json"),
        *("_refs/branches/x%2Fdeep.json", "_checksums/7.json", "_checksums/.7.json", "_reclaimed"),
        "data/.tmp_x.lance",
    ],
)
def test_files_that_lance_and_we_make_may_be_deleted(name: str) -> None:
    for folder in ("nodes/da89d00e1b71df59", "edges/da89d00e1b71df59-7/tree/a/b", "__manifest"):
        assert is_deletable(f"{folder}/{name}")


@each_case(
    "name",
    [
        *("notes.txt", "data/notes.txt", "data/x/y/z.blob", "_versions/a", f"_indices/x/{UUID}", "x/data/01.lance"),
        *(".ssh/id", "data/../x.lance"),
    ],
)
def test_other_files_may_not(name: str) -> None:
    for folder in ("nodes/da89d00e1b71df59", "__manifest", "letters", "__recovery"):
        assert not is_deletable(f"{folder}/{name}")
