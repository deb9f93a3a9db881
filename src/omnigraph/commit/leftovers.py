"""What failed writers leave: staged files and forks that were never published."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.commit.lineage import lasting_bases
from omnigraph.commit.snapshot import History, ManifestState, branch_of, snapshot_at
from omnigraph.commit.sweep import has_unsettled, settle_all
from omnigraph.core.budget import finishing
from omnigraph.core.env_settings import duration_s
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import (
    OmniError,
    QueryCancelledError,
    QueryTimeoutError,
    SparkError,
    StorageError,
)
from omnigraph.storage.answers import abandoned_answers, remove_abandoned
from omnigraph.storage.datasets.forks import list_forks, remove_fork
from omnigraph.storage.datasets.leftovers import (
    DatasetFiles,
    Leftovers,
    list_dataset,
    remove_leftovers,
    unreferenced,
)
from omnigraph.storage.listing import StoredFile, list_files
from omnigraph.storage.location import STAGING_FOLDER

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment
    from omnigraph.storage.datasets.tables import Table


# ---- Removing what writers staged and never committed
#
# Files staged by a running writer look exactly like those that a dead one left. On a local disk the staging lock
# tells them apart: whoever holds it alone may remove everything that no version refers to. When writers hold it, and
# always on an object store, only the age of a file tells. What tasks of bulk operations told their drivers goes in
# the same way.


STAGED_MAX_AGE = "OMNIGRAPH_STAGED_MAX_AGE"
_DEFAULT_MAX_AGE = "7d"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What was removed, or in a preview what would be."""

    leftovers: tuple[Leftovers, ...] = ()
    #: What tasks of bulk operations that are over told their drivers.
    answers: tuple[StoredFile, ...] = ()
    #: Whether the age of a file did not matter, because no writer had staged files.
    is_complete: bool = False
    #: Per dataset that could not be examined or cleaned, why; all others were.
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_count(self) -> int:
        """How many files."""
        return sum(len(item.files) for item in self.leftovers) + len(self.answers)

    @property
    def size_bytes(self) -> int:
        """How much room they took."""
        files = sum(item.size_bytes for item in self.leftovers)
        return files + sum(file.size_bytes for file in self.answers)


def staged_max_age_s() -> float:
    """The age at which a staged file is taken to be forgotten, from `OMNIGRAPH_STAGED_MAX_AGE`."""
    return duration_s(STAGED_MAX_AGE, _DEFAULT_MAX_AGE)


def reclaim_staged_files(
    environment: GraphEnvironment,
    table_paths: Sequence[str],
    max_age_s: float,
    *,
    preview: bool = False,
) -> Reclaimed:
    """Remove the files of datasets that no version on any branch refers to, and answers of operations that are over.

    Settles interrupted writes first, since what they staged may still become visible. A preview settles and removes
    nothing, and finds nothing while a write is unsettled.

    Raises:
        RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
        RetryableCommitConflictError: the commit lock stayed busy; nothing was removed.
    """
    run = _Run(environment, max_age_s)
    with ExitStack() as staging:
        if preview:
            # Only for a moment: writers would wait for the whole look.
            with environment.staging.try_exclusive() as is_alone:
                pass
            listed = run.list_all(table_paths, is_alone=is_alone)
        else:
            with environment.window() as held:
                settle_all(held)
                # Inside the window, so that what recovery and forks write without the staging lock is committed by
                # now. In this order: a writer in the window may wait for the staging lock, and this never waits.
                is_alone = staging.enter_context(environment.staging.try_exclusive())
                listed = run.list_all(table_paths, is_alone=True) if is_alone else []
            if not is_alone:
                listed = run.list_all(table_paths, is_alone=False)
        found = run.find_all(listed)
        if has_unsettled(environment):
            # A writer that took longer than the age limit is about to commit, or one has just died.
            _log.warning("staged files stay: a write is in its commit window")
            return Reclaimed(is_complete=is_alone, failures=run.failures)
        answers = run.find_answers(is_alone=is_alone)
        if not preview:
            found = run.remove_all(found)
            answers = run.remove_answers(answers)
    return Reclaimed(
        leftovers=tuple(found),
        answers=tuple(answers),
        is_complete=is_alone,
        failures=run.failures,
    )


def find_abandoned_answers(
    environment: GraphEnvironment, max_age_s: float, *, is_alone: bool
) -> list[StoredFile]:
    """Answers of operations that are over: all of them while nobody writes or reads, otherwise those of an age."""
    found = abandoned_answers(environment.location, None)
    # After the listing: whoever wrote one of these before it, and still needs it, is seen here.
    if is_alone and not environment.reading.has_readers():
        return found
    limit_s = environment.clock() / 1_000_000 - max_age_s
    return [file for file in found if file.modified_s < limit_s]


class _Run:
    """One pass over the datasets; a dataset that fails in one step is left out of the next."""

    def __init__(self, environment: GraphEnvironment, max_age_s: float) -> None:
        self._environment = environment
        self._location = environment.location
        self._now_s = environment.clock() / 1_000_000
        self._max_age_s = max_age_s
        self.failures: dict[str, str] = {}

    def list_all(self, paths: Sequence[str], *, is_alone: bool) -> list[DatasetFiles]:
        older_than_s = None if is_alone else self._max_age_s
        listed = []
        for path in paths:
            try:
                listed.append(list_dataset(self._location, path, older_than_s, self._now_s))
            except StorageError as error:
                self.failures[path] = error.message
        return listed

    def find_all(self, listed: Sequence[DatasetFiles]) -> list[Leftovers]:
        found = []
        for item in listed:
            try:
                leftovers = unreferenced(self._location, item)
            except StorageError as error:
                self.failures[item.path] = error.message
                continue
            if leftovers.files:
                found.append(leftovers)
        return found

    def remove_all(self, found: Sequence[Leftovers]) -> list[Leftovers]:
        removed = []
        for item in found:
            try:
                remove_leftovers(self._location, item)
            except StorageError as error:
                self.failures[item.path] = error.message
                continue
            removed.append(item)
        return removed

    def find_answers(self, *, is_alone: bool) -> list[StoredFile]:
        try:
            return find_abandoned_answers(self._environment, self._max_age_s, is_alone=is_alone)
        except StorageError as error:
            self.failures[STAGING_FOLDER] = error.message
            return []

    def remove_answers(self, found: Sequence[StoredFile]) -> list[StoredFile]:
        try:
            remove_abandoned(self._location, found)
        except StorageError as error:
            self.failures[STAGING_FOLDER] = error.message
            return []
        return list(found)


# ---- Removing forks of tables that no branch owns any more, and that no merge can need


#: Heads and bases up to which it is worth finding out what can go; above, everything stays until branches are deleted.
_MAX_POINTS = 100


def find_orphan_forks(
    environment: GraphEnvironment, older_than_s: float | None = None
) -> list[tuple[str, str]]:
    """What `reclaim_forks` would remove; with an age only forks that nobody wrote to since. Takes no lock."""
    state = environment.manifest.state()
    unowned = _unowned(environment, state)
    if not unowned:
        return []
    needed = _needed_by_merges(state, environment.manifest.history())
    return [
        item
        for item in unowned
        if item not in needed
        and (older_than_s is None or _is_forgotten(environment, *item, older_than_s))
    ]


def reclaim_forks(environment: GraphEnvironment) -> list[tuple[str, str]]:
    """Remove forks of deleted branches, and those whose publish never happened; what was removed, as path and fork.

    Kept are forks that a branch writes to or reads from, and forks at which live branches last agreed, or can have: the
    data of a deleted branch is the base of later merges between branches that took its work over. While somebody reads
    or stages files, and always on an object store, only forks that nobody has written to for a long time go: one may be
    read still, or hold what is staged for a first publish.
    """
    manifest = environment.manifest
    state = manifest.state()
    if not _unowned(environment, state):
        return []
    # Before the lock is taken: it follows the length of the history.
    needed = _needed_by_merges(state, manifest.history())
    removed: list[tuple[str, str]] = []
    with environment.window() as held, held.staging.try_exclusive() as is_alone:
        settle_all(held)
        is_quiet = is_alone and not held.reading.has_readers()
        if held.manifest.state().catalog_version != state.catalog_version:
            return []
        left = [
            item
            for item in _unowned(held, state)
            if item not in needed and (is_quiet or _is_forgotten(held, *item, staged_max_age_s()))
        ]
        while left:
            failed = [item for item in left if not _remove(held, *item)]
            removed += [item for item in left if item not in failed]
            # A fork of a fork goes first; what fails without any progress stays.
            left = failed if len(failed) < len(left) else []
    return removed


def reclaim_forks_quietly(environment: GraphEnvironment) -> None:
    """As `reclaim_forks`; a failure only leaves work for the next run."""
    try:
        reclaim_forks(environment)
    except OmniError as error:
        _log.warning("forks stay until cleanup: %s", error)


def remove_unpublished_forks(environment: GraphEnvironment, forks: Iterable[Table]) -> None:
    """Remove forks that a write made for nothing; what stays is reclaimed later.

    Forks of a branch that was deleted meanwhile stay: others may have published into them before.
    """
    try:
        with environment.window() as held, held.staging.try_exclusive() as is_alone:
            # First, because an unsettled write may have moved a fork that is not published yet.
            settle_all(held)
            state = held.manifest.state()
            deleted = {head.fork_name for head in state.all_heads if head.deleted}
            used = _used(state)
            for table in forks if is_alone else ():
                if (table.path, table.branch) not in used and table.branch not in deleted:
                    held.tenure.check()
                    remove_fork(held.location, table.path, str(table.branch))
    except OmniError as error:
        _log.warning("forks stay until cleanup: %s", error)


def _remove(environment: GraphEnvironment, path: str, fork: str) -> bool:
    reach(Failpoint.BEFORE_FORK_REMOVAL)
    environment.tenure.check()
    try:
        remove_fork(environment.location, path, fork)
    except StorageError as error:
        _log.info("the fork %s of %s stays for now: %s", fork, path, error)
        return False
    return True


def _is_forgotten(environment: GraphEnvironment, path: str, fork: str, age_s: float) -> bool:
    """Whether nobody has written to a fork for some time."""
    limit_s = environment.clock() / 1_000_000 - age_s
    files = list_files(environment.location, f"{path}/tree/{fork}")
    return all(file.modified_s < limit_s for file in files)


def _unowned(environment: GraphEnvironment, state: ManifestState) -> list[tuple[str, str]]:
    used = _used(state)
    paths = {pin.location for head in state.heads.values() for pin in head.pins.values()}
    return [
        (path, fork)
        for path in sorted(paths)
        for fork in list_forks(environment.location, path)
        if (path, fork) not in used
    ]


def _used(state: ManifestState) -> set[tuple[str, str | None]]:
    heads = state.heads.values()
    return {(pin.location, pin.branch) for head in heads for pin in head.pins.values()}


def _needed_by_merges(state: ManifestState, history: History) -> set[tuple[str, str | None]]:
    """Forks of deleted branches whose data is the base of merges, now or later."""
    commits = history.commits
    gone = {c for c in commits if branch_of(state.all_heads, commits[c]).deleted}
    heads = (head.commit_id for head in state.heads.values())
    bases = lasting_bases(commits, heads, _MAX_POINTS)
    if bases is None:
        _log.warning("too many branches to see which forks merges need: all of them stay")
        bases = gone
    pins = (pin for base in bases & gone for pin in snapshot_at(history, base).pins.values())
    return {(pin.location, pin.branch) for pin in pins}


# ---- What bulk writes leave behind when they fail: forks that they made for nothing, and files of tasks that died


#: Failures on purpose that end tasks wherever they are.
_STOPPED = (SparkError, StorageError, QueryCancelledError, QueryTimeoutError)


def may_leave_files(error: BaseException) -> bool:
    """Whether files may be left that nothing refers to: data that is refused leaves none, a task that ended may."""
    return isinstance(error, _STOPPED) or not isinstance(error, OmniError)


#: Failures that do not tell by themselves whether the work had an effect.
UNCLEAR = (SparkError, StorageError, KeyboardInterrupt)


def unharmed(error: BaseException, promise: str) -> BaseException:
    """The failure of work that had no effect, which says so; only the operation knows whether that is true."""
    if isinstance(error, SparkError):
        return SparkError(f"{error.message}; {promise}")
    if type(error) is StorageError:
        return StorageError(f"{error.message}; {promise}", error.failure)
    error.add_note(promise)
    return error


def tidy_up(
    environment: GraphEnvironment, forks: Collection[Table], *, has_unknown_files: bool
) -> None:
    """Remove forks that nothing refers to, and files that nobody knows; what stays is reclaimed by cleanup."""
    with finishing():
        try:
            if has_unknown_files:
                heads = environment.manifest.state().heads.values()
                paths = {pin.location for head in heads for pin in head.pins.values()}
                reclaim_staged_files(environment, sorted(paths), staged_max_age_s())
        except OmniError as error:
            _log.warning("staged files stay until cleanup: %s", error)
        if forks:
            remove_unpublished_forks(environment, forks)
