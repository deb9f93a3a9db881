"""Writes of an open graph: prepare against a snapshot, commit, prepare again when a race was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omnigraph.api.results import MutationResult
from omnigraph.commit.expectations import HeadIs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import BranchQueue, RetryPolicy, Transaction
from omnigraph.errors import QuerySelectionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.signature import bind_params
from omnigraph.maintenance.fold import fold_after
from omnigraph.writes.mutation import PreparedMutation, prepare_mutation, stage_mutation
from omnigraph.writes.pending import ExternalIntake

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment, GraphSettings
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.schemas import GraphSchema
    from omnigraph.core.source import SourceText
    from omnigraph.core.values import StoredValue
    from omnigraph.lang.query.compiler import QueryCompiler

#: Inserts are prepared again whatever the winner did, updates and deletes when it changed no row.
POLICY = RetryPolicy(heals=True)


class GraphWriter:
    """Prepares and commits mutations. Thread-safe."""

    def __init__(
        self,
        environment: GraphEnvironment,
        settings: GraphSettings,
        compiler: QueryCompiler,
        schema_of: Callable[[str], GraphSchema],
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._compiler = compiler
        self._schema_of = schema_of
        self._queue = BranchQueue()

    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None,
        *,
        name: str | None,
        branch: str,
        actor: str | None,
        if_commit: str | None,
    ) -> MutationResult:
        """Run one mutation query."""
        # The same in all tries.
        now_ms = self._environment.clock() // 1000
        external = ExternalIntake(self._settings.external_blobs, self._settings.mutation_max_bytes)

        def prepare(transaction: Transaction) -> MutationResult:
            snapshot = transaction.snapshot
            if if_commit is not None:
                transaction.require(HeadIs(if_commit))
            schema = self._schema_of(snapshot.schema_hash)
            query = self._compile(text, schema, name)
            values: dict[str, StoredValue] = {**bind_params(query, params), ir.NOW: now_ms}
            prepared = prepare_mutation(
                query,
                values,
                catalog=schema.catalog,
                identities=schema.identities,
                rules=schema.rules,
                snapshot=snapshot,
                store=transaction.environment.tables,
                max_bytes=self._settings.mutation_max_bytes,
                external=external,
            )
            return MutationResult(
                branch=branch,
                query_name=query.name,
                affected_nodes=prepared.outcome.affected_nodes,
                affected_edges=prepared.outcome.affected_edges,
                actor=actor,
                commit=_commit(transaction, prepared, is_conditional=if_commit is not None),
            )

        transaction = Transaction(self._environment, branch, kind=WriterKind.MUTATION, actor=actor, policy=POLICY)
        with self._queue.turn(branch):
            result = transaction.run(prepare)
            # In the same turn: beside other writers a fold would be staged and lose, again and again.
            fold_after(self._environment, self._settings, result.commit)
        return result

    def fold_after(self, commit: GraphCommit | None) -> None:
        """Fold small fragments of the tables that a commit touched, where it is time to. Never fails."""
        if commit is not None:
            with self._queue.turn(commit.branch):
                fold_after(self._environment, self._settings, commit)

    def _compile(self, text: str | SourceText, schema: GraphSchema, name: str | None) -> ir.MutationIR:
        query = self._compiler.compile(text, schema.catalog, name)
        if not isinstance(query.ir, ir.MutationIR):
            message = f"`{query.name}` is a read: run it with `query`"
            raise QuerySelectionError(message, (query.name,))
        return query.ir


def _commit(transaction: Transaction, prepared: PreparedMutation, *, is_conditional: bool) -> GraphCommit | None:
    """Stage and publish a mutation; None when it changes nothing."""
    snapshot = transaction.snapshot
    pins = snapshot.pins
    transaction.touched.update(prepared.touched)
    transaction.read.update(prepared.read)
    if not prepared.insert_only:
        transaction.guarded = (snapshot, {*prepared.touched, *prepared.read})
    if not prepared.deltas:
        if is_conditional:
            transaction.check()
        return None
    with transaction.environment.staging.shared():
        staged = stage_mutation(prepared, snapshot, lambda key: transaction.open_for_writing(pins[key]))
        for key, write in staged.items():
            transaction.stage(pins[key], write)
        return None if transaction.is_empty else transaction.commit()
