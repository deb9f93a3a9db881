"""Lists of commits and branches that show themselves as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.commit.rows import GraphCommit
from omnigraph.core.values import render_datetime
from omnigraph.display.listings import Listing
from omnigraph.display.tables import Column


def commit_list(commits: Iterable[GraphCommit]) -> list[GraphCommit]:
    """Commits as a table of their ids, times, branches, actors and types."""
    return Listing(commits, _commit_columns, "commit")


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


def branch_list(names: Iterable[str]) -> list[str]:
    """Names of branches."""
    return _Branches(names, lambda names: [Column(name="branch", values=names)], "branch")


class _Branches(Listing[str]):
    """As text a plain list of names, which is short enough."""

    __repr__ = list.__repr__
