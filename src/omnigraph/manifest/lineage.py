"""The commit graph: ancestors, and where two lines of work last agreed. Pure functions of commits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnigraph.manifest.rows import GraphCommit


def first_parents(commits: Mapping[str, GraphCommit], newest: str) -> Iterator[GraphCommit]:
    """The commits of a branch from its head backwards, inherited ones included."""
    current: str | None = newest
    while current is not None:
        commit = commits[current]
        yield commit
        current = commit.parent_id


def distances(commits: Mapping[str, GraphCommit], *starts: str) -> dict[str, int]:
    """Every ancestor of some commits, themselves included, with the fewest steps to it over both parents."""
    found = dict.fromkeys(starts, 0)
    waiting = deque(starts)
    while waiting:
        current = waiting.popleft()
        for parent in parents(commits[current]):
            if parent not in found:
                found[parent] = found[current] + 1
                waiting.append(parent)
    return found


def parents(commit: GraphCommit) -> tuple[str, ...]:
    """The first parent and, of a merge, the other one."""
    return tuple(parent for parent in (commit.parent_id, commit.merged_parent_id) if parent)


def merge_bases(
    commits: Mapping[str, GraphCommit], one: Sequence[str], other: Sequence[str]
) -> list[str]:
    """The commits at which two lines last agreed, best first. A line is what some commits together build on.

    These are the common ancestors that no other common ancestor has behind it. Usually there is one. There are several
    when both lines merged the same third one on their own: each of them alone lacks work that both sides have, so a
    merge has to respect all. The best has the smallest sum of distances; ties go to the higher graph version.
    """
    from_one, from_other = distances(commits, *one), distances(commits, *other)
    common = from_one.keys() & from_other.keys()
    # A publish never comes before what it builds on, so a common ancestor is behind no older one.
    newest_first = sorted(common, key=lambda item: commits[item].graph_version, reverse=True)
    behind: set[str] = set()
    lowest = []
    for candidate in newest_first:
        if candidate not in behind:
            lowest.append(candidate)
            behind |= distances(commits, candidate).keys()
    return sorted(
        lowest,
        key=lambda item: (from_one[item] + from_other[item], -commits[item].graph_version),
    )


def base_commits(
    commits: Mapping[str, GraphCommit], one: Sequence[str], other: Sequence[str]
) -> set[str]:
    """Every commit whose state a merge of two lines looks at: their bases, and the bases of these, if several."""
    needed: set[str] = set()
    seen: set[tuple[frozenset[str], frozenset[str]]] = set()
    waiting = [(list(one), list(other))]
    while waiting:
        left, right = waiting.pop()
        pair = frozenset(left), frozenset(right)
        if pair in seen:
            continue
        seen.add(pair)
        found = merge_bases(commits, left, right)
        needed |= set(found)
        waiting += [(found[:count], [found[count]]) for count in range(1, len(found))]
    return needed
