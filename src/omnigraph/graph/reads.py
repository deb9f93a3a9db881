"""Reads of an open graph: compile, resolve the target, run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

from omnigraph.api.patterns import ResultPattern, pattern_of
from omnigraph.api.prepared import PreparedRead, read_of, refuse_command
from omnigraph.api.reading_api import PastKeywords, TargetKeywords
from omnigraph.api.rows import Result
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, GraphCommit, TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import reading_pins, resolve_target
from omnigraph.core.arrow import Batch, Schema
from omnigraph.core.budget import NO_LIMITS, Budget, CancelSignal, ReadLimits
from omnigraph.core.ids import TableKey
from omnigraph.core.source import SourceText, query_source
from omnigraph.core.types import PropertyType, VectorType
from omnigraph.core.values import StoredValue
from omnigraph.engine.direct import DirectRead, DirectShape, direct_shape
from omnigraph.engine.executor import bounded_batches, execute
from omnigraph.engine.operators.pipeline import Profile
from omnigraph.engine.plan.explain import plan_query
from omnigraph.engine.results.projection import result_schema
from omnigraph.engine.tables.context import Context, variable_tables
from omnigraph.engine.tables.following import follow
from omnigraph.engine.tables.text_search import keep_text_column
from omnigraph.engine.tables.traversal_index import PERSIST_MIN_EDGES, find_adjacency
from omnigraph.engine.tables.vector_search import keep_recall
from omnigraph.engine.tables.wanted_indexes import indexed_texts
from omnigraph.errors import BranchNotFoundError, CommitNotFoundError, QuerySelectionError
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
    limits = graph.limits.during(timeout_s, cancel)
    source = text if type(text) is str else query_source(text)
    known = graph.readers.get((source, name))
    if known is not None:
        return known.run(graph.target(**target), params, limits)
    command = command_of(text)
    if command is not None:
        return _answer(graph, command, params, name, graph.target(**target))
    reader = Reader(graph, text, name)
    result = reader.run(graph.target(**target), params, limits)
    graph.readers.put((source, name), reader)
    return result


@graph_method
def prepare(
    graph: OpenGraph, text: str | SourceText, *, name: str | None = None, **target: Unpack[TargetKeywords]
) -> PreparedRead:
    refuse_command(text)
    wanted, reader = graph.target(**target), Reader(graph, text, name)
    with graph.reading():
        meaning = reader.meaning(graph.resolve(wanted))

    def run(params: Mapping[str, object] | None, timeout_s: float | None, cancel: CancelSignal | None) -> Result:
        try:
            return reader.run(wanted, params, graph.limits.during(timeout_s, cancel))
        except (BranchNotFoundError, CommitNotFoundError) as error:
            raise graph.advised(error) from error.__cause__

    return PreparedRead(run, meaning.query, wanted)


@dataclass(slots=True)
class _Meaning:
    """What a text means at one snapshot, and what follows from both."""

    snapshot: Snapshot
    catalog: Catalog
    query: ir.ReadIR
    tables: Mapping[str, TableKey]
    types: tuple[PropertyType, ...]
    pattern: Callable[[], ResultPattern]
    shape: DirectShape | None
    #: Once it ran: how it is answered out of memory.
    direct: DirectRead | None = None


#: Snapshots whose meaning a reader keeps.
_KEPT_MEANINGS = 8


class Reader:
    """One read of an open graph, and what its text means at the snapshots that it met last. Thread-safe.

    It keeps no rows and no files: those belong to the caches of the graph.
    """

    def __init__(self, graph: OpenGraph, text: str | SourceText, name: str | None) -> None:
        self._graph = graph
        self._text = text
        self._name = name
        #: By the identity of their snapshot, which they keep.
        self._meanings: dict[int, _Meaning] = {}
        #: Whether some of them have direct answers.
        self._is_short = False

    def run(self, wanted: Target, params: Mapping[str, object] | None, limits: ReadLimits) -> Result:
        """Run it at the state that a target means now."""
        graph = self._graph
        if self._is_short:
            # What is answered out of memory needs no file, so that no cleanup has to wait for it.
            snapshot = graph.resolve(wanted)
            meaning = self._meanings.get(id(snapshot))
            if meaning is not None and meaning.direct is not None:
                found = meaning.direct.answer(bind_params(meaning.query, params))
                if found is not None:
                    return self._held(meaning, wanted, limits, found)
        reading = graph.environment.reading.begin()
        try:
            meaning = self.meaning(graph.resolve(wanted))
            values = _bind(graph, meaning.query, params)
            context = query_context(
                graph, meaning.snapshot, values, meaning.tables, limits, is_head=wanted.is_head, catalog=meaning.catalog
            )
            if meaning.shape is not None and meaning.direct is None:
                meaning.direct = DirectRead(context, meaning.query, meaning.shape)
                self._is_short = True
                # After a commit to other tables, or one that the caches followed, everything is there.
                found = meaning.direct.answer(values)
                if found is not None:
                    reading.close()
                    return self._held(meaning, wanted, limits, found)
            stream = execute(context, meaning.query)
            batches = _to_the_end(graph, stream.batches, context, reading)
            return self._result(meaning, wanted, stream.schema, batches, lambda: context.budget)
        except BaseException:
            # After any failure: a lock that is not released would stop cleanups as long as the graph is open.
            reading.close()
            raise

    def meaning(self, snapshot: Snapshot) -> _Meaning:
        """What the text means at a snapshot.

        Raises:
            CompilerError: it does not fit the schema of that snapshot.
            QuerySelectionError: it holds no such read.
        """
        known = self._meanings.get(id(snapshot))
        if known is not None:
            return known
        catalog = self._graph.catalog_of(snapshot)
        query = read_of(self._graph.compiler.compile(self._text, catalog, self._name))
        made = _Meaning(
            snapshot=snapshot,
            catalog=catalog,
            query=query,
            tables=variable_tables(query.pipeline),
            types=tuple(item.type for item in query.projections),
            pattern=partial(pattern_of, query, catalog),
            shape=direct_shape(query, catalog),
        )
        if len(self._meanings) >= _KEPT_MEANINGS:
            self._meanings.clear()
        self._meanings[id(snapshot)] = made
        return made

    def _held(self, meaning: _Meaning, wanted: Target, limits: ReadLimits, batches: tuple[Batch, ...]) -> Result:
        """A result that is in memory, within the limits of a read."""
        memory = self._graph.caches.settings.query_memory_bytes
        schema = result_schema(meaning.query.projections)
        if limits is NO_LIMITS:
            return self._result(meaning, wanted, schema, iter(batches), lambda: limits.budget(memory))
        budget = limits.budget(memory)
        budget.check()
        return self._result(meaning, wanted, schema, bounded_batches(budget, iter(batches)), lambda: budget)

    def _result(
        self, meaning: _Meaning, wanted: Target, schema: Schema, batches: Iterator[Batch], budget: Callable[[], Budget]
    ) -> Result:
        return Result(
            schema,
            batches,
            query_name=meaning.query.name,
            target=wanted,
            commit_id=meaning.snapshot.commit_id,
            types=meaning.types,
            budget=budget,
            pattern=meaning.pattern,
        )


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


def follow_commit(graph: OpenGraph, commit: GraphCommit | None) -> None:
    """Make what readers of the state before keep in memory for the new one: the next read finds it there.

    Only what was read since it was made last, so that writers without readers pay nothing. Never fails: what is not
    made here is made by the read that needs it.
    """
    if commit is None:
        return
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
    catalog: Catalog | None = None,
) -> Context:
    """The shared state of the operators of one query."""
    catalog = graph.catalog_of(snapshot) if catalog is None else catalog
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
