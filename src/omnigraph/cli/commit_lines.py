"""Commits as lines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph.printable import one_line

if TYPE_CHECKING:
    from omnigraph.branches.changes import Cause
    from omnigraph.manifest.rows import GraphCommit

#: Room for the name of a branch: lines of commits with short ones stand in columns.
BRANCH_WIDTH = 8


def commit_line(
    commit: GraphCommit, *, branch: str | None = None, branch_width: int = BRANCH_WIDTH
) -> str:
    """One commit as a line; `branch` is what is said about its branch, if that is not the name alone."""
    name, actor = one_line(branch or commit.branch), one_line(commit.actor or "-")
    when = time_text(commit.created_at)
    return f"{commit.commit_id}  {when}  {name:<{branch_width}} {commit.kind:<14} {actor}"


def cause_line(cause: Cause) -> str:
    """The commit behind a block of changes as a line."""
    merged, actor = cause.merged_parent_commit_id, cause.actor_id
    provenance = "" if merged is None else f", merged {merged}"
    author = "" if actor is None else f" by {one_line(actor)}"
    when = time_text(cause.authored_at)
    return f"commit {cause.graph_commit_id}  {when}  {cause.authored_branch}{author}{provenance}"


def time_text(microseconds: int) -> str:
    """A moment, to the second."""
    return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"
