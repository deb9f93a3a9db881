"""Failures of changes and their feed: what cannot be told, and tokens that do not belong here."""

from __future__ import annotations

from omnigraph.errors.base import OmniError
from omnigraph.errors.requests import BadRequestError


class ChangeDiffRefusedError(OmniError):
    """The changes of a commit cannot be told exactly, and are not guessed."""

    code = "conflict"
    http_status = 409
    reason = ""

    def __init__(self, message: str, commit_id: str, type_name: str | None = None) -> None:
        self.commit_id = commit_id
        self.type_name = type_name
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """`change_diff_refusal` with the reason."""
        refusal: dict[str, object] = {"reason": self.reason, "graph_commit_id": self.commit_id}
        if self.type_name is not None:
            refusal["type_name"] = self.type_name
        return {"change_diff_refusal": refusal}


class CommitHasNoParentError(ChangeDiffRefusedError):
    """The first commit of a graph has no changes: there is nothing before it."""

    kind = "commit_has_no_parent"
    reason = "parentless_commit"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"commit {commit_id} is the first one of the graph: it has no parent to be compared with",
            commit_id,
        )


class ChangeSchemaBoundaryError(ChangeDiffRefusedError):
    """The schema of a type with data changed between a commit and its parent."""

    kind = "change_schema_boundary"
    reason = "schema_boundary"

    def __init__(self, commit_id: str, type_name: str) -> None:
        super().__init__(
            f"commit {commit_id} changed the schema of {type_name}: rows before and after it do not compare; "
            "take a new baseline",
            commit_id,
            type_name,
        )


class ChangeCursorRejectedError(BadRequestError):
    """A cursor or page token is damaged, or belongs to another graph, branch, filter or call."""

    kind = "change_cursor_rejected"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"change cursor rejected: {reason}")

    def details(self) -> dict[str, object]:
        """`change_cursor_rejected` with the reason."""
        return {"change_cursor_rejected": {"reason": self.reason}}


class ChangeFeedGapError(OmniError):
    """History that a feed has to go through was cleaned up. Trying again cannot help: take a new baseline."""

    kind = "change_feed_gap"
    code = None
    http_status = 410

    def __init__(self, commit_id: str, cursor: str | None = None) -> None:
        self.commit_id = commit_id
        self.cursor = cursor
        super().__init__(
            f"the changes of commit {commit_id} were cleaned up: take a new baseline and go on from its cursor"
        )

    def details(self) -> dict[str, object]:
        """`change_feed_gap` with the first commit that cannot be read."""
        gap: dict[str, object] = {"first_unreadable_commit_id": self.commit_id}
        if self.cursor is not None:
            gap["cursor"] = self.cursor
        return {"change_feed_gap": gap}
