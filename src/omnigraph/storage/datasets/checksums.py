"""Checksums of files: recorded with each commit, compared by `verify`."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from zlib import crc32

import obstore
from lance import LanceDataset, LanceOperation
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import DamageError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.tables import Table, branch_uri
from omnigraph.storage.location import GraphLocation, manifest_name, parse_location, registration_name
from omnigraph.storage.objects import ControlObjects, delete_files, list_files, open_store

# ---- Checksums of the files of a dataset: recorded by whatever writes them, compared by `verify`
#
# Files of a dataset never change once they are committed. Each commit therefore leaves one small record beside the
# versions of its line, `_checksums/<version>.json`, with the size and the CRC-32 of every file that the commit
# brought: data, deletion marks, blobs, indexes, the manifest and the transaction. Names are relative to the line, so
# that a copy or a move of the graph keeps them valid. Files of earlier releases have no record, and a record that
# cannot be written fails nothing: it only leaves less to compare. Records are therefore not flushed to disk; after a
# power cut the newest may be missing or empty, and `verify --record` makes them again.


CHECKSUM_FOLDER = "_checksums"
#: The name by which a fork records its registration, a file of the dataset above it.
REGISTRATION = "_refs"
_FORMAT = 1
_MEMBER = "checksums"
#: The end of the address of a line, from the root of its graph on.
_LINE = re.compile(r"(?:(?:nodes|edges)/[^/]+(?:/tree/.+)?|_[^/]+)$")
_STEP_BYTES = 4 * 1024 * 1024
#: Records of one line from which they are put together.
_MANY_RECORDS = 64
#: Files of an object store that are read at the same time.
_PARALLEL_READS = 8

_log = logging.getLogger(__name__)


@frozen
class FileSum:
    """What a file is recognised by."""

    size: int
    crc32: int


FileSums = Mapping[str, FileSum]


@frozen(kw_only=True)
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


def sum_file(location: GraphLocation, name: str, on_bytes: Callable[[int], None] | None = None) -> FileSum:
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
    for buffer in obstore.get(open_store(location), name).stream(min_chunk_size=_STEP_BYTES):
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
    """Write the record of a version of the line at an address. A failure is only logged."""
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
    ControlObjects(location, durable=False).write(name, data)


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
    objects = ControlObjects(location, durable=False)
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
    objects = ControlObjects(location, durable=False)
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
    objects = ControlObjects(location, durable=False)
    names = _record_names(location, objects)
    if len(names) < _MANY_RECORDS:
        return
    known = recorded_sums(uri)
    if known.damaged:
        # They stay as they are: `verify` tells about them.
        return
    present = {file.name for file in list_files(location, "")}
    kept = {name: item for name, item in known.sums.items() if name in present or name == REGISTRATION}
    _write(location, names[-1], kept)
    delete_files(location, names[:-1])


def _record_names(location: GraphLocation, objects: ControlObjects) -> list[str]:
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


# ---- The files that a commit brings to a dataset: their names, their checksums, and the record of both


#: Bytes that recovery reads in order to record their checksums.
_RECOVERED_BYTES = 64 * 1024 * 1024


def names_of(fragments: Iterable[FragmentMetadata]) -> Iterator[str]:
    """The data and deletion files of fragments, as names in their dataset."""
    for fragment in fragments:
        for file in fragment.files:
            yield f"data/{file.path}"
        if fragment.deletion_file is not None:
            yield fragment.deletion_file.path(fragment.id)


def present_files(table: Table) -> list[str]:
    """The data and deletion files of a table, as names in its dataset."""
    return list(names_of(fragment.metadata for fragment in table.fragments()))


def changed_fragments(operation: object) -> tuple[FragmentMetadata, ...]:
    """The fragments that an operation brings or changes."""
    return (*new_fragments(operation), *(getattr(operation, "updated_fragments", None) or ()))


def new_fragments(operation: object) -> Iterable[FragmentMetadata]:
    """The fragments that an operation brings, as far as it tells them from those that it changes."""
    for attribute in ("fragments", "new_fragments"):
        yield from getattr(operation, attribute, None) or ()
    for group in getattr(operation, "groups", None) or ():
        yield from group.new_fragments


def transaction_name(transaction: Transaction) -> str:
    """The file of a transaction, as a name below its line."""
    return f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"


# ---- before a commit


def file_sums(table: Table, operations: Iterable[object], known: FileSums) -> FileSums:
    """The checksums of all files that operations bring to a table. Reads those that are not known yet."""
    location = parse_location(table._dataset.uri)
    with translated(f"computing checksums of {table.path}"):
        names = {name for operation in operations for name in written_files(table, location, operation)}
    missing = sorted(names - known.keys())
    kept = {name: item for name, item in known.items() if name in names}
    return kept | sum_files(location, missing)


def written_files(table: Table, location: GraphLocation, operation: object) -> Iterator[str]:
    """The files that an operation brings to a table, as names below its line."""
    is_merge = isinstance(operation, LanceOperation.Merge)
    for fragment in new_fragments(operation):
        # A change of columns lists every fragment, with files that the present version reads as well.
        yield from added_names(table, location, fragment, knows_it=is_merge)
    for fragment in getattr(operation, "updated_fragments", None) or ():
        yield from added_names(table, location, fragment, knows_it=True)
    for index in getattr(operation, "new_indices", None) or ():
        yield from (file.name for file in list_files(location, f"_indices/{index.uuid}"))


def added_names(table: Table, location: GraphLocation, fragment: FragmentMetadata, *, knows_it: bool) -> Iterator[str]:
    """The files of a fragment that the table does not have yet; `knows_it` says that it has some of them."""
    present = table._dataset.get_fragment(fragment.id) if knows_it else None
    known = set() if present is None else set(names_of([present.metadata]))
    for name in names_of([fragment]):
        if name not in known:
            yield name
            if name.endswith(".lance") and (location.is_local or table.blob_columns):
                # Large blobs of a data file lie in a folder beside it.
                folder = name.removesuffix(".lance")
                yield from (file.name for file in list_files(location, folder))


# ---- after it


def record_commit(made: LanceDataset, before: int, transactions: Iterable[Transaction], sums: FileSums) -> None:
    """Record the files of a commit: what was staged, and the manifests and transactions that committed it."""
    uri, version = str(made.uri), int(made.version)
    names = [transaction_name(item) for item in transactions]
    names += [manifest_name(number) for number in range(before + 1, version + 1)]
    record_sums(uri, version, {**sums, **sum_files(parse_location(uri), names)})


def record_fork(location: GraphLocation, base: Table, branch: str) -> None:
    """Record the files of a fork that was just made, and how its dataset knows it."""
    uri = branch_uri(location.child(base.path), branch)
    line = parse_location(uri)
    names = [file.name for file in list_files(line, "_transactions")]
    sums = sum_files(line, [manifest_name(base.version), *names])
    registered = registration_name(branch)
    above = sum_files(parse_location(location.child(base.path)), [registered])
    if registered in above:
        sums[REGISTRATION] = above[registered]
    record_sums(uri, base.version, sums)


def record_recovered(table: Table, before: int) -> None:
    """Record the files of versions whose writer died before it could: what they hold now is all that is known.

    A large write stays without a record: recovery holds the commit lock and must not read for long.
    """
    uri = str(table._dataset.uri)
    location = parse_location(uri)
    objects = ControlObjects(location, durable=False)
    try:
        with translated(f"recording the files of {table.path}"):
            if objects.read(record_name(table.version)) is not None:
                return
            base = open_dataset(uri, before)
            known = {item.fragment_id: item.metadata for item in base.get_fragments()}
            fragments = [item.metadata for item in table._dataset.get_fragments()]
            changed = [item for item in fragments if _is_changed(item, known.get(item.id))]
            sizes = (file.file_size_bytes or 0 for item in changed for file in item.files)
            if sum(sizes) > _RECOVERED_BYTES:
                return
            old = set(names_of(known.values()))
            names = {name for name in names_of(changed) if name not in old}
            versions = range(before + 1, table.version + 1)
            names |= {manifest_name(number) for number in versions}
            below = {f"_transactions/{number - 1}-" for number in versions}
            names |= {
                f"_transactions/{name}"
                for name in objects.names("_transactions")
                if f"_transactions/{name.partition('-')[0]}-" in below
            }
        record_sums(uri, table.version, sum_files(location, names))
    except StorageError as error:
        _log.warning("the files of %s have no checksums: %s", table.path, error)


def _is_changed(fragment: FragmentMetadata, known: FragmentMetadata | None) -> bool:
    return known is None or set(names_of([fragment])) != set(names_of([known]))
