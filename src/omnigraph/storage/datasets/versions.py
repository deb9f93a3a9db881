"""Versions and forks of a dataset, the files that they refer to, and what goes when some of them, or all, are removed.

An orphan is a file with the name of a data, blob, deletion, index or transaction file that no version on any line
refers to, a detached manifest, or a temporary file of Lance. Files with other names are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace

from lance import LanceDataset

from omnigraph.core.arrow import pa, pc
from omnigraph.errors import DriftError, OutsideRootError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.checksums import names_of, record_fork, tidy_records
from omnigraph.storage.datasets.opening import index_folders, open_dataset
from omnigraph.storage.datasets.tables import Table, branch_uri, dataset_exists
from omnigraph.storage.derived import remove_texts
from omnigraph.storage.location import (
    GraphLocation,
    attached_version,
    detached_version,
    fork_of,
    is_deletable,
    is_fork_name,
    line_address,
    line_folder,
    line_folders,
    placed,
    reference,
    refuse_links,
)
from omnigraph.storage.objects import StoredFile, delete_files, list_files, remove_empty_folders

# ---- What there is


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class DatasetListing:
    """All files of a dataset at one moment, and the versions among them."""

    path: str
    files: tuple[StoredFile, ...]
    lines: tuple[VersionLine, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def version_count(self) -> int:
        """How many versions all lines have together."""
        return sum(len(line.versions) for line in self.lines)

    def named(self) -> Iterator[tuple[str, StoredFile]]:
        """The files with their names below the dataset."""
        return ((file.name[len(self.path) + 1 :], file) for file in self.files)

    def placed(self) -> Iterator[tuple[str, str, StoredFile]]:
        """The files that a version can refer to, or that are private, with their line and their name below it."""
        folders = line_folders(name for name, _ in self.named())
        for name, file in self.named():
            place = placed(name, folders)
            if place is not None and is_deletable(file.name):
                yield *place, file


def list_dataset(location: GraphLocation, path: str, without: Collection[str | None] = ()) -> DatasetListing:
    """The files and versions of a dataset, by names only. Forks in `without` are left out, as if they were gone."""
    files = tuple(list_files(location, path))
    listing = DatasetListing(path=path, files=files, lines=())
    found: defaultdict[str | None, set[int]] = defaultdict(set)
    for name, _ in listing.named():
        version = attached_version(name)
        if version is not None and fork_of(version[0]) not in without:
            found[fork_of(version[0])].add(version[1])
    lines = [VersionLine(fork=fork, versions=frozenset(versions)) for fork, versions in found.items()]
    return replace(listing, lines=tuple(sorted(lines, key=lambda line: line.fork or "")))


def list_versions(location: GraphLocation, path: str, without: Collection[str | None] = ()) -> DatasetListing:
    """As `list_dataset`, with the versions that Lance itself refers to by branches and tags.

    Raises:
        StorageError: the dataset cannot be read.
    """
    listing = list_dataset(location, path, without)
    if all(line.fork is not None for line in listing.lines):
        return listing
    held: defaultdict[str | None, set[int]] = defaultdict(set)
    with translated(f"looking at the branches of {path}"):
        # No shared session: its caches may know a dataset that was dropped and made again at the same address.
        dataset = open_dataset(location.child(path), shared=False)
        for name, branch in dataset.branches.list().items():
            if name not in without:
                held[branch["parent_branch"]].add(int(branch["parent_version"]))
        for tag in dataset.tags.list().values():
            held[tag.get("branch")].add(int(tag["version"]))
    lines = (replace(line, held=frozenset(held[line.fork])) for line in listing.lines)
    return replace(listing, lines=tuple(lines))


def newest_since(listing: DatasetListing, since_s: float) -> dict[str | None, set[int]]:
    """Per line, the versions that were the newest at some time since a moment."""
    made: defaultdict[str | None, dict[int, float]] = defaultdict(dict)
    for name, file in listing.named():
        if (version := attached_version(name)) is not None:
            made[fork_of(version[0])][version[1]] = file.modified_s
    return {
        fork: {version for version, moment in moments.items() if moment > since_s}
        | {max((version for version, moment in moments.items() if moment <= since_s), default=0)}
        for fork, moments in made.items()
    }


# ---- Mark: what versions refer to


def _references(
    location: GraphLocation,
    listing: DatasetListing,
    leaving: Mapping[str | None, frozenset[int]],
    is_in_use: Callable[[StoredFile], bool] = lambda _: True,
) -> tuple[set[str], set[str]]:
    """What the versions that leave refer to, and what all others do, detached ones that are in use included.

    Versions are read after the listing, and detached ones first: what was staged before the listing and committed
    since is seen to be in use.
    """
    gone, kept = set[str](), set[str]()
    for folder, name, file in listing.placed():
        version = detached_version(name)
        if version is not None and is_in_use(file):
            kept |= _detached_references(location, listing.path, folder, version, file)
    with translated(f"reading the versions of {listing.path}"):
        for line in listing.lines:
            uri = line_address(location, listing.path, line_folder(line.fork))
            # No shared session: its caches may know a dataset that was dropped and made again at the same address.
            dataset = open_dataset(uri, shared=False)
            numbers = leaving.get(line.fork, frozenset())
            _tracked_references(dataset, numbers, gone, kept)
            if line.fork is not None:
                # Lance lists the indexes below the fork only, and so misses those that it has from its base.
                found = (int(item["version"]) for item in dataset.versions())
                for version in set(found) - numbers:
                    kept.update(index_folders(open_dataset(uri, version, shared=False)))
    return gone, kept


def _tracked_references(dataset: LanceDataset, leaving: frozenset[int], gone: set[str], kept: set[str]) -> None:
    wanted = pa.array(sorted(leaving), pa.int64())
    for batch in dataset.tracked_files():
        # In Arrow, and only distinct names in Python: every version repeats nearly all names of the one before.
        is_leaving = pc.is_in(pc.cast(batch["version"], pa.int64()), wanted)
        for mask, names in ((is_leaving, gone), (pc.invert(is_leaving), kept)):
            found = map(reference, pc.unique(pc.filter(batch["path"], mask)).to_pylist())
            names.update(name for name in found if name is not None)


def _detached_references(location: GraphLocation, path: str, folder: str, version: int, file: StoredFile) -> set[str]:
    """What a detached version refers to: a writer that works with one is still reading it."""
    try:
        with translated(f"reading a private version of {path}"):
            dataset = open_dataset(line_address(location, path, folder), version, shared=False)
            names = names_of(fragment.metadata for fragment in dataset.get_fragments())
            found = {reference(name) or name for name in names}
            return found.union(index_folders(dataset))
    except StorageError:
        if any(file.name == item.name for item in list_files(location, file.name.rpartition("/")[0])):
            raise
        # Its writer is done: what it committed is referred to by a version.
        return set()


# ---- Sweep: first the manifests of versions, so that they are gone for readers, then what only they held
#
# In this order a process that dies on the way leaves whole versions or none, and orphans. Lance's own removal works the
# other way round: a version whose files are missing would still open.


@frozen(kw_only=True)
class Removal:
    """Files of one dataset that are to go: those of old versions, orphans, or all of them."""

    path: str
    #: What makes versions readable. It goes first, under the commit lock.
    manifests: tuple[StoredFile, ...] = ()
    #: What nothing refers to without these manifests.
    files: tuple[StoredFile, ...] = ()
    versions: Mapping[str | None, frozenset[int]] = field(default_factory=dict)
    #: Whether the whole dataset goes.
    is_whole: bool = False

    @property
    def version_count(self) -> int:
        """How many versions go."""
        return sum(file.name.endswith(".manifest") for file in self.manifests)

    @property
    def every_file(self) -> tuple[StoredFile, ...]:
        """All that goes."""
        return self.manifests + self.files

    @property
    def size_bytes(self) -> int:
        """The size of all that goes."""
        return sum(file.size_bytes for file in self.every_file)


def plan_removal(
    location: GraphLocation, listing: DatasetListing, kept: Mapping[str | None, Collection[int]]
) -> Removal:
    """What goes when only some versions stay, beside the heads and those that Lance refers to.

    Raises:
        StorageError: a version cannot be read, so that nothing is known to be unused.
    """
    leaving = {
        line.fork: line.versions - set(kept.get(line.fork, ())) - line.held - {line.head} for line in listing.lines
    }
    leaving = {fork: versions for fork, versions in leaving.items() if versions}
    if not leaving:
        return Removal(path=listing.path)
    gone, used = _references(location, listing, leaving)
    unused = gone - used
    manifests = (
        file
        for name, file in listing.named()
        if (version := attached_version(name)) is not None and version[1] in leaving.get(fork_of(version[0]), ())
    )
    files = (file for _, name, file in listing.placed() if reference(name) in unused)
    return Removal(path=listing.path, versions=leaving, manifests=tuple(manifests), files=tuple(files))


def find_orphans(location: GraphLocation, listing: DatasetListing, written_before_s: float | None = None) -> Removal:
    """The orphans of a listed dataset and its forks, or only those that were written before a moment.

    Without a moment no writer may have staged files: the caller holds the staging lock alone.

    Raises:
        StorageError: a version cannot be read, so that nothing is known to be an orphan.
    """

    def is_young(file: StoredFile) -> bool:
        return written_before_s is not None and file.modified_s >= written_before_s

    found = [(name, file) for _, name, file in listing.placed() if not is_young(file)]
    if not found:
        return Removal(path=listing.path)
    _, used = _references(location, listing, {}, is_young)
    files = [file for name, file in found if reference(name) not in used]
    # Detached manifests first: at no time does one name a file that is gone.
    files.sort(key=lambda file: ("/_versions/" not in file.name, file.name))
    return Removal(path=listing.path, files=tuple(files))


def plan_drop(location: GraphLocation, path: str, keep: str | None = None) -> Removal:
    """What goes with a whole dataset, also with what is left of one; only the file `keep` stays.

    Whatever has the name of a file of a dataset goes, not only what a version refers to: the removal before may have
    been interrupted. Other files stay, and links are neither followed nor removed.
    """
    files = [file for file in list_files(location, path) if file.name != f"{path}/{keep}" and is_deletable(file.name)]
    return Removal(
        path=path,
        manifests=tuple(file for file in files if "/_versions/" in file.name),
        files=tuple(file for file in files if "/_versions/" not in file.name),
        is_whole=True,
    )


def remove_manifests(location: GraphLocation, removal: Removal) -> None:
    """The first half: the versions are gone. Must run under the commit lock."""
    delete_files(location, [file.name for file in removal.manifests])


def remove_files(location: GraphLocation, removal: Removal) -> None:
    """The second half: their files are gone too. Needs no lock: nothing refers to them any more."""
    delete_files(location, [file.name for file in removal.files])
    for fork in removal.versions:
        tidy_records(line_address(location, removal.path, line_folder(fork)))
    if removal.is_whole:
        with translated(f"removing {removal.path}"):
            remove_empty_folders(location, removal.path)


# ---- Forks: the Lance branches of a dataset, one for each branch of the graph that writes to its type


_QUERY_MARK = "?"


def refuse_forks(location: GraphLocation) -> None:
    """Make sure that a graph lies where Lance can have forks.

    Raises:
        StorageError: Lance would put them elsewhere.
    """
    if _QUERY_MARK in location.uri:
        # Lance reads it as the beginning of a query.
        raise StorageError(
            f"a graph at an address with `{_QUERY_MARK}` cannot have branches: rename its folder",
            StorageFailure.CONFIGURATION,
        )


def create_fork(
    location: GraphLocation, base: Table, branch: str, *, check_lock: Callable[[], None] = lambda: None
) -> Table:
    """A Lance branch of a dataset at the version of `base`; unreferenced until it is published.

    Must run under the commit lock: creating a branch is not safe against a second creator of the same name. An unused
    fork of the same base is taken as it is; what another attempt left under this name is removed first.

    `check_lock` raises when the lock is lost. It is asked after the look at what is there: a fork that a successor made
    and published must not be taken for what another attempt left.

    Raises:
        DriftError: the branch does not begin at the version of `base`.
    """
    uri = branch_uri(location.child(base.path), branch)
    refuse_forks(location)
    with translated(f"forking {base.path} as {branch}"):
        refuse_links(location, branch_uri(base.path, branch))
        refuse_links(location, f"{base.path}/_refs")
        root = open_dataset(location.child(base.path))
        if not _is_fork_of(root, branch, base):
            check_lock()
            _remove_fork(root, location, base.path, branch)
            origin = base.version if base.branch is None else (base.branch, base.version)
            root.create_branch(branch, origin)
        forked = open_dataset(uri)
    if forked.version != base.version:
        raise DriftError(f"{base.path} ({branch})", base.version, int(forked.version))
    record_fork(location, base, branch)
    return Table(forked, base.path, branch)


def list_forks(location: GraphLocation, path: str) -> list[str]:
    """The Lance branches of a dataset, sorted; those with a name that is not of our own making are left alone."""
    with translated(f"listing the forks of {path}"):
        return sorted(filter(is_fork_name, open_dataset(location.child(path)).branches.list()))


def remove_fork(location: GraphLocation, path: str, branch: str) -> None:
    """Remove a Lance branch that nothing refers to. Must run under the commit lock, with no writer staging into it."""
    with translated(f"removing the fork {branch} of {path}"):
        root = open_dataset(location.child(path))
        _remove_fork(root, location, path, branch)


def _is_fork_of(root: LanceDataset, branch: str, base: Table) -> bool:
    """Whether an unused fork of exactly this base exists: another writer of the same branch may be staging into it."""
    known = root.branches.list().get(branch)
    if known is None:
        return False
    origin = (known["parent_branch"], known["parent_version"])
    if origin != (base.branch, base.version):
        return False
    head = open_dataset(branch_uri(root.uri, branch))
    return int(head.version) == base.version


def _remove_fork(root: LanceDataset, location: GraphLocation, path: str, branch: str) -> None:
    if not is_fork_name(branch):
        raise OutsideRootError(branch_uri(path, branch), "it does not have the name of a fork")
    known = root.branches.list()
    if branch not in known and not dataset_exists(location, path, branch):
        return
    nested = [name for name in known if name.startswith(f"{branch}/")]
    if nested:
        # Its directory holds theirs, and goes as a whole.
        raise StorageError(
            f"the fork {branch} of {path} cannot be removed: {nested[0]} lies inside of it", StorageFailure.PRECONDITION
        )
    # Lance removes what it lists, and a listing of its own would follow links.
    refuse_links(location, branch_uri(path, branch))
    refuse_links(location, f"{path}/_refs")
    if branch in known:
        root.branches.delete(branch)
        return
    LanceDataset.drop(branch_uri(location.child(path), branch))


# ---- Destroying the past of a dataset, or all of it. Only for what the caller has asked to lose


def purge_old_versions(location: GraphLocation, path: str, published: int) -> None:
    """Remove every version before the published one, with the files that only they refer to. Repeatable.

    Forks go first: the branches that they belonged to are deleted.
    """
    # The longest first: the directory of one may hold that of another.
    for fork in sorted(list_forks(location, path), key=len, reverse=True):
        remove_fork(location, path, fork)
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
    """Remove a dataset with all of its versions and forks; see `plan_drop`."""
    remove_texts(location, path)
    removal = plan_drop(location, path, keep)
    # Versions first: what is half removed cannot be opened any more.
    remove_manifests(location, removal)
    remove_files(location, removal)
