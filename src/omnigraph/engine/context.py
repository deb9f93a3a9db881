"""The shared state of the operators of one query: tables, variables and caches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from omnigraph.commit.rows import TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import open_pin
from omnigraph.core.arrow import Array
from omnigraph.core.budget import Budget
from omnigraph.core.cache import LruCache
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.values import StoredValue
from omnigraph.engine.adjacency import Adjacency
from omnigraph.engine.entities import Entities, EntityCaches
from omnigraph.engine.path_choice import EngineSettings
from omnigraph.engine.rows import BoolArray, IntArray, Rows
from omnigraph.engine.text_columns import Scored, Segments, TextColumn, Tokens
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.datasets.indexes import IndexCoverage, list_indexes
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.derived import DerivedArrays

# ---- Variable bindings and their lifetimes


#: Stands for the outer row inside the pipeline of an anti-join.
OUTER_ROW = "~outer"


def is_hidden(variable: str) -> bool:
    """Whether a variable has no name in the query text."""
    return variable.startswith("~")


def variable_tables(ops: Iterable[ir.Op]) -> dict[str, TableKey]:
    """The table of every variable that a pipeline binds; a negation has variables of its own."""
    found: dict[str, TableKey] = {}
    for op in ops:
        match op:
            case ir.NodeScan(variable, node_type):
                found[variable] = node_table_key(node_type)
            case ir.Expand():
                found[op.target] = node_table_key(op.target_type)
                if op.edge_variable is not None:
                    found[op.edge_variable] = edge_table_key(op.edge_type)
            case ir.Filter() | ir.AntiJoin() | ir.SemiJoin():
                pass
            case _:
                assert_never(op)
    return found


def live_after(ops: Sequence[ir.Op], needed: Iterable[str]) -> list[frozenset[str]]:
    """Per operator, the variables that something behind it still asks for."""
    live = frozenset(needed)
    result: list[frozenset[str]] = []
    for op in reversed(ops):
        result.append(live)
        live = (live - frozenset(_introduced(op))) | frozenset(_used(op))
    return result[::-1]


def needed_variables(query: ir.ReadIR) -> frozenset[str]:
    """The variables that the result is made from, those that break ties included."""
    needed = {name for expression in result_expressions(query) for name in _read_of(expression)}
    if query.rank is not None:
        needed.add(rank_field(query.rank).variable)
    is_window = isinstance(query.rank, ir.Nearest | ir.Rrf)
    if is_window or (not query.grouped and (query.order or query.rank is not None)):
        needed.update(name for name in variable_names(query.pipeline) if not is_hidden(name))
    return frozenset(needed)


def result_expressions(query: ir.ReadIR) -> Iterator[ir.Expression]:
    """What the columns, the order and the limits of a result read of the rows of the match."""
    for projection in query.projections:
        if not isinstance(projection.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            yield projection.expression
    for key in query.order:
        if not isinstance(key.expression, ir.ColumnRef):
            yield key.expression
    yield from (key for key in query.per if not isinstance(key, ir.ColumnRef))


def _read_of(expression: ir.Expression) -> Iterator[str]:
    """The variables that an expression reads: what only counts rows reads nothing."""
    match expression:
        case ir.Aggregate() if counts_rows(expression):
            pass
        case ir.PropertyRef(variable) | ir.EntityRef(variable):
            yield variable
        case ir.Exists(outer) | ir.BlockValue(_, outer):
            yield from outer
        case _:
            for part in ir.parts(expression):
                yield from _read_of(part)


def counts_rows(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is the number of rows: a count of what is never null."""
    if aggregate.function is not ir.AggregateFunction.COUNT or aggregate.distinct:
        return False
    match aggregate.argument:
        case None | ir.EntityRef():
            return True
        case ir.PropertyRef(type=type_):
            return not type_.nullable
        case _:
            return False


def variable_names(ops: Iterable[ir.Op]) -> Iterator[str]:
    """The variables that a pipeline binds, without those of negations."""
    for op in ops:
        yield from _introduced(op)


def rank_field(rank: ir.Rank) -> ir.PropertyRef:
    """The property whose entities are ranked."""
    return rank_field(rank.first) if isinstance(rank, ir.Rrf) else rank.field


def _introduced(op: ir.Op) -> Iterator[str]:
    match op:
        case ir.NodeScan(variable):
            yield variable
        case ir.Expand():
            yield op.target
            if op.edge_variable is not None:
                yield op.edge_variable
        case ir.Filter() | ir.AntiJoin() | ir.SemiJoin():
            pass
        case _:
            assert_never(op)


def _used(op: ir.Op) -> Iterator[str]:
    match op:
        case ir.NodeScan(filters=filters):
            yield from _outer_variables(filters, (op.variable,))
        case ir.Expand():
            yield op.source
            yield from _outer_variables((*op.filters, *op.edge_filters), (op.target, op.edge_variable))
        case ir.Filter(predicate):
            yield from ir.variables(predicate)
        case ir.AntiJoin(outer) | ir.SemiJoin(outer):
            yield from outer
        case _:
            assert_never(op)


def _outer_variables(filters: Iterable[ir.Expression], own: Collection[str | None]) -> Iterator[str]:
    """The variables of filters that are bound before the operator that they belong to."""
    return (name for item in filters for name in ir.variables(item) if name not in own)


# ---- Shared state of a running query


_KEPT_TEXTS = 8
_KEPT_TABLES = 64


class QueryEmbedder(Protocol):
    """Turns the text of a `nearest` into a vector."""

    def __call__(self, field: ir.PropertyRef, node_type: str, text: str) -> tuple[float, ...]:
        """The vector of a text in the space of a property."""
        ...


class BlockEngine(Protocol):
    """Runs the blocks inside of expressions. Operators evaluate expressions, and blocks are made of operators."""

    def exists(self, context: Context, rows: Rows, block: ir.Exists) -> BoolArray:
        """Per row, whether a block has a solution."""
        ...

    def value(self, context: Context, rows: Rows, block: ir.BlockValue) -> Array:
        """Per row, the aggregate over the solutions of a block."""
        ...


class _NoBlocks:
    """Where no block can come up."""

    def exists(self, _context: Context, _rows: Rows, block: ir.Exists) -> BoolArray:
        raise AssertionError(f"nothing runs {block!r}")

    def value(self, _context: Context, _rows: Rows, block: ir.BlockValue) -> Array:
        raise AssertionError(f"nothing runs {block!r}")


class EngineCaches(EntityCaches):
    """The caches of one open graph between queries. Thread-safe."""

    def __init__(self, settings: EngineSettings, derived: DerivedArrays) -> None:
        super().__init__(settings.column_cache_bytes)
        self.settings = settings
        self.derived = derived
        self.adjacencies: LruCache[Adjacency] = LruCache(settings.adjacency_entries)
        self.text_columns: LruCache[TextColumn] = LruCache(_KEPT_TEXTS)
        #: Terms of fragments, by the identity of their texts.
        self.text_segments: LruCache[Segments] = LruCache(settings.column_cache_bytes, lambda segments: segments.nbytes)
        #: Row ids of fragments in storage order, by the identity of the rows that are alive.
        self.part_rows: LruCache[IntArray] = LruCache(settings.column_cache_bytes // 4, lambda array: int(array.nbytes))
        self.tokens: LruCache[Tokens] = LruCache(_KEPT_TEXTS)
        #: Work that was done without a traversal index, per state of an edge table.
        self.traversal_debt: LruCache[float] = LruCache(_KEPT_TABLES)
        self._indexes: LruCache[Mapping[str, IndexCoverage]] = LruCache(_KEPT_TABLES)

    def entities(self, table: Table, budget: Budget) -> Entities:
        """The rows of a table, read within a budget."""
        return Entities(table, self, budget)

    def indexes(self, table: Table) -> Mapping[str, IndexCoverage]:
        """The stored indexes of a table, by name."""
        key = (table.path, table.branch, table.version, table.fingerprint)
        return self._indexes.get_or_build(key, lambda: list_indexes(table))

    def clear(self) -> None:
        """Forget everything."""
        for cache in vars(self).values():
            if isinstance(cache, LruCache):
                cache.clear()


@dataclass(slots=True, kw_only=True)
class Context:
    """One running query: its snapshot, its parameters and the way to its rows."""

    catalog: Catalog
    snapshot: Snapshot
    store: TableStore
    caches: EngineCaches
    values: Mapping[str, StoredValue]
    tables: Mapping[str, TableKey]
    embed: QueryEmbedder
    blocks: BlockEngine = field(default_factory=_NoBlocks)
    #: How many rows of the result are wanted in order, those that the offset leaves out included; None for all.
    wanted: int | None = None
    #: What the query may use; every operator looks at it.
    budget: Budget = field(default_factory=Budget)
    #: Whether the newest state of a branch is read, so that what follows from it is worth being kept on disk.
    is_head: bool = True
    #: Text conditions that were answered for the whole table already.
    matches: dict[tuple[TableKey, ir.TextMatch], IntArray] = field(default_factory=dict)
    #: The relevance of all rows, by the ranking that asked for it.
    relevances: dict[tuple[TableKey, ir.Bm25], Scored] = field(default_factory=dict)
    _entities: dict[TableKey, Entities] = field(default_factory=dict)

    @property
    def settings(self) -> EngineSettings:
        """The settings of the engine."""
        return self.caches.settings

    def inside(self, pipeline: Sequence[ir.Op]) -> Context:
        """The same query inside a block that binds variables of its own."""
        return replace(self, tables={**self.tables, **variable_tables(pipeline)})

    def type_entities(self, key: TableKey) -> Entities:
        """The rows of a type at the snapshot."""
        known = self._entities.get(key)
        if known is None:
            pin = self.snapshot.pins[key]
            table = open_pin(self.store, pin)
            known = self._entities[key] = self.caches.entities(table, self.budget)
        return known

    def opened_pins(self) -> list[TablePin]:
        """The tables that the query has opened so far."""
        return [self.snapshot.pins[key] for key in self._entities]

    def entities(self, variable: str) -> Entities:
        """The rows that a variable ranges over."""
        return self.type_entities(self.tables[variable])
