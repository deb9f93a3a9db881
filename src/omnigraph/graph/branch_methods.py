"""The façade of branches: create, list, delete, merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.limits import ReadLimits
from omnigraph.graph.opened import OpenGraph
from omnigraph.ids import check_branch_name
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.wire.receipts import BranchReceipt

if TYPE_CHECKING:
    from omnigraph.budget import CancelSignal
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session
    from omnigraph.wire.receipts import MergeResult


class BranchMethods(OpenGraph):
    """What an open graph does with branches."""

    def branches(self) -> list[str]:
        """The names of all branches, sorted."""
        return sorted(self._state().heads)

    def create_branch(self, name: str, base: str = MAIN, actor: str | None = None) -> BranchReceipt:
        """Create a branch at the head of another one, or at any commit; no data is copied.

        Raises:
            BranchNotFoundError: there is no such base.
            NotFoundError: there is no such commit.
            BadRequestError: the name is taken or not allowed.
        """
        from omnigraph.graph.branching import create_branch

        self._require_writable()
        name = check_branch_name(name)
        self._authorize(Action.BRANCH_CREATE, actor, branch=base, target=name)
        self._authorize_reading(base, actor)
        self._heal()
        create_branch(self._environment, name, base, actor)
        return BranchReceipt(name=name, base=base, actor=actor)

    def delete_branch(self, name: str, actor: str | None = None) -> BranchReceipt:
        """Delete a branch; what it did and nobody merged is gone.

        Raises:
            BranchNotFoundError: there is no such branch.
            BadRequestError: it is main, or other branches began at it or read its tables.
        """
        from omnigraph.graph.branching import delete_branch

        self._require_writable()
        name = check_branch_name(name)
        self._authorize(Action.BRANCH_DELETE, actor, target=name)
        self._heal()
        delete_branch(self._environment, name, actor)
        return BranchReceipt(name=name, base=None, actor=actor)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: str | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> MergeResult:
        """Merge what happened on one branch into another, row by row; all of it becomes visible at once.

        Rows that both sides changed to different values, and results that violate the schema, are conflicts: they are
        collected, and nothing happens. `strategy` decides conflicts about rows, `ours` for the target and `theirs` for
        the source. `dry_run` returns outcome and conflicts. Large merges run on Spark by themselves; `engine` can say
        `local` or `spark`. `timeout_s` and `cancel` stop it before its commit begins, as they stop a load.

        Raises:
            MergeConflictsError: `conflicts` holds them, with the row on both sides and at the base.
            BranchNotFoundError: there is no such branch.
            ConflictError: the target kept moving; nothing happened.
            HistoricalVersionReclaimedError: the state where the branches last agreed was cleaned up.
            QueryTimeoutError: it took longer than `timeout_s`; nothing was written.
            QueryCancelledError: `cancel` was set; nothing was written.
        """
        from omnigraph.graph.merging import GraphMerger, MergeCall
        from omnigraph.pipeline.job_names import operation
        from omnigraph.pipeline.progress import Silent

        self._require_writable()
        call = MergeCall(
            source=check_branch_name(source),
            target=check_branch_name(into),
            strategy=strategy,
            dry_run=dry_run,
            delete_branch=delete_branch,
            actor=actor,
            engine=engine,
            spark=spark,
            progress=progress or Silent(),
            limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
            authorize_delete=lambda: self._authorize(
                Action.BRANCH_DELETE, actor, target=call.source
            ),
        )
        self._authorize(Action.BRANCH_MERGE, actor, branch=call.source, target=call.target)
        # Conflicts show the rows of both, and the target shows those of the source afterwards.
        for name in (call.source, call.target):
            self._authorize_reading(name, actor)
        self._heal()
        merger = GraphMerger(self._environment, self._schema_of, self._writer.open_in)
        with operation("merge", self.uri):
            result = merger.merge(call)
        self._writer.fold_after(result.commit)
        return result
