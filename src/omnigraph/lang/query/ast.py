"""The syntax tree of a query file and its canonical text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, assert_never

from omnigraph.core.source import Span, span_field
from omnigraph.core.values import quote
from omnigraph.frozen import frozen
from omnigraph.lang import parsing

# ---- The syntax tree of a query file
#
# Spans never take part in equality, so two trees are equal when their texts mean the same.


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


Literal_ = parsing.Literal_
TypeExpr = parsing.TypeExpr


@frozen
class ListLiteral:
    """`[a, b]`; nested lists are an error found later."""

    items: tuple[Element, ...]
    span: Span = span_field()


@frozen
class Variable:
    """`$name`: a bound variable, a parameter, or `$_`. The name is kept without its dollar."""

    name: str
    span: Span = span_field()


@frozen
class PropertyAccess:
    """`$variable.property`."""

    variable: Variable
    property: str
    span: Span = span_field()


@frozen
class Alias:
    """A bare name: a result column."""

    name: str
    span: Span = span_field()


@frozen
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


@frozen
class PropertyMatch:
    """`property: value` inside a binding."""

    property: str
    value: Value
    span: Span = span_field()


@frozen
class Binding:
    """`$p: Paper { … }`."""

    variable: Variable
    type_name: str
    matches: tuple[PropertyMatch, ...]
    type_span: Span = span_field()
    span: Span = span_field()


@frozen
class Bounds:
    """`{min,max}`; a missing maximum is an error found later."""

    low: int
    high: int | None
    span: Span = span_field()


@frozen
class Hop:
    """The edge of a traversal: its word, whether it is `<word>`, and its bounds."""

    edge_word: str
    undirected: bool
    bounds: Bounds | None
    span: Span = span_field()


@frozen
class Traversal:
    """`$a $w:cites $b`; `edge` is None when no edge variable is written."""

    left: Variable
    edge: Variable | None
    hop: Hop
    right: Variable
    span: Span = span_field()


@frozen
class Filter:
    """`left operator right`."""

    left: Expression
    operator: Operator
    right: Expression
    span: Span = span_field()


@frozen
class Condition:
    """A call that stands as a clause of its own."""

    call: Call
    span: Span = span_field()


@frozen
class Negation:
    """`not { … }`."""

    clauses: tuple[Clause, ...]
    span: Span = span_field()


Clause = Negation | Binding | Traversal | Filter | Condition


# ---- reads


@frozen
class Projection:
    """`expression as alias`."""

    expression: Expression
    alias: str | None
    span: Span = span_field()


@frozen
class Sort:
    """`expression asc|desc`; `direction` is None when none is written."""

    expression: Expression
    direction: Literal["asc", "desc"] | None
    span: Span = span_field()


@frozen
class Limit:
    """`limit n`."""

    count: int
    span: Span = span_field()


@frozen
class ReadBody:
    """`match { … } return { … } order { … } limit n`."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Sort, ...]
    limit: Limit | None
    span: Span = span_field()


# ---- mutations


@frozen
class Assignment:
    """`property: value`."""

    property: str
    value: Value
    span: Span = span_field()


@frozen
class Predicate:
    """The one comparison of a `where`."""

    property: str
    operator: Operator
    value: Value
    span: Span = span_field()


@frozen
class Insert:
    """`insert Type { … }`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    type_span: Span = span_field()
    span: Span = span_field()


@frozen
class Update:
    """`update Type set { … } where …`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Predicate
    type_span: Span = span_field()
    span: Span = span_field()


@frozen
class Delete:
    """`delete Type where …`."""

    type_name: str
    predicate: Predicate
    type_span: Span = span_field()
    span: Span = span_field()


Statement = Insert | Update | Delete


@frozen
class MutationBody:
    """One or more statements."""

    statements: tuple[Statement, ...]
    span: Span = span_field()


Body = ReadBody | MutationBody


# ---- declarations


@frozen
class Param:
    """`$name: Type?`."""

    name: str
    type: TypeExpr
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


# ---- Printing a tree as canonical text


_INDENT = "  "


def print_queries(tree: QueryFile) -> str:
    """The text of a query file."""
    return "\n".join("\n".join(_query(query)) + "\n" for query in tree.queries)


def _query(query: Query) -> Iterator[str]:
    if query.is_bare:
        yield from _body(query.body)
        return
    params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
    notes = "".join(f" @{note.kind}({quote(note.text)})" for note in query.notes)
    yield f"query {query.name}({params}){notes} {{"
    yield from (f"{_INDENT}{line}" for line in _body(query.body))
    yield "}"


def _body(body: Body) -> Iterator[str]:
    match body:
        case ReadBody():
            yield from _read(body)
        case MutationBody(statements):
            yield from map(_statement, statements)
        case _:
            assert_never(body)


def _read(body: ReadBody) -> Iterator[str]:
    yield "match {"
    yield from _clauses(body.clauses, 1)
    yield "}"
    columns = ", ".join(map(_projection, body.projections))
    yield f"return {{ {columns} }}"
    if body.order:
        yield f"order {{ {', '.join(map(_sort, body.order))} }}"
    if body.limit is not None:
        yield f"limit {body.limit.count}"


def _clauses(clauses: Iterable[Clause], depth: int) -> Iterator[str]:
    pad = _INDENT * depth
    for clause in clauses:
        match clause:
            case Negation(inner):
                yield f"{pad}not {{"
                yield from _clauses(inner, depth + 1)
                yield f"{pad}}}"
            case Binding(variable, type_name, matches):
                inline = ", ".join(f"{m.property}: {_expression(m.value)}" for m in matches)
                braces = f" {{ {inline} }}" if matches else ""
                yield f"{pad}${variable.name}: {type_name}{braces}"
            case Traversal(left, edge, hop, right):
                bound = f"${edge.name}:" if edge else ""
                yield f"{pad}${left.name} {bound}{_hop(hop)} ${right.name}"
            case Filter(left, operator, right):
                yield f"{pad}{_expression(left)} {operator} {_expression(right)}"
            case Condition(call):
                yield f"{pad}{_expression(call)}"
            case _:
                assert_never(clause)


def _hop(hop: Hop) -> str:
    word = f"<{hop.edge_word}>" if hop.undirected else hop.edge_word
    if hop.bounds is None:
        return word
    high = "" if hop.bounds.high is None else hop.bounds.high
    return f"{word}{{{hop.bounds.low},{high}}}"


def _projection(projection: Projection) -> str:
    text = _expression(projection.expression)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _sort(sort: Sort) -> str:
    text = _expression(sort.expression)
    return text if sort.direction is None else f"{text} {sort.direction}"


def _expression(expression: Expression) -> str:
    match expression:
        case Literal_(value, text):
            return quote(value) if isinstance(value, str) else text
        case ListLiteral(items):
            return f"[{', '.join(map(_expression, items))}]"
        case Variable(name):
            return f"${name}"
        case PropertyAccess(variable, name):
            return f"${variable.name}.{name}"
        case Alias(name):
            return name
        case Call(function, arguments):
            return f"{function}({', '.join(map(_expression, arguments))})"
        case _:
            assert_never(expression)


def _statement(statement: Statement) -> str:
    match statement:
        case Insert(type_name, assignments):
            return f"insert {type_name} {{ {_assignments(assignments)} }}"
        case Update(type_name, assignments, predicate):
            return f"update {type_name} set {{ {_assignments(assignments)} }} {_where(predicate)}"
        case Delete(type_name, predicate):
            return f"delete {type_name} {_where(predicate)}"
        case _:
            assert_never(statement)


def _assignments(assignments: Iterable[Assignment]) -> str:
    return ", ".join(f"{item.property}: {_expression(item.value)}" for item in assignments)


def _where(predicate: Predicate) -> str:
    return f"where {predicate.property} {predicate.operator} {_expression(predicate.value)}"
