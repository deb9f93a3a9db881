"""Lists of commits and branches that show themselves as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.commit.tags import Tag
from omnigraph.core.ids import check_branch_name
from omnigraph.core.values import render_datetime
from omnigraph.display.listings import Listing
from omnigraph.display.tables import Column
from omnigraph.errors import BadRequestError


def check_branch_choice(branch: str, *, all_branches: bool) -> str | None:
    """The branch whose commits are listed, or None for all branches.

    Raises:
        BadRequestError: the name is not one of a branch, or a branch is named beside `all_branches`.
    """
    name = check_branch_name(branch)
    if all_branches and name != MAIN:
        raise BadRequestError(f"give the branch {name} or all_branches, not both")
    return None if all_branches else name


def commit_list(commits: Iterable[GraphCommit], actor: str | None = None) -> list[GraphCommit]:
    """Commits, or those of an actor, as a table of their ids, times, branches, actors and types."""
    chosen = (commit for commit in commits if actor is None or commit.actor == actor)
    return Listing(chosen, _commit_columns, "commit")


def _commit_columns(commits: Sequence[GraphCommit]) -> list[Column]:
    return [
        Column(name="commit", values=[commit.commit_id for commit in commits], is_id=True),
        Column(name="time (UTC)", values=[_moment(commit.created_at) for commit in commits], is_id=True),
        Column(name="branch", values=[commit.branch for commit in commits]),
        Column(name="actor", values=[commit.actor for commit in commits]),
        Column(name="kind", values=[commit.kind for commit in commits]),
        Column(name="types", values=[", ".join(key.name for key in commit.tables) for commit in commits]),
    ]


def _moment(microseconds: int) -> str:
    return render_datetime(microseconds // 1000)[:19].replace("T", " ")


def tag_list(tags: Iterable[Tag]) -> list[Tag]:
    """Tags as a table of their names, commits, times, actors and messages."""
    return Listing(tags, _tag_columns, "tag")


def _tag_columns(tags: Sequence[Tag]) -> list[Column]:
    return [
        Column(name="tag", values=[tag.name for tag in tags]),
        Column(name="commit", values=[tag.commit_id for tag in tags], is_id=True),
        Column(name="created (UTC)", values=[_moment(tag.created_at) for tag in tags], is_id=True),
        Column(name="actor", values=[tag.actor for tag in tags]),
        Column(name="message", values=[tag.message for tag in tags]),
    ]


def branch_list(names: Iterable[str]) -> list[str]:
    """Names of branches."""
    return _Branches(names, lambda names: [Column(name="branch", values=names)], "branch")


class _Branches(Listing[str]):
    """As text a plain list of names, which is short enough."""

    __repr__ = list.__repr__
