"""Changing the columns of a dataset: renamed, dropped, added, filled and widened columns as one staged write.

Data files stay: a column that goes on keeps its field id, whatever it is called; one that is dropped is no longer
listed; a new one without values has no file at all. Only columns with new values are written, as one more file beside
each fragment. Row ids and indexes of the columns that go on are kept.

Lance gives out its schema with field ids as messages in its own format, and takes it back in the same form, but offers
no way to edit it. The few members that change here are edited in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from lance import LanceOperation
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema
from lance.udf import BatchUDF

from omnigraph.core.arrow import Array, Field
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.blob_columns import encoded_cells
from omnigraph.storage.datasets.checksums import names_of, present_files, sums_in
from omnigraph.storage.datasets.fragments import fragment_text
from omnigraph.storage.datasets.indexes import index_segments
from omnigraph.storage.datasets.opening import BYTES, VARINT, fragment_of, members, message_of, read_varint, varint
from omnigraph.storage.datasets.partitions import TableAddress, open_address, scan_fragments
from omnigraph.storage.datasets.staged import StagedWrite, encoded_schema, staged_write
from omnigraph.storage.datasets.tables import Table

#: Columns with new values have these names until the write is staged, so that they meet no existing one.
_DRAFT = "__draft_"


@frozen(kw_only=True)
class NewColumn:
    """One column of the table as it will be.

    `origin` is the present column that goes on; with `is_written` its values come from the tasks. Neither means
    that every row holds null.
    """

    field: Field
    origin: str | None = None
    is_written: bool = False
    is_blob: bool = False


def write_columns(
    address: TableAddress,
    fragment_id: int,
    read: Sequence[str],
    compute: Callable[[pa.RecordBatch], Sequence[Array]],
    fields: Sequence[Field],
) -> str:
    """Write new values beside one fragment; the fragment with its new file as JSON. Runs inside workers.

    `compute` gets batches of the columns in `read` and gives one array per field.
    """
    names = [f"{_DRAFT}{number}" for number in range(len(fields))]
    # Values may still be null here: rows that lack one are found when everything is written.
    drafts = [pa.field(name, field.type, nullable=True) for name, field in zip(names, fields, strict=True)]
    schema = pa.schema(drafts)

    def draft(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(compute(batch)), schema=schema)

    with translated(f"writing columns of {address.uri}"):
        table = open_address(address)
        fragment = fragment_of(table._dataset, fragment_id)
        written, _ = fragment.merge_columns(BatchUDF(draft, schema), columns=list(read))
        return fragment_text(table, written, is_new=False)


def stage_columns(table: Table, columns: Sequence[NewColumn], written: Sequence[str] = ()) -> StagedWrite:
    """The table with these columns, in this order; `written` are its fragments with their new files.

    Indexes of columns that get another name are dropped: they are found by a name that holds the one of the column.
    """
    dataset = table._dataset
    with translated(f"changing the columns of {table.path}"):
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        if not fragments:
            operation: LanceOperation.BaseOperation = LanceOperation.Overwrite(_schema_of(columns), [])
        elif written:
            changed = [FragmentMetadata.from_json(text) for text in written]
            operation = LanceOperation.Merge(changed, _edited(table, columns, changed))
        elif any(item.origin is None for item in columns):
            operation = LanceOperation.Merge(fragments, _edited(table, columns, fragments))
        else:
            operation = LanceOperation.Project(_edited(table, columns, fragments))
        renamed = {
            item.origin
            for item in columns
            if item.origin is not None and not item.is_written and item.origin != item.field.name
        }
        stale = index_segments(table, renamed) if fragments else []
        then = (Transaction(table.version + 1, LanceOperation.CreateIndex([], stale)),)
    staged = staged_write(table, operation, sums_in(written))
    return replace(staged, _later=then) if stale else staged


def _schema_of(columns: Sequence[NewColumn]) -> pa.Schema:
    blobs = frozenset(item.field.name for item in columns if item.is_blob)
    return encoded_schema(pa.schema([item.field for item in columns]), blobs)


def needs_values(table: Table, columns: Sequence[NewColumn]) -> list[NewColumn]:
    """The columns whose values have to be written.

    Beside those that ask for it: Lance changes whether null is allowed only alone, or together with the values.
    """
    is_merge = any(item.is_written or item.origin is None for item in columns)
    present = {item.name: item for item in table.schema}
    return [
        item
        for item in columns
        if item.is_written
        or (is_merge and item.origin is not None and present[item.origin].nullable != item.field.nullable)
    ]


def write_table(
    address: TableAddress,
    fragment_ids: Sequence[int],
    read: Sequence[str],
    compute: Callable[[pa.RecordBatch], Sequence[Array]],
    columns: Sequence[NewColumn],
) -> list[str]:
    """Write whole rows of some fragments in their new columns; new fragments as JSON. Runs inside workers."""
    blobs = frozenset(item.field.name for item in columns if item.is_blob)
    # Values may still be null here: rows that lack one are found when everything is written.
    drafts = pa.schema([item.field.with_nullable(True) for item in columns])
    schema = encoded_schema(drafts, blobs)

    def batches() -> Iterable[pa.RecordBatch]:
        for batch in scan_fragments(address, fragment_ids, read):
            arrays = [
                encoded_cells(array) if item.is_blob else array
                for array, item in zip(compute(batch), columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    with translated(f"writing rows of {address.uri}"):
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        # An overwrite is not held against the present columns.
        written = write_fragments(
            reader, address.uri, schema=schema, mode="overwrite", allow_external_blob_outside_bases=True
        )
        table = open_address(address)
        return [fragment_text(table, fragment) for fragment in written]


def stage_table(table: Table, columns: Sequence[NewColumn], fragments: Sequence[str]) -> StagedWrite:
    """The table with other columns and all of its rows rewritten, so that nothing of a dropped column is left."""
    schema = _schema_of(columns)
    metadata = [FragmentMetadata.from_json(text) for text in fragments]
    operation = LanceOperation.Overwrite(schema, metadata)
    return staged_write(table, operation, sums_in(fragments))


# ---- the schema of Lance, edited


def _edited(table: Table, columns: Sequence[NewColumn], fragments: Sequence[FragmentMetadata]) -> LanceSchema:
    """The schema with its columns changed, field ids kept, new ids as the written files have them."""
    dataset = table._dataset
    rebuild, metadata, messages = _taken_apart(dataset.lance_schema)
    present = _by_column(messages)
    next_id = int(dataset.max_field_id) + 1
    wanted = needs_values(table, columns) if _has_new_files(table, fragments) else []
    drafts: dict[str, list[bytes]] = {}
    for item in wanted:
        drafts[item.field.name] = _fresh(item, next_id)
        next_id += len(drafts[item.field.name])
    result: list[bytes] = []
    for item in columns:
        if item.field.name in drafts:
            result += drafts[item.field.name]
        elif item.origin is not None:
            first, *children = present[item.origin]
            result += [_edit(first, item.field.name, item.field.nullable), *children]
        else:
            added = _fresh(item, next_id)
            result += added
            next_id += len(added)
    return rebuild(metadata, *result)


def _taken_apart(schema: LanceSchema) -> tuple[Callable[..., LanceSchema], object, list[bytes]]:
    """What puts a schema together again, its metadata, and one message per field: the form in which it is pickled."""
    parts: Any = schema.__reduce__()
    rebuild, (metadata, *messages) = parts
    return rebuild, metadata, messages


def _has_new_files(table: Table, fragments: Sequence[FragmentMetadata]) -> bool:
    known = set(present_files(table))
    return any(name not in known for name in names_of(fragments) if name.startswith("data/"))


def _fresh(item: NewColumn, first_id: int) -> list[bytes]:
    """A column that is not there yet, with field ids from a number on."""
    blobs = frozenset([item.field.name]) if item.is_blob else frozenset[str]()
    schema = LanceSchema.from_pyarrow(encoded_schema(pa.schema([item.field]), blobs))
    _, _, messages = _taken_apart(schema)
    return [_shift(message, first_id) for message in messages]


#: Members of a field in the format of Lance.
_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6
_NO_PARENT = (1 << 64) - 1


def _by_column(messages: Iterable[bytes]) -> dict[str, list[bytes]]:
    """The messages of each column: its own, then those of its parts."""
    found: dict[str, list[bytes]] = {}
    current: list[bytes] = []
    for message in messages:
        values = {number: value for number, _, value in members(message)}
        if _number(values.get(_PARENT)) == _NO_PARENT:
            current = found.setdefault(values[_NAME].decode(), [])
        current.append(message)
    return found


def _edit(message: bytes, name: str, nullable: bool) -> bytes:
    changed = {_NAME: (BYTES, name.encode()), _NULLABLE: (VARINT, varint(1)) if nullable else None}
    return _with(message, changed)


def _shift(message: bytes, by: int) -> bytes:
    """A field whose own id and parent begin at another number."""
    values = {number: value for number, _, value in members(message)}
    changed: dict[int, tuple[int, bytes] | None] = {_ID: (VARINT, varint(_number(values.get(_ID)) + by))}
    if (parent := _number(values.get(_PARENT))) != _NO_PARENT:
        changed[_PARENT] = (VARINT, varint(parent + by))
    return _with(message, changed)


def _number(value: bytes | None) -> int:
    """The number in a member; zero is not written."""
    return 0 if value is None else read_varint(value, 0)[0]


def _with(message: bytes, changed: Mapping[int, tuple[int, bytes] | None]) -> bytes:
    """A message with other values of some members; None removes one."""
    kept = [item for item in members(message) if item[0] not in changed]
    kept += [(number, *value) for number, value in changed.items() if value is not None]
    return message_of(sorted(kept, key=lambda item: item[0]))
