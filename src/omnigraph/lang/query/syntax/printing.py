"""The canonical text of a query: parsed again it gives the same tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, assert_never

from omnigraph.core.values import quote
from omnigraph.lang.query.syntax import ast

_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")


# ---- Printing a tree as canonical text


_INDENT = "  "


def print_queries(tree: ast.QueryFile) -> str:
    """The text of a query file."""
    return "\n".join("\n".join(_query(query)) + "\n" for query in tree.queries)


def _query(query: ast.Query) -> Iterator[str]:
    if query.is_bare:
        yield from _body(query.body)
        return
    params = ", ".join(map(_param, query.params))
    notes = "".join(f" @{note.kind}({quote(note.text)})" for note in query.notes)
    yield f"query {query.name}({params}){notes} {{"
    yield from (f"{_INDENT}{line}" for line in _body(query.body))
    yield "}"


def _param(param: ast.Param) -> str:
    default = "" if param.default is None else f" = {print_expression(param.default)}"
    return f"${param.name}: {param.type}{default}"


def _body(body: ast.Body) -> Iterator[str]:
    match body:
        case ast.ReadBody():
            yield from _read(body)
        case ast.MutationBody(statements, clauses, returns):
            if clauses is not None:
                yield from _match(clauses)
            yield from map(_statement, statements)
            if returns:
                yield f"return {{ {_listed(returns, _projection)} }}"
        case _:
            assert_never(body)


def _match(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    yield "match {"
    yield from (f"{_INDENT}{text}" for text in _clauses(clauses))
    yield "}"


def _read(body: ast.ReadBody) -> Iterator[str]:
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


def _clauses(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    """The texts of clauses side by side. `$a true $b` is a traversal: a variable alone is in parentheses there."""
    known = list(clauses)
    texts = list(map(print_clause, known))
    for place, clause in enumerate(known):
        word, begin = (*texts[place + 1 : place + 3], "", "")[:2]
        is_misread = isinstance(clause, ast.Condition) and isinstance(clause.expression, ast.Variable)
        is_misread = is_misread and word.isidentifier() and begin.startswith("$")
        yield f"({texts[place]})" if is_misread else texts[place]


def print_clause(clause: ast.Clause) -> str:
    """The canonical text of a clause."""
    match clause:
        case ast.Binding():
            return f"${clause.variable.name}: {_types(clause)}"
        case ast.Traversal():
            return _traversal(clause)
        case ast.Optional(clauses):
            return f"optional {_block(clauses)}"
        case ast.Let(variable, expression):
            return f"let ${variable.name} = {print_expression(expression)}"
        case ast.Path(variable, choice, traversal):
            return f"path ${variable.name} = {choice} {_traversal(traversal)}"
        case ast.Condition(expression):
            text = print_expression(expression)
            return f"({text})" if text.startswith("-") else text
        case _:
            assert_never(clause)


def _types(binding: ast.Binding) -> str:
    inline = _listed(binding.matches, lambda match: f"{match.property}: {print_expression(match.value)}")
    braces = f" {{ {inline} }}" if binding.matches else ""
    return f"{' | '.join(item.name for item in binding.types)}{braces}"


def _traversal(traversal: ast.Traversal) -> str:
    bound = f"${traversal.edge.name}:" if traversal.edge else ""
    typed = f": {_types(traversal.binding)}" if traversal.binding else ""
    return f"${traversal.left.name} {bound}{_hop(traversal.hop)} ${traversal.right.name}{typed}"


def _hop(hop: ast.Hop) -> str:
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


def _block(clauses: Iterable[ast.Clause]) -> str:
    return f"{{ {'  '.join(_clauses(clauses))} }}"


def _projection(projection: ast.Projection) -> str:
    text = print_expression(projection.expression)
    text = f"({text})" if text.startswith("-") else text
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _sort(sort: ast.Sort) -> str:
    text = print_expression(sort.expression)
    direction = "" if sort.direction is None else f" {sort.direction}"
    nulls = "" if sort.nulls is None else f" nulls {sort.nulls}"
    return f"{text}{direction}{nulls}"


def _count(count: ast.Count) -> str:
    return f"${count.value.name}" if isinstance(count.value, ast.Variable) else str(count.value)


#: How tightly operators bind; comparisons do not chain.
_OR, _AND, _NOT, _COMPARISON, _SUM, _TERM, _MINUS, _PRIMARY = range(8)
_STRENGTH = {
    ast.Operator.OR: _OR,
    ast.Operator.AND: _AND,
    ast.Operator.ADD: _SUM,
    ast.Operator.SUBTRACT: _SUM,
    ast.Operator.MULTIPLY: _TERM,
    ast.Operator.DIVIDE: _TERM,
    ast.Operator.REMAINDER: _TERM,
} | dict.fromkeys(ast.COMPARISONS, _COMPARISON)


def print_expression(expression: ast.Expression) -> str:
    """The canonical text of an expression, with as few parentheses as its meaning allows."""
    return _printed(expression)[0]


def _inside(expression: ast.Expression, least: int) -> str:
    text, strength = _printed(expression)
    return text if strength >= least else f"({text})"


def _printed(expression: ast.Expression) -> tuple[str, int]:
    match expression:
        case ast.Unary("not", operand):
            return f"not {_inside(operand, _NOT)}", _NOT
        case ast.Unary(_, operand):
            return f"-{_inside(operand, _PRIMARY)}", _MINUS
        case ast.Binary(left, operator, right):
            strength = _STRENGTH[operator]
            chains = operator not in ast.COMPARISONS
            text = f"{_inside(left, strength if chains else _SUM)} {operator} {_inside(right, strength + 1)}"
            return text, strength
        case ast.NullTest(operand, negated):
            return f"{_inside(operand, _SUM)} is {'not ' if negated else ''}null", _COMPARISON
        case ast.Literal_(value, text):
            if isinstance(value, str):
                return quote(value), _PRIMARY
            return text, _MINUS if text.startswith("-") else _PRIMARY
        case _:
            return _primary(expression), _PRIMARY


def _primary(expression: ast.Expression) -> str:
    match expression:
        case ast.Null():
            return "null"
        case ast.ListLiteral(items):
            return f"[{_listed(items, print_expression)}]"
        case ast.Variable(name):
            return f"${name}"
        case ast.PropertyAccess(variable, name):
            return f"${variable.name}.{name}"
        case ast.SystemField(variable, name):
            return f"${variable.name}.@{name}"
        case ast.AllProperties(variable):
            return f"${variable.name}.*"
        case ast.Alias(name):
            return name
        case ast.MetaName(name):
            return f"@{name}"
        case ast.NamedArgument(name, value):
            return f"{name}: {print_expression(value)}"
        case ast.Star():
            return "*"
        case ast.Call():
            return _call(expression)
        case ast.Case(branches, otherwise):
            whens = (f"when {print_expression(b.condition)} then {print_expression(b.value)}" for b in branches)
            rest = "" if otherwise is None else f" else {print_expression(otherwise)}"
            return f"case {' '.join(whens)}{rest} end"
        case ast.Exists(negated, clauses):
            return f"{'not' if negated else 'exists'} {_block(clauses)}"
        case _:
            raise AssertionError(f"{expression!r} has an operator")


def _call(call: ast.Call) -> str:
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


def _statement(statement: ast.Statement) -> str:
    match statement:
        case ast.Insert(type_name, assignments, variable):
            name = "" if variable is None else f" as ${variable.name}"
            return f"insert {type_name} {{ {_assignments(assignments)} }}{name}"
        case ast.Upsert(type_name, assignments):
            return f"upsert {type_name} {{ {_assignments(assignments)} }}"
        case ast.Update(target, assignments, condition):
            return f"update {_target(target)} set {{ {_assignments(assignments)} }}{_where(condition)}"
        case ast.Delete(target, condition):
            return f"delete {_target(target)}{_where(condition)}"
        case _:
            assert_never(statement)


def _target(target: ast.TypeName | ast.Variable) -> str:
    return target.name if isinstance(target, ast.TypeName) else f"${target.name}"


def _assignments(assignments: Iterable[ast.Assignment]) -> str:
    return _listed(assignments, lambda item: f"{item.property}: {print_expression(item.value)}")


def _where(condition: ast.Expression | None) -> str:
    return "" if condition is None else f" where {print_expression(condition)}"
