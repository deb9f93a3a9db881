"""When a commit was made: the clocks of writers differ and go backwards, the times of commits do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.manifest.rows import GraphCommit, Head


def after_parents(
    commit: GraphCommit, head: Head, find: Callable[[str], GraphCommit | None]
) -> GraphCommit:
    """The commit with a time later than those of its parents; what its writer's clock said stays beside it."""

    def time_of(commit_id: str | None) -> int:
        parent = None if commit_id is None else find(commit_id)
        return -1 if parent is None else parent.created_at

    parent = time_of(commit.parent_id) if head.committed_at is None else head.committed_at
    created_at = max(commit.created_at, parent + 1, time_of(commit.merged_parent_id) + 1)
    written_at = commit.created_at if commit.written_at is None else commit.written_at
    return replace(
        commit,
        created_at=created_at,
        written_at=None if written_at == created_at else written_at,
    )
