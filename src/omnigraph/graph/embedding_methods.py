"""The embedding half of the façade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.limits import ReadLimits
from omnigraph.graph.opened import OpenGraph
from omnigraph.ids import check_branch_name
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.budget import CancelSignal
    from omnigraph.graph.embedding import EmbedResult
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session


class EmbeddingMethods(OpenGraph):
    """What an open graph does with vectors of texts."""

    def embed(
        self,
        *,
        types: Sequence[str] | None = None,
        branch: str = MAIN,
        reembed: bool = False,
        batch_size: int = 256,
        rate: float | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        actor: str | None = None,
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
        """
        from omnigraph.graph.embedding import EmbedCall, GraphEmbedder
        from omnigraph.pipeline.job_names import operation
        from omnigraph.pipeline.progress import Silent

        self._require_writable()
        call = EmbedCall(
            types=types or None,
            branch=check_branch_name(branch),
            reembed=reembed,
            batch_size=batch_size,
            rate=rate,
            engine=engine,
            spark=spark,
            actor=actor,
            dry_run=dry_run,
            progress=progress or Silent(),
            limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
        )
        self._authorize(Action.CHANGE, actor, branch=call.branch)
        self._heal()
        writing = self._writer.open_for_writing
        with self._reading(), operation("embed", self.uri):
            return GraphEmbedder(self._environment, self._schema_of, writing).embed(call)
