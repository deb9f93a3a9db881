"""The syntax tree of a query file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Literal

from omnigraph.core.source import Span, span_field
from omnigraph.frozen import frozen
from omnigraph.lang import parsing

# ---- The syntax tree of a query file
#
# Spans never take part in equality, so two trees are equal when their texts mean the same.


#: The anonymous endpoint: every occurrence is a variable of its own.
ANONYMOUS = "_"
_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")


class Operator(StrEnum):
    """Operators between two operands, as written."""

    OR = "or"
    AND = "and"
    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    IN = "in"
    NOT_IN = "not in"
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


COMPARISONS = frozenset(
    {
        Operator.EQ,
        Operator.NE,
        Operator.LT,
        Operator.LE,
        Operator.GT,
        Operator.GE,
        Operator.CONTAINS,
        Operator.STARTS_WITH,
        Operator.ENDS_WITH,
        Operator.IN,
        Operator.NOT_IN,
    }
)


# ---- expressions


Literal_ = parsing.Literal_
TypeExpr = parsing.TypeExpr


@frozen
class Null:
    """`null`."""

    span: Span = span_field()


@frozen
class ListLiteral:
    """`[a, b]`; nested lists are an error found later."""

    items: tuple[Expression, ...]
    span: Span = span_field()


@frozen
class Variable:
    """`$name`: a bound variable, a parameter, a name of `let`, or `$_`. The name is kept without its dollar."""

    name: str
    span: Span = span_field()


@frozen
class PropertyAccess:
    """`$variable.property`."""

    variable: Variable
    property: str
    span: Span = span_field()


@frozen
class SystemField:
    """`$variable.@field`. The name is kept without its sign."""

    variable: Variable
    field: str
    span: Span = span_field()


@frozen
class AllProperties:
    """`$variable.*`."""

    variable: Variable
    span: Span = span_field()


@frozen
class Alias:
    """A bare name: a result column, or a property of the row of a statement."""

    name: str
    span: Span = span_field()


@frozen
class MetaName:
    """`@name` alone: a system field of the row of a statement. The name is kept without its sign."""

    name: str
    span: Span = span_field()


@frozen
class Star:
    """`*` as an argument."""

    span: Span = span_field()


@frozen
class NamedArgument:
    """`name: value` as an argument."""

    name: str
    value: Expression
    span: Span = span_field()


@frozen
class Call:
    """`function(arguments)`; which functions exist is known to the checker only.

    `clauses` is the block of a value over it, as in `count { … }`: None for a plain call.
    """

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    order: tuple[Sort, ...] = ()
    limit: Count | None = None
    clauses: tuple[Clause, ...] | None = None
    span: Span = span_field()


@frozen
class Unary:
    """`not operand` or `-operand`."""

    operator: Literal["not", "-"]
    operand: Expression
    span: Span = span_field()


@frozen
class Binary:
    """`left operator right`."""

    left: Expression
    operator: Operator
    right: Expression
    span: Span = span_field()


@frozen
class NullTest:
    """`operand is null`, or `is not null`."""

    operand: Expression
    negated: bool
    span: Span = span_field()


@frozen
class When:
    """One branch of a `case`."""

    condition: Expression
    value: Expression
    span: Span = span_field()


@frozen
class Case:
    """`case when … then … else … end`."""

    branches: tuple[When, ...]
    otherwise: Expression | None
    span: Span = span_field()


@frozen
class Exists:
    """`exists { … }`, or `not { … }`."""

    negated: bool
    clauses: tuple[Clause, ...]
    span: Span = span_field()


Expression = (
    Literal_
    | Null
    | ListLiteral
    | Variable
    | PropertyAccess
    | SystemField
    | AllProperties
    | Alias
    | MetaName
    | Star
    | NamedArgument
    | Call
    | Unary
    | Binary
    | NullTest
    | Case
    | Exists
)


# ---- match clauses


@frozen
class PropertyMatch:
    """`property: value` inside a binding."""

    property: str
    value: Expression
    span: Span = span_field()


@frozen
class TypeName:
    """The name of a type."""

    name: str
    span: Span = span_field()


@frozen
class Binding:
    """`$p: Paper | Book { … }`."""

    variable: Variable
    types: tuple[TypeName, ...]
    matches: tuple[PropertyMatch, ...]
    span: Span = span_field()

    @property
    def type_span(self) -> Span:
        """Where its types stand."""
        return Span(self.types[0].span.start, self.types[-1].span.end)


@frozen
class Bounds:
    """`{min,max}`; a missing maximum is an error found later."""

    low: int
    high: int | None
    span: Span = span_field()


@frozen
class Hop:
    """The edge of a traversal: its words, whether it is `<word>`, its bounds, and what every hop has to satisfy.

    Without words it is `*`.
    """

    words: tuple[TypeName, ...]
    undirected: bool
    bounds: Bounds | None
    condition: Expression | None = None
    span: Span = span_field()


@frozen
class Traversal:
    """`$a $w:cites $b`; `edge` is None when no edge variable is written. `binding` types the right end."""

    left: Variable
    edge: Variable | None
    hop: Hop
    right: Variable
    binding: Binding | None = None
    span: Span = span_field()


@frozen
class Optional:
    """`optional { … }`."""

    clauses: tuple[Clause, ...]
    span: Span = span_field()


@frozen
class Let:
    """`let $v = expression`."""

    variable: Variable
    expression: Expression
    span: Span = span_field()


@frozen
class Path:
    """`path $w = shortest|all traversal`."""

    variable: Variable
    choice: Literal["shortest", "all"]
    traversal: Traversal
    span: Span = span_field()


@frozen
class Condition:
    """An expression that has to be true."""

    expression: Expression
    span: Span = span_field()


Clause = Binding | Traversal | Optional | Let | Path | Condition


# ---- reads


@frozen
class Projection:
    """`expression as alias`."""

    expression: Expression
    alias: str | None
    span: Span = span_field()


@frozen
class Sort:
    """`expression asc|desc nulls first|last`; None where nothing is written."""

    expression: Expression
    direction: Literal["asc", "desc"] | None
    nulls: Literal["first", "last"] | None = None
    span: Span = span_field()


@frozen
class Count:
    """A number of rows: a literal, or a parameter."""

    value: int | Variable
    span: Span = span_field()


@frozen
class Limit:
    """`limit n per { … }`."""

    count: Count
    per: tuple[Expression, ...] = ()
    span: Span = span_field()


@frozen
class ReadBody:
    """`match { … } return { … } having { … } order { … } offset n limit n`."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Sort, ...]
    limit: Limit | None
    distinct: bool = False
    having: Expression | None = None
    offset: Count | None = None
    span: Span = span_field()


# ---- mutations


@frozen
class Assignment:
    """`property: value`."""

    property: str
    value: Expression
    span: Span = span_field()


@frozen
class Insert:
    """`insert Type { … } as $x`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    variable: Variable | None = None
    type_span: Span = span_field()
    span: Span = span_field()


@frozen
class Upsert:
    """`upsert Type { … }`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    type_span: Span = span_field()
    span: Span = span_field()


@frozen
class Update:
    """`update Type set { … } where …`, or `update $x set { … }`."""

    target: TypeName | Variable
    assignments: tuple[Assignment, ...]
    condition: Expression | None
    span: Span = span_field()


@frozen
class Delete:
    """`delete Type where …`, or `delete $x`."""

    target: TypeName | Variable
    condition: Expression | None
    span: Span = span_field()


Statement = Insert | Upsert | Update | Delete


@frozen
class MutationBody:
    """`match { … }`, one or more statements, and `return { … }`; nothing is matched or returned without them."""

    statements: tuple[Statement, ...]
    clauses: tuple[Clause, ...] | None = None
    returns: tuple[Projection, ...] = ()
    span: Span = span_field()


Body = ReadBody | MutationBody


# ---- declarations


@frozen
class Param:
    """`$name: Type? = default`."""

    name: str
    type: TypeExpr
    default: Expression | None = None
    span: Span = span_field()


@frozen
class Note:
    """`@description("…")` or `@instruction("…")`."""

    kind: Literal["description", "instruction"]
    text: str
    span: Span = span_field()


@frozen
class Query:
    """One query declaration, or the body that is a whole text: then its parameters follow from their use."""

    name: str
    params: tuple[Param, ...]
    notes: tuple[Note, ...]
    body: Body
    is_bare: bool = False
    name_span: Span = span_field()
    span: Span = span_field()


@frozen
class QueryFile:
    """All queries of one text, in source order."""

    queries: tuple[Query, ...]


# ---- Walking a tree


def parts(expression: Expression) -> Iterator[Expression]:
    """The expressions directly inside of one, without those of its blocks."""
    match expression:
        case ListLiteral(items):
            yield from items
        case PropertyAccess(variable) | SystemField(variable) | AllProperties(variable):
            yield variable
        case Call(_, arguments, _, order):
            yield from arguments
            yield from (sort.expression for sort in order)
        case Unary(_, operand) | NullTest(operand):
            yield operand
        case NamedArgument(_, value):
            yield value
        case Binary(left, _, right):
            yield left
            yield right
        case Case(branches, otherwise):
            for branch in branches:
                yield branch.condition
                yield branch.value
            if otherwise is not None:
                yield otherwise
        case _:
            pass


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it, without what stands in blocks."""
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(list(parts(found))))


def outside_blocks(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it, but what an aggregate of a block is made over."""
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        yield found
        if not block_of(found):
            waiting.extend(reversed(list(parts(found))))


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """An expression with parts replaced; `change` gives what stands for a part, None to look inside of it."""
    changed = change(expression)
    if changed is not None:
        return changed
    match expression:
        case ListLiteral(items):
            return replace(expression, items=tuple(rewritten(item, change) for item in items))
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(rewritten(item, change) for item in arguments))
        case NamedArgument(value=value):
            return replace(expression, value=rewritten(value, change))
        case Unary(operand=operand) | NullTest(operand=operand):
            return replace(expression, operand=rewritten(operand, change))
        case Binary(left, _, right):
            return replace(expression, left=rewritten(left, change), right=rewritten(right, change))
        case Case(branches, otherwise):
            inside = tuple(
                replace(branch, condition=rewritten(branch.condition, change), value=rewritten(branch.value, change))
                for branch in branches
            )
            last = None if otherwise is None else rewritten(otherwise, change)
            return replace(expression, branches=inside, otherwise=last)
        case _:
            return expression


def block_of(expression: Expression) -> tuple[Clause, ...]:
    """The clauses of an expression that is a block."""
    match expression:
        case Exists(_, clauses) | Call(clauses=tuple(clauses)):
            return clauses
        case _:
            return ()
