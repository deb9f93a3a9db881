"""Sorting more lines than memory takes: whatever the sizes, the order is that of the ids."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.pipeline.export import files
from omnigraph.pipeline.export.files import line_bytes, merged_blocks, sorted_blocks, write_runs
from omnigraph.pipeline.export.formats import LINES


def batches(ids: list[str], size: int) -> list[pa.RecordBatch]:
    lines = [f"line of {name}\n" for name in ids]
    table = pa.table({"id": ids, "line": lines}).cast(LINES)
    return table.to_batches(max_chunksize=size)


def text(blocks: list[pa.RecordBatch]) -> str:
    return b"".join(bytes(line_bytes(block)) for block in blocks).decode()


IDS = [f"{number}{tail}" for number in range(50) for tail in ("", "é", "🦊", "\uffff")]


def shuffled() -> list[str]:
    ids = list(IDS)
    random.Random(7).shuffle(ids)
    return ids


@pytest.mark.parametrize("run_bytes", [1, 500, 20_000, 10**9])
@pytest.mark.parametrize("block_bytes", [1, 300, 10**6])
def test_lines_come_by_ascending_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int, block_bytes: int
) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(files, "MAX_MERGED_RUNS", 3)
    found = list(sorted_blocks(batches(shuffled(), 20), str(tmp_path), run_bytes))
    assert text(found) == "".join(f"line of {name}\n" for name in sorted(IDS))
    assert list(tmp_path.iterdir()) == []


def test_runs_stay_until_they_are_removed(tmp_path: Path) -> None:
    runs = write_runs(batches(shuffled(), 20), str(tmp_path), 1500)
    assert len(runs) > 3
    once, again = text(list(merged_blocks(runs))), text(list(merged_blocks(runs)))
    assert once == again == "".join(f"line of {name}\n" for name in sorted(IDS))


def test_nothing_to_sort_is_nothing(tmp_path: Path) -> None:
    assert list(sorted_blocks([], str(tmp_path))) == []
    assert list(sorted_blocks(batches(["a"], 1)[:0], str(tmp_path))) == []
    assert write_runs([], str(tmp_path)) == []
    assert list(merged_blocks([])) == []
