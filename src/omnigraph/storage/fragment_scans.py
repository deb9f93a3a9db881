"""Scans of groups of fragments whose batches have a bounded size, whatever the rows hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.storage.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.tables import Table

#: How large the batches of a scan are meant to be.
BATCH_BYTES = 8 * 1024 * 1024
#: What a scan reads ahead of its consumer. Lance's own bound is 2 GiB, which a slow consumer lets it fill.
_READ_AHEAD_BYTES = 32 * 1024 * 1024
_MAX_BLOB_ROWS = 1024


def scan_group(
    address: TableAddress, fragment_ids: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of some fragments as a stream of batches, in storage order; blob columns come as their bytes.

    Raises:
        StorageError: the version is gone or cannot be read.
    """
    with translated(f"scanning version {address.version} of {address.uri}"):
        # As `scan_fragments`: a worker may outlive the graph, so it keeps neither a handle nor the caches of a session.
        dataset = lance.dataset(address.uri, version=address.version)
        fragments = [_fragment(dataset, number) for number in fragment_ids]
        if not fragments:
            return
        yield from dataset.scanner(
            columns=list(columns),
            fragments=fragments,
            scan_in_order=True,
            blob_handling="all_binary",
            batch_size=_batch_rows(dataset, fragments, columns),
            batch_size_bytes=BATCH_BYTES,
            batch_readahead=2,
            fragment_readahead=1,
            io_buffer_size=_READ_AHEAD_BYTES,
        ).to_batches()


def stored_bytes(table: Table) -> int:
    """About how many bytes the rows of a table take on disk; blobs that lie in files of their own do not count."""
    sizes = (
        file.file_size_bytes
        for fragment in table._dataset.get_fragments()
        for file in fragment.metadata.files
    )
    return sum(size or 0 for size in sizes)


def _fragment(dataset: lance.LanceDataset, number: int) -> lance.LanceFragment:
    found = dataset.get_fragment(number)
    if found is None:
        raise InternalError(f"{dataset.uri} has no fragment {number}")
    return found


def _batch_rows(
    dataset: lance.LanceDataset, fragments: Sequence[lance.LanceFragment], columns: Sequence[str]
) -> int | None:
    """How many rows a batch may have at most.

    The byte limit of a Lance scan cuts batches after all their blobs are in memory; only a limit of rows keeps them
    out. So the sizes of the blobs are looked at first.
    """
    is_blob = lance.blob.BlobType
    blobs = [name for name in columns if isinstance(dataset.schema.field(name).type, is_blob)]
    if not blobs:
        return None
    largest = 1
    sizes = dataset.scanner(
        columns=blobs, fragments=list(fragments), blob_handling="all_descriptions"
    )
    for batch in sizes.to_batches():
        row_bytes: Any = 0
        for column in batch.columns:
            row_bytes = pc.add(row_bytes, pc.fill_null(pc.struct_field(column, "size"), 0))
        largest = max(largest, pc.max(row_bytes).as_py() or 0)
    return max(1, min(_MAX_BLOB_ROWS, BATCH_BYTES // largest))
