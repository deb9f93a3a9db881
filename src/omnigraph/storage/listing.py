"""Files of a graph: their listing with ages, and the names that Lance gives them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

import obstore

from omnigraph.errors import OutsideRootError
from omnigraph.storage._failures import translated
from omnigraph.storage.location import (
    INIT_CLAIM,
    MANIFEST,
    RECLAIMED_MARK,
    RECORDED_ROOT,
    RECOVERIES,
    RECOVERY_FOLDER,
    SCHEMA_FILES,
    STAGING_FOLDER,
    STAGING_SUFFIX,
    GraphLocation,
    inside,
    is_dataset_path,
    walk,
)
from omnigraph.storage.objects import open_store

# ---- The names that Lance gives to the files of a dataset, and how its versions refer to them
#
# A fork refers to files of its base by the address of the base. All names are random, so they are compared without
# it: however the address is spelled, a file that a fork reads is recognised.


#: The file names of Lance below a dataset or a branch of it; the group is what a version refers to.
_SHAPES = (
    re.compile(r"(data/[^/.]+)(?:\.lance|/.+)"),
    re.compile(r"(_deletions/[^/.][^/]*\.(?:arrow|bin))"),
    re.compile(r"(_indices/[^/]+)/.+"),
    re.compile(r"(_transactions/[^/.][^/]*\.txn)"),
)
_ATTACHED = re.compile(r"(?:(.+)/)?_versions/([0-9]+)\.manifest")
_DETACHED = re.compile(r"_versions/d([0-9]+)\.manifest")
#: What a killed process leaves of a file that it was writing.
_TEMPORARY = re.compile(
    r"(?:data|_deletions|_transactions|_versions|_indices/[^/]+)/\.tmp[^/]*|_versions/[0-9]+\.manifest#[0-9]+"
)
#: Every file that Lance or this system puts into the folder of a dataset, or of a fork of it.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    rf"data/[0-9A-Za-z-]+(?:\.lance|/[0-9A-Za-z-]+\.blob)|_deletions/[0-9-]+\.(?:arrow|bin)"
    rf"|_indices/{_UUID}/[^/]+|_transactions/[0-9]+-{_UUID}\.txn"
    r"|_versions/(?:d?[0-9]+\.manifest|latest_version_hint\.json)|_refs/(?:branches|tags)/[^/]+\.json"
    rf"|_checksums/\.?[0-9]+\.json|_latest\.manifest|{RECLAIMED_MARK}|{_TEMPORARY.pattern}"
)
_CONTROL = "|".join(
    re.escape(name)
    for name in (*SCHEMA_FILES, *(f"{name}{STAGING_SUFFIX}" for name in SCHEMA_FILES), INIT_CLAIM, RECORDED_ROOT)
)
_UNFINISHED = re.compile(rf"(?:{_CONTROL}|{RECOVERY_FOLDER}/[0-9A-Z]{{26}}\.json)#[0-9]+")
#: Answers of tasks; a name that begins with a dot belongs to one that is being written.
_ANSWER = re.compile(rf"{STAGING_FOLDER}/[0-9A-Z]{{26}}/\.?[0-9a-z-]+\.arrow")
#: Files of datasets and of forks of them.
_DELETABLE = re.compile(
    rf"(?:(?:(?:nodes|edges)/[^/]+|{MANIFEST}|{re.escape(RECOVERIES)})/)?(?:tree/.+?/)?(?:{_OWN.pattern})"
)
_TREE = "tree/"
_U64_MAX = 2**64 - 1
#: Names from here on count backwards, so that the newest version is listed first.
_COUNTS_BACKWARDS = 2**63


def manifest_name(version: int) -> str:
    """The manifest of a version, as a name below its line.

    >>> manifest_name(7)
    '_versions/18446744073709551608.manifest'
    """
    return f"_versions/{_U64_MAX - version}.manifest"


def manifest_names(version: int) -> tuple[str, str]:
    """The manifest of a version as Lance names it now, and as earlier releases of it did."""
    return manifest_name(version), f"_versions/{version}.manifest"


def registration_name(fork: str) -> str:
    """The file by which a dataset knows one of its forks, as a name below the dataset.

    >>> registration_name("review/ada")
    '_refs/branches/review%2Fada.json'
    """
    return f"_refs/branches/{fork.replace('/', '%2F')}.json"


def is_deletable(name: str) -> bool:
    """Whether a file below the root has a name under which this system, or Lance for it, writes files of datasets.

    >>> is_deletable("nodes/da89d00e1b71df59/data/01af.lance"), is_deletable("nodes/da89d00e1b71df59/notes.txt")
    (True, False)
    """
    return _DELETABLE.fullmatch(name) is not None or _ANSWER.fullmatch(name) is not None or is_unfinished(name)


def is_unfinished(name: str) -> bool:
    """Whether a file below the root is what a killed process leaves of a control file.

    >>> is_unfinished("__schema_state.json#1"), is_unfinished("notes#1")
    (True, False)
    """
    return _UNFINISHED.fullmatch(name) is not None


def attached_version(name: str) -> tuple[str, int] | None:
    """The folder of the line and the version, when a file is the manifest of a version that is not detached.

    >>> attached_version("tree/draft/_versions/18446744073709551608.manifest")
    ('tree/draft', 7)
    """
    match = _ATTACHED.fullmatch(name)
    if match is None:
        return None
    number = int(match[2])
    return match[1] or "", _U64_MAX - number if number >= _COUNTS_BACKWARDS else number


def detached_version(name: str) -> int | None:
    """The number of a detached version, when a file below a line is its manifest."""
    match = _DETACHED.fullmatch(name)
    return None if match is None else int(match[1])


def line_folders(names: Iterable[str]) -> list[str]:
    """The folders of a dataset that hold versions: its own, and those of its forks."""
    found = (attached_version(name) for name in names)
    # The longest first: the name of one fork may continue that of another.
    return sorted({item[0] for item in found if item}, key=lambda it: (-len(it), it))


def line_folder(fork: str | None) -> str:
    """The folder of a line, relative to its dataset."""
    return "" if fork is None else f"{_TREE}{fork}"


def line_address(location: GraphLocation, path: str, folder: str) -> str:
    """The address of a dataset or of one of its forks, by its folder."""
    return location.child(f"{path}/{folder}" if folder else path)


def fork_of(folder: str) -> str | None:
    """The inverse of `line_folder`."""
    return folder.removeprefix(_TREE) if folder else None


def placed(name: str, folders: Iterable[str]) -> tuple[str, str] | None:
    """The folder that a file belongs to and its name there; None when no version could refer to it."""
    for folder in folders:
        start = f"{folder}/" if folder else ""
        inner = name.removeprefix(start)
        is_private = _TEMPORARY.fullmatch(inner) or _DETACHED.fullmatch(inner)
        if name.startswith(start) and (is_private or reference(inner) is not None):
            return folder, inner
    return None


def reference(name: str) -> str | None:
    """The name by which versions refer to a file; None when they never do."""
    if _TEMPORARY.fullmatch(name):
        return None
    matches = (shape.fullmatch(name) for shape in _SHAPES)
    return next((match[1] for match in matches if match), None)


# ---- The files below a graph, with their ages: on disk and on S3 alike


#: Objects that one request to an object store deletes at most.
_BULK = 1000
#: Where datasets of types lie.
_KINDS = ("edges", "nodes")
_SHARED = frozenset({"data", "_deletions", "_indices", "_transactions", "_versions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file: its name below the root of the graph, its size and when it was written last."""

    name: str
    size_bytes: int
    #: Seconds since the epoch.
    modified_s: float


def list_files(location: GraphLocation, folder: str) -> Iterator[StoredFile]:
    """All files in a folder and in the folders below it, in no particular order; a link is not a file.

    Raises:
        OutsideRootError: the folder leads out of the root, or through a link.
    """
    with translated(f"listing {folder or 'the graph'}"):
        if location.is_local:
            yield from _local_files(location, folder)
            return
        for batch in obstore.list(open_store(location), folder):
            for meta in batch:
                yield StoredFile(
                    name=meta["path"], size_bytes=meta["size"], modified_s=meta["last_modified"].timestamp()
                )


def _local_files(location: GraphLocation, folder: str) -> Iterator[StoredFile]:
    start = len(location.uri) + 1
    for entry in walk(location, folder):
        if entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Removed in this moment.
                continue
            yield StoredFile(name=entry.path[start:], size_bytes=status.st_size, modified_s=status.st_mtime)


def list_folders(location: GraphLocation, folder: str) -> list[str]:
    """The names of the folders directly in a folder, sorted; a link is not a folder."""
    with translated(f"listing {folder}"):
        if location.is_local:
            try:
                with os.scandir(inside(location, folder)) as entries:
                    found = [item.name for item in entries if item.is_dir(follow_symlinks=False)]
            except FileNotFoundError:
                return []
            return sorted(found)
        prefixes = obstore.list_with_delimiter(open_store(location), f"{folder}/")["common_prefixes"]
    return sorted(name.rstrip("/").rpartition("/")[2] for name in prefixes)


def list_dataset_folders(location: GraphLocation) -> list[str]:
    """Every directory that can be the dataset of a type, also one whose creation was never published."""
    paths = (f"{kind}/{name}" for kind in _KINDS for name in list_folders(location, kind))
    return [path for path in paths if is_dataset_path(path)]


def used_dataset(location: GraphLocation, folder: str) -> str | None:
    """A dataset below a folder that has more than its first version; looks at names only."""
    for file in list_files(location, folder):
        dataset, _, name = file.name.rpartition("/_versions/")
        if name.endswith(".manifest") and f"_versions/{name}" not in manifest_names(1):
            return dataset
    return None


def delete_files(location: GraphLocation, names: Iterable[str]) -> int:
    """Delete files of datasets, and folders that held nothing else; how many files there were to delete.

    A file that is gone already counts too.

    Raises:
        OutsideRootError: a name is not one that files of a dataset have, or leads through a link; nothing was deleted.
    """
    wanted = list(names)
    for name in wanted:
        if not is_deletable(name):
            raise OutsideRootError(name, "it does not have the name of a file that omnigraph deletes")
    with translated(f"deleting files of {location}"):
        if location.is_local:
            _delete_local(location, wanted)
            return len(wanted)
        store = open_store(location)
        for start in range(0, len(wanted), _BULK):
            obstore.delete(store, wanted[start : start + _BULK])
    return len(wanted)


def _delete_local(location: GraphLocation, names: list[str]) -> None:
    folders = set()
    for place in [inside(location, name) for name in names]:
        place.unlink(missing_ok=True)
    for name in names:
        folders.add(_own_folder(PurePosixPath(name)))
    for folder in folders - {None}:
        remove_empty_folders(location, str(folder))


def remove_empty_folders(location: GraphLocation, folder: str) -> None:
    """Remove a folder and those below it, as far as they hold nothing. No writer may be about to use it."""
    if location.is_local:
        for inner, _, _ in os.walk(inside(location, folder), topdown=False):
            with suppress(OSError):
                os.rmdir(inner)


def _own_folder(name: PurePosixPath) -> PurePosixPath | None:
    """The folder of one index or of the blobs of one file, to which nothing is ever added.

    Folders that all writers share are none: one of them could be about to create a file there.
    """
    shared = max((at for at, part in enumerate(name.parts) if part in _SHARED), default=None)
    if shared is None or shared + 2 >= len(name.parts):
        return None
    return PurePosixPath(*name.parts[: shared + 2])
