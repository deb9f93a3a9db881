"""Which rows the history needs no more, once old commits may be forgotten: a pure function of the rows."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from omnigraph.manifest.lineage import distances, parents
from omnigraph.manifest.retention import Reason, pinned_rows
from omnigraph.manifest.rows import MAIN, version_row
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
    """The ids of the rows that no snapshot of a known commit needs.

    Every dataset keeps one row at least: the directory of a dropped type is never used again, and whoever remembers
    something of it cannot take another type for it.
    """
    needed = list(pinned_rows(history, known, with_hidden=True))
    newest = {row.pin.location: row for rows in _in_order(history) for row in rows}
    versions = _version_ids(history.versions) - _version_ids([*needed, *newest.values()])
    commits = {f"commit:{c}" for c in history.commits if c not in known}
    return sorted(commits | versions)


def _in_order(history: History) -> Iterable[list[PublishedVersion]]:
    """The published versions, the newest of every dataset last on its branch, and those of main last of all."""
    branches = history.versions_by_branch
    return (branches[name] for name in sorted(branches, key=lambda name: name == MAIN))


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
