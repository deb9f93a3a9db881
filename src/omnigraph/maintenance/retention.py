"""What a cleanup keeps: the policy, the commits and versions that stay reachable, and rows that may be forgotten.

The mark half of a cleanup, pure: rows of the manifest and a policy go in. What it reaches is never removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from itertools import islice

from omnigraph.commit.lineage import distances, first_parents, lasting_bases, parents, possible_bases
from omnigraph.commit.rows import MAIN, GraphCommit, Head, PublishedVersion, Tombstone, version_row
from omnigraph.commit.snapshot import History, branch_of
from omnigraph.core.env_settings import parse_duration_s
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

# ---- The policy: what a caller asks for, and the floor below which no cleanup goes


#: Commits of every branch that stay whatever is asked for: what an operator needs to look at after a mishap.
KEEP_FLOOR = 3
#: What is advised.
KEEP_ADVISED = 10
#: More than any history has; the machine counts no further.
_KEEP_MOST = 2**62

_MICROSECOND = timedelta(microseconds=1)


@frozen(kw_only=True)
class RetentionPolicy:
    """Which states of live branches stay readable; with both, those that either of the two keeps."""

    #: How many of the newest commits of every branch stay.
    keep: int | None = None
    #: For how many microseconds back every state of a branch stays.
    age_us: int | None = None


@frozen(kw_only=True)
class CleanupCall:
    """One cleanup as it was asked for."""

    policy: RetentionPolicy
    #: Whether commits that cannot be read any more are removed from the history too.
    forget_commits: bool = False
    preview: bool = False
    #: What a person should know about the call itself.
    notes: tuple[str, ...] = ()


def cleanup_call(keep: int | None, older_than: str | timedelta | None, *, commits: bool, confirm: bool) -> CleanupCall:
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
            raise BadRequestError(f"{older_than!r} is not a duration such as 45s, 30m, 12h, 7d or 2w") from error
    if age < timedelta(0):
        raise BadRequestError("older_than is a time that has passed: it is not negative")
    return age


# ---- Mark: the commits that stay readable, and the versions that their snapshots need


#: The directory of a dataset and the Lance branch; None is the main line.
Line = tuple[str, str | None]

#: Heads and bases up to which the exact bases of merges are worth finding; above, all possible ones stay.
_MAX_POINTS = 100


class Reason(StrEnum):
    """Why a commit stays readable."""

    HEAD = "head"
    FORK = "fork"
    MERGE_BASE = "merge_base"
    TAG = "tag"
    COUNT = "count"
    AGE = "age"
    READER = "reader"


@frozen(kw_only=True)
class Retained:
    """What stays."""

    #: Commits whose snapshots stay readable, and why.
    commits: Mapping[str, frozenset[Reason]]
    #: Versions that these snapshots, or interrupted writes, need.
    versions: Mapping[Line, frozenset[int]] = field(default_factory=dict)

    def of(self, path: str) -> dict[str | None, frozenset[int]]:
        """The versions of one dataset, per fork."""
        return {fork: some for (held, fork), some in self.versions.items() if held == path}

    def counts(self) -> dict[str, int]:
        """How many commits each reason keeps."""
        return {str(reason): sum(reason in reasons for reasons in self.commits.values()) for reason in Reason}


def reachable(
    history: History,
    policy: RetentionPolicy,
    now_us: int,
    *,
    reader_grace_us: int | None = None,
    named: Iterable[tuple[str, str | None, int]] = (),
) -> Retained:
    """What a cleanup has to keep.

    Always: heads, commits that tags name, the commits at which live branches began, and the states that merges of live
    branches can need: the data of a deleted branch is the base of later merges between branches that took its work
    over. With `reader_grace_us` also every state that a branch had in that time, because a reader may be at it. `named`
    are versions that interrupted writes name, as directory, fork and version.
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
    for commit_id in history.tagged & history.commits.keys():
        reasons[commit_id].add(Reason.TAG)
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


def pinned_rows(history: History, commit_ids: Iterable[str], *, with_hidden: bool) -> Iterator[PublishedVersion]:
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


# ---- Which rows the history needs no more, once old commits may be forgotten


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
        kept |= _forks(history, [], kept) | _schema_commits(commits, kept)
    return kept


def forgettable_rows(history: History, known: Collection[str]) -> list[str]:
    """The ids of the rows that no snapshot of a known commit needs.

    Every dataset keeps one row at least: the directory of a dropped type is never used again, and a cache that
    remembers something of it cannot take another type for it.
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


def _with_descendants(commits: Mapping[str, GraphCommit], lineage: Collection[str], starts: Iterable[str]) -> set[str]:
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


def _schema_commits(commits: Mapping[str, GraphCommit], kept: Iterable[str]) -> set[str]:
    """The commits that carry the schemas of others: these decode with their own."""
    hashes = {commits[c].schema_hash for c in kept}
    return {c for c, commit in commits.items() if commit.schema_source is not None and commit.schema_hash in hashes}


# ---- What the history says about datasets


def published_heads(history: History) -> dict[Line, int]:
    """The newest version that was published on each line that a live branch reads."""
    live = {(pin.location, pin.branch) for head in history.heads if not head.deleted for pin in head.pins.values()}
    newest: dict[Line, int] = {}
    for row in history.versions:
        line = (row.pin.location, row.pin.branch)
        if line in live:
            newest[line] = max(row.pin.version, newest.get(line, 0))
    return newest


def type_keys(history: History) -> dict[str, str]:
    """The newest name of the type behind every dataset that the manifest knows."""
    found: dict[str, str] = {}
    for row in sorted(history.versions, key=lambda item: item.graph_version):
        found[row.pin.location] = row.pin.table_key
    return found
