"""Tables in parts: every row is in exactly one part, and tasks read the pinned state."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequestError, StorageError
from omnigraph.storage.datasets.partitions import (
    TableAddress,
    check_condition,
    group_fragments,
    list_fragment_groups,
    scan_fragments,
    scan_schema,
    table_address,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.location import parse_location


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five fragments of two rows each; one row of the second is deleted, and a sixth came later."""
    uri = str(tmp_path / "nodes" / "t")
    for number in range(5):
        rows = pa.table({"id": [f"{number}a", f"{number}b"], "n": [number, number + 100]})
        lance.write_dataset(rows, uri, mode="append" if number else "create")
    dataset = lance.dataset(uri)
    dataset.delete("id = '1b'")
    pinned = lance.dataset(uri).version
    lance.write_dataset(pa.table({"id": ["late"], "n": [7]}), uri, mode="append")
    return TableStore(parse_location(tmp_path)).open("nodes/t", version=pinned)


def ids_of(table: Table, group_rows: int, where: str | None = None) -> list[str]:
    address = pickle.loads(pickle.dumps(table_address(table)))
    return [
        text
        for group in list_fragment_groups(table, group_rows)
        for batch in scan_fragments(address, group.fragment_ids, ["id"], where)
        for text in batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("group_rows", [1, 3, 4, 1000])
def test_all_groups_together_are_the_pinned_table(table: Table, group_rows: int) -> None:
    expected = ["0a", "0b", "1a", "2a", "2b", "3a", "3b", "4a", "4b"]
    assert sorted(ids_of(table, group_rows)) == expected
    counts = [group.row_count for group in list_fragment_groups(table, group_rows)]
    assert sum(counts) == table.row_count


def test_a_condition_is_evaluated_by_the_scan(table: Table) -> None:
    assert sorted(ids_of(table, 3, "n >= 102")) == ["2b", "3b", "4b"]


def test_columns_of_a_scan(table: Table) -> None:
    assert scan_schema(table).names == ["id", "n"]
    assert scan_schema(table, ["n", "id"]).names == ["n", "id"]
    with pytest.raises(BadRequestError, match="there is no column 'x'; columns are id, n"):
        scan_schema(table, ["x"])


def test_a_wrong_condition_is_found_before_any_task(table: Table) -> None:
    check_condition(table, "n > 1 AND id IS NOT NULL")
    for text in ("x > 1", "n >", "n"):
        with pytest.raises(BadRequestError, match="is wrong"):
            check_condition(table, text)


def test_a_version_or_fragment_that_is_gone_is_a_storage_error(table: Table) -> None:
    address = table_address(table)
    with pytest.raises(StorageError):
        list(scan_fragments(TableAddress(uri=address.uri, version=99), [0], ["id"]))
    with pytest.raises(StorageError, match="no fragment 77"):
        list(scan_fragments(address, [77], ["id"]))


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60))
def test_groups_hold_every_row_once_and_are_not_larger_than_needed(
    counts: list[int], group_rows: int
) -> None:
    groups = group_fragments(enumerate(counts), group_rows)
    ids = [number for group in groups for number in group.fragment_ids]
    assert ids == [number for number, count in enumerate(counts) if count]
    for group in groups:
        assert group.row_count == sum(counts[number] for number in group.fragment_ids)
        assert group.row_count <= group_rows or len(group.fragment_ids) == 1
    for left, right in itertools.pairwise(groups):
        assert left.row_count + counts[right.fragment_ids[0]] > group_rows
