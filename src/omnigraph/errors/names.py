"""Names of states: branches, commits and tags that are not there, taken, or mean several."""

from __future__ import annotations

from typing import Annotated

from omnigraph.codec import OMIT_NONE
from omnigraph.errors.requests import MAX_DIAGNOSTICS, BadRequestError, NotFoundError

#: How many commits a message lists.
_SHOWN_COMMITS = 5


class BranchNotFoundError(NotFoundError):
    """No branch of that name exists."""

    kind = "branch_not_found"
    branch: str
    #: What may be meant.
    hint: Annotated[str | None, OMIT_NONE]

    def __init__(self, branch: str, hint: str | None = None) -> None:
        self.branch = branch
        self.hint = hint
        super().__init__(f"there is no branch `{branch}`" + (f": {hint}" if hint else ""))


class CommitNotFoundError(NotFoundError):
    """No commit has this id, or an id that begins or ends with it; `candidates` are ids that are near."""

    kind = "commit_not_found"
    commit: str
    candidates: tuple[str, ...]

    def __init__(self, commit: object, candidates: tuple[str, ...] = ()) -> None:
        # Callers without a type checker name it by anything.
        self.commit = str(commit)
        self.candidates = candidates
        hint = f": did you mean {' or '.join(candidates)}?" if candidates else ""
        super().__init__(f"there is no commit {commit}{hint}")


class AmbiguousCommitError(BadRequestError):
    """Several commit ids begin or end with the given letters. `candidates` lists the first of them."""

    kind = "ambiguous_commit"
    commit: str
    candidates: tuple[str, ...]

    def __init__(self, commit: str, candidates: tuple[str, ...]) -> None:
        self.commit = commit
        self.candidates = candidates[:MAX_DIAGNOSTICS]
        hidden = len(candidates) - _SHOWN_COMMITS
        listing = ", ".join([*candidates[:_SHOWN_COMMITS], *([f"and {hidden:,} more"] if hidden > 0 else [])])
        super().__init__(f"{len(candidates):,} commit ids begin or end with {commit}: {listing}; give more letters")


class BranchExistsError(BadRequestError):
    """A branch of that name exists already; nothing happened."""

    kind = "branch_exists"
    code = "conflict"
    http_status = 409
    branch: str

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(f"branch {branch!r} exists already")


class TagNotFoundError(NotFoundError):
    """No tag of that name exists."""

    kind = "tag_not_found"
    tag: str
    #: What may be meant.
    hint: Annotated[str | None, OMIT_NONE]

    def __init__(self, tag: str, hint: str | None = None) -> None:
        self.tag = tag
        self.hint = hint
        super().__init__(f"there is no tag `{tag}`" + (f": {hint}" if hint else ""))


class TagExistsError(BadRequestError):
    """A tag of that name exists already, and tags do not move; nothing happened."""

    kind = "tag_exists"
    code = "conflict"
    http_status = 409
    tag: str

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"tag {tag!r} exists already, and tags do not move: delete it first, or take another name")
