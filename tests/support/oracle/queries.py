"""Read queries as plain objects that render to text.

The oracle evaluates these objects and the engine runs their text, so that the two share neither parser nor checker.
Cases that a person wrote as text come in through `from_text`, which uses the parser and nothing behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import assert_never

from omnigraph.core.source import SourceText
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import parse_queries

ANONYMOUS = "_"
AGGREGATES = ("count", "sum", "avg", "min", "max")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


# ---- expressions


@dataclass(frozen=True, slots=True)
class Property:
    """`$variable.name`."""

    variable: str
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` of a node, bare."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name` of a declared parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, number, boolean, day or moment."""

    value: str | bool | int | float | date


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Now:
    """`now()`."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function(argument)`."""

    function: str
    argument: Expression


@dataclass(frozen=True, slots=True)
class Column:
    """A result column, as an order key."""

    name: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """`nearest(field, query)`."""

    field: Property
    query: Parameter | ListOf


@dataclass(frozen=True, slots=True)
class Bm25:
    """`bm25(field, query)`."""

    field: Property
    query: Parameter | Literal


@dataclass(frozen=True, slots=True)
class Rrf:
    """`rrf(first, second, k)`."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Parameter | Literal | None = None


Rank = Nearest | Bm25 | Rrf
Value = Parameter | Literal | ListOf | Now
Expression = Property | Variable | Value | Aggregate | Column | Rank


# ---- clauses


@dataclass(frozen=True, slots=True)
class Bind:
    """`$variable: Type { property: value }`."""

    variable: str
    type: str
    matches: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """`$left $edge_variable:word{low,high} $right`."""

    left: str
    word: str
    right: str
    edge_variable: str | None = None
    undirected: bool = False
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """`left operator right`."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, slots=True)
class Text:
    """`search(field, query)` and its relatives."""

    function: str
    field: Property
    query: Parameter | Literal
    edits: Parameter | Literal | None = None


@dataclass(frozen=True, slots=True)
class Not:
    """`not { … }`."""

    clauses: tuple[Clause, ...]


Clause = Bind | Hop | Where | Text | Not


# ---- the query


@dataclass(frozen=True, slots=True)
class Return:
    """`expression as alias`."""

    expression: Expression
    alias: str | None = None

    @property
    def column(self) -> str:
        """The name of the result column."""
        if self.alias is not None:
            return self.alias
        match self.expression:
            case Property(variable, name):
                return f"{variable}.{name}"
            case Variable(name) | Parameter(name) | Column(name):
                return name
            case Literal() | ListOf():
                return "literal"
            case Aggregate(function):
                return function
            case Now() | Nearest() | Bm25() | Rrf():
                return type(self.expression).__name__.lower()
            case _:
                assert_never(self.expression)


@dataclass(frozen=True, slots=True)
class Sort:
    """`expression asc|desc`; the direction is empty when none is written."""

    expression: Property | Column | Rank
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """`$name: Type?`."""

    name: str
    type: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A read query."""

    params: tuple[Declared, ...]
    clauses: tuple[Clause, ...]
    returns: tuple[Return, ...]
    order: tuple[Sort, ...] = ()
    limit: int | None = None
    name: str = "q"

    def __str__(self) -> str:
        return render(self)


def variables_of(clauses: Iterable[Clause]) -> Iterator[str]:
    """Every variable that the clauses mention, those of inner blocks included."""
    for clause in clauses:
        match clause:
            case Bind(variable):
                yield variable
            case Hop(left, _, right, edge_variable):
                yield from (left, right)
                if edge_variable is not None:
                    yield edge_variable
            case Where(left, _, right):
                yield from (side.variable for side in (left, right) if isinstance(side, Property))
            case Text(_, field):
                yield field.variable
            case Not(inner):
                yield from variables_of(inner)


# ---- objects → text


def render(query: Query) -> str:
    """The text of a query."""
    params = ", ".join(f"${item.name}: {item.type}{'?' if item.nullable else ''}" for item in query.params)
    lines = [f"query {query.name}({params}) {{", "  match {"]
    lines += [f"    {_clause(clause)}" for clause in query.clauses]
    returned = [_expression(item.expression) + (f" as {item.alias}" if item.alias else "") for item in query.returns]
    lines += ["  }", f"  return {{ {', '.join(returned)} }}"]
    if query.order:
        keys = [f"{_expression(key.expression)} {key.direction}".strip() for key in query.order]
        lines.append(f"  order {{ {', '.join(keys)} }}")
    if query.limit is not None:
        lines.append(f"  limit {query.limit}")
    return "\n".join([*lines, "}"])


def _clause(clause: Clause) -> str:
    match clause:
        case Bind(variable, type_, matches):
            inline = ", ".join(f"{name}: {_expression(value)}" for name, value in matches)
            return f"${variable}: {type_}" + (f" {{ {inline} }}" if matches else "")
        case Hop(left, word, right, edge_variable, undirected, bounds):
            bound = "" if edge_variable is None else f"${edge_variable}:"
            hop = f"<{word}>" if undirected else word
            reach = "" if bounds is None else f"{{{bounds[0]},{bounds[1]}}}"
            return f"${left} {bound}{hop}{reach} ${right}"
        case Where(left, operator, right):
            return f"{_expression(left)} {operator} {_expression(right)}"
        case Text(function, field, query, edits):
            return _call(function, field, query, edits)
        case Not(clauses):
            return f"not {{ {'  '.join(map(_clause, clauses))} }}"
        case _:
            assert_never(clause)


def _expression(expression: Expression) -> str:
    match expression:
        case Property(variable, name):
            return f"${variable}.{name}"
        case Variable(name) | Parameter(name):
            return f"${name}"
        case Column(name):
            return name
        case Literal(value):
            return _literal(value)
        case ListOf(items):
            return f"[{', '.join(map(_expression, items))}]"
        case Now():
            return "now()"
        case Aggregate(function, argument):
            return _call(function, argument)
        case Nearest(field, query):
            return _call("nearest", field, query)
        case Bm25(field, query):
            return _call("bm25", field, query)
        case Rrf(first, second, k):
            return _call("rrf", first, second, k)
        case _:
            assert_never(expression)


def _call(function: str, *arguments: Expression | None) -> str:
    given = ", ".join(_expression(item) for item in arguments if item is not None)
    return f"{function}({given})"


def _literal(value: str | bool | int | float | date) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            plain = f"{Decimal(repr(value)):f}"
            return plain if "." in plain else f"{plain}.0"
        case datetime() | date():
            kind = "datetime" if isinstance(value, datetime) else "date"
            return f'{kind}("{moment_text(value)}")'
        case str():
            escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
            return '"' + "".join(escapes.get(sign, sign) for sign in value) + '"'


def moment_text(value: date) -> str:
    """A day or a moment as parameters and literals spell it."""
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None)
        return f"{plain.isoformat(timespec='milliseconds')}Z"
    return value.isoformat()


def moment_of(text: str) -> datetime:
    """The moment of an ISO text; UTC when it names no zone."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


# ---- text → objects


def from_text(text: str) -> Query:
    """The one read query of a text, as the parser understands it."""
    (parsed,) = parse_queries(SourceText(text)).queries
    body = parsed.body
    assert isinstance(body, ast.ReadBody), "a read query"
    reader = _Reader(frozenset(param.name for param in parsed.params))
    return Query(
        params=tuple(
            Declared(param.name, str(param.type).removesuffix("?"), param.type.nullable) for param in parsed.params
        ),
        clauses=tuple(map(reader.clause, body.clauses)),
        returns=tuple(Return(reader.expression(item.expression), item.alias) for item in body.projections),
        order=tuple(Sort(reader.expression(item.expression), item.direction or "") for item in body.order),
        limit=None if body.limit is None else body.limit.count,
        name=parsed.name,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Knows which of the `$names` are parameters."""

    params: frozenset[str]

    def clause(self, clause: ast.Clause) -> Clause:
        match clause:
            case ast.Negation(inner):
                return Not(tuple(map(self.clause, inner)))
            case ast.Binding(variable, type_name, matches):
                pairs = tuple((item.property, self.expression(item.value)) for item in matches)
                return Bind(variable.name, type_name, pairs)
            case ast.Traversal(left, edge, hop, right):
                bounds = None if hop.bounds is None else (hop.bounds.low, hop.bounds.high)
                name = None if edge is None else edge.name
                return Hop(left.name, hop.edge_word, right.name, name, hop.undirected, bounds)
            case ast.Filter(left, operator, right):
                return Where(self.expression(left), operator.value, self.expression(right))
            case ast.Condition(call):
                return Text(call.function, *map(self.expression, call.arguments))

    def expression(self, expression: ast.Expression) -> Expression:
        match expression:
            case ast.Literal_(value):
                return Literal(value)
            case ast.ListLiteral(items):
                return ListOf(tuple(map(self.expression, items)))
            case ast.Variable(name):
                return Parameter(name) if name in self.params else Variable(name)
            case ast.PropertyAccess(variable, name):
                return Property(variable.name, name)
            case ast.Alias(name):
                return Column(name)
            case ast.Call(function, arguments):
                return self.call(function, arguments)

    def call(self, function: str, arguments: tuple[ast.Expression, ...]) -> Expression:
        given = tuple(map(self.expression, arguments))
        match function:
            case "now":
                return Now()
            case "date":
                return Literal(date.fromisoformat(given[0].value))
            case "datetime":
                return Literal(moment_of(given[0].value))
            case "nearest":
                return Nearest(*given)
            case "bm25":
                return Bm25(*given)
            case "rrf":
                return Rrf(*given)
            case _ if function in AGGREGATES:
                return Aggregate(function, *given)
        raise ValueError(f"there is no function {function}")
