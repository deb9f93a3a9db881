"""Names in scope while a query is checked, and where findings go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

from omnigraph.core.source import Findings, Hint, Span, did_you_mean, nearest
from omnigraph.core.types import BaseType, PropertyType, Scalar, ScalarType, scalar_of
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef

# ---- Name resolution and findings


@frozen
class _Typed:
    """What nodes and edges of one or several types have in common."""

    #: The types; None when they are wrong, which is reported already.
    members: tuple[NodeDef | EdgeDef, ...] | None

    @property
    def type_name(self) -> str:
        """The name of the type, or the names of all."""
        return " | ".join(member.name for member in self.members or ())

    def property_type(self, name: str) -> PropertyType | None:
        """The type of a property that every member has, in one base type; nullable if it is in any."""
        if not self.members:
            return None
        found = [member.properties.get(name) for member in self.members]
        types = [item.type for item in found if item is not None]
        if len(types) < len(self.members):
            return None
        first, *others = types
        base = first.base
        for other in others:
            if other.base != base and not (_is_text(other.base) and _is_text(base)):
                return None
            if other.base != base:
                base = ScalarType(Scalar.STRING)
        return PropertyType(base, any(item.nullable for item in types))

    def property_names(self) -> list[str]:
        """The properties that can be used of all members."""
        if not self.members:
            return []
        return [name for name in self.members[0].properties if self.property_type(name) is not None]


def _is_text(base: BaseType) -> bool:
    return scalar_of(base) is Scalar.STRING


@frozen
class NodeVariable(_Typed):
    """A variable bound to nodes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its types."""
        return tuple(member.name for member in self.members or ())


@frozen
class EdgeVariable(_Typed):
    """A variable bound to edges."""


@frozen
class PathVariable:
    """A variable bound to paths."""

    members: None = None


Bound = NodeVariable | EdgeVariable | PathVariable


@frozen
class Block:
    """The clauses of a nested block, and how it is called in messages: `not`, `exists` or a function."""

    word: str
    clauses: tuple[ast.Clause, ...]
    span: Span


@frozen
class Nested:
    """A nested block that is right: its operators, the outer variables that it begins with, and its names."""

    outer: tuple[str, ...]
    pipeline: tuple[ir.Op, ...]
    scope: Scope


class Reports(Protocol):
    """Where findings go."""

    def error(self, code: str, span: Span, message: str, hint: Hint = None) -> None:
        """Record an error and go on."""
        ...


@dataclass(slots=True)
class Context:
    """One query under check."""

    catalog: Catalog
    findings: Findings
    #: None marks a parameter whose type is wrong, which is reported already.
    params: dict[str, PropertyType | None]
    #: Checks and lowers the clauses of a nested block. Blocks hold expressions and expressions hold blocks.
    block: Callable[[Context, Scope, Block], Nested | None]
    #: What to do about a variable that could be a parameter, by its name.
    advice: dict[str, str] = field(default_factory=dict)
    #: What keeps writes from embedding texts; empty where nothing does, or where it is not known.
    no_embedding: str = ""
    #: The parameters that are regular expressions.
    patterns: set[str] = field(default_factory=set)
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
    #: The expressions that names stand for.
    lets: dict[str, ast.Let] = field(default_factory=dict)
    #: Variables that are bound to nothing in rows where their optional block has no solution.
    optional: set[str] = field(default_factory=set)
    #: The variables of the match that statements stand behind; None where there is none.
    matched: frozenset[str] | None = None
    #: Names whose expressions are being checked: one that meets itself is a circle.
    resolving: set[str] = field(default_factory=set)

    def child(self) -> Scope:
        """A scope for a nested block: it sees everything here and adds nothing to it."""
        return Scope(dict(self.bound), dict(self.lets), set(self.optional), resolving=self.resolving)

    def report_unbound(self, context: Context, variable: ast.Variable, code: str) -> None:
        """Record that a variable is neither bound nor a parameter."""
        names = chain(self.bound, self.lets, context.params)
        known = (f"${name}" for name in names if not name.startswith("~"))
        name = f"${variable.name}"
        if variable.name == "_":
            context.error(code, variable.span, "`$_` has no value: give the variable a name")
        else:
            hint = partial(near_variable, context, variable.name, known)
            context.error(code, variable.span, f"variable `{name}` is not bound", hint)


def near_variable(context: Context, name: str, known: Iterable[str]) -> str | None:
    """A hint for a variable that nothing binds: another one that is near, or how it becomes a parameter."""
    names = list(known)
    advice = context.advice.get(name)
    if advice is not None and nearest(f"${name}", names) is None:
        return advice
    return did_you_mean(f"${name}", names)
