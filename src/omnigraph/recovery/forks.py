"""Removing forks of tables that no branch owns any more, and that no merge can need."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from omnigraph.errors import OmniError, StorageError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.manifest.lineage import lasting_bases
from omnigraph.manifest.snapshot import branch_of, snapshot_at
from omnigraph.recovery.reclaim import staged_max_age_s
from omnigraph.recovery.sweep import settle_all
from omnigraph.storage.forks import list_forks, remove_fork
from omnigraph.storage.listing import list_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.manifest.snapshot import History
    from omnigraph.manifest.state import ManifestState
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.tables import Table

_log = logging.getLogger(__name__)
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
