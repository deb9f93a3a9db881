"""Facts about Lance that the code relies on. One that fails after an upgrade names what has to be thought over."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph.core.arrow import arrow_type
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.errors import DriftError, LeaseLostError, StorageError
from omnigraph.storage.datasets import partitions
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, IsNull, OneOf, quote_name, to_sql
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, list_indexes, stage_indices
from omnigraph.storage.datasets.opening import session
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
from omnigraph.storage.datasets.reads import scan_with_pending, select_rows
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    stage_append,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.datasets.versions import create_fork
from omnigraph.storage.location import GraphLocation, parse_location
from support.subtests import each_case

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
    landed = LanceDataset.commit(table._dataset, operation, read_version=table.version, max_retries=0)
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
    assert {key: row["n"] for key, row in found.items()} == {"a": 0, "b": 9, "c": 0, "d": 0, "x": 9}


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


def test_a_fork_of_an_old_version_and_of_a_branch_begins_there(location: GraphLocation, table: Table) -> None:
    old = TableStore(location).open("t", None, 2)
    fork = create_fork(location, old, "one")
    assert (fork.version, fork.count_rows()) == (2, 2)
    moved = commit_staged(stage_append(fork, rows("x")))
    second = create_fork(location, moved, "two")
    assert (second.version, second.count_rows()) == (3, 3)


def test_an_unused_fork_is_taken_again_and_a_stale_one_is_replaced(location: GraphLocation, table: Table) -> None:
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


def test_a_branch_folder_without_a_reference_is_cleared(location: GraphLocation, table: Table, tmp_path: Path) -> None:
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
    assert {row["id"]: row["b"] for row in after.read().to_pylist()} == {"a": large, "b": b"new", "c": None}
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
    """The form in which `storage.datasets.fragments` hands over many ids is that of Lance's own updates."""
    table._dataset.update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"})
    dataset = head(table)
    dataset.update({"n": "n + 1"}, where="id IN ('b', 'c')")
    (fragment,) = [item for item in head(table).get_fragments() if item.count_rows() == 2][-1:]
    body = fragment.metadata.to_json()
    assert [file["fields"] for file in body["files"]] == [[0, 1], [-3, -4]]
    assert body["row_id_meta"] == "Column"
    assert body["created_at_version_meta"] == {"column": {}}


# ---- Tables in parts of equal work: every row is in exactly one part, and a scan reads what it was asked for


ROWS = 300
#: Deletes every seventh row, all of a fragment, and most of another.
DELETED = "n % 7 = 0 OR (n >= 100 AND n < 150) OR (n > 160 AND n < 195)"


@pytest.fixture
def gappy(tmp_path: Path) -> Table:
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
    gappy: Table, row_bytes: int, where: str | None = None, columns: Sequence[str] = ("n",)
) -> list[pa.RecordBatch]:
    address = pickle.loads(pickle.dumps(table_address(gappy)))
    parts = plan_parts(table_extent(gappy), row_bytes, whole_fragments=where is not None)
    return [batch for part in pickle.loads(pickle.dumps(parts)) for batch in scan_part(address, part, columns, where)]


def numbers_of(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.mark.parametrize("row_bytes", [1, 2**20, 2**24, 2**30])
@pytest.mark.parametrize("where", [None, "n > 0", "n >= 196 OR n = 9", "n > 9999"])
def test_all_parts_together_are_the_pinned_rows_in_order(gappy: Table, row_bytes: int, where: str | None) -> None:
    expected = lance.dataset(gappy._dataset.uri, version=gappy.version).to_table(filter=where)
    assert numbers_of(rows_of(gappy, row_bytes, where)) == expected["n"].to_pylist()
    counted = rows_of(gappy, row_bytes, where, columns=[])
    assert sum(batch.num_rows for batch in counted) == expected.num_rows


def test_parts_have_equal_rows_whatever_the_fragments_are(gappy: Table) -> None:
    extent = table_extent(gappy)
    assert extent.row_count == gappy.row_count
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
    gappy = TableStore(parse_location(tmp_path)).open("nodes/v")
    batches = rows_of(gappy, 1, columns=["v"])
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
def scans(gappy: Table, monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(monkeypatch)


def test_a_scan_asks_for_the_named_columns_and_no_others(gappy: Table, scans: Scans) -> None:
    rows_of(gappy, 1, columns=["text"])
    assert scans.columns == [["text"]]
    scans.asked.clear()
    rows_of(gappy, 1, where="n > 5", columns=["text"])
    assert set(map(tuple, scans.columns)) == {(), ("text",)}


def test_rows_without_columns_are_counted_from_metadata(gappy: Table, scans: Scans) -> None:
    batches = rows_of(gappy, 1, columns=[])
    assert sum(batch.num_rows for batch in batches) == gappy.row_count
    assert scans.asked == []


def test_columns_are_read_whole_when_many_rows_match(gappy: Table, scans: Scans) -> None:
    rows_of(gappy, 1, where="n > 5")
    assert scans.asked[-1]["late_materialization"] is False
    rows_of(gappy, 1, where="n = 9")
    assert "late_materialization" not in scans.asked[-1]


def test_parts_without_matches_are_not_read(gappy: Table, scans: Scans) -> None:
    assert rows_of(gappy, 1, where="n > 9999") == []
    assert scans.columns == [[]] * len(scans.asked)


def test_a_version_or_fragment_that_is_gone_is_a_storage_error(gappy: Table) -> None:
    address = table_address(gappy)
    gone = TableAddress(uri=address.uri, version=99)
    with pytest.raises(StorageError):
        list(scan_part(gone, RowSpan(begin=0, end=5), ["n"]))
    group = FragmentGroup(fragment_ids=(77,), row_count=1)
    with pytest.raises(StorageError, match="no fragment 77"):
        list(scan_part(address, group, ["n"], "n > 1"))


def test_the_columns_of_a_real_table_have_sizes(gappy: Table) -> None:
    sizes = column_bytes(scan_schema(gappy), table_extent(gappy))
    assert sizes["n"] == 8
    assert sizes["text"] >= 20


# ---- What filters match: by exact value, never null, and alike on disk and in memory


OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS: list[int | float] = [
    *(-(2**63), -(2**53) - 1, -(2**31) - 1, -(2**31), -3, -1, 0, 1, 2, 3, 16777217),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1),
    *(-1e300, -2.5, -0.5, -0.0, 0.0, 0.1, 0.10000000149011612, 2.0, 2.7, 2.0**31, 2.0**53),
    *(2.0**63, 2.0**64, 1e300, 1e-300, 5e-324, 3.5e38, 1e-45, 1e-7, 1e16),
]
TEXTS = ["", "a", "A", "it's", "''", "`", "``", '"', "\\", "\\'", "' OR 1=1 --", "\n", "\x00", "🦉"]
TEXTS += ["e\u0301", "\u00e9", "%", "_", "null", "x" * 70_000]
STORED: dict[Scalar, list[Any]] = {
    Scalar.STRING: TEXTS,
    Scalar.BOOL: [True, False],
    Scalar.I32: [-(2**31), -3, -1, 0, 2, 3, 2**31 - 1],
    Scalar.I64: [-(2**63), -(2**53) - 1, -1, 0, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [0, 2, 3, 2**32 - 1],
    Scalar.U64: [0, 2, 3, 2**53 + 1, 2**63 - 1, 2**64 - 1],
    Scalar.F32: [-1.5, -0.0, 0.0, 0.10000000149011612, 0.5, 2.0, 16777216.0, 3.4028234663852886e38],
    Scalar.F64: [-1.5, -0.0, 0.0, 0.1, 0.10000000149011612, 2.0, 2.0**53, 1e300, 5e-324],
    Scalar.DATE: [-719162, -1, 0, 18321, 2932896],
    Scalar.DATETIME: [-62135596800000, -1, 0, 1582977600001, 253402300799999],
}
ASKED: dict[Scalar, list[Any]] = {
    scalar: NUMBERS if scalar.value[0] in "IUF" else values for scalar, values in STORED.items()
}


def exact(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bool) else Fraction(value)


def held_rows(scalar: Scalar) -> pa.Table:
    type_ = arrow_type(ScalarType(scalar))
    raw = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(scalar, type_)
    values = pa.array([*STORED[scalar], None], raw).cast(type_)
    names = [str(number) for number in range(len(values))]
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("camelCase", type_)])
    return pa.table([pa.array(names), values], schema=schema)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[Scalar, Table]:
    location = parse_location(tmp_path_factory.mktemp("filters"))
    found = {}
    for scalar in STORED:
        rows = held_rows(scalar)
        empty = create_table(location, str(scalar), rows.schema)
        found[scalar] = commit_staged(stage_append(empty, rows))
    return found


@each_case("op", OPERATORS)
@each_case("scalar", STORED)
def test_a_comparison_matches_by_exact_value(tables: dict[Scalar, Table], scalar: Scalar, op: str) -> None:
    wrong: dict[str, Any] = {}
    for value in ASKED[scalar]:
        wanted = {str(number) for number, held in enumerate(STORED[scalar]) if OPERATORS[op](exact(held), exact(value))}
        filter_ = Compare("camelCase", ScalarType(scalar), op, value)
        try:
            found: Any = set(tables[scalar].read(["id"], filter_)["id"].to_pylist())
        except Exception as error:  # noqa: BLE001  # every value is tried, the report names all of them
            found = str(error)[:80]
        if found != wanted:
            wrong[repr(value)] = (found, wanted)
    assert wrong == {}


@each_case("op", OPERATORS)
@each_case("scalar", STORED)
def test_memory_and_disk_filter_alike(tables: dict[Scalar, Table], scalar: Scalar, op: str) -> None:
    rows = held_rows(scalar)
    for value in [STORED[scalar][-1], STORED[scalar][0 if scalar is not Scalar.I64 else 1], None]:
        filter_ = Compare("camelCase", ScalarType(scalar), op, value)
        disk = tables[scalar].read(["id"], filter_)["id"].to_pylist()
        assert select_rows(rows, filter_)["id"].to_pylist() == disk
        assert tables[scalar].count_rows(filter_) == len(disk)
        if value is None:
            assert disk == []


S, I32 = ScalarType(Scalar.STRING), ScalarType(Scalar.I32)


@each_case(
    ("filter_", "sql"),
    [
        (Compare("a", S, "=", "it's"), "`a` = 'it''s'"),
        (Compare("a`b", S, "!=", ""), "`a``b` != ''"),
        (Compare("a", S, "=", None), "false"),
        (Compare("a", I32, "=", 2.5), "false"),
        (Compare("a", I32, "!=", 2.5), "`a` IS NOT NULL"),
        (Compare("a", I32, "<", 2.5), "`a` <= 2"),
        (Compare("a", I32, ">=", 2.5), "`a` >= 3"),
        (Compare("a", I32, "<", 2**40), "`a` IS NOT NULL"),
        (Compare("a", I32, ">", 2**40), "false"),
        (Compare("a", I32, "=", -(2**40)), "false"),
        (Compare("a", I32, ">=", -(2**40)), "`a` IS NOT NULL"),
        (Compare("a", ScalarType(Scalar.F32), "=", 0.1), "cast(`a` as double) = 0.1"),
        (Compare("a", ScalarType(Scalar.BOOL), "=", True), "`a` = true"),
        (OneOf("a", []), "false"),
        (OneOf("a", ["x", "y'"]), "`a` IN ('x', 'y''')"),
        (AnyOf(()), "false"),
        (AllOf(()), "true"),
        (IsNull("a"), "`a` IS NULL"),
        (AllOf((IsNull("a"), AnyOf((IsNull("b"),)))), "(`a` IS NULL AND `b` IS NULL)"),
    ],
)
def test_a_filter_is_spelled_for_lance(filter_: Filter, sql: str) -> None:
    assert to_sql(filter_) == sql


def test_an_unknown_operator_is_refused() -> None:
    for op in ("==", "; --", "LIKE", ""):
        with pytest.raises(ValueError, match="not a comparison"):
            Compare("a", S, op, "x")
    assert quote_name("a`; drop") == "`a``; drop`"


@pytest.mark.parametrize("size", [100, 8192])
def test_a_filter_over_many_values_is_evaluated(tables: dict[Scalar, Table], size: int) -> None:
    base = ScalarType(Scalar.I64)
    numbers = range(2, size + 2)
    filter_ = AnyOf(tuple(Compare("camelCase", base, "=", number) for number in numbers))
    table = tables[Scalar.I64]
    assert set(table.read(["id"], filter_)["id"].to_pylist()) == {"4", "5"}
    assert table.count_rows(OneOf("id", [str(number) for number in numbers])) == 8


def test_a_pending_row_shadows_the_committed_one(tables: dict[Scalar, Table]) -> None:
    table = tables[Scalar.I32]
    stored = held_rows(Scalar.I32)
    column = stored.schema.names[1]
    pending = pa.table({"id": ["3", "new"], column: pa.array([2, 0], pa.int32())}, schema=stored.schema)
    found = scan_with_pending(table, pending, Compare(column, I32, "=", 2))
    assert sorted(found["id"].to_pylist()) == ["3", "4"]
    none = scan_with_pending(table, pending, Compare(column, I32, "=", 0))
    assert none["id"].to_pylist() == ["new"], "the committed 0 of row 3 is shadowed"


def test_the_caches_of_lance_are_bounded_and_can_be_given_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance, "Session", lambda **options: options)
    metadata, indexes = "metadata_cache_size_bytes", "index_cache_size_bytes"
    assert session.__wrapped__() == {metadata: 32 * 2**20, indexes: 2**30}
    monkeypatch.setenv("OMNIGRAPH_METADATA_CACHE_BYTES", "5")
    monkeypatch.setenv("OMNIGRAPH_INDEX_CACHE_BYTES", "7")
    assert session.__wrapped__() == {metadata: 5, indexes: 7}
