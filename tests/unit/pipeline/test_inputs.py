"""Which files of a folder a directory or a pattern stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import InputFileError
from omnigraph.pipeline.inputs import find_files

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_pattern_without_a_file_is_an_error(folder: Path) -> None:
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/*/x.csv")
    with pytest.raises(InputFileError, match="no file"):
        find_files(f"{folder}/missing/*.csv")
