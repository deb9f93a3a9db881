"""Tables in parts of equal work: every row is in exactly one part, and a scan reads what it was asked for."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import StorageError
from omnigraph.storage.datasets import partitions
from omnigraph.storage.datasets.partitions import (
    FragmentGroup,
    RowSpan,
    TableAddress,
    TableExtent,
    column_bytes,
    part_count,
    plan_parts,
    scan_part,
    scan_schema,
    table_address,
    table_extent,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.location import parse_location

ROWS = 300
#: Deletes every seventh row, all of a fragment, and most of another.
DELETED = "n % 7 = 0 OR (n >= 100 AND n < 150) OR (n > 160 AND n < 195)"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six fragments of fifty rows with gaps; a row came later."""
    uri = str(tmp_path / "nodes" / "t")
    for begin in range(0, ROWS, 50):
        numbers = list(range(begin, begin + 50))
        rows = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
        lance.write_dataset(rows, uri, mode="append" if begin else "create")
    lance.dataset(uri).delete(DELETED)
    pinned = lance.dataset(uri).version
    lance.write_dataset(pa.table({"n": [7000], "text": ["late"]}), uri, mode="append")
    return TableStore(parse_location(tmp_path)).open("nodes/t", version=pinned)


def rows_of(
    table: Table, row_bytes: int, where: str | None = None, columns: Sequence[str] = ("n",)
) -> list[pa.RecordBatch]:
    address = pickle.loads(pickle.dumps(table_address(table)))
    parts = plan_parts(table_extent(table), row_bytes, whole_fragments=where is not None)
    return [
        batch
        for part in pickle.loads(pickle.dumps(parts))
        for batch in scan_part(address, part, columns, where)
    ]


def numbers_of(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.mark.parametrize("row_bytes", [1, 2**20, 2**24, 2**30])
@pytest.mark.parametrize("where", [None, "n > 0", "n >= 196 OR n = 9", "n > 9999"])
def test_all_parts_together_are_the_pinned_rows_in_order(
    table: Table, row_bytes: int, where: str | None
) -> None:
    expected = lance.dataset(table._dataset.uri, version=table.version).to_table(filter=where)
    assert numbers_of(rows_of(table, row_bytes, where)) == expected["n"].to_pylist()
    counted = rows_of(table, row_bytes, where, columns=[])
    assert sum(batch.num_rows for batch in counted) == expected.num_rows


def test_parts_have_equal_rows_whatever_the_fragments_are(table: Table) -> None:
    extent = table_extent(table)
    assert extent.row_count == table.row_count
    parts = plan_parts(extent, 2**22, whole_fragments=False)
    sizes = {part.end - part.begin for part in parts if isinstance(part, RowSpan)}
    assert len(parts) > 8
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(0, 5000), max_size=30), st.integers(1, 10**6))
def test_every_row_is_in_exactly_one_part(counts: list[int], row_bytes: int) -> None:
    extent = TableExtent(fragments=tuple(enumerate(counts)), stored_bytes=0)
    spans = plan_parts(extent, row_bytes, whole_fragments=False)
    ends = [0, *(part.end for part in spans if isinstance(part, RowSpan))]
    begins = [part.begin for part in spans if isinstance(part, RowSpan)]
    assert begins == ends[:-1]
    assert ends[-1] == sum(counts)
    assert all(begin < end for begin, end in zip(begins, ends[1:], strict=True))
    groups = plan_parts(extent, row_bytes, whole_fragments=True)
    ids = [n for part in groups if isinstance(part, FragmentGroup) for n in part.fragment_ids]
    assert ids == [number for number, count in enumerate(counts) if count]
    assert len(groups) <= max(1, len(ids))


@given(st.integers(0, 10**10), st.integers(0, 10**5))
def test_parts_are_neither_small_nor_more_than_rows(rows: int, row_bytes: int) -> None:
    count = part_count(rows, row_bytes)
    assert 1 <= count <= max(1, rows)
    size = rows * (row_bytes + partitions._ROW_BYTES)
    assert size / count <= partitions.LARGE_PART_BYTES or count == rows
    assert count == 1 or size / count > partitions.PART_BYTES / 2


def test_the_size_of_a_value_comes_from_its_type_or_the_files() -> None:
    schema = pa.schema(
        [
            pa.field("flag", pa.bool_()),
            pa.field("n", pa.int64()),
            pa.field("vec", pa.list_(pa.float32(), 100)),
            pa.field("text", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("blob", pa.large_binary()),
        ]
    )
    known = {"flag": 1, "n": 8, "vec": 400, "blob": 16 * 1024}
    short = TableExtent(fragments=((0, 1000),), stored_bytes=0)
    assert column_bytes(schema, short) == known | {"text": 20, "tags": 20}
    long = TableExtent(fragments=((0, 1000),), stored_bytes=1000 * (409 + 3000))
    assert column_bytes(schema, long) == known | {"text": 1500, "tags": 1500}


def test_wide_rows_come_in_batches_of_bounded_size(tmp_path: Path) -> None:
    values = np.zeros(20_000 * 512, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), 512)
    lance.write_dataset(pa.table({"v": vectors}), str(tmp_path / "nodes" / "v"))
    table = TableStore(parse_location(tmp_path)).open("nodes/v")
    batches = rows_of(table, 1, columns=["v"])
    assert sum(batch.num_rows for batch in batches) == 20_000
    assert max(batch.nbytes for batch in batches) < 16 * 2**20


class Scans:
    """What was asked of Lance."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        real = lance.LanceDataset.scanner

        def scanner(dataset: lance.LanceDataset, **options: Any) -> Any:
            self.asked.append(options)
            return real(dataset, **options)

        patch.setattr(lance.LanceDataset, "scanner", scanner)

    @property
    def columns(self) -> list[list[str]]:
        return [options["columns"] for options in self.asked]


@pytest.fixture
def scans(table: Table, monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(monkeypatch)


def test_a_scan_asks_for_the_named_columns_and_no_others(table: Table, scans: Scans) -> None:
    rows_of(table, 1, columns=["text"])
    assert scans.columns == [["text"]]
    scans.asked.clear()
    rows_of(table, 1, where="n > 5", columns=["text"])
    assert set(map(tuple, scans.columns)) == {(), ("text",)}


def test_rows_without_columns_are_counted_from_metadata(table: Table, scans: Scans) -> None:
    batches = rows_of(table, 1, columns=[])
    assert sum(batch.num_rows for batch in batches) == table.row_count
    assert scans.asked == []


def test_columns_are_read_whole_when_many_rows_match(table: Table, scans: Scans) -> None:
    rows_of(table, 1, where="n > 5")
    assert scans.asked[-1]["late_materialization"] is False
    rows_of(table, 1, where="n = 9")
    assert "late_materialization" not in scans.asked[-1]


def test_parts_without_matches_are_not_read(table: Table, scans: Scans) -> None:
    assert rows_of(table, 1, where="n > 9999") == []
    assert scans.columns == [[]] * len(scans.asked)


def test_a_version_or_fragment_that_is_gone_is_a_storage_error(table: Table) -> None:
    address = table_address(table)
    gone = TableAddress(uri=address.uri, version=99)
    with pytest.raises(StorageError):
        list(scan_part(gone, RowSpan(begin=0, end=5), ["n"]))
    group = FragmentGroup(fragment_ids=(77,), row_count=1)
    with pytest.raises(StorageError, match="no fragment 77"):
        list(scan_part(address, group, ["n"], "n > 1"))


def test_the_columns_of_a_real_table_have_sizes(table: Table) -> None:
    sizes = column_bytes(scan_schema(table), table_extent(table))
    assert sizes["n"] == 8
    assert sizes["text"] >= 20
