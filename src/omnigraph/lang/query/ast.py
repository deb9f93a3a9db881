"""The syntax tree of a query file and its canonical text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Literal, TypeVar, assert_never

from omnigraph.core.source import Span, span_field
from omnigraph.core.values import quote
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


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The conditions that `and` joins at the top of one."""
    if isinstance(expression, Binary) and expression.operator is Operator.AND:
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression


# ---- Printing a tree as canonical text


_INDENT = "  "


def print_queries(tree: QueryFile) -> str:
    """The text of a query file."""
    return "\n".join("\n".join(_query(query)) + "\n" for query in tree.queries)


def _query(query: Query) -> Iterator[str]:
    if query.is_bare:
        yield from _body(query.body)
        return
    params = ", ".join(map(_param, query.params))
    notes = "".join(f" @{note.kind}({quote(note.text)})" for note in query.notes)
    yield f"query {query.name}({params}){notes} {{"
    yield from (f"{_INDENT}{line}" for line in _body(query.body))
    yield "}"


def _param(param: Param) -> str:
    default = "" if param.default is None else f" = {print_expression(param.default)}"
    return f"${param.name}: {param.type}{default}"


def _body(body: Body) -> Iterator[str]:
    match body:
        case ReadBody():
            yield from _read(body)
        case MutationBody(statements, clauses, returns):
            if clauses is not None:
                yield from _match(clauses)
            yield from map(_statement, statements)
            if returns:
                yield f"return {{ {_listed(returns, _projection)} }}"
        case _:
            assert_never(body)


def _match(clauses: Iterable[Clause]) -> Iterator[str]:
    yield "match {"
    yield from (f"{_INDENT}{print_clause(clause)}" for clause in clauses)
    yield "}"


def _read(body: ReadBody) -> Iterator[str]:
    yield from _match(body.clauses)
    distinct = "distinct " if body.distinct else ""
    yield f"return {distinct}{{ {_listed(body.projections, _projection)} }}"
    if body.having is not None:
        yield f"having {{ {print_expression(body.having)} }}"
    if body.order:
        yield f"order {{ {_listed(body.order, _sort)} }}"
    if body.offset is not None:
        yield f"offset {_count(body.offset)}"
    if body.limit is not None:
        per = f" per {{ {_listed(body.limit.per, print_expression)} }}" if body.limit.per else ""
        yield f"limit {_count(body.limit.count)}{per}"


_Item = TypeVar("_Item")


def _listed(items: Iterable[_Item], text: Callable[[_Item], str]) -> str:
    return ", ".join(map(text, items))


def print_clause(clause: Clause) -> str:
    """The canonical text of a clause."""
    match clause:
        case Binding():
            return f"${clause.variable.name}: {_types(clause)}"
        case Traversal():
            return _traversal(clause)
        case Optional(clauses):
            return f"optional {_block(clauses)}"
        case Let(variable, expression):
            return f"let ${variable.name} = {print_expression(expression)}"
        case Path(variable, choice, traversal):
            return f"path ${variable.name} = {choice} {_traversal(traversal)}"
        case Condition(expression):
            text = print_expression(expression)
            return f"({text})" if text.startswith("-") else text
        case _:
            assert_never(clause)


def _types(binding: Binding) -> str:
    inline = _listed(binding.matches, lambda match: f"{match.property}: {print_expression(match.value)}")
    braces = f" {{ {inline} }}" if binding.matches else ""
    return f"{' | '.join(item.name for item in binding.types)}{braces}"


def _traversal(traversal: Traversal) -> str:
    bound = f"${traversal.edge.name}:" if traversal.edge else ""
    typed = f": {_types(traversal.binding)}" if traversal.binding else ""
    return f"${traversal.left.name} {bound}{_hop(traversal.hop)} ${traversal.right.name}{typed}"


def _hop(hop: Hop) -> str:
    text = " | ".join(_word(word.name) for word in hop.words) or "*"
    if hop.condition is not None:
        text = f"({text} where {print_expression(hop.condition)})"
    elif len(hop.words) > 1 and not hop.undirected:
        text = f"({text})"
    if hop.undirected:
        text = f"<{text}>"
    if hop.bounds is None:
        return text
    high = "" if hop.bounds.high is None else hop.bounds.high
    return f"{text}{{{hop.bounds.low},{high}}}"


#: Words that are an edge only in quotes.
_RESERVED = frozenset({"and", "or", "not", "is", "null", "in"})


def _word(name: str) -> str:
    return quote(name) if name in _RESERVED or not _NAME.fullmatch(name) else name


def _block(clauses: Iterable[Clause]) -> str:
    return f"{{ {'  '.join(map(print_clause, clauses))} }}"


def _projection(projection: Projection) -> str:
    text = print_expression(projection.expression)
    text = f"({text})" if text.startswith("-") else text
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _sort(sort: Sort) -> str:
    text = print_expression(sort.expression)
    direction = "" if sort.direction is None else f" {sort.direction}"
    nulls = "" if sort.nulls is None else f" nulls {sort.nulls}"
    return f"{text}{direction}{nulls}"


def _count(count: Count) -> str:
    return f"${count.value.name}" if isinstance(count.value, Variable) else str(count.value)


#: How tightly operators bind; comparisons do not chain.
_OR, _AND, _NOT, _COMPARISON, _SUM, _TERM, _MINUS, _PRIMARY = range(8)
_STRENGTH = {
    Operator.OR: _OR,
    Operator.AND: _AND,
    Operator.ADD: _SUM,
    Operator.SUBTRACT: _SUM,
    Operator.MULTIPLY: _TERM,
    Operator.DIVIDE: _TERM,
    Operator.REMAINDER: _TERM,
} | dict.fromkeys(COMPARISONS, _COMPARISON)


def print_expression(expression: Expression) -> str:
    """The canonical text of an expression, with as few parentheses as its meaning allows."""
    return _printed(expression)[0]


def _inside(expression: Expression, least: int) -> str:
    text, strength = _printed(expression)
    return text if strength >= least else f"({text})"


def _printed(expression: Expression) -> tuple[str, int]:
    match expression:
        case Unary("not", operand):
            return f"not {_inside(operand, _NOT)}", _NOT
        case Unary(_, operand):
            return f"-{_inside(operand, _PRIMARY)}", _MINUS
        case Binary(left, operator, right):
            strength = _STRENGTH[operator]
            chains = operator not in COMPARISONS
            text = f"{_inside(left, strength if chains else _SUM)} {operator} {_inside(right, strength + 1)}"
            return text, strength
        case NullTest(operand, negated):
            return f"{_inside(operand, _SUM)} is {'not ' if negated else ''}null", _COMPARISON
        case Literal_(value, text):
            if isinstance(value, str):
                return quote(value), _PRIMARY
            return text, _MINUS if text.startswith("-") else _PRIMARY
        case _:
            return _primary(expression), _PRIMARY


def _primary(expression: Expression) -> str:
    match expression:
        case Null():
            return "null"
        case ListLiteral(items):
            return f"[{_listed(items, print_expression)}]"
        case Variable(name):
            return f"${name}"
        case PropertyAccess(variable, name):
            return f"${variable.name}.{name}"
        case SystemField(variable, name):
            return f"${variable.name}.@{name}"
        case AllProperties(variable):
            return f"${variable.name}.*"
        case Alias(name):
            return name
        case MetaName(name):
            return f"@{name}"
        case Star():
            return "*"
        case Call():
            return _call(expression)
        case Case(branches, otherwise):
            whens = (f"when {print_expression(b.condition)} then {print_expression(b.value)}" for b in branches)
            rest = "" if otherwise is None else f" else {print_expression(otherwise)}"
            return f"case {' '.join(whens)}{rest} end"
        case Exists(negated, clauses):
            return f"{'not' if negated else 'exists'} {_block(clauses)}"
        case _:
            raise AssertionError(f"{expression!r} has an operator")


def _call(call: Call) -> str:
    inside = _listed(call.arguments, print_expression)
    if call.distinct:
        inside = f"distinct {inside}"
    if call.order:
        inside = f"{inside} order {{ {_listed(call.order, _sort)} }}"
    if call.limit is not None:
        inside = f"{inside} limit {_count(call.limit)}"
    if call.clauses is None:
        return f"{call.function}({inside})"
    arguments = f"({inside})" if inside else ""
    return f"{call.function}{arguments} {_block(call.clauses)}"


def _statement(statement: Statement) -> str:
    match statement:
        case Insert(type_name, assignments, variable):
            name = "" if variable is None else f" as ${variable.name}"
            return f"insert {type_name} {{ {_assignments(assignments)} }}{name}"
        case Upsert(type_name, assignments):
            return f"upsert {type_name} {{ {_assignments(assignments)} }}"
        case Update(target, assignments, condition):
            return f"update {_target(target)} set {{ {_assignments(assignments)} }}{_where(condition)}"
        case Delete(target, condition):
            return f"delete {_target(target)}{_where(condition)}"
        case _:
            assert_never(statement)


def _target(target: TypeName | Variable) -> str:
    return target.name if isinstance(target, TypeName) else f"${target.name}"


def _assignments(assignments: Iterable[Assignment]) -> str:
    return _listed(assignments, lambda item: f"{item.property}: {print_expression(item.value)}")


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f" where {print_expression(condition)}"
