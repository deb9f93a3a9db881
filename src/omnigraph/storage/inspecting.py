"""Reading everything that a version of a dataset consists of, in order to see whether it can be read.

Damaged files can make Lance end the process. `verify` therefore runs this in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.storage.blob_cells import scan_cells
from omnigraph.storage.failures import translated
from omnigraph.storage.file_names import line_folder
from omnigraph.storage.leftovers import line_address
from omnigraph.storage.opening import open_dataset

if TYPE_CHECKING:
    import lance

    from omnigraph.storage.location import GraphLocation

#: Rows that are decoded at once.
_BATCH_ROWS = 1024
#: Files in the format of Lance, by the end of their names.
_LANCE_FILES = (".lance", ".idx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One version of the main line of a dataset, or of a fork of it."""

    path: str
    fork: str | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionContents:
    """What a version refers to. Names are as Lance writes them, without the folder of the line that owns the file."""

    row_count: int
    #: The data files and the deletion mark of every fragment.
    fragments: dict[int, tuple[str, ...]]
    #: Folders of indexes.
    indexes: tuple[str, ...]


def read_contents(location: GraphLocation, line: Line) -> VersionContents:
    """Open a version and list what it refers to.

    Raises:
        StorageError: it cannot be opened.
    """
    with translated(f"opening version {line.version} of {line.path}"):
        dataset = _open(location, line)
        fragments: dict[int, tuple[str, ...]] = {}
        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            names = [f"data/{file.path}" for file in metadata.files]
            if metadata.deletion_file is not None:
                names.append(metadata.deletion_file.path(fragment.fragment_id))
            fragments[fragment.fragment_id] = tuple(names)
        segments = (segment for index in dataset.describe_indices() for segment in index.segments)
        return VersionContents(
            row_count=int(dataset.count_rows()),
            fragments=fragments,
            indexes=tuple(f"_indices/{segment.uuid}" for segment in segments),
        )


def decode_fragment(location: GraphLocation, line: Line, fragment_id: int) -> int:
    """Decode every column of every row of a fragment, blobs included; how many rows there are.

    Raises:
        StorageError: something cannot be decoded.
    """
    rows = 0
    with translated(f"decoding fragment {fragment_id} of {line.path}"):
        dataset = _open(location, line)
        fragment = dataset.get_fragment(fragment_id)
        for batch in scan_cells(dataset, None, fragments=[fragment], batch_size=_BATCH_ROWS):
            _check_values(batch)
            rows += batch.num_rows
    return rows


def decode_file(location: GraphLocation, name: str) -> int:
    """Decode one file of an index; how many rows it has. Other files than those of Lance are left alone.

    Raises:
        StorageError: something cannot be decoded.
    """
    if not name.endswith(_LANCE_FILES):
        return 0
    rows = 0
    with translated(f"decoding {name}"):
        batches: Any = LanceFileReader(location.child(name)).read_all(batch_size=_BATCH_ROWS)
        for batch in batches.to_batches():
            _check_values(batch)
            rows += batch.num_rows
    return rows


def _check_values(batch: Any) -> None:
    """Make sure that lengths, offsets and texts of a batch are possible; Arrow believes them until it is asked."""
    for column in batch.columns:
        # Moments are stored as milliseconds of date64, and a full check would insist on whole days.
        column.validate(full=not _holds_moments(column.type))


def _holds_moments(type_: Any) -> bool:
    if pa.types.is_date64(type_):
        return True
    return any(_holds_moments(type_.field(place).type) for place in range(type_.num_fields))


def _open(location: GraphLocation, line: Line) -> lance.LanceDataset:
    # No shared session: what it remembers would hide what the files hold now.
    uri = line_address(location, line.path, line_folder(line.fork))
    return open_dataset(uri, line.version, shared=False)
