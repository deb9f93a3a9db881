"""The physical choices of a read, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from omnigraph.core.ids import node_table_key
from omnigraph.engine.nodes import Close, Intersect, PlanOp
from omnigraph.engine.operators.fuse import fused
from omnigraph.engine.operators.neighbours import way_to_neighbours
from omnigraph.engine.operators.pipeline import Measured, Profile, operator_label
from omnigraph.engine.plan.estimates import Model, rows_behind
from omnigraph.engine.plan.planned import PlannedRead, plan_of
from omnigraph.engine.plan.statistics import Statistics
from omnigraph.engine.predicates import push_down, stored_columns
from omnigraph.engine.ranking.nearest import nearest_text
from omnigraph.engine.tables.context import NODES, Context, is_hidden, rank_field, variable_tables
from omnigraph.engine.tables.settings import choose_path
from omnigraph.engine.tables.text_search import is_text_ready
from omnigraph.engine.tables.traversal_index import traversal_facts
from omnigraph.engine.tables.wanted_indexes import scalar_index_name
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: A limit of which nothing is known.
_USUAL_LIMIT = 10


@frozen
class _Step:
    """One operator: how it runs, and how many rows are expected behind it."""

    place: tuple[int, ...]
    depth: int
    text: str
    rows: float


@frozen
class Plan:
    """The physical choices of a read, made before it runs."""

    context: Context
    planned: PlannedRead
    steps: tuple[_Step, ...]
    rank: str | None

    def render(self, profile: Profile | None = None) -> str:
        """One line per operator with its path and estimate; with a profile also what happened."""
        lines, steps = ["plan"], self.steps
        if profile is not None and profile.replanned is not None:
            steps = _steps_of(self.context, profile.replanned, self.planned.statistics)
            lines.append(f"  planned again: {profile.reason}")
        for step in steps:
            measured = None if profile is None else profile.operators.get(step.place)
            lines.append(f"{'  ' * step.depth}{step.text}{_numbers(step, measured)}")
        if self.rank is not None:
            lines.append(f"  {self.rank}")
        if profile is not None:
            for name, measured in profile.stages.items():
                lines.append(f"  {name}: {_rows(measured.rows)} in {_milliseconds(measured)}")
        return "\n".join(lines) + "\n"


def plan_query(context: Context, query: ir.ReadIR) -> Plan:
    """The plan of a read on this snapshot."""
    planned = plan_of(context, query)
    steps = _steps_of(context, planned.query, planned.statistics)
    context = replace(context, tables=variable_tables(planned.query.pipeline))
    return Plan(context, planned, steps, None if query.rank is None else _rank_text(context, planned.query, steps))


def _steps_of(context: Context, query: ir.ReadIR, statistics: Statistics) -> tuple[_Step, ...]:
    context = replace(context, tables=variable_tables(query.pipeline))
    level = _Level(context, Model.of(statistics, query.pipeline, {}), 1.0, (), 1)
    return tuple(_steps(level, query.pipeline))


@frozen
class _Level:
    """Where a pipeline stands: in the query itself, or inside of a block."""

    context: Context
    model: Model
    #: The rows that it begins with.
    rows: float
    place: tuple[int, ...]
    depth: int

    def inside(self, outer: Sequence[str], ops: Sequence[ir.Op], number: int, rows: float) -> _Level:
        """The level of a block of one of its operators."""
        types = {name: self.model.types.get(name, ()) for name in outer}
        model = Model.of(self.model.statistics, ops, types)
        return _Level(self.context.inside(ops), model, rows, (*self.place, number), self.depth + 1)


def _numbers(step: _Step, measured: Measured | None) -> str:
    estimate = f"about {_rows(step.rows)}"
    if measured is None:
        return f" · {estimate}"
    path = "" if measured.path is None or measured.path in step.text else f" via {measured.path}"
    return f" · {estimate} · {_rows(measured.rows)}{path} in {_milliseconds(measured)}"


def _milliseconds(measured: Measured) -> str:
    return f"{max(measured.seconds, 0.0) * 1000:.2f} ms"


def _rows(rows: float) -> str:
    count = round(rows) if rows >= 1 or rows == 0 else 1
    return f"{count} row{'' if count == 1 else 's'}"


def _steps(level: _Level, written: Sequence[PlanOp]) -> Iterator[_Step]:
    context, depth, before = level.context, level.depth, level.rows
    ops = fused(written)
    for number, (op, rows) in enumerate(zip(ops, rows_behind(level.model, ops, before), strict=True)):
        here = (*level.place, number)
        match op:
            case ir.NodeScan():
                yield _Step(here, depth, _scan_text(context, op), rows)
            case ir.Expand():
                yield _Step(here, depth, _expand_text(context, op, before), rows)
            case Close():
                text = f"{operator_label(op)}: {_way(context, op.edge_type, op.direction, before)}"
                yield _Step(here, depth, text, rows)
            case Intersect():
                ways = {_way(context, arm.edge_type, arm.direction, before) for arm in op.arms}
                yield _Step(here, depth, f"{operator_label(op)}: {' and '.join(sorted(ways))}", rows)
            case ir.Filter():
                yield _Step(here, depth, "Filter in memory", rows)
            case ir.UnionScan() | ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                yield _Step(here, depth, operator_label(op), rows)
            case ir.OptionalJoin(outer, pipeline):
                yield _Step(here, depth, operator_label(op), rows)
                yield from _steps(level.inside(outer, pipeline, number, before), pipeline)
            case ir.AntiJoin(outer, pipeline) | ir.SemiJoin(outer, pipeline):
                word = "SemiJoin" if isinstance(op, ir.SemiJoin) else "AntiJoin"
                yield _Step(here, depth, f"{word}, once for all outer rows", rows)
                yield from _steps(level.inside(outer, pipeline, number, before), pipeline)
            case _:
                assert_never(op)
        before = rows


def _scan_text(context: Context, op: ir.NodeScan) -> str:
    pushed = push_down(op.filters, context.values) if context.values else None
    indexes = context.caches.indexes(context.entities(op.variable).table)
    columns = sorted({name for predicate in op.filters for name in _columns(predicate)})
    helpers = [scalar_index_name(name) for name in columns if scalar_index_name(name) in indexes]
    parts = [f"NodeScan {_name(op.variable)}"]
    if not op.filters:
        parts.append("all rows")
    elif helpers and (pushed is None or pushed.filter is not None):
        parts.append(f"with {', '.join(helpers)}")
    else:
        parts.append("by a scan with a filter")
    for predicate in op.filters:
        if isinstance(predicate, ir.TextMatch):
            parts.append(_text_path(context, predicate))
    return ": ".join([parts[0], ", ".join(parts[1:])])


def _text_path(context: Context, predicate: ir.TextMatch) -> str:
    field = predicate.field
    if predicate.kind is ir.TextKind.FUZZY:
        return f"{field.property} by its words"
    return f"{field.property} by {_text_index(context, field)}"


def _text_index(context: Context, field: ir.PropertyRef) -> str:
    is_ready = is_text_ready(context, context.entities(field.variable), field.property)
    return "its text index, ready" if is_ready else "its text index, to be built"


_ARROWS = {ir.Direction.OUT: "-{}->", ir.Direction.IN: "<-{}-", ir.Direction.BOTH: "<-{}->"}


def _expand_text(context: Context, op: ir.Expand, rows: float) -> str:
    edge = context.catalog.edges[op.edge_type]
    hops = 1 if edge.source != edge.target else op.high
    facts = traversal_facts(context, edge, op.direction, max(1, round(rows)), hops)
    path = choose_path(facts, context.settings)
    ready = "" if not facts.is_ready else ", ready"
    bounds = "" if op.high == 1 else f"{{{op.low},{op.high}}}"
    arrow = _ARROWS[op.direction].format(f"{op.edge_type}{bounds}")
    return f"Expand {_name(op.source)} {arrow} {_name(op.target)}: {path}{ready}"


def _way(context: Context, edge_type: str, direction: ir.Direction, rows: float) -> str:
    return str(way_to_neighbours(context, context.catalog.edges[edge_type], direction, max(1, round(rows))))


def _rank_text(context: Context, query: ir.ReadIR, steps: Sequence[_Step]) -> str:
    assert query.rank is not None
    rank = query.rank
    arms = (rank.first, rank.second) if isinstance(rank, ir.Rrf) else (rank,)
    variable = rank_field(rank).variable
    scan = query.pipeline[0]
    first = isinstance(scan, ir.NodeScan | ir.UnionScan) and scan.variable == variable
    order = "best candidates first" if first else "after the match"
    ways = []
    for arm in arms:
        name = arm.field.property
        if isinstance(arm, ir.Nearest):
            ways.append(f"nearest {name}: {_vector_search(context, query, arm, steps)}")
        else:
            ways.append(f"bm25 {name}: {_text_index(context, arm.field)}")
    return f"Rank {_name(variable)} {order} ({'; '.join(ways)})"


def _vector_search(context: Context, query: ir.ReadIR, rank: ir.Nearest, steps: Sequence[_Step]) -> str:
    """How the nearest nodes are found; of several types one by one."""
    variable, scan = rank.field.variable, query.pipeline[0]
    key, count = context.tables[variable], _wanted(context, query)
    first = isinstance(scan, ir.NodeScan | ir.UnionScan) and scan.variable == variable
    rows = steps[0].rows if first else steps[-1].rows
    names = [key.name] if key != NODES else list(_types_of(query.pipeline, variable))
    ways = {}
    for name in names:
        filters = scan.filters if isinstance(scan, ir.NodeScan | ir.UnionScan) else ()
        part = ir.NodeScan(variable, name, filters) if first else None
        inside = context.narrowed({variable: node_table_key(name)})
        ways[name] = nearest_text(inside, rank, part, rows=rows, count=count)
    if len(ways) == 1:
        return next(iter(ways.values()))
    return ", ".join(f"{type_name}: {way}" for type_name, way in ways.items())


def _types_of(ops: Iterable[ir.Op], variable: str) -> tuple[str, ...]:
    """The node types of a variable of several."""
    for op in ops:
        match op:
            case ir.UnionScan(name, types) if name == variable:
                return types
            case ir.ExpandEdges(target=name, target_types=types) | ir.Search(target=name, target_types=types):
                if name == variable:
                    return types
            case ir.PathSearch(search=ir.Search(target=name, target_types=types)) if name == variable:
                return types
            case _:
                pass
    raise AssertionError(f"nothing binds {variable}")


def _wanted(context: Context, query: ir.ReadIR) -> int:
    """How many entities are ranked; some, as long as a parameter is missing."""
    wanted = 0
    for count in (query.offset, query.limit):
        if isinstance(count, ir.ParamRef) and count.name not in context.values:
            wanted += _USUAL_LIMIT
        elif count is not None:
            number = ir.value_of(count, context.values)
            wanted += number if isinstance(number, int) else 0
    return ir.Rrf.depth(wanted) if isinstance(query.rank, ir.Rrf) else max(wanted, 1)


def _columns(predicate: ir.Expression) -> Iterator[str]:
    return (name for _, name in stored_columns((predicate,)))


def _name(variable: str) -> str:
    return "$_" if is_hidden(variable) else f"${variable}"
