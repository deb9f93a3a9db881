"""The physical choices of a read, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.engine.nodes import Close, Intersect, PlanOp
from omnigraph.engine.operators.fuse import fused, without_arm
from omnigraph.engine.operators.neighbours import way_to_neighbours
from omnigraph.engine.operators.pipeline import Measured, Profile, operator_label
from omnigraph.engine.predicates import push_down, stored_columns
from omnigraph.engine.tables.context import NODES, Context, is_hidden, rank_field
from omnigraph.engine.tables.settings import choose_path, followed_edges
from omnigraph.engine.tables.text_search import is_text_ready
from omnigraph.engine.tables.traversal_index import traversal_facts
from omnigraph.engine.tables.wanted_indexes import scalar_index_name, vector_index_name
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: Guesses of the share of rows that a filter keeps, when nothing is known about the values.
_EQUAL_SHARE = 0.01
_OTHER_SHARE = 0.3
_TEXT_SHARE = 0.05


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

    steps: tuple[_Step, ...]
    rank: str | None

    def render(self, profile: Profile | None = None) -> str:
        """One line per operator with its path and estimate; with a profile also what happened."""
        lines = ["plan"]
        for step in self.steps:
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
    steps = tuple(_steps(context, query.pipeline, 1.0, (), 1))
    return Plan(steps, None if query.rank is None else _rank_text(context, query))


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


def _steps(context: Context, ops: Sequence[PlanOp], rows: float, place: tuple[int, ...], depth: int) -> Iterator[_Step]:
    for number, op in enumerate(fused(ops)):
        here = (*place, number)
        match op:
            case ir.NodeScan():
                text, share = _scan_text(context, op)
                rows *= context.entities(op.variable).row_count * share
                yield _Step(here, depth, text, rows)
            case ir.Expand():
                text, rows = _expand_text(context, op, rows)
                yield _Step(here, depth, text, rows)
            case Close():
                rows *= _linked_share(context, op.edge_type)
                text = f"{operator_label(op)}: {_way(context, op.edge_type, op.direction, rows)}"
                yield _Step(here, depth, text, rows)
            case Intersect():
                ways = {_way(context, arm.edge_type, arm.direction, rows) for arm in op.arms}
                first, closes = without_arm(op, 0)
                _, rows = _expand_text(context, first, rows)
                for close in closes:
                    rows *= _linked_share(context, close.edge_type)
                yield _Step(here, depth, f"{operator_label(op)}: {' and '.join(sorted(ways))}", rows)
            case ir.Filter():
                rows *= _OTHER_SHARE
                yield _Step(here, depth, "Filter in memory", rows)
            case ir.UnionScan():
                rows *= sum(context.type_entities(node_table_key(name)).row_count for name in op.node_types)
                yield _Step(here, depth, operator_label(op), rows)
            case ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                yield _Step(here, depth, operator_label(op), rows)
            case ir.OptionalJoin(_, pipeline):
                yield _Step(here, depth, operator_label(op), rows)
                yield from _steps(context.inside(pipeline), pipeline, rows, here, depth + 1)
            case ir.AntiJoin(_, pipeline) | ir.SemiJoin(_, pipeline):
                inside = context.inside(pipeline)
                inner = list(_steps(inside, pipeline, rows, here, depth + 1))
                rows *= 0.5
                word = "SemiJoin" if isinstance(op, ir.SemiJoin) else "AntiJoin"
                yield _Step(here, depth, f"{word}, once for all outer rows", rows)
                yield from inner
            case _:
                assert_never(op)


def _scan_text(context: Context, op: ir.NodeScan) -> tuple[str, float]:
    pushed = push_down(op.filters, context.values) if context.values else None
    indexes = context.caches.indexes(context.entities(op.variable).table)
    columns = sorted({name for predicate in op.filters for name in _columns(predicate)})
    helpers = [scalar_index_name(name) for name in columns if scalar_index_name(name) in indexes]
    parts = [f"NodeScan {_name(op.variable)}"]
    share = 1.0
    for predicate in op.filters:
        share *= _share(context, op, predicate)
    if not op.filters:
        parts.append("all rows")
    elif helpers and (pushed is None or pushed.filter is not None):
        parts.append(f"with {', '.join(helpers)}")
    else:
        parts.append("by a scan with a filter")
    for predicate in op.filters:
        if isinstance(predicate, ir.TextMatch):
            parts.append(_text_path(context, predicate))
    return ": ".join([parts[0], ", ".join(parts[1:])]), share


def _share(context: Context, op: ir.NodeScan, predicate: ir.Expression) -> float:
    if isinstance(predicate, ir.TextMatch):
        return _TEXT_SHARE
    if not isinstance(predicate, ir.Comparison) or predicate.op is not ir.CompareOp.EQ:
        return _OTHER_SHARE
    key = context.catalog.nodes[op.node_type].key
    if key is not None and key.members == tuple(_columns(predicate)):
        return 1.0 / max(context.entities(op.variable).row_count, 1)
    return _EQUAL_SHARE


def _text_path(context: Context, predicate: ir.TextMatch) -> str:
    field = predicate.field
    if predicate.kind is ir.TextKind.FUZZY:
        return f"{field.property} by its words"
    return f"{field.property} by {_text_index(context, field)}"


def _text_index(context: Context, field: ir.PropertyRef) -> str:
    is_ready = is_text_ready(context, context.entities(field.variable), field.property)
    return "its text index, ready" if is_ready else "its text index, to be built"


def _expand_text(context: Context, op: ir.Expand, rows: float) -> tuple[str, float]:
    edge = context.catalog.edges[op.edge_type]
    hops = 1 if edge.source != edge.target else op.high
    frontier = max(1, round(rows))
    facts = traversal_facts(context, edge, op.direction, frontier, hops)
    path = choose_path(facts, context.settings)
    targets = context.type_entities(node_table_key(op.target_type)).row_count
    reached = min(followed_edges(facts), rows * targets)
    for predicate in (*op.filters, *op.edge_filters):
        is_equal = isinstance(predicate, ir.Comparison) and predicate.op is ir.CompareOp.EQ
        reached *= _EQUAL_SHARE if is_equal else _OTHER_SHARE
    ready = "" if not facts.is_ready else ", ready"
    return f"Expand {_name(op.source)} {op.edge_type}: {path}{ready}", reached


def _way(context: Context, edge_type: str, direction: ir.Direction, rows: float) -> str:
    return str(way_to_neighbours(context, context.catalog.edges[edge_type], direction, max(1, round(rows))))


def _linked_share(context: Context, edge_type: str) -> float:
    """The share of pairs of nodes that have an edge, if edges were spread evenly."""
    edge = context.catalog.edges[edge_type]
    edges = context.type_entities(edge_table_key(edge_type)).row_count
    ends = [context.type_entities(node_table_key(name)).row_count for name in (edge.source, edge.target)]
    return min(1.0, edges / max(ends[0] * ends[1], 1))


def _rank_text(context: Context, query: ir.ReadIR) -> str:
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
            ways.append(f"nearest {name}: {_vector_search(context, query, arm.field)}")
        else:
            ways.append(f"bm25 {name}: {_text_index(context, arm.field)}")
    return f"Rank {_name(variable)} {order} ({'; '.join(ways)})"


def _vector_search(context: Context, query: ir.ReadIR, field: ir.PropertyRef) -> str:
    """How the nearest nodes are found; of several types one by one."""
    name, key = field.property, context.tables[field.variable]
    keys = [key] if key != NODES else list(map(node_table_key, _types_of(query.pipeline, field.variable)))
    ways = {
        item.name: "vector index"
        if vector_index_name(name) in context.caches.indexes(context.type_entities(item).table)
        else "exact scan"
        for item in keys
    }
    if len(ways) == 1:
        return next(iter(ways.values()))
    return ", ".join(f"{way} of {type_name}" for type_name, way in ways.items())


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


def _columns(predicate: ir.Expression) -> Iterator[str]:
    return (name for _, name in stored_columns((predicate,)))


def _name(variable: str) -> str:
    return variable if is_hidden(variable) else f"${variable}"
