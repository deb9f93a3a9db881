"""Scans of groups of fragments whose batches have a bounded size, whatever the rows hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import InternalError
from omnigraph.storage.blob_cells import scan_cells
from omnigraph.storage.failures import translated
from omnigraph.storage.opening import open_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lance
    import pyarrow as pa

    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.tables import Table

#: How large the batches of a scan are meant to be.
BATCH_BYTES = 8 * 1024 * 1024
#: What a scan reads ahead of its consumer. Lance's own bound is 2 GiB, which a slow consumer lets it fill.
READ_AHEAD_BYTES = 32 * 1024 * 1024


def scan_group(
    address: TableAddress, fragment_ids: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of some fragments as a stream of batches, in storage order; blob columns come as cells.

    Raises:
        StorageError: the version is gone or cannot be read.
    """
    with translated(f"scanning version {address.version} of {address.uri}"):
        # As `scan_fragments`: a worker may outlive the graph, so it keeps neither a handle nor the caches of a session.
        dataset = open_dataset(address.uri, address.version, shared=False)
        fragments = [_fragment(dataset, number) for number in fragment_ids]
        if not fragments:
            return
        yield from scan_cells(
            dataset,
            columns,
            fragments=fragments,
            scan_in_order=True,
            batch_size_bytes=BATCH_BYTES,
            batch_readahead=2,
            fragment_readahead=1,
            io_buffer_size=READ_AHEAD_BYTES,
        )


def stored_bytes(table: Table) -> int:
    """About how many bytes the rows of a table take on disk; blobs that lie in files of their own do not count."""
    with translated(f"looking at the fragments of {table.path}"):
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
