"""Names of points in time that begin at a branch or a commit: `main~3`, `main^2`, `main@2026-10-01`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omnigraph.commit.lineage import first_parents
from omnigraph.commit.read_target import microseconds
from omnigraph.commit.rows import GraphCommit
from omnigraph.errors import BadRequestError, HistoryReclaimedError, NotFoundError
from omnigraph.frozen import frozen

#: Signs that no branch and no commit has in its name.
_SIGNS = frozenset("~^@")
_FORM = re.compile(r"(?P<base>[^~^@]+)(?:@(?P<moment>[^~^@]+))?(?P<steps>[~^0-9]{0,64})")
_STEP = re.compile(r"([~^])([0-9]*)")
#: Parents of a commit: the one it was made on, and the head that it merged.
_MERGED = 2


@frozen
class Reference:
    """A way to a commit: from a branch or commit, perhaps to a moment of it, then along parents."""

    text: str
    base: str
    moment: str | None
    #: `~` and how many first parents, or `^` and which parent.
    steps: tuple[tuple[str, int], ...]

    @classmethod
    def to_head(cls, branch: str) -> Reference:
        """The way to the newest commit of a branch."""
        return cls(branch, branch, None, ())

    def resolve(self, start: str, commits: Mapping[str, GraphCommit]) -> str:
        """The id of the commit that the way leads to, from the commit of its base.

        Raises:
            NotFoundError: the way leads beyond the first commit of the graph, or to a parent that is not there.
            HistoryReclaimedError: it leads to a commit that a cleanup removed from the history.
            BadRequestError: the moment is not a time.
        """
        current = start
        if self.moment is not None:
            current = self._at(current, microseconds(self.moment), commits)
        for sign, number in self.steps:
            if sign == "~":
                for _ in range(number):
                    current = self._parent(current, commits, is_merged=False)
            elif number:
                current = self._parent(current, commits, is_merged=number == _MERGED)
        return current

    def _at(self, start: str, moment_us: int, commits: Mapping[str, GraphCommit]) -> str:
        """The newest commit at or before a moment."""
        oldest: GraphCommit | None = None
        for commit in first_parents(commits, start):
            if commit.created_at <= moment_us:
                return commit.commit_id
            oldest = commit
        if oldest is not None and oldest.parent_id is not None:
            raise HistoryReclaimedError(oldest.commit_id)
        raise NotFoundError(f"`{self.text}`: {self.base} has no commit at or before {self.moment}")

    def _parent(self, commit_id: str, commits: Mapping[str, GraphCommit], *, is_merged: bool) -> str:
        commit = commits[commit_id]
        parent = commit.merged_parent_id if is_merged else commit.parent_id
        if parent is None:
            reason = "merged nothing" if is_merged else "is the first one of the graph"
            raise NotFoundError(f"`{self.text}` leads to no commit: {commit_id} {reason}")
        if parent not in commits:
            raise HistoryReclaimedError(commit_id)
        return parent


def read_reference(text: object) -> Reference | None:
    """The way to a commit that a text describes; None where it is the plain name of a branch or a commit.

    >>> read_reference("main~3").steps
    (('~', 3),)
    >>> read_reference("main@2026-10-01").moment
    '2026-10-01'
    >>> read_reference("main") is None
    True

    Raises:
        BadRequestError: it has a sign of such a way and another form.
    """
    # Callers without a type checker name a commit by anything.
    if not isinstance(text, str) or _SIGNS.isdisjoint(text := text.strip()):
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadRequestError(
            f"{text!r} names no commit: after a branch or a commit id write `~N` for the Nth commit before, `^2` for "
            "what it merged, or `@TIME` for the newest commit at a time, such as main~3, main^2 and main@2026-10-01"
        )
    steps = tuple((sign, int(number or 1)) for sign, number in _STEP.findall(found["steps"]))
    for sign, number in steps:
        if sign == "^" and number > _MERGED:
            raise BadRequestError(f"{text!r}: a commit has one parent, or two where it merged: `^1` and `^2`")
    return Reference(text, found["base"].strip(), found["moment"], steps)
