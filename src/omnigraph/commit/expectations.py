"""Expectations of a writer about the state that it publishes onto. Pure functions of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from typing_extensions import override

from omnigraph.commit.lineage import walk_back
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.snapshot import ManifestState, Snapshot, check_new_branch, free_fork_name, is_free_fork_name
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BranchesExistError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
)
from omnigraph.frozen import frozen

#: Commits of these kinds change no row, so a caller's expected head survives them.
ROLLBACK_KIND = "rollback"
PHYSICAL_KINDS = frozenset({"optimize", "ensure_indices", ROLLBACK_KIND})

#: Looks one commit up.
Find = Callable[[str], GraphCommit | None]


class Requirement(Protocol):
    """One thing that has to hold beside the versions of tables."""

    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        """Make sure that it holds.

        Raises:
            ConflictError: it does not.
        """


@frozen
class HeadIs(Requirement):
    """The caller's own precondition: the branch is at this commit, or only physical commits followed it."""

    commit_id: str

    @override
    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        if not _is_reached(self.commit_id, head, find, lambda it: it.kind in PHYSICAL_KINDS):
            raise PreconditionFailedError(head.branch, self.commit_id, head.commit_id)


@frozen
class BaseStays(Requirement):
    """Only ordinary commits followed this one, and no merge: the base of a merge into the branch stays the same."""

    commit_id: str

    @override
    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        if not _is_reached(self.commit_id, head, find, lambda it: it.merged_parent_id is None):
            raise ReadSetConflictError(f"branch {head.branch}", self.commit_id, head.commit_id)


@frozen
class NothingFollows(Requirement):
    """The branch is at this very commit: not even a physical one followed."""

    commit_id: str

    @override
    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        if head.commit_id != self.commit_id:
            raise ReadSetConflictError(f"branch {head.branch}", self.commit_id, head.commit_id)


@frozen
class NotPublished(Requirement):
    """There is no commit of this id, on any branch."""

    commit_id: str

    @override
    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        if find(self.commit_id) is not None:
            member = f"commit {self.commit_id}"
            raise ReadSetConflictError(member, None, "it is published already")


@frozen
class OnlyBranch(Requirement):
    """There is no other branch."""

    @override
    def check(self, head: Head, state: ManifestState, find: Find) -> None:
        if others := sorted(set(state.heads) - {head.branch}):
            raise BranchesExistError(others)


@frozen
class NewBranch:
    """A branch that a write makes together with its data; it must not exist yet."""

    name: str
    #: The position that it begins at, as it was read: later commits of its base do not matter to it.
    origin: Head
    #: The Lance branch that its tables fork under.
    fork_name: str

    @classmethod
    def at(cls, state: ManifestState, name: str, base: str) -> NewBranch:
        """A branch that begins at the head of another one.

        Raises:
            BranchNotFoundError: there is no such base.
            BadRequestError: the name is not allowed.
        """
        check_new_branch(state, name)
        return cls(name, state.head(base), free_fork_name(state, name))

    def check(self, state: ManifestState) -> None:
        """Make sure that the branch may still begin there.

        Raises:
            ReadSetConflictError: it was created meanwhile, its fork name is taken, or its base changed.
        """
        self.check_free(state)
        check_new_branch(state, self.name)
        used = [head.fork_name for head in state.all_heads if head.fork_name is not None]
        if not is_free_fork_name(self.fork_name, used):
            member = f"the fork name of branch {self.name}"
            raise ReadSetConflictError(member, None, "another branch took it")
        origin, base = self.origin, state.head(self.origin.branch)
        if base.incarnation != origin.incarnation:
            member = f"branch {origin.branch}"
            raise ReadSetConflictError(member, origin.incarnation, base.incarnation)
        if base.schema_hash != origin.schema_hash:
            raise ReadSetConflictError("the schema", origin.schema_hash, base.schema_hash)

    def check_free(self, state: ManifestState) -> None:
        """Make sure that there is no branch of that name yet.

        Raises:
            ReadSetConflictError: there is.
        """
        if self.name in state.heads:
            raise ReadSetConflictError(f"branch {self.name}", None, "it exists already")


@frozen(kw_only=True)
class Expectations:
    """The state that a writer prepared its work against; it has to hold still when it publishes."""

    branch: str
    incarnation: int
    schema_hash: str
    #: Versions of the tables that the write changes; None for a table that did not exist.
    touched: Mapping[TableKey, int | None] = field(default_factory=dict)
    #: Versions of the tables that were only read to validate.
    read: Mapping[TableKey, int] = field(default_factory=dict)
    requires: tuple[Requirement, ...] = ()
    #: The branch that the write makes; nothing else is expected then.
    new_branch: NewBranch | None = None

    @classmethod
    def of(
        cls, seen: Head | Snapshot, *requires: Requirement, touched: Mapping[TableKey, int | None] | None = None
    ) -> Expectations:
        """Expect the branch that was read, with its schema and these versions of tables."""
        return cls(
            branch=seen.branch,
            incarnation=seen.incarnation,
            schema_hash=seen.schema_hash,
            touched=touched or {},
            requires=requires,
        )

    def check(self, state: ManifestState, find: Find) -> Head:
        """The current head, if every expectation holds; for a new branch the head of its base.

        Raises:
            BranchNotFoundError: the branch is gone.
            ConflictError: something does not hold any more.
            PreconditionFailedError: the caller's expected head differs.
        """
        if self.new_branch is not None:
            self.new_branch.check(state)
            return self.new_branch.origin
        head = state.head(self.branch)
        if head.incarnation != self.incarnation:
            raise ReadSetConflictError(f"branch {self.branch}", self.incarnation, head.incarnation)
        for requirement in self.requires:
            requirement.check(head, state, find)
        if head.schema_hash != self.schema_hash:
            raise ReadSetConflictError("the schema", self.schema_hash, head.schema_hash)
        for key, version in self.touched.items():
            if (actual := _version(head, key)) != version:
                raise ExpectedVersionMismatchError(key, version, actual)
        for key, version in self.read.items():
            if (actual := _version(head, key)) != version:
                raise ReadSetConflictError(key, version, actual)
        return head


def _version(head: Head, key: TableKey) -> int | None:
    return head.pins[key].version if key in head.pins else None


def _is_reached(wanted: str, head: Head, find: Find, may_follow: Callable[[GraphCommit], bool]) -> bool:
    """Whether a branch is at a commit, or only commits followed it that may."""
    if head.commit_id == wanted:
        return True
    for commit in walk_back(head.commit_id, find):
        if commit.commit_id == wanted:
            return True
        if not may_follow(commit):
            break
    return False
