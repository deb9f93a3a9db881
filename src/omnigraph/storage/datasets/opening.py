"""Opens datasets: whatever addresses their forks record, they are read inside the graph."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, TypeAlias

import lance
from lance import LanceDataset

from omnigraph.core.env_settings import WholeNumber
from omnigraph.errors import OutsideRootError, StorageError, StorageFailure
from omnigraph.storage.location import is_dataset_path, is_fork_name

# ---- The addresses that forks hold of their bases, as they are where the graph lies now
#
# A fork reads files of its base, and Lance keeps the base by its absolute address: in field 18 of the protobuf
# message of every version of the fork. After a graph was copied, moved or renamed, that address leads to the old
# place, or to nothing. The base of a fork is always the same dataset, or another fork of it, so only the end of the
# address means anything: whatever root was recorded, the dataset is the one that the fork lies in. An address with
# another end is not of our own making and is refused, so that no version reads or protects files outside its own
# dataset.
#
# All knowledge of the bytes of a manifest is here. Its file ends with the message, its length before it, and a footer
# that tells where the length stands.


_TREE = "/tree/"
#: Field numbers in the messages `Manifest` and `BasePath`.
_BASE_PATHS, _PATH = 18, 4
#: How a field is written: as a number of variable length, as bytes with their length before them, or in a fixed size.
VARINT, BYTES = 0, 2
_FIXED_SIZES = {1: 8, 5: 4}
_LENGTH = struct.Struct("<I")
#: Where the message begins, the version of the format, and a mark.
_FOOTER = struct.Struct("<QHH4s")
_MAGIC = b"LANC"


def dataset_of(uri: str) -> str:
    """The address of the dataset that a dataset or a fork of it belongs to.

    >>> dataset_of("/g.omni/nodes/da89d00e1b71df59/tree/drafts/july")
    '/g.omni/nodes/da89d00e1b71df59'
    """
    at = uri.find(_TREE)
    while at >= 0:
        if is_dataset_path(_tail(uri[:at])):
            return uri[:at]
        at = uri.find(_TREE, at + 1)
    # A dataset of another name than types have: it is found all the same, and its bases lie inside of it.
    return uri if is_dataset_path(_tail(uri)) else uri.partition(_TREE)[0]


def rebased(recorded: str, uri: str) -> str:
    """Where the base that a fork at `uri` recorded lies now.

    >>> rebased("/old/g.omni/nodes/da89d00e1b71df59", "s3://b/g.omni/nodes/da89d00e1b71df59/tree/draft")
    's3://b/g.omni/nodes/da89d00e1b71df59'

    Raises:
        OutsideRootError: it is not the dataset of the fork, and not a fork of it.
    """
    dataset = dataset_of(uri)
    end = f"/{_tail(dataset)}"
    at = recorded.find(end)
    while at >= 0:
        rest = recorded[at + len(end) :]
        if not rest or (rest.startswith(_TREE) and is_fork_name(rest.removeprefix(_TREE))):
            return dataset + rest
        at = recorded.find(end, at + 1)
    raise OutsideRootError(_tail(dataset), f"a version of it reads {recorded}, which lies outside of the dataset")


def with_bases(message: bytes, place: Callable[[str], str]) -> bytes:
    """A manifest message whose bases lie where `place` says; equal when nothing changes.

    Raises:
        StorageError: it is not a manifest message.
    """
    return _edited(message, _BASE_PATHS, lambda base: _edited(base, _PATH, lambda path: place(path.decode()).encode()))


def with_bases_in_file(data: bytes, place: Callable[[str], str]) -> bytes:
    """As `with_bases`, for the whole file of a manifest: everything before its message stays where it is.

    Raises:
        StorageError: it is not the file of a manifest.
    """
    if len(data) < _FOOTER.size:
        raise _damaged()
    position, major, minor, magic = _FOOTER.unpack(data[-_FOOTER.size :])
    begin = position + _LENGTH.size
    if magic != _MAGIC or begin > len(data) - _FOOTER.size:
        raise _damaged()
    (length,) = _LENGTH.unpack_from(data, position)
    if begin + length != len(data) - _FOOTER.size:
        raise _damaged()
    message = with_bases(data[begin : begin + length], place)
    footer = _FOOTER.pack(position, major, minor, magic)
    return data[:position] + _LENGTH.pack(len(message)) + message + footer


def _tail(dataset: str) -> str:
    """The last two parts of an address: what a dataset is called below the root of its graph."""
    return "/".join(dataset.rsplit("/", 2)[-2:])


# ---- protobuf


#: A field of a message: its number, how it is written, and its bytes without a length.
Member: TypeAlias = tuple[int, int, bytes]


def members(message: bytes) -> Iterator[Member]:
    """The fields of a message.

    Raises:
        StorageError: it is not a message.
    """
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            _, end = read_varint(message, at)
        elif kind == BYTES:
            size, at = read_varint(message, at)
            end = at + size
        elif kind in _FIXED_SIZES:
            end = at + _FIXED_SIZES[kind]
        else:
            raise _damaged()
        if end > len(message):
            raise _damaged()
        yield tag >> 3, kind, message[at:end]
        at = end


def message_of(fields: Iterable[Member]) -> bytes:
    """The inverse of `members`."""
    pieces = []
    for number, kind, value in fields:
        pieces += [varint(number << 3 | kind), varint(len(value)) if kind == BYTES else b"", value]
    return b"".join(pieces)


def _edited(message: bytes, wanted: int, edit: Callable[[bytes], bytes]) -> bytes:
    """A message in which one field of bytes is changed, wherever it occurs; everything else is copied."""
    return message_of(
        (number, kind, edit(value) if number == wanted and kind == BYTES else value)
        for number, kind, value in members(message)
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends.

    Raises:
        StorageError: there is none.
    """
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _damaged()


def varint(value: int) -> bytes:
    """The inverse of `read_varint`."""
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _damaged() -> StorageError:
    return StorageError("the manifest of a version is damaged: restore it from a backup", StorageFailure.PERMANENT)


# ---- The one door through which datasets of a graph are opened: whatever they record, they read inside the graph


#: Every version of a table and of the manifest adds about 30 KB, and hardly an old one is read again.
_METADATA_CACHE = WholeNumber(
    "OMNIGRAPH_METADATA_CACHE_BYTES",
    32 * 1024 * 1024,
    "Memory for metadata of files, of all graphs of a process. Raise it for tables of many thousand fragments.",
)
_INDEX_CACHE = WholeNumber(
    "OMNIGRAPH_INDEX_CACHE_BYTES", 1024**3, "Memory for parts of indexes, of all graphs of a process."
)


@cache
def session() -> Any:  # lance exports its Session without a type
    """The one Lance session of this process: fresh handles share its caches.

    Lance would keep 1 GiB of metadata and 6 GiB of indexes, and every commit adds to both.
    """
    return lance.Session(  # type: ignore[attr-defined]  # lance exports it without a type
        metadata_cache_size_bytes=_METADATA_CACHE.read(), index_cache_size_bytes=_INDEX_CACHE.read()
    )


def open_dataset(uri: str, version: int | None = None, *, shared: bool = True) -> LanceDataset:
    """A dataset, or a fork of one, at a version or at its HEAD.

    A fork that was recorded for another root reads its base where the graph lies now; nothing is written for that.
    Without `shared` it uses no session: caches may know a dataset that was dropped and made again at the same address.

    Raises:
        OutsideRootError: a version of it reads files outside of its dataset.
    """
    caches = session() if shared else None
    found = lance.dataset(uri, version=version, session=caches)
    place = partial(rebased, uri=uri)
    if all(place(base.path) == base.path for base in found.base_paths().values()):
        return found
    message = with_bases(found._ds.serialized_manifest(), place)
    return LanceDataset(uri, version=found.version, serialized_manifest=message, session=caches)


def index_folders(dataset: LanceDataset) -> Iterator[str]:
    """The folders of the indexes of a version, as names in whatever line they lie."""
    for index in dataset.describe_indices():
        yield from (f"_indices/{segment.uuid}" for segment in index.segments)


def fragment_of(dataset: LanceDataset, number: int) -> lance.LanceFragment:
    """A fragment by its id.

    Raises:
        StorageError: this version has no such fragment.
    """
    found = dataset.get_fragment(number)
    if found is None:
        raise StorageError(f"{dataset.uri} has no fragment {number}")
    return found
