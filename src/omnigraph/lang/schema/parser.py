"""Schema text → syntax tree."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, cast

from lark import Transformer

from omnigraph.core.source import Findings, SourceText, Span
from omnigraph.lang.parsing import DeclarationGrammar, unescape
from omnigraph.lang.schema import ast

if TYPE_CHECKING:
    from lark import Token

SYNTAX_ERROR = "S-01"
ESCAPE_ERROR = "S-02"

_DECLARATION = r"(?<![A-Za-z0-9_])(?:interface|node|edge)\s+[A-Z]"

_PHRASES = {
    "INTERFACE": "`interface`",
    "NODE": "`node`",
    "EDGE": "`edge`",
    "IMPLEMENTS": "`implements`",
    "TYPE_NAME": "a type name",
    "NAME": "a property name",
    "ENUM_VALUE": "an enum value",
    "ENUM": "`enum(`",
    "VECTOR": "`Vector(`",
    "STRING": "a string",
    "FLOAT": "a number",
    "UINT": "a whole number",
    "TRUE": "`true`",
    "FALSE": "`false`",
    "CARD": "`@card`",
    "MEMBER_CONSTRAINT": "a constraint such as `@unique(…)`",
    "RANGE": "`@range`",
    "CHECK": "`@check`",
    "ANNOTATION": "an annotation",
    "QUESTION": "`?`",
    "MINUS": "`-`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "__ANON_0": "`->`",
    "__ANON_1": "`..`",
    "$END": "the end of the text",
}


_GROUPS = {
    frozenset({"NAME", "INTERFACE", "NODE", "EDGE", "IMPLEMENTS", "TRUE", "FALSE"}): "a property name",
    frozenset({"TRUE", "FALSE", "STRING", "FLOAT", "UINT", "NAME", "TYPE_NAME"}): "a literal or a name",
    frozenset({"TYPE_NAME", "NAME", "ENUM", "VECTOR", "LSQB"}): "a type",
    frozenset({"TYPE_NAME", "NAME"}): "a type",
    frozenset({"MEMBER_CONSTRAINT", "RANGE", "CHECK"}): "a constraint such as `@unique(…)`",
    frozenset({"TRUE", "FALSE", "STRING", "FLOAT", "UINT"}): "a literal",
}


def parse_schema(source: SourceText) -> ast.Schema:
    """The syntax tree of a schema.

    Raises:
        CompilerError: with the first syntax error of every broken declaration.
    """
    return ast.Schema(_grammar().parse(source))


def parse_schema_all(source: SourceText) -> tuple[ast.Schema, Findings]:
    """The declarations that parse, and one finding for each that does not."""
    declarations, findings = _grammar().parse_all(source)
    return ast.Schema(declarations), findings


@cache
def _grammar() -> DeclarationGrammar[ast.Declaration]:
    return DeclarationGrammar(
        files("omnigraph.lang.schema").joinpath("grammar.lark").read_text(encoding="utf-8"),
        _Builder(),
        declaration=_DECLARATION,
        phrases=_PHRASES,
        groups=_GROUPS,
        code=SYNTAX_ERROR,
        escape_code=ESCAPE_ERROR,
        advise=_advise,
    )


def _advise(found: str, before: str) -> str | None:
    advice = {
        "#": "comments begin with `//`",
        "@card": "`@card(min..max)` stands once, directly after the endpoints of an edge",
        "*": "leave the maximum out: `0..`",
        "'": 'strings are written with double quotes: "…"',
    }
    if found in advice:
        return advice[found]
    if found.startswith("@") and re.search(r"implements[^{]*$", before):
        return "annotations of a node stand before `implements`"
    if found.startswith("@") and re.search(r"interface\s+\w+$", before):
        return "an interface takes no annotation"
    inside_parentheses = before.rfind("(") > before.rfind(")")
    if found == "," and not inside_parentheses:
        return "properties follow each other without commas"
    if found.startswith("-") and inside_parentheses:
        return "negative numbers are written only as bounds of `@range`"
    for keyword in ("interface", "node", "edge"):
        if found.startswith(keyword) and found != keyword and re.search(r"(^|[}\n])\s*$", before):
            return f"`{keyword}` is a word of its own: `{keyword} {found[len(keyword) :]}`"
    return None


def _end(token: Token) -> int:
    return cast("int", token.end_pos)


def _start(token: Token) -> int:
    return cast("int", token.start_pos)


def _token_span(token: Token) -> Span:
    return Span(_start(token), _end(token))


class _Builder(Transformer[Any, Any]):
    """Builds the syntax tree while lark parses; each method is a grammar rule and gets its children."""

    def file(self, items: list[Any]) -> tuple[ast.Declaration, ...]:
        return tuple(items)

    def interface(self, items: list[Any]) -> ast.InterfaceDecl:
        keyword, name, *properties, close = items
        return ast.InterfaceDecl(name, tuple(properties), Span(_start(keyword), _end(close)))

    def node(self, items: list[Any]) -> ast.NodeDecl:
        keyword, name, *rest, (_, members, end) = items
        implements: tuple[ast.Name, ...] = ()
        if rest and isinstance(rest[-1], tuple):
            implements = rest.pop()
        return ast.NodeDecl(name, tuple(rest), implements, tuple(members), Span(_start(keyword), end))

    def implements(self, items: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(items[1:])

    def edge(self, items: list[Any]) -> ast.EdgeDecl:
        keyword, name, source, target, *rest = items
        card: ast.Card | None = None
        headers: list[ast.Header] = []
        members: list[ast.Member] = []
        end = target.span.end
        for item in rest:
            if isinstance(item, tuple):
                _, members, end = item
            else:
                end = max(end, item.span.end)
                if isinstance(item, ast.Card):
                    card = item
                else:
                    headers.append(item)
        span = Span(_start(keyword), end)
        return ast.EdgeDecl(name, source, target, card, tuple(headers), tuple(members), span)

    def body(self, items: list[Any]) -> tuple[str, list[ast.Member], int]:
        return "body", items[:-1], _end(items[-1])

    def card(self, items: list[Any]) -> ast.Card:
        keyword, low, *high, close = items
        return ast.Card(low, high[0] if high else None, Span(_start(keyword), _end(close)))

    def property(self, items: list[Any]) -> ast.Property:
        name, type_, *annotations = items
        end = annotations[-1].span if annotations else type_.span
        return ast.Property(name, type_, tuple(annotations), name.span.to(end))

    def type(self, items: list[Any]) -> ast.TypeExpr:
        base: ast.TypeExpr = items[0]
        if len(items) == 1:
            return base
        span = Span(base.span.start, _end(items[1]))
        return ast.TypeExpr(base.form, True, base.name, base.values, base.dimension, span)

    def scalar_type(self, items: list[ast.Name]) -> ast.TypeExpr:
        return ast.TypeExpr("scalar", False, items[0].text, span=items[0].span)

    def list_type(self, items: list[Any]) -> ast.TypeExpr:
        opening, item, closing = items
        span = Span(_start(opening), _end(closing))
        return ast.TypeExpr("list", False, item.text, span=span)

    def enum_type(self, items: list[Token]) -> ast.TypeExpr:
        span = Span(_start(items[0]), _end(items[-1]))
        return ast.TypeExpr("enum", False, values=tuple(map(str, items[1:-1])), span=span)

    def vector_type(self, items: list[Token]) -> ast.TypeExpr:
        span = Span(_start(items[0]), _end(items[2]))
        return ast.TypeExpr("vector", False, dimension=_integer(items[1]), span=span)

    def scalar_name(self, items: list[Token]) -> ast.Name:
        return ast.Name(str(items[0]), _token_span(items[0]))

    def member_constraint(self, items: list[Any]) -> ast.MemberConstraint:
        kind = cast("Literal['key', 'unique', 'index']", items[0][1:])
        span = Span(_start(items[0]), _end(items[-1]))
        return ast.MemberConstraint(kind, tuple(items[1:-1]), span)

    def range_constraint(self, items: list[Any]) -> ast.RangeConstraint:
        keyword, name, (low, high), close = items
        return ast.RangeConstraint(name, low, high, Span(_start(keyword), _end(close)))

    def bounds_from(self, items: list[ast.Number]) -> tuple[ast.Number, ast.Number | None]:
        return items[0], items[1] if len(items) > 1 else None

    def bounds_to(self, items: list[ast.Number]) -> tuple[None, ast.Number]:
        return None, items[0]

    def check_constraint(self, items: list[Any]) -> ast.CheckConstraint:
        keyword, name, pattern, close = items
        span = Span(_start(keyword), _end(close))
        return ast.CheckConstraint(name, unescape(pattern, _start(pattern)), span)

    def number(self, items: list[Token]) -> ast.Number:
        return ast.Number("".join(items), Span(_start(items[0]), _end(items[-1])))

    def annotation(self, items: list[Any]) -> ast.Annotation:
        keyword, *rest = items
        rest = [item for item in rest if item is not None]
        end = _end(rest.pop()) if rest else _end(keyword)
        values = tuple(item for item in rest if isinstance(item, ast.Value))
        keywords = tuple(item for item in rest if not isinstance(item, ast.Value))
        return ast.Annotation(str(keyword[1:]), values, keywords, Span(_start(keyword), end))

    def keyword(self, items: list[Any]) -> tuple[ast.Name, ast.Value]:
        return ast.Name(str(items[0]), _token_span(items[0])), items[1]

    def bare(self, items: list[Token]) -> ast.Value:
        return ast.Value(str(items[0]), str(items[0]), True, _token_span(items[0]))

    def literal(self, items: list[Token]) -> ast.Value:
        token = items[0]
        text = str(token)
        value: str | int | float | bool
        match token.type:
            case "STRING":
                value = unescape(token, _start(token))
            case "FLOAT":
                value = float(text)
            case "UINT":
                value = _integer(token)
            case _:
                value = text == "true"
        return ast.Value(value, text, False, _token_span(token))

    def type_name(self, items: list[Token]) -> ast.Name:
        return ast.Name(str(items[0]), _token_span(items[0]))

    def name(self, items: list[Token]) -> ast.Name:
        return ast.Name(str(items[0]), _token_span(items[0]))


def _integer(token: Token) -> int:
    # Digit strings beyond any bound of the language are cut: still out of range, and safe to convert.
    return int(token.lstrip("0")[: ast.MAX_DIGITS] or "0")
