"""Fragments and new column values that tasks write, ids that rows keep, and the ledgers in which tasks note files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from uuid import uuid4

import numpy as np
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
    RowIdSequence,
    write_fragments,
)
from numpy.typing import NDArray

from omnigraph.core.arrow import Batch, Rows, pa, pc
from omnigraph.errors import InternalError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.answers import (
    AnswerFolder,
    attempt_name,
    new_answer_folder,
    read_answer,
    remove_answer_folder,
    write_answer,
)
from omnigraph.storage.datasets.blob_columns import encoded_columns
from omnigraph.storage.datasets.checksums import FileSum, added_names, sum_files, sums_in, text_with_sums
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ADDRESS, ROW_ID, UPDATED_AT, OneOf, to_sql
from omnigraph.storage.datasets.opening import fragment_of
from omnigraph.storage.datasets.staged import StagedWrite, staged_write
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from omnigraph.storage.objects import ControlObjects, delete_files, list_files

_log = logging.getLogger(__name__)

# ---- Fragments that tasks write and the driver commits, given as their JSON. Most of it runs inside workers


#: Rows that are written at once.
_FRAGMENT_ROWS = 1_000_000
_OFFSET_MASK = np.uint64(0xFFFFFFFF)


def write_rows(table: Table, batches: Iterable[Batch]) -> list[str]:
    """Write rows as new fragments of a dataset; their metadata as JSON. Nothing refers to them yet.

    Rows come in the column types of the schema; blob columns as cells. When it fails, its files are gone.
    """
    schema = table.schema
    encoded = (pa.RecordBatch.from_arrays(encoded_columns(batch, schema), schema=schema) for batch in batches)
    reader = pa.RecordBatchReader.from_batches(schema, encoded)
    with translated(f"writing rows of {table.path}"):
        written = write_fragments(reader, table._dataset, allow_external_blob_outside_bases=True)
        try:
            return [fragment_text(table, fragment) for fragment in written]
        except BaseException:
            # Also when the task is cancelled: nothing else knows these files.
            location = parse_location(table._dataset.uri)
            names = (added_names(table, location, fragment, knows_it=False) for fragment in written)
            delete_files(location, chain.from_iterable(names))
            raise


def fragment_text(table: Table, fragment: FragmentMetadata, *, is_new: bool = True) -> str:
    """A fragment that a task wrote, or wrote files for, as JSON with the checksums of these files."""
    location = parse_location(table._dataset.uri)
    names = added_names(table, location, fragment, knows_it=not is_new)
    return text_with_sums(fragment.to_json(), sum_files(location, names))


def write_replacing(table: Table, replacing: Rows, new: Rows, kept: KeptIds) -> list[str]:
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
        # Also when the task is cancelled: nothing else knows these files.
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
        # Also when the task is cancelled: nothing else knows these files.
        remove_written(table, [*found, *written[len(found) :]])
        raise
    return found


def fragment_rows(fragment: str) -> int:
    """How many rows a fragment holds."""
    return int(json.loads(fragment)["physical_rows"])


def remove_written(table: Table, texts: Iterable[str | None]) -> None:
    """Remove the files that tasks wrote and list in their texts; nothing refers to them.

    A file whose checksum could not be read is not listed, and is left to `cleanup`.
    """
    delete_files(parse_location(table._dataset.uri), sums_in(texts))


# ---- replacing rows


def stage_replaced_rows(table: Table, rows: Rows) -> StagedWrite:
    """As `stage_upsert`, for rows whose blobs may refer to addresses; replaced rows keep their row ids."""
    keys = rows.column("id").combine_chunks()
    with translated(f"reading rows of {table.path}"):
        old = table._dataset.to_table(
            columns=["id", ROW_ID, ROW_ADDRESS, CREATED_AT],
            filter=to_sql(OneOf("id", [str(item) for item in keys.to_pylist()])),
        )
    old = old.sort_by(ROW_ID).combine_chunks()
    old_keys = old["id"].combine_chunks()
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
        shrunk = _delete_addresses(table, np.asarray(old[ROW_ADDRESS]))
    except BaseException:
        # Also after an interrupt: nothing else knows these files.
        remove_written(table, added)
        raise
    return stage_replacement(table, added, shrunk)


def stage_delete(table: Table, row_addresses: Sequence[int]) -> StagedWrite | None:
    """Remove rows by their `_rowaddr`; None when there is nothing to remove, so that no version is made."""
    if not row_addresses:
        return None
    return stage_removal(table, _delete_addresses(table, np.array(row_addresses, np.uint64)), len(row_addresses))


def _delete_addresses(table: Table, addresses: NDArray[np.uint64]) -> dict[int, str | None]:
    """What is left of the fragments of some rows without these rows."""
    numbers = addresses >> np.uint64(32)
    return {
        int(number): delete_offsets(table, int(number), addresses[numbers == number] & _OFFSET_MASK)
        for number in np.unique(numbers)
    }


def delete_offsets(table: Table, fragment_id: int, offsets: NDArray[np.integer]) -> str | None:
    """What is left of a fragment without some of its rows, for `stage_replacement`; None when nothing is.

    Writes a deletion file and moves nothing. The answer holds this file alone: the rest is known from the table.
    """
    with translated(f"marking rows of {table.path}"):
        remaining = fragment_of(table._dataset, fragment_id).delete_rows(offsets.tolist())
        if remaining is None:
            return None
        assert remaining.deletion_file is not None, "rows were deleted"
        location = parse_location(table._dataset.uri)
        names = added_names(table, location, remaining, knows_it=True)
        body = {"deletion_file": remaining.deletion_file.asdict()}
        return text_with_sums(body, sum_files(location, names))


def _shrunk(table: Table, shrunk: Mapping[int, str | None]) -> tuple[list[int], list[FragmentMetadata]]:
    """Fragments that are gone, and fragments with their new deletion files."""
    removed: list[int] = []
    updated: list[FragmentMetadata] = []
    present = {item.fragment_id: item for item in table.fragments()}
    for number, text in shrunk.items():
        if text is None:
            removed.append(number)
        else:
            mark = DeletionFile(**json.loads(text)["deletion_file"])
            updated.append(replace(present[number].metadata, deletion_file=mark))
    return removed, updated


def stage_replacement(table: Table, added: Sequence[str], shrunk: Mapping[int, str | None]) -> StagedWrite:
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
    return staged_write(table, operation, sums_in([*added, *shrunk.values()]))


def stage_removal(table: Table, shrunk: Mapping[int, str | None], rows: int) -> StagedWrite:
    """Old fragments that lost rows, as a transaction of its own; `shrunk` as in `stage_replacement`."""
    removed, updated = _shrunk(table, shrunk)
    operation = LanceOperation.Delete(updated, removed, f"{rows} rows by address")
    return staged_write(table, operation, sums_in(shrunk.values()))


def fragment_sizes(table: Table) -> dict[int, int]:
    """The fragments of a table with their rows; known from metadata."""
    with translated(f"looking at the fragments of {table.path}"):
        return {item.fragment_id: item.count_rows() for item in table._dataset.get_fragments()}


def read_addresses(table: Table, column: str, addresses: Sequence[int]) -> list[str]:
    """The texts of a few rows by their addresses, in that order."""
    wanted = ", ".join(str(address) for address in addresses)
    with translated(f"reading rows of {table.path}"):
        rows = table._dataset.to_table(columns=[column, ROW_ADDRESS], filter=f"{ROW_ADDRESS} IN ({wanted})").to_pylist()
    texts = {row[ROW_ADDRESS]: str(row[column]) for row in rows}
    return [texts[address] for address in addresses]


# ---- New values of some columns for many rows, while all other columns of these rows stay where they are
#
# The new columns of a fragment become one file beside its others: nothing else is read or written, so blobs and
# indexes of other columns stay. Rows keep their ids, and their lineage says which of them were updated. The cost is
# that of the columns of the whole fragment; for a few rows of a large one it is cheaper to write these again
# (`stage_upsert`).


def update_fragment(table: Table, fragment_id: int, rows: Rows) -> str:
    """New values for rows of one fragment, found by `_rowid`, as an update for `stage_updates`. Moves nothing.

    Holds the new values in memory; the old ones stream by.
    """
    with translated(f"updating columns of {table.path}"):
        fragment = fragment_of(table._dataset, fragment_id)
        found, fields, offsets = fragment.update_columns(rows, left_on=ROW_ID, right_on=ROW_ID, with_offsets=True)
        text = fragment_text(table, found, is_new=False)
    return json.dumps({"fragment": text, "fields": fields, "offsets": offsets.hex()})


def update_text(update: str) -> str:
    """The text of an update that lists its files, as `Ledger` and `remove_written` take it."""
    return str(json.loads(update)["fragment"])


def stage_updates(table: Table, updates: Sequence[str], added: Sequence[str] = ()) -> StagedWrite:
    """The updates of fragments as one transaction, with new fragments beside them."""
    fragments, fields, offsets = [], set[int](), {}
    bodies = [json.loads(update) for update in updates]
    for update in bodies:
        fragment = FragmentMetadata.from_json(update["fragment"])
        fragments.append(fragment)
        fields |= set(update["fields"])
        offsets[fragment.id] = bytes.fromhex(update["offsets"])
    operation = LanceOperation.Update(
        updated_fragments=fragments,
        new_fragments=[FragmentMetadata.from_json(text) for text in added],
        fields_modified=sorted(fields),
        update_mode="rewrite_columns",
        updated_fragment_offsets=offsets,
    )
    sums = sums_in([*(update["fragment"] for update in bodies), *added])
    return staged_write(table, operation, sums)


def remove_updates(table: Table, updates: Iterable[str]) -> None:
    """Delete the files of updates that are not staged; nothing refers to them."""
    remove_written(table, map(update_text, updates))


# ---- Row ids that rows keep when they are written again
#
# Lance gives ids to new rows when they are committed; rows that replace others bring theirs. A few are part of the
# manifest of their table. Many would make every reader read, and every commit write, up to eight bytes for each of
# them, and Lance takes seconds per million to commit them. They become hidden columns in a file beside the rows
# instead, in the form in which Lance itself stores such ids: `_rowid` and the versions of the rows, under field ids
# reserved for them.


_RowIdMeta: Any = RowIdMeta

#: Rows of one fragment whose ids may be part of the manifest: 8 KB of it at most.
INLINE_ROWS = 1_024
#: Bytes of one sequence of ids or versions that a compaction may leave in the manifest.
_INLINE_BYTES = 8 * INLINE_ROWS
#: Characters of a sequence as JSON, about four for a byte, above which a fragment is rewritten for it.
_LONG_TEXT = 64 * _INLINE_BYTES
#: The fields that Lance reserves for what it knows about every row.
_FIELDS = {ROW_ID: -3, CREATED_AT: -4, UPDATED_AT: -5}
#: What the metadata of a fragment says instead of a sequence that is a column.
_IDS_ARE_A_COLUMN = json.dumps("Column")
_VERSIONS_ARE_A_COLUMN = json.dumps({"column": {}})
_BATCH_ROWS = 65_536


@frozen
class KeptIds:
    """The ids that rows keep, and the versions in which these rows were created; both in the order of the rows."""

    row_ids: NDArray[np.uint64]
    created: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.row_ids)

    def part(self, begin: int, end: int) -> KeptIds:
        """Those of some of the rows."""
        return KeptIds(self.row_ids[begin:end], self.created[begin:end])


def with_row_ids(table: Table, fragment: str, kept: KeptIds) -> str:
    """A fragment that a task wrote, as JSON, whose rows keep the ids of rows that they replace.

    A few ids may be those of the first rows only: the others get new ones. Of many, every row has to bring one.
    """
    if not len(kept):
        return fragment
    metadata = FragmentMetadata.from_json(fragment)
    sums = sums_in([fragment])
    if len(kept) > INLINE_ROWS:
        if len(kept) != metadata.physical_rows:
            raise InternalError("a fragment whose ids are a column has one for each of its rows")
        sums |= _attach(table, metadata, {ROW_ID: kept.row_ids, CREATED_AT: kept.created})
    else:
        metadata.row_id_meta = RowIdSequence(pa.array(kept.row_ids)).to_inline_metadata()
    return text_with_sums(metadata.to_json(), sums)


def spill_sequences(table: Table, fragment: str, read_versions: Callable[[], Mapping[str, NDArray[np.uint64]]]) -> str:
    """A fragment of a compaction, as JSON, with its long sequences of ids and versions as columns.

    `read_versions` gives the ids and versions of its rows: Lance encodes versions in a form that only it reads.
    """
    body = json.loads(fragment)
    columns: dict[str, NDArray[np.uint64]] = {}
    if _length(body["row_id_meta"], "Inline") > _INLINE_BYTES:
        metadata = _RowIdMeta.from_json(json.dumps(body["row_id_meta"]))
        columns[ROW_ID] = np.asarray(RowIdSequence.from_inline_metadata(metadata).to_pyarrow())
    long = [
        name
        for name, member in ((CREATED_AT, "created_at"), (UPDATED_AT, "last_updated_at"))
        if _length(body[f"{member}_version_meta"], "inline") > _INLINE_BYTES
    ]
    if long:
        versions = read_versions()
        columns |= {name: versions[name] for name in long}
    if not columns:
        return fragment
    whole = FragmentMetadata.from_json(fragment)
    sums = sums_in([fragment]) | _attach(table, whole, columns)
    return text_with_sums(whole.to_json(), sums)


def has_long_sequences(fragment: FragmentMetadata) -> bool:
    """Whether the metadata of a fragment is so long that rewriting the fragment pays; afterwards it is not."""
    sequences = (fragment.row_id_meta, fragment.created_at_version_meta, fragment.last_updated_at_version_meta)
    return any(len(item.json()) > _LONG_TEXT for item in sequences if item is not None)


def _length(sequence: object, member: str) -> int:
    return len(sequence[member]) if isinstance(sequence, dict) and member in sequence else 0


def _attach(table: Table, fragment: FragmentMetadata, columns: Mapping[str, NDArray[np.uint64]]) -> dict[str, FileSum]:
    """Write hidden columns of a fragment into a file of their own and refer to them; the checksum of the file."""
    if any(len(values) != fragment.physical_rows for values in columns.values()):
        raise InternalError("a hidden column has one value for each row")
    location = parse_location(table._dataset.uri)
    name = f"data/{uuid4().hex}.lance"
    try:
        with translated(f"writing row ids of {table.path}"):
            file = _write_columns(location.child(name), fragment.files[0], columns)
        sums = sum_files(location, [name])
    except BaseException:
        # Also when the task is cancelled: nothing else knows the name.
        with suppress(StorageError):
            ControlObjects(location, durable=False).delete(name)
        raise
    fragment.files.append(file)
    if ROW_ID in columns:
        fragment.row_id_meta = _RowIdMeta.from_json(_IDS_ARE_A_COLUMN)
    if CREATED_AT in columns:
        fragment.created_at_version_meta = RowDatasetVersionMeta.from_json(_VERSIONS_ARE_A_COLUMN)
    if UPDATED_AT in columns:
        fragment.last_updated_at_version_meta = RowDatasetVersionMeta.from_json(_VERSIONS_ARE_A_COLUMN)
    return dict(sums)


def _write_columns(uri: str, beside: DataFile, columns: Mapping[str, NDArray[np.uint64]]) -> DataFile:
    """A file in the format of the one that it lies beside."""
    schema = pa.schema([pa.field(name, pa.uint64(), nullable=False) for name in columns])
    arrays = [pa.array(values, pa.uint64()) for values in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    version = f"{beside.file_major_version}.{beside.file_minor_version}"
    with LanceFileWriter(uri, schema, version=version) as writer:
        for begin in range(0, batch.num_rows, _BATCH_ROWS):
            writer.write_batch(batch.slice(begin, _BATCH_ROWS))
    return DataFile(
        uri.rpartition("/")[2],
        [_FIELDS[name] for name in columns],
        list(range(len(columns))),
        beside.file_major_version,
        beside.file_minor_version,
        writer.size_bytes,
    )


# ---- Ledgers: which files a task has written, noted in a file that outlives the task
#
# The driver learns from answers what tasks wrote, and an answer may never arrive: the task is tried again elsewhere,
# its process dies, the job is cancelled, the driver is interrupted. So an attempt notes its files in the folder of
# the operation as soon as they are whole, and the driver removes what no attempt that counts has written. Only a file
# that was being written when its process died is in no ledger; cleanup finds it.


_LEDGER = "wrote"
#: How often the folder is looked at until it stays empty; the first pass removes nearly always everything.
_MAX_PASSES = 5
_FILES_SCHEMA = pa.schema([pa.field("file", pa.utf8(), nullable=False)])


@dataclass(slots=True)
class Ledger:
    """The files of one attempt of a task, as names below the root of the graph. Without a folder nothing is noted."""

    folder: AnswerFolder | None
    part: int
    #: The attempt, for its answer; empty while nothing is noted.
    name: str = ""
    _files: list[str] = field(default_factory=list)

    def note(self, table: Table, written: Iterable[str | None]) -> None:
        """Note the files of fragments that the attempt wrote, or wrote files for, given as their texts.

        When it fails, these files are gone: nothing else knows them.
        """
        if self.folder is None:
            return
        line = _below(self.folder.root, str(table._dataset.uri))
        files = [f"{line}/{name}" for name in sums_in(written)]
        if not files:
            return
        self._files += files
        self.name = self.name or attempt_name(_LEDGER, self.part)
        rows = pa.RecordBatch.from_arrays([pa.array(self._files, pa.utf8())], schema=_FILES_SCHEMA)
        try:
            # The same name again: a reader finds the earlier list or the longer one.
            write_answer(self.folder, self.name, _FILES_SCHEMA, [rows])
        except BaseException:
            # Also when the task is cancelled. What fails here too stays until cleanup.
            with suppress(StorageError):
                delete_files(self.folder.root, files)
            raise


def _below(root: GraphLocation, uri: str) -> str:
    """The name of a dataset below the root: datasets record the root without links, a caller may come through one."""
    for place in (root.root, root.uri):
        if uri.startswith(f"{place}/"):
            return uri.removeprefix(f"{place}/")
    raise InternalError(f"{uri} does not lie in {root}")


@dataclass(slots=True)
class Ledgers:
    """The ledgers of all tasks of one operation, for its driver."""

    folder: AnswerFolder
    #: Attempts whose answers count.
    _counted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, root: GraphLocation) -> Ledgers:
        """Ledgers of an operation that begins."""
        return cls(new_answer_folder(root))

    def count(self, attempts: Iterable[str]) -> None:
        """What these attempts wrote is in use."""
        self._counted.update(attempts)

    def discount(self, attempts: Iterable[str]) -> None:
        """What these attempts wrote is not needed after all."""
        self._counted.difference_update(attempts)

    def close(self, *, is_committed: bool) -> None:
        """End the operation and remove what was written for nothing: everything, unless it was committed.

        What cannot be removed stays for cleanup, and is logged.
        """
        kept: Collection[str] = self._counted if is_committed else ()
        try:
            for _ in range(_MAX_PASSES):
                if not self._remove_listed(kept):
                    break
            else:
                _log.warning("tasks still write: what they have written stays until cleanup")
            remove_answer_folder(self.folder)
        except StorageError as error:
            _log.warning("what tasks have written stays until cleanup: %s", error)

    def _remove_listed(self, kept: Collection[str]) -> bool:
        """Remove what is in the folder now, and the files that its ledgers name; whether there was anything.

        Only what was read goes: a task that ends late may add a ledger meanwhile, which the next pass finds.
        """
        names = [file.name for file in list_files(self.folder.root, self.folder.name)]
        for name in names:
            attempt = name.rpartition("/")[2].removesuffix(".arrow")
            if attempt.startswith(f"{_LEDGER}-") and attempt not in kept:
                self._remove_files(attempt)
        delete_files(self.folder.root, names)
        return bool(names)

    def _remove_files(self, attempt: str) -> None:
        try:
            for batch in read_answer(self.folder, attempt):
                delete_files(self.folder.root, map(str, batch.column(0).to_pylist()))
        except StorageError as error:
            _log.warning("what %s has written stays until cleanup: %s", attempt, error)
