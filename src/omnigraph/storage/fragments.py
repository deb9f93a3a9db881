"""Fragments that tasks write and the driver commits, given as their JSON. Most of it runs inside workers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
from lance import LanceOperation
from lance.dataset import Transaction
from lance.fragment import DeletionFile, FragmentMetadata, write_fragments

from omnigraph.errors import InternalError
from omnigraph.storage.blob_cells import encoded_cells
from omnigraph.storage.checksums import sum_files, sums_in, text_with_sums
from omnigraph.storage.commit_files import added_names
from omnigraph.storage.failures import translated
from omnigraph.storage.filters import OneOf, to_sql
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects
from omnigraph.storage.row_columns import CREATED_AT, ROW_ADDRESS, ROW_ID
from omnigraph.storage.row_ids import INLINE_ROWS, KeptIds, with_row_ids
from omnigraph.storage.staged import StagedWrite, StageKind
from omnigraph.storage.tables import Table, branch_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from omnigraph.storage.objects import ControlObjects

#: The published stubs of pyarrow describe older functions.
pc: Any = _compute
#: Rows that are written at once.
_FRAGMENT_ROWS = 1_000_000
_OFFSET_MASK = 0xFFFFFFFF


def write_rows(table: Table, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Write rows as new fragments of a dataset; their metadata as JSON. Nothing refers to them yet.

    Rows come in the column types of the schema; blob columns as cells. When it fails, its files are gone.
    """
    schema = table.schema
    reader = pa.RecordBatchReader.from_batches(schema, (_encoded(b, schema) for b in batches))
    with translated(f"writing rows of {table.path}"):
        written = write_fragments(reader, table._dataset, allow_external_blob_outside_bases=True)
        try:
            return [fragment_text(table, fragment) for fragment in written]
        except BaseException:
            # Also when the task is cancelled: nothing else knows these files.
            remove_written(table, [json.dumps(fragment.to_json()) for fragment in written])
            raise


def fragment_text(table: Table, fragment: FragmentMetadata, *, is_new: bool = True) -> str:
    """A fragment that a task wrote, or wrote files for, as JSON with the checksums of these files."""
    location = parse_location(table._dataset.uri)
    names = added_names(table, location, fragment, knows_it=not is_new)
    return text_with_sums(fragment.to_json(), sum_files(location, names))


def _encoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as the dataset stores it: blob columns get Lance's blob encoding."""
    columns: list[Any] = []
    for item in schema:
        column: Any = batch.column(item.name)
        if isinstance(item.type, lance.blob.BlobType):
            column = encoded_cells(column)
        elif column.type != item.type:
            column = column.cast(item.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_replacing(table: Table, replacing: pa.Table, new: pa.Table, kept: KeptIds) -> list[str]:
    """Write rows that replace others and keep their ids, and new rows, as fragments like `write_rows` does.

    The replacing rows are in the order of their ids. Few of them share a fragment with the new ones.
    """
    if len(kept) <= INLINE_ROWS:
        rows = pa.concat_tables([replacing, new])
        return keep_ids(table, write_rows(table, rows.to_batches()), kept)
    written = keep_ids(table, write_rows(table, replacing.to_batches()), kept)
    try:
        return written + (write_rows(table, new.to_batches()) if new.num_rows else [])
    except BaseException:
        # Also when the task is cancelled: nobody else knows these files.
        remove_written(table, written)
        raise


def keep_ids(table: Table, written: Sequence[str], kept: KeptIds) -> list[str]:
    """Fragments that were just written, whose first rows keep the ids of rows that they replace.

    When it fails, their files are gone.
    """
    found: list[str] = []
    begin = 0
    try:
        for text in written:
            end = min(begin + fragment_rows(text), len(kept))
            found.append(with_row_ids(table, text, kept.part(begin, end)))
            begin = end
    except BaseException:
        # Also when the task is cancelled: nobody else knows these files.
        remove_written(table, [*found, *written[len(found) :]])
        raise
    return found


def fragment_rows(fragment: str) -> int:
    """How many rows a fragment holds."""
    return int(json.loads(fragment)["physical_rows"])


def delete_fragment(fragment: str, table: Table, objects: ControlObjects) -> None:
    """Remove the files of a fragment that nothing refers to: its data, and its large blobs in a folder beside."""
    folder = branch_uri(table.path, table.branch)
    for file in json.loads(fragment)["files"]:
        name = f"{folder}/data/{file['path']}".removeprefix("/")
        objects.delete(name)
        objects.delete_folder(name.removesuffix(".lance"))


def delete_marks(table: Table, shrunk: Iterable[str | None], objects: ControlObjects) -> None:
    """Remove the deletion files of fragments that keep their rows after all."""
    folder = branch_uri(table.path, table.branch)
    for name in sums_in(shrunk):
        objects.delete(f"{folder}/{name}")


def remove_written(table: Table, fragments: Sequence[str]) -> None:
    """Remove fragments where they were written, without knowing the graph they belong to."""
    location = parse_location(table._dataset.uri)
    here = Table(table._dataset, "", None)
    objects = ObstoreObjects(location, durable=False)
    for fragment in fragments:
        delete_fragment(fragment, here, objects)


def remove_new_files(table: Table, fragments: Sequence[str]) -> None:
    """Remove the files that were written beside existing fragments; those of the table itself stay."""
    known = {file.path for item in table._dataset.get_fragments() for file in item.metadata.files}
    location = parse_location(table._dataset.uri)
    objects = ObstoreObjects(location, durable=False)
    for fragment in fragments:
        for file in json.loads(fragment)["files"]:
            if file["path"] not in known:
                objects.delete(f"data/{file['path']}")


# ---- replacing rows


def stage_replaced_rows(table: Table, rows: pa.Table, key: str = "id") -> StagedWrite:
    """As `stage_upsert`, for rows whose blobs may refer to addresses; replaced rows keep their row ids."""
    keys: Any = rows.column(key).combine_chunks()
    with translated(f"reading rows of {table.path}"):
        old: Any = table._dataset.to_table(
            columns=[key, ROW_ID, ROW_ADDRESS, CREATED_AT],
            filter=to_sql(OneOf(key, keys.to_pylist())),
        )
    old = old.sort_by(ROW_ID).combine_chunks()
    old_keys = old[key].combine_chunks()
    replacing = rows.take(pc.index_in(old_keys, keys))
    new = rows.filter(pc.invert(pc.is_in(keys, old_keys)))
    kept = KeptIds(np.asarray(old[ROW_ID]), np.asarray(old[CREATED_AT]))
    added: list[str] = []
    try:
        for begin in range(0, max(replacing.num_rows, new.num_rows), _FRAGMENT_ROWS):
            added += write_replacing(
                table,
                replacing.slice(begin, _FRAGMENT_ROWS),
                new.slice(begin, _FRAGMENT_ROWS),
                kept.part(begin, begin + _FRAGMENT_ROWS),
            )
        addresses = np.asarray(old[ROW_ADDRESS])
        shrunk = {
            int(number): delete_offsets(
                table, int(number), addresses[addresses >> 32 == number] & _OFFSET_MASK
            )
            for number in np.unique(addresses >> 32)
        }
    except BaseException:
        # Also after an interrupt: nobody else knows these files.
        remove_written(table, added)
        raise
    return stage_replacement(table, added, shrunk)


def delete_offsets(table: Table, fragment_id: int, offsets: NDArray[Any]) -> str | None:
    """What is left of a fragment without some of its rows, for `stage_replacement`; None when nothing is.

    Writes a deletion file and moves nothing. Only the deletion file is told: the rest is known from the table.
    """
    with translated(f"marking rows of {table.path}"):
        fragment = table._dataset.get_fragment(fragment_id)
        if fragment is None:
            raise InternalError(f"{table.path} has no fragment {fragment_id}")
        remaining = fragment.delete_rows(offsets.tolist())
        if remaining is None:
            return None
        assert remaining.deletion_file is not None, "rows were deleted"
        location = parse_location(table._dataset.uri)
        names = added_names(table, location, remaining, knows_it=True)
        body = {"deletion_file": remaining.deletion_file.asdict()}
        return text_with_sums(body, sum_files(location, names))


def _shrunk(table: Table, shrunk: Mapping[int, str | None]) -> tuple[list[int], list[Any]]:
    """Fragments that are gone, and fragments with their new deletion files."""
    removed: list[int] = []
    updated: list[FragmentMetadata] = []
    present = {item.fragment_id: item for item in table._dataset.get_fragments()}
    for number, text in shrunk.items():
        if text is None:
            removed.append(number)
        else:
            mark = DeletionFile(**json.loads(text)["deletion_file"])
            updated.append(replace(present[number].metadata, deletion_file=mark))
    return removed, updated


def stage_replacement(
    table: Table, added: Sequence[str], shrunk: Mapping[int, str | None]
) -> StagedWrite:
    """New fragments, and old ones that lost the rows which the new ones replace, as one transaction.

    `shrunk` maps a fragment to what is left of it; None when nothing is.
    """
    removed, updated = _shrunk(table, shrunk)
    operation = LanceOperation.Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=[FragmentMetadata.from_json(text) for text in added],
        update_mode="rewrite_rows",
        fields_for_preserving_frag_bitmap=[f.id() for f in table._dataset.lance_schema.fields()],
    )
    return StagedWrite(
        table=table,
        kind=StageKind.UPSERT,
        _transaction=Transaction(table.version, operation),
        sums=sums_in([*added, *shrunk.values()]),
    )


def stage_removal(table: Table, shrunk: Mapping[int, str | None], rows: int) -> StagedWrite:
    """Old fragments that lost rows, as a transaction of its own; `shrunk` as in `stage_replacement`."""
    removed, updated = _shrunk(table, shrunk)
    operation = LanceOperation.Delete(updated, removed, f"{rows} rows by address")
    return StagedWrite(
        table=table,
        kind=StageKind.DELETE,
        _transaction=Transaction(table.version, operation),
        sums=sums_in(shrunk.values()),
    )


def fragment_sizes(table: Table) -> dict[int, int]:
    """The fragments of a table with their rows; known from metadata."""
    with translated(f"looking at the fragments of {table.path}"):
        return {item.fragment_id: item.count_rows() for item in table._dataset.get_fragments()}


def read_addresses(table: Table, column: str, addresses: Sequence[int]) -> list[str]:
    """The texts of a few rows by their addresses, in that order."""
    wanted = ", ".join(str(address) for address in addresses)
    with translated(f"reading rows of {table.path}"):
        rows = table._dataset.to_table(
            columns=[column, ROW_ADDRESS], filter=f"{ROW_ADDRESS} IN ({wanted})"
        ).to_pylist()
    texts = {row[ROW_ADDRESS]: str(row[column]) for row in rows}
    return [texts[address] for address in addresses]
