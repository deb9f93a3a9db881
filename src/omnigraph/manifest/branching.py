"""The life of a branch as head rows: where it begins, under which name its tables fork, when it may end.

Pure functions of the state. A branch is a pointer: creating one copies nothing, deleting one removes authority first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, BranchExistsError, ReadSetConflictError
from omnigraph.ids import is_ulid
from omnigraph.manifest.rows import MAIN, Head, branch_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.manifest.state import ManifestState

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
            raise BadRequestError(f"branch {name!r} cannot stand beside branch {other!r}")


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


def branch_at(
    origin: Snapshot, name: str, graph_version: int, fork_name: str, actor: str | None = None
) -> Head:
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


def deleted_branch(
    state: ManifestState,
    name: str,
    graph_version: int,
    actor: str | None = None,
    expected: Head | None = None,
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
    # Without pins: nobody reads it any more, and these rows stay for ever.
    return replace(head, graph_version=graph_version, pins={}, actor=actor, deleted=True)


def _builds_on(other: Head, head: Head) -> bool:
    if other.branch == head.branch:
        return False
    reads = any(pin.branch == head.fork_name for pin in other.pins.values())
    return reads or other.base_key == head.branch_key
