"""The border of a graph: which names are ours, and that no link leads out."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import OutsideRootError
from omnigraph.storage.listing import delete_files, is_deletable, list_files, list_folders
from omnigraph.storage.location import (
    check_dataset_path,
    check_fork_name,
    inside,
    is_dataset_path,
    is_fork_name,
    parse_location,
    refuse_links,
    table_location,
    walk,
)
from support.subtests import each_case


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


@each_case(
    "name", ["", "/", "a/", "/a", "a//b", ".", "..", "a/..", "a..b", "ü", "a b", "a\n", "a\0"]
)
def test_other_names_of_forks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name that omnigraph gives"):
        check_fork_name(name)


@each_case(
    "path",
    [
        "",
        "nodes",
        "nodes/x",
        "other/da89d00e1b71df59",
        "nodes/da89d00e1b71df59/",
        "nodes/da89d00e1b71df59\n",
        "nodes/da89d00e1b71df59-x",
        "../nodes/da89d00e1b71df59",
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
    assert sorted(entry.name for entry in walk(location, path)) == [
        "01.lance",
        "02.lance",
        "data",
        "tree",
    ]
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
        "_deletions/0-3-13594106866179992589.arrow",
        "_deletions/0-3-13594106866179992589.bin",
        f"_indices/{UUID}/page_data.lance",
        f"_indices/{UUID}/index.idx",
        f"_transactions/4-{UUID}.txn",
        "_versions/18446744073709551611.manifest",
        "_versions/d9223372036854775809.manifest",
        "_versions/18446744073709551611.manifest#1",
        "_versions/latest_version_hint.json",
        "_refs/branches/x%2Fdeep.json",
        "_checksums/7.json",
        "_checksums/.7.json",
        "_reclaimed",
        "data/.tmp_x.lance",
    ],
)
def test_files_that_lance_and_we_make_may_be_deleted(name: str) -> None:
    for folder in ("nodes/da89d00e1b71df59", "edges/da89d00e1b71df59-7/tree/a/b", "__manifest"):
        assert is_deletable(f"{folder}/{name}")


@each_case(
    "name",
    [
        "notes.txt",
        "data/notes.txt",
        "data/x/y/z.blob",
        "_versions/a",
        f"_indices/x/{UUID}",
        "x/data/01.lance",
        ".ssh/id",
        "data/../x.lance",
    ],
)
def test_other_files_may_not(name: str) -> None:
    for folder in ("nodes/da89d00e1b71df59", "__manifest", "letters", "__recovery"):
        assert not is_deletable(f"{folder}/{name}")
