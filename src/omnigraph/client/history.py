"""The past of a remote graph: commits, differences, changes and their feed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from omnigraph.api.protocol import NDJSON
from omnigraph.api.results import BaselineResult, ExportTarget
from omnigraph.client.connection import OpenRemoteGraph, refuse_session, understood
from omnigraph.client.reads import LineCount, held_back, opened_target, timed
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.core.budget import Budget, CancelSignal

if TYPE_CHECKING:
    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


class RemoteHistory(OpenRemoteGraph):
    """History methods of a remote graph."""

    @override
    def log(self, branch: str | None = None) -> list[GraphCommit]:
        params = {"branch": branch}
        return _commits(self._connection.ask("GET", f"{self._path}/log", params=params))

    @override
    def refresh(self) -> None:
        self._connection.ask("GET", f"{self._path}/snapshot")

    @override
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
        # Lazy here and below: only changes need `branches`.
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

    @override
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


def _commits(body: dict[str, Any]) -> list[GraphCommit]:
    with understood("commits"):
        return [GraphCommit.from_json(commit) for commit in body["commits"]]


def _filters(
    kinds: Sequence[str] | None, types: Sequence[str] | None, ops: Sequence[str] | None
) -> dict[str, list[str] | None]:
    named = {"kind": kinds, "type": types, "op": ops}
    return {name: None if some is None else list(some) for name, some in named.items()}
