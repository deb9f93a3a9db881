"""What is visible when: pure functions from catalog rows to snapshots."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.errors import DamageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph.ids import TableKey
    from omnigraph.manifest.rows import GraphCommit, Head, PublishedVersion, TablePin, Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The dataset versions that are visible together at one point of one branch. Immutable."""

    branch: str
    #: The graph version that created the branch.
    incarnation: int
    graph_version: int
    commit_id: str
    schema_hash: str
    pins: Mapping[TableKey, TablePin]
    #: The Lance branch that the branch writes to; None for main.
    fork_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    """Every row that states of the past follow from."""

    commits: Mapping[str, GraphCommit]
    versions: tuple[PublishedVersion, ...]
    tombstones: tuple[Tombstone, ...]
    #: The newest head row of every branch that ever existed, deleted ones included.
    heads: tuple[Head, ...]

    @cached_property
    def versions_by_branch(self) -> Mapping[str, list[PublishedVersion]]:
        """Published versions of each branch incarnation, in the order of their publishes."""
        found: defaultdict[str, list[PublishedVersion]] = defaultdict(list)
        for version in sorted(self.versions, key=lambda item: item.graph_version):
            found[version.branch_key].append(version)
        return found


def newest_heads(heads: Iterable[Head]) -> dict[str, Head]:
    """The current position of every live branch."""
    newest: dict[str, Head] = {}
    for head in heads:
        known = newest.get(head.branch)
        if known is None or head.graph_version > known.graph_version:
            newest[head.branch] = head
    return {name: head for name, head in newest.items() if not head.deleted}


def snapshot_of(head: Head) -> Snapshot:
    """The snapshot at a branch position."""
    return Snapshot(
        branch=head.branch,
        incarnation=head.incarnation,
        graph_version=head.graph_version,
        commit_id=head.commit_id,
        schema_hash=head.schema_hash,
        pins=head.pins,
        fork_name=head.fork_name,
    )


def snapshot_at(history: History, commit_id: str) -> Snapshot:
    """The snapshot right after a commit, rebuilt from the rows alone.

    Raises:
        KeyError: there is no such commit.
    """
    commit = history.commits[commit_id]
    branch = branch_of(history.heads, commit)
    return Snapshot(
        branch=commit.branch,
        incarnation=branch.incarnation,
        graph_version=commit.graph_version,
        commit_id=commit_id,
        schema_hash=commit.schema_hash,
        pins=_pins_at(history, branch, commit.graph_version),
        fork_name=branch.fork_name,
    )


def branch_of(heads: Iterable[Head], commit: GraphCommit) -> Head:
    """The newest head of the branch incarnation on which a commit was made; a deleted one says so.

    Raises:
        DamageError: the catalog has a commit of a branch that it does not know.
    """
    candidates = (
        head
        for head in heads
        if head.branch == commit.branch and head.incarnation <= commit.graph_version
    )
    found = max(candidates, key=lambda head: head.incarnation, default=None)
    if found is None:
        raise DamageError(
            f"reading commit {commit.commit_id}", f"the catalog has no branch {commit.branch!r}"
        )
    return found


def _pins_at(history: History, branch: Head, graph_version: int) -> dict[TableKey, TablePin]:
    """Newest version per table on the branch, else the one inherited at the fork; minus tombstones."""
    inherited: dict[TableKey, TablePin] = {}
    if branch.fork_commit_id is not None:
        if branch.fork_commit_id not in history.commits:
            reason = f"branch {branch.branch} began at commit {branch.fork_commit_id}, which is not there"
            raise DamageError("reading the catalog", reason)
        inherited = dict(snapshot_at(history, branch.fork_commit_id).pins)
    newest: dict[TableKey, PublishedVersion] = {}
    for version in history.versions_by_branch.get(branch.branch_key, ()):
        if version.graph_version > graph_version:
            break
        newest[version.pin.table_key] = version
    visible = {
        key: version
        for key, version in newest.items()
        if not _is_hidden(history, version.pin, version.graph_version, graph_version)
    }
    kept = {
        key: pin
        for key, pin in inherited.items()
        if key not in newest and not _is_hidden(history, pin, 0, graph_version)
    }
    return kept | {key: version.pin for key, version in visible.items()}


def _is_hidden(history: History, pin: TablePin, published: int, graph_version: int) -> bool:
    """Whether a tombstone made after the entry, and not after `graph_version`, hides it."""
    return any(
        stone.table_key == pin.table_key
        and stone.incarnation == pin.incarnation
        and published < stone.graph_version <= graph_version
        and pin.version <= stone.version
        for stone in history.tombstones
    )
