"""Query text → syntax tree."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, cast

from lark import Transformer

from omnigraph.core.source import Findings, SourceText, Span
from omnigraph.lang.parsing import DeclarationGrammar, unescape
from omnigraph.lang.query import ast

if TYPE_CHECKING:
    from lark import Token

SYNTAX_ERROR = "Q000"

_DECLARATION = r"(?<![A-Za-z0-9_$.@])query\s+[A-Za-z_]\w*\s*\("

#: Digit strings longer than any 64-bit number are cut: still out of range, and safe to convert.
_MAX_DIGITS = 40

_PHRASES = {
    "QUERY": "`query`",
    "MATCH": "`match`",
    "RETURN": "`return`",
    "ORDER": "`order`",
    "LIMIT": "`limit`",
    "NOT": "`not`",
    "AS": "`as`",
    "ASC": "`asc`",
    "DESC": "`desc`",
    "INSERT": "`insert`",
    "UPDATE": "`update`",
    "DELETE": "`delete`",
    "SET": "`set`",
    "WHERE": "`where`",
    "CONTAINS": "`contains`",
    "STARTS_WITH": "`starts_with`",
    "TRUE": "`true`",
    "FALSE": "`false`",
    "VECTOR": "`Vector(`",
    "DESCRIPTION": "`@description`",
    "INSTRUCTION": "`@instruction`",
    "VAR": "a variable such as `$p`",
    "TYPE_NAME": "a type name",
    "NAME": "a name",
    "FLOAT": "a number",
    "INT": "a whole number",
    "STRING": "a string",
    "NE": "`!=`",
    "GE": "`>=`",
    "LE": "`<=`",
    "EQ": "`=`",
    "MORETHAN": "`>`",
    "LESSTHAN": "`<`",
    "QUESTION": "`?`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "$END": "the end of the text",
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
    """The queries that parse, and one finding for each that does not."""
    queries, findings = _grammar().parse_all(source)
    return ast.QueryFile(queries), findings


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
        advise=_advise,
    )


_NO_NEGATIVES = "there are no negative literals: pass the number as a parameter"
_NO_NULL = "there is no null literal: pass null through a nullable parameter"

#: Words that other languages have, found where this one stopped understanding.
_FOUND = {
    "-": _NO_NEGATIVES,
    "#": "comments begin with `//`",
    "'": 'strings are written with double quotes: "…"',
    "offset": "there is no `offset`: filter on the last value of the previous page instead",
    "mutation": "there is no `mutation`: a query that inserts, updates or deletes is one",
    "*": "count a variable instead: `count($p)`",
    "order": "the order is match, return, order, limit",
    "return": "the order is match, return, order, limit",
}

#: What the text before the mistake ends with, and what it was probably meant to be.
_BEFORE = (
    (r"\bor", "there is no `or`: run two queries, or turn the condition into a list parameter"),
    (r"\band", "there is no `and`: conditions that stand one after the other all have to hold"),
    (r"\boptional", "there is no `optional`: run a second query for what may be missing"),
    (r"\benum", "a parameter for an enum property is a String"),
    (r"\bnull", _NO_NULL),
)


def _advise(found: str, before: str) -> str | None:
    if found.startswith("-") or found[:1].isdigit():
        return _number_advice(found, before)
    if found == "=" and before.endswith(("=", "<", ">")):
        return "equality is written `=`"
    if found in ("contains", "starts_with") and re.search(r"\bwhere\s+\w+$", before):
        return "`where` compares with = != < <= > >= only"
    if found == "and" and re.search(r"\bwhere\b[^{}]*$", before):
        return "a `where` holds exactly one comparison"
    if found == "null":
        return _NO_NULL
    if found in _FOUND:
        return _FOUND[found]
    if found.startswith("$") and re.search(r"\blimit$", before):
        return "a limit is a number, not a parameter"
    if found[:1].isupper():
        return _case_advice(found, before)
    if found == "}" and before.endswith("{"):
        return "the braces may not be empty"
    for ending, advice in _BEFORE:
        if re.search(rf"{ending}$", before):
            return advice
    return None


def _number_advice(found: str, before: str) -> str | None:
    if found.startswith("-"):
        return "a limit is 0 or more" if re.search(r"\blimit$", before) else _NO_NEGATIVES
    if found.endswith("."):
        return f"a float has digits on both sides of its point: `{found}0`"
    return "numbers have no exponent and no suffix" if re.search("[A-Za-z_]", found) else None


def _case_advice(found: str, before: str) -> str | None:
    lowered = f"{found[0].lower()}{found[1:]}"
    if re.search(r"\bquery$", before):
        return f"the name of a query begins in lower case: `{lowered}`"
    if re.search(r"\$\w+$|[<:]$", before) and not re.search(r":\s*\w+$", before):
        return f"the word of an edge begins in lower case: `{lowered}`"
    return None


def _start(token: Token) -> int:
    return cast("int", token.start_pos)


def _end(token: Token) -> int:
    return cast("int", token.end_pos)


def _span(token: Token) -> Span:
    return Span(_start(token), _end(token))


def _number(token: Token) -> int:
    return int(token.lstrip("0")[:_MAX_DIGITS] or "0")


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], Span(_start(token), _end(token)))


class _Builder(Transformer[Any, Any]):
    """Builds the syntax tree while lark parses; each method is a grammar rule and gets its children."""

    def file(self, items: list[Any]) -> tuple[ast.Query, ...]:
        return tuple(items)

    def query(self, items: list[Any]) -> ast.Query:
        keyword, name, _, *rest, body, close = items
        return ast.Query(
            name.name,
            tuple(item for item in rest if isinstance(item, ast.Param)),
            tuple(item for item in rest if isinstance(item, ast.Note)),
            body,
            name.span,
            Span(_start(keyword), _end(close)),
        )

    def note(self, items: list[Token]) -> ast.Note:
        keyword, text, close = items
        kind = cast("Literal['description', 'instruction']", str(keyword[1:]))
        return ast.Note(kind, unescape(text, _start(text)), Span(_start(keyword), _end(close)))

    def param(self, items: list[Any]) -> ast.Param:
        variable, type_, *question = items
        end = _end(question[0]) if question else type_.span.end
        return ast.Param(variable[1:], type_, bool(question), Span(_start(variable), end))

    def list_param(self, items: list[Any]) -> ast.ParamType:
        opening, word, closing = items
        return ast.ParamType("list", word.name, span=Span(_start(opening), _end(closing)))

    def vector_param(self, items: list[Token]) -> ast.ParamType:
        keyword, dimension, closing = items
        span = Span(_start(keyword), _end(closing))
        return ast.ParamType("vector", dimension=_number(dimension), span=span)

    def scalar_param(self, items: list[ast.Alias]) -> ast.ParamType:
        return ast.ParamType("scalar", items[0].name, span=items[0].span)

    def read(self, items: list[Any]) -> ast.ReadBody:
        limit: ast.Limit | None = None
        order: tuple[ast.Sort, ...] = ()
        if isinstance(items[-1], ast.Limit):
            limit = items.pop()
        if isinstance(items[-1], tuple):
            order = items.pop()
        clauses: list[Any] = []
        projections: list[Any] = []
        for item in items[1:]:
            if isinstance(item, ast.Projection):
                projections.append(item)
            else:
                clauses.append(item)
        # The keyword `return` stands between the two lists.
        return ast.ReadBody(tuple(clauses[:-1]), tuple(projections), order, limit)

    def order(self, items: list[Any]) -> tuple[ast.Sort, ...]:
        return tuple(items[1:])

    def limit(self, items: list[Token]) -> ast.Limit:
        return ast.Limit(_number(items[1]), _span(items[1]))

    def negation(self, items: list[Any]) -> ast.Negation:
        keyword, *clauses, close = items
        return ast.Negation(tuple(clauses), Span(_start(keyword), _end(close)))

    def binding(self, items: list[Any]) -> ast.Binding:
        variable, type_name, *rest = items
        matches: list[Any] = rest[:-1]
        end = _end(rest[-1]) if rest else _end(type_name)
        return ast.Binding(
            _variable(variable), str(type_name), tuple(matches), _span(type_name), Span(_start(variable), end)
        )

    def property_match(self, items: list[Any]) -> ast.PropertyMatch:
        name, value = items
        return ast.PropertyMatch(name.name, value, Span(name.span.start, value.span.end))

    def traversal(self, items: list[Any]) -> ast.Traversal:
        left, hop, right = items
        span = Span(_start(left), _end(right))
        return ast.Traversal(_variable(left), None, hop, _variable(right), span)

    def bound_traversal(self, items: list[Any]) -> ast.Traversal:
        left, edge, hop, right = items
        span = Span(_start(left), _end(right))
        return ast.Traversal(_variable(left), _variable(edge), hop, _variable(right), span)

    def hop(self, items: list[Any]) -> ast.Hop:
        word, *bounds = items
        return ast.Hop(word.name, False, bounds[0] if bounds else None, word.span)

    def undirected_hop(self, items: list[Any]) -> ast.Hop:
        word, *bounds = items
        return ast.Hop(word.name, True, bounds[0] if bounds else None, word.span)

    def bounds(self, items: list[Token]) -> ast.Bounds:
        low, *high, close = items
        span = Span(_start(low), _end(close) - 1)
        return ast.Bounds(_number(low), _number(high[0]) if high else None, span)

    def filter(self, items: list[Any]) -> ast.Filter:
        left, operator, right = items
        if not hasattr(left, "span"):
            left = _variable(left)
        return ast.Filter(left, ast.Operator(operator), right, Span(left.span.start, right.span.end))

    def operator(self, items: list[Token]) -> str:
        return str(items[0])

    symbol = other_symbol = word = operator

    def condition(self, items: list[ast.Call]) -> ast.Condition:
        return ast.Condition(items[0], items[0].span)

    def projection(self, items: list[Any]) -> ast.Projection:
        expression, *rest = items
        alias = rest[-1] if rest else None
        if alias is None:
            return ast.Projection(expression, None, expression.span)
        return ast.Projection(expression, alias.name, expression.span.to(alias.span))

    def sort(self, items: list[Any]) -> ast.Sort:
        expression, *direction = items
        if not direction:
            return ast.Sort(expression, None, expression.span)
        word = cast("Literal['asc', 'desc']", str(direction[0]))
        return ast.Sort(expression, word, Span(expression.span.start, _end(direction[0])))

    def property_access(self, items: list[Token]) -> ast.PropertyAccess:
        variable, name = items
        span = Span(_start(variable), _end(name))
        return ast.PropertyAccess(_variable(variable), str(name), span)

    def variable(self, items: list[Token]) -> ast.Variable:
        return _variable(items[0])

    def alias(self, items: list[Token]) -> ast.Alias:
        return ast.Alias(str(items[0]), _span(items[0]))

    name = type_word = edge_word = alias

    def call(self, items: list[Any]) -> ast.Call:
        name, *arguments, close = items
        if arguments and arguments[0] is None:
            arguments = []
        return ast.Call(str(name), tuple(arguments), Span(_start(name), _end(close)))

    def mutation(self, items: list[Any]) -> ast.MutationBody:
        return ast.MutationBody(tuple(items))

    def insert(self, items: list[Any]) -> ast.Insert:
        keyword, type_name, *assignments, close = items
        span = Span(_start(keyword), _end(close))
        return ast.Insert(str(type_name), tuple(assignments), _span(type_name), span)

    def update(self, items: list[Any]) -> ast.Update:
        keyword, type_name, _, *assignments, _, predicate = items
        span = Span(_start(keyword), predicate.span.end)
        return ast.Update(str(type_name), tuple(assignments), predicate, _span(type_name), span)

    def delete(self, items: list[Any]) -> ast.Delete:
        keyword, type_name, _, predicate = items
        span = Span(_start(keyword), predicate.span.end)
        return ast.Delete(str(type_name), predicate, _span(type_name), span)

    def assignment(self, items: list[Any]) -> ast.Assignment:
        name, value = items
        return ast.Assignment(name.name, value, Span(name.span.start, value.span.end))

    def predicate(self, items: list[Any]) -> ast.Predicate:
        name, operator, value = items
        span = Span(_start(name), value.span.end)
        return ast.Predicate(str(name), ast.Operator(operator), value, span)

    def scalar_literal(self, items: list[Token]) -> ast.Literal_:
        token = items[0]
        text = str(token)
        value: str | int | float | bool
        match token.type:
            case "STRING":
                value = unescape(token, _start(token))
            case "INT":
                value = _number(token)
            case "FLOAT":
                value = float(text)
            case _:
                value = text == "true"
        return ast.Literal_(value, text, _span(token))

    def list_literal(self, items: list[Any]) -> ast.ListLiteral:
        opening, *elements, closing = items
        if elements and elements[0] is None:
            elements = []
        return ast.ListLiteral(tuple(elements), Span(_start(opening), _end(closing)))
