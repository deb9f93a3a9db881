"""The files below a graph, with their ages: on disk and on S3 alike."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import obstore

from omnigraph.errors import OutsideRootError
from omnigraph.storage.boundary import inside, is_dataset_path, walk
from omnigraph.storage.failures import translated
from omnigraph.storage.file_names import is_deletable
from omnigraph.storage.objects import ObstoreObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.storage.location import GraphLocation

#: An object store deletes up to so many objects in one request.
_BULK = 1000
#: Lance counts backwards in names, so that the newest version is listed first.
_FIRST_VERSIONS = frozenset({f"{2**64 - 2}.manifest", "1.manifest"})
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
        for batch in obstore.list(ObstoreObjects(location, durable=False)._backend, folder):
            for meta in batch:
                yield StoredFile(
                    name=meta["path"],
                    size_bytes=meta["size"],
                    modified_s=meta["last_modified"].timestamp(),
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
            yield StoredFile(
                name=entry.path[start:], size_bytes=status.st_size, modified_s=status.st_mtime
            )


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
        backend = ObstoreObjects(location, durable=False)._backend
        prefixes = obstore.list_with_delimiter(backend, f"{folder}/")["common_prefixes"]
    return sorted(name.rstrip("/").rpartition("/")[2] for name in prefixes)


def list_dataset_folders(location: GraphLocation) -> list[str]:
    """Every directory that can be the dataset of a type, also one whose creation was never published."""
    paths = (f"{kind}/{name}" for kind in _KINDS for name in list_folders(location, kind))
    return [path for path in paths if is_dataset_path(path)]


def used_dataset(location: GraphLocation, folder: str) -> str | None:
    """A dataset below a folder that has more than its first version; looks at names only."""
    for file in list_files(location, folder):
        dataset, _, name = file.name.rpartition("/_versions/")
        if name.endswith(".manifest") and name not in _FIRST_VERSIONS:
            return dataset
    return None


def delete_files(location: GraphLocation, names: Iterable[str]) -> int:
    """Delete files of datasets, and folders that held nothing else; how many files there were to delete.

    A file that is gone already counts too: whoever removed it wanted the same.

    Raises:
        OutsideRootError: a name is not one that files of a dataset have, or leads through a link; nothing was deleted.
    """
    wanted = list(names)
    for name in wanted:
        if not is_deletable(name):
            raise OutsideRootError(
                name, "it does not have the name of a file that omnigraph deletes"
            )
    with translated(f"deleting files of {location}"):
        if location.is_local:
            _delete_local(location, wanted)
            return len(wanted)
        backend = ObstoreObjects(location, durable=False)._backend
        for start in range(0, len(wanted), _BULK):
            obstore.delete(backend, wanted[start : start + _BULK])
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
    """Remove a folder and those below it, as far as they hold nothing. Nobody may be about to write there."""
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
