"""Queries from text, as the parser understands it and nothing behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date

from omnigraph.core.source import SourceText
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries
from support.oracle.queries import (
    AGGREGATES,
    Aggregate,
    AllProperties,
    Binary,
    Bind,
    Bm25,
    Case,
    Clause,
    Column,
    Declared,
    Exists,
    Expression,
    Function,
    Hop,
    IsNull,
    Let,
    ListOf,
    Literal,
    Maybe,
    Named,
    Nearest,
    Now,
    Parameter,
    PathOf,
    Property,
    Query,
    Return,
    Rrf,
    Sort,
    Text,
    Unary,
    Variable,
    Where,
    moment_of,
)


def from_text(text: str) -> Query:
    """The one read query of a text."""
    (parsed,) = parse_queries(SourceText(text)).queries
    body = parsed.body
    assert isinstance(body, ast.ReadBody), "a read query"
    reader = _Reader(frozenset(param.name for param in parsed.params))
    reader = reader.knowing(body.clauses)
    return Query(
        params=tuple(
            Declared(param.name, str(param.type).removesuffix("?"), param.type.nullable) for param in parsed.params
        ),
        clauses=reader.block(body.clauses),
        returns=tuple(Return(reader.expression(item.expression), item.alias) for item in body.projections),
        order=tuple(map(reader.sort, body.order)),
        limit=None if body.limit is None else reader.count(body.limit.count),
        distinct=body.distinct,
        having=None if body.having is None else reader.expression(body.having),
        offset=None if body.offset is None else reader.count(body.offset),
        per=() if body.limit is None else reader.expressions(body.limit.per),
        name=parsed.name,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Knows which of the `$names` are parameters, and which are names of `let`."""

    params: frozenset[str]
    lets: frozenset[str] = frozenset()

    def knowing(self, clauses: Iterable[ast.Clause]) -> _Reader:
        return replace(self, lets=self.lets | set(_names(clauses)))

    def block(self, clauses: tuple[ast.Clause, ...]) -> tuple[Clause, ...]:
        return tuple(map(self.knowing(clauses).clause, clauses))

    def clause(self, clause: ast.Clause) -> Clause:
        match clause:
            case ast.Binding(variable):
                return Bind(variable.name, *self.binding(clause))
            case ast.Traversal():
                return self.hop(clause)
            case ast.Path(variable, choice, traversal):
                return PathOf(variable.name, choice, self.hop(traversal))
            case ast.Optional(clauses):
                return Maybe(self.block(clauses))
            case ast.Let(variable, expression):
                return Let(variable.name, self.expression(expression))
            case ast.Condition(expression):
                return Where(self.expression(expression))
        raise ValueError(f"the oracle does not know {clause}")

    def binding(self, binding: ast.Binding) -> tuple[tuple[str, ...], tuple[tuple[str, Expression], ...]]:
        pairs = tuple((item.property, self.expression(item.value)) for item in binding.matches)
        return tuple(item.name for item in binding.types), pairs

    def hop(self, traversal: ast.Traversal) -> Hop:
        hop = traversal.hop
        types, matches = ((), ()) if traversal.binding is None else self.binding(traversal.binding)
        assert hop.bounds is None or hop.bounds.high is not None, "bounds have both ends"
        return Hop(
            left=traversal.left.name,
            words=tuple(word.name for word in hop.words),
            right=traversal.right.name,
            edge_variable=None if traversal.edge is None else traversal.edge.name,
            undirected=hop.undirected,
            bounds=None if hop.bounds is None else (hop.bounds.low, hop.bounds.high),
            condition=None if hop.condition is None else self.expression(hop.condition),
            types=types,
            matches=matches,
        )

    def sort(self, key: ast.Sort) -> Sort:
        return Sort(self.expression(key.expression), key.direction or "", key.nulls or "")

    def count(self, count: ast.Count) -> int | Parameter:
        return count.value if isinstance(count.value, int) else Parameter(count.value.name)

    def expressions(self, expressions: Iterable[ast.Expression]) -> tuple[Expression, ...]:
        return tuple(map(self.expression, expressions))

    def expression(self, expression: ast.Expression) -> Expression:
        match expression:
            case ast.Literal_(value):
                return Literal(value)
            case ast.Null():
                return Literal(None)
            case ast.ListLiteral(items):
                return ListOf(self.expressions(items))
            case ast.Variable(name):
                if name in self.lets:
                    return Named(name)
                return Parameter(name) if name in self.params else Variable(name)
            case ast.PropertyAccess(variable, name):
                return Property(variable.name, name)
            case ast.SystemField(variable, name):
                return Property(variable.name, f"@{name}")
            case ast.AllProperties(variable):
                return AllProperties(variable.name)
            case ast.Alias(name):
                return Column(name)
            case ast.Unary(operator, operand):
                return Unary(operator, self.expression(operand))
            case ast.Binary(left, operator, right):
                return Binary(self.expression(left), operator.value, self.expression(right))
            case ast.NullTest(operand, negated):
                return IsNull(self.expression(operand), negated)
            case ast.Case(branches, otherwise):
                read = tuple((self.expression(b.condition), self.expression(b.value)) for b in branches)
                return Case(read, None if otherwise is None else self.expression(otherwise))
            case ast.Exists(negated, clauses):
                return Exists(self.block(clauses), negated)
            case ast.Call():
                return self.call(expression)
        raise ValueError(f"the oracle does not know {expression}")

    def call(self, call: ast.Call) -> Expression:
        if call.function in AGGREGATES:
            return self.aggregate(call)
        named = [item.value for item in call.arguments if isinstance(item, ast.NamedArgument)]
        given = self.expressions([item for item in call.arguments if not isinstance(item, ast.NamedArgument)])
        match call.function:
            case "now":
                return Now()
            case "date" if isinstance(given[0], Literal) and isinstance(given[0].value, str):
                return Literal(date.fromisoformat(given[0].value))
            case "datetime" if isinstance(given[0], Literal) and isinstance(given[0].value, str):
                return Literal(moment_of(given[0].value))
            case "nearest":
                return Nearest(*given, *self.expressions(named))
            case "bm25":
                return Bm25(*given)
            case "rrf":
                return Rrf(*given)
            case "search" | "match_text" | "fuzzy":
                return Text(call.function, *given)
        return Function(call.function, given)

    def aggregate(self, call: ast.Call) -> Aggregate:
        inside = self if call.clauses is None else self.knowing(call.clauses)
        argument = None if not call.arguments or isinstance(call.arguments[0], ast.Star) else call.arguments[0]
        limit = None if call.limit is None else self.count(call.limit)
        assert limit is None or isinstance(limit, int), "the oracle knows numbers here"
        return Aggregate(
            call.function,
            None if argument is None else inside.expression(argument),
            call.distinct,
            tuple(map(inside.sort, call.order)),
            limit,
            None if call.clauses is None else self.block(call.clauses),
        )


def _names(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    """The names of `let` that are known beside these clauses, those of optional blocks included."""
    for clause in clauses:
        match clause:
            case ast.Let(variable):
                yield variable.name
            case ast.Optional(inner):
                yield from _names(inner)
