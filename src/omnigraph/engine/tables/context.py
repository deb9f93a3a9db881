"""The shared state of the operators of one query: tables, variables and caches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeAlias, assert_never

import numpy as np

from omnigraph.commit.rows import TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import open_pin
from omnigraph.core.arrow import Array, pa
from omnigraph.core.background import Background
from omnigraph.core.budget import Budget
from omnigraph.core.cache import LruCache, SingleFlight, by_identity
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.values import StoredValue
from omnigraph.engine.nodes import Close, Intersect, PlanOp
from omnigraph.engine.rows import BoolArray, Column, IntArray, Numbers, Rows
from omnigraph.engine.tables.adjacency import Adjacency
from omnigraph.engine.tables.entities import Entities, EntityCaches
from omnigraph.engine.tables.kept_columns import ColumnCache
from omnigraph.engine.tables.settings import EngineSettings
from omnigraph.engine.tables.text_columns import Scored, Segments, TextColumn, Tokens
from omnigraph.engine.tables.vector_columns import VectorColumn, VectorPart
from omnigraph.engine.tables.vector_ways import RecallCurve
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


#: Stand for the table of a variable of several types: its numbers tell the type of each row.
NODES = TableKey("node:*")
EDGES = TableKey("edge:*")
#: Bits of a number that are the row id; the ones above are the type.
_TYPE_SHIFT = 48
_ROW_MASK = (1 << _TYPE_SHIFT) - 1
#: The number of a variable that is bound to nothing.
NOTHING = -1


@by_identity
def variable_tables(ops: Sequence[PlanOp]) -> dict[str, TableKey]:
    """The table of every variable that a pipeline binds; a negation has variables of its own."""
    found: dict[str, TableKey] = {}
    for op in ops:
        match op:
            case ir.NodeScan(variable, node_type):
                found[variable] = node_table_key(node_type)
            case ir.UnionScan(variable):
                found[variable] = NODES
            case ir.Expand():
                found[op.target] = node_table_key(op.target_type)
                if op.edge_variable is not None:
                    found[op.edge_variable] = edge_table_key(op.edge_type)
            case Close():
                if op.edge_variable is not None:
                    found[op.edge_variable] = edge_table_key(op.edge_type)
            case Intersect(target, target_type):
                found[target] = node_table_key(target_type)
            case ir.ExpandEdges():
                found[op.target] = _nodes_of(op.target_types)
                edges = {step.edge_type for step in op.steps}
                found[op.edge_variable] = edge_table_key(next(iter(edges))) if len(edges) == 1 else EDGES
            case ir.Search():
                found[op.target] = _nodes_of(op.target_types)
            case ir.PathSearch(search=search):
                found[op.target] = _nodes_of(search.target_types)
            case ir.OptionalJoin(_, pipeline, binds):
                found |= {name: key for name, key in variable_tables(pipeline).items() if name in binds}
            case ir.Filter() | ir.AntiJoin() | ir.SemiJoin():
                pass
            case _:
                assert_never(op)
    return found


def _nodes_of(node_types: Sequence[str]) -> TableKey:
    return node_table_key(node_types[0]) if len(node_types) == 1 else NODES


@by_identity
def optional_variables(ops: Sequence[PlanOp]) -> frozenset[str]:
    """The variables that may be bound to nothing."""
    return frozenset(name for op in ops if isinstance(op, ir.OptionalJoin) for name in op.binds)


@by_identity
def walked_paths(projections: Sequence[ir.Projection]) -> frozenset[str]:
    """The paths whose steps are returned, with the types of their nodes and edges."""
    return frozenset(
        item.expression.path
        for item in projections
        if isinstance(item.expression, ir.PathRef) and item.expression.part is ir.PathPart.STEPS
    )


@by_identity
def live_after(ops: Sequence[PlanOp], needed: frozenset[str]) -> list[frozenset[str]]:
    """Per operator, the variables that something behind it still asks for."""
    live = needed
    result: list[frozenset[str]] = []
    for op in reversed(ops):
        result.append(live)
        live = _live_before(op, live)
    return result[::-1]


def live_before(ops: Sequence[PlanOp], needed: frozenset[str]) -> frozenset[str]:
    """The variables that a pipeline, or what comes behind it, asks those before it for."""
    live = needed
    for op in reversed(ops):
        live = _live_before(op, live)
    return live


def _live_before(op: PlanOp, live: frozenset[str]) -> frozenset[str]:
    return (live - frozenset(_introduced(op))) | frozenset(_used(op))


@by_identity
def needed_variables(query: ir.ReadIR) -> frozenset[str]:
    """The variables that the result is made from, those that break ties included."""
    needed = {name for expression in result_expressions(query) for name in _read_of(expression)}
    if query.rank is not None:
        needed.add(rank_field(query.rank).variable)
    is_window = isinstance(query.rank, ir.Nearest | ir.Rrf)
    is_window |= any(orders_values(part) for expression in result_expressions(query) for part in ir.walk(expression))
    if is_window or (not query.grouped and (query.order or query.rank is not None)):
        needed.update(name for name in variable_names(query.pipeline) if not is_hidden(name))
    return frozenset(needed)


def orders_values(expression: ir.Expression) -> bool:
    """Whether an expression is a list in an order of its own, whose ties are broken by the ids of all variables."""
    return isinstance(expression, ir.Aggregate) and bool(expression.order)


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
        case ir.PropertyRef(variable) | ir.EntityRef(variable) | ir.TypeOf(variable) | ir.PathRef(variable):
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
        case None | ir.EntityRef(nullable=False):
            return True
        case ir.PropertyRef(type=type_):
            return not type_.nullable
        case _:
            return False


def variable_names(ops: Iterable[PlanOp]) -> Iterator[str]:
    """The variables that a pipeline binds, without those of negations."""
    for op in ops:
        yield from _introduced(op)


def path_columns(rows: Rows, variables: Iterable[str]) -> dict[Column, Array]:
    """The columns of the paths among some variables: no table has them, so they go wherever their path goes."""
    keys = ((name, part) for name in variables for part in ir.PathPart)
    return {key: rows.columns[key] for key in keys if key in rows.columns}


def rank_field(rank: ir.Rank) -> ir.PropertyRef:
    """The property whose entities are ranked."""
    return rank_field(rank.first) if isinstance(rank, ir.Rrf) else rank.field


def _introduced(op: PlanOp) -> Iterator[str]:
    match op:
        case ir.NodeScan(variable):
            yield variable
        case ir.Expand():
            yield op.target
            if op.edge_variable is not None:
                yield op.edge_variable
        case Close():
            if op.edge_variable is not None:
                yield op.edge_variable
        case Intersect(target):
            yield target
        case ir.UnionScan(variable):
            yield variable
        case ir.ExpandEdges():
            yield op.target
            yield op.edge_variable
        case ir.Search():
            yield op.target
        case ir.PathSearch(path):
            yield op.target
            yield path
        case ir.OptionalJoin(binds=binds):
            yield from binds
        case ir.Filter() | ir.AntiJoin() | ir.SemiJoin():
            pass
        case _:
            assert_never(op)


def _used(op: PlanOp) -> Iterator[str]:
    match op:
        case ir.NodeScan(filters=filters):
            yield from _outer_variables(filters, (op.variable,))
        case ir.Expand():
            yield op.source
            yield from _outer_variables((*op.filters, *op.edge_filters), (op.target, op.edge_variable))
        case Close():
            yield op.source
            yield op.target
            yield from _outer_variables(op.edge_filters, (op.edge_variable,))
        case Intersect():
            yield from (arm.source for arm in op.arms)
            yield from _outer_variables(op.filters, (op.target,))
        case ir.Filter(predicate):
            yield from ir.variables(predicate)
        case ir.UnionScan(filters=filters):
            yield from _outer_variables(filters, (op.variable,))
        case ir.ExpandEdges() | ir.Search() | ir.PathSearch():
            yield op.source
        case ir.AntiJoin(outer) | ir.SemiJoin(outer) | ir.OptionalJoin(outer):
            yield from outer
        case _:
            assert_never(op)


def _outer_variables(filters: Iterable[ir.Expression], own: Collection[str | None]) -> Iterator[str]:
    """The variables of filters that are bound before the operator that they belong to."""
    return (name for item in filters for name in ir.variables(item) if name not in own)


# ---- Shared state of a running query


_KEPT_TEXTS = 8
_KEPT_TABLES = 64
_KEPT_MASK_USES = 1024
#: States of one edge table whose adjacency is kept.
_KEPT_STATES = 4

#: The identity of the edges of a type: the rows of the edges and of both ends.
AdjacencyKey: TypeAlias = tuple[str, str, str]
#: A state of an edge table whose adjacency is kept.
EdgeState: TypeAlias = tuple[Table, AdjacencyKey]
_KEPT_PLANS = 1024


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

    def value(self, context: Context, rows: Rows, block: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """Per row, the aggregate over the solutions of a block, and where integers overflow in it, if anywhere."""
        ...


class _NoBlocks:
    """Where no block can come up."""

    def exists(self, _context: Context, _rows: Rows, block: ir.Exists) -> BoolArray:
        raise AssertionError(f"nothing runs {block!r}")

    def value(self, _context: Context, _rows: Rows, block: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        raise AssertionError(f"nothing runs {block!r}")


class EngineCaches(EntityCaches):
    """The caches of one open graph between queries. Thread-safe."""

    def __init__(self, settings: EngineSettings, derived: DerivedArrays) -> None:
        super().__init__(settings.column_cache_bytes)
        self.settings = settings
        self.derived = derived
        # A state that was made from another one shares nearly all of its arrays.
        self.adjacencies: LruCache[Adjacency] = LruCache(
            2 * settings.adjacency_entries, lambda adjacency: 2 if adjacency.is_written else 1, states=_KEPT_STATES
        )
        #: The states of each edge table whose adjacency is kept, the latest first, with the keys of these.
        self.edge_states: LruCache[tuple[EdgeState, ...]] = LruCache(_KEPT_TABLES)
        #: Adjacencies that are made from others now, and those that are built.
        self.stepping: SingleFlight[Adjacency | None] = SingleFlight()
        self.building: SingleFlight[Adjacency] = SingleFlight()
        self.text_columns: LruCache[TextColumn] = LruCache(_KEPT_TEXTS)
        #: Terms of fragments, by the identity of their texts.
        self.text_segments: LruCache[Segments] = LruCache(settings.column_cache_bytes, lambda segments: segments.nbytes)
        #: Row ids of fragments in storage order, by the identity of the rows that are alive.
        self.part_rows: LruCache[IntArray] = LruCache(settings.column_cache_bytes // 4, lambda array: int(array.nbytes))
        #: Columns of edges in the order of a traversal index, with the edges of that index.
        self.edge_columns: LruCache[tuple[Numbers, Array]] = LruCache(
            settings.column_cache_bytes, lambda kept: int(kept[1].nbytes)
        )
        #: Numbers of the values of properties, by the numbers of the entities, with the numbering of those.
        self.value_numbers: LruCache[tuple[object, IntArray]] = LruCache(
            settings.column_cache_bytes // 4, lambda kept: int(kept[1].nbytes)
        )
        #: Vectors of fragments, by the identity of their values, and of whole tables, which share those.
        self.vector_parts: LruCache[VectorPart] = LruCache(settings.column_cache_bytes, lambda part: part.nbytes)
        self.vector_columns: LruCache[VectorColumn] = LruCache(settings.column_cache_bytes, lambda item: item.nbytes)
        #: What was measured on vector indexes, by their segments.
        self.recalls: LruCache[RecallCurve] = LruCache(_KEPT_TABLES)
        self.tokens: LruCache[Tokens] = LruCache(_KEPT_TEXTS)
        #: Work that was done without a traversal index, per state of an edge table.
        self.traversal_debt: LruCache[float] = LruCache(_KEPT_TABLES)
        #: Per row of a table, whether it satisfies conditions without parameters, by the text of those conditions.
        self.masks: LruCache[BoolArray] = LruCache(settings.column_cache_bytes // 8, lambda mask: int(mask.nbytes))
        #: How often such conditions were checked for a few rows, per state of their table.
        self.mask_uses: LruCache[int] = LruCache(_KEPT_MASK_USES)
        #: Writes arrays out of which much has changed.
        self.background = Background()
        #: Plans by query and snapshot, and by query and statistics; `engine.plan.planned` knows what they are.
        self.plans: LruCache[object] = LruCache(_KEPT_PLANS)
        #: Statistics by the content that they were taken from.
        self.statistics: LruCache[object] = LruCache(_KEPT_PLANS)
        self._indexes: LruCache[Mapping[str, IndexCoverage]] = LruCache(_KEPT_TABLES)

    def entities(self, table: Table, budget: Budget) -> Entities:
        """The rows of a table, read within a budget."""
        return Entities(table, self, budget)

    def indexes(self, table: Table) -> Mapping[str, IndexCoverage]:
        """The stored indexes of a table, by name."""
        key = (table.path, table.branch, table.version, table.fingerprint)
        return self._indexes.get_or_build(key, lambda: list_indexes(table))

    def close(self) -> None:
        """Forget everything, and stop what is made in the background."""
        self.background.close()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        for cache in vars(self).values():
            if isinstance(cache, LruCache | ColumnCache):
                cache.clear()


@dataclass(kw_only=True)
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
    #: The variables that may be bound to nothing.
    optional: frozenset[str] = frozenset()
    #: The paths that are returned step by step.
    walked: frozenset[str] = frozenset()
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

    def inside(self, pipeline: Sequence[PlanOp]) -> Context:
        """The same query inside a block that binds variables of its own."""
        tables = variable_tables(pipeline)
        optional = (self.optional - tables.keys()) | optional_variables(pipeline)
        return replace(self, tables={**self.tables, **tables}, optional=optional)

    def narrowed(self, tables: Mapping[str, TableKey]) -> Context:
        """The same query where some variables are of one type, and always bound."""
        return replace(self, tables={**self.tables, **tables}, optional=self.optional - tables.keys())

    def is_plain(self, variable: str) -> bool:
        """Whether a variable is always bound, and to rows of one type."""
        return variable not in self.optional and self.tables[variable] not in (NODES, EDGES)

    def path_parts(self, path: str) -> list[Column]:
        """The columns of a path: types only where they are asked for."""
        part = ir.PathPart
        kept = (part.NODES, part.EDGES)
        types = (part.NODE_TYPES, part.EDGE_TYPES) if path in self.walked else ()
        return [(path, name) for name in (*kept, *types)]

    # ---- numbers of rows of several types

    def type_number(self, key: TableKey) -> int:
        """The number of a type among those of its kind."""
        return self._type_numbers[key]

    @cached_property
    def _type_numbers(self) -> dict[TableKey, int]:
        kinds = ((node_table_key, self.catalog.nodes), (edge_table_key, self.catalog.edges))
        return {key_of(name): number for key_of, types in kinds for number, name in enumerate(sorted(types))}

    @cached_property
    def _keys_of_numbers(self) -> dict[bool, list[TableKey]]:
        return {
            True: [node_table_key(name) for name in sorted(self.catalog.nodes)],
            False: [edge_table_key(name) for name in sorted(self.catalog.edges)],
        }

    def tagged(self, key: TableKey, row_ids: IntArray) -> IntArray:
        """Row ids of one type as numbers among rows of several types."""
        found: IntArray = row_ids | (self.type_number(key) << _TYPE_SHIFT)
        return found

    def row_ids(self, numbers: IntArray) -> IntArray:
        """The row ids in numbers among rows of several types."""
        found: IntArray = numbers & _ROW_MASK
        return found

    def type_numbers_of(self, numbers: IntArray) -> IntArray:
        """The numbers of the types in numbers among rows of several types."""
        found: IntArray = numbers >> _TYPE_SHIFT
        return found

    def identity(self, variable: str, numbers: IntArray) -> IntArray:
        """The numbers of a variable so that they are equal for the same entity, whatever variable is bound to it."""
        key = self.tables[variable]
        if key in (NODES, EDGES):
            return numbers
        return np.where(numbers < 0, numbers, self.tagged(key, numbers))

    def parts(self, variable: str, numbers: IntArray) -> Iterator[tuple[TableKey, IntArray, IntArray]]:
        """The types of what a variable is bound to, each with the places in the numbers and the row ids there."""
        key = self.tables[variable]
        bound = np.flatnonzero(numbers >= 0) if variable in self.optional else np.arange(len(numbers))
        if key not in (NODES, EDGES):
            yield key, bound, numbers[bound]
            return
        types = numbers[bound] >> _TYPE_SHIFT
        keys = self._keys_of_numbers[key == NODES]
        for number in np.flatnonzero(np.bincount(types)):
            places = bound[types == number]
            yield keys[int(number)], places, numbers[places] & _ROW_MASK

    def columns(self, variable: str, numbers: IntArray, names: Sequence[str]) -> dict[str, Array]:
        """Stored columns of what a variable is bound to; null where it is bound to nothing."""
        if self.is_plain(variable):
            return self.entities(variable).columns(numbers, names)
        order = np.full(len(numbers), -1, np.int64)
        found: dict[str, list[Array]] = {name: [] for name in names}
        done = 0
        for key, places, row_ids in self.parts(variable, numbers):
            columns = self.type_entities(key).columns(row_ids, names)
            order[places] = np.arange(done, done + len(places))
            done += len(places)
            for name in names:
                found[name].append(columns[name])
        index = pa.array(order, mask=order < 0)
        joined: dict[str, Array] = {}
        for name, parts in found.items():
            if parts:
                joined[name] = pa.concat_arrays(parts).take(index)
            else:
                joined[name] = pa.nulls(len(numbers), self._column_type(variable, name))
        return joined

    def _column_type(self, variable: str, name: str) -> object:
        """The type of a column of a variable that is bound to nothing at all."""
        key = self.tables[variable]
        keys = self._keys_of_numbers[key == NODES] if key in (NODES, EDGES) else [key]
        for candidate in keys:
            schema = self.type_entities(candidate).table.schema
            if name in schema.names:
                return schema.field(name).type
        return pa.null()

    def type_names(self, variable: str, numbers: IntArray) -> Array:
        """The names of the types of what a variable is bound to."""
        names = np.full(len(numbers), None, object)
        for key, places, _ in self.parts(variable, numbers):
            names[places] = key.name
        column: Array = pa.array(names.tolist(), pa.utf8())
        return column

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
