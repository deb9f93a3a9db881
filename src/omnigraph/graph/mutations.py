"""Mutations and loads of an open graph: prepare against a snapshot, commit, prepare again when a race was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from omnigraph.api.results import AFFECTED_RESOURCE, ExampleChange, LoadResult, MutationResult
from omnigraph.commit.expectations import HeadIs
from omnigraph.commit.notes import NO_NOTE, Note, note_of
from omnigraph.commit.rows import MAIN, GraphCommit, TypeChanges
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.transaction import MAX_TRIES, RetryPolicy, Transaction
from omnigraph.core.budget import CancelSignal, ReadLimits
from omnigraph.core.ids import check_branch_name
from omnigraph.core.source import SourceText
from omnigraph.core.values import StoredValue
from omnigraph.embedding.on_write import CountedVectors, MutationVectors, TextsMissingError, no_embedding
from omnigraph.engine.tables.context import Context, variable_tables
from omnigraph.errors import BadRequestError, ConflictError, QuerySelectionError, ResourceLimitError
from omnigraph.graph.open_graph import MethodsOf, OpenGraph, graph_method
from omnigraph.graph.reads import follow_commit, query_context
from omnigraph.lang.query import ir
from omnigraph.lang.query.signature import bind_params
from omnigraph.lang.query.syntax.commands import Command, Verb, command_of
from omnigraph.pipeline.workers import Progress
from omnigraph.policy.rules import Action
from omnigraph.writes.columns import CommittedRows
from omnigraph.writes.mutation import PreparedMutation, TablePreview, prepare_mutation, preview_mutation, stage_mutation
from omnigraph.writes.pending import ExternalIntake

if TYPE_CHECKING:
    from omnigraph.spark import Session

#: Inserts are prepared again whatever the winner did, updates and deletes when it changed no row.
POLICY = RetryPolicy(heals=True)


@graph_method
def mutate(
    graph: OpenGraph,
    text: str | SourceText,
    params: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    branch: str = MAIN,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
    if_commit: str | None = None,
    max_affected: int | None = None,
    dry_run: bool = False,
) -> MutationResult:
    note = note_of(message, metadata)
    command = command_of(text)
    if command is not None:
        if params or name is not None or if_commit is not None or max_affected is not None or dry_run:
            raise BadRequestError(f"`{command.name}` stands alone: it takes no parameters, name, condition or dry run")
        return _run_command(graph, command, actor, note)
    branch = check_branch_name(branch)
    if not dry_run:
        graph.require_writable()
    graph.authorize(Action.CHANGE, actor, branch=branch)
    if dry_run:
        # It shows rows as they are.
        graph.authorize(Action.READ, actor, branch=branch)
    # The same in all tries.
    now_ms = graph.environment.clock() // 1000
    max_bytes = graph.settings.mutation_max_bytes
    external = ExternalIntake(graph.settings.external_blobs, max_bytes)
    expected = None if if_commit is None else graph.full_commit_id(if_commit)
    vectors = CountedVectors() if dry_run else MutationVectors(graph.embedder)

    def prepare(transaction: Transaction) -> MutationResult:
        snapshot = transaction.snapshot
        if expected is not None:
            transaction.require(HeadIs(expected))
        schema = graph.schema_of(snapshot.schema_hash)
        missing = no_embedding(schema.catalog)
        query = graph.compiler.compile(text, schema.catalog, name, no_embedding=missing).ir
        if not isinstance(query, ir.MutationIR):
            raise QuerySelectionError(f"`{query.name}` is a read: run it with `query`", (query.name,))
        if query.match is not None or query.returns:
            # Both tell what rows hold.
            graph.authorize(Action.READ, actor, branch=branch)
        values: dict[str, StoredValue] = {**bind_params(query, params), ir.NOW: now_ms}
        prepared = prepare_mutation(
            query,
            values,
            catalog=schema.catalog,
            identities=schema.identities,
            rules=schema.rules,
            snapshot=snapshot,
            store=transaction.environment.tables,
            max_bytes=max_bytes,
            external=external,
            context=_match_context(graph, query, snapshot, values),
            vectors=None if missing else vectors,
        )
        affected = prepared.outcome.affected_nodes + prepared.outcome.affected_edges
        if max_affected is not None and affected > max_affected:
            advice = "nothing was written; narrow the mutation, or allow more with max_affected"
            raise ResourceLimitError(AFFECTED_RESOURCE, max_affected, affected, advice)
        result = MutationResult(
            branch=branch,
            query_name=query.name,
            affected_nodes=prepared.outcome.affected_nodes,
            affected_edges=prepared.outcome.affected_edges,
            actor=actor,
            commit=None,
            rows=prepared.outcome.rows,
            dry_run=dry_run,
            embedded=vectors.embedded,
        )
        if dry_run:
            committed = CommittedRows(transaction.environment.tables, snapshot.pins)
            return _with_preview(result, list(preview_mutation(prepared, committed)))
        return replace(result, commit=_commit(transaction, prepared, is_conditional=expected is not None))

    if dry_run:
        with graph.reading():
            return prepare(Transaction(graph.environment, branch, kind=WriterKind.MUTATION, actor=actor))
    from omnigraph.maintenance.optimize import fold_after

    with graph.reading():
        for _ in range(MAX_TRIES):
            transaction = Transaction(
                graph.environment, branch, kind=WriterKind.MUTATION, actor=actor, note=note, policy=POLICY
            )
            try:
                with graph.queue.turn(branch):
                    result = transaction.run(prepare)
                    # In the same turn: beside other writers a fold would be staged and lose, again and again.
                    fold_after(graph.environment, graph.settings, result.commit)
            except TextsMissingError:
                # Outside of the turn, and with nothing prepared: no writer waits for a provider.
                assert isinstance(vectors, MutationVectors), "stand-ins are never missing"
                vectors.embed()
            else:
                return _followed(graph, result)
    raise ConflictError("the texts to embed kept changing; nothing was written, try again")


def _followed(graph: OpenGraph, result: MutationResult) -> MutationResult:
    """The result of a mutation, once what readers keep in memory is that of its state."""
    follow_commit(graph, result.commit)
    return result


def _run_command(graph: OpenGraph, command: Command, actor: str | None, note: Note) -> MutationResult:
    """Create, delete or merge a branch; the receipt is that of a mutation which changed no row itself."""
    # Lazy: mutations of rows need no merge.
    from omnigraph.graph import branches

    methods, commit, branch = MethodsOf(graph), None, command.branch
    if note != NO_NOTE and command.verb is not Verb.MERGE:
        raise BadRequestError(f"`{command.name}` makes no commit that could keep a message or metadata")
    match command.verb:
        case Verb.CREATE:
            branches.create_branch(methods, command.branch, command.other or MAIN, actor)
        case Verb.DELETE:
            branches.delete_branch(methods, command.branch, actor)
        case Verb.MERGE:
            branch = command.other or MAIN
            commit = branches.merge(
                methods, command.branch, branch, actor=actor, message=note.message, metadata=note.metadata
            ).commit
        case _:
            raise QuerySelectionError(f"`{command.name}` is a read: run it with `query`", (command.name,))
    return MutationResult(
        branch=branch, query_name=command.name, affected_nodes=0, affected_edges=0, actor=actor, commit=commit
    )


def _match_context(
    graph: OpenGraph, query: ir.MutationIR, snapshot: Snapshot, values: Mapping[str, StoredValue]
) -> Context | None:
    """What the match of a mutation runs in: as a read of the snapshot that the mutation is prepared on."""
    if query.match is None:
        return None
    return query_context(graph, snapshot, values, variable_tables(query.match), graph.limits)


def _with_preview(result: MutationResult, tables: Sequence[TablePreview]) -> MutationResult:
    changes = (
        TypeChanges(type_key=item.key, inserted=item.inserted, updated=item.updated, deleted=item.deleted)
        for item in tables
    )
    examples = (
        ExampleChange(type_key=item.key, id=row.id, before=row.before, after=row.after)
        for item in tables
        for row in item.examples
    )
    return replace(result, changes=tuple(changes), examples=tuple(examples))


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


@graph_method
def load(
    graph: OpenGraph,
    source: str | PathLike[str] | None = None,
    *,
    frames: Mapping[str, object] | None = None,
    mapping: str | PathLike[str] | Mapping[str, object] | None = None,
    mode: str,
    branch: str = MAIN,
    base: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    on_duplicate: str | None = None,
    dangling: str | None = None,
    quarantine: str | PathLike[str] | None = None,
    dry_run: bool = False,
    grammar: str = "strict",
    upsert: bool = False,
    check_minimum: bool = False,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> LoadResult:
    # Lazy: a graph that is not loaded never pays for the pipeline.
    from omnigraph.graph.loads import LoadCall, check_choices, load_graph
    from omnigraph.pipeline.workers import Silent

    graph.require_writable()
    chosen = check_choices(mode, grammar, upsert=upsert)
    call = LoadCall(
        source=source,
        mapping=mapping,
        frames=frames,
        mode=chosen[0],
        branch=check_branch_name(branch),
        base=None if base is None else check_branch_name(base),
        actor=actor,
        note=note_of(message, metadata),
        engine=engine,
        spark=spark,
        on_duplicate=on_duplicate,
        dangling=dangling,
        quarantine=quarantine,
        dry_run=dry_run,
        grammar=chosen[1],
        upsert=upsert,
        check_minimum=check_minimum,
        progress=progress or Silent(),
        limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
    )
    graph.authorize(Action.CHANGE, actor, branch=call.branch)
    graph.authorize_new_branch(call.branch, call.base, actor)
    graph.heal()
    # Again, and here it counts: the branch may have been deleted since the call began.
    state = graph.authorize_new_branch(call.branch, call.base, actor)
    with graph.reading():
        result = load_graph(graph, call, state)
    graph.fold_after(result.commit)
    follow_commit(graph, result.commit)
    return result
