"""New vectors as a file beside the others: what Lance does to rows, their lineage and their indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.storage.datasets.fragments import remove_updates, stage_updates, update_fragment
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    new_files,
    stage_append,
    stage_delete,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects

VECTOR = pa.list_(pa.float32(), 2)
SCHEMA = pa.schema([("id", pa.utf8()), ("body", pa.utf8()), ("vec", VECTOR)])


def rows(*ids: str) -> pa.Table:
    columns = [pa.array(ids), pa.array(ids), pa.array([[0.0, 1.0]] * len(ids), VECTOR)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two fragments, `a b c` without `a`, and `d e`."""
    table = create_table(parse_location(str(tmp_path)), "t", SCHEMA)
    for ids in ("abc", "de"):
        table = commit_staged(stage_append(table, rows(*ids)))
    staged = stage_delete(table, [0])
    assert staged is not None
    return commit_staged(staged)


def stored(table: Table) -> dict[str, dict[str, Any]]:
    columns = ["id", "body", "vec", "_rowid", "_row_last_updated_at_version"]
    found = lance.dataset(table._dataset.uri, version=table.version).to_table(columns=columns)
    return {row["id"]: row for row in found.to_pylist()}


def update(table: Table, fragment: int, values: dict[str, list[float] | None]) -> str:
    known = stored(table)
    row_ids = pa.array([known[key]["_rowid"] for key in values], pa.uint64())
    vectors = pa.array(list(values.values()), VECTOR)
    return update_fragment(table, fragment, pa.table({"_rowid": row_ids, "vec": vectors}))


def test_only_the_named_rows_change_and_their_lineage_says_so(table: Table) -> None:
    before = stored(table)
    updates = [update(table, 0, {"c": [1.0, 0.0], "b": None}), update(table, 1, {"e": [0.5, 0.5]})]
    after = stored(commit_staged(stage_updates(table, updates)))
    assert list(after) == list("bcde")
    for key, vec in {"b": None, "c": [1.0, 0.0], "e": [0.5, 0.5]}.items():
        wanted = {"vec": vec, "_row_last_updated_at_version": table.version + 1}
        assert after[key] == before[key] | wanted
    assert after["d"] == before["d"]


def test_an_index_of_another_column_keeps_its_rows_and_one_of_the_column_loses_the_fragment(
    table: Table,
) -> None:
    dataset = table._dataset
    dataset.create_scalar_index("body", "BTREE", name="body")
    dataset.create_index("vec", "IVF_FLAT", name="vec", num_partitions=1)
    current = type(table)(lance.dataset(dataset.uri), table.path, None)
    committed = commit_staged(stage_updates(current, [update(current, 0, {"b": [9.0, 9.0]})]))
    found = committed._dataset.describe_indices()
    covered = {item.name: {n for s in item.segments for n in s.fragment_ids} for item in found}
    assert covered == {"body": {0, 1}, "vec": {1}}
    nearest = {"column": "vec", "q": [9.0, 9.0], "k": 1}
    assert committed._dataset.to_table(nearest=nearest)["id"].to_pylist() == ["b"]


def test_files_of_an_update_that_is_not_committed_can_be_removed(
    table: Table, tmp_path: Path
) -> None:
    folder = tmp_path / "t" / "data"
    before = {path.name for path in folder.iterdir()}
    change = update(table, 0, {"b": [1.0, 0.0]})
    (name,) = new_files(stage_updates(table, [change]))
    assert {path.name for path in folder.iterdir()} - before == {Path(name).name}
    objects = ObstoreObjects(parse_location(str(tmp_path)), durable=False)
    remove_updates(table, [change], objects)
    assert {path.name for path in folder.iterdir()} == before
