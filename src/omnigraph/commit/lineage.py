"""Ancestors and merge bases of commits, their times, and their log. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations

from omnigraph.codec import Document
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.snapshot import Snapshot
from omnigraph.errors import StorageError, StorageFailure
from omnigraph.frozen import frozen

# ---- The commit graph


def first_parents(commits: Mapping[str, GraphCommit], newest: str) -> Iterator[GraphCommit]:
    """The commits of a branch from its head backwards, inherited ones included, as far as the history goes.

    Raises:
        StorageError: the history is damaged and leads back to where it came from.
    """
    return walk_back(newest, commits.get)


def walk_back(newest: str, find: Callable[[str], GraphCommit | None]) -> Iterator[GraphCommit]:
    """As `first_parents`, with commits that are looked up one by one."""
    current: str | None = newest
    passed: set[str] = set()
    while current is not None and (commit := find(current)) is not None:
        if current in passed:
            raise StorageError(
                f"the history of the graph is damaged: commit {current} is among its own ancestors; "
                "look with `omnigraph doctor`, heal it with `omnigraph repair`",
                StorageFailure.PERMANENT,
            )
        passed.add(current)
        yield commit
        current = commit.parent_id


def distances(commits: Mapping[str, GraphCommit], *starts: str) -> dict[str, int]:
    """Every ancestor of some commits, themselves included, with the fewest steps to it over both parents.

    Commits that were cleaned up from the history are none: it begins behind them.
    """
    found = dict.fromkeys(starts, 0)
    waiting = deque(starts)
    while waiting:
        current = waiting.popleft()
        for parent in parents(commits[current]):
            if parent not in found and parent in commits:
                found[parent] = found[current] + 1
                waiting.append(parent)
    return found


def parents(commit: GraphCommit) -> tuple[str, ...]:
    """The first parent and, of a merge, the other one."""
    return tuple(parent for parent in (commit.parent_id, commit.merged_parent_id) if parent)


def merge_bases(commits: Mapping[str, GraphCommit], one: Sequence[str], other: Sequence[str]) -> list[str]:
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
    return sorted(lowest, key=lambda item: (from_one[item] + from_other[item], -commits[item].graph_version))


#: The commits of one line, and the commit of the other: what a step finds the bases of.
BasePair = tuple[frozenset[str], str]


@frozen
class BaseStep:
    """The bases of two lines, and for each base but the first the step for what it has in common with those before."""

    pair: BasePair
    bases: tuple[str, ...]
    common: tuple[BasePair, ...]


def base_steps(commits: Mapping[str, GraphCommit], one: str, other: str) -> list[BaseStep]:
    """The steps that build the base of a merge, oldest first; the last step is about the two commits themselves.

    Usually one step with one base. Bases of bases come again and again in a history of mutual merges; each is here
    once.
    """
    found: dict[BasePair, BaseStep] = {}
    waiting: list[BasePair] = [(frozenset([one]), other)]
    while waiting:
        pair = waiting.pop()
        if pair in found:
            continue
        bases = merge_bases(commits, sorted(pair[0]), [pair[1]])
        common = tuple((frozenset(bases[:count]), bases[count]) for count in range(1, len(bases)))
        found[pair] = BaseStep(pair, tuple(bases), common)
        waiting += common

    def newest(step: BaseStep) -> int:
        return max(commits[item].graph_version for item in (*step.pair[0], step.pair[1]))

    # Bases are older than what they are the bases of, so every step comes after those that it needs.
    return sorted(found.values(), key=newest)


def base_commits(steps: Sequence[BaseStep]) -> tuple[str, ...]:
    """Every commit whose state a merge looks at, its best base first."""
    return tuple(dict.fromkeys(base for step in reversed(steps) for base in step.bases))


def lasting_bases(commits: Mapping[str, GraphCommit], heads: Iterable[str], limit: int) -> set[str] | None:
    """Every commit that a merge of these heads, or of what they become, can have as a base; None above a limit.

    What is common to later heads is common to some of the present ones, or a base of their bases: so the set is closed
    under bases.
    """
    ancestors: dict[str, set[str]] = {}

    def known(commit_id: str) -> set[str]:
        if commit_id not in ancestors:
            ancestors[commit_id] = set(distances(commits, commit_id))
        return ancestors[commit_id]

    points, found, seen = sorted(set(heads)), set[str](), set[tuple[str, str]]()
    while True:
        pairs = [pair for pair in combinations(points, 2) if pair not in seen]
        if not pairs:
            return found
        for one, other in pairs:
            common = known(one) & known(other)
            for base in sorted(common, key=lambda c: commits[c].graph_version, reverse=True):
                if base in common:
                    found.add(base)
                    common -= known(base)
        seen.update(pairs)
        points = sorted({*points, *found})
        if len(points) > limit:
            return None


def possible_bases(commits: Mapping[str, GraphCommit], heads: Iterable[str]) -> set[str]:
    """Commits from which more than one line goes on, and the heads: whatever can be a base is among them.

    More than `lasting_bases` finds, at a cost that follows the commits alone. If all ways from a common ancestor to two
    lines began with the same commit, that one would be common too, and nearer.
    """
    starts = list(heads)
    children: Counter[str] = Counter()
    for commit_id in distances(commits, *starts):
        children.update({parent for parent in parents(commits[commit_id]) if parent in commits})
    return {*starts, *(commit_id for commit_id, count in children.items() if count > 1)}


def doubled(rows: Iterable[GraphCommit]) -> dict[str, GraphCommit]:
    """Commits that are in the manifest more than once, each with the row that was published first."""
    first: dict[str, GraphCommit] = {}
    found: set[str] = set()
    for row in rows:
        known = first.setdefault(row.commit_id, row)
        if known is not row:
            found.add(row.commit_id)
            if row.graph_version < known.graph_version:
                first[row.commit_id] = row
    return {commit_id: first[commit_id] for commit_id in found}


def disordered(commits: Mapping[str, GraphCommit]) -> list[str]:
    """Commits that were not published after what they build on: only these can close a circle."""
    return sorted(
        commit_id
        for commit_id, commit in commits.items()
        for parent in parents(commit)
        if parent in commits and commits[parent].graph_version >= commit.graph_version
    )


# ---- Commit times


def after_parents(commit: GraphCommit, head: Head, find: Callable[[str], GraphCommit | None]) -> GraphCommit:
    """The commit with a time later than those of its parents; what its writer's clock said stays beside it."""

    def time_of(commit_id: str | None) -> int:
        parent = None if commit_id is None else find(commit_id)
        return -1 if parent is None else parent.created_at

    parent = time_of(commit.parent_id) if head.committed_at is None else head.committed_at
    created_at = max(commit.created_at, parent + 1, time_of(commit.merged_parent_id) + 1)
    written_at = commit.created_at if commit.written_at is None else commit.written_at
    return replace(commit, created_at=created_at, written_at=None if written_at == created_at else written_at)


# ---- The log


@frozen(kw_only=True)
class LoggedCommit(GraphCommit):
    """A commit, and whether it was made on a branch that is gone."""

    branch_deleted: bool


@frozen(kw_only=True)
class Log(Document):
    """Everything that branches build on, newest first, and where they are."""

    commits: tuple[LoggedCommit, ...]
    heads: Mapping[str, str]


def log_of(commits: Iterable[GraphCommit], heads: Mapping[str, Snapshot]) -> Log:
    """The document of `log --graph --json`."""
    return Log(
        commits=tuple(
            LoggedCommit(
                **{item.name: getattr(commit, item.name) for item in fields(GraphCommit)},
                branch_deleted=is_of_deleted_branch(commit, heads),
            )
            for commit in commits
        ),
        heads={name: head.commit_id for name, head in heads.items()},
    )


def is_of_deleted_branch(commit: GraphCommit, heads: Mapping[str, Snapshot]) -> bool:
    """Whether a commit was made on a branch that is gone; one of the same name may have been created since."""
    head = heads.get(commit.branch)
    return head is None or commit.graph_version < head.incarnation
