"""What no version refers to is found, and nothing else."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import lance
import pytest
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.errors import StorageError
from omnigraph.storage.datasets import versions
from omnigraph.storage.datasets.forks import create_fork
from omnigraph.storage.datasets.indexes import stage_indices
from omnigraph.storage.datasets.staged import (
    _for_writing,
    commit_staged,
    stage_append,
    stage_delete,
    stage_overwrite,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import Removal, find_orphans, list_dataset, remove_files
from omnigraph.storage.location import GraphLocation, parse_location
from support.tables import (
    ID,
    NUMBER,
    content,
    delete,
    everything,
    make_table,
    rows,
    with_text_index,
)

DAY_S = 86_400.0


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def files(location: GraphLocation) -> set[str]:
    root = location.path
    return {it.relative_to(root).as_posix() for it in root.rglob("*") if it.is_file()}


def orphans(
    location: GraphLocation,
    path: str = "nodes/t",
    older_than_s: float | None = None,
    now_s: float | None = None,
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


def test_every_abandoned_write_is_found_and_every_version_stays_readable(
    location: GraphLocation,
) -> None:
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
def test_what_a_fork_reads_of_its_base_is_in_use_for_its_sake_alone(
    location: GraphLocation, branch: str
) -> None:
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
    assert {
        it.name for it in location.path.rglob("*") if it.is_dir() and it not in before
    } <= shared


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
        "notes.txt",
        "data/readme.md",
        "_versions/latest_version_hint.json",
        "_versions/99.manifest.bak",
        "_refs/branches/gone.json",
        "tree/orphan/data/0101.lance",
        "other/data/0101.lance",
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
