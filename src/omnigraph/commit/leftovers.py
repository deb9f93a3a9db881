"""Leftovers of failed writers: staged files and forks that were never published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from typing import TypeVar

from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.sweep import has_unsettled, settle_all
from omnigraph.core.budget import finishing
from omnigraph.core.env_settings import Duration
from omnigraph.errors import OmniError, QueryCancelledError, QueryTimeoutError, SparkError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage.answers import abandoned_answers, remove_abandoned
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import Removal, find_orphans, list_dataset, remove_files, remove_fork
from omnigraph.storage.location import STAGING_FOLDER

# ---- Removing what writers staged and never committed
#
# Files staged by a running writer look exactly like those that a dead one left. On a local disk the staging lock
# tells them apart: while it is held alone, everything that no version refers to may go. When writers hold it, and
# always on an object store, only the age of a file tells. What tasks of bulk operations told their drivers goes in
# the same way.


STAGED_MAX_AGE = Duration(
    "OMNIGRAPH_STAGED_MAX_AGE",
    "7d",
    "The age at which files of writers that died are removed while other writers work.",
)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Reclaimed:
    """The files that were removed, or in a preview would be."""

    #: The orphans of every dataset, and below `STAGING_FOLDER` what tasks of operations that have ended told
    #: their drivers.
    removals: tuple[Removal, ...] = ()
    #: Whether the age of a file did not matter, because no writer had staged files.
    is_complete: bool = False
    #: Per dataset that could not be examined or cleaned, why; all others were.
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_count(self) -> int:
        """The number of files."""
        return sum(len(item.files) for item in self.removals)


def staged_max_age_s() -> float:
    """The age at which a staged file is taken to be forgotten, from `OMNIGRAPH_STAGED_MAX_AGE`."""
    return STAGED_MAX_AGE.read_s()


def reclaim_staged_files(
    environment: GraphEnvironment, table_paths: Sequence[str], max_age_s: float, *, preview: bool = False
) -> Reclaimed:
    """Remove the files of datasets that no version on any branch refers to, and answers of operations that have ended.

    Settles interrupted writes first, since what they staged may still become visible. A preview settles and removes
    nothing, and finds nothing while a write is unsettled.

    Raises:
        RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
        RetryableCommitConflictError: the commit lock stayed busy; nothing was removed.
    """
    location = environment.location
    limit_s = environment.clock() / 1_000_000 - max_age_s
    failures: dict[str, str] = {}

    def each(items: Mapping[str, _Item], work: Callable[[_Item], _Result]) -> dict[str, _Result]:
        """The results for all datasets but those that fail: they are reported, and left out of the next step."""
        found = {}
        for path, item in items.items():
            try:
                found[path] = work(item)
            except StorageError as error:
                failures[path] = error.message
        return found

    def find_answers(_: str) -> Removal:
        files = abandoned_answers(location, None)
        # After the listing: an operation that wrote one of these before it, and still needs it, is seen here.
        if not is_alone or environment.reading.has_readers():
            files = [file for file in files if file.modified_s < limit_s]
        return Removal(path=STAGING_FOLDER, files=tuple(files))

    def remove(removal: Removal) -> None:
        if removal.path == STAGING_FOLDER:
            remove_abandoned(location, removal.files)
        else:
            remove_files(location, removal)

    paths = {path: path for path in table_paths}
    with ExitStack() as staging:
        if preview:
            # Only for a moment: writers would wait for the whole look.
            with environment.staging.try_exclusive() as is_alone:
                pass
            listed = each(paths, lambda path: list_dataset(location, path))
        else:
            with environment.window() as held:
                settle_all(held)
                # Inside the window, so that what recovery and forks write without the staging lock is committed by
                # now. In this order: a writer in the window may wait for the staging lock, and this never waits.
                is_alone = staging.enter_context(environment.staging.try_exclusive())
                listed = each(paths if is_alone else {}, lambda path: list_dataset(location, path))
            if not is_alone:
                listed = each(paths, lambda path: list_dataset(location, path))
        written_before_s = None if is_alone else limit_s
        found = each(listed, lambda item: find_orphans(location, item, written_before_s))
        if has_unsettled(environment):
            # A writer that took longer than the age limit is about to commit, or one has just died.
            _log.warning("staged files stay: a write is in its commit window")
            return Reclaimed(is_complete=is_alone, failures=failures)
        found |= each({STAGING_FOLDER: STAGING_FOLDER}, find_answers)
        found = {path: item for path, item in found.items() if item.files}
        removed = found if preview else {path: found[path] for path in each(found, remove)}
    return Reclaimed(removals=tuple(removed.values()), is_complete=is_alone, failures=failures)


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
            used = state.lines()
            for table in forks if is_alone else ():
                if (table.path, table.branch) not in used and table.branch not in deleted:
                    held.tenure.check()
                    remove_fork(held.location, table.path, str(table.branch))
    except OmniError as error:
        _log.warning("forks stay until cleanup: %s", error)


# ---- Leftovers of failed bulk writes


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


def tidy_up(environment: GraphEnvironment, forks: Collection[Table], *, has_unknown_files: bool) -> None:
    """Remove unreferenced forks and files; what cannot be removed is reclaimed by cleanup."""
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
