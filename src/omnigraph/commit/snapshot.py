"""Snapshots and branch heads from rows of the manifest, and head rows of new and deleted branches. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, ClassVar

from omnigraph.codec import COMPLETE, Document, Key, Through
from omnigraph.commit.rows import (
    INTERNAL_SCHEMA_VERSION,
    MAIN,
    GraphCommit,
    Head,
    PublishedVersion,
    TablePin,
    Tombstone,
    branch_key,
)
from omnigraph.core.ids import TableKey, is_ulid
from omnigraph.errors import BadRequestError, BranchExistsError, BranchNotFoundError, DamageError, ReadSetConflictError
from omnigraph.frozen import frozen

# ---- Snapshots from manifest rows


@frozen(kw_only=True)
class Snapshot(Document):
    """The dataset versions that are visible together at one point of one branch. Immutable."""

    computed: ClassVar = {"internal_schema_version": "commit_id"}

    branch: Annotated[str, Key("graph_branch")]
    graph_version: Annotated[int, Key("graph_manifest_version")]
    commit_id: Annotated[str, Key("graph_commit_id")]
    pins: Annotated[
        Mapping[TableKey, TablePin],
        Key("datasets"),
        Through(
            tuple[TablePin, ...],
            lambda pins: [pins[key] for key in sorted(pins)],
            lambda pins: {pin.table_key: pin for pin in pins},
        ),
    ]
    #: The graph version that created the branch.
    incarnation: Annotated[int, Key("branch_incarnation"), COMPLETE]
    schema_hash: Annotated[str, COMPLETE]
    #: The Lance branch that the branch writes to; None for main.
    fork_name: Annotated[str | None, COMPLETE] = None

    @property
    def internal_schema_version(self) -> int:
        """The storage format of the graph."""
        return INTERNAL_SCHEMA_VERSION


@frozen(kw_only=True, slots=False)
class History:
    """Every row that states of the past follow from."""

    commits: Mapping[str, GraphCommit]
    versions: tuple[PublishedVersion, ...]
    tombstones: tuple[Tombstone, ...]
    #: The newest head row of every branch that ever existed, deleted ones included.
    heads: tuple[Head, ...]
    #: The commits that tags name.
    tagged: frozenset[str] = frozenset()

    @cached_property
    def versions_by_branch(self) -> Mapping[str, list[PublishedVersion]]:
        """Published versions of each branch incarnation, in the order of their publishes."""
        found: defaultdict[str, list[PublishedVersion]] = defaultdict(list)
        for version in sorted(self.versions, key=lambda item: item.graph_version):
            found[version.branch_key].append(version)
        return found


def newest_heads(heads: Iterable[Head]) -> dict[str, Head]:
    """The current position of every live branch."""
    newest = {head.branch: head for head in sorted(heads, key=lambda head: head.graph_version)}
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
        DamageError: the manifest has a commit of a branch that it does not know.
    """
    candidates = (head for head in heads if head.branch == commit.branch and head.incarnation <= commit.graph_version)
    found = max(candidates, key=lambda head: head.incarnation, default=None)
    if found is None:
        raise DamageError(f"reading commit {commit.commit_id}", f"the manifest has no branch {commit.branch!r}")
    return found


def _pins_at(history: History, branch: Head, graph_version: int) -> dict[TableKey, TablePin]:
    """Newest version per table on the branch, else the one inherited at the fork; minus tombstones."""
    inherited: dict[TableKey, TablePin] = {}
    if branch.fork_commit_id is not None:
        if branch.fork_commit_id not in history.commits:
            reason = f"branch {branch.branch} began at commit {branch.fork_commit_id}, which is not there"
            raise DamageError("reading the manifest", reason)
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


# ---- Branch heads


@frozen(kw_only=True)
class ManifestState:
    """The current position of every branch. Immutable."""

    #: Lance version of the manifest that this was read from.
    manifest_version: int
    graph_version: int
    heads: Mapping[str, Head]
    #: Newest head row of every branch incarnation, deleted ones included.
    all_heads: tuple[Head, ...]
    #: The epoch below which no publish is accepted; see `fencing`.
    fence: int = 0

    def head(self, branch: str) -> Head:
        """The position of a live branch.

        Raises:
            BranchNotFoundError: there is none of that name.
        """
        try:
            return self.heads[branch]
        except KeyError:
            raise BranchNotFoundError(branch) from None

    def lines(self) -> set[tuple[str, str | None]]:
        """The lines that live branches read: dataset directories with their Lance branch; None is the main line."""
        heads = self.heads.values()
        return {(pin.location, pin.branch) for head in heads for pin in head.pins.values()}


def newest_per_incarnation(heads: Iterable[Head]) -> tuple[Head, ...]:
    """The newest head row of each branch incarnation."""
    in_order = sorted(heads, key=lambda head: head.graph_version)
    return tuple({(head.branch, head.incarnation): head for head in in_order}.values())


def state_of(heads: Iterable[Head], manifest_version: int, fence: int = 0) -> ManifestState:
    """The state that some head rows make.

    Raises:
        DamageError: there are none.
    """
    newest = newest_per_incarnation(heads)
    if not newest:
        raise DamageError("reading the manifest", "it has no row of any branch")
    return ManifestState(
        manifest_version=manifest_version,
        graph_version=max(head.graph_version for head in newest),
        heads=newest_heads(newest),
        all_heads=newest,
        fence=fence,
    )


# ---- Head rows of new and deleted branches
#
# Pure functions of the state. A branch is a pointer: creating one copies nothing, deleting one removes authority
# first.


#: A fork is one file in Lance whose name holds the name of the branch, every `/` as five characters; no file system
#: takes more than 255.
MAX_BRANCH_NAME = 100
MAX_BRANCH_SEGMENTS = 25


def check_new_branch(state: ManifestState, name: str) -> None:
    """Make sure that a branch of this name can be created.

    Raises:
        BranchExistsError: the name is taken.
        BadRequestError: a prefix of it is taken, so that both would share a directory; it is too long for one; or it
            would be mistaken for a commit.
    """
    if len(name) > MAX_BRANCH_NAME or name.count("/") >= MAX_BRANCH_SEGMENTS:
        raise BadRequestError(
            f"the name of a branch has at most {MAX_BRANCH_NAME} characters and {MAX_BRANCH_SEGMENTS} segments"
        )
    if is_ulid(name):
        raise BadRequestError(f"branch {name!r} would be mistaken for the commit of that id")
    if name == MAIN or name in state.heads:
        raise BranchExistsError(name)
    for other in state.heads:
        if _overlap(name, other):
            raise BadRequestError(f"branch {name!r} conflicts with branch {other!r}")


def free_fork_name(state: ManifestState, name: str) -> str:
    """A Lance branch name that no branch has used before: the name itself, or with a number in its first segment.

    What is left of an earlier branch of this name is thereby never taken for this one, neither by caches nor by
    snapshots, and may stay as long as a merge needs it.
    """
    used = [head.fork_name for head in state.all_heads if head.fork_name is not None]
    first, slash, rest = name.partition("/")
    candidate, number = name, 1
    while not is_free_fork_name(candidate, used):
        # In the first segment: what was used may be a directory above.
        number += 1
        candidate = f"{first}.{number}{slash}{rest}"
    return candidate


def is_free_fork_name(candidate: str, used: Iterable[str]) -> bool:
    """Whether the directory of a fork would neither be nor hold nor lie in another one."""
    return not any(candidate == other or _overlap(candidate, other) for other in used)


def _overlap(one: str, other: str) -> bool:
    return other.startswith(f"{one}/") or one.startswith(f"{other}/")


def branch_at(origin: Snapshot, name: str, graph_version: int, fork_name: str, actor: str | None = None) -> Head:
    """The first position of a branch that begins at a snapshot."""
    return Head(
        branch=name,
        incarnation=graph_version,
        graph_version=graph_version,
        commit_id=origin.commit_id,
        fork_commit_id=origin.commit_id,
        base_key=branch_key(origin.branch, origin.incarnation),
        fork_name=fork_name,
        schema_hash=origin.schema_hash,
        pins=origin.pins,
        actor=actor,
    )


def check_untagged(head: Head, tagged: Mapping[str, GraphCommit]) -> None:
    """Make sure that no tag names a commit that was made on a branch: its rows would go with the branch.

    `tagged` are the commits by the names of their tags.

    Raises:
        BadRequestError: one does.
    """
    names = sorted(
        name
        for name, commit in tagged.items()
        if commit.branch == head.branch and commit.graph_version > head.incarnation
    )
    if names:
        raise BadRequestError(
            f"branch {head.branch!r} cannot be deleted: its commits have the tags {', '.join(names)}; "
            "delete these first, or tag the merge instead"
        )


def deleted_branch(
    state: ManifestState, name: str, graph_version: int, actor: str | None = None, expected: Head | None = None
) -> Head:
    """The last head row of a branch; with `expected` only if it is still there.

    Raises:
        BranchNotFoundError: there is no such branch.
        ReadSetConflictError: it is not where it was expected.
        BadRequestError: it is main, or other branches build on it.
    """
    if name == MAIN:
        raise BadRequestError("main cannot be deleted")
    head = state.head(name)
    if expected is not None and head.commit_id != expected.commit_id:
        raise ReadSetConflictError(f"branch {name}", expected.commit_id, head.commit_id)
    if expected is not None and head.incarnation != expected.incarnation:
        raise ReadSetConflictError(f"branch {name}", expected.incarnation, head.incarnation)
    children = sorted(other.branch for other in state.heads.values() if _builds_on(other, head))
    if children:
        raise BadRequestError(
            f"branch {name!r} cannot be deleted: {', '.join(children)} began at it or reads its tables; "
            "delete these first"
        )
    # Without pins: a deleted branch is never read, and these rows stay for ever.
    return replace(head, graph_version=graph_version, pins={}, actor=actor, deleted=True)


def _builds_on(other: Head, head: Head) -> bool:
    if other.branch == head.branch:
        return False
    reads = any(pin.branch == head.fork_name for pin in other.pins.values())
    return reads or other.base_key == head.branch_key
