"""Whether files that were just written are on disk with all of their bytes.

Lance does not tell when the disk fills up with the last bytes of a file: they wait in memory until the file is closed,
and nobody asks how that went. A version of such a file would be committed, and could never be read. So everything is
looked at before it is committed. An object store takes a file as a whole or not at all.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError, StorageFailure
from omnigraph.storage.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance.fragment import FragmentMetadata

_ARROW_END = b"ARROW1"
#: The head of a bitmap without runs, and the numbers from which on a container is a bitmap itself.
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
    """Nobody keeps the size of a file of deleted rows, but both of its formats tell where they end."""
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
        f"{path.name} was not written completely, nothing of it counts: is the disk full?",
        StorageFailure.CONFIGURATION,
    )
