"""Operators that only a plan has: what several operators of the representation become together.

A plan is a pipeline of these and of the operators of the representation. Both are data, for any executor.
"""

from __future__ import annotations

from omnigraph.frozen import frozen
from omnigraph.lang.query import ir


@frozen
class Close:
    """Keep the rows whose `source` has an edge to `target`; both are bound before.

    Without `edge_variable` a row stays once, however many edges there are. With it, one row is emitted per edge that
    satisfies all `edge_filters`. A self-loop followed in both directions is one edge.
    """

    source: str
    target: str
    edge_type: str
    direction: ir.Direction
    edge_variable: str | None = None
    edge_filters: tuple[ir.Expression, ...] = ()


@frozen
class Arm:
    """One hop from a bound variable: the way on which an intersection reaches its target."""

    source: str
    edge_type: str
    direction: ir.Direction


@frozen
class Intersect:
    """Bind `target` to the nodes that are neighbours of the sources of all `arms`, each once per row.

    The same as an `Expand` along one of the arms and a `Close` along every other one. Rows survive if the node
    satisfies all `filters`.
    """

    target: str
    target_type: str
    arms: tuple[Arm, ...]
    filters: tuple[ir.Expression, ...] = ()


PlanOp = ir.Op | Close | Intersect
