"""Files of a dataset that no version refers to: staged by a writer that never committed, or private to its run.

A file is a leftover when it has the name of a data, blob, deletion, index or transaction file and no version on any
branch refers to it, or when it is a detached manifest or a temporary file of Lance. Everything else is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.listing import (
    StoredFile,
    delete_files,
    detached_version,
    is_deletable,
    line_folders,
    list_files,
    placed,
    reference,
)

if TYPE_CHECKING:
    import lance

    from omnigraph.storage.location import GraphLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Files of one dataset, as names below the root of the graph."""

    path: str
    files: tuple[StoredFile, ...]

    @property
    def size_bytes(self) -> int:
        """How much room they take."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFiles:
    """The files of one dataset at one moment, as far as they could be leftovers."""

    path: str
    #: The folders of the dataset and of its branches, relative to it.
    folders: tuple[str, ...]
    #: With the name by which a version would refer to each; None when no version can.
    candidates: tuple[tuple[StoredFile, str | None], ...]
    #: Detached versions too young to be removed, by folder: their files may be in use.
    detached: tuple[tuple[str, int], ...]


def find_leftovers(
    location: GraphLocation,
    path: str,
    *,
    older_than_s: float | None = None,
    now_s: float | None = None,
) -> Leftovers:
    """The leftovers of a dataset and all its branches: one listing, and the manifest of every version.

    With `older_than_s` only those that were written longer ago. Without it all of them: then no writer may have staged
    files, so the caller holds the staging lock alone.

    Raises:
        StorageError: a version cannot be read, so that nothing is known to be unreferenced.
    """
    return unreferenced(location, list_dataset(location, path, older_than_s, now_s))


def list_dataset(
    location: GraphLocation, path: str, older_than_s: float | None, now_s: float | None = None
) -> DatasetFiles:
    """The files that could be leftovers, by name and age only."""
    limit = None
    if older_than_s is not None:
        limit = (time.time() if now_s is None else now_s) - older_than_s
    files = [(file.name[len(path) + 1 :], file) for file in list_files(location, path)]
    folders = line_folders(name for name, _ in files)
    candidates: list[tuple[StoredFile, str | None]] = []
    detached: list[tuple[str, int]] = []
    for name, file in files:
        place = placed(name, folders)
        if place is None or not is_deletable(file.name):
            continue
        folder, inner = place
        if limit is None or file.modified_s < limit:
            candidates.append((file, reference(inner)))
        elif (version := detached_version(inner)) is not None:
            detached.append((folder, version))
    return DatasetFiles(
        path=path,
        folders=tuple(folders),
        candidates=tuple(candidates),
        detached=tuple(detached),
    )


def unreferenced(location: GraphLocation, listed: DatasetFiles) -> Leftovers:
    """Those of the listed files that no version refers to now.

    Versions are read after the listing: a file that was staged before it and committed since is seen to be in use.
    """
    if not listed.candidates:
        return Leftovers(path=listed.path, files=())
    used: set[str] = set()
    with translated(f"reading the versions of {listed.path}"):
        for folder in listed.folders:
            used.update(_attached_references(location, listed.path, folder))
        for folder, version in listed.detached:
            used.update(detached_references(line_address(location, listed.path, folder), version))
    files = [file for file, name in listed.candidates if name not in used]
    # Detached manifests first: at no time does one name a file that is gone.
    files.sort(key=lambda file: ("/_versions/" not in file.name, file.name))
    return Leftovers(path=listed.path, files=tuple(files))


def remove_leftovers(location: GraphLocation, leftovers: Leftovers) -> int:
    """Remove what was found; how many files it was. Readers of any version notice nothing."""
    return delete_files(location, [file.name for file in leftovers.files])


def line_address(location: GraphLocation, path: str, folder: str) -> str:
    """The address of a dataset or of one of its forks, by its folder."""
    return location.child(f"{path}/{folder}" if folder else path)


def _attached_references(location: GraphLocation, path: str, folder: str) -> Iterator[str]:
    """What the versions of the main line or of a branch refer to."""
    uri = line_address(location, path, folder)
    # No shared session: its caches may know a dataset that was dropped and made again at the same address.
    dataset = open_dataset(uri, shared=False)
    for batch in dataset.tracked_files():
        yield from _stored_names(str(name) for name in batch["path"].to_pylist())
    if folder:
        # Lance lists the folders of indexes below the branch only, and so misses those that it has from its base.
        for version in dataset.versions():
            yield from index_references(open_dataset(uri, int(version["version"]), shared=False))


def detached_references(uri: str, version: int) -> Iterator[str]:
    """What one detached version refers to."""
    dataset = open_dataset(uri, version, shared=False)
    for fragment in dataset.get_fragments():
        yield from _stored_names(f"data/{file.path}" for file in fragment.metadata.files)
        if fragment.metadata.deletion_file is not None:
            yield fragment.metadata.deletion_file.path(fragment.fragment_id)
    yield from index_references(dataset)


def index_references(dataset: lance.LanceDataset) -> Iterator[str]:
    """The names by which a version refers to its indexes, wherever they lie."""
    for index in dataset.describe_indices():
        yield from (f"_indices/{segment.uuid}" for segment in index.segments)


def _stored_names(names: Iterable[str]) -> Iterator[str]:
    return (found for name in names if (found := reference(name)) is not None)
