"""Operators that several operators of the representation become together: closed cycles and intersections."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.core.cache import by_identity
from omnigraph.engine.nodes import Arm, Close, Intersect, PlanOp
from omnigraph.engine.tables.context import is_hidden, live_before
from omnigraph.lang.query import ir

# An edge whose two ends are bound is lowered to an expand to a hidden variable and a filter that compares it with the
# other end. Together they are a `Close`. An `Expand` to a new variable and what closes edges to that variable are an
# `Intersect`. Filters commute with both, so what closes an edge may stand behind some of them.

_TURNED = {ir.Direction.OUT: ir.Direction.IN, ir.Direction.IN: ir.Direction.OUT}


@by_identity
def fused(ops: Sequence[PlanOp]) -> Sequence[PlanOp]:
    """The same pipeline with closed edges and intersections; the pipeline itself if it has none."""
    closed = _with_closes(ops)
    found = _with_intersections(closed)
    return ops if found == list(ops) else tuple(found)


def turned(direction: ir.Direction) -> ir.Direction:
    """The direction in which the same edges lead back."""
    return _TURNED.get(direction, direction)


def _with_closes(ops: Sequence[PlanOp]) -> list[PlanOp]:
    found: list[PlanOp] = []
    left = list(ops)
    while left:
        op = left.pop(0)
        if isinstance(op, ir.Expand) and is_hidden(op.target) and (op.low, op.high, op.filters) == (1, 1, ()):
            place = _equality(left, op.target)
            if place is not None:
                other = _other_end(left[place], op.target)
                rest = left[:place] + left[place + 1 :]
                if other is not None and op.target not in live_before(rest, frozenset()):
                    left = rest
                    op = Close(op.source, other, op.edge_type, op.direction, op.edge_variable, op.edge_filters)
        found.append(op)
    return found


def _equality(ops: Sequence[PlanOp], variable: str) -> int | None:
    """The place of the filter that compares a variable with another one, among the filters at the beginning."""
    for place, op in enumerate(ops):
        if not isinstance(op, ir.Filter):
            return None
        if _other_end(op, variable) is not None:
            return place
    return None


def _other_end(op: PlanOp, variable: str) -> str | None:
    """The variable that a filter compares another one with, if that is all it does."""
    match op:
        case ir.Filter(ir.Comparison(ir.EntityRef(left), ir.CompareOp.EQ, ir.EntityRef(right))):
            if variable in (left, right) and left != right:
                return right if left == variable else left
    return None


def _with_intersections(ops: Sequence[PlanOp]) -> list[PlanOp]:
    found: list[PlanOp] = []
    left = list(ops)
    while left:
        op = left.pop(0)
        if isinstance(op, ir.Expand) and op.edge_variable is None and (op.low, op.high) == (1, 1):
            arms = [Arm(op.source, op.edge_type, op.direction)]
            kept: list[PlanOp] = []
            while left and isinstance(left[0], ir.Filter | Close):
                following = left.pop(0)
                arm = _arm_to(following, op.target)
                if arm is None:
                    kept.append(following)
                elif arm not in arms:
                    arms.append(arm)
            left = kept + left
            if len(arms) > 1:
                found.append(Intersect(op.target, op.target_type, tuple(arms), op.filters))
                continue
        found.append(op)
    return found


def _arm_to(op: PlanOp, target: str) -> Arm | None:
    """What closes an edge between a variable that is known before and the new one, as a way to the new one."""
    if not isinstance(op, Close) or op.edge_variable is not None or op.source == op.target:
        return None
    if op.target == target:
        return Arm(op.source, op.edge_type, op.direction)
    if op.source == target:
        return Arm(op.target, op.edge_type, turned(op.direction))
    return None


def without_arm(op: Intersect, place: int) -> tuple[ir.Expand, tuple[Close, ...]]:
    """An intersection as what it is the same as: an expand along one arm, and the other edges closed."""
    arm = op.arms[place]
    expand = ir.Expand(arm.source, op.target, arm.edge_type, arm.direction, op.target_type, filters=op.filters)
    others = (other for number, other in enumerate(op.arms) if number != place)
    return expand, tuple(Close(other.source, op.target, other.edge_type, other.direction) for other in others)
