"""What a writer saw when it prepared its work, and whether all of it still holds. Pure functions of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.commit.lineage import walk_back
from omnigraph.commit.snapshot import ManifestState, check_new_branch, is_free_fork_name
from omnigraph.errors import (
    BranchesExistError,
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
)

if TYPE_CHECKING:
    from omnigraph.commit.rows import GraphCommit, Head
    from omnigraph.core.ids import TableKey

#: Commits of these kinds change no row, so a caller's expected head survives them.
ROLLBACK_KIND = "rollback"
PHYSICAL_KINDS = frozenset({"optimize", "ensure_indices", ROLLBACK_KIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a writer saw when it prepared its work; all of it has to hold still when it publishes."""

    branch: str
    incarnation: int
    schema_hash: str
    #: Versions of the tables that the write changes; None for a table that did not exist.
    touched: Mapping[TableKey, int | None] = field(default_factory=dict)
    #: Versions of the tables that were only read to validate.
    read: Mapping[TableKey, int] = field(default_factory=dict)
    #: The caller's own precondition on the branch head.
    head_commit: str | None = None
    #: The commit that the branch was at; ordinary commits since then do not matter, merges into it do.
    position: str | None = None
    #: The position that a new branch begins at, as it was read: later commits of its base do not matter to it. The
    #: branch must not exist yet.
    fork_of: Head | None = None
    #: The Lance branch that the tables of a new branch were forked under.
    fork_name: str | None = None
    #: Whether no other branch may exist.
    is_sole: bool = False
    #: The very commit that the branch is at: not even a physical one may have followed.
    exact_head: str | None = None
    #: The id of a commit that may not have been published, on any branch.
    unpublished: str | None = None


def check_expectations(
    expectations: Expectations,
    state: ManifestState,
    find: Callable[[str], GraphCommit | None],
) -> Head:
    """The current head, if every expectation holds; for a new branch the head of its base.

    Raises:
        ConflictError: one does not hold any more.
        PreconditionFailedError: the caller's expected head differs.
    """
    if expectations.fork_of is not None:
        return _check_fork(expectations, expectations.fork_of, state)
    name = expectations.branch
    head = state.heads.get(name)
    if head is None:
        raise BranchNotFoundError(name)
    if head.incarnation != expectations.incarnation:
        raise ReadSetConflictError(f"branch {name}", expectations.incarnation, head.incarnation)
    if expectations.exact_head not in (None, head.commit_id):
        raise ReadSetConflictError(f"branch {name}", expectations.exact_head, head.commit_id)
    if expectations.unpublished is not None and find(expectations.unpublished) is not None:
        member = f"commit {expectations.unpublished}"
        raise ReadSetConflictError(member, None, "it is published already")
    others = sorted(set(state.heads) - {name})
    if expectations.is_sole and others:
        raise BranchesExistError(others)
    if expectations.head_commit is not None:
        _check_head(expectations.head_commit, head, find)
    if expectations.position is not None:
        _check_position(expectations.position, head, find)
    if head.schema_hash != expectations.schema_hash:
        raise ReadSetConflictError("the schema", expectations.schema_hash, head.schema_hash)
    for key, version in expectations.touched.items():
        actual = head.pins[key].version if key in head.pins else None
        if actual != version:
            raise ExpectedVersionMismatchError(key, version, actual)
    for key, version in expectations.read.items():
        actual = head.pins[key].version if key in head.pins else None
        if actual != version:
            raise ReadSetConflictError(key, version, actual)
    return head


def _check_head(wanted: str, head: Head, find: Callable[[str], GraphCommit | None]) -> None:
    """The caller's expected commit, or one that only physical commits followed."""
    for commit in walk_back(head.commit_id, find):
        if commit.commit_id == wanted:
            return
        if commit.kind not in PHYSICAL_KINDS:
            break
    raise PreconditionFailedError(head.branch, wanted, head.commit_id)


def _check_position(position: str, head: Head, find: Callable[[str], GraphCommit | None]) -> None:
    """The expected position, or one that only ordinary commits followed: the base of a merge stays the same."""
    for commit in walk_back(head.commit_id, find):
        if commit.commit_id == position:
            return
        if commit.merged_parent_id is not None:
            break
    raise ReadSetConflictError(f"branch {head.branch}", position, head.commit_id)


def _check_fork(expectations: Expectations, origin: Head, state: ManifestState) -> Head:
    """The position that a new branch begins at, if it may still begin there."""
    if expectations.branch in state.heads:
        raise ReadSetConflictError(f"branch {expectations.branch}", None, "it exists already")
    check_new_branch(state, expectations.branch)
    used = [head.fork_name for head in state.all_heads if head.fork_name is not None]
    if not is_free_fork_name(str(expectations.fork_name), used):
        member = f"the fork name of branch {expectations.branch}"
        raise ReadSetConflictError(member, None, "another branch took it")
    base = state.head(origin.branch)
    if base.incarnation != origin.incarnation:
        member = f"branch {origin.branch}"
        raise ReadSetConflictError(member, origin.incarnation, base.incarnation)
    if base.schema_hash != expectations.schema_hash:
        raise ReadSetConflictError("the schema", expectations.schema_hash, base.schema_hash)
    return origin
