"""Cleanup: removes what no kept state needs, and reports it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from stat import S_ISREG
from typing import TYPE_CHECKING

from omnigraph.commit.leftovers import (
    Reclaimed,
    find_orphan_forks,
    reclaim_forks,
    reclaim_staged_files,
    staged_max_age_s,
)
from omnigraph.commit.sweep import settle_all
from omnigraph.core.env_settings import parse_duration_s
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import BadRequestError, RetryableCommitConflictError, StorageError
from omnigraph.maintenance.retention import (
    CleanupPlan,
    DatasetPlan,
    Retained,
    RetentionPolicy,
    find_drift,
    forgettable_rows,
    is_busy,
    known_commits,
    plan_cleanup,
    published_heads,
    reader_grace_us,
    retained_now,
)
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.datasets.versions import (
    list_versions,
    old_versions,
    plan_removal,
    remove_version_files,
    remove_versions,
)
from omnigraph.storage.derived import (
    DERIVED_FOLDER,
    group_name,
    list_unused_groups,
    remove_groups,
    text_group_name,
)
from omnigraph.storage.listing import (
    StoredFile,
    delete_files,
    is_unfinished,
    list_files,
    remove_empty_folders,
)
from omnigraph.storage.location import (
    BRANCH_CLAIM,
    MANIFEST,
    RECLAIMED_MARK,
    RECOVERIES,
    RECOVERY_FOLDER,
    STAGING_FOLDER,
    inside,
)
from omnigraph.storage.locks import held_file

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment
    from omnigraph.commit.snapshot import History


# ---- What a cleanup removed, or in a preview would remove, and what it kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCleanup:
    """One dataset: a node or edge type, or the directory of one that the catalog does not know."""

    type_key: str
    #: The directory below the root of the graph.
    location: str
    old_versions_removed: int = 0
    versions_kept: int = 0
    #: Forks of branches that are gone.
    forks_removed: int = 0
    #: Files that no version referred to: staged by writers that died.
    staged_files_removed: int = 0
    #: Everything together.
    bytes_removed: int = 0
    #: Whether the whole dataset went, because no snapshot that stays reads it.
    is_dropped: bool = False
    #: Why nothing was removed here, or less than planned; None when all went well.
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        """The dataset as a JSON object."""
        return {
            "type_key": self.type_key,
            "location": self.location,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "versions_kept": self.versions_kept,
            "forks_removed": self.forks_removed,
            "staged_files_removed": self.staged_files_removed,
            "dropped": self.is_dropped,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a cleanup did; without `confirmed` what it would do."""

    confirmed: bool
    #: How many commits of each branch are kept by number; None when only their age counted.
    keep: int | None
    #: The age below which states are kept, in seconds.
    older_than_s: float | None
    datasets: tuple[DatasetCleanup, ...]
    #: Commits whose snapshots stay readable.
    commits_kept: int
    #: Per reason, how many commits it keeps; a commit may have several.
    kept_because: Mapping[str, int] = field(default_factory=dict)
    #: Commits that were removed from the history itself.
    commits_forgotten: int = 0
    #: Old versions of the catalog and of the audit, and leftovers beside the datasets.
    catalog_versions_removed: int = 0
    catalog_bytes_removed: int = 0
    other_files_removed: int = 0
    other_bytes_removed: int = 0
    #: What a person should know: values that were raised, readers that held something back.
    notes: tuple[str, ...] = ()

    @property
    def bytes_removed(self) -> int:
        """How much room was given back in all."""
        own = sum(item.bytes_removed for item in self.datasets)
        return own + self.catalog_bytes_removed + self.other_bytes_removed

    @property
    def old_versions_removed(self) -> int:
        """How many versions of datasets were removed in all."""
        return sum(item.old_versions_removed for item in self.datasets)

    @property
    def errors(self) -> tuple[DatasetCleanup, ...]:
        """The datasets that could not be cleaned up."""
        return tuple(item for item in self.datasets if item.error is not None)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "confirmed": self.confirmed,
            "keep": self.keep,
            "older_than_seconds": self.older_than_s,
            "datasets": [item.to_json() for item in self.datasets],
            "total_bytes_removed": self.bytes_removed,
            "total_old_versions_removed": self.old_versions_removed,
            "commits_kept": self.commits_kept,
            "kept_because": dict(self.kept_because),
            "commits_forgotten": self.commits_forgotten,
            "catalog_versions_removed": self.catalog_versions_removed,
            "catalog_bytes_removed": self.catalog_bytes_removed,
            "other_files_removed": self.other_files_removed,
            "other_bytes_removed": self.other_bytes_removed,
            "notes": list(self.notes),
        }


# ---- Cleanup: old versions, forks of deleted branches, leftovers of dead writers, and what the catalog outgrew
#
# Order: forks, then versions of datasets, then files that nothing refers to, then rows and versions of the catalog. A
# process that dies on the way leaves every promised snapshot readable, everything else readable or gone as a whole,
# and work that the next run finds again.


#: How often a plan is made anew because writers changed what it rests on.
_PLAN_BUDGET = 8
#: How often a dataset that could not be read is looked at once more.
_LOOKS = 2
#: A control file is written in a moment: a temporary name of this age has nobody who would finish it.
_TEMPORARY_MAX_AGE_S = 600.0
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupCall:
    """One cleanup as it was asked for."""

    policy: RetentionPolicy
    #: Whether commits that cannot be read any more are removed from the history too.
    forget_commits: bool = False
    preview: bool = False
    #: What a person should know about the call itself.
    notes: tuple[str, ...] = ()


def clean_up(environment: GraphEnvironment, call: CleanupCall) -> CleanupReport:
    """Remove what the policy does not keep; in a preview only say what that would be.

    Raises:
        RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
        RetryableCommitConflictError: the commit lock stayed busy, or writers kept changing what could go.
    """
    return _Cleanup(environment, call).run()


@dataclass(slots=True)
class _Tally:
    """What happened to one dataset."""

    versions: int = 0
    kept: int = 0
    forks: int = 0
    staged: int = 0
    bytes: int = 0
    is_dropped: bool = False
    error: str | None = None


@dataclass(slots=True)
class _Cleanup:
    """One run."""

    environment: GraphEnvironment
    call: CleanupCall
    tallies: defaultdict[str, _Tally] = field(default_factory=lambda: defaultdict(_Tally))
    others: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def run(self) -> CleanupReport:
        forks = self._clean_forks()
        plan = self._clean_versions(forks)
        self._clean_staged_files(plan)
        self._clean_beside(plan.history)
        forgotten = self._clean_catalog()
        if plan.has_readers:
            grace_s = reader_grace_us() // _MICROSECONDS
            self.notes.append(
                f"somebody may be reading or writing: what was at a head in the last {grace_s} s stays, too"
            )
        names = {item.path: item.type_key for item in plan.datasets}
        datasets = [
            DatasetCleanup(
                type_key=names.get(path, path),
                location=path,
                old_versions_removed=tally.versions,
                versions_kept=tally.kept,
                forks_removed=tally.forks,
                staged_files_removed=tally.staged,
                bytes_removed=tally.bytes,
                is_dropped=tally.is_dropped,
                error=tally.error,
            )
            for path, tally in self.tallies.items()
        ]
        age_us = self.call.policy.age_us
        return CleanupReport(
            confirmed=not self.call.preview,
            keep=self.call.policy.keep,
            older_than_s=None if age_us is None else age_us / _MICROSECONDS,
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

    # ---- forks

    def _clean_forks(self) -> list[tuple[str, str]]:
        environment = self.environment
        age_s = staged_max_age_s() if is_busy(environment) else None
        orphans = find_orphan_forks(environment, age_s)
        sizes = {
            (path, fork): sum(
                file.size_bytes for file in list_files(environment.location, f"{path}/tree/{fork}")
            )
            for path, fork in orphans
        }
        removed = orphans
        if orphans and not self.call.preview:
            removed = reclaim_forks(environment)
            if len(removed) < len(orphans):
                self.notes.append("some forks of deleted branches stay: writers are at work")
        for path, fork in removed:
            self.tallies[path].forks += 1
            self.tallies[path].bytes += sizes.get((path, fork), 0)
        return removed

    # ---- versions

    def _clean_versions(self, forks: list[tuple[str, str]]) -> CleanupPlan:
        environment, policy = self.environment, self.call.policy
        for number in range(_PLAN_BUDGET):
            plan = plan_cleanup(environment, policy, forks)
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
        """Let the planned versions go, if nobody needs one of them by now."""
        with self.environment.window() as held:
            settle_all(held)
            has_readers = is_busy(held)
            history = held.manifest.history()
            policy = self.call.policy
            retained = retained_now(held, history, policy, has_readers=has_readers)
            if plan.contradicts(retained) or self._was_moving(plan, history, retained):
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
        environment = self.environment
        try:
            if item.dropped_files:
                if item.is_known:
                    # First: whatever is missing from here on was cleaned up.
                    environment.objects.write(f"{item.path}/{RECLAIMED_MARK}", b"{}\n")
                names = [file.name for file in item.dropped_files]
                delete_files(environment.location, [it for it in names if "/_versions/" in it])
                environment.tables.forget(item.path)
            elif item.removal is not None:
                remove_versions(environment.location, item.removal)
                environment.tables.forget(item.path)
        except StorageError as error:
            self.tallies[item.path].error = error.message

    def _remove_files(self, item: DatasetPlan) -> None:
        """The files of versions that are gone; also the account of a preview."""
        environment, tally = self.environment, self.tallies[item.path]
        tally.kept = item.versions_kept
        tally.error = tally.error or item.error
        if tally.error is not None:
            return
        try:
            if item.dropped_files is not None:
                if not item.dropped_files:
                    del self.tallies[item.path]
                    return
                names = [file.name for file in item.dropped_files]
                if not self.call.preview:
                    # Versions went before, under the lock: since then others may make a dataset at the same place.
                    files = [name for name in names if "/_versions/" not in name]
                    delete_files(environment.location, files)
                    remove_empty_folders(environment.location, item.path)
                tally.is_dropped = True
                tally.versions += sum(name.endswith(".manifest") for name in names)
                tally.bytes += sum(file.size_bytes for file in item.dropped_files)
            elif item.removal is not None:
                if not self.call.preview:
                    remove_version_files(environment.location, item.removal)
                tally.versions += item.removal.version_count
                tally.bytes += item.removal.size_bytes
        except StorageError as error:
            tally.error = error.message

    # ---- leftovers

    def _clean_staged_files(self, plan: CleanupPlan) -> None:
        environment = self.environment
        paths = [item.path for item in plan.datasets if item.dropped_files is None]
        own = [
            name for name in (MANIFEST, RECOVERIES) if dataset_exists(environment.location, name)
        ]
        found = reclaim_staged_files(
            environment, [*paths, *own], staged_max_age_s(), preview=self.call.preview
        )
        self._count(found, [*own, STAGING_FOLDER])
        if not found.is_complete:
            self.notes.append(
                "writers are at work, or nobody can tell: of the files that nothing refers to only old ones go"
            )

    def _count(self, found: Reclaimed, own: list[str]) -> None:
        self.others["files"] += len(found.answers)
        self.others["bytes"] += sum(file.size_bytes for file in found.answers)
        for item in found.leftovers:
            if item.path in own:
                self.others["files"] += len(item.files)
                self.others["bytes"] += item.size_bytes
            else:
                self.tallies[item.path].staged += len(item.files)
                self.tallies[item.path].bytes += item.size_bytes
        for path, message in found.failures.items():
            if path in own:
                self.notes.append(f"{path}: {message}")
            else:
                self.tallies[path].error = self.tallies[path].error or message

    # ---- beside the datasets

    def _clean_beside(self, history: History) -> None:
        """Control files that were never finished, claims of dead processes, traversal and text indexes of nothing."""
        environment = self.environment
        if not environment.location.is_local:
            # An object appears with one request: there is no temporary name.
            return
        used = {
            name(pin.location, pin.branch)
            for head in history.heads
            for pin in head.pins.values()
            for name in (group_name, text_group_name)
        }
        groups = list_unused_groups(environment.location, used)
        files = [
            file
            for group in groups
            for file in list_files(environment.location, f"{DERIVED_FOLDER}/{group}")
        ]
        temporary = self._unfinished_control_files()
        for file in (*files, *temporary):
            self.others["files"] += 1
            self.others["bytes"] += file.size_bytes
        if self.call.preview:
            return
        remove_groups(environment.location, groups)
        delete_files(environment.location, [file.name for file in temporary])
        for path in environment.location.path.glob(f"{BRANCH_CLAIM}*"):
            if path.is_symlink():
                continue
            # Taking a claim that nobody holds, and giving it back, removes it.
            with suppress(RetryableCommitConflictError), held_file(path):
                pass

    def _unfinished_control_files(self) -> list[StoredFile]:
        root = self.environment.location.path
        limit_s = self.environment.clock() / _MICROSECONDS - _TEMPORARY_MAX_AGE_S
        found = []
        folder = inside(self.environment.location, RECOVERY_FOLDER)
        for path in (*root.glob("*#*"), *folder.glob("*#*")):
            try:
                status = path.lstat()
            except FileNotFoundError:
                # Its writer has just given it its real name.
                continue
            name = path.relative_to(root).as_posix()
            if is_unfinished(name) and S_ISREG(status.st_mode) and status.st_mtime < limit_s:
                found.append(
                    StoredFile(name=name, size_bytes=status.st_size, modified_s=status.st_mtime)
                )
        return found

    # ---- the catalog

    def _clean_catalog(self) -> int:
        """Rows that nobody needs, then old versions of the catalog and of the audit; how many commits went."""
        if self.call.preview:
            return self._clean_catalog_in(self.environment)
        with self.environment.window() as held:
            settle_all(held)
            return self._clean_catalog_in(held)

    def _clean_catalog_in(self, environment: GraphEnvironment) -> int:
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
        for path in (MANIFEST, RECOVERIES):
            try:
                if dataset_exists(environment.location, path):
                    self._remove_old_versions(environment, path, has_readers=has_readers)
            except StorageError as error:
                self.notes.append(f"{path}: old versions stay, {error.message}")
        return forgotten

    def _remove_old_versions(
        self, environment: GraphEnvironment, path: str, *, has_readers: bool
    ) -> None:
        """Rows carry the history: of these datasets the newest version is all that whoever begins to read needs."""
        since_s = None
        if has_readers:
            since_s = (environment.clock() - reader_grace_us()) / _MICROSECONDS
        listing = list_versions(environment.location, path)
        removal = plan_removal(environment.location, listing, old_versions(listing, since_s))
        self.others["catalog_versions"] += removal.version_count
        self.others["catalog_bytes"] += removal.size_bytes
        if not self.call.preview:
            environment.tenure.check()
            remove_versions(environment.location, removal)
            remove_version_files(environment.location, removal)


# ---- Cleaning up a graph: what a caller means by a policy, and the floor below which nobody may go


#: Commits of every branch that stay whatever is asked for: what an operator needs to look at after a mishap.
KEEP_FLOOR = 3
#: What is advised.
KEEP_ADVISED = 10
#: More than any history has; the machine counts no further.
_KEEP_MOST = 2**62

_MICROSECOND = timedelta(microseconds=1)


def cleanup_call(
    keep: int | None, older_than: str | timedelta | None, *, commits: bool, confirm: bool
) -> CleanupCall:
    """One cleanup, checked.

    Raises:
        BadRequestError: there is no policy, or one that makes no sense.
    """
    if keep is None and older_than is None:
        raise BadRequestError(
            f"say what stays: the newest commits of every branch (`--keep`, {KEEP_ADVISED} is a good number), those of "
            "some time (`--older-than`, such as 7d), or both"
        )
    notes = []
    if keep is not None and (type(keep) is not int or not 1 <= keep <= _KEEP_MOST):
        raise BadRequestError(f"keep is a number of commits, {KEEP_FLOOR} or more, not {keep!r}")
    if keep is not None and keep < KEEP_FLOOR:
        notes.append(f"keep was raised from {keep} to {KEEP_FLOOR}: {KEEP_ADVISED} is advised")
        keep = KEEP_FLOOR
    age_us = None if older_than is None else _age(older_than) // _MICROSECOND
    return CleanupCall(
        policy=RetentionPolicy(keep=keep, age_us=age_us),
        forget_commits=commits,
        preview=not confirm,
        notes=tuple(notes),
    )


def _age(older_than: str | timedelta) -> timedelta:
    if isinstance(older_than, timedelta):
        age = older_than
    else:
        try:
            age = timedelta(seconds=parse_duration_s(older_than))
        except (ValueError, OverflowError) as error:
            raise BadRequestError(
                f"{older_than!r} is not a duration such as 45s, 30m, 12h, 7d or 2w"
            ) from error
    if age < timedelta(0):
        raise BadRequestError("older_than is a time that has passed: it is not negative")
    return age
