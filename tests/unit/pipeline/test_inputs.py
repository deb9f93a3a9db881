"""Which files of a folder a directory or a pattern stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import InputFileError
from omnigraph.pipeline.load.inputs import find_files

FILES = (
    "a.csv",
    "b.txt",
    "_SUCCESS",
    ".a.csv.crc",
    "2024/b.csv",
    "2024/05/c.csv",
    "2024/_c.csv",
    "_temporary/0/c.csv",
    ".git/d.csv",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**/*.csv", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**.csv", ["2024/05/c.csv", "2024/b.csv", "a.csv"]),
        ("**", ["2024/05/c.csv", "2024/b.csv", "a.csv", "b.txt"]),
        ("2024/**/*.csv", ["2024/05/c.csv", "2024/b.csv"]),
        ("**/05/*.csv", ["2024/05/c.csv"]),
        ("**/2024/**/c*", ["2024/05/c.csv"]),
        ("*", ["a.csv", "b.txt"]),
        ("*/*.csv", ["2024/b.csv"]),
        ("*.c[!x]v", ["a.csv"]),
        ("?.csv", ["a.csv"]),
        ("_*", ["_SUCCESS"]),
        (".*", [".a.csv.crc"]),
        ("**/_*.csv", ["2024/_c.csv"]),
        ("_temporary/**/*.csv", ["_temporary/0/c.csv"]),
        ("*/_c.csv", ["2024/_c.csv"]),
    ],
)
def test_a_pattern_takes_these_files(folder: Path, pattern: str, expected: list[str]) -> None:
    for source in (f"{folder}/{pattern}", f"file://{folder}/{pattern}"):
        found = find_files(source, ("csv",))
        assert [file.path.removeprefix(f"{folder}/") for file in found] == expected


def test_folders_stand_for_columns(tmp_path: Path) -> None:
    names = ("k=a%2Fb/day=1/x.csv", "k=__HIVE_DEFAULT_PARTITION__/plain/x.csv", "x=/=y/x.csv")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    expected = [(("k", None),), (("k", "a/b"), ("day", "1")), (("x", ""),)]
    for source in (f"{tmp_path}", f"{tmp_path}/**/*.csv"):
        assert [file.partitions for file in find_files(source)] == expected
    assert find_files(f"{tmp_path}/k=a%2Fb/day=1/x.csv")[0].partitions == ()
    assert find_files(f"{tmp_path}/k=a%2Fb")[0].partitions == (("day", "1"),)
    (tmp_path / "k=1" / "k=2").mkdir(parents=True)
    (tmp_path / "k=1" / "k=2" / "x.csv").touch()
    with pytest.raises(InputFileError, match="two of its folders give the column `k`"):
        find_files(f"{tmp_path}")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
@pytest.mark.parametrize("pattern", ["", "**/*.csv", "2024/b*", "2*/b.csv"])
def test_the_folder_of_a_table_is_refused(folder: Path, log: str, kind: str, pattern: str) -> None:
    at = folder / "2024" / log
    at.parent.mkdir()
    at.touch()
    with pytest.raises(InputFileError, match=f"/2024 is a table of {kind}.*`table:`"):
        find_files(f"{folder}/{pattern}", ("csv",))
    assert len(find_files(f"{folder}/*.csv")) == 1


def test_a_pattern_without_a_file_is_an_error(folder: Path) -> None:
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/*/x.csv")
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/missing/*.csv")
