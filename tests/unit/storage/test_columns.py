from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.storage.datasets.column_changes import (
    NewColumn,
    _taken_apart,
    needs_values,
    stage_columns,
    stage_table,
    write_columns,
    write_table,
)
from omnigraph.storage.datasets.compaction import FragmentFacts, choose_fold, choose_rewrites
from omnigraph.storage.datasets.fragments import remove_updates, stage_delete, stage_updates, update_fragment
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, list_indexes, stage_indices
from omnigraph.storage.datasets.opening import members, message_of
from omnigraph.storage.datasets.partitions import table_address
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    new_files,
    open_private,
    stage_append,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location

SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("a", pa.int32()),
        pa.field("scan", pa.large_binary()),
        pa.field("words", pa.list_(pa.utf8())),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)
ID = NewColumn(field=SCHEMA.field("id"), origin="id")
SCAN = NewColumn(field=SCHEMA.field("scan"), origin="scan", is_blob=True)


def rows(prefix: str) -> pa.Table:
    columns = {
        "id": [f"{prefix}{n}" for n in range(3)],
        "a": pa.array([0, 1, 2], pa.int32()),
        "scan": pa.array([b"", b"x", None], pa.large_binary()),
        "words": [["w"], [], None],
        "vec": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """Two fragments, one deleted row, indexes on two columns."""
    location = parse_location(tmp_path / "graph")
    made = create_table(location, "nodes/x", SCHEMA, blobs=frozenset(["scan"]))
    for prefix in "xy":
        made = commit_staged(stage_append(made, rows(prefix)))
    specs = [IndexSpec(name=f"{column}_btree", column=column, kind=PhysicalIndex.BTREE) for column in ("id", "a")]
    made = commit_staged(stage_indices(made, specs))
    return commit_staged(stage_delete(made, [1]))


def fragments(table) -> list[int]:
    return [fragment.fragment_id for fragment in table._dataset.get_fragments()]


def row_ids(table) -> list[int]:
    return table._dataset.to_table(["id"], with_row_id=True)["_rowid"].to_pylist()


def test_the_form_in_which_lance_gives_out_a_schema_is_read_and_written_without_a_change(table):
    _, _, messages = _taken_apart(table._dataset.lance_schema)

    assert [message_of(members(message)) for message in messages] == messages


def test_a_rename_a_drop_and_a_required_column_touch_no_file_and_keep_row_ids(table) -> None:
    before = row_ids(table)
    renamed = NewColumn(field=pa.field("b", pa.int32(), nullable=False), origin="a")
    staged = stage_columns(table, [renamed, ID])
    assert new_files(staged) == []

    changed = commit_staged(staged)

    assert changed.schema == pa.schema([renamed.field, ID.field])
    assert changed.read(["b"])["b"].to_pylist() == [0, 2, 0, 1, 2]
    assert row_ids(changed) == before


def test_the_index_of_a_renamed_column_goes_and_the_others_stay(table) -> None:
    renamed = NewColumn(field=pa.field("b", pa.int32()), origin="a")

    staged = stage_columns(table, [ID, renamed])

    assert staged.made_version == table.version + 2
    assert list(list_indexes(commit_staged(staged))) == ["id_btree"]


def test_new_columns_of_every_form_hold_null_without_a_file(table) -> None:
    added = [
        NewColumn(field=pa.field("n", pa.int64())),
        NewColumn(field=pa.field("l", pa.list_(pa.int32()))),
        NewColumn(field=pa.field("v", pa.list_(pa.float32(), 3))),
        NewColumn(field=pa.field("more", pa.large_binary()), is_blob=True),
    ]
    staged = stage_columns(table, [ID, SCAN, *added])
    assert new_files(staged) == []

    changed = commit_staged(staged)

    assert changed.blob_columns == {"scan", "more"}
    assert changed.read([item.field.name for item in added]).to_pylist()[0] == {
        "n": None,
        "l": None,
        "v": None,
        "more": None,
    }
    row = {"id": ["z"], "scan": [b"1"], "n": [5], "l": [[1]], "v": [[1, 2, 3]], "more": [b"2"]}
    types = {field.name: field.type for field in (*SCHEMA, *(item.field for item in added))}
    upserted = stage_upsert(changed, pa.table({name: pa.array(v, types[name]) for name, v in row.items()}))
    found = commit_staged(upserted).read().to_pylist()
    assert next(item for item in found if item["id"] == "z")["v"] == [1.0, 2.0, 3.0]


def test_written_values_are_one_more_file_per_fragment(table) -> None:
    columns = [
        ID,
        NewColumn(field=pa.field("a", pa.int64()), origin="a", is_written=True),
        SCAN,
        NewColumn(field=pa.field("lang", pa.utf8(), nullable=False), is_written=True),
    ]
    fields = [item.field for item in needs_values(table, columns)]
    written = [
        write_columns(
            table_address(table),
            number,
            ["a"],
            lambda batch: [batch["a"].cast(pa.int64()), pa.array(["en"] * batch.num_rows)],
            fields,
        )
        for number in fragments(table)
    ]
    staged = stage_columns(table, columns, written)
    assert len(new_files(staged)) == 2
    assert open_private(staged).table.read(["lang"])["lang"].to_pylist() == ["en"] * 5

    changed = commit_staged(staged)

    assert changed.schema.field("a").type == pa.int64()
    assert changed.read(["a"])["a"].to_pylist() == [0, 2, 0, 1, 2]
    assert list(list_indexes(changed)) == ["id_btree"]


def test_a_required_column_is_written_again_when_other_columns_are(table) -> None:
    required = NewColumn(field=pa.field("a", pa.int32(), nullable=False), origin="a")
    added = NewColumn(field=pa.field("n", pa.utf8()))

    assert needs_values(table, [ID, required]) == []
    assert needs_values(table, [ID, required, added]) == [required]


def test_a_table_without_rows_gets_its_columns_anew(tmp_path) -> None:
    location = parse_location(tmp_path / "graph")
    made = create_table(location, "nodes/x", SCHEMA, blobs=frozenset(["scan"]))
    added = NewColumn(field=pa.field("lang", pa.utf8(), nullable=False))

    changed = commit_staged(stage_columns(made, [ID, added]))

    assert changed.schema == pa.schema([ID.field, added.field])


def test_rows_written_anew_leave_nothing_of_a_dropped_column(table) -> None:
    columns = [ID, SCAN]
    written = write_table(
        table_address(table), fragments(table), ["id", "scan"], lambda batch: [batch["id"], batch["scan"]], columns
    )

    changed = commit_staged(stage_table(table, columns, written))

    assert changed.schema.names == ["id", "scan"]
    assert changed.read(["id"])["id"].to_pylist() == ["x0", "x2", "y0", "y1", "y2"]
    files = {file.path for item in changed._dataset.get_fragments() for file in item.metadata.files}
    old = {file.path for item in table._dataset.get_fragments() for file in item.metadata.files}
    assert not files & old


# ---- New vectors as a file beside the others: what Lance does to rows, their lineage and their indexes


VECTOR = pa.list_(pa.float32(), 2)
COLUMN_UPDATES_SCHEMA = pa.schema([("id", pa.utf8()), ("body", pa.utf8()), ("vec", VECTOR)])


def blank_rows(*ids: str) -> pa.Table:
    columns = [pa.array(ids), pa.array(ids), pa.array([[0.0, 1.0]] * len(ids), VECTOR)]
    return pa.Table.from_arrays(columns, schema=COLUMN_UPDATES_SCHEMA)


@pytest.fixture
def target(tmp_path: Path) -> Table:
    """Two fragments, `a b c` without `a`, and `d e`."""
    target = create_table(parse_location(str(tmp_path)), "t", COLUMN_UPDATES_SCHEMA)
    for ids in ("abc", "de"):
        target = commit_staged(stage_append(target, blank_rows(*ids)))
    staged = stage_delete(target, [0])
    assert staged is not None
    return commit_staged(staged)


def stored(target: Table) -> dict[str, dict[str, Any]]:
    columns = ["id", "body", "vec", "_rowid", "_row_last_updated_at_version"]
    found = lance.dataset(target._dataset.uri, version=target.version).to_table(columns=columns)
    return {row["id"]: row for row in found.to_pylist()}


def update(target: Table, fragment: int, values: dict[str, list[float] | None]) -> str:
    known = stored(target)
    row_ids = pa.array([known[key]["_rowid"] for key in values], pa.uint64())
    vectors = pa.array(list(values.values()), VECTOR)
    return update_fragment(target, fragment, pa.table({"_rowid": row_ids, "vec": vectors}))


def test_only_the_named_rows_change_and_their_lineage_says_so(target: Table) -> None:
    before = stored(target)
    updates = [update(target, 0, {"c": [1.0, 0.0], "b": None}), update(target, 1, {"e": [0.5, 0.5]})]
    after = stored(commit_staged(stage_updates(target, updates)))
    assert list(after) == list("bcde")
    for key, vec in {"b": None, "c": [1.0, 0.0], "e": [0.5, 0.5]}.items():
        wanted = {"vec": vec, "_row_last_updated_at_version": target.version + 1}
        assert after[key] == before[key] | wanted
    assert after["d"] == before["d"]


def test_an_index_of_another_column_keeps_its_rows_and_one_of_the_column_loses_the_fragment(target: Table) -> None:
    dataset = target._dataset
    dataset.create_scalar_index("body", "BTREE", name="body")
    dataset.create_index("vec", "IVF_FLAT", name="vec", num_partitions=1)
    current = type(target)(lance.dataset(dataset.uri), target.path, None)
    committed = commit_staged(stage_updates(current, [update(current, 0, {"b": [9.0, 9.0]})]))
    found = committed._dataset.describe_indices()
    covered = {item.name: {n for s in item.segments for n in s.fragment_ids} for item in found}
    assert covered == {"body": {0, 1}, "vec": {1}}
    nearest = {"column": "vec", "q": [9.0, 9.0], "k": 1}
    assert committed._dataset.to_table(nearest=nearest)["id"].to_pylist() == ["b"]


def test_files_of_an_update_that_is_not_committed_can_be_removed(target: Table, tmp_path: Path) -> None:
    folder = tmp_path / "t" / "data"
    before = {path.name for path in folder.iterdir()}
    change = update(target, 0, {"b": [1.0, 0.0]})
    (name,) = new_files(stage_updates(target, [change]))
    assert {path.name for path in folder.iterdir()} - before == {Path(name).name}
    remove_updates(target, [change])
    assert {path.name for path in folder.iterdir()} == before


# ---- Which fragments are written anew: little work, few fragments, and nothing left to do afterwards


TARGET = 1000


def fact(number: int, rows: int, *, deleted: int = 0, is_indexed: bool = False) -> FragmentFacts:
    return FragmentFacts(number=number, rows=rows, deleted=deleted, size_bytes=rows * 10, is_indexed=is_indexed)


def rewritten(fragments: list[FragmentFacts], *, target_rows: int = TARGET) -> list[FragmentFacts]:
    """The table after the rewrites that are chosen, with indexes over everything."""
    groups = choose_rewrites(fragments, target_rows=target_rows)
    member = {number: group for group in groups for number in group}
    after: list[FragmentFacts] = []
    for item in fragments:
        group = member.get(item.number)
        if group is None:
            after.append(item)
        elif item.number == group[0]:
            rows = sum(other.rows for other in fragments if other.number in group)
            after.append(fact(10_000 + item.number, rows))
    return [replace(item, is_indexed=True) for item in after]


def tables() -> st.SearchStrategy[list[FragmentFacts]]:
    parts = st.tuples(st.integers(1, 1200), st.integers(0, 200), st.booleans())
    return st.lists(parts, max_size=30).map(
        lambda drawn: [
            fact(number, rows, deleted=deleted, is_indexed=indexed)
            for number, (rows, deleted, indexed) in enumerate(drawn)
        ]
    )


@given(tables())
def test_a_second_run_has_nothing_to_do(fragments: list[FragmentFacts]) -> None:
    after = rewritten(fragments)
    assert sum(item.rows for item in after) == sum(item.rows for item in fragments)
    assert choose_rewrites(after, target_rows=TARGET) == []


@given(tables())
def test_groups_are_neighbours_and_no_larger_than_the_target(fragments: list[FragmentFacts]) -> None:
    rows = {item.number: item.rows for item in fragments}
    for group in choose_rewrites(fragments, target_rows=TARGET):
        assert list(group) == list(range(group[0], group[-1] + 1))
        assert len(group) == 1 or sum(rows[number] for number in group) <= TARGET


def test_a_small_table_becomes_one_fragment() -> None:
    fragments = [fact(0, 90, is_indexed=True), fact(1, 5), fact(2, 5)]
    assert choose_rewrites(fragments) == [(0, 1, 2)]


def test_a_large_table_keeps_its_indexed_fragments_until_there_are_many() -> None:
    large = [fact(0, 900, is_indexed=True), fact(1, 900, is_indexed=True)]
    some = [*large, fact(2, 10, is_indexed=True), fact(3, 5), fact(4, 5)]
    assert choose_rewrites(some, target_rows=TARGET) == [(3, 4)]
    many = [*large, *(fact(n, 10, is_indexed=True) for n in range(2, 9)), fact(9, 5)]
    assert choose_rewrites(many, target_rows=TARGET) == [tuple(range(2, 10))]


def test_a_worn_fragment_is_written_anew_alone() -> None:
    fragments = [fact(0, 900, deleted=100), fact(1, 950)]
    assert choose_rewrites(fragments, target_rows=TARGET) == [(0,)]
    assert choose_rewrites([fact(0, 901, deleted=99)], target_rows=TARGET) == []


def fold(fragments: list[FragmentFacts], **limits: int) -> tuple[int, ...]:
    given = {"more_than": 4, "max_rows": 1000, "max_bytes": 100_000} | limits
    return choose_fold(fragments, **given)


def test_a_fold_takes_the_newest_fragments_without_indexes() -> None:
    assert fold([fact(n, 1) for n in range(4)]) == ()
    assert fold([fact(n, 1) for n in range(5)]) == (0, 1, 2, 3, 4)
    behind = [fact(0, 1, is_indexed=True), *(fact(n, 1) for n in range(1, 6))]
    assert fold(behind) == (1, 2, 3, 4, 5)
    assert fold([*behind[1:], behind[0]]) == (), "an index covers the newest one"


def test_a_fold_is_bounded() -> None:
    assert fold([fact(n, 300) for n in range(9)]) == ()
    assert fold([fact(0, 990), *(fact(n, 3) for n in range(1, 6))]) == (1, 2, 3, 4, 5)
    assert fold([fact(n, 10) for n in range(9)], max_bytes=600) == (3, 4, 5, 6, 7, 8)


def test_many_small_writes_cost_little_and_leave_few_fragments() -> None:
    fragments: list[FragmentFacts] = []
    written = most = 0
    writes = 5_000
    for number in range(writes):
        fragments.append(fact(number, 1))
        chosen = choose_fold(fragments, more_than=64, max_rows=100_000, max_bytes=10**9)
        if chosen:
            rows = sum(item.rows for item in fragments if item.number in chosen)
            fragments = [item for item in fragments if item.number not in chosen]
            fragments.append(fact(number, rows))
            written += rows
        most = max(most, len(fragments))
    assert most <= 80
    assert written <= 20 * writes
