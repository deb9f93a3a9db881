"""Syntax tree of a query file, as written: nothing resolved, nothing checked.

Spans never take part in equality, so two trees are equal when their texts mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from omnigraph.syntax.source import Span, span_field

#: The anonymous endpoint: every occurrence is a variable of its own.
ANONYMOUS = "_"


class Operator(StrEnum):
    """Comparison operators as written."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


# ---- values and expressions


@dataclass(frozen=True, slots=True, eq=False)
class Literal_:
    """A string, number or boolean. Numbers keep their spelling in `text`."""

    value: str | int | float | bool
    text: str
    span: Span = span_field()

    @property
    def meaning(self) -> tuple[str, str | int | float | bool]:
        """What the literal says; `1`, `1.0` and `true` are three different things."""
        return type(self.value).__name__, self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal_) and self.meaning == other.meaning

    def __hash__(self) -> int:
        return hash(self.meaning)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, b]`; nested lists are an error found later."""

    items: tuple[Element, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`: a bound variable, a parameter, or `$_`. The name is kept without its dollar."""

    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class PropertyAccess:
    """`$variable.property`."""

    variable: Variable
    property: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Alias:
    """A bare name: a result column."""

    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)`; which functions exist is known to the checker only."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span = span_field()


Expression = Literal_ | ListLiteral | Variable | PropertyAccess | Alias | Call
Element = Literal_ | ListLiteral | Call
#: What may stand right of an assignment, an inline match or a mutation predicate.
Value = Literal_ | ListLiteral | Variable | Call


# ---- match clauses


@dataclass(frozen=True, slots=True)
class PropertyMatch:
    """`property: value` inside a binding."""

    property: str
    value: Value
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Binding:
    """`$p: Paper { … }`."""

    variable: Variable
    type_name: str
    matches: tuple[PropertyMatch, ...]
    type_span: Span = span_field()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Bounds:
    """`{min,max}`; a missing maximum is an error found later."""

    low: int
    high: int | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Hop:
    """The edge of a traversal: its word, whether it is `<word>`, and its bounds."""

    edge_word: str
    undirected: bool
    bounds: Bounds | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$a $w:cites $b`; `edge` is None when no edge variable is written."""

    left: Variable
    edge: Variable | None
    hop: Hop
    right: Variable
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Filter:
    """`left operator right`."""

    left: Expression
    operator: Operator
    right: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Condition:
    """A call that stands as a clause of its own."""

    call: Call
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Negation:
    """`not { … }`."""

    clauses: tuple[Clause, ...]
    span: Span = span_field()


Clause = Negation | Binding | Traversal | Filter | Condition


# ---- reads


@dataclass(frozen=True, slots=True)
class Projection:
    """`expression as alias`."""

    expression: Expression
    alias: str | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Sort:
    """`expression asc|desc`; `direction` is None when none is written."""

    expression: Expression
    direction: Literal["asc", "desc"] | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit n`."""

    count: int
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ReadBody:
    """`match { … } return { … } order { … } limit n`."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Sort, ...]
    limit: Limit | None


# ---- mutations


@dataclass(frozen=True, slots=True)
class Assignment:
    """`property: value`."""

    property: str
    value: Value
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Predicate:
    """The one comparison of a `where`."""

    property: str
    operator: Operator
    value: Value
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Insert:
    """`insert Type { … }`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    type_span: Span = span_field()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Update:
    """`update Type set { … } where …`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Predicate
    type_span: Span = span_field()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Delete:
    """`delete Type where …`."""

    type_name: str
    predicate: Predicate
    type_span: Span = span_field()
    span: Span = span_field()


Statement = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class MutationBody:
    """One or more statements."""

    statements: tuple[Statement, ...]


# ---- declarations


@dataclass(frozen=True, slots=True)
class ParamType:
    """A parameter type as written; `name` may not exist."""

    form: Literal["scalar", "list", "vector"]
    name: str = ""
    dimension: int = 0
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Param:
    """`$name: Type?`."""

    name: str
    type: ParamType
    nullable: bool
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Note:
    """`@description("…")` or `@instruction("…")`."""

    kind: Literal["description", "instruction"]
    text: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Query:
    """One query declaration."""

    name: str
    params: tuple[Param, ...]
    notes: tuple[Note, ...]
    body: ReadBody | MutationBody
    name_span: Span = span_field()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class QueryFile:
    """All queries of one text, in source order."""

    queries: tuple[Query, ...]
