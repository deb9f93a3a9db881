"""Syntax tree → canonical query text; parsing the text gives an equal tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from omnigraph.query import ast
from omnigraph.types.values import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INDENT = "  "


def print_queries(tree: ast.QueryFile) -> str:
    """The text of a query file."""
    return "\n".join("\n".join(_query(query)) + "\n" for query in tree.queries)


def _query(query: ast.Query) -> Iterator[str]:
    params = ", ".join(map(_param, query.params))
    notes = "".join(f" @{note.kind}({quote(note.text)})" for note in query.notes)
    yield f"query {query.name}({params}){notes} {{"
    match query.body:
        case ast.ReadBody():
            yield from _read(query.body)
        case ast.MutationBody(statements):
            for statement in statements:
                yield f"{_INDENT}{_statement(statement)}"
        case _:
            assert_never(query.body)
    yield "}"


def _param(param: ast.Param) -> str:
    written = param.type
    match written.form:
        case "vector":
            text = f"Vector({written.dimension})"
        case "list":
            text = f"[{written.name}]"
        case "scalar":
            text = written.name
    return f"${param.name}: {text}{'?' if param.nullable else ''}"


def _read(body: ast.ReadBody) -> Iterator[str]:
    yield f"{_INDENT}match {{"
    yield from _clauses(body.clauses, 2)
    yield f"{_INDENT}}}"
    columns = ", ".join(map(_projection, body.projections))
    yield f"{_INDENT}return {{ {columns} }}"
    if body.order:
        yield f"{_INDENT}order {{ {', '.join(map(_sort, body.order))} }}"
    if body.limit is not None:
        yield f"{_INDENT}limit {body.limit.count}"


def _clauses(clauses: Iterable[ast.Clause], depth: int) -> Iterator[str]:
    pad = _INDENT * depth
    for clause in clauses:
        match clause:
            case ast.Negation(inner):
                yield f"{pad}not {{"
                yield from _clauses(inner, depth + 1)
                yield f"{pad}}}"
            case ast.Binding(variable, type_name, matches):
                inline = ", ".join(f"{m.property}: {_expression(m.value)}" for m in matches)
                braces = f" {{ {inline} }}" if matches else ""
                yield f"{pad}${variable.name}: {type_name}{braces}"
            case ast.Traversal(left, edge, hop, right):
                bound = f"${edge.name}:" if edge else ""
                yield f"{pad}${left.name} {bound}{_hop(hop)} ${right.name}"
            case ast.Filter(left, operator, right):
                yield f"{pad}{_expression(left)} {operator} {_expression(right)}"
            case ast.Condition(call):
                yield f"{pad}{_expression(call)}"
            case _:
                assert_never(clause)


def _hop(hop: ast.Hop) -> str:
    word = f"<{hop.edge_word}>" if hop.undirected else hop.edge_word
    if hop.bounds is None:
        return word
    high = "" if hop.bounds.high is None else hop.bounds.high
    return f"{word}{{{hop.bounds.low},{high}}}"


def _projection(projection: ast.Projection) -> str:
    text = _expression(projection.expression)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _sort(sort: ast.Sort) -> str:
    text = _expression(sort.expression)
    return text if sort.direction is None else f"{text} {sort.direction}"


def _expression(expression: ast.Expression) -> str:
    match expression:
        case ast.Literal_(value, text):
            return quote(value) if isinstance(value, str) else text
        case ast.ListLiteral(items):
            return f"[{', '.join(map(_expression, items))}]"
        case ast.Variable(name):
            return f"${name}"
        case ast.PropertyAccess(variable, name):
            return f"${variable.name}.{name}"
        case ast.Alias(name):
            return name
        case ast.Call(function, arguments):
            return f"{function}({', '.join(map(_expression, arguments))})"
        case _:
            assert_never(expression)


def _statement(statement: ast.Statement) -> str:
    match statement:
        case ast.Insert(type_name, assignments):
            return f"insert {type_name} {{ {_assignments(assignments)} }}"
        case ast.Update(type_name, assignments, predicate):
            return f"update {type_name} set {{ {_assignments(assignments)} }} {_where(predicate)}"
        case ast.Delete(type_name, predicate):
            return f"delete {type_name} {_where(predicate)}"
        case _:
            assert_never(statement)


def _assignments(assignments: Iterable[ast.Assignment]) -> str:
    return ", ".join(f"{item.property}: {_expression(item.value)}" for item in assignments)


def _where(predicate: ast.Predicate) -> str:
    return f"where {predicate.property} {predicate.operator} {_expression(predicate.value)}"
