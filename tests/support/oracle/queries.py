"""Read queries as plain objects that render to text.

The oracle evaluates these objects and the engine runs their text, so that the two share neither parser nor checker.
Cases that a person wrote as text come in through `reading`, which uses the parser and nothing behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, assert_never

ANONYMOUS = "_"
AGGREGATES = ("count", "sum", "avg", "min", "max", "stddev", "median", "collect")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")


# ---- expressions


@dataclass(frozen=True, slots=True)
class Property:
    """`$variable.name`; `@id` and its like are names too."""

    variable: str
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` of a node or an edge, bare."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name` of a declared parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """`$name` of a `let`."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, number, boolean, day or moment; None is `null`."""

    value: str | bool | int | float | date | None


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Now:
    """`now()`."""


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """`not operand` or `-operand`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand is null`, or `is not null`."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """`case when … then … else … end`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """`name(arguments)`."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """`search(field, query)` and its relatives."""

    function: str
    field: Property
    query: Parameter | Literal
    edits: Parameter | Literal | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """`exists { … }`, or `not { … }`."""

    clauses: tuple[Clause, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function(argument)`; without an argument it counts rows. With clauses it is the value of a block."""

    function: str
    argument: Expression | None
    distinct: bool = False
    order: tuple[Sort, ...] = ()
    limit: int | None = None
    clauses: tuple[Clause, ...] | None = None


@dataclass(frozen=True, slots=True)
class AllProperties:
    """`$variable.*`."""

    variable: str


@dataclass(frozen=True, slots=True)
class Column:
    """A result column, as an order key or in `having`."""

    name: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """`nearest(field, query, recall: …)`; an exact answer has every recall."""

    field: Property
    query: Parameter | ListOf
    recall: Parameter | Literal | None = None


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
Computed = Binary | Unary | IsNull | Case | Function | Text | Exists
Expression = Property | Variable | Named | Value | Computed | Aggregate | AllProperties | Column | Rank


# ---- clauses


@dataclass(frozen=True, slots=True)
class Bind:
    """`$variable: Type | Other { property: value }`; an interface is a type here."""

    variable: str
    types: tuple[str, ...]
    matches: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """`$left $edge_variable:(word | other where condition){low,high} $right: Type`; without words it is `*`.

    Columns in the condition are properties of the edge. `types` and `matches` belong to the right end.
    """

    left: str
    words: tuple[str, ...]
    right: str
    edge_variable: str | None = None
    undirected: bool = False
    bounds: tuple[int, int] | None = None
    condition: Expression | None = None
    types: tuple[str, ...] = ()
    matches: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class PathOf:
    """`path $name = shortest|all hop`."""

    name: str
    choice: str
    hop: Hop


@dataclass(frozen=True, slots=True)
class Maybe:
    """`optional { … }`."""

    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Let:
    """`let $name = expression`."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Where:
    """A condition."""

    condition: Expression


Clause = Bind | Hop | PathOf | Maybe | Let | Where


def compared(left: Expression, operator: str, right: Expression) -> Where:
    """The condition `left operator right`."""
    return Where(Binary(left, operator, right))


def without(*clauses: Clause) -> Where:
    """The condition `not { … }`."""
    return Where(Exists(clauses, negated=True))


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
            case Variable(name) | Parameter(name) | Column(name) | Named(name):
                return name
            case Literal() | ListOf():
                return "literal"
            case Aggregate(function):
                return function
            case Now():
                return "now"
            case Nearest(field):
                return f"{field.variable}._distance"
            case Bm25(field):
                return f"{field.variable}._score"
            case Rrf():
                return "_score"
            case AllProperties(variable):
                return f"{variable}.*"
        raise ValueError(f"the column {self.expression} needs an alias")


@dataclass(frozen=True, slots=True)
class Sort:
    """`expression asc|desc nulls first|last`; empty where nothing is written."""

    expression: Expression
    direction: str = ""
    nulls: str = ""


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
    limit: int | Parameter | None = None
    distinct: bool = False
    having: Expression | None = None
    offset: int | Parameter | None = None
    per: tuple[Expression, ...] = ()
    name: str = "q"

    def __str__(self) -> str:
        return render(self)


# ---- walking


def walk(node: Any) -> Iterator[Any]:
    """Everything in a query, a clause, an expression, or several of them; itself first."""
    if isinstance(node, tuple):
        for part in node:
            yield from walk(part)
    elif is_dataclass(node):
        yield node
        for item in fields(node):
            yield from walk(getattr(node, item.name))


def rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    """The same with parts replaced; `change` gives what stands for a part, None to look inside of it."""
    if isinstance(node, tuple):
        return tuple(rewritten(part, change) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    changed = change(node)
    if changed is not None:
        return changed
    parts = {item.name: rewritten(getattr(node, item.name), change) for item in fields(node)}
    return replace(node, **parts)


def variables_of(node: Any) -> Iterator[str]:
    """Every variable that clauses or expressions mention, those of inner blocks included."""
    for part in walk(node):
        match part:
            case Property(variable) | Bind(variable) | AllProperties(variable) | Variable(variable):
                yield variable
            case Hop(left, _, right, edge_variable):
                yield from (left, right)
                if edge_variable is not None:
                    yield edge_variable
            case PathOf(name):
                yield name


def has_aggregate(expression: Expression) -> bool:
    """Whether an expression has an aggregate over the rows of a group."""
    if isinstance(expression, Aggregate):
        return expression.clauses is None
    if isinstance(expression, Exists | Rank):
        return False
    return any(has_aggregate(part) for part in _parts(expression))


def _parts(expression: Expression) -> Iterator[Any]:
    """The expressions directly inside of one."""
    for item in fields(expression):
        waiting = [getattr(expression, item.name)]
        while waiting:
            part = waiting.pop(0)
            if isinstance(part, tuple):
                waiting = [*part, *waiting]
            elif is_dataclass(part):
                yield part


# ---- objects → text


def render(query: Query) -> str:
    """The text of a query."""
    params = ", ".join(f"${item.name}: {item.type}{'?' if item.nullable else ''}" for item in query.params)
    lines = [f"query {query.name}({params}) {{", "  match {"]
    lines += [f"    {_clause(clause)}" for clause in query.clauses]
    returned = [_top(item.expression) + (f" as {item.alias}" if item.alias else "") for item in query.returns]
    distinct = "distinct " if query.distinct else ""
    lines += ["  }", f"  return {distinct}{{ {', '.join(returned)} }}"]
    if query.having is not None:
        lines.append(f"  having {{ {_top(query.having)} }}")
    if query.order:
        lines.append(f"  order {{ {', '.join(map(_sort, query.order))} }}")
    if query.offset is not None:
        lines.append(f"  offset {_count(query.offset)}")
    if query.limit is not None:
        per = f" per {{ {', '.join(map(_top, query.per))} }}" if query.per else ""
        lines.append(f"  limit {_count(query.limit)}{per}")
    return "\n".join([*lines, "}"])


def _count(count: int | Parameter) -> str:
    return str(count) if isinstance(count, int) else f"${count.name}"


def _sort(key: Sort) -> str:
    nulls = f"nulls {key.nulls}" if key.nulls else ""
    return " ".join(part for part in (_top(key.expression), key.direction, nulls) if part)


def _clause(clause: Clause) -> str:
    match clause:
        case Bind(variable, types, matches):
            return f"${variable}{_typed(types, matches)}"
        case Hop():
            return _hop(clause)
        case PathOf(name, choice, hop):
            return f"path ${name} = {choice} {_hop(hop)}"
        case Maybe(clauses):
            return f"optional {_block(clauses)}"
        case Let(name, expression):
            return f"let ${name} = {_top(expression)}"
        case Where(condition):
            return _top(condition)
        case _:
            assert_never(clause)


def _typed(types: tuple[str, ...], matches: tuple[tuple[str, Expression], ...]) -> str:
    inline = ", ".join(f"{name}: {_top(value)}" for name, value in matches)
    return f": {' | '.join(types)}" + (f" {{ {inline} }}" if matches else "")


def _hop(hop: Hop) -> str:
    bound = "" if hop.edge_variable is None else f"${hop.edge_variable}:"
    words = " | ".join(hop.words) or "*"
    if hop.condition is not None:
        words = f"({words} where {_top(hop.condition)})"
    elif len(hop.words) > 1 and not hop.undirected:
        words = f"({words})"
    words = f"<{words}>" if hop.undirected else words
    reach = "" if hop.bounds is None else f"{{{hop.bounds[0]},{hop.bounds[1]}}}"
    right = _typed(hop.types, hop.matches) if hop.types else ""
    return f"${hop.left} {bound}{words}{reach} ${hop.right}{right}"


def _block(clauses: Iterable[Clause]) -> str:
    return f"{{ {'  '.join(map(_clause, clauses))} }}"


def _top(expression: Expression) -> str:
    """An expression that stands alone; what begins with a minus would be joined to what is before it."""
    text = _expression(expression)
    match expression:
        case Binary(left, operator, right):
            text = f"{_expression(left)} {operator} {_expression(right)}"
        case IsNull():
            text = text[1:-1]
    return f"({text})" if text.startswith("-") else text


def _expression(expression: Expression) -> str:
    """An expression inside another; operators have parentheses."""
    match expression:
        case Property(variable, name):
            return f"${variable}.{name}"
        case Variable(name) | Parameter(name) | Named(name):
            return f"${name}"
        case Column(name):
            return name
        case AllProperties(variable):
            return f"${variable}.*"
        case Literal(value):
            return _literal(value)
        case ListOf(items):
            return f"[{', '.join(map(_top, items))}]"
        case Now():
            return "now()"
        case Binary(left, operator, right):
            return f"({_expression(left)} {operator} {_expression(right)})"
        case Unary("not", operand):
            return f"(not {_expression(operand)})"
        case Unary(_, operand):
            return f"(-{_expression(operand)})"
        case IsNull(operand, negated):
            return f"({_expression(operand)} is {'not ' if negated else ''}null)"
        case Case(branches, otherwise):
            whens = (f"when {_expression(test)} then {_expression(value)}" for test, value in branches)
            rest = "" if otherwise is None else f" else {_expression(otherwise)}"
            return f"case {' '.join(whens)}{rest} end"
        case Function(name, arguments):
            return _call(name, *arguments)
        case Text(function, field, query, edits):
            return _call(function, field, query, edits)
        case Exists(clauses, negated):
            return f"{'not' if negated else 'exists'} {_block(clauses)}"
        case Aggregate():
            return _aggregate(expression)
        case Nearest(field, query, recall):
            wanted = "" if recall is None else f", recall: {_expression(recall)}"
            return f"nearest({_expression(field)}, {_expression(query)}{wanted})"
        case Bm25(field, query):
            return _call("bm25", field, query)
        case Rrf(first, second, k):
            return _call("rrf", first, second, k)
        case _:
            assert_never(expression)


def _aggregate(call: Aggregate) -> str:
    inside = "*" if call.argument is None else _top(call.argument)
    if call.distinct:
        inside = f"distinct {inside}"
    if call.order:
        inside += f" order {{ {', '.join(map(_sort, call.order))} }}"
    if call.limit is not None:
        inside += f" limit {call.limit}"
    if call.clauses is None:
        return f"{call.function}({inside})"
    arguments = "" if call.argument is None else f"({inside})"
    return f"{call.function}{arguments} {_block(call.clauses)}"


def _call(function: str, *arguments: Expression | None) -> str:
    given = ", ".join(_top(item) for item in arguments if item is not None)
    return f"{function}({given})"


def _literal(value: str | bool | int | float | date | None) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
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
