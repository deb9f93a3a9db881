"""The past of a remote graph: commits, differences, changes and their feed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.protocol import NDJSON
from omnigraph.api.results import BaselineResult, ExportTarget
from omnigraph.client.connection import OpenRemoteGraph, refuse_session, understood
from omnigraph.client.reads import LineCount, held_back, opened_target, timed
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.core.budget import Budget, CancelSignal
from omnigraph.core.ids import is_ulid
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.feed import FeedPage
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark.worker_choice import Session

#: What a server does without being told; only something else is sent.
_PAGE_BYTES = 4 * 1024 * 1024
_POLL_COMMITS = 128


class RemoteHistory(OpenRemoteGraph):
    """What a remote graph knows about its past."""

    def commits(self, branch: str = MAIN, actor: str | None = None) -> list[GraphCommit]:
        """The history of a branch, newest first: its own commits and those it inherited."""
        params = {"branch": branch, "actor": actor}
        return _commits(self._connection.ask("GET", f"{self._path}/commits", params=params))

    def commit(self, commit_id: str) -> GraphCommit:
        """One commit, of any branch.

        Raises:
            NotFoundError: there is no such commit, its branch was deleted, or it may not be read.
        """
        body = self._connection.ask("GET", self._commit_path(commit_id))
        with understood("a commit"):
            return GraphCommit.from_json(body)

    def log(self, branch: str | None = None) -> list[GraphCommit]:
        """Everything that one branch, or all that may be read, build on over both parents; newest first."""
        params = {"branch": branch}
        return _commits(self._connection.ask("GET", f"{self._path}/log", params=params))

    def refresh(self) -> None:
        """Make sure that the server answers for this graph. Every call sees the current state anyway."""
        self._connection.ask("GET", f"{self._path}/snapshot")

    # ---- differences and changes

    def diff(
        self,
        one: str,
        other: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> ReportedDiff:
        """What differs between two branches or commits: what turns the first into the second.

        Raises:
            NotFoundError: there is no such branch or commit.
            BadRequestError: a filter names something that does not exist.
            HistoricalVersionReclaimedError: a version was cleaned up.
            QueryTimeoutError: the server took longer than `timeout_s` for a page.
            QueryCancelledError: `cancel` was set.
        """
        # Late here and below: whoever looks at no changes needs nothing of branches.
        from omnigraph.api.diffs import ReportedDiff
        from omnigraph.branches.changes import MAX_PAGE_CHANGES
        from omnigraph.branches.diffs import DiffPage

        refuse_session(spark)
        filters = _filters(kinds, types, ops)
        pages: list[DiffPage] = []
        states = {"from": one, "to": other}
        token = None
        while not pages or token is not None:
            params = {
                **states,
                **filters,
                "limit": MAX_PAGE_CHANGES,
                "page_token": token,
                "timeout_s": None if timeout_s is None else str(timeout_s),
            }
            ask = partial(self._connection.ask, "GET", f"{self._path}/diff", params=params)
            body = ask() if cancel is None else Budget(cancel=cancel).patiently(ask)
            with understood("a diff"):
                page = DiffPage.from_json(body)
            pages.append(page)
            token = page.next_page_token
            # The other pages belong to the same two commits, also when a branch moves meanwhile.
            states = {"from": page.from_graph_commit_id, "to": page.to_graph_commit_id}
        return ReportedDiff.from_pages(pages)

    def changes(
        self,
        commit_id: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = 1_000,
        max_bytes: int = _PAGE_BYTES,
        page_token: str | None = None,
    ) -> ChangesPage:
        """One page of what a commit did, against its first parent, with every entity before and after.

        Raises:
            NotFoundError: there is no such commit, its branch was deleted, or it may not be read.
            CommitHasNoParentError: it is the first commit of the graph.
            ChangeSchemaBoundaryError: it changed the schema of a type with data.
            ChangeCursorRejectedError: the page token belongs to something else.
            HistoricalVersionReclaimedError: a version was cleaned up.
        """
        from omnigraph.branches.changes import ChangesPage

        params = {
            **_filters(kinds, types, ops),
            "limit": limit,
            "max_bytes": _unless(max_bytes, _PAGE_BYTES),
            "page_token": page_token,
        }
        body = self._connection.ask("GET", f"{self._commit_path(commit_id)}/changes", params=params)
        with understood("changes"):
            return ChangesPage.from_json(body)

    def feed(
        self,
        branch: str = MAIN,
        cursor: str | None = None,
        start: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = 1_000,
        max_bytes: int = _PAGE_BYTES,
        max_commits: int = _POLL_COMMITS,
        page_token: str | None = None,
    ) -> FeedPage:
        """One page of the commits of a branch, oldest first, each with its changes.

        Begin with `start` (`now`, the default, `beginning` or `after:<commit id>`), go on with the `page_token` of a
        page until one has a `cursor`, keep that with your data, and poll with it later.

        Raises:
            ChangeCursorRejectedError: the cursor belongs to another graph, branch or filter.
            ChangeFeedGapError: history behind the cursor was cleaned up; take a new baseline.
        """
        from omnigraph.branches.feed import FeedPage

        params = {
            "branch": branch,
            "cursor": cursor,
            "start": start,
            **_filters(kinds, types, ops),
            "limit": limit,
            "max_bytes": _unless(max_bytes, _PAGE_BYTES),
            "max_commits": _unless(max_commits, _POLL_COMMITS),
            "page_token": page_token,
        }
        body = self._connection.ask("GET", f"{self._path}/changes", params=params)
        with understood("changes"):
            return FeedPage.from_json(body)

    def baseline(
        self,
        branch: str = MAIN,
        *,
        out: ExportTarget,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> BaselineResult:
        """Write every entity of a branch as `export` does, and return the cursor from which its feed goes on.

        Raises:
            BadRequestError: the target exists, or a filter names something that does not exist.
            QueryTimeoutError: it took longer than `timeout_s`, or than the server allows.
            QueryCancelledError: `cancel` was set.
            UnexpectedAnswerError: the stream ended before its handshake; a path was not written.
        """
        body = {"branch": branch, **_filters(kinds, types, ops), **timed(timeout_s)}
        budget, count, last = Budget(cancel=cancel), LineCount(), [b""]
        connection = self._connection
        with opened_target(out, self.uri) as (name, write):
            with connection.streaming(
                "POST", f"{self._path}/changes/baseline", body=body, headers={"Accept": NDJSON}
            ) as response:
                lines = count.whole_lines(budget.steps(connection.pieces(response)))
                for block in held_back(lines, last):
                    write(block)
            with understood("a baseline"):
                handshake = json.loads(last[-1])["baseline"]
                return BaselineResult(
                    target=name,
                    entities=count.entities.total(),
                    snapshot_commit_id=handshake["snapshot_commit_id"],
                    resume_cursor=handshake["resume_cursor"],
                )

    def _commit_path(self, commit_id: str) -> str:
        if not is_ulid(commit_id):
            raise NotFoundError(f"there is no commit {commit_id}")
        return f"{self._path}/commits/{commit_id}"


def _commits(body: dict[str, Any]) -> list[GraphCommit]:
    with understood("commits"):
        return [GraphCommit.from_json(commit) for commit in body["commits"]]


def _filters(
    kinds: Sequence[str] | None, types: Sequence[str] | None, ops: Sequence[str] | None
) -> dict[str, list[str] | None]:
    named = {"kind": kinds, "type": types, "op": ops}
    return {name: None if some is None else list(some) for name, some in named.items()}


def _unless(value: int, default: int) -> int | None:
    """A value that is worth sending."""
    return None if value == default else value
