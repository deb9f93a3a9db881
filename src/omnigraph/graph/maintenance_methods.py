"""The maintaining half of the façade: indexes and layout, which never change a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.limits import ReadLimits
from omnigraph.graph.opened import OpenGraph
from omnigraph.ids import check_branch_name
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from omnigraph.budget import CancelSignal
    from omnigraph.graph.optimizing import OptimizeReport
    from omnigraph.graph.repairing import RepairReport
    from omnigraph.graph.results import IndexReport, PendingIndex
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session


class MaintenanceMethods(OpenGraph):
    """What keeps an open graph fast."""

    def ensure_indices(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> IndexReport:
        """Build every index that the schema declares and the data lacks, as one commit that changes no row.

        Traversal indexes of large edge types are prepared as well. Running it again without new data does nothing.
        `timeout_s` and `cancel` stop it before its commit begins, between two indexes.

        Raises:
            BranchNotFoundError: there is no such branch.
            ConflictError: writers kept changing the tables; nothing happened.
            QueryTimeoutError: it took longer than `timeout_s`; nothing happened.
            QueryCancelledError: `cancel` was set; nothing happened.
        """
        limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
        self._require_writable()
        branch = check_branch_name(branch)
        self._authorize(Action.ADMIN, actor)
        self._heal()
        report = self._writer.ensure_indices(branch, actor, limits)
        self._reader.prepare_indexes(branch)
        return report

    def optimize(
        self,
        *,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> OptimizeReport:
        """Bring main into its best shape, as one commit that changes no row; none when nothing is to be gained.

        Small fragments become large ones, deleted rows leave the files, indexes cover every row, and the catalog is
        folded. `engine="auto"` works in this process, and on Spark when it is much. `timeout_s` and `cancel` stop it
        before its commit begins: jobs of Spark at once, work in this process after the fragment or index it is at.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/g.omni", "node Paper { doi: String @key }")
        >>> for doi in ("10.1", "10.2"):
        ...     receipt = graph.mutate(f'query add() {{ insert Paper {{ doi: "{doi}" }} }}')
        >>> [table] = graph.optimize().tables
        >>> table.fragments_removed, table.fragments_added
        (2, 1)
        >>> graph.optimize().commit is None
        True

        Raises:
            RecoveryRequiredError: what a dead writer left cannot be settled.
            ConflictError: the schema changed meanwhile; nothing happened.
            SparkError: Spark cannot run; nothing happened.
            QueryTimeoutError: it took longer than `timeout_s`; nothing happened.
            QueryCancelledError: `cancel` was set; nothing happened.
        """
        from omnigraph.graph.optimizing import OptimizeCall, optimize_graph
        from omnigraph.pipeline.job_names import operation
        from omnigraph.pipeline.progress import Silent

        limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
        self._require_writable()
        self._authorize(Action.ADMIN, actor)
        self._heal()
        call = OptimizeCall(
            actor=actor, engine=engine, spark=spark, progress=progress or Silent(), limits=limits
        )
        with operation("optimize", self.uri):
            report = optimize_graph(self._environment, self._schema_of, call)
        self._reader.prepare_indexes(MAIN)
        return report

    def repair(
        self, *, confirm: bool = False, force: bool = False, actor: str | None = None
    ) -> RepairReport:
        """Find datasets that moved without the catalog and other damage, and heal what is safe; by default only look.

        `confirm` publishes what changed no row, such as a compaction by another tool, undoes what a writer did after it
        had lost the commit lock, drops second rows of a commit, and removes edges whose ends do not exist. `force`
        beside it publishes everything else that is ahead of the catalog, without checking the rules of the schema.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/g.omni", "node Paper { doi: String @key }")
        >>> [str(table.classification) for table in graph.repair().tables]
        ['no_drift']

        Raises:
            RecoveryRequiredError: what a dead writer left cannot be settled.
        """
        from omnigraph.graph.repairing import repair_graph

        self._require_writable()
        self._authorize(Action.ADMIN, actor)
        return repair_graph(
            self._environment, self._schema_of, confirm=confirm, force=force, actor=actor
        )

    def pending_indexes(self, branch: str = MAIN) -> list[PendingIndex]:
        """Declared indexes that do not cover every row of a branch, with the reason."""
        from omnigraph.graph.indexing import missing_indexes

        snapshot = self.snapshot(branch)
        catalog = self._schema_of(snapshot.schema_hash).catalog
        return missing_indexes(catalog, snapshot, self._open)
