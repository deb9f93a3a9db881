"""Reads of an open graph: compile, resolve the target, run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.api.rows import Result
from omnigraph.commit.targets import Target, reading_pins, resolve_target
from omnigraph.core.budget import NO_LIMITS, Budget, ReadLimits
from omnigraph.core.types import VectorType
from omnigraph.engine.context import Context, EngineCaches, variable_tables
from omnigraph.engine.executor import execute, plan_query
from omnigraph.engine.expand import PERSIST_MIN_EDGES, find_adjacency
from omnigraph.engine.operators import Profile
from omnigraph.engine.path_choice import EngineSettings
from omnigraph.engine.text_parts import keep_text_column
from omnigraph.engine.wanted_indexes import indexed_texts
from omnigraph.errors import QuerySelectionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.query.signature import bind_params
from omnigraph.storage.derived import DerivedArrays

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.commit.environment import GraphEnvironment
    from omnigraph.commit.rows import TablePin
    from omnigraph.commit.schemas import GraphSchema
    from omnigraph.commit.snapshot import ManifestState, Snapshot
    from omnigraph.core.ids import TableKey
    from omnigraph.core.source import SourceText
    from omnigraph.core.values import StoredValue
    from omnigraph.embedding.contract import Embedder
    from omnigraph.lang.query.compiler import QueryCompiler
    from omnigraph.lang.schema.catalog import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """One read as it was asked for."""

    text: str | SourceText
    params: Mapping[str, object] | None
    name: str | None
    target: Target
    limits: ReadLimits = NO_LIMITS


class GraphReader:
    """Runs reads and keeps what they share. Thread-safe."""

    def __init__(
        self,
        environment: GraphEnvironment,
        compiler: QueryCompiler,
        schema_of: Callable[[str], GraphSchema],
        *,
        read_only: bool,
    ) -> None:
        self._environment = environment
        self._compiler = compiler
        self._schema_of = schema_of
        self.caches = EngineCaches(
            EngineSettings.from_environment(), DerivedArrays(environment.location, writable=not read_only)
        )
        self._embedder: Embedder | None = None
        self._lock = Lock()

    def query(self, call: ReadCall, state: ManifestState, reading: ExitStack) -> Result:
        """Run a read at one snapshot; `reading` ends with its last row."""
        prepared = self._prepare(call, state)
        context = self._context(
            prepared.snapshot,
            prepared.catalog,
            prepared.values,
            variable_tables(prepared.query.pipeline),
            is_head=call.target.is_head,
            budget=call.limits.budget(self.caches.settings.query_memory_bytes),
        )
        stream = execute(context, prepared.query)
        batches = self._to_the_end(stream.batches, context, reading)
        return Result(
            replace(stream, batches=batches),
            query_name=prepared.query.name,
            target=call.target,
            commit_id=prepared.snapshot.commit_id,
            types=tuple(item.type for item in prepared.query.projections),
            budget=context.budget,
        )

    def _to_the_end(
        self, batches: Iterator[pa.RecordBatch], context: Context, reading: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        try:
            with reading_pins(self._environment.tables, self._removable(context)):
                yield from batches
        finally:
            # Also when the rest is not read: a result that is dropped closes this generator.
            reading.close()

    def _removable(self, context: Context) -> Iterator[TablePin]:
        """The tables of a query that a cleanup may have removed; looked up lazily.

        That is after a failure. A table of another type may be gone as well, and has nothing to do with it.
        """
        heads = self._environment.manifest.state().heads.values()
        kept = {pin for head in heads for pin in head.pins.values()}
        # What a head reads is never cleaned up: if it is missing, it is damaged.
        yield from (pin for pin in context.opened_pins() if pin not in kept)

    def explain(self, call: ReadCall, state: ManifestState, *, analyze: bool) -> str:
        """Explain a read: its meaning and its plan; with `analyze` it runs, and rows and times are shown."""
        snapshot = resolve_target(self._environment.manifest, state, call.target)
        catalog = self._schema_of(snapshot.schema_hash).catalog
        compiled = self._compiler.compile(call.text, catalog, call.name)
        text = explain_ir(compiled.ir)
        if not isinstance(compiled.ir, ir.ReadIR):
            if analyze:
                message = f"`{compiled.name}` is a mutation: explaining it must not run it"
                raise QuerySelectionError(message, (compiled.name,))
            return text
        values: dict[str, StoredValue] = {}
        if analyze or call.params:
            values = self._bind(compiled.ir, call.params)
        context = self._context(
            snapshot,
            catalog,
            values,
            variable_tables(compiled.ir.pipeline),
            budget=call.limits.budget(self.caches.settings.query_memory_bytes),
        )
        plan = plan_query(context, compiled.ir)
        if not analyze:
            return f"{text}{plan.render()}"
        profile = Profile()
        with reading_pins(self._environment.tables, self._removable(context)):
            for _ in execute(context, compiled.ir, profile).batches:
                pass
        return f"{text}{plan.render(profile)}"

    def prepare_indexes(self, branch: str) -> None:
        """Build the traversal and text indexes of large types and keep them on disk for later processes."""
        manifest = self._environment.manifest
        snapshot = resolve_target(manifest, manifest.state(), Target(branch=branch))
        catalog = self._schema_of(snapshot.schema_hash).catalog
        context = self._context(snapshot, catalog, {}, {})
        for edge in catalog.edges.values():
            if snapshot.pins[edge.table_key].row_count >= PERSIST_MIN_EDGES:
                find_adjacency(context, edge, keep=True)
        for node in catalog.nodes.values():
            entities = context.type_entities(node.table_key)
            for name in indexed_texts(node):
                keep_text_column(context, entities, name)

    def _context(
        self,
        snapshot: Snapshot,
        catalog: Catalog,
        values: Mapping[str, StoredValue],
        tables: Mapping[str, TableKey],
        *,
        is_head: bool = True,
        budget: Budget | None = None,
    ) -> Context:
        """The shared state of the operators of one query."""
        embedder = _QueryEmbedding(catalog, self._get_embedder)
        return Context(
            catalog=catalog,
            snapshot=snapshot,
            store=self._environment.tables,
            caches=self.caches,
            values=values,
            tables=tables,
            is_head=is_head,
            embed=embedder,
            budget=Budget() if budget is None else budget,
        )

    def close(self) -> None:
        """Release connections and memory."""
        with self._lock:
            embedder, self._embedder = self._embedder, None
        if embedder is not None:
            embedder.close()
        self.caches.clear()

    def _prepare(self, call: ReadCall, state: ManifestState) -> _Prepared:
        snapshot = resolve_target(self._environment.manifest, state, call.target)
        catalog = self._schema_of(snapshot.schema_hash).catalog
        query = self._compiler.compile(call.text, catalog, call.name)
        if not isinstance(query.ir, ir.ReadIR):
            message = f"`{query.name}` is a mutation: run it with `mutate`"
            raise QuerySelectionError(message, (query.name,))
        return _Prepared(snapshot, catalog, query.ir, self._bind(query.ir, call.params))

    def _bind(self, query: ir.ReadIR, params: Mapping[str, object] | None) -> dict[str, StoredValue]:
        return {**bind_params(query, params), ir.NOW: self._environment.clock() // 1000}

    def _get_embedder(self) -> Embedder:
        from omnigraph.embedding.client import EmbeddingSettings, create_embedder

        with self._lock:
            if self._embedder is None:
                self._embedder = create_embedder(EmbeddingSettings.from_environment())
            return self._embedder


@dataclass(frozen=True, slots=True)
class _Prepared:
    snapshot: Snapshot
    catalog: Catalog
    query: ir.ReadIR
    values: Mapping[str, StoredValue]


@dataclass(frozen=True, slots=True)
class _QueryEmbedding:
    """Embeds the text of a `nearest` into the space of its property."""

    catalog: Catalog
    get_embedder: Callable[[], Embedder]

    def __call__(self, field: ir.PropertyRef, node_type: str, text: str) -> tuple[float, ...]:
        from omnigraph.embedding.contract import EmbedPurpose, check_model

        definition = self.catalog.nodes[node_type].properties[field.property]
        base = field.type.base
        assert isinstance(base, VectorType), "the checker allows vectors only"
        embedder = self.get_embedder()
        recorded = None if definition.embedding is None else definition.embedding.model
        check_model(recorded, embedder.model, f"{node_type}.{field.property}")
        vectors = embedder.embed([text], dimension=base.dimension, purpose=EmbedPurpose.QUERY)
        return vectors[0]
