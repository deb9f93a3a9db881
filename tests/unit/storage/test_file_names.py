"""The names of Lance as they are, compared with what Lance writes."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.storage.listing import attached_version, fork_of, line_folder, placed, reference
from support.subtests import each_case


def test_versions_are_read_from_the_names_that_lance_gives(tmp_path: Path):
    root = tmp_path / "d"
    rows = pa.table({"id": ["a"]})
    for _ in range(3):
        lance.write_dataset(rows, str(root), mode="append" if root.exists() else "create")
    lance.dataset(str(root)).create_branch("a/b", 2)
    found = {
        attached_version(path.relative_to(root).as_posix()) for path in root.rglob("*.manifest")
    }
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
