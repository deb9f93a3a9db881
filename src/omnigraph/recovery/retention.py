"""Which versions of which datasets go: facts from catalog and storage, put together with a policy.

Nothing is removed here. A plan is made without any lock; whoever carries it out asks again, under the commit lock, what
has to be kept by then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.environ import duration_s
from omnigraph.errors import StorageError
from omnigraph.manifest.retention import plan_retention
from omnigraph.recovery.reclaim import staged_max_age_s
from omnigraph.recovery.sidecar import list_sidecars, read_sidecar
from omnigraph.storage.file_names import is_deletable
from omnigraph.storage.listing import list_dataset_folders, list_files
from omnigraph.storage.location import RECLAIMED_MARK
from omnigraph.storage.retention import list_versions, plan_removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from omnigraph.manifest.retention import Retained, RetentionPolicy
    from omnigraph.manifest.snapshot import History
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.listing import StoredFile
    from omnigraph.storage.retention import DatasetListing, VersionRemoval

READER_GRACE = "OMNIGRAPH_READER_GRACE"
_DEFAULT_READER_GRACE = "1h"
_MICROSECONDS = 1_000_000

Line = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """What is to happen to one dataset."""

    path: str
    type_key: str
    listing: DatasetListing | None = None
    removal: VersionRemoval | None = None
    #: Every file, when no snapshot that stays reads the dataset.
    dropped_files: tuple[StoredFile, ...] | None = None
    #: Whether any commit ever showed it; else its creation was never published.
    is_known: bool = True
    error: str | None = None
    #: Whether the error is a HEAD that the catalog does not know: a writer may just have moved it.
    has_drift: bool = False

    def is_older_than(self, limit_s: float) -> bool:
        """Whether every file of a dataset that is to go was written before a moment."""
        return all(file.modified_s < limit_s for file in self.dropped_files or ())

    @property
    def versions_kept(self) -> int:
        """How many versions stay."""
        if self.listing is None or self.dropped_files is not None:
            return 0
        going = 0 if self.removal is None else self.removal.version_count
        return sum(len(line.versions) for line in self.listing.lines) - going


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def contradicts(self, retained: Retained) -> bool:
        """Whether something that is to go has to be kept by now."""
        for item in self.datasets:
            if item.dropped_files is not None and any(
                path == item.path for path, _ in retained.versions
            ):
                return True
            going = {} if item.removal is None else item.removal.versions
            for fork, versions in going.items():
                if not versions.isdisjoint(retained.versions.get((item.path, fork), ())):
                    return True
        return False


def reader_grace_us() -> int:
    """For how long a state stays after it was at the head of a branch, while somebody may read it."""
    return int(duration_s(READER_GRACE, _DEFAULT_READER_GRACE) * _MICROSECONDS)


def is_busy(environment: GraphEnvironment) -> bool:
    """Whether somebody may be reading old states: a read, or a writer that prepares its work."""
    with environment.staging.try_exclusive() as is_alone:
        return not is_alone or environment.reading.has_readers()


def retained_now(
    environment: GraphEnvironment, history: History, policy: RetentionPolicy, *, has_readers: bool
) -> Retained:
    """What has to be kept at this moment."""
    return plan_retention(
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


def plan_cleanup(
    environment: GraphEnvironment,
    policy: RetentionPolicy,
    gone_forks: Collection[tuple[str, str]] = (),
) -> CleanupPlan:
    """What can go. Reads the catalog, and lists every dataset.

    Forks in `gone_forks` are left out, as if they were removed already.

    Raises:
        RecoveryRequiredError: a sidecar cannot be read, so that nobody knows what recovery needs.
    """
    has_readers = is_busy(environment)
    history = environment.manifest.history()
    retained = retained_now(environment, history, policy, has_readers=has_readers)
    names = type_keys(history)
    paths = sorted({*names, *list_dataset_folders(environment.location)})
    without = defaultdict[str, set[str | None]](set)
    for path, fork in gone_forks:
        without[path].add(fork)
    planner = _Planner(environment, retained, published_heads(history), without)
    plans = [planner.plan(path, names.get(path)) for path in paths]
    if has_readers:
        # A writer may be about to publish it: only its age tells that it was forgotten.
        limit_s = environment.clock() / _MICROSECONDS - staged_max_age_s()
        plans = [item for item in plans if item.is_known or item.is_older_than(limit_s)]
    return CleanupPlan(
        history=history, retained=retained, datasets=tuple(plans), has_readers=has_readers
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    environment: GraphEnvironment
    retained: Retained
    published: Mapping[Line, int]
    without: Mapping[str, set[str | None]]

    def plan(self, path: str, known_as: str | None) -> DatasetPlan:
        location, type_key = self.environment.location, known_as or path
        try:
            if not any(held == path for held, _ in self.retained.versions):
                # The mark of a dataset that is gone stays as long as the history knows it.
                mark = None if known_as is None else f"{path}/{RECLAIMED_MARK}"
                files = tuple(
                    file
                    for file in list_files(location, path)
                    if file.name != mark and is_deletable(file.name)
                )
                return DatasetPlan(
                    path=path,
                    type_key=type_key,
                    dropped_files=files,
                    is_known=known_as is not None,
                )
            listing = list_versions(location, path, self.without.get(path, ()))
            if (drift := find_drift(listing, self.published, self.retained)) is not None:
                return DatasetPlan(
                    path=path, type_key=type_key, listing=listing, error=drift, has_drift=True
                )
            removal = plan_removal(location, listing, self._going(listing))
        except StorageError as error:
            return DatasetPlan(path=path, type_key=type_key, error=error.message)
        return DatasetPlan(path=path, type_key=type_key, listing=listing, removal=removal)

    def _going(self, listing: DatasetListing) -> dict[str | None, frozenset[int]]:
        """All versions but those that snapshots need, that Lance refers to, and HEAD."""
        return {
            line.fork: line.versions
            - self.retained.versions.get((listing.path, line.fork), frozenset())
            - line.held
            - {line.head}
            for line in listing.lines
        }


def find_drift(
    listing: DatasetListing, published: Mapping[Line, int], retained: Retained
) -> str | None:
    """What is wrong with the HEADs of a dataset, if one is past everything that was published."""
    for line in listing.lines:
        known = published.get((listing.path, line.fork))
        named = retained.versions.get((listing.path, line.fork), frozenset())
        if known is not None and line.head > known and line.head not in named:
            where = "" if line.fork is None else f" of the fork {line.fork}"
            return (
                f"HEAD{where} is at version {line.head}, and the catalog knows version {known}: "
                "look with `omnigraph repair` first"
            )
    return None


def published_heads(history: History) -> dict[Line, int]:
    """The newest version that was published on each line that a live branch reads."""
    live = {
        (pin.location, pin.branch)
        for head in history.heads
        if not head.deleted
        for pin in head.pins.values()
    }
    newest: dict[Line, int] = {}
    for row in history.versions:
        line = (row.pin.location, row.pin.branch)
        if line in live:
            newest[line] = max(row.pin.version, newest.get(line, 0))
    return newest


def type_keys(history: History) -> dict[str, str]:
    """The newest name of the type behind every dataset that the catalog knows."""
    found: dict[str, str] = {}
    for row in sorted(history.versions, key=lambda item: item.graph_version):
        found[row.pin.location] = row.pin.table_key
    return found
