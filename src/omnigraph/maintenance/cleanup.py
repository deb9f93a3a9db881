"""Cleanup: removes what no kept state needs, and reports it."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from omnigraph.codec import Document, Key
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.leftovers import reclaim_staged_files, staged_max_age_s
from omnigraph.commit.snapshot import History
from omnigraph.commit.sweep import settle_all
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import OmniError, RetryableCommitConflictError, StorageError
from omnigraph.frozen import frozen
from omnigraph.maintenance.cleanup_plan import (
    MICROSECONDS,
    CleanupPlan,
    DatasetPlan,
    Fork,
    find_drift,
    find_unfinished,
    find_unused_forks,
    find_unused_groups,
    is_busy,
    plan_cleanup,
    reader_grace_us,
    retained_now,
    with_sizes,
)
from omnigraph.maintenance.retention import (
    CleanupCall,
    Retained,
    RetentionPolicy,
    forgettable_rows,
    known_commits,
    published_heads,
)
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.datasets.versions import (
    list_versions,
    newest_since,
    plan_removal,
    remove_files,
    remove_fork,
    remove_manifests,
)
from omnigraph.storage.derived import DERIVED_FOLDER, remove_groups
from omnigraph.storage.location import BRANCH_CLAIM, MANIFEST, RECLAIMED_MARK, RECOVERIES, STAGING_FOLDER
from omnigraph.storage.locks import held_file
from omnigraph.storage.objects import StoredFile, delete_files, list_files

_log = logging.getLogger(__name__)

# ---- What a cleanup removed, or in a preview would remove, and what it kept


@frozen(kw_only=True)
class DatasetCleanup(Document):
    """One dataset: a node or edge type, or the directory of one that the manifest does not know."""

    type_key: str
    #: The directory below the root of the graph.
    location: str
    #: Everything together.
    bytes_removed: int = 0
    old_versions_removed: int = 0
    versions_kept: int = 0
    #: Forks of branches that are gone.
    forks_removed: int = 0
    #: Files that no version referred to: staged by writers that died.
    staged_files_removed: int = 0
    #: Whether the whole dataset went, because no snapshot that stays reads it.
    is_dropped: Annotated[bool, Key("dropped")] = False
    #: Why nothing was removed here, or less than planned; None when all went well.
    error: str | None = None


@frozen(kw_only=True)
class CleanupReport(Document):
    """What a cleanup did; without `confirmed` what it would do."""

    computed: ClassVar[Mapping[str, str]] = {"bytes_removed": "datasets", "old_versions_removed": "bytes_removed"}

    confirmed: bool
    #: How many commits of each branch are kept by number; None when only their age counted.
    keep: int | None
    #: The age below which states are kept, in seconds.
    older_than_s: Annotated[float | None, Key("older_than_seconds")]
    datasets: tuple[DatasetCleanup, ...]
    #: Commits whose snapshots stay readable.
    commits_kept: int
    #: Per reason, how many commits it keeps; a commit may have several.
    kept_because: Mapping[str, int] = field(default_factory=dict)
    #: Commits that were removed from the history itself.
    commits_forgotten: int = 0
    #: Old versions of the manifest and of the audit, and leftovers beside the datasets.
    catalog_versions_removed: int = 0
    catalog_bytes_removed: int = 0
    other_files_removed: int = 0
    other_bytes_removed: int = 0
    #: What a person should know: values that were raised, readers that held something back.
    notes: tuple[str, ...] = ()

    @property
    def bytes_removed(self) -> Annotated[int, Key("total_bytes_removed")]:
        """The size of everything that was removed."""
        own = sum(item.bytes_removed for item in self.datasets)
        return own + self.catalog_bytes_removed + self.other_bytes_removed

    @property
    def old_versions_removed(self) -> Annotated[int, Key("total_old_versions_removed")]:
        """How many versions of datasets were removed in all."""
        return sum(item.old_versions_removed for item in self.datasets)

    @property
    def errors(self) -> tuple[DatasetCleanup, ...]:
        """The datasets that could not be cleaned up."""
        return tuple(item for item in self.datasets if item.error is not None)


# ---- Forks: removed by themselves whenever a branch is deleted, and first of all by a cleanup


def reclaim_forks(environment: GraphEnvironment, policy: RetentionPolicy | None = None) -> dict[Fork, int]:
    """Remove forks that no reachable state reads, also those whose publish never happened; what went, with its size.

    While there are readers or staged files, and always on an object store, only forks that were not written to for a
    long time go: one may be read still, or hold what is staged for a first publish.
    """
    state = environment.manifest.state()
    # Before the lock is taken: it follows the length of the history.
    unused = find_unused_forks(environment, policy or RetentionPolicy())
    removed: dict[Fork, int] = {}
    if not unused:
        return removed
    with environment.window() as held, held.staging.try_exclusive() as is_alone:
        settle_all(held)
        is_quiet = is_alone and not held.reading.has_readers()
        if held.manifest.state().manifest_version != state.manifest_version:
            return {}
        age_s = None if is_quiet else staged_max_age_s()
        left = with_sizes(held, unused, age_s)
        while left:
            failed = {item: size for item, size in left.items() if not _remove_fork(held, *item)}
            removed |= {item: size for item, size in left.items() if item not in failed}
            # A fork of a fork goes first; what fails without any progress stays.
            left = failed if len(failed) < len(left) else {}
    return removed


def reclaim_forks_quietly(environment: GraphEnvironment) -> None:
    """As `reclaim_forks`; a failure only leaves work for the next run."""
    try:
        reclaim_forks(environment)
    except OmniError as error:
        _log.warning("forks stay until cleanup: %s", error)


def _remove_fork(environment: GraphEnvironment, path: str, fork: str) -> bool:
    reach(Failpoint.BEFORE_FORK_REMOVAL)
    environment.tenure.check()
    try:
        remove_fork(environment.location, path, fork)
    except StorageError as error:
        _log.info("the fork %s of %s stays for now: %s", fork, path, error)
        return False
    return True


# ---- Sweep: forks, versions of datasets, files that nothing refers to, then rows and versions of the manifest
#
# A process that dies on the way leaves every promised snapshot readable, everything else readable or gone as a whole,
# and work that the next run finds again.


#: How often a plan is made again because writers changed what it rests on.
_PLAN_BUDGET = 8
#: How often a dataset that could not be read is looked at once more.
_LOOKS = 2


def clean_up(environment: GraphEnvironment, call: CleanupCall) -> CleanupReport:
    """Remove what the policy does not keep; in a preview only say what that would be.

    Raises:
        RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
        RetryableCommitConflictError: the commit lock stayed busy, or writers kept changing what could go.
    """
    return _Cleanup(environment, call).run()


@dataclass(slots=True)
class DatasetStats:
    """What happened to one dataset; see `DatasetCleanup`."""

    old_versions_removed: int = 0
    versions_kept: int = 0
    forks_removed: int = 0
    staged_files_removed: int = 0
    bytes_removed: int = 0
    is_dropped: bool = False
    error: str | None = None


@dataclass(slots=True)
class _Cleanup:
    """One run."""

    environment: GraphEnvironment
    call: CleanupCall
    stats: defaultdict[str, DatasetStats] = field(default_factory=lambda: defaultdict(DatasetStats))
    others: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def run(self) -> CleanupReport:
        plan = self._clean_versions(self._clean_forks())
        self._clean_staged_files(plan)
        if self.environment.location.is_local:
            self._clean_beside(plan.history)
        forgotten = self._clean_manifest()
        if plan.has_readers:
            grace_s = reader_grace_us() // MICROSECONDS
            self.notes.append(
                f"a reader or writer may be at work: what was at a head in the last {grace_s} s stays, too"
            )
        names = {item.path: item.type_key for item in plan.datasets}
        datasets = [
            DatasetCleanup(type_key=names.get(path, path), location=path, **asdict(stats))
            for path, stats in self.stats.items()
        ]
        age_us = self.call.policy.age_us
        return CleanupReport(
            confirmed=not self.call.preview,
            keep=self.call.policy.keep,
            older_than_s=None if age_us is None else age_us / MICROSECONDS,
            datasets=tuple(sorted(datasets, key=lambda item: item.type_key)),
            commits_kept=len(plan.retained.commits),
            kept_because=plan.retained.counts(),
            commits_forgotten=forgotten,
            catalog_versions_removed=self.others["catalog_versions"],
            catalog_bytes_removed=self.others["catalog_bytes"],
            other_files_removed=self.others["files"],
            other_bytes_removed=self.others["bytes"],
            notes=(*self.call.notes, *self.notes),
        )

    def _count_others(self, files: Collection[StoredFile]) -> None:
        self.others["files"] += len(files)
        self.others["bytes"] += sum(file.size_bytes for file in files)

    def _clean_forks(self) -> Collection[Fork]:
        environment, policy = self.environment, self.call.policy
        age_s = staged_max_age_s() if is_busy(environment) else None
        found = removed = find_unused_forks(environment, policy, age_s)
        if found and not self.call.preview:
            removed = reclaim_forks(environment, policy)
            if len(removed) < len(found):
                self.notes.append("some forks of deleted branches stay: writers are at work")
        for (path, _), size in removed.items():
            self.stats[path].forks_removed += 1
            self.stats[path].bytes_removed += size
        return removed.keys()

    # ---- versions

    def _clean_versions(self, forks: Collection[Fork]) -> CleanupPlan:
        for number in range(_PLAN_BUDGET):
            plan = plan_cleanup(self.environment, self.call.policy, forks)
            reach(Failpoint.CLEANUP_PLANNED)
            if plan.has_failures and number < _LOOKS:
                # A fork or a version may have gone between two looks at the same dataset.
                continue
            if self.call.preview or self._remove_versions(plan):
                break
        else:
            raise RetryableCommitConflictError(
                "writers kept changing what could be removed; no version was removed, try again"
            )
        for item in plan.datasets:
            self._remove_files(item)
        return plan

    def _remove_versions(self, plan: CleanupPlan) -> bool:
        """Remove the planned versions, unless one of them is needed meanwhile."""
        with self.environment.window() as held:
            settle_all(held)
            has_readers = is_busy(held)
            history = held.manifest.history()
            retained = retained_now(held, history, self.call.policy, has_readers=has_readers)
            if any(item.contradicts(retained) for item in plan.datasets):
                return False
            if self._was_moving(plan, history, retained):
                return False
            for item in plan.datasets:
                reach(Failpoint.BEFORE_VERSION_REMOVAL)
                held.tenure.check()
                self._remove_manifests(item)
        reach(Failpoint.AFTER_VERSION_REMOVAL)
        return True

    def _was_moving(self, plan: CleanupPlan, history: History, retained: Retained) -> bool:
        """Whether what looked like drift was only a write between its commit and its publish."""
        published = published_heads(history)
        location = self.environment.location
        return any(
            find_drift(list_versions(location, item.path), published, retained) is None
            for item in plan.datasets
            if item.has_drift
        )

    def _remove_manifests(self, item: DatasetPlan) -> None:
        environment, removal = self.environment, item.removal
        if removal is None or not removal.every_file:
            return
        try:
            if removal.is_whole and item.is_known:
                # First: whatever is missing from here on was cleaned up.
                environment.objects.write(f"{item.path}/{RECLAIMED_MARK}", b"{}\n")
            remove_manifests(environment.location, removal)
            environment.tables.forget(item.path)
        except StorageError as error:
            self.stats[item.path].error = error.message

    def _remove_files(self, item: DatasetPlan) -> None:
        """The files of versions that are gone; also the account of a preview."""
        removal = item.removal
        if removal is not None and removal.is_whole and not removal.every_file:
            # It went before.
            return
        stats = self.stats[item.path]
        stats.versions_kept = item.versions_kept
        stats.error = stats.error or item.error
        if stats.error is not None or removal is None:
            return
        try:
            if not self.call.preview:
                remove_files(self.environment.location, removal)
        except StorageError as error:
            stats.error = error.message
            return
        stats.is_dropped = removal.is_whole
        stats.old_versions_removed += removal.version_count
        stats.bytes_removed += removal.size_bytes

    # ---- leftovers

    def _clean_staged_files(self, plan: CleanupPlan) -> None:
        location = self.environment.location
        paths = [item.path for item in plan.datasets if not item.is_dropped]
        own = [name for name in (MANIFEST, RECOVERIES) if dataset_exists(location, name)]
        found = reclaim_staged_files(self.environment, [*paths, *own], staged_max_age_s(), preview=self.call.preview)
        for removal in found.removals:
            if removal.path in (*own, STAGING_FOLDER):
                self._count_others(removal.files)
            else:
                self.stats[removal.path].staged_files_removed += len(removal.files)
                self.stats[removal.path].bytes_removed += removal.size_bytes
        for path, message in found.failures.items():
            if path in (*own, STAGING_FOLDER):
                self.notes.append(f"{path}: {message}")
            else:
                self.stats[path].error = self.stats[path].error or message
        if not found.is_complete:
            self.notes.append(
                "writers are at work, or that is not known: of the files that nothing refers to only old ones go"
            )

    def _clean_beside(self, history: History) -> None:
        """Remove unfinished control files, claims of dead processes, and derived arrays that belong to no dataset."""
        location = self.environment.location
        groups = find_unused_groups(self.environment, history)
        for group in groups:
            self._count_others(list(list_files(location, f"{DERIVED_FOLDER}/{group}")))
        unfinished = find_unfinished(self.environment)
        self._count_others(unfinished)
        if self.call.preview:
            return
        remove_groups(location, groups)
        delete_files(location, [file.name for file in unfinished])
        for path in location.path.glob(f"{BRANCH_CLAIM}*"):
            if not path.is_symlink():
                # Taking a claim that no process holds, and giving it back, removes it.
                with suppress(RetryableCommitConflictError), held_file(path):
                    pass

    # ---- the manifest

    def _clean_manifest(self) -> int:
        """Rows that are not needed, then old versions of the manifest and of the audit; how many commits went."""
        if self.call.preview:
            return self._clean_manifest_in(self.environment)
        with self.environment.window() as held:
            settle_all(held)
            return self._clean_manifest_in(held)

    def _clean_manifest_in(self, environment: GraphEnvironment) -> int:
        has_readers = is_busy(environment)
        forgotten = 0
        if self.call.forget_commits:
            history = environment.manifest.history()
            retained = retained_now(environment, history, self.call.policy, has_readers=has_readers)
            known = known_commits(history, retained)
            forgotten = len(history.commits) - len(known)
            rows = forgettable_rows(history, known)
            reach(Failpoint.BEFORE_COMMITS_FORGOTTEN)
            if rows and not self.call.preview:
                environment.manifest.forget(rows, tenure=environment.tenure)
        reach(Failpoint.BEFORE_CATALOG_CLEANUP)
        since_s = None
        if has_readers:
            since_s = (environment.clock() - reader_grace_us()) / MICROSECONDS
        for path in (MANIFEST, RECOVERIES):
            try:
                if dataset_exists(environment.location, path):
                    self._remove_old_versions(environment, path, since_s)
            except StorageError as error:
                self.notes.append(f"{path}: old versions stay, {error.message}")
        return forgotten

    def _remove_old_versions(self, environment: GraphEnvironment, path: str, since_s: float | None) -> None:
        """Rows carry the history: of these datasets a reader that begins needs the newest version alone."""
        listing = list_versions(environment.location, path)
        kept = {} if since_s is None else newest_since(listing, since_s)
        removal = plan_removal(environment.location, listing, kept)
        self.others["catalog_versions"] += removal.version_count
        self.others["catalog_bytes"] += removal.size_bytes
        if not self.call.preview:
            environment.tenure.check()
            remove_manifests(environment.location, removal)
            remove_files(environment.location, removal)
