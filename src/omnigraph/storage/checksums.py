"""Checksums of the files of a dataset: recorded by whatever writes them, compared by `verify`.

Files of a dataset never change once they are committed. Each commit therefore leaves one small record beside the
versions of its line, `_checksums/<version>.json`, with the size and the CRC-32 of every file that the commit brought:
data, deletion marks, blobs, indexes, the manifest and the transaction. Names are relative to the line, so that a copy
or a move of the graph keeps them valid. Files of earlier releases have no record, and a record that cannot be written
fails nothing: it only leaves less to compare. Records are therefore not flushed to disk; after a power cut the newest
may be missing or empty, and `verify --record` makes them again.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import obstore

from omnigraph.errors import DamageError, StorageError
from omnigraph.storage.failures import translated
from omnigraph.storage.listing import delete_files, list_files
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from omnigraph.storage.location import GraphLocation

CHECKSUM_FOLDER = "_checksums"
#: The name by which a fork records its registration, a file of the dataset above it.
REGISTRATION = "_refs"
_FORMAT = 1
_MEMBER = "checksums"
#: The end of the address of a line, from the root of its graph on.
_LINE = re.compile(r"(?:(?:nodes|edges)/[^/]+(?:/tree/.+)?|_[^/]+)$")
_STEP_BYTES = 4 * 1024 * 1024
#: Records of one line that are worth being put together.
_MANY_RECORDS = 64
#: Files of an object store that are read at the same time.
_PARALLEL_READS = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileSum:
    """What a file is recognised by."""

    size: int
    crc32: int


FileSums = Mapping[str, FileSum]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Everything that is recorded about the files of one line."""

    sums: dict[str, FileSum] = field(default_factory=dict)
    #: Records that hold what was written to them, and records that do not.
    whole: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


# ---- computing


def sum_bytes(data: bytes) -> FileSum:
    """What a file with these bytes is recognised by."""
    return FileSum(len(data), crc32(data))


def sum_file(
    location: GraphLocation, name: str, on_bytes: Callable[[int], None] | None = None
) -> FileSum:
    """Read one file as a stream. `on_bytes` gets how many bytes came.

    Raises:
        StorageError: `NOT_FOUND` when there is no such file.
    """
    size = checksum = 0
    with translated(f"reading {name}"):
        for piece in _pieces(location, name):
            size += len(piece)
            checksum = crc32(piece, checksum)
            if on_bytes is not None:
                on_bytes(len(piece))
    return FileSum(size, checksum)


def sum_files(location: GraphLocation, names: Iterable[str]) -> dict[str, FileSum]:
    """The files with these names; those that are not there are left out."""
    wanted = list(names)
    if location.is_local or len(wanted) < 2:
        found = [_sum_if_there(location, name) for name in wanted]
    else:
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = list(pool.map(lambda name: _sum_if_there(location, name), wanted))
    return {name: item for name, item in zip(wanted, found, strict=True) if item is not None}


def _sum_if_there(location: GraphLocation, name: str) -> FileSum | None:
    try:
        return sum_file(location, name)
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            _log.info("no checksum of %s is recorded: %s", name, error)
        return None


def _pieces(location: GraphLocation, name: str) -> Iterator[bytes | memoryview]:
    if location.is_local:
        with (location.path / name).open("rb") as file:
            while piece := file.read(_STEP_BYTES):
                yield piece
        return
    stream = obstore.get(ObstoreObjects(location, durable=False)._backend, name)
    for buffer in stream.stream(min_chunk_size=_STEP_BYTES):
        yield memoryview(buffer)


# ---- travelling with the fragments that tasks write


def text_with_sums(body: Mapping[str, object], sums: FileSums) -> str:
    """What a task wrote as JSON, together with the checksums of its files. Lance passes over the member."""
    files = {name: [item.size, item.crc32] for name, item in sums.items()}
    return json.dumps({**body, _MEMBER: files})


def sums_in(texts: Iterable[str | None]) -> dict[str, FileSum]:
    """The checksums in the texts of several tasks."""
    found: dict[str, FileSum] = {}
    for text in texts:
        files = {} if text is None else json.loads(text).get(_MEMBER, {})
        found |= {name: FileSum(size, value) for name, (size, value) in files.items()}
    return found


# ---- recording


def record_name(version: int) -> str:
    """The record of a version, as a name below its line."""
    return f"{CHECKSUM_FOLDER}/{version}.json"


def record_sums(uri: str, version: int, sums: FileSums) -> None:
    """Write the record of a version of the line at an address. What fails is only told in the log."""
    try:
        _write(parse_location(uri), record_name(version), sums)
    except StorageError as error:
        _log.warning("the checksums of version %s of %s are not recorded: %s", version, uri, error)


def _write(location: GraphLocation, name: str, sums: FileSums) -> None:
    data = _encoded(sums, _identity(location, name))
    if location.is_local:
        with translated(f"writing {name}"):
            path = location.path / name
            draft = path.with_name(f".{path.name}")
            # A file of its own: one that lies there may share its bytes with a file outside of the graph.
            draft.unlink(missing_ok=True)
            try:
                file = draft.open("xb")
            except FileNotFoundError:
                path.parent.mkdir(exist_ok=True)
                file = draft.open("xb")
            with file:
                file.write(data)
            # A reader finds the whole record or none.
            os.replace(draft, path)
        return
    ObstoreObjects(location, durable=False).write(name, data)


def _identity(location: GraphLocation, name: str) -> str:
    """Which record it is: that of another line or version is as wrong as a damaged one. Holds wherever a graph lies."""
    match = _LINE.search(location.uri)
    return f"{match[0] if match else ''}/{name}"


def _encoded(sums: FileSums, identity: str) -> bytes:
    files = {name: [item.size, item.crc32] for name, item in sorted(sums.items())}
    content = {"format": _FORMAT, "of": identity, "files": files}
    body = json.dumps(content, separators=(",", ":"))
    # The last line is the checksum of the first: a record can be damaged too.
    return f"{body}\n{crc32(body.encode()):08x}\n".encode()


def _decoded(data: bytes, identity: str) -> dict[str, FileSum] | None:
    """The inverse of `_encoded`; None when it is not what was written."""
    body, _, rest = data.partition(b"\n")
    try:
        if rest != f"{crc32(body):08x}\n".encode():
            return None
        content = json.loads(body)
        if content["of"] != identity:
            return None
        files = content["files"]
        return {name: FileSum(int(size), int(value)) for name, (size, value) in files.items()}
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


# ---- reading and tidying


def recorded_sums(uri: str) -> Recorded:
    """What is recorded about the files of the line at an address."""
    location = parse_location(uri)
    objects = ObstoreObjects(location, durable=False)
    sums: dict[str, FileSum] = {}
    whole: list[str] = []
    damaged: list[str] = []
    for name in _record_names(location, objects):
        stored = objects.read(name)
        if stored is None:
            # It has just been put together with others.
            continue
        found = _decoded(stored.data, _identity(location, name))
        if found is None:
            damaged.append(name)
        else:
            whole.append(name)
            sums |= found
    return Recorded(sums=sums, whole=tuple(whole), damaged=tuple(damaged))


def replace_records(uri: str, sums: FileSums) -> None:
    """Make these checksums all that is recorded about the files of the line at an address.

    Raises:
        StorageError: they cannot be written; the records are as they were.
    """
    location = parse_location(uri)
    objects = ObstoreObjects(location, durable=False)
    names = _record_names(location, objects)
    newest = names[-1] if names else record_name(0)
    _write(location, newest, sums)
    delete_files(location, [name for name in names if name != newest])


def tidy_records(uri: str) -> None:
    """Put the records of a line into one, without files that are gone.

    Needs no lock: what is committed meanwhile has records of its own, and they stay. The new record is complete before
    an old one goes, so a process that dies on the way leaves at most too many.
    """
    location = parse_location(uri)
    objects = ObstoreObjects(location, durable=False)
    names = _record_names(location, objects)
    if len(names) < _MANY_RECORDS:
        return
    known = recorded_sums(uri)
    if known.damaged:
        # They stay as they are: `verify` tells about them.
        return
    present = {file.name for file in list_files(location, "")}
    kept = {
        name: item for name, item in known.sums.items() if name in present or name == REGISTRATION
    }
    _write(location, names[-1], kept)
    delete_files(location, names[:-1])


def _record_names(location: GraphLocation, objects: ObstoreObjects) -> list[str]:
    """The records of a line, the oldest first: what is recorded twice counts as it was recorded last."""
    if location.is_local and not location.path.is_dir():
        return []
    found = (f"{CHECKSUM_FOLDER}/{name}" for name in objects.names(CHECKSUM_FOLDER))
    return sorted((name for name in found if _version_of(name) >= 0), key=_version_of)


def _version_of(name: str) -> int:
    stem = Path(name).stem
    return int(stem) if stem.isdecimal() and name.endswith(".json") else -1


def check_sum(name: str, expected: FileSum, found: FileSum) -> None:
    """Compare what a file holds with what was recorded.

    Raises:
        DamageError: it holds something else.
    """
    if found.size != expected.size:
        reason = f"it has {found.size:,} bytes, and {expected.size:,} were written"
        raise DamageError(f"comparing {name}", reason)
    if found.crc32 != expected.crc32:
        raise DamageError(f"comparing {name}", "its bytes are not those that were written")
