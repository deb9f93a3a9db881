"""What a cleanup removes: every kind of thing that no reachable state needs, found without a lock.

| kind | found by | goes when |
|---|---|---|
| forks of deleted branches, or never published | no reachable state reads them | no reader and no writer, or by age |
| old versions of datasets | no reachable state, tag or fork needs them | asked again under the commit lock |
| whole datasets | no reachable state reads them | as versions; one that was never published by age beside writers |
| orphans: files that no version references | versions, read after files | the staging lock is held alone, or by age |
| answers of tasks of bulk operations | their names | as orphans, and no reader |
| derived arrays of datasets and forks that no head reads | the names of their groups | at once: they are built again |
| control files that were never finished, claims | their names | by age; no process holds the claim |
| rows and old versions of the manifest | `forgettable_rows`; all but the newest | under the commit lock |

`cleanup` removes them in this order and `doctor` reports them. A plan may be out of date when it is carried out:
what has to be kept is asked again under the commit lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from stat import S_ISREG

from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.leftovers import staged_max_age_s
from omnigraph.commit.sidecar import list_sidecars, read_sidecar
from omnigraph.commit.snapshot import History
from omnigraph.core.env_settings import Duration
from omnigraph.errors import StorageError
from omnigraph.frozen import frozen
from omnigraph.maintenance.retention import Line, Retained, RetentionPolicy, published_heads, reachable, type_keys
from omnigraph.storage.answers import abandoned_answers
from omnigraph.storage.datasets.versions import (
    DatasetListing,
    Removal,
    find_orphans,
    list_dataset,
    list_forks,
    list_versions,
    plan_drop,
    plan_removal,
)
from omnigraph.storage.derived import group_name, list_unused_groups, text_group_name
from omnigraph.storage.location import RECLAIMED_MARK, RECOVERY_FOLDER, inside, is_unfinished
from omnigraph.storage.objects import StoredFile, list_dataset_folders, list_files

#: The directory of a dataset and the name of one of its forks.
Fork = tuple[str, str]

READER_GRACE = Duration(
    "OMNIGRAPH_READER_GRACE",
    "1h",
    "The time for which cleanup keeps a state that was at the head of a branch, while the graph has readers.",
)
MICROSECONDS = 1_000_000
#: A control file is written in a moment: at this age no process is left that would finish a temporary name.
_TEMPORARY_MAX_AGE_S = 600.0


# ---- What has to be kept now


def reader_grace_us() -> int:
    """For how long a state stays after it was at the head of a branch, while a reader may be at it."""
    return int(READER_GRACE.read_s() * MICROSECONDS)


def is_busy(environment: GraphEnvironment) -> bool:
    """Whether old states may be in use: by a read, or by a writer that prepares its work."""
    with environment.staging.try_exclusive() as is_alone:
        return not is_alone or environment.reading.has_readers()


def retained_now(
    environment: GraphEnvironment, history: History, policy: RetentionPolicy, *, has_readers: bool
) -> Retained:
    """What has to be kept at this moment.

    Raises:
        RecoveryRequiredError: a sidecar cannot be read, so that it is unknown what recovery needs.
    """
    return reachable(
        history,
        policy,
        environment.clock(),
        reader_grace_us=reader_grace_us() if has_readers else None,
        named=_named_by_sidecars(environment),
    )


def _named_by_sidecars(environment: GraphEnvironment) -> Iterator[tuple[str, str | None, int]]:
    """Versions that interrupted writes name: recovery looks at them, and may return to them."""
    for name in list_sidecars(environment.objects):
        sidecar = read_sidecar(environment.objects, name)
        for table in () if sidecar is None else sidecar.tables:
            numbers = (table.expected_version, table.post_commit_pin, table.confirmed_version)
            for version in numbers:
                if version is not None:
                    yield table.table_path, table.table_branch, version


# ---- Datasets: old versions, or all of it


@frozen(kw_only=True)
class DatasetPlan:
    """What is to happen to one dataset."""

    path: str
    type_key: str
    #: None where an error is.
    removal: Removal | None = None
    versions_kept: int = 0
    #: Whether any commit ever showed it; else its creation was never published.
    is_known: bool = True
    error: str | None = None
    #: Whether the error is a HEAD that the manifest does not know: a writer may just have moved it.
    has_drift: bool = False

    @property
    def is_dropped(self) -> bool:
        """Whether the whole dataset goes."""
        return self.removal is not None and self.removal.is_whole

    def contradicts(self, retained: Retained) -> bool:
        """Whether something that is to go has to be kept meanwhile."""
        kept = retained.of(self.path)
        going = {} if self.removal is None else self.removal.versions
        return (self.is_dropped and bool(kept)) or any(
            not versions.isdisjoint(kept.get(fork, ())) for fork, versions in going.items()
        )


@frozen(kw_only=True)
class CleanupPlan:
    """What is to go, and what was kept for it."""

    history: History
    retained: Retained
    datasets: tuple[DatasetPlan, ...]
    has_readers: bool

    @property
    def has_failures(self) -> bool:
        """Whether a dataset could not be read."""
        return any(item.error is not None and not item.has_drift for item in self.datasets)


def plan_cleanup(
    environment: GraphEnvironment, policy: RetentionPolicy, gone_forks: Iterable[Fork] = ()
) -> CleanupPlan:
    """Which versions and datasets can go. Reads the manifest, and lists every dataset.

    Forks in `gone_forks` are left out, as if they were removed already.

    Raises:
        RecoveryRequiredError: a sidecar cannot be read, so that it is unknown what recovery needs.
    """
    has_readers = is_busy(environment)
    history = environment.manifest.history()
    retained = retained_now(environment, history, policy, has_readers=has_readers)
    names, heads = type_keys(history), published_heads(history)
    without = defaultdict[str, set[str | None]](set)
    for path, fork in gone_forks:
        without[path].add(fork)
    # Beside a writer that may be about to publish a dataset, only its age tells that it was forgotten.
    limit_s = environment.clock() / MICROSECONDS - staged_max_age_s()
    plans = []
    for path in sorted({*names, *list_dataset_folders(environment.location)}):
        plan = DatasetPlan(path=path, type_key=names.get(path, path), is_known=path in names)
        plan = _plan_dataset(environment, plan, retained, heads, without[path])
        files = () if plan.removal is None else plan.removal.every_file
        if plan.is_known or not has_readers or all(file.modified_s < limit_s for file in files):
            plans.append(plan)
    return CleanupPlan(history=history, retained=retained, datasets=tuple(plans), has_readers=has_readers)


def _plan_dataset(
    environment: GraphEnvironment,
    plan: DatasetPlan,
    retained: Retained,
    heads: Mapping[Line, int],
    without: Collection[str | None],
) -> DatasetPlan:
    location, kept = environment.location, retained.of(plan.path)
    try:
        if not kept:
            # The mark of a dataset that is gone stays as long as the history knows it.
            mark = RECLAIMED_MARK if plan.is_known else None
            return replace(plan, removal=plan_drop(location, plan.path, mark))
        listing = list_versions(location, plan.path, without)
        count = listing.version_count
        if (drift := find_drift(listing, heads, retained)) is not None:
            return replace(plan, versions_kept=count, error=drift, has_drift=True)
        removal = plan_removal(location, listing, kept)
    except StorageError as error:
        return replace(plan, error=error.message)
    return replace(plan, removal=removal, versions_kept=count - removal.version_count)


def find_drift(listing: DatasetListing, published: Mapping[Line, int], retained: Retained) -> str | None:
    """What is wrong with the HEADs of a dataset, if one is past everything that was published."""
    named = retained.of(listing.path)
    for line in listing.lines:
        known = published.get((listing.path, line.fork))
        if known is not None and line.head > known and line.head not in named.get(line.fork, ()):
            where = "" if line.fork is None else f" of the fork {line.fork}"
            return (
                f"HEAD{where} is at version {line.head}, and the manifest knows version {known}: "
                "look with `omnigraph repair` first"
            )
    return None


# ---- Forks, and what dead writers left


def find_unused_forks(
    environment: GraphEnvironment, policy: RetentionPolicy, older_than_s: float | None = None
) -> dict[Fork, int]:
    """Forks that no reachable state reads, with their sizes; with an age only those that were not written to since."""
    lines = environment.manifest.state().lines()
    beside = [
        (path, fork)
        for path in sorted({path for path, _ in lines})
        for fork in list_forks(environment.location, path)
        if (path, fork) not in lines
    ]
    if not beside:
        return {}
    needed = reachable(environment.manifest.history(), policy, environment.clock()).versions
    unused = [item for item in beside if item not in needed]
    return with_sizes(environment, unused, older_than_s)


def with_sizes(environment: GraphEnvironment, forks: Iterable[Fork], older_than_s: float | None) -> dict[Fork, int]:
    """Forks with their sizes; with an age only those that were not written to since."""
    found: dict[Fork, int] = {}
    limit_s = environment.clock() / MICROSECONDS - (older_than_s or 0.0)
    for path, fork in forks:
        files = list(list_files(environment.location, f"{path}/tree/{fork}"))
        if older_than_s is None or all(file.modified_s < limit_s for file in files):
            found[path, fork] = sum(file.size_bytes for file in files)
    return found


def find_leftovers(
    environment: GraphEnvironment, paths: Iterable[str], older_than_s: float | None
) -> tuple[frozenset[Fork], frozenset[StoredFile]]:
    """Forks of no branch, and the orphans and answers outside of them; with an age only those that are older.

    Raises:
        StorageError: a dataset cannot be read.
    """
    location, limit_s = environment.location, None
    if older_than_s is not None:
        limit_s = environment.clock() / MICROSECONDS - older_than_s
    files = abandoned_answers(location, limit_s)
    for path in paths:
        files += find_orphans(location, list_dataset(location, path), limit_s).files
    forks = find_unused_forks(environment, RetentionPolicy(), older_than_s)
    # What lies in a fork of no branch goes with it.
    folders = tuple(f"{path}/tree/{fork}/" for path, fork in forks)
    return frozenset(forks), frozenset(it for it in files if not it.name.startswith(folders))


# ---- Beside the datasets


def find_unused_groups(environment: GraphEnvironment, history: History) -> list[str]:
    """Groups of derived arrays that belong to nothing that a branch reads."""
    used = {
        name(pin.location, pin.branch)
        for head in history.heads
        for pin in head.pins.values()
        for name in (group_name, text_group_name)
    }
    return list_unused_groups(environment.location, used)


def find_unfinished(environment: GraphEnvironment) -> list[StoredFile]:
    """Control files under temporary names. Local graphs only: an object appears with one request."""
    root = environment.location.path
    limit_s = environment.clock() / MICROSECONDS - _TEMPORARY_MAX_AGE_S
    found = []
    folder = inside(environment.location, RECOVERY_FOLDER)
    for path in (*root.glob("*#*"), *folder.glob("*#*")):
        try:
            status = path.lstat()
        except FileNotFoundError:
            # Its writer has just given it its real name.
            continue
        name = path.relative_to(root).as_posix()
        if is_unfinished(name) and S_ISREG(status.st_mode) and status.st_mtime < limit_s:
            file = StoredFile(name=name, size_bytes=status.st_size, modified_s=status.st_mtime)
            found.append(file)
    return found
