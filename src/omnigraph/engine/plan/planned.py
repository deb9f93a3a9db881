"""Plans of reads on a snapshot: the statistics that are at hand, and plans that are kept by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import assert_never
from weakref import ref

from omnigraph.core.cache import by_identity
from omnigraph.core.ids import TableKey, node_table_key
from omnigraph.engine.plan.estimates import Model, rows_behind
from omnigraph.engine.plan.planner import plan_match, plan_read
from omnigraph.engine.plan.statistics import (
    Degrees,
    EdgeStatistics,
    PropertyStatistics,
    Statistics,
    degrees_of,
    rounded_count,
    values_of,
)
from omnigraph.engine.tables.adjacency import Adjacency
from omnigraph.engine.tables.context import EDGES, NODES, Context, variable_tables
from omnigraph.engine.tables.settings import PlanOrder, PlanSettings
from omnigraph.engine.tables.traversal_index import adjacency_key
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import EdgeDef

#: An estimate is badly wrong when it is so many times too small or too large, and by so many rows.
WRONG_FACTOR = 100.0
_WRONG_ROWS = 1000.0


@frozen
class PlannedRead:
    """A read with its operators in their order."""

    #: As it was written.
    written: ir.ReadIR
    query: ir.ReadIR
    statistics: Statistics
    #: Rows that are expected behind the first scan, where another number of them would change the plan.
    first_rows: float | None = None


@frozen
class _KeptPlan:
    """A plan with the state of the caches and of the snapshot that it was made in."""

    plan: PlannedRead
    state: tuple[int, int] = (0, 0)
    pins: object = None


def plan_of(context: Context, query: ir.ReadIR) -> PlannedRead:
    """The plan of a read on the snapshot of a context, kept as long as nothing that it follows from changes."""
    caches = context.caches
    # What is in memory now, in two numbers: a plan is looked at again when there is more.
    state = (caches.adjacencies.puts, caches.columns.puts)
    key = (id(query), id(context.snapshot.pins))
    known = caches.plans.get(key)
    if isinstance(known, _KeptPlan) and known.state == state:
        return known.plan
    statistics = statistics_of(context, _named_by(query))
    plan = _planned(context, query, statistics)
    # Both objects are kept with the plan, so that no other ones get their identities.
    caches.plans.put(key, _KeptPlan(plan, state, context.snapshot.pins), state_of=("snapshots", id(query)))
    return plan


def _planned(context: Context, query: ir.ReadIR, statistics: Statistics) -> PlannedRead:
    """The plan of equal statistics: most commits leave them as they are."""
    plans, key = context.caches.plans, (id(query), statistics)
    known = plans.get(key)
    if isinstance(known, _KeptPlan):
        return known.plan
    made = plan_read(query, statistics, context.settings.plan)
    newest = plans.get(("newest", id(query)))
    if isinstance(newest, _KeptPlan) and newest.plan.query == made:
        # The same object, since what follows from a plan is kept by which one it is.
        made = newest.plan.query
    is_chosen = context.settings.plan.order is PlanOrder.COST
    plan = PlannedRead(query, made, statistics, _checked_rows(made, statistics) if is_chosen else None)
    plans.put(key, _KeptPlan(plan), state_of=("statistics", id(query)))
    plans.put(("newest", id(query)), _KeptPlan(plan))
    return plan


def _checked_rows(query: ir.ReadIR, statistics: Statistics) -> float | None:
    """The rows behind the first scan, if they are a guess that other choices hang on."""
    match query.pipeline:
        case (ir.NodeScan(variable, _, filters), *_) if query.rank is None and filters:
            pass
        case _:
            return None
    links = sum(isinstance(op, ir.Expand | ir.ExpandEdges | ir.Search | ir.NodeScan) for op in query.pipeline)
    model = Model.of(statistics, query.pipeline, {})
    if links < 2 or model.is_one(variable, filters):
        return None
    return next(iter(rows_behind(model, query.pipeline)))


def is_wrong(estimate: float, rows: float) -> bool:
    """Whether an estimate was badly wrong."""
    if abs(estimate - rows) < _WRONG_ROWS:
        return False
    return max(estimate, 1.0) > WRONG_FACTOR * max(rows, 1.0) or rows > WRONG_FACTOR * max(estimate, 1.0)


def replanned(context: Context, plan: PlannedRead, rows: float, *, is_total: bool) -> ir.ReadIR:
    """The read planned once more, now that the rows of its first variable were counted.

    If these are all rows, the plan goes on with them; else it may begin elsewhere.
    """
    return _replanned(plan, context.settings.plan, round(log2(max(rows, 1.0))), is_total)


@by_identity
def _replanned(plan: PlannedRead, settings: PlanSettings, magnitude: int, is_total: bool) -> ir.ReadIR:
    first = plan.query.pipeline[0]
    assert isinstance(first, ir.NodeScan), "a scan is what was counted"
    return plan_read(
        plan.written,
        plan.statistics,
        settings,
        observed={first.variable: float(2**magnitude)},
        start=first.variable if is_total else None,
    )


def match_of(context: Context, ops: tuple[ir.Op, ...], needed: tuple[str, ...]) -> tuple[ir.Op, ...]:
    """The operators of the match of a mutation in their order."""
    statistics = statistics_of(context, _named_in(ops))
    key = (id(ops), needed, statistics)
    known = context.caches.plans.get(key)
    if isinstance(known, _KeptMatch):
        return known.planned
    planned = plan_match(ops, needed, statistics, context.settings.plan)
    context.caches.plans.put(key, _KeptMatch(ops, planned), state_of=("matches", id(ops)))
    return planned


@frozen
class _KeptMatch:
    """A planned match, beside the written one."""

    written: tuple[ir.Op, ...]
    planned: tuple[ir.Op, ...]


# ---- The statistics that are at hand


@frozen
class _Named:
    """The types that a query names, and the properties that its conditions read."""

    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    properties: tuple[tuple[TableKey, str], ...]


@by_identity
def _named_by(query: ir.ReadIR) -> _Named:
    others = [item.expression for item in query.projections]
    others += [key.expression for key in query.order]
    ranks = (ir.Nearest, ir.Bm25, ir.Rrf)
    return _named(query.pipeline, [item for item in others if not isinstance(item, ranks)])


@by_identity
def _named_in(ops: tuple[ir.Op, ...]) -> _Named:
    return _named(ops)


def _named(ops: Sequence[ir.Op], others: Iterable[ir.Expression] = ()) -> _Named:
    found = _Names()
    found.add(ops, {}, others)
    return _Named(tuple(sorted(found.nodes)), tuple(sorted(found.edges)), tuple(sorted(found.properties)))


class _Names:
    """Collects the names of types and properties from pipelines, and from the blocks inside of them."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.edges: set[str] = set()
        self.properties: set[tuple[TableKey, str]] = set()

    def add(self, ops: Sequence[ir.Op], outer: Mapping[str, TableKey], others: Iterable[ir.Expression] = ()) -> None:
        """What a pipeline names, and expressions over its variables."""
        tables = {**outer, **variable_tables(ops)}
        for op in ops:
            match op:
                case ir.NodeScan(_, node_type, filters):
                    self.nodes.add(node_type)
                    self._expressions(filters, tables)
                case ir.UnionScan(_, node_types, filters):
                    self.nodes.update(node_types)
                    self._expressions(filters, tables)
                case ir.Expand():
                    self.edges.add(op.edge_type)
                    self.nodes.add(op.target_type)
                    self._expressions((*op.filters, *op.edge_filters), tables)
                case ir.ExpandEdges():
                    self._steps(op.steps)
                    self._expressions(op.edge_filters, tables)
                case ir.Search():
                    self._steps(op.steps)
                case ir.PathSearch(search=search):
                    self._steps(search.steps)
                case ir.Filter(predicate):
                    self._expressions((predicate,), tables)
                case ir.AntiJoin(_, inner) | ir.SemiJoin(_, inner) | ir.OptionalJoin(_, inner):
                    self.add(inner, tables)
                case _:
                    assert_never(op)
        self._expressions(others, tables)

    def _steps(self, steps: Iterable[ir.Step]) -> None:
        for step in steps:
            self.edges.add(step.edge_type)
            self.nodes.update((step.source_type, step.target_type))

    def _expressions(self, expressions: Iterable[ir.Expression], tables: Mapping[str, TableKey]) -> None:
        for found in (part for expression in expressions for part in ir.walk(expression)):
            match found:
                case ir.PropertyRef(variable, name) if tables.get(variable, NODES) not in (NODES, EDGES):
                    self.properties.add((tables[variable], name))
                case ir.Exists(_, inner):
                    self.add(inner, tables)
                case ir.BlockValue(aggregate, _, inner):
                    self.add(inner, tables, (aggregate,))
                case _:
                    pass


def statistics_of(context: Context, named: _Named) -> Statistics:
    """The statistics of types and properties, from row counts and from what is in memory."""
    pins = context.snapshot.pins
    edges = [context.catalog.edges[name] for name in named.edges]
    names = {*named.nodes, *(end for edge in edges for end in (edge.source, edge.target))}
    rows = {name: rounded_count(pins[node_table_key(name)].row_count) for name in names}
    known: dict[tuple[str, str], PropertyStatistics] = {}
    for key, name in named.properties:
        unique, sampled = _unique(context, key, name, rows), _values(context, key, name)
        if unique is not None and sampled is not None:
            # The rules know how many values there are, the sample which.
            sampled = replace(sampled, distinct=unique.distinct)
        found = sampled or unique
        if found is not None:
            known[str(key), name] = found
    return Statistics.of(rows, {edge.name: _edges(context, edge) for edge in edges}, known)


def _unique(context: Context, key: TableKey, name: str, rows: Mapping[str, int]) -> PropertyStatistics | None:
    """The values of a property that is different in each row, by the rules of the schema."""
    node = context.catalog.nodes.get(key.name) if key.kind == "node" else None
    if node is None:
        return None
    sets = [*node.uniques, *filter(None, (node.key,))]
    return PropertyStatistics(rows[node.name]) if any(item.members == (name,) for item in sets) else None


def _values(context: Context, key: TableKey, name: str) -> PropertyStatistics | None:
    """The values of a column that is in memory; a sample is looked at once, and serves the states made from it too."""
    caches = context.caches
    if not caches.columns.used:
        return None
    column = context.type_entities(key).column_in_memory(name)
    if column is None:
        return None
    known = caches.statistics.get(id(column))
    if not isinstance(known, _Sampled) or known.column() is not column:
        known = _Sampled(ref(column), values_of(column))
        caches.statistics.put(id(column), known)
    return known.values


@frozen
class _Sampled:
    """What is known of a column, which may be nothing."""

    column: Callable[[], object]
    values: PropertyStatistics | None


@frozen
class _Counted:
    """The degrees that follow from an array."""

    offsets: Callable[[], object]
    degrees: Degrees


def _edges(context: Context, edge: EdgeDef) -> EdgeStatistics:
    count = rounded_count(context.snapshot.pins[edge.table_key].row_count)
    adjacencies = context.caches.adjacencies
    adjacency = adjacencies.get(adjacency_key(context, edge)) if adjacencies.used else None
    if adjacency is None:
        return EdgeStatistics(count)
    out, into = (_degrees(context, adjacency, direction) for direction in _SIDES)
    return EdgeStatistics(count, out, into)


def _degrees(context: Context, adjacency: Adjacency, direction: ir.Direction) -> Degrees | None:
    """The degrees at one end; a side that was never asked for is not made for them."""
    if not adjacency.has(direction):
        return None
    offsets, statistics = adjacency.side(direction).base_offsets, context.caches.statistics
    known = statistics.get(id(offsets))
    if not isinstance(known, _Counted) or known.offsets() is not offsets:
        known = _Counted(ref(offsets), degrees_of(offsets))
        statistics.put(id(offsets), known)
    return known.degrees


_SIDES = (ir.Direction.OUT, ir.Direction.IN)
