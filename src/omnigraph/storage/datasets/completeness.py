"""Completeness of a dataset: files that its rows need, and whether all of it can be read."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

import lance
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from omnigraph.errors import StorageError, StorageFailure
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.blob_columns import scan_cells
from omnigraph.storage.datasets.checksums import names_of
from omnigraph.storage.datasets.opening import fragment_of, index_folders, open_dataset
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, line_address, line_folder
from omnigraph.storage.objects import StoredFile

# ---- Whether files that were just written are on disk with all of their bytes
#
# Lance does not tell when the disk fills up with the last bytes of a file: they wait in memory until the file is
# closed, and no caller asks how that went. A version of such a file would be committed, and could never be read. So
# everything is looked at before it is committed. An object store takes a file as a whole or not at all.


_ARROW_END = b"ARROW1"
#: The head of a bitmap without runs, and the size above which a container is a bitmap itself.
_BITMAP_COOKIE, _LARGEST_LIST, _CONTAINER_BYTES = 12346, 4096, 8192


def check_complete(folder: str, fragments: Iterable[FragmentMetadata]) -> None:
    """Look at the data and deletion files of fragments in the local folder of a dataset.

    A file that is not there is passed over: a fork has files of its base that lie elsewhere.

    Raises:
        StorageError: bytes are missing.
    """
    root = Path(folder)
    with translated(f"looking at new files in {folder}"):
        for fragment in fragments:
            for file in fragment.files:
                _check_size(root / "data" / file.path, file.file_size_bytes)
            if fragment.deletion_file is not None:
                _check_deletions(root / fragment.deletion_file.path(fragment.id))


def _check_size(path: Path, expected: int | None) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if expected is not None and size != expected:
        raise _cut_short(path)


def _check_deletions(path: Path) -> None:
    """Check a file of deleted rows: no metadata has its size, but both of its formats tell where they end."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    is_whole = data.endswith(_ARROW_END) if path.suffix == ".arrow" else _is_whole_bitmap(data)
    if not is_whole:
        raise _cut_short(path)


def _is_whole_bitmap(data: bytes) -> bool:
    """Whether the containers of a roaring bitmap are as long as its head says."""
    if len(data) < 8:
        return False
    cookie: int
    count: int
    cookie, count = struct.unpack_from("<II", data)
    if cookie != _BITMAP_COOKIE:
        # With runs, which tell their lengths only one by one; Lance does not write them.
        return True
    head = 8 + 8 * count
    if len(data) < head:
        return False
    members: tuple[int, ...] = struct.unpack_from(f"<{2 * count}H", data, 8)
    sizes = (number + 1 for number in members[1::2])
    body = sum(2 * size if size <= _LARGEST_LIST else _CONTAINER_BYTES for size in sizes)
    return len(data) == head + body


def _cut_short(path: Path) -> StorageError:
    return StorageError(
        f"{path.name} was not written completely, nothing of it counts: is the disk full?", StorageFailure.CONFIGURATION
    )


# ---- What the rows of a table need on disk, and whether it is there: by names and sizes, and by one row that is
#      read


def _required_files(location: GraphLocation, table: Table) -> Iterator[tuple[str, int | None]]:
    """Every file that a version of a table refers to, with its size where metadata tells.

    Names are below the root of the graph: a fork has files of its base. Those of the folders of indexes end with a
    slash.
    """
    dataset = table._dataset
    with translated(f"looking at the files of {table.path}"):
        places = {number: base.path for number, base in dataset.base_paths().items()}

        def name_of(base_id: int | None, name: str) -> str:
            place = dataset.uri if base_id is None else places[base_id]
            return f"{place.removeprefix(location.root).strip('/')}/{name}"

        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            for file in metadata.files:
                yield name_of(file.base_id, f"data/{file.path}"), file.file_size_bytes
            deleted = metadata.deletion_file
            if deleted is not None:
                yield name_of(deleted.base_id, deleted.path(fragment.fragment_id)), None
        for index in dataset.describe_indices():
            for segment in index.segments:
                yield name_of(segment.base_id, f"_indices/{segment.uuid}/"), segment.size_bytes


def find_missing(location: GraphLocation, table: Table, listed: Iterable[StoredFile]) -> str | None:
    """Describe what the files of a table lack, compared with a listing of its dataset; None when nothing."""
    sizes: Counter[str] = Counter()
    for file in listed:
        sizes[file.name] += file.size_bytes
        folder, mark, rest = file.name.partition("/_indices/")
        if mark:
            sizes[f"{folder}{mark}{rest.partition('/')[0]}/"] += file.size_bytes
    for name, whole in _required_files(location, table):
        if name not in sizes:
            return f"its file {name} is missing"
        if whole is not None and sizes[name] != whole:
            return f"its file {name} has {sizes[name]:,} of {whole:,} bytes"
    return None


def read_one_row(table: Table) -> None:
    """Read one row, blobs aside: its files are not only there, they can be read.

    Raises:
        StorageError: it cannot be read.
    """
    columns = [name for name in table.schema.names if name not in table.blob_columns]
    table.read(columns, limit=1)


# ---- Reading everything that a version of a dataset consists of, in order to see whether it can be read
#
# Damaged files can make Lance end the process. `verify` therefore runs this in a process of its own.


#: Rows that are decoded at once.
_BATCH_ROWS = 1024
#: Files in the format of Lance, by the end of their names.
_LANCE_FILES = (".lance", ".idx")


class VersionContents(TypedDict):
    """What a version refers to. Names are as Lance writes them, without the folder of the line that owns the file."""

    row_count: int
    #: The data files and the deletion mark of every fragment.
    fragments: dict[int, tuple[str, ...]]
    #: Folders of indexes.
    indexes: tuple[str, ...]


def read_contents(location: GraphLocation, *, path: str, fork: str | None, version: int) -> VersionContents:
    """Open a version and list what it refers to.

    Raises:
        StorageError: it cannot be opened.
    """
    with translated(f"opening version {version} of {path}"):
        dataset = _open(location, path, fork, version)
        return VersionContents(
            row_count=int(dataset.count_rows()),
            fragments={
                fragment.fragment_id: tuple(names_of([fragment.metadata])) for fragment in dataset.get_fragments()
            },
            indexes=tuple(index_folders(dataset)),
        )


def decode_fragment(location: GraphLocation, *, path: str, fork: str | None, version: int, number: int) -> int:
    """Decode every column of every row of a fragment, blobs included; how many rows there are.

    Raises:
        StorageError: something cannot be decoded.
    """
    rows = 0
    with translated(f"decoding fragment {number} of {path}"):
        dataset = _open(location, path, fork, version)
        fragment = fragment_of(dataset, number)
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
        batches = LanceFileReader(location.child(name)).read_all(batch_size=_BATCH_ROWS)
        for batch in batches.to_batches():
            _check_values(batch)
            rows += batch.num_rows
    return rows


def _check_values(batch: pa.RecordBatch) -> None:
    """Make sure that lengths, offsets and texts of a batch are possible; Arrow believes them until it is asked."""
    for column in batch.columns:
        # Moments are stored as milliseconds of date64, and a full check would insist on whole days.
        column.validate(full=not _holds_moments(column.type))


def _holds_moments(type_: pa.DataType) -> bool:
    if pa.types.is_date64(type_):
        return True
    return any(_holds_moments(type_.field(place).type) for place in range(type_.num_fields))


def _open(location: GraphLocation, path: str, fork: str | None, version: int) -> lance.LanceDataset:
    # No shared session: what it remembers would hide what the files hold now.
    uri = line_address(location, path, line_folder(fork))
    return open_dataset(uri, version, shared=False)
