"""Documents about commits: the log, and what a commit did to the rows of a type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated

from omnigraph.codec import ENTITY_TYPE, Document
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.ids import TableKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit(GraphCommit):
    """A commit, and whether it was made on a branch that is gone."""

    branch_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeChanges(Document):
    """The row changes of a merge in one type of the target."""

    type_key: Annotated[TableKey, ENTITY_TYPE]
    inserted: int
    updated: int
    deleted: int
