"""What the rows of a table need on disk, and whether it is there: by names and sizes, and by one row that is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.storage.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.storage.listing import StoredFile
    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredFile:
    """A data or deletion file, or all files of one segment of an index."""

    #: Below the root of the graph; the folder of an index ends with a slash.
    name: str
    #: None where no metadata tells.
    size_bytes: int | None


def required_files(location: GraphLocation, table: Table) -> Iterator[RequiredFile]:
    """Everything that a version of a table refers to, where it refers to it: a fork has files of its base."""
    dataset = table._dataset
    with translated(f"looking at the files of {table.path}"):
        places = {number: base.path for number, base in dataset.base_paths().items()}

        def name_of(base_id: int | None, name: str) -> str:
            place = dataset.uri if base_id is None else places[base_id]
            return f"{place.removeprefix(location.root).strip('/')}/{name}"

        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            for file in metadata.files:
                name = name_of(file.base_id, f"data/{file.path}")
                yield RequiredFile(name=name, size_bytes=file.file_size_bytes)
            deleted = metadata.deletion_file
            if deleted is not None:
                name = name_of(deleted.base_id, deleted.path(fragment.fragment_id))
                yield RequiredFile(name=name, size_bytes=None)
        for index in dataset.describe_indices():
            for segment in index.segments:
                name = name_of(segment.base_id, f"_indices/{segment.uuid}/")
                yield RequiredFile(name=name, size_bytes=segment.size_bytes)


def find_missing(location: GraphLocation, table: Table, listed: Iterable[StoredFile]) -> str | None:
    """What the files of a table lack, in words, held against a listing of its dataset; None when nothing."""
    sizes: Counter[str] = Counter()
    for file in listed:
        sizes[file.name] += file.size_bytes
        folder, mark, rest = file.name.partition("/_indices/")
        if mark:
            sizes[f"{folder}{mark}{rest.partition('/')[0]}/"] += file.size_bytes
    for needed in required_files(location, table):
        if needed.name not in sizes:
            return f"its file {needed.name} is missing"
        if needed.size_bytes is not None and sizes[needed.name] != needed.size_bytes:
            found, whole = sizes[needed.name], needed.size_bytes
            return f"its file {needed.name} has {found:,} of {whole:,} bytes"
    return None


def read_one_row(table: Table) -> None:
    """Read one row, blobs aside: its files are not only there, they can be read.

    Raises:
        StorageError: it cannot be read.
    """
    columns = [name for name in table.schema.names if name not in table.blob_columns]
    table.read(columns, limit=1)
