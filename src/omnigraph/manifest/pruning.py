"""Which rows the history needs no more, once old commits may be forgotten: a pure function of the rows."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from omnigraph.manifest.lineage import distances, parents
from omnigraph.manifest.retention import Reason, pinned_rows
from omnigraph.manifest.rows import tombstone_row, version_row
from omnigraph.manifest.snapshot import branch_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from omnigraph.manifest.retention import Retained
    from omnigraph.manifest.rows import GraphCommit, PublishedVersion
    from omnigraph.manifest.snapshot import History


def known_commits(history: History, retained: Retained) -> set[str]:
    """The commits that stay in the history when only some stay readable.

    These are the readable ones and everything that builds on them, so that every way between two commits that stay is
    still there, and merges find the bases that they found before. Beside them a few commits stay for what their rows
    carry: the first commit of the graph, which identifies it, the commits at which branches began, and those with the
    source of a schema that is still needed. The histories of branches end before these.
    """
    commits = history.commits
    heads = [head.commit_id for head in history.heads if not head.deleted]
    starts = [c for c, reasons in retained.commits.items() if reasons != {Reason.FORK}]
    kept = _with_descendants(commits, distances(commits, *heads).keys(), starts)
    kept |= retained.commits.keys()
    kept |= {c for c in commits if commits[c].parent_id is None}
    size = 0
    while size < len(kept):
        size = len(kept)
        kept |= _forks(history, kept) | _schema_commits(commits, kept)
    return kept


def forgettable_rows(history: History, known: Collection[str]) -> list[str]:
    """The ids of the rows that no snapshot of a known commit needs."""
    needed = list(pinned_rows(history, known, with_hidden=True))
    pins = [row.pin for row in needed]
    pins += [pin for head in history.heads for pin in head.pins.values()]
    tables = {(pin.table_key, pin.incarnation) for pin in pins}
    published = {(row.pin.table_key, row.pin.incarnation) for row in history.versions}
    commits = {f"commit:{c}" for c in history.commits if c not in known}
    versions = _version_ids(history.versions) - _version_ids(needed)
    dropped = {f"table:{key}#{incarnation}" for key, incarnation in published - tables}
    stones = {
        str(tombstone_row(stone)["object_id"])
        for stone in history.tombstones
        if (stone.table_key, stone.incarnation) not in tables
    }
    return sorted(commits | versions | dropped | stones)


def _version_ids(rows: Iterable[PublishedVersion]) -> set[str]:
    found = (version_row(row.pin, row.branch_key, row.graph_version) for row in rows)
    return {str(row["object_id"]) for row in found}


def _with_descendants(
    commits: Mapping[str, GraphCommit], lineage: Collection[str], starts: Iterable[str]
) -> set[str]:
    children: defaultdict[str, list[str]] = defaultdict(list)
    for commit_id in lineage:
        for parent in parents(commits[commit_id]):
            children[parent].append(commit_id)
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += children[current]
    return found


def _forks(history: History, kept: Iterable[str]) -> set[str]:
    """Where the branches of commits began: their snapshots come from both."""
    found = (branch_of(history.heads, history.commits[c]).fork_commit_id for c in kept)
    return {fork for fork in found if fork is not None and fork in history.commits}


def _schema_commits(commits: Mapping[str, GraphCommit], kept: Iterable[str]) -> set[str]:
    """The commits that carry the schemas of others: these decode with their own."""
    hashes = {commits[c].schema_hash for c in kept}
    return {
        c
        for c, commit in commits.items()
        if commit.schema_source is not None and commit.schema_hash in hashes
    }
