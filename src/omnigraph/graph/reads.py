"""Reads of an open graph: compile, resolve the target, run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from omnigraph.api.patterns import pattern_of
from omnigraph.api.reading_api import PastKeywords, TargetKeywords
from omnigraph.api.rows import Result
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, GraphCommit, TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import reading_pins, resolve_target
from omnigraph.core.budget import Budget, CancelSignal, ReadLimits
from omnigraph.core.ids import TableKey
from omnigraph.core.source import SourceText
from omnigraph.core.types import VectorType
from omnigraph.core.values import StoredValue
from omnigraph.engine.executor import execute
from omnigraph.engine.operators.pipeline import Profile
from omnigraph.engine.plan.explain import plan_query
from omnigraph.engine.tables.context import Context, variable_tables
from omnigraph.engine.tables.following import follow
from omnigraph.engine.tables.text_search import keep_text_column
from omnigraph.engine.tables.traversal_index import PERSIST_MIN_EDGES, find_adjacency
from omnigraph.engine.tables.vector_search import keep_recall
from omnigraph.engine.tables.wanted_indexes import indexed_texts
from omnigraph.errors import QuerySelectionError
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.lang.query import ir
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.query.signature import bind_params
from omnigraph.lang.query.syntax.commands import Command, Verb, command_of
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.locks import Reading

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


@graph_method
def query(
    graph: OpenGraph,
    text: str | SourceText,
    params: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
    **target: Unpack[TargetKeywords],
) -> Result:
    command = command_of(text)
    if command is not None:
        return _answer(graph, command, params, name, graph.target(**target))
    limits = graph.limits.during(timeout_s, cancel)
    reading = graph.environment.reading.begin()
    try:
        wanted = graph.target(**target)
        snapshot = graph.resolve(wanted)
        catalog = graph.catalog_of(snapshot)
        compiled = graph.compiler.compile(text, catalog, name)
        if not isinstance(compiled.ir, ir.ReadIR):
            message = f"`{compiled.name}` is a mutation: run it with `mutate`"
            raise QuerySelectionError(message, (compiled.name,))
        values = _bind(graph, compiled.ir, params)
        tables = variable_tables(compiled.ir.pipeline)
        context = query_context(graph, snapshot, values, tables, limits, is_head=wanted.is_head)
        stream = execute(context, compiled.ir)
        return Result(
            stream.schema,
            _to_the_end(graph, stream.batches, context, reading),
            query_name=compiled.ir.name,
            target=wanted,
            commit_id=snapshot.commit_id,
            types=tuple(item.type for item in compiled.ir.projections),
            budget=context.budget,
            pattern=partial(pattern_of, compiled.ir, catalog),
        )
    except BaseException:
        # After any failure: a lock that is not released would stop cleanups as long as the graph is open.
        reading.close()
        raise


def _answer(
    graph: OpenGraph, command: Command, params: Mapping[str, object] | None, name: str | None, wanted: Target
) -> Result:
    """The names of the branches, or the plan of a query, as a result of one column."""
    if not command.verb.is_read:
        raise QuerySelectionError(f"`{command.name}` is a mutation: run it with `mutate`", (command.name,))
    snapshot = graph.resolve(wanted)
    if command.verb is Verb.LIST:
        return text_result("branch", sorted(graph.state().heads), command, wanted, snapshot.commit_id)
    assert command.query is not None, "explain has a query"
    compiled = graph.compiler.compile(command.query, graph.catalog_of(snapshot), name)
    text = explain_ir(compiled.ir)
    if isinstance(compiled.ir, ir.ReadIR):
        bound = _bind(graph, compiled.ir, params) if params else {}
        context = query_context(graph, snapshot, bound, variable_tables(compiled.ir.pipeline))
        text += plan_query(context, compiled.ir).render()
    return text_result("plan", text.splitlines(), command, wanted, snapshot.commit_id)


def text_result(column: str, values: Sequence[str], command: Command, target: Target, commit_id: str) -> Result:
    """Texts as a result of one column."""
    # Lazy: reads of rows make their batches elsewhere.
    import pyarrow as pa

    batch = pa.record_batch({column: pa.array(values, pa.utf8())})
    return Result(
        batch.schema, iter((batch,)), query_name=command.name, target=target, commit_id=commit_id, types=(ir.ID_TYPE,)
    )


def _to_the_end(
    graph: OpenGraph, batches: Iterator[pa.RecordBatch], context: Context, reading: Reading
) -> Iterator[pa.RecordBatch]:
    try:
        with reading_pins(graph.environment.tables, _removable(graph, context)):
            yield from batches
    finally:
        # Also when the rest is not read: a result that is dropped closes this generator.
        reading.close()


def _removable(graph: OpenGraph, context: Context) -> Iterator[TablePin]:
    """The tables of a query that a cleanup may have removed; looked up lazily.

    That is after a failure. A table of another type may be gone as well, and has nothing to do with it.
    """
    heads = graph.environment.manifest.state().heads.values()
    kept = {pin for head in heads for pin in head.pins.values()}
    # What a head reads is never cleaned up: if it is missing, it is damaged.
    yield from (pin for pin in context.opened_pins() if pin not in kept)


@graph_method
def explain(
    graph: OpenGraph,
    text: str | SourceText,
    params: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    branch: str = MAIN,
    analyze: bool = False,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> str:
    limits = graph.limits.during(timeout_s, cancel)
    with graph.reading():
        snapshot = graph.resolve(Target(branch=branch))
        compiled = graph.compiler.compile(text, graph.catalog_of(snapshot), name)
        meaning = explain_ir(compiled.ir)
        if not isinstance(compiled.ir, ir.ReadIR):
            if analyze:
                message = f"`{compiled.name}` is a mutation: explaining it must not run it"
                raise QuerySelectionError(message, (compiled.name,))
            return meaning
        values = _bind(graph, compiled.ir, params) if analyze or params else {}
        context = query_context(graph, snapshot, values, variable_tables(compiled.ir.pipeline), limits)
        plan = plan_query(context, compiled.ir)
        if not analyze:
            return f"{meaning}{plan.render()}"
        profile = Profile()
        with reading_pins(graph.environment.tables, _removable(graph, context)):
            for _ in execute(context, compiled.ir, profile).batches:
                pass
        return f"{meaning}{plan.render(profile)}"


@graph_method
def snapshot(graph: OpenGraph, branch: str = MAIN, **rest: Unpack[PastKeywords]) -> Snapshot:
    return graph.resolve(graph.target(branch=branch, **rest))


@graph_method
def catalog(graph: OpenGraph, branch: str = MAIN, **rest: Unpack[PastKeywords]) -> Catalog:
    return graph.catalog_of(graph.resolve(graph.target(branch=branch, **rest)))


def prepare_indexes(graph: OpenGraph, branch: str) -> None:
    """Build the traversal and text indexes of large types, measure vector indexes, and keep all that on disk."""
    snapshot = graph.resolve(Target(branch=branch))
    context = query_context(graph, snapshot, {}, {})
    for edge in context.catalog.edges.values():
        if snapshot.pins[edge.table_key].row_count >= PERSIST_MIN_EDGES:
            find_adjacency(context, edge, keep=True)
    for node in context.catalog.nodes.values():
        entities = context.type_entities(node.table_key)
        for name in indexed_texts(node):
            keep_text_column(context, entities, name)
        for name, definition in node.properties.items():
            if isinstance(definition.type.base, VectorType):
                keep_recall(context.caches, entities, name)


def follow_commit(graph: OpenGraph, commit: GraphCommit) -> None:
    """Make what readers of the state before keep in memory for the new one: the next read finds it there.

    Only what was read since it was made last, so that writers without readers pay nothing. Never fails: what is not
    made here is made by the read that needs it.
    """
    try:
        with graph.reading():
            # What was published here last: asking again would cost every write a request.
            manifest = graph.environment.manifest
            snapshot = resolve_target(manifest, manifest.known_state(), Target(branch=commit.branch))
            has_readers = follow(query_context(graph, snapshot, {}, {}), commit.tables)
            if has_readers and graph.environment.location.is_local:
                # The next read finds the catalog looked through.
                graph.state()
    except Exception as error:  # noqa: BLE001  # the write is done, and must not look as if it had failed
        _log.warning("the first read after commit %s takes longer: %s", commit.commit_id, error)


def query_context(
    graph: OpenGraph,
    snapshot: Snapshot,
    values: Mapping[str, StoredValue],
    tables: Mapping[str, TableKey],
    limits: ReadLimits | None = None,
    *,
    is_head: bool = True,
) -> Context:
    """The shared state of the operators of one query."""
    catalog = graph.catalog_of(snapshot)
    return Context(
        catalog=catalog,
        snapshot=snapshot,
        store=graph.environment.tables,
        caches=graph.caches,
        values=values,
        tables=tables,
        is_head=is_head,
        embed=_QueryEmbedding(graph, catalog),
        budget=Budget() if limits is None else limits.budget(graph.caches.settings.query_memory_bytes),
    )


def _bind(graph: OpenGraph, query: ir.ReadIR, params: Mapping[str, object] | None) -> dict[str, StoredValue]:
    return {**bind_params(query, params), ir.NOW: graph.environment.clock() // 1000}


@frozen
class _QueryEmbedding:
    """Embeds the text of a `nearest` into the space of its property."""

    graph: OpenGraph
    catalog: Catalog

    def __call__(self, field: ir.PropertyRef, node_type: str, text: str) -> tuple[float, ...]:
        from omnigraph.embedding.providers import EmbedPurpose, check_model

        definition = self.catalog.nodes[node_type].properties[field.property]
        base = field.type.base
        assert isinstance(base, VectorType), "the checker allows vectors only"
        embedder = self.graph.embedder()
        recorded = None if definition.embedding is None else definition.embedding.model
        check_model(recorded, embedder.model, f"{node_type}.{field.property}")
        vectors = embedder.embed([text], dimension=base.dimension, purpose=EmbedPurpose.QUERY)
        return vectors[0]
