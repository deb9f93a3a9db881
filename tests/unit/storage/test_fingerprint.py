"""The fingerprint of a table: equal exactly when the same rows are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.forks import create_fork
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    stage_append,
    stage_delete,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.location import GraphLocation, parse_location

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("size", pa.int32())])
PATH = "nodes/thing"


def rows(ids: str, size: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "size": [size] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    """Two fragments with three rows."""
    empty = create_table(location, PATH, SCHEMA)
    return append(append(empty, "ab"), "c")


def append(table: Table, ids: str) -> Table:
    return commit_staged(stage_append(table, rows(ids)))


def delete(table: Table, *ids: str) -> Table:
    addresses = table.read(["_rowaddr"], OneOf("id", ids))["_rowaddr"].to_pylist()
    staged = stage_delete(table, addresses)
    assert staged is not None
    return commit_staged(staged)


def index(table: Table) -> Table:
    spec = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)
    staged = stage_indices(table, [spec])
    assert staged is not None
    return commit_staged(staged)


def ids(table: Table) -> str:
    return "".join(sorted(table.read(["id"])["id"].to_pylist()))


def test_another_handle_of_the_same_version_has_the_same(
    location: GraphLocation, table: Table
) -> None:
    again = TableStore(location).open(PATH, version=table.version)
    assert again is not table
    assert again.fingerprint == table.fingerprint
    assert TableStore(location).open(PATH).fingerprint == table.fingerprint


def test_an_index_leaves_it_alone(table: Table) -> None:
    indexed = index(table)
    assert indexed.version == table.version + 1
    assert indexed.fingerprint == table.fingerprint


@pytest.mark.parametrize(
    "write",
    [
        lambda table: append(table, "d"),
        lambda table: delete(table, "a"),
        lambda table: delete(table, "c"),
        lambda table: commit_staged(stage_upsert(table, rows("a", size=7))),
        lambda table: commit_staged(stage_upsert(table, rows("z"))),
        lambda table: commit_staged(stage_overwrite(table, rows("abc"))),
        lambda table: commit_staged(stage_overwrite(table, rows(""))),
    ],
    ids=["append", "delete", "delete a fragment", "update", "insert", "overwrite", "truncate"],
)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_write_changes_it(table: Table, write: Callable[[Table], Table], is_indexed) -> None:
    before = index(table) if is_indexed else table
    after = write(before)
    assert after.fingerprint != before.fingerprint
    assert before.fingerprint == table.fingerprint, "the state before is as it was"


def test_states_of_a_history_share_one_only_when_they_share_their_rows(table: Table) -> None:
    without_a = delete(table, "a")
    only_c = delete(without_a, "b")
    first_a = append(only_c, "a")
    only_c_again = delete(first_a, "a")
    second_a = append(only_c_again, "a")
    states = [table, without_a, only_c, first_a, second_a]
    assert len({state.fingerprint for state in states}) == len(states)
    assert only_c_again.fingerprint == only_c.fingerprint, "a fragment that came and went"


def test_a_restored_state_has_the_one_it_had(table: Table) -> None:
    deleted = delete(table, "a")
    restored = commit_staged(stage_restore(deleted, table.version))
    assert ids(restored) == "abc"
    assert restored.fingerprint == table.fingerprint != deleted.fingerprint


def test_equal_rows_of_two_tables_are_told_apart(location: GraphLocation, table: Table) -> None:
    other = append(append(create_table(location, "nodes/other", SCHEMA), "ab"), "c")
    assert other.read().equals(table.read())
    assert other.fingerprint != table.fingerprint


def test_a_table_made_again_at_the_same_place_is_another(
    location: GraphLocation, table: Table
) -> None:
    before = table.fingerprint
    again = append(append(create_table(location, PATH, SCHEMA), "ab"), "c")
    assert (again.path, again.version) == (table.path, table.version)
    assert again.fingerprint != before


def test_a_renamed_column_is_another_state(location: GraphLocation, table: Table) -> None:
    before = table.fingerprint
    TableStore(location).open(PATH)._dataset.alter_columns({"path": "size", "name": "weight"})
    renamed = TableStore(location).open(PATH)
    assert renamed.schema.names == ["id", "weight"]
    assert renamed.fingerprint != before


# ---- branches


def test_a_fork_without_writes_shares_it(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "side")
    assert fork.branch == "side"
    assert fork.fingerprint == table.fingerprint
    opened = TableStore(location).open(PATH, "side")
    assert opened.fingerprint == table.fingerprint


def test_a_fork_of_rows_with_deletions_shares_it(location: GraphLocation, table: Table) -> None:
    deleted = delete(table, "b")
    assert create_fork(location, deleted, "side").fingerprint == deleted.fingerprint


def test_an_index_on_a_fork_keeps_what_is_shared(location: GraphLocation, table: Table) -> None:
    assert index(create_fork(location, table, "side")).fingerprint == table.fingerprint


def test_the_first_write_of_either_side_parts_them(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "side")
    written, moved = append(fork, "x"), append(table, "x")
    found = {table.fingerprint, written.fingerprint, moved.fingerprint}
    assert len(found) == 3, "equal rows in two places are still two states"
    assert fork.fingerprint == table.fingerprint


def test_different_deletions_at_the_same_version_are_told_apart(
    location: GraphLocation, table: Table
) -> None:
    fork = create_fork(location, table, "side")
    here, there = delete(table, "a"), delete(fork, "b")
    assert (ids(here), ids(there)) == ("bc", "ac")
    assert here.version == there.version
    assert here.fingerprint != there.fingerprint


def test_a_branch_made_again_with_other_rows_never_repeats_one(
    location: GraphLocation, table: Table
) -> None:
    """Path, branch and version are all the same; only the files tell the difference."""
    first = append(create_fork(location, table, "side"), "x")
    name, version, seen = first.branch, first.version, first.fingerprint
    second = append(create_fork(location, table, "side"), "y")
    assert (second.path, second.branch, second.version) == (PATH, name, version)
    assert ids(second) == "abcy"
    assert second.fingerprint != seen
