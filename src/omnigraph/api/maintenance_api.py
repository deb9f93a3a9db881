"""`MaintenanceApi`: work beside the storage of a graph. Signatures and docstrings live here, once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.core.lazy_exports import late_types

if TYPE_CHECKING:
    from omnigraph.api.results import SchemaDiff
    from omnigraph.commit.audit import RecoveryRecord
    from omnigraph.core.budget import CancelSignal
    from omnigraph.embedding.row_job import EmbedResult
    from omnigraph.lang.schema.compiler import CompiledSchema
    from omnigraph.lang.schema.plan import MigrationPlan
    from omnigraph.maintenance.cleanup import CleanupReport
    from omnigraph.maintenance.findings import DoctorReport
    from omnigraph.maintenance.indexes import IndexReport, PendingIndex
    from omnigraph.maintenance.optimize import OptimizeReport
    from omnigraph.maintenance.repair import RepairReport
    from omnigraph.maintenance.verify import VerifyReport
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
else:
    globals().update(
        late_types(
            {
                "omnigraph.api.results": "SchemaDiff",
                "omnigraph.commit.audit": "RecoveryRecord",
                "omnigraph.core.budget": "CancelSignal",
                "omnigraph.embedding.row_job": "EmbedResult",
                "omnigraph.lang.schema.compiler": "CompiledSchema",
                "omnigraph.lang.schema.plan": "MigrationPlan",
                "omnigraph.maintenance.cleanup": "CleanupReport",
                "omnigraph.maintenance.findings": "DoctorReport",
                "omnigraph.maintenance.indexes": "IndexReport PendingIndex",
                "omnigraph.maintenance.optimize": "OptimizeReport",
                "omnigraph.maintenance.repair": "RepairReport",
                "omnigraph.maintenance.verify": "VerifyReport",
                "omnigraph.pipeline.workers": "Progress",
                "omnigraph.spark": "Session",
            }
        )
    )


class MaintenanceApi:
    """Upkeep of an embedded graph; a graph behind a server refuses these methods, which work beside the storage."""

    # ---- indexes, layout and vectors

    def ensure_indices(
        self,
        branch: str = "main",
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
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

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

        Small fragments become large ones, deleted rows leave the files, indexes cover every row, and the manifest is
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
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def pending_indexes(self, branch: str = "main") -> list[PendingIndex]:
        """Declared indexes that do not cover every row of a branch, with the reason.

        Raises:
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def embed(
        self,
        *,
        types: Sequence[str] | None = None,
        branch: str = "main",
        reembed: bool = False,
        batch_size: int = 256,
        rate: float | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> EmbedResult:
        """Give every row with a text its vector: those that have none, and those whose text changed since.

        Works on each `Vector(N) @embed("source")` property, with the provider of the `OMNIGRAPH_EMBED*` variables. All
        vectors become visible in one commit, in which nothing else changes; a second run finds nothing and makes
        none. Vectors that were computed before a crash or a failure of the provider are not computed again. Many texts
        are embedded on Spark, a few in this process; `rate` limits texts per second over all tasks. `reembed` replaces
        vectors that exist. `dry_run` counts, and asks no provider. `timeout_s` and `cancel` stop it before its commit;
        vectors that were computed are kept for the next run.

        >>> import os, tempfile
        >>> os.environ["OMNIGRAPH_EMBEDDINGS_MOCK"] = "1"
        >>> from omnigraph import Graph
        >>> schema = 'node Note { slug: String @key  body: String  vec: Vector(4)? @embed("body") }'
        >>> graph = Graph.init(tempfile.mkdtemp() + "/notes.omni", schema)
        >>> receipt = graph.mutate('query add() { insert Note { slug: "a", body: "graphs" } }')
        >>> graph.embed().embedded
        1
        >>> graph.embed().commit is None
        True

        Raises:
            BadRequestError: a type does not exist, the schema records another model, or the provider lacks its key.
            EmbeddingError: the provider failed. Nothing was written to the graph; the next run goes on from here.
            ConflictError: writers kept changing the tables; nothing was written.
            SparkError: Spark cannot run; nothing was written.
            QueryTimeoutError: it took longer than `timeout_s`; nothing was written to the graph.
            QueryCancelledError: `cancel` was set; nothing was written to the graph.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    # ---- retention and health

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | timedelta | None = None,
        commits: bool = False,
        confirm: bool = False,
        actor: str | None = None,
    ) -> CleanupReport:
        """Remove old versions and leftovers; without `confirm` only say what would go.

        Readable stay the newest `keep` commits of every branch, and every state that a branch had within `older_than`
        (`45s`, `30m`, `12h`, `7d`, `2w`); with both, what either of them keeps. Heads, the points at which branches
        began and what merges of branches can need stay always. `keep` is at least 3. With `commits`, commits that
        cannot be read any more leave the history as well. Where the graph has a policy, `actor` needs the right
        `admin` for a confirmed one; a preview is a read.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> for number in range(5):
        ...     receipt = graph.mutate('query add($d: String) { insert Paper { doi: $d } }', {"d": str(number)})
        >>> graph.cleanup(keep=3).old_versions_removed
        3
        >>> graph.cleanup(keep=3, confirm=True).confirmed
        True

        Raises:
            BadRequestError: nothing says what to keep, or the graph is open for reading only.
            PolicyDeniedError: the policy of the graph does not allow it; nothing was removed.
            RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
            RetryableCommitConflictError: writers kept the graph busy; try again.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def verify(
        self,
        *,
        branches: Collection[str] | None = None,
        record: bool = False,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Read every file that a readable state needs, and compare it with the checksum that its writer recorded.

        All branches and every commit that is kept, or the heads of some branches only. Everything is decoded, in a
        process of its own, so that no damage can end this one. Changes nothing; memory does not follow the size.

        Of a sound graph the report also lists nodes that lack edges which `@card(1..)` asks for (`outside`).

        Files of earlier releases have no checksum. With `record` they get one, unless some file is damaged: from then
        on they are compared with what they hold now.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> graph.verify().is_sound
        True

        Raises:
            BranchNotFoundError: there is no such branch.
            NotFoundError: there is no graph, and no part of one.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def doctor(self, *, deep: bool = False, rules: bool = False, progress: Progress | None = None) -> DoctorReport:
        """Whether the graph is healthy, and what to run when it is not. Changes nothing and takes no lock.

        Looks at the storage format, the manifest, schema files, heads, addresses and links, interrupted writes, the
        commit lock, indexes, fragments, leftovers and disk use; each on its own, so that one that fails is a finding.
        With `deep` every file is read as well, as `verify` does it. With `rules` every node of every branch is held
        against the minimum of `@card(1..)`, which writes check only for sources that have or had an edge.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> graph.doctor().is_healthy
        True

        Raises:
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def repair(self, *, confirm: bool = False, force: bool = False, actor: str | None = None) -> RepairReport:
        """Find datasets that moved without the manifest and other damage, and heal what is safe; by default only look.

        `confirm` publishes what changed no row, such as a compaction by another tool, undoes what a writer did after it
        had lost the commit lock, drops second rows of a commit, and removes edges whose ends do not exist. `force`
        beside it publishes everything else that is ahead of the manifest, without checking the rules of the schema.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/g.omni", "node Paper { doi: String @key }")
        >>> [str(table.classification) for table in graph.repair().tables]
        ['no_drift']

        Raises:
            RecoveryRequiredError: what a dead writer left cannot be settled.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def recoveries(self) -> list[RecoveryRecord]:
        """Every recovery action, newest first.

        Raises:
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def pending_recoveries(self) -> list[str]:
        """Names of the sidecars that are not settled.

        Raises:
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    # ---- schemas

    def plan_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
    ) -> MigrationPlan:
        """The steps from the accepted schema to another one; nothing happens.

        `schema` is the path of a `.pg` file, schema text, or a compiled schema. `backfill` maps `Type.property` to the
        value that existing rows get: an expression such as `"en"` in quotes or `coalesce(title, "untitled")`, or a
        plain value that is not text.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> plan = graph.plan_schema("node Paper { doi: String @key  year: I32? }")
        >>> [step.describe() for step in plan.steps]
        ['+ node Paper.year: I32?']

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            BadRequestError: a backfill is wrong.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError

    def diff_schema(self, one: str, other: str = "main") -> SchemaDiff:
        """The differences of the accepted schemas of two commits or branches, as text and as steps.

        Raises:
            BranchNotFoundError: a name is neither a branch nor a commit.
            NotFoundError: there is no such commit, or its branch was deleted.
            DirectOnlyError: the graph is behind a server.
        """
        raise NotImplementedError
