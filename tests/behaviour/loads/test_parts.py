"""Into how many parts an input is cut: as many as tasks need, not as many as files times tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from omnigraph.pipeline.sources import parts as room
from omnigraph.pipeline.sources.mapping import MappedType, SourceFormat
from omnigraph.pipeline.sources.parts import Part, cut_mapped_files

ROWS = 1_000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has as many rows as a file, as usual files of a million rows do."""
    monkeypatch.setattr(room, "_PART_ROWS", ROWS)


def table_files(folder: Path, count: int, kind: str = "parquet") -> MappedType:
    """Files of ten row groups each."""
    folder.mkdir()
    rows = pa.table({"n": np.arange(ROWS)})
    for number in range(count):
        path = folder / f"{number:03}.{kind}"
        if kind == "orc":
            orc.write_table(rows, str(path))
        else:
            pq.write_table(rows, path, row_group_size=ROWS // 10)
    return MappedType(type_key="node:Thing", source=str(folder), format=SourceFormat(kind), ends=None)


def check_whole(parts: list[Part], files: int) -> None:
    """Every group of every file is in one part."""
    groups = [(part.file.path, group) for part in parts for group in part.groups]
    assert len(groups) == len(set(groups))
    assert len({path for path, _ in groups}) == files
    assert [part.number for part in parts] == list(range(len(parts)))


@pytest.mark.parametrize("parallelism", [2, 8, 64])
def test_many_files_are_not_cut_at_all(tmp_path: Path, parallelism: int):
    parts = cut_mapped_files([table_files(tmp_path / "in", 100)], parallelism)
    assert len(parts) == 100
    check_whole(parts, 100)


def test_one_file_is_cut_for_all_tasks(tmp_path: Path):
    parts = cut_mapped_files([table_files(tmp_path / "in", 1)], 10)
    assert len(parts) == 10
    assert [part.first_record for part in parts] == list(range(0, ROWS, ROWS // 10))
    check_whole(parts, 1)


def test_a_few_files_are_cut_so_that_all_tasks_have_work(tmp_path: Path):
    parts = cut_mapped_files([table_files(tmp_path / "in", 4)], 8)
    assert len(parts) == 8
    check_whole(parts, 4)


def test_files_of_all_types_count_together(tmp_path: Path):
    types = [table_files(tmp_path / "a", 30), table_files(tmp_path / "b", 30, "orc")]
    parts = cut_mapped_files(types, 16)
    assert len(parts) == 60
    check_whole(parts, 60)


def test_a_file_with_more_rows_than_a_part_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "_PART_ROWS", ROWS // 5)
    parts = cut_mapped_files([table_files(tmp_path / "in", 20)], 2)
    assert len(parts) == 100
    check_whole(parts, 20)
