"""Removal of versions and of whole datasets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.core.arrow import pa, pc
from omnigraph.errors import StorageError
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.checksums import tidy_records
from omnigraph.storage.datasets.forks import list_forks, remove_fork
from omnigraph.storage.datasets.leftovers import detached_references, index_references, line_address
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.derived import remove_texts
from omnigraph.storage.listing import (
    StoredFile,
    attached_version,
    delete_files,
    detached_version,
    fork_of,
    is_deletable,
    line_folder,
    line_folders,
    list_files,
    placed,
    reference,
    remove_empty_folders,
)
from omnigraph.storage.location import GraphLocation, refuse_links

# ---- Removing versions of a dataset: first their manifests, so that they are gone for readers, then what only
#      they held
#
# In this order a process that dies on the way leaves whole versions or none, and files that the search for leftovers
# finds. Lance's own removal works the other way round: a version whose files are missing would still open.


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """The versions of the main line of a dataset, or of one of its forks."""

    #: None is the main line.
    fork: str | None
    versions: frozenset[int]
    #: Versions at which forks begin, or that have a tag: Lance itself refers to them.
    held: frozenset[int] = frozenset()

    @property
    def head(self) -> int:
        """The newest version."""
        return max(self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetListing:
    """All files of a dataset at one moment, and the versions among them."""

    path: str
    files: tuple[StoredFile, ...]
    lines: tuple[VersionLine, ...]

    @property
    def size_bytes(self) -> int:
        """How much room the dataset takes."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRemoval:
    """Versions of one dataset that are to go, with every file that only they refer to."""

    path: str
    versions: Mapping[str | None, frozenset[int]]
    manifests: tuple[StoredFile, ...]
    files: tuple[StoredFile, ...]

    @property
    def version_count(self) -> int:
        """How many versions go."""
        return sum(len(versions) for versions in self.versions.values())

    @property
    def size_bytes(self) -> int:
        """How much room it gives back."""
        return sum(file.size_bytes for file in (*self.manifests, *self.files))


def list_versions(
    location: GraphLocation, path: str, without: Collection[str | None] = ()
) -> DatasetListing:
    """The files and versions of a dataset: one listing, and one look at its branches and tags.

    Forks in `without` are left out, as if they were gone.

    Raises:
        StorageError: the dataset cannot be read.
    """
    files = tuple(list_files(location, path))
    found: defaultdict[str, set[int]] = defaultdict(set)
    for name in _names(path, files):
        version = attached_version(name)
        if version is not None and fork_of(version[0]) not in without:
            found[version[0]].add(version[1])
    held = _held(location, path, without) if "" in found else {}
    lines = [
        VersionLine(
            fork=fork_of(folder),
            versions=frozenset(versions),
            held=frozenset(held.get(fork_of(folder), ())),
        )
        for folder, versions in sorted(found.items())
    ]
    return DatasetListing(path=path, files=files, lines=tuple(lines))


def _held(
    location: GraphLocation, path: str, without: Collection[str | None]
) -> dict[str | None, set[int]]:
    """Versions that Lance refers to by itself, per line."""
    held: defaultdict[str | None, set[int]] = defaultdict(set)
    with translated(f"looking at the branches of {path}"):
        # No shared session: its caches may know a dataset that was dropped and made again at the same address.
        dataset = open_dataset(location.child(path), shared=False)
        branches: Iterable[tuple[str, Any]] = dataset.branches.list().items()
        for name, branch in branches:
            if name not in without:
                held[branch["parent_branch"]].add(int(branch["parent_version"]))
        tags: Iterable[Any] = dataset.tags.list().values()
        for tag in tags:
            held[tag.get("branch")].add(int(tag["version"]))
    return held


def old_versions(
    listing: DatasetListing, since_s: float | None
) -> dict[str | None, frozenset[int]]:
    """All versions but those that were the newest at some time since a moment; None is now."""
    found: dict[str | None, frozenset[int]] = {}
    for line in listing.lines:
        kept = {line.head}
        if since_s is not None:
            kept |= _newest_since(listing, line, since_s)
        found[line.fork] = line.versions - kept - line.held
    return found


def _newest_since(listing: DatasetListing, line: VersionLine, since_s: float) -> set[int]:
    made: dict[int, float] = {}
    for name, file in zip(_names(listing.path, listing.files), listing.files, strict=True):
        version = attached_version(name)
        if version is not None and fork_of(version[0]) == line.fork:
            made[version[1]] = file.modified_s
    before = [version for version, moment in made.items() if moment <= since_s]
    return {version for version, moment in made.items() if moment > since_s} | {
        max(before, default=line.head)
    }


def plan_removal(
    location: GraphLocation,
    listing: DatasetListing,
    versions: Mapping[str | None, Collection[int]],
) -> VersionRemoval:
    """What goes when some versions go: their manifests, and the files that no other version refers to.

    Raises:
        StorageError: a version cannot be read, so that nothing is known to be unused.
    """
    wanted = {fork: frozenset(some) for fork, some in versions.items() if some}
    if not wanted:
        return VersionRemoval(path=listing.path, versions={}, manifests=(), files=())
    going, staying = set[str](), set[str]()
    folders = line_folders(_names(listing.path, listing.files))
    with translated(f"reading the versions of {listing.path}"):
        for line in listing.lines:
            uri = line_address(location, listing.path, line_folder(line.fork))
            leaving = wanted.get(line.fork, frozenset())
            gone, kept = _references(uri, leaving)
            going |= gone
            staying |= kept
            if line.fork is not None:
                # Lance lists the indexes below the fork only, and so misses those that it has from its base.
                for version in line.versions - leaving:
                    staying.update(index_references(open_dataset(uri, version, shared=False)))
        staying.update(_privately_used(location, listing, folders))
    going -= staying
    manifests: list[StoredFile] = []
    files: list[StoredFile] = []
    for name, file in zip(_names(listing.path, listing.files), listing.files, strict=True):
        attached = attached_version(name)
        if attached is not None and attached[1] in wanted.get(fork_of(attached[0]), ()):
            manifests.append(file)
        place = placed(name, folders)
        if place is not None and reference(place[1]) in going and is_deletable(file.name):
            files.append(file)
    return VersionRemoval(
        path=listing.path, versions=wanted, manifests=tuple(manifests), files=tuple(files)
    )


def remove_versions(location: GraphLocation, removal: VersionRemoval) -> None:
    """The first half: the versions are gone. Must run under the commit lock."""
    delete_files(location, [file.name for file in removal.manifests])


def remove_version_files(location: GraphLocation, removal: VersionRemoval) -> None:
    """The second half: their files are gone too. Needs no lock: nothing refers to them any more."""
    delete_files(location, [file.name for file in removal.files])
    for fork in removal.versions:
        tidy_records(line_address(location, removal.path, line_folder(fork)))


def _references(uri: str, leaving: frozenset[int]) -> tuple[set[str], set[str]]:
    """What the versions that leave refer to, and what those that stay do."""
    gone, kept = set[str](), set[str]()
    wanted = pa.array(sorted(leaving), pa.int64())
    for batch in open_dataset(uri, shared=False).tracked_files():
        # In Arrow, and only distinct names in Python: every version repeats nearly all names of the one before.
        numbers = pc.cast(batch["version"], pa.int64())
        is_leaving = pc.is_in(numbers, wanted)
        for mask, names in ((is_leaving, gone), (pc.invert(is_leaving), kept)):
            for name in pc.unique(pc.filter(batch["path"], mask)).to_pylist():
                if (found := reference(name)) is not None:
                    names.add(found)
    return gone, kept


def _privately_used(
    location: GraphLocation, listing: DatasetListing, folders: list[str]
) -> Iterator[str]:
    """What detached versions refer to: a writer that works with one is still reading it."""
    for name in _names(listing.path, listing.files):
        place = placed(name, folders)
        if place is not None and (version := detached_version(place[1])) is not None:
            uri = line_address(location, listing.path, place[0])
            try:
                with translated(f"reading a private version of {listing.path}"):
                    yield from detached_references(uri, version)
            except StorageError:
                # Its writer is done: what it read is not needed any more, what it wrote is young.
                if _is_there(location, f"{listing.path}/{name}"):
                    raise


def _is_there(location: GraphLocation, name: str) -> bool:
    folder, _, _ = name.rpartition("/")
    return any(file.name == name for file in list_files(location, folder))


def _names(path: str, files: Iterable[StoredFile]) -> Iterator[str]:
    """File names as they are below the dataset."""
    return (file.name[len(path) + 1 :] for file in files)


# ---- Destroying the past of a dataset, or all of it. Only for what the caller has asked to lose


def purge_old_versions(location: GraphLocation, path: str, published: int) -> None:
    """Remove every version before the published one, with the files that only they refer to. Repeatable.

    Forks go first: they are what branches left that are deleted by now.
    """
    _remove_forks(location, path)
    remove_texts(location, path)
    with translated(f"removing old versions of {path}"):
        # No shared session: what it remembers of removed versions would be found again.
        dataset = open_dataset(location.child(path), shared=False)
        old = [int(item["version"]) for item in dataset.versions()]
        old = [number for number in old if number < published]
        if old:
            # Lance removes what it lists, and a listing of its own would follow links.
            refuse_links(location, path)
            dataset.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)


def drop_table(location: GraphLocation, path: str, *, keep: str | None = None) -> None:
    """Remove a dataset with all of its versions and forks, also what is left of one; only the file `keep` stays.

    Whatever has the name of a file of a dataset goes, not only what a version refers to: the removal before may have
    been interrupted. Other files stay, and links are neither followed nor removed.
    """
    remove_texts(location, path)
    names = [
        file.name
        for file in list_files(location, path)
        if file.name != f"{path}/{keep}" and is_deletable(file.name)
    ]
    # Versions first: what is half removed cannot be opened any more.
    delete_files(location, sorted(names, key=lambda name: "/_versions/" not in name))
    with translated(f"removing {path}"):
        remove_empty_folders(location, path)


def _remove_forks(location: GraphLocation, path: str) -> None:
    left = list_forks(location, path)
    # The longest first: the directory of one may hold that of another.
    for fork in sorted(left, key=len, reverse=True):
        remove_fork(location, path, fork)
