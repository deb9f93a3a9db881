"""Row ids that rows keep when they are written again.

Lance gives ids to new rows when they are committed; rows that replace others bring theirs. A few are part of the
manifest of their table. Many would make every reader read, and every commit write, up to eight bytes for each of them,
and Lance takes seconds per million to commit them. They become hidden columns in a file beside the rows instead, in the
form in which Lance itself stores such ids: `_rowid` and the versions of the rows, under field ids reserved for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, RowDatasetVersionMeta, RowIdMeta, RowIdSequence

from omnigraph.core.arrow import pa as _pa
from omnigraph.errors import InternalError, StorageError
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.checksums import sum_files, sums_in, text_with_sums
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID, UPDATED_AT
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
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
        metadata.row_id_meta = RowIdSequence(_pa.array(kept.row_ids)).to_inline_metadata()
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


def _attach(table: Table, fragment: FragmentMetadata, columns: Mapping[str, NDArray[np.uint64]]) -> dict[str, Any]:
    """Write hidden columns of a fragment into a file of their own and refer to them; the checksum of the file."""
    if any(len(values) != fragment.physical_rows for values in columns.values()):
        raise InternalError("a hidden column has one value for each row")
    location = parse_location(table._dataset.uri)
    name = f"data/{uuid4().hex}.lance"
    try:
        with translated(f"writing row ids of {table.path}"):
            file = _write(location.child(name), fragment.files[0], columns)
        sums = sum_files(location, [name])
    except BaseException:
        # Also when the task is cancelled: nothing else knows the name.
        with suppress(StorageError):
            ObstoreObjects(location, durable=False).delete(name)
        raise
    fragment.files.append(file)
    if ROW_ID in columns:
        fragment.row_id_meta = _RowIdMeta.from_json(_IDS_ARE_A_COLUMN)
    if CREATED_AT in columns:
        fragment.created_at_version_meta = RowDatasetVersionMeta.from_json(_VERSIONS_ARE_A_COLUMN)
    if UPDATED_AT in columns:
        fragment.last_updated_at_version_meta = RowDatasetVersionMeta.from_json(_VERSIONS_ARE_A_COLUMN)
    return dict(sums)


def _write(uri: str, beside: DataFile, columns: Mapping[str, NDArray[np.uint64]]) -> DataFile:
    """A file in the format of the one that it lies beside."""
    schema = _pa.schema([_pa.field(name, _pa.uint64(), nullable=False) for name in columns])
    arrays = [_pa.array(values, _pa.uint64()) for values in columns.values()]
    batch = _pa.RecordBatch.from_arrays(arrays, schema=schema)
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
