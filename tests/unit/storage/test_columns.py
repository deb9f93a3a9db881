from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.storage.datasets.column_changes import (
    NewColumn,
    _members,
    _message,
    _taken_apart,
    needs_values,
    stage_columns,
    stage_table,
    write_columns,
    write_table,
)
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, list_indexes, stage_indices
from omnigraph.storage.datasets.partitions import table_address
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    new_files,
    open_private,
    stage_append,
    stage_delete,
    stage_upsert,
)
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
    specs = [
        IndexSpec(name=f"{column}_btree", column=column, kind=PhysicalIndex.BTREE)
        for column in ("id", "a")
    ]
    made = commit_staged(stage_indices(made, specs))
    return commit_staged(stage_delete(made, [1]))


def fragments(table) -> list[int]:
    return [fragment.fragment_id for fragment in table._dataset.get_fragments()]


def row_ids(table) -> list[int]:
    return table._dataset.to_table(["id"], with_row_id=True)["_rowid"].to_pylist()


def test_the_form_in_which_lance_gives_out_a_schema_is_read_and_written_without_a_change(table):
    _, _, messages = _taken_apart(table._dataset.lance_schema)

    assert [_message(_members(message)) for message in messages] == messages


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
    upserted = stage_upsert(
        changed, pa.table({name: pa.array(v, types[name]) for name, v in row.items()})
    )
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
        table_address(table),
        fragments(table),
        ["id", "scan"],
        lambda batch: [batch["id"], batch["scan"]],
        columns,
    )

    changed = commit_staged(stage_table(table, columns, written))

    assert changed.schema.names == ["id", "scan"]
    assert changed.read(["id"])["id"].to_pylist() == ["x0", "x2", "y0", "y1", "y2"]
    files = {file.path for item in changed._dataset.get_fragments() for file in item.metadata.files}
    old = {file.path for item in table._dataset.get_fragments() for file in item.metadata.files}
    assert not files & old
