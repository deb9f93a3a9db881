"""A checked pattern → the pipeline of the intermediate representation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.query import ir
from omnigraph.query.connect import components, in_known_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.query.checked import CheckedPattern, CheckedTraversal
    from omnigraph.query.scope import Context


def lower_pattern(
    context: Context, pattern: CheckedPattern, bound: Iterable[str] = ()
) -> tuple[ir.Op, ...]:
    """The operators of one block; `bound` are the variables that exist before it.

    Each component of connected variables begins at a variable of the surrounding block if it has one, else with a scan
    of its first binding, else with a scan of the source end of its first traversal. A predicate on one variable rides
    on the operator that introduces it; every other one runs as soon as all of its variables are bound.
    """
    lowering = _Lowering(context, set(bound))
    lowering.add_predicates(pattern.predicates)
    lowering.flush_filters()
    ends = components(pattern.traversals, [*lowering.known, *pattern.bindings])
    anchored = {ends[name] for name in lowering.known}
    groups: dict[str, list[CheckedTraversal]] = defaultdict(list)
    for traversal in pattern.traversals:
        groups[ends[traversal.left]].append(traversal)
    first_bindings = {
        ends[name]: (name, type_) for name, type_ in reversed(pattern.bindings.items())
    }
    in_text_order = dict.fromkeys(_mentions(pattern, ends))
    # What hangs on the surrounding block comes first: it restricts rows that exist already.
    for component in sorted(in_text_order, key=lambda item: item not in anchored):
        traversals = groups.get(component, [])
        if component not in anchored:
            lowering.scan(*(first_bindings.get(component) or _source_end(traversals[0])))
        for traversal in in_known_order(traversals, set(lowering.known)):
            lowering.expand(traversal)
    for negation in pattern.negations:
        inner = lower_pattern(context, negation, lowering.known)
        lowering.ops.append(ir.AntiJoin(negation.outer, inner))
    return tuple(lowering.ops)


def _mentions(pattern: CheckedPattern, ends: dict[str, str]) -> Iterator[str]:
    """Components in the order in which the text mentions them: bindings first, then traversals."""
    for name in pattern.bindings:
        yield ends[name]
    for traversal in pattern.traversals:
        yield ends[traversal.left]


def _source_end(traversal: CheckedTraversal) -> tuple[str, str]:
    return (traversal.left if traversal.forward else traversal.right), traversal.edge.source


@dataclass(slots=True)
class _Lowering:
    context: Context
    known: set[str]
    ops: list[ir.Op] = field(default_factory=list)
    by_variable: dict[str, list[ir.Predicate]] = field(default_factory=lambda: defaultdict(list))
    joined: list[tuple[frozenset[str], ir.Predicate]] = field(default_factory=list)

    def add_predicates(self, predicates: Iterable[ir.Predicate]) -> None:
        for predicate in predicates:
            variables = _variables(predicate)
            if len(variables) == 1 and not variables <= self.known:
                self.by_variable[next(iter(variables))].append(predicate)
            else:
                self.joined.append((variables, predicate))

    def scan(self, variable: str, node_type: str) -> None:
        self.ops.append(ir.NodeScan(variable, node_type, tuple(self.by_variable[variable])))
        self._introduce(variable)

    def expand(self, traversal: CheckedTraversal) -> None:
        from_left = traversal.left in self.known
        source, target = traversal.left, traversal.right
        if not from_left:
            source, target = target, source
        joins = target in self.known
        reached = self.context.hidden_variable() if joins else target
        edge_variable = traversal.edge_variable
        self.ops.append(
            ir.Expand(
                source,
                reached,
                traversal.edge.name,
                _direction(traversal, from_left=from_left),
                traversal.end_type(not from_left),
                traversal.low,
                traversal.high,
                () if joins else tuple(self.by_variable[target]),
                edge_variable,
                tuple(self.by_variable[edge_variable]) if edge_variable else (),
            )
        )
        if joins:
            # Both ends are bound already: what was reached has to be the other end.
            node_type = traversal.end_type(not from_left)
            left, right = ir.EntityRef(reached, node_type), ir.EntityRef(target, node_type)
            self.ops.append(ir.Filter(ir.Comparison(left, ir.CompareOp.EQ, right)))
        self._introduce(target, *([edge_variable] if edge_variable else []))

    def _introduce(self, *variables: str) -> None:
        self.known.update(variables)
        self.flush_filters()

    def flush_filters(self) -> None:
        """Emit the predicates whose variables are all bound now."""
        if not self.joined:
            return
        waiting: list[tuple[frozenset[str], ir.Predicate]] = []
        for variables, predicate in self.joined:
            if variables <= self.known:
                self.ops.append(ir.Filter(predicate))
            else:
                waiting.append((variables, predicate))
        self.joined = waiting


def _direction(traversal: CheckedTraversal, *, from_left: bool) -> ir.Direction:
    if traversal.undirected:
        return ir.Direction.BOTH
    return ir.Direction.OUT if traversal.forward == from_left else ir.Direction.IN


def _variables(predicate: ir.Predicate) -> frozenset[str]:
    match predicate:
        case ir.Comparison(left, _, right):
            operands = (left, right)
            return frozenset(
                item.variable
                for item in operands
                if isinstance(item, ir.PropertyRef | ir.EntityRef)
            )
        case ir.TextMatch(_, field_):
            return frozenset((field_.variable,))
