"""The façade of history: commits, differences, changes and their feed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

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
    from omnigraph.commit.audit import RecoveryRecord
    from omnigraph.core.budget import CancelSignal
    from omnigraph.errors.writes import RowImage
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark.worker_choice import Session


class HistoryMethods(OpenGraph):
    """What an open graph knows about its past."""

    def commits(self, branch: str = MAIN, actor: str | None = None) -> list[GraphCommit]:
        """The history of a branch, newest first: its own commits and those it inherited."""
        with self._reading():
            newest = self._state().head(check_branch_name(branch)).commit_id
            line = list(first_parents(self._environment.manifest.commits(), newest))
        return [commit for commit in line if actor is None or commit.actor == actor]

    def commit(self, commit_id: str) -> GraphCommit:
        """One commit, of any branch.

        Raises:
            NotFoundError: there is no such commit, or its branch was deleted.
        """
        state = self._state()
        return check_readable(state, self._environment.manifest.commit(commit_id), commit_id)

    def log(self, branch: str | None = None) -> list[GraphCommit]:
        """Everything that one branch, or all of them, build on over both parents; newest first."""
        name = None if branch is None else check_branch_name(branch)
        with self._reading():
            return self._history.log(self._state(), name)

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
        """One entity at the head of a branch, at a commit, a graph version or a moment; None if it is not there.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.entity_at("node:Paper", "10.1")
        {'id': '10.1', 'properties': {'doi': '10.1'}}

        Raises:
            NotFoundError: there is no such type, branch, commit, version or moment.
            HistoricalVersionReclaimedError: the version was cleaned up.
        """
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        with self._reading():
            return self._history.entity_at(self._state(), target, type_key, entity_id)

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
    ) -> Diff:
        """What differs between two branches or commits: what turns the first into the second.

        Cost follows the rows that changed; large differences are compared on Spark by themselves. Of a type that got or
        lost properties in between, all rows are compared; a property that a state does not have counts as null there.
        Many differences are in files that go with the result: close it, or use it in a `with` statement. `timeout_s`
        and `cancel` stop the comparison.

        Raises:
            NotFoundError: there is no such branch or commit.
            BadRequestError: a filter names something that does not exist, or executors of a cluster have no place for
                the files of many differences (`OMNIGRAPH_SCRATCH`).
            HistoricalVersionReclaimedError: a version was cleaned up.
            QueryTimeoutError: it took longer than `timeout_s`.
            QueryCancelledError: `cancel` was set.
        """
        from omnigraph.branches.history import Selection
        from omnigraph.core.budget import ReadLimits, bounded
        from omnigraph.errors.requests import DIFF
        from omnigraph.pipeline.workers import Silent, operation
        from omnigraph.spark.worker_choice import ElasticEngine

        selection = Selection(kinds=kinds, types=types, ops=ops)
        limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
        worker = ElasticEngine(engine, spark, progress or Silent())
        with self._reading(), operation("diff", self.uri), bounded(limits.budget(), DIFF):
            return self._history.diff(self._state(), one, other, selection, worker)

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
        """One page of what a commit did, against its first parent, with every entity before and after.

        A page ends after `limit` changes or `max_bytes` of JSON; one change that is larger travels alone.

        Raises:
            NotFoundError: there is no such commit, or its branch was deleted.
            CommitHasNoParentError: it is the first commit of the graph.
            ChangeSchemaBoundaryError: it changed the schema of a type with data.
            ChangeCursorRejectedError: the page token belongs to something else.
            HistoricalVersionReclaimedError: a version was cleaned up.
        """
        from omnigraph.branches.changes import PageBudget
        from omnigraph.branches.history import Selection

        selection = Selection(kinds=kinds, types=types, ops=ops)
        budget = PageBudget.of(limit, max_bytes)
        with self._reading():
            return self._history.changes(self._state(), commit_id, selection, budget, page_token)

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
        """One page of the commits of a branch, oldest first, each with its changes.

        Begin with `start` (`now`, the default, `beginning` or `after:<commit id>`), go on with the `page_token` of a
        page until one has a `cursor`, keep that with your data, and poll with it later.

        Raises:
            ChangeCursorRejectedError: the cursor belongs to another graph, branch or filter.
            ChangeFeedGapError: history behind the cursor was cleaned up; take a new baseline.
        """
        from omnigraph.branches.feed import FeedCall
        from omnigraph.branches.history import Selection

        call = FeedCall(
            cursor=cursor,
            start=start,
            page_token=page_token,
            limit=limit,
            max_bytes=max_bytes,
            max_commits=max_commits,
        )
        selection = Selection(kinds=kinds, types=types, ops=ops)
        with self._reading():
            return self._history.poll(self._state(), check_branch_name(branch), selection, call)

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

        `timeout_s` and `cancel` stop it as they stop an export.

        Raises:
            BadRequestError: the target exists, or a filter names something that does not exist.
            QueryTimeoutError: it took longer than `timeout_s`.
            QueryCancelledError: `cancel` was set.
        """
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
                self._environment,
                state.head(name),
                catalog,
                selection,
                out=out,
                cursor=cursor,
                limits=limits,
            )

    # ---- recovery

    def refresh(self) -> None:
        """Look at the current state again, and settle what dead writers left."""
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
