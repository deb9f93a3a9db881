"""What a cleanup keeps: a pure function from the rows of the catalog and a policy to commits and dataset versions."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.manifest.lineage import first_parents, lasting_bases, possible_bases
from omnigraph.manifest.snapshot import branch_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from omnigraph.ids import TableKey
    from omnigraph.manifest.rows import GraphCommit, Head, PublishedVersion, Tombstone
    from omnigraph.manifest.snapshot import History

#: The directory of a dataset and the Lance branch; None is the main line.
Line = tuple[str, str | None]

#: Heads and bases up to which the exact bases of merges are worth finding; above, all possible ones stay.
_MAX_POINTS = 100


class Reason(StrEnum):
    """Why a commit stays readable."""

    HEAD = "head"
    FORK = "fork"
    MERGE_BASE = "merge_base"
    COUNT = "count"
    AGE = "age"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which states of live branches stay readable; with both, those that either of the two keeps."""

    #: The newest so many commits of every branch.
    keep: int | None = None
    #: Every state that a branch had in so many microseconds up to now.
    age_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What stays."""

    #: Commits whose snapshots stay readable, and why.
    commits: Mapping[str, frozenset[Reason]]
    #: Versions that these snapshots, or interrupted writes, need.
    versions: Mapping[Line, frozenset[int]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """How many commits each reason keeps."""
        return {
            str(reason): sum(reason in reasons for reasons in self.commits.values())
            for reason in Reason
        }


def plan_retention(
    history: History,
    policy: RetentionPolicy,
    now_us: int,
    *,
    reader_grace_us: int | None = None,
    named: Iterable[tuple[str, str | None, int]] = (),
) -> Retained:
    """What a cleanup has to keep.

    Always: heads, the commits at which live branches began, and the states that merges of live branches can need. With
    `reader_grace_us` also every state that a branch had in that time, because somebody may be reading it. `named` are
    versions that interrupted writes name, as directory, fork and version.
    """
    reasons: defaultdict[str, set[Reason]] = defaultdict(set)
    live = [head for head in history.heads if not head.deleted]
    for head in live:
        line = list(first_parents(history.commits, head.commit_id))
        reasons[head.commit_id].add(Reason.HEAD)
        for commit in islice(line, policy.keep or 0):
            reasons[commit.commit_id].add(Reason.COUNT)
        for age_us, reason in ((policy.age_us, Reason.AGE), (reader_grace_us, Reason.READER)):
            for commit in () if age_us is None else _states_since(line, now_us - age_us):
                reasons[commit.commit_id].add(reason)
    for base in _bases(history.commits, [head.commit_id for head in live]):
        reasons[base].add(Reason.MERGE_BASE)
    for fork in _forks(history, live, reasons):
        reasons[fork].add(Reason.FORK)
    versions: defaultdict[Line, set[int]] = defaultdict(set)
    for row in pinned_rows(history, reasons, with_hidden=False):
        versions[row.pin.location, row.pin.branch].add(row.pin.version)
    for head in live:
        for pin in head.pins.values():
            versions[pin.location, pin.branch].add(pin.version)
    for path, branch, version in named:
        versions[path, branch].add(version)
    return Retained(
        commits={commit_id: frozenset(some) for commit_id, some in reasons.items()},
        versions={line: frozenset(some) for line, some in versions.items()},
    )


def _states_since(line: list[GraphCommit], moment_us: int) -> Iterator[GraphCommit]:
    """Every state that a branch had since a moment: what was made after it, and what was there then."""
    is_there = False
    for commit in line:
        if commit.created_at > moment_us:
            yield commit
        elif not is_there:
            is_there = True
            yield commit


def _bases(commits: Mapping[str, GraphCommit], heads: list[str]) -> set[str]:
    exact = lasting_bases(commits, heads, _MAX_POINTS)
    return possible_bases(commits, heads) if exact is None else exact


def _forks(history: History, live: list[Head], kept: Iterable[str]) -> set[str]:
    """Where the branches of kept commits began, and the branches of those commits, and so on."""
    found: set[str] = set()
    waiting = [head.fork_commit_id for head in live]
    waiting += [branch_of(history.heads, history.commits[c]).fork_commit_id for c in kept]
    while waiting:
        fork = waiting.pop()
        if fork is not None and fork not in found and fork in history.commits:
            found.add(fork)
            waiting.append(branch_of(history.heads, history.commits[fork]).fork_commit_id)
    return found


def pinned_rows(
    history: History, commit_ids: Iterable[str], *, with_hidden: bool
) -> Iterator[PublishedVersion]:
    """The rows that the snapshots of some commits come from, except what their branches inherited.

    With `with_hidden` also rows that a tombstone hides by then, where they hide something inherited in turn: there a
    snapshot is not right without them.
    """
    moments: defaultdict[str, list[int]] = defaultdict(list)
    inheriting: set[str] = set()
    for commit_id in commit_ids:
        commit = history.commits[commit_id]
        head = branch_of(history.heads, commit)
        moments[head.branch_key].append(commit.graph_version)
        if head.fork_commit_id is not None:
            inheriting.add(head.branch_key)
    stones: defaultdict[tuple[TableKey, int], list[Tombstone]] = defaultdict(list)
    for stone in history.tombstones:
        stones[stone.table_key, stone.incarnation].append(stone)
    for branch, some in moments.items():
        some.sort()
        following: dict[TableKey, int] = {}
        for row in reversed(history.versions_by_branch.get(branch, ())):
            end = following.get(row.pin.table_key)
            following[row.pin.table_key] = row.graph_version
            if not with_hidden or branch not in inheriting:
                hidden = _hidden_since(stones[row.pin.table_key, row.pin.incarnation], row)
                end = min((it for it in (end, hidden) if it is not None), default=None)
            first = bisect_left(some, row.graph_version)
            if first < len(some) and (end is None or some[first] < end):
                yield row


def _hidden_since(stones: list[Tombstone], row: PublishedVersion) -> int | None:
    """The graph version since which a tombstone hides a published version; None when none does."""
    hiding = (
        stone.graph_version
        for stone in stones
        if stone.graph_version > row.graph_version and row.pin.version <= stone.version
    )
    return min(hiding, default=None)
