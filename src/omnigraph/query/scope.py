"""What a name means at one place of a query, and the findings made so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.query import ast
    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef
    from omnigraph.syntax.source import Findings, Hint, Span
    from omnigraph.types.kinds import PropertyType


@dataclass(frozen=True, slots=True)
class NodeVariable:
    """A variable bound to nodes; `definition` is None when its type is wrong, which is reported already."""

    definition: NodeDef | None


@dataclass(frozen=True, slots=True)
class EdgeVariable:
    """A variable bound to edges; `definition` is None when its type is wrong, which is reported already."""

    definition: EdgeDef | None


Bound = NodeVariable | EdgeVariable


@dataclass(slots=True)
class Context:
    """One query under check."""

    catalog: Catalog
    findings: Findings
    #: None marks a parameter whose type is wrong, which is reported already.
    params: dict[str, PropertyType | None]
    _hidden: int = 0

    def hidden_variable(self) -> str:
        """A variable name that no query can spell."""
        self._hidden += 1
        return f"~{self._hidden}"

    def error(self, code: str, span: Span, message: str, hint: Hint = None) -> None:
        """Record an error and go on."""
        self.findings.error(code, span, message, hint)


@dataclass(slots=True)
class Scope:
    """The variables bound in one block of clauses, those of the blocks around it included."""

    bound: dict[str, Bound] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope for a nested block: it sees everything here and adds nothing to it."""
        return Scope(dict(self.bound))

    def report_unbound(self, context: Context, variable: ast.Variable, code: str) -> None:
        """Record that a variable is neither bound nor a parameter."""
        names = chain(self.bound, context.params)
        known = (f"${name}" for name in names if not name.startswith("~"))
        name = f"${variable.name}"
        if variable.name == "_":
            context.error(code, variable.span, "`$_` has no value: give the variable a name")
        else:
            message = f"variable `{name}` is not bound"
            context.error(code, variable.span, message, partial(did_you_mean, name, known))
