"""The façade of history: commits, differences, changes and their feed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.commit.lineage import first_parents
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.commit.targets import Target, check_readable
from omnigraph.core.ids import check_branch_name
from omnigraph.graph.open_graph import OpenGraph

if TYPE_CHECKING:
    from omnigraph.api.results import BaselineResult, ExportTarget
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.diffs import Diff
    from omnigraph.branches.feed import FeedPage
    from omnigraph.commit.sidecar import RecoveryRecord
    from omnigraph.core.budget import CancelSignal
    from omnigraph.errors.writes import RowImage
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


class HistoryMethods(OpenGraph):
    """History methods of an open graph."""

    @override
    def commits(self, branch: str = MAIN, actor: str | None = None) -> list[GraphCommit]:
        with self._reading():
            newest = self._state().head(check_branch_name(branch)).commit_id
            line = list(first_parents(self._environment.manifest.commits(), newest))
        return [commit for commit in line if actor is None or commit.actor == actor]

    @override
    def commit(self, commit_id: str) -> GraphCommit:
        state = self._state()
        return check_readable(state, self._environment.manifest.commit(commit_id), commit_id)

    @override
    def log(self, branch: str | None = None) -> list[GraphCommit]:
        name = None if branch is None else check_branch_name(branch)
        with self._reading():
            return self._history.log(self._state(), name)

    @override
    def entity_at(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> RowImage | None:
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        with self._reading():
            return self._history.entity_at(self._state(), target, type_key, entity_id)

    # ---- differences and changes

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
    ) -> Diff:
        from omnigraph.branches.history import Selection
        from omnigraph.core.budget import ReadLimits, bounded
        from omnigraph.errors.requests import DIFF
        from omnigraph.pipeline.workers import Silent, operation
        from omnigraph.spark import ElasticWorkers

        selection = Selection(kinds=kinds, types=types, ops=ops)
        limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
        worker = ElasticWorkers(engine, spark, progress or Silent())
        with self._reading(), operation("diff", self.uri), bounded(limits.budget(), DIFF):
            return self._history.diff(self._state(), one, other, selection, worker)

    @override
    def changes(
        self,
        commit_id: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = 1_000,
        max_bytes: int = 4 * 1024 * 1024,
        page_token: str | None = None,
    ) -> ChangesPage:
        from omnigraph.branches.changes import PageBudget
        from omnigraph.branches.history import Selection

        selection = Selection(kinds=kinds, types=types, ops=ops)
        budget = PageBudget.of(limit, max_bytes)
        with self._reading():
            return self._history.changes(self._state(), commit_id, selection, budget, page_token)

    @override
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
        max_bytes: int = 4 * 1024 * 1024,
        max_commits: int = 128,
        page_token: str | None = None,
    ) -> FeedPage:
        from omnigraph.branches.feed import FeedCall
        from omnigraph.branches.history import Selection

        call = FeedCall(
            cursor=cursor, start=start, page_token=page_token, limit=limit, max_bytes=max_bytes, max_commits=max_commits
        )
        selection = Selection(kinds=kinds, types=types, ops=ops)
        with self._reading():
            return self._history.poll(self._state(), check_branch_name(branch), selection, call)

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
        from omnigraph.branches.history import Selection
        from omnigraph.core.budget import ReadLimits
        from omnigraph.graph.exports import write_baseline

        selection = Selection(kinds=kinds, types=types, ops=ops)
        limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
        name = check_branch_name(branch)
        with self._reading():
            state = self._state()
            catalog = self._schema_of(state.head(name).schema_hash).catalog
            cursor = self._history.cursor_at_head(state, name, selection)
            return write_baseline(
                self._environment, state.head(name), catalog, selection, out=out, cursor=cursor, limits=limits
            )

    # ---- recovery

    @override
    def refresh(self) -> None:
        if not self.read_only:
            self._heal()
        self._state()

    def recoveries(self) -> list[RecoveryRecord]:
        """Every recovery action, newest first."""
        return self._environment.audit.records()

    def pending_recoveries(self) -> list[str]:
        """Names of the sidecars that are not settled."""
        from omnigraph.commit.sidecar import list_sidecars

        return list_sidecars(self._environment.objects)
