"""What a cleanup keeps: policy, reachable commits, and versions that may go."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.commit.leftovers import staged_max_age_s
from omnigraph.commit.lineage import (
    distances,
    first_parents,
    lasting_bases,
    parents,
    possible_bases,
)
from omnigraph.commit.rows import MAIN, GraphCommit, Head, PublishedVersion, Tombstone, version_row
from omnigraph.commit.sidecar import list_sidecars, read_sidecar
from omnigraph.commit.snapshot import History, branch_of
from omnigraph.core.env_settings import duration_s
from omnigraph.errors import StorageError
from omnigraph.storage.datasets.versions import (
    DatasetListing,
    VersionRemoval,
    list_versions,
    plan_removal,
)
from omnigraph.storage.listing import StoredFile, is_deletable, list_dataset_folders, list_files
from omnigraph.storage.location import RECLAIMED_MARK

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment
    from omnigraph.core.ids import TableKey


# ---- What a cleanup keeps: a pure function from the rows of the catalog and a policy to commits and dataset
#      versions


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


# ---- Which rows the history needs no more, once old commits may be forgotten: a pure function of the rows


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
        kept |= _pruned_forks(history, kept) | _schema_commits(commits, kept)
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


def _pruned_forks(history: History, kept: Iterable[str]) -> set[str]:
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


# ---- Which versions of which datasets go: facts from catalog and storage, put together with a policy
#
# Nothing is removed here. A plan is made without any lock; whoever carries it out asks again, under the commit lock,
# what has to be kept by then.


READER_GRACE = "OMNIGRAPH_READER_GRACE"
_DEFAULT_READER_GRACE = "1h"
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """What is to happen to one dataset."""

    path: str
    type_key: str
    listing: DatasetListing | None = None
    removal: VersionRemoval | None = None
    #: Every file, when no snapshot that stays reads the dataset.
    dropped_files: tuple[StoredFile, ...] | None = None
    #: Whether any commit ever showed it; else its creation was never published.
    is_known: bool = True
    error: str | None = None
    #: Whether the error is a HEAD that the catalog does not know: a writer may just have moved it.
    has_drift: bool = False

    def is_older_than(self, limit_s: float) -> bool:
        """Whether every file of a dataset that is to go was written before a moment."""
        return all(file.modified_s < limit_s for file in self.dropped_files or ())

    @property
    def versions_kept(self) -> int:
        """How many versions stay."""
        if self.listing is None or self.dropped_files is not None:
            return 0
        going = 0 if self.removal is None else self.removal.version_count
        return sum(len(line.versions) for line in self.listing.lines) - going


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What is to go, and what was kept for it."""

    history: History
    retained: Retained
    datasets: tuple[DatasetPlan, ...]
    has_readers: bool

    @property
    def has_failures(self) -> bool:
        """Whether a dataset could not be read."""
        return any(item.error is not None and not item.has_drift for item in self.datasets)

    def contradicts(self, retained: Retained) -> bool:
        """Whether something that is to go has to be kept by now."""
        for item in self.datasets:
            if item.dropped_files is not None and any(
                path == item.path for path, _ in retained.versions
            ):
                return True
            going = {} if item.removal is None else item.removal.versions
            for fork, versions in going.items():
                if not versions.isdisjoint(retained.versions.get((item.path, fork), ())):
                    return True
        return False


def reader_grace_us() -> int:
    """For how long a state stays after it was at the head of a branch, while somebody may read it."""
    return int(duration_s(READER_GRACE, _DEFAULT_READER_GRACE) * _MICROSECONDS)


def is_busy(environment: GraphEnvironment) -> bool:
    """Whether somebody may be reading old states: a read, or a writer that prepares its work."""
    with environment.staging.try_exclusive() as is_alone:
        return not is_alone or environment.reading.has_readers()


def retained_now(
    environment: GraphEnvironment, history: History, policy: RetentionPolicy, *, has_readers: bool
) -> Retained:
    """What has to be kept at this moment."""
    return plan_retention(
        history,
        policy,
        environment.clock(),
        reader_grace_us=reader_grace_us() if has_readers else None,
        named=_named_by_sidecars(environment),
    )


def _named_by_sidecars(environment: GraphEnvironment) -> Iterator[tuple[str, str | None, int]]:
    """Versions that interrupted writes name: recovery looks at them, and may return to them."""
    for name in list_sidecars(environment.objects):
        sidecar = read_sidecar(environment.objects, name)
        for table in () if sidecar is None else sidecar.tables:
            numbers = (table.expected_version, table.post_commit_pin, table.confirmed_version)
            for version in numbers:
                if version is not None:
                    yield table.table_path, table.table_branch, version


def plan_cleanup(
    environment: GraphEnvironment,
    policy: RetentionPolicy,
    gone_forks: Collection[tuple[str, str]] = (),
) -> CleanupPlan:
    """What can go. Reads the catalog, and lists every dataset.

    Forks in `gone_forks` are left out, as if they were removed already.

    Raises:
        RecoveryRequiredError: a sidecar cannot be read, so that nobody knows what recovery needs.
    """
    has_readers = is_busy(environment)
    history = environment.manifest.history()
    retained = retained_now(environment, history, policy, has_readers=has_readers)
    names = type_keys(history)
    paths = sorted({*names, *list_dataset_folders(environment.location)})
    without = defaultdict[str, set[str | None]](set)
    for path, fork in gone_forks:
        without[path].add(fork)
    planner = _Planner(environment, retained, published_heads(history), without)
    plans = [planner.plan(path, names.get(path)) for path in paths]
    if has_readers:
        # A writer may be about to publish it: only its age tells that it was forgotten.
        limit_s = environment.clock() / _MICROSECONDS - staged_max_age_s()
        plans = [item for item in plans if item.is_known or item.is_older_than(limit_s)]
    return CleanupPlan(
        history=history, retained=retained, datasets=tuple(plans), has_readers=has_readers
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    environment: GraphEnvironment
    retained: Retained
    published: Mapping[Line, int]
    without: Mapping[str, set[str | None]]

    def plan(self, path: str, known_as: str | None) -> DatasetPlan:
        location, type_key = self.environment.location, known_as or path
        try:
            if not any(held == path for held, _ in self.retained.versions):
                # The mark of a dataset that is gone stays as long as the history knows it.
                mark = None if known_as is None else f"{path}/{RECLAIMED_MARK}"
                files = tuple(
                    file
                    for file in list_files(location, path)
                    if file.name != mark and is_deletable(file.name)
                )
                return DatasetPlan(
                    path=path,
                    type_key=type_key,
                    dropped_files=files,
                    is_known=known_as is not None,
                )
            listing = list_versions(location, path, self.without.get(path, ()))
            if (drift := find_drift(listing, self.published, self.retained)) is not None:
                return DatasetPlan(
                    path=path, type_key=type_key, listing=listing, error=drift, has_drift=True
                )
            removal = plan_removal(location, listing, self._going(listing))
        except StorageError as error:
            return DatasetPlan(path=path, type_key=type_key, error=error.message)
        return DatasetPlan(path=path, type_key=type_key, listing=listing, removal=removal)

    def _going(self, listing: DatasetListing) -> dict[str | None, frozenset[int]]:
        """All versions but those that snapshots need, that Lance refers to, and HEAD."""
        return {
            line.fork: line.versions
            - self.retained.versions.get((listing.path, line.fork), frozenset())
            - line.held
            - {line.head}
            for line in listing.lines
        }


def find_drift(
    listing: DatasetListing, published: Mapping[Line, int], retained: Retained
) -> str | None:
    """What is wrong with the HEADs of a dataset, if one is past everything that was published."""
    for line in listing.lines:
        known = published.get((listing.path, line.fork))
        named = retained.versions.get((listing.path, line.fork), frozenset())
        if known is not None and line.head > known and line.head not in named:
            where = "" if line.fork is None else f" of the fork {line.fork}"
            return (
                f"HEAD{where} is at version {line.head}, and the catalog knows version {known}: "
                "look with `omnigraph repair` first"
            )
    return None


def published_heads(history: History) -> dict[Line, int]:
    """The newest version that was published on each line that a live branch reads."""
    live = {
        (pin.location, pin.branch)
        for head in history.heads
        if not head.deleted
        for pin in head.pins.values()
    }
    newest: dict[Line, int] = {}
    for row in history.versions:
        line = (row.pin.location, row.pin.branch)
        if line in live:
            newest[line] = max(row.pin.version, newest.get(line, 0))
    return newest


def type_keys(history: History) -> dict[str, str]:
    """The newest name of the type behind every dataset that the catalog knows."""
    found: dict[str, str] = {}
    for row in sorted(history.versions, key=lambda item: item.graph_version):
        found[row.pin.location] = row.pin.table_key
    return found
