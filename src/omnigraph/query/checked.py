"""A type-checked match block: every name resolved, every edge with its direction, ready to be lowered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.query import ir
    from omnigraph.schema.catalog import EdgeDef


@dataclass(frozen=True, slots=True)
class CheckedTraversal:
    """A traversal with its edge type. `forward`: the left variable is at the source of the edge."""

    left: str
    right: str
    edge: EdgeDef
    forward: bool
    undirected: bool
    low: int
    high: int
    edge_variable: str | None

    def end_type(self, variable_is_left: bool) -> str:
        """The node type of one end."""
        return self.edge.source if variable_is_left == self.forward else self.edge.target


@dataclass(slots=True)
class CheckedPattern:
    """One block of clauses."""

    #: Variables with a binding, in order of declaration, with their node type.
    bindings: dict[str, str] = field(default_factory=dict)
    traversals: list[CheckedTraversal] = field(default_factory=list)
    predicates: list[ir.Predicate] = field(default_factory=list)
    negations: list[CheckedPattern] = field(default_factory=list)
    #: Variables of the surrounding blocks that this block mentions.
    outer: tuple[str, ...] = ()
