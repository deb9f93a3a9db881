"""Removing forks of tables that no branch owns any more, and that no merge can need."""

from __future__ import annotations

import logging
from itertools import combinations
from typing import TYPE_CHECKING

from omnigraph.errors import OmniError, StorageError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.manifest import base_commits, branch_of, snapshot_at
from omnigraph.recovery.sweep import settle_all
from omnigraph.storage.staged import list_forks, remove_fork

if TYPE_CHECKING:
    from omnigraph.manifest import History, ManifestState
    from omnigraph.recovery.environment import GraphEnvironment

_log = logging.getLogger(__name__)


def reclaim_forks(environment: GraphEnvironment) -> list[tuple[str, str]]:
    """Remove forks of deleted branches, and those whose publish never happened; what was removed, as path and fork.

    Kept are forks that a branch writes to or reads from, and forks at which two live branches last agreed: the data of
    a deleted branch is the base of later merges between branches that took its work over. Does nothing while another
    writer stages files, because one may stage into a fork that is not published yet.
    """
    removed: list[tuple[str, str]] = []
    with environment.window() as held, held.staging.try_exclusive() as is_alone:
        if not is_alone:
            return []
        settle_all(held)
        state = held.manifest.state()
        candidates = _unowned(held, state)
        if not candidates:
            return []
        needed = _needed_by_merges(state, held.manifest.history())
        left = [item for item in candidates if item not in needed]
        while left:
            failed = [item for item in left if not _remove(held, *item)]
            removed += [item for item in left if item not in failed]
            # A fork of a fork goes first; what fails without any progress stays.
            left = failed if len(failed) < len(left) else []
    return removed


def _remove(environment: GraphEnvironment, path: str, fork: str) -> bool:
    reach(Failpoint.BEFORE_FORK_REMOVAL)
    try:
        remove_fork(environment.location, path, fork)
    except StorageError as error:
        _log.info("the fork %s of %s stays for now: %s", fork, path, error)
        return False
    return True


def reclaim_forks_quietly(environment: GraphEnvironment) -> None:
    """As `reclaim_forks`; a failure only leaves work for the next run."""
    try:
        reclaim_forks(environment)
    except OmniError as error:
        _log.warning("forks stay until cleanup: %s", error)


def _unowned(environment: GraphEnvironment, state: ManifestState) -> list[tuple[str, str]]:
    heads = state.heads.values()
    used = {(pin.location, pin.branch) for head in heads for pin in head.pins.values()}
    paths = {pin.location for head in state.all_heads for pin in head.pins.values()}
    return [
        (path, fork)
        for path in sorted(paths)
        for fork in list_forks(environment.location, path)
        if (path, fork) not in used
    ]


def _needed_by_merges(state: ManifestState, history: History) -> set[tuple[str, str | None]]:
    needed: set[tuple[str, str | None]] = set()
    heads = sorted({head.commit_id for head in state.heads.values()})
    for one, other in combinations(heads, 2):
        for base in base_commits(history.commits, [one], [other]):
            if branch_of(state.all_heads, history.commits[base]).deleted:
                pins = snapshot_at(history, base).pins.values()
                needed |= {(pin.location, pin.branch) for pin in pins}
    return needed
