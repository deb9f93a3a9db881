"""Removing what writers staged and never committed.

Files staged by a running writer look exactly like those that a dead one left. On a local disk the staging lock tells
them apart: whoever holds it alone may remove everything that no version refers to. When writers hold it, and always on
an object store, only the age of a file tells. What tasks of bulk operations told their drivers goes in the same way.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.environ import duration_s
from omnigraph.errors import StorageError
from omnigraph.recovery.sweep import has_unsettled, settle_all
from omnigraph.storage.answers import abandoned_answers, remove_abandoned
from omnigraph.storage.leftovers import (
    DatasetFiles,
    Leftovers,
    list_dataset,
    remove_leftovers,
    unreferenced,
)
from omnigraph.storage.location import STAGING_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.listing import StoredFile

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
