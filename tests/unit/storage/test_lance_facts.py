"""Facts about Lance that the code relies on. One that fails after an upgrade names what has to be thought over."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph.errors import DriftError, LeaseLostError
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.forks import create_fork
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, list_indexes, stage_indices
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

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])


def rows(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def ids(dataset: LanceDataset) -> list[str]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    """Two fragments: a, b and c, d."""
    table = create_table(location, "t", SCHEMA)
    table = commit_staged(stage_append(table, rows("a", "b")))
    return commit_staged(stage_append(table, rows("c", "d")))


def head(table: Table) -> LanceDataset:
    return lance.dataset(table._dataset.uri)


# ---- commits


def test_an_append_is_rebased_even_with_zero_retries(table: Table) -> None:
    mine = write_fragments(rows("x"), table._dataset, return_transaction=True)
    commit_staged(stage_append(table, rows("y")))
    landed = LanceDataset.commit(table._dataset, mine, max_retries=0)
    assert landed.version == table.version + 2, "which is why commit_staged checks both versions"
    assert ids(landed) == ["a", "b", "c", "d", "x", "y"]


def test_an_overwrite_is_strict(table: Table) -> None:
    dataset = table._dataset
    fragments = [item.metadata for item in dataset.get_fragments()]
    mine = LanceOperation.Overwrite(
        dataset.schema, fragments + list(write_fragments(rows("x"), dataset, schema=dataset.schema))
    )
    commit_staged(stage_append(table, rows("y")))
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(dataset, mine, read_version=dataset.version, max_retries=0)
    assert ids(head(table)) == ["a", "b", "c", "d", "y"]


def test_an_overwrite_that_lists_old_fragments_keeps_their_rows(table: Table) -> None:
    dataset = table._dataset
    fragments = [item.metadata for item in dataset.get_fragments()]
    fragments += list(write_fragments(rows("x"), dataset, schema=dataset.schema))
    operation = LanceOperation.Overwrite(dataset.schema, fragments)
    landed = LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)
    assert (landed.version, ids(landed)) == (dataset.version + 1, ["a", "b", "c", "d", "x"])
    numbers = landed.to_table(columns=["_rowid"], with_row_id=True)["_rowid"].to_pylist()
    assert len(set(numbers)) == 5


def test_a_staged_write_moves_nothing_before_its_commit(table: Table) -> None:
    for staged in (
        stage_append(table, rows("x")),
        stage_upsert(table, rows("a", n=5)),
        stage_overwrite(table, rows("x")),
        stage_delete(table, [0]),
        stage_restore(table, 1),
    ):
        assert staged is not None
        assert head(table).version == table.version


def test_commit_staged_detects_drift_for_every_kind_of_write(table: Table) -> None:
    staged = [
        stage_append(table, rows("x")),
        stage_upsert(table, rows("a", n=5)),
        stage_overwrite(table, rows("x")),
        stage_delete(table, [0]),
        stage_restore(table, 1),
    ]
    moved = commit_staged(stage_append(table, rows("y")))
    for write in staged:
        assert write is not None
        with pytest.raises(DriftError) as caught:
            commit_staged(write)
        assert (caught.value.expected, caught.value.actual) == (table.version, moved.version)
    assert head(table).version == moved.version


def test_a_restore_drops_concurrent_commits(table: Table) -> None:
    commit_staged(stage_append(table, rows("y")))
    operation = LanceOperation.Restore(table.version - 1)
    landed = LanceDataset.commit(
        table._dataset, operation, read_version=table.version, max_retries=0
    )
    assert ids(landed) == ["a", "b"], "a restore is only safe under the commit lock"
    assert landed.version == table.version + 2


def test_a_restore_brings_an_old_content_back_as_a_new_version(table: Table) -> None:
    restored = commit_staged(stage_restore(table, 2))
    assert (restored.version, ids(head(table))) == (table.version + 1, ["a", "b"])


def test_the_uuid_of_a_transaction_is_read_back_from_its_version(table: Table) -> None:
    seen = set()
    for stage in (
        lambda base: stage_append(base, rows("x")),
        lambda base: stage_upsert(base, rows("a", n=5)),
        lambda base: stage_delete(base, [0]),
        lambda base: stage_restore(base, 2),
        lambda base: stage_overwrite(base, rows("x")),
        lambda base: stage_overwrite(base, rows()),
    ):
        staged = stage(table)
        table = commit_staged(staged)
        opened = TableStore(parse_location(table._dataset.uri.removesuffix("/t"))).open("t")
        assert opened.transaction_uuid() == staged.transaction_uuid
        seen.add(staged.transaction_uuid)
    assert len(seen) == 6


# ---- rows


def test_an_overwrite_with_zero_rows_keeps_stable_row_ids(table: Table) -> None:
    empty = commit_staged(stage_overwrite(table, rows()))
    assert empty.count_rows() == 0
    assert head(empty).has_stable_row_ids
    filled = commit_staged(stage_append(empty, rows("p", "q")))
    before = filled.read(["id", "_rowid"]).to_pylist()
    after = commit_staged(stage_upsert(filled, rows("q", n=3))).read(["id", "_rowid"]).to_pylist()
    assert sorted(before, key=str) == sorted(after, key=str)


def test_an_upsert_keeps_the_row_id_and_replaces_the_row(table: Table) -> None:
    before = {row["id"]: row["_rowid"] for row in table.read(["id", "_rowid"]).to_pylist()}
    after = commit_staged(stage_upsert(table, rows("b", "x", n=9)))
    found = {row["id"]: row for row in after.read(["id", "n", "_rowid"]).to_pylist()}
    assert {key: row["_rowid"] for key, row in found.items() if key in before} == before
    assert {key: row["n"] for key, row in found.items()} == {
        "a": 0,
        "b": 9,
        "c": 0,
        "d": 0,
        "x": 9,
    }


def test_an_upsert_inserts_a_repeated_new_key_twice(table: Table) -> None:
    landed = commit_staged(stage_upsert(table, rows("new", "new")))
    assert ids(head(landed)).count("new") == 2, "callers have to remove repetitions first"


def test_rows_are_deleted_by_their_address_also_after_earlier_deletes(table: Table) -> None:
    for gone in (["a"], ["b", "d"], ["c"]):
        addresses = table.read(["_rowaddr"], OneOf("id", gone))["_rowaddr"].to_pylist()
        staged = stage_delete(table, addresses)
        assert staged is not None
        before = set(ids(head(table)))
        table = commit_staged(staged)
        assert set(ids(head(table))) == before - set(gone)
    assert stage_delete(table, []) is None


# ---- branches


def test_a_branch_is_a_dataset_below_the_tree_folder(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "feature/x")
    assert (fork.version, fork.branch) == (table.version, "feature/x")
    moved = commit_staged(stage_append(fork, rows("x")))
    opened = lance.dataset(location.child("t/tree/feature/x"))
    assert (opened.version, ids(opened)) == (moved.version, ["a", "b", "c", "d", "x"])
    assert (head(table).version, ids(head(table))) == (table.version, ["a", "b", "c", "d"])


def test_a_fork_of_an_old_version_and_of_a_branch_begins_there(
    location: GraphLocation, table: Table
) -> None:
    old = TableStore(location).open("t", None, 2)
    fork = create_fork(location, old, "one")
    assert (fork.version, fork.count_rows()) == (2, 2)
    moved = commit_staged(stage_append(fork, rows("x")))
    second = create_fork(location, moved, "two")
    assert (second.version, second.count_rows()) == (3, 3)


def test_an_unused_fork_is_taken_again_and_a_stale_one_is_replaced(
    location: GraphLocation, table: Table
) -> None:
    create_fork(location, table, "b")
    assert create_fork(location, table, "b").version == table.version
    moved = commit_staged(stage_append(table, rows("x")))
    again = create_fork(location, moved, "b")
    assert (again.version, again.count_rows()) == (moved.version, 5)
    commit_staged(stage_append(again, rows("y")))
    fresh = create_fork(location, moved, "b")
    assert (fresh.version, fresh.count_rows()) == (moved.version, 5)


def test_a_writer_without_the_lock_removes_no_fork(location: GraphLocation, table: Table) -> None:
    def lose() -> None:
        raise LeaseLostError

    used = commit_staged(stage_append(create_fork(location, table, "b"), rows("y")))
    with pytest.raises(LeaseLostError):
        create_fork(location, table, "b", check_lock=lose)
    found = TableStore(location).open("t", "b")
    assert (found.version, found.count_rows()) == (used.version, 5)


def test_creating_an_existing_branch_fails_in_lance(table: Table) -> None:
    head(table).create_branch("b", table.version)
    with pytest.raises(OSError):
        head(table).create_branch("b", table.version - 1)


def test_a_branch_folder_without_a_reference_is_cleared(
    location: GraphLocation, table: Table, tmp_path: Path
) -> None:
    head(table).create_branch("b", table.version)
    for reference in (tmp_path / "t" / "_refs" / "branches").iterdir():
        reference.unlink()
    with pytest.raises(OSError):
        head(table).create_branch("b", table.version)
    assert create_fork(location, table, "b").version == table.version


# ---- indexes


def test_a_btree_serves_covered_and_uncovered_rows(table: Table) -> None:
    spec = IndexSpec(name="by_id", column="id", kind=PhysicalIndex.BTREE)
    staged = stage_indices(table, [spec])
    assert staged is not None
    indexed = commit_staged(staged)
    assert stage_indices(indexed, [spec]) is None, "nothing is missing"
    grown = commit_staged(stage_append(indexed, rows("x", "y")))
    assert len(list_indexes(grown)["by_id"].missing_fragments) == 1
    wanted = OneOf("id", ["b", "c", "x", "nope"])
    assert sorted(grown.read(["id"], wanted)["id"].to_pylist()) == ["b", "c", "x"]
    again = stage_indices(grown, [spec])
    assert again is not None
    caught_up = commit_staged(again)
    assert not list_indexes(caught_up)["by_id"].missing_fragments
    assert sorted(caught_up.read(["id"], wanted)["id"].to_pylist()) == ["b", "c", "x"]
    upserted = commit_staged(stage_upsert(caught_up, rows("b", "z", n=7)))
    assert upserted.count_rows() == 7, "an indexed upsert finds its row"
    assert upserted.read(["n"], OneOf("id", ["b"]))["n"].to_pylist() == [7]


# ---- blobs


def test_blobs_survive_appends_upserts_and_forks(location: GraphLocation) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("b", pa.large_binary())])
    table = create_table(location, "blobs", schema, blobs=frozenset({"b"}))
    large = b"\x01" * 3_000_000
    content = pa.table({"id": ["a", "b", "c"], "b": [large, b"", None]}, schema=schema)
    table = commit_staged(stage_append(table, content))
    patch = pa.table({"id": ["b"], "b": [b"new"]}, schema=schema)
    fork = create_fork(location, table, "side")
    after = commit_staged(stage_upsert(fork, patch))
    assert {row["id"]: row["b"] for row in after.read().to_pylist()} == {
        "a": large,
        "b": b"new",
        "c": None,
    }
    assert {row["id"]: row["b"] for row in table.read().to_pylist()}["b"] == b""


# ---- row ids


def test_versions_of_rows_in_no_order_are_taken_only_with_their_addresses(table: Table):
    """When this passes without the addresses, `kept_ids` needs them no more."""
    created = "_row_created_at_version"
    found = table._dataset._take_rows([3, 0], columns=["_rowaddr", created])
    assert found[created].to_pylist() == [3, 2]
    with pytest.raises(OSError, match="_rowaddr"):
        table._dataset._take_rows([3, 0], columns=[created])


def test_ids_in_a_hidden_column_need_the_versions_beside_them(table: Table):
    """The form in which `storage.datasets.row_ids` hands over many ids is that of Lance's own updates."""
    table._dataset.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}
    )
    dataset = head(table)
    dataset.update({"n": "n + 1"}, where="id IN ('b', 'c')")
    (fragment,) = [item for item in head(table).get_fragments() if item.count_rows() == 2][-1:]
    body = fragment.metadata.to_json()
    assert [file["fields"] for file in body["files"]] == [[0, 1], [-3, -4]]
    assert body["row_id_meta"] == "Column"
    assert body["created_at_version_meta"] == {"column": {}}
