"""The change feed of a branch: its commits oldest first, each as one block of changes, from any point on.

Readers keep a cursor and nothing else; the graph keeps nothing for them. A cursor stands behind whole commits. A page
that ends inside of one carries a page token, which is good for the rest of the same poll.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated

from omnigraph.branches.changes import (
    Cause,
    Change,
    CommitChanges,
    PageBudget,
    Position,
    cause_of,
    check_binding,
    decode_token,
    encode_token,
)
from omnigraph.branches.deltas import ChangeFilter
from omnigraph.codec import OMIT_NONE, Document, Key, When
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.targets import commits_named, one_commit
from omnigraph.errors import (
    BadRequestError,
    ChangeCursorRejectedError,
    ChangeFeedGapError,
    HistoricalVersionReclaimedError,
    HistoryReclaimedError,
    ResourceLimitError,
)
from omnigraph.frozen import frozen

DEFAULT_POLL_COMMITS = 128
MAX_POLL_COMMITS = 512

NOW = "now"
BEGINNING = "beginning"
AFTER = "after:"
_CURSOR, _PAGE = "cursor", "page"


@frozen(kw_only=True)
class ChangeBlock(Document):
    """Changes of one commit; not complete when the rest of them is on the next page."""

    cause: Cause
    changes: tuple[Change, ...]
    is_complete: Annotated[bool, Key("complete")] = True


_IsLast = When(lambda page: page.next_page_token is None)


@frozen(kw_only=True)
class FeedPage(Document):
    """One page of a poll: with a page token there are more, with a cursor the poll is over.

    `caught_up` says that the cursor stands at the head that the poll found.
    """

    blocks: tuple[ChangeBlock, ...]
    next_page_token: Annotated[str | None, OMIT_NONE] = None
    cursor: Annotated[str | None, _IsLast] = None
    caught_up: Annotated[bool, _IsLast] = False


@frozen(kw_only=True)
class FeedCall:
    """One call: where to begin, and how much to tell."""

    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    limit: int
    max_bytes: int
    max_commits: int = DEFAULT_POLL_COMMITS

    def __post_init__(self) -> None:
        given = [item for item in (self.cursor, self.start, self.page_token) if item is not None]
        if len(given) > 1:
            raise BadRequestError("give one of cursor, start and page token")
        if self.max_commits < 1:
            raise BadRequestError("a poll looks at one commit at least")
        if self.max_commits > MAX_POLL_COMMITS:
            raise ResourceLimitError(
                "change_feed_commits_per_poll", MAX_POLL_COMMITS, self.max_commits, "poll again from the cursor"
            )


@frozen(kw_only=True, slots=False)
class Feed:
    """The feed of a branch, as one call sees it."""

    head: Head
    filter: ChangeFilter
    #: The first commit that the graph ever had: cursors of another graph have another one.
    genesis: str
    #: The commits of the branch, oldest first, as far as the history goes.
    line: list[GraphCommit]
    #: The changes of one commit.
    changes_of: Callable[[GraphCommit], CommitChanges]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The positions of commits on the line."""
        return {commit.commit_id: place for place, commit in enumerate(self.line)}

    @property
    def is_cut(self) -> bool:
        """Whether commits before the line were cleaned up from the history."""
        return self.line[0].parent_id is not None

    # ---- tokens

    def cursor_at(self, commit_id: str) -> str:
        """The cursor behind a commit."""
        return encode_token({"t": _CURSOR, "c": commit_id, **self._binding()})

    def _binding(self) -> dict[str, object]:
        return {"g": self.genesis, "b": self.head.branch, "i": self.head.incarnation, "f": self.filter.digest}

    def _decode(self, token: str, kind: str) -> dict[str, object]:
        body = decode_token(token)
        binding = self._binding()
        check_binding(
            body,
            {
                "t": (kind, f"it is not a {'page token' if kind == _PAGE else kind}"),
                "g": (binding["g"], "it belongs to another graph"),
                "b": (binding["b"], f"it belongs to branch {body.get('b')}"),
                "i": (binding["i"], "the branch was deleted and made again"),
                "f": (binding["f"], "it was made with another filter"),
            },
        )
        return body

    # ---- polling

    def poll(self, call: FeedCall) -> FeedPage:
        """The next page.

        Raises:
            ChangeCursorRejectedError: the cursor or token does not belong here.
            ChangeFeedGapError: history that has to be told was cleaned up.
            ChangeSchemaBoundaryError: a commit on the way changed the schema of a type with data.
        """
        budget = PageBudget.of(call.limit, call.max_bytes)
        place, cut, position = self._beginning(call)
        blocks: list[ChangeBlock] = []
        while place < cut:
            commit = self.line[place + 1]
            is_first = not any(block.changes for block in blocks)
            try:
                block = self._block(commit, position, budget, is_first=is_first)
            except (HistoricalVersionReclaimedError, HistoryReclaimedError) as error:
                raise ChangeFeedGapError(commit.commit_id, call.cursor) from error
            if not block.is_complete:
                # Without any change yet, the block belongs to the next page as a whole.
                if block.changes:
                    position = Position.of(block.changes[-1].type_id, block.changes[-1].id)
                    blocks.append(block)
                token = self._page_token(place, cut, position)
                return FeedPage(blocks=tuple(blocks), next_page_token=token)
            blocks.append(block)
            place, position = place + 1, None
        return FeedPage(
            blocks=tuple(blocks),
            cursor=self.cursor_at(self.line[place].commit_id),
            caught_up=place == len(self.line) - 1,
        )

    def _block(
        self, commit: GraphCommit, position: Position | None, budget: PageBudget, *, is_first: bool
    ) -> ChangeBlock:
        """The changes of a commit behind a position, as many as fit."""
        changes: list[Change] = []
        is_complete = True
        for change in self.changes_of(commit).after(position):
            if not budget.takes(change, is_first=is_first and not changes):
                is_complete = False
                break
            changes.append(change)
        return ChangeBlock(cause=cause_of(commit), changes=tuple(changes), is_complete=is_complete)

    def _page_token(self, place: int, cut: int, position: Position | None) -> str:
        return encode_token(
            {
                "t": _PAGE,
                "c": self.line[place].commit_id,
                "h": self.line[cut].commit_id,
                "p": None if position is None else position.to_json(),
                **self._binding(),
            }
        )

    def _beginning(self, call: FeedCall) -> tuple[int, int, Position | None]:
        """The last commit returned in full, the last one of this poll, and the position in a partly returned one."""
        if call.page_token is not None:
            body = self._decode(call.page_token, _PAGE)
            position = None if body.get("p") is None else Position.from_json(body["p"])
            return self._place(body.get("c")), self._place(body.get("h")), position
        last = len(self.line) - 1
        if call.cursor is not None:
            place = self._place(self._decode(call.cursor, _CURSOR).get("c"), call.cursor)
        else:
            place = self._start(NOW if call.start is None else call.start)
        return place, min(last, place + call.max_commits), None

    def _start(self, start: str) -> int:
        if start == NOW:
            return len(self.line) - 1
        if start == BEGINNING:
            if self.is_cut:
                raise ChangeFeedGapError(self.line[0].commit_id)
            return 0
        if not start.startswith(AFTER):
            raise BadRequestError(f"a feed starts at `{NOW}`, `{BEGINNING}` or `{AFTER}<commit id>`, not at {start!r}")
        name = start.removeprefix(AFTER)
        commit_id = one_commit(name, commits_named(name, self.places)) or name
        if commit_id not in self.places and self.is_cut:
            raise ChangeFeedGapError(self.line[0].commit_id)
        if commit_id not in self.places:
            raise BadRequestError(f"commit {commit_id} is not on the line of branch {self.head.branch}")
        return self.places[commit_id]

    def _place(self, commit_id: object, cursor: str | None = None) -> int:
        place = self.places.get(str(commit_id))
        if place is None and self.is_cut:
            # It was on the line when the token was made.
            raise ChangeFeedGapError(self.line[0].commit_id, cursor)
        if place is None:
            raise ChangeCursorRejectedError("its commit is not on the line of the branch")
        return place
