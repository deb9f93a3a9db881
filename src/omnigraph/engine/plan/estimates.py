"""How many rows operators are expected to make: shares of conditions, and pairs of links.

The estimate of a set of parts is a product over them, so it does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import assert_never

from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, scalar_of
from omnigraph.engine.nodes import Close, Intersect, PlanOp
from omnigraph.engine.plan.pattern import LinkOp, Types, node_types
from omnigraph.engine.plan.statistics import PropertyStatistics, Statistics
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: Shares of rows for which a condition is true, when nothing is known about the values.
_EQUAL_SHARE = 0.01
_OTHER_SHARE = 0.3
_TEXT_SHARE = 0.05
_NULL_SHARE = 0.1
_LISTED = 10
#: A block may always have a solution, or have none, for some rows.
_LEAST_SHARE = 0.05
#: Hops that an estimate looks at; further ones add little or have reached everything.
_ESTIMATED_HOPS = 32
_RANGES = {ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE}


@frozen(kw_only=True)
class Model:
    """What estimates of one pattern follow from."""

    statistics: Statistics
    #: The node types of its variables.
    types: Types
    #: The edge types of its variables.
    edge_types: Types
    #: Rows of variables that were counted already, by the name of the variable.
    observed: Mapping[str, float]

    @staticmethod
    def of(
        statistics: Statistics, ops: Sequence[PlanOp], outer: Types, observed: Mapping[str, float] | None = None
    ) -> Model:
        """The model of a pipeline."""
        types = {**outer, **node_types(op for op in ops if not isinstance(op, Close | Intersect))}
        types |= {op.target: (op.target_type,) for op in ops if isinstance(op, Intersect)}
        return Model(statistics=statistics, types=types, edge_types=_edge_types(ops), observed=observed or {})

    # ---- nodes

    def count(self, types: Iterable[str]) -> float:
        """The nodes of some types."""
        return float(sum(self.statistics.node_rows.get(name, 0) for name in types))

    def nodes(self, variable: str, filters: Sequence[ir.Expression]) -> float:
        """The nodes that a variable ranges over."""
        known = self.observed.get(variable)
        if known is not None:
            return known
        return self.count(self.types[variable]) * self.shares(filters)

    def is_one(self, variable: str, filters: Sequence[ir.Expression]) -> bool:
        """Whether a condition names at most one node."""
        return any(self._names_one(variable, item) for item in filters)

    def _names_one(self, variable: str, predicate: ir.Expression) -> bool:
        match predicate:
            case ir.Comparison(left, ir.CompareOp.EQ, right):
                pass
            case _:
                return False
        for side, other in ((left, right), (right, left)):
            if isinstance(other, ir.ParamRef | ir.Constant):
                if isinstance(side, ir.EntityRef) and side.variable == variable:
                    return True
                if isinstance(side, ir.PropertyRef) and side.variable == variable and self._is_unique(side):
                    return True
        return False

    # ---- links

    def pairs(self, op: LinkOp) -> float:
        """About how many pairs of nodes a link joins, over all nodes of its ends."""
        sources = self.count(self.types.get(op.source, ()))
        match op:
            case ir.Expand():
                edges, is_inside = self._edges(op.edge_type, op.direction, *self._ends(op))
                if not is_inside and op.low > 1:
                    return 0.0
                found = edges if op.high == 1 or not is_inside else sources * self._reach(op, edges, sources)
                return found * self.shares(op.edge_filters)
            case ir.ExpandEdges() | ir.Search():
                return self._several(op) * self.shares(op.edge_filters)
            case ir.PathSearch(search=search):
                return self._several(search) * self.shares(search.edge_filters)

    def fan(self, op: LinkOp, source_types: Sequence[str], pairs: float) -> float:
        """How many nodes a link leads to from one of its ends, whose nodes are of these types."""
        return pairs / max(self.count(source_types), 1.0)

    def hop(self, edge_type: str, direction: ir.Direction, source: str, target: str) -> float:
        """The share of pairs of nodes that one hop joins."""
        ends = (self.types.get(source, ()), self.types.get(target, ()))
        edges, _ = self._edges(edge_type, direction, *ends)
        return edges / max(self.count(ends[0]) * self.count(ends[1]), 1.0)

    def _ends(self, op: ir.Expand) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.types.get(op.source, ()), (op.target_type,)

    def _edges(
        self, edge_type: str, direction: ir.Direction, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[float, bool]:
        """The edges that are followed, and whether they stay inside of one type."""
        known = self.statistics.edge_types.get(edge_type)
        edges = 0.0 if known is None else float(known.edges)
        return edges * (2 if direction is ir.Direction.BOTH else 1), tuple(sources) == tuple(targets)

    def _several(self, op: ir.ExpandEdges | ir.Search) -> float:
        edges = sum(
            self._edges(step.edge_type, step.direction, (step.source_type,), (step.target_type,))[0]
            for step in op.steps
        )
        if isinstance(op, ir.ExpandEdges) or op.high == 1:
            return edges
        inside = self.count({name for step in op.steps for name in (step.source_type, step.target_type)})
        sources = self.count(self.types.get(op.source, ()))
        return sources * min(self._reach(op, edges, inside), max(self.count(op.target_types), 1.0))

    @staticmethod
    def _reach(op: ir.Expand | ir.Search, edges: float, nodes: float) -> float:
        """The nodes that one node reaches within the hops that are wanted: the mean degree, hop by hop."""
        degree = edges / max(nodes, 1.0)
        step, total = 1.0, 0.0
        for hop in range(1, min(op.high, _ESTIMATED_HOPS) + 1):
            step = min(step * degree, nodes)
            if hop >= op.low:
                total += step
            if step <= 0.0 or total >= nodes:
                break
        return min(total, nodes)

    # ---- conditions

    def shares(self, predicates: Iterable[ir.Expression]) -> float:
        """The share of rows for which all conditions are true, taken for independent."""
        return prod(map(self.share, predicates))

    def share(self, predicate: ir.Expression) -> float:
        """The share of rows for which a condition is true."""
        match predicate:
            case ir.TextMatch():
                return _TEXT_SHARE
            case ir.Logical(ir.Connective.AND, operands):
                return self.shares(operands)
            case ir.Logical(_, operands):
                return 1.0 - prod(1.0 - self.share(item) for item in operands)
            case ir.Not(operand):
                return max(1.0 - self.share(operand), _EQUAL_SHARE)
            case ir.IsNull(ir.PropertyRef() as field):
                known = self._known(field)
                return _NULL_SHARE if known is None else known.nulls
            case ir.IsNull():
                return _NULL_SHARE
            case ir.Exists():
                return 0.5
            case ir.Comparison():
                return self._comparison(predicate)
            case _:
                return _OTHER_SHARE

    def _comparison(self, predicate: ir.Comparison) -> float:
        left, op, right = predicate.left, predicate.op, predicate.right
        if op is ir.CompareOp.EQ:
            return self._equal(left, right)
        if op is ir.CompareOp.NE:
            return max(1.0 - self._equal(left, right), _EQUAL_SHARE)
        if op in _RANGES:
            return self._range(left, op, right)
        if op is ir.CompareOp.CONTAINS and isinstance(right, ir.PropertyRef):
            count = _LISTED
            if isinstance(left, ir.Constant) and isinstance(left.value, tuple):
                count = len(left.value)
            return min(1.0, count * self._equal(right, left))
        return _OTHER_SHARE

    def _equal(self, left: ir.Expression, right: ir.Expression) -> float:
        shares = [share for side in (left, right) if (share := self._one_of(side)) is not None]
        return min(shares) if shares else _OTHER_SHARE

    def _one_of(self, side: ir.Expression) -> float | None:
        """The share of rows with one value of a side."""
        match side:
            case ir.EntityRef(variable):
                types = self.types.get(variable)
                return 1.0 / max(self.count(types), 1.0) if types else _EQUAL_SHARE
            case ir.PropertyRef(variable):
                known = self._known(side)
                if known is not None:
                    return (1.0 - known.nulls) / max(known.distinct, 1)
                count = self.count(self.types.get(variable, ()))
                return max(_guessed(side.type), 1.0 / count) if count else _guessed(side.type)
            case _:
                return None

    def _range(self, left: ir.Expression, op: ir.CompareOp, right: ir.Expression) -> float:
        match left, right:
            case ir.PropertyRef() as field, ir.Constant(value):
                is_below = op in (ir.CompareOp.LT, ir.CompareOp.LE)
            case ir.Constant(value), ir.PropertyRef() as field:
                is_below = op in (ir.CompareOp.GT, ir.CompareOp.GE)
            case _:
                return _OTHER_SHARE
        known = self._known(field)
        if known is None or isinstance(value, bool) or not isinstance(value, int | float):
            return _OTHER_SHARE
        below = known.below(float(value))
        if below is None:
            return _OTHER_SHARE
        share = (below if is_below else 1.0 - below) * (1.0 - known.nulls)
        return max(share, 1.0 / max(known.distinct, 1) / 10)

    def _tables(self, variable: str) -> tuple[str, ...]:
        if variable in self.types:
            return tuple(str(node_table_key(name)) for name in self.types[variable])
        return tuple(str(edge_table_key(name)) for name in self.edge_types.get(variable, ()))

    def _known(self, field: ir.PropertyRef) -> PropertyStatistics | None:
        tables = self._tables(field.variable)
        return self.statistics.values.get((tables[0], field.property)) if len(tables) == 1 else None

    def _is_unique(self, field: ir.PropertyRef) -> bool:
        known = self._known(field)
        count = self.count(self.types.get(field.variable, ()))
        return known is not None and known.distinct >= count


def _guessed(type_: PropertyType) -> float:
    """The share of rows with one value of a type, when nothing is known about the values."""
    if isinstance(type_.base, EnumType):
        return 1.0 / max(len(type_.base.values), 1)
    if not isinstance(type_.base, ListType) and scalar_of(type_.base) is Scalar.BOOL:
        return 0.5
    return _EQUAL_SHARE


def _edge_types(ops: Iterable[PlanOp]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for op in ops:
        match op:
            case (
                ir.Expand(edge_type=name, edge_variable=str(variable))
                | Close(edge_type=name, edge_variable=str(variable))
            ):
                found[variable] = (name,)
            case ir.ExpandEdges():
                found[op.edge_variable] = tuple(dict.fromkeys(step.edge_type for step in op.steps))
            case ir.Search() if op.hop:
                found[op.hop] = tuple(dict.fromkeys(step.edge_type for step in op.steps))
            case ir.PathSearch(search=search) if search.hop:
                found[search.hop] = tuple(dict.fromkeys(step.edge_type for step in search.steps))
            case _:
                pass
    return found


# ---- Pipelines


def solved_share(model: Model, outer: Iterable[str], ops: Sequence[PlanOp]) -> float:
    """The share of rows for which a block has a solution."""
    match ops:
        case (ir.Expand(low=1, edge_variable=None, filters=()) as op,):
            known = model.statistics.edge_types.get(op.edge_type)
            degrees = {} if known is None else {ir.Direction.OUT: known.out, ir.Direction.IN: known.into}
            ends = degrees.get(op.direction)
            if ends is not None:
                # How many nodes have an edge at all was counted.
                return _within(ends.distinct / max(model.count(model.types.get(op.source, ())), 1.0))
    return _within(inner_rows(model, outer, ops))


def _within(share: float) -> float:
    return min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)


def rows_behind(model: Model, ops: Sequence[PlanOp], rows: float = 1.0) -> Iterator[float]:
    """The rows behind each operator of a pipeline that begins with so many."""
    for op in ops:
        rows = _rows_after(model, op, rows)
        yield rows


def inner_rows(model: Model, outer: Iterable[str], ops: Sequence[PlanOp]) -> float:
    """The rows that a block makes for each of its outer bindings."""
    inside = Model.of(model.statistics, ops, {name: model.types.get(name, ()) for name in outer})
    return reduce(lambda _, rows: rows, rows_behind(inside, ops), 1.0)


def _rows_after(model: Model, op: PlanOp, rows: float) -> float:
    match op:
        case ir.NodeScan(variable, _, filters) | ir.UnionScan(variable, _, filters):
            return rows * model.nodes(variable, filters)
        case ir.Expand():
            fan = model.fan(op, model.types.get(op.source, ()), model.pairs(op))
            return rows * fan * _share_of_target(model, op.target, op.filters)
        case ir.ExpandEdges() | ir.Search() | ir.PathSearch():
            return rows * model.fan(op, model.types.get(op.source, ()), model.pairs(op))
        case Close(source, target, edge_type, direction):
            return rows * model.hop(edge_type, direction, source, target) * model.shares(op.edge_filters)
        case Intersect(target, target_type, arms, filters):
            shares = (model.hop(arm.edge_type, arm.direction, arm.source, target) for arm in arms)
            nodes = model.count((target_type,)) * _share_of_target(model, target, filters)
            return rows * nodes * prod(shares)
        case ir.Filter(predicate):
            return rows * model.share(predicate)
        case ir.SemiJoin(outer, pipeline):
            return rows * solved_share(model, outer, pipeline)
        case ir.AntiJoin(outer, pipeline):
            return rows * (1.0 - solved_share(model, outer, pipeline))
        case ir.OptionalJoin(outer, pipeline):
            return rows * max(1.0, inner_rows(model, outer, pipeline))
        case _:
            assert_never(op)


def _share_of_target(model: Model, variable: str, filters: Sequence[ir.Expression]) -> float:
    known = model.observed.get(variable)
    if known is None:
        return model.shares(filters)
    return known / max(model.count(model.types[variable]), 1.0)
