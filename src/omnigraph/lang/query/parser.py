"""Query text → syntax tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from lark import Token, v_args

from omnigraph.core.source import UNNAMED, Findings, SourceText, Span
from omnigraph.lang.parsing import DeclarationGrammar, Progress, TreeBuilder, only, span_of, whole_number
from omnigraph.lang.query import ast
from omnigraph.lang.query.advice import advise

SYNTAX_ERROR = "Q000"

_DECLARATION = r"(?<![A-Za-z0-9_$.@])query\s+[A-Za-z_]\w*\s*\("

_PHRASES = {
    "DESCRIPTION": "`@description`",
    "INSTRUCTION": "`@instruction`",
    "VAR": "a variable such as `$p`",
    "NAME": "a name",
    "NE": "`!=`",
    "GE": "`>=`",
    "LE": "`<=`",
    "EQ": "`=`",
    "MORETHAN": "`>`",
    "LESSTHAN": "`<`",
    "DOT": "`.`",
}

_GROUPS = {
    frozenset({"NAME", "INSERT", "UPDATE", "DELETE"}): "a name",
    frozenset({"STRING", "FLOAT", "INT", "TRUE", "FALSE", "LSQB"}): "a literal",
    frozenset({"EQ", "NE", "GE", "LE", "MORETHAN", "LESSTHAN", "CONTAINS", "STARTS_WITH"}): "an operator such as `=`",
    frozenset({"EQ", "NE", "GE", "LE", "MORETHAN", "LESSTHAN"}): "a comparison such as `=`",
    # Edge words may be any word.
    frozenset({"NAME", "TRUE", "FALSE"}): "a name",
}


def parse_queries(source: SourceText) -> ast.QueryFile:
    """The syntax tree of a query file.

    Raises:
        CompilerError: with the first syntax error of every broken query.
    """
    return ast.QueryFile(_grammar().parse(source))


def parse_queries_all(source: SourceText) -> tuple[ast.QueryFile, Findings]:
    """The declared queries that parse, and one finding for each that does not, or has no name."""
    queries, findings = _grammar().parse_all(source)
    for query in queries:
        if query.is_bare:
            findings.error(
                SYNTAX_ERROR, query.name_span, "this query has no name", "write `query name(…) { … }` around it"
            )
    return ast.QueryFile(tuple(query for query in queries if not query.is_bare)), findings


def progress_of(text: str) -> Progress:
    """How far a text gets that somebody still types: whether it is whole, may go on, or is wrong.

    Raises:
        CompilerError: it is too large, or nothing that a parser should see.
    """
    return _grammar().progress(text)


def keywords() -> Mapping[str, str]:
    """The keywords of the language, by the names that `Progress.expected` has for them."""
    return _grammar().keywords


@cache
def _grammar() -> DeclarationGrammar[ast.Query]:
    return DeclarationGrammar(
        files("omnigraph.lang.query").joinpath("grammar.lark").read_text(encoding="utf-8"),
        _Builder(),
        declaration=_DECLARATION,
        phrases=_PHRASES,
        groups=_GROUPS,
        code=SYNTAX_ERROR,
        escape_code=SYNTAX_ERROR,
        advise=advise,
    )


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], span_of(token))


_Clause = ast.Negation | ast.Binding | ast.Traversal | ast.Filter | ast.Condition


@v_args(inline=True)
class _Builder(TreeBuilder):
    def query(
        self, keyword: Token, name: ast.Alias, *rest: Token | ast.Param | ast.Note | ast.Body | None
    ) -> ast.Query:
        *_, body, close = rest
        assert isinstance(body, ast.ReadBody | ast.MutationBody)
        span = span_of(keyword, cast("Token", close))
        return ast.Query(name.name, only(ast.Param, rest), only(ast.Note, rest), body, name_span=name.span, span=span)

    def bare(self, body: ast.Body) -> ast.Query:
        return ast.Query(UNNAMED, (), (), body, is_bare=True, name_span=body.span, span=body.span)

    def note(self, keyword: Token, text: Token, close: Token) -> ast.Note:
        kind = cast("Literal['description', 'instruction']", str(keyword[1:]))
        return ast.Note(kind, str(self.literal(text).value), span_of(keyword, close))

    def param(self, variable: Token, type_: ast.TypeExpr, question: Token | None = None) -> ast.Param:
        written = replace(type_, nullable=question is not None)
        return ast.Param(variable[1:], written, span_of(variable, question or type_))

    def read(
        self, keyword: Token, *parts: Token | ast.Clause | ast.Projection | tuple[ast.Sort, ...] | ast.Limit
    ) -> ast.ReadBody:
        orders, limits = only(tuple, parts), only(ast.Limit, parts)
        return ast.ReadBody(
            tuple(part for part in parts if isinstance(part, _Clause)),
            only(ast.Projection, parts),
            orders[0] if orders else (),
            limits[0] if limits else None,
            span_of(keyword),
        )

    def order(self, _: Token, *keys: ast.Sort) -> tuple[ast.Sort, ...]:
        return keys

    def limit(self, _: Token, count: Token) -> ast.Limit:
        return ast.Limit(whole_number(count), span_of(count))

    def negation(self, keyword: Token, *rest: ast.Clause | Token) -> ast.Negation:
        clauses = tuple(item for item in rest if not isinstance(item, Token))
        return ast.Negation(clauses, span_of(keyword, rest[-1]))

    def binding(self, variable: Token, type_name: Token, *rest: ast.PropertyMatch | Token) -> ast.Binding:
        span = span_of(variable, (type_name, *rest)[-1])
        return ast.Binding(_variable(variable), str(type_name), only(ast.PropertyMatch, rest), span_of(type_name), span)

    def property_match(self, name: ast.Alias, value: ast.Value) -> ast.PropertyMatch:
        return ast.PropertyMatch(name.name, value, span_of(name, value))

    def traversal(self, left: Token, hop: ast.Hop, right: Token) -> ast.Traversal:
        return ast.Traversal(_variable(left), None, hop, _variable(right), span_of(left, right))

    def bound_traversal(self, left: Token, edge: Token, hop: ast.Hop, right: Token) -> ast.Traversal:
        return ast.Traversal(_variable(left), _variable(edge), hop, _variable(right), span_of(left, right))

    def hop(self, word: ast.Alias, bounds: ast.Bounds | None = None) -> ast.Hop:
        return ast.Hop(word.name, False, bounds, word.span)

    def undirected_hop(self, word: ast.Alias, bounds: ast.Bounds | None = None) -> ast.Hop:
        return ast.Hop(word.name, True, bounds, word.span)

    def bounds(self, low: Token, *rest: Token) -> ast.Bounds:
        *high, close = rest
        inside = Span(span_of(low).start, span_of(close).start)
        return ast.Bounds(whole_number(low), whole_number(high[0]) if high else None, inside)

    def filter(self, left: Token | ast.Expression, operator: str, right: ast.Expression) -> ast.Filter:
        operand = _variable(left) if isinstance(left, Token) else left
        return ast.Filter(operand, ast.Operator(operator), right, span_of(operand, right))

    def operator(self, token: Token) -> str:
        return str(token)

    symbol = other_symbol = word = operator

    def condition(self, call: ast.Call) -> ast.Condition:
        return ast.Condition(call, call.span)

    def projection(self, expression: ast.Expression, _: Token | None, alias: ast.Alias | None) -> ast.Projection:
        return ast.Projection(expression, alias.name if alias else None, span_of(expression, alias))

    def sort(self, expression: ast.Expression, direction: Token | None = None) -> ast.Sort:
        word = cast("Literal['asc', 'desc'] | None", direction and str(direction))
        return ast.Sort(expression, word, span_of(expression, direction))

    def property_access(self, variable: Token, name: Token) -> ast.PropertyAccess:
        return ast.PropertyAccess(_variable(variable), str(name), span_of(variable, name))

    def variable(self, token: Token) -> ast.Variable:
        return _variable(token)

    def alias(self, token: Token) -> ast.Alias:
        return ast.Alias(str(token), span_of(token))

    name = edge_word = alias

    def call(self, name: Token, *rest: ast.Expression | Token | None) -> ast.Call:
        arguments = tuple(item for item in rest if item is not None and not isinstance(item, Token))
        return ast.Call(str(name), arguments, span_of(name, cast("Token", rest[-1])))

    def mutation(self, *statements: ast.Statement) -> ast.MutationBody:
        return ast.MutationBody(statements, span_of(statements[0]))

    def insert(self, keyword: Token, type_name: Token, *rest: ast.Assignment | Token) -> ast.Insert:
        return ast.Insert(str(type_name), only(ast.Assignment, rest), span_of(type_name), span_of(keyword, rest[-1]))

    def update(self, keyword: Token, type_name: Token, *rest: Token | ast.Assignment | ast.Predicate) -> ast.Update:
        (predicate,) = only(ast.Predicate, rest)
        span = span_of(keyword, predicate)
        return ast.Update(str(type_name), only(ast.Assignment, rest), predicate, span_of(type_name), span)

    def delete(self, keyword: Token, type_name: Token, _: Token, predicate: ast.Predicate) -> ast.Delete:
        return ast.Delete(str(type_name), predicate, span_of(type_name), span_of(keyword, predicate))

    def assignment(self, name: ast.Alias, value: ast.Value) -> ast.Assignment:
        return ast.Assignment(name.name, value, span_of(name, value))

    def predicate(self, name: Token, operator: str, value: ast.Value) -> ast.Predicate:
        return ast.Predicate(str(name), ast.Operator(operator), value, span_of(name, value))

    def list_literal(self, opening: Token, *rest: ast.Element | Token | None) -> ast.ListLiteral:
        elements = tuple(item for item in rest if item is not None and not isinstance(item, Token))
        return ast.ListLiteral(elements, span_of(opening, cast("Token", rest[-1])))
