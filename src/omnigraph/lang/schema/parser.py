"""Schema text → syntax tree."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, cast

from lark import Token, v_args

from omnigraph.core.source import Findings, SourceText, Span
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import DeclarationGrammar, TreeBuilder, only, span_of
from omnigraph.lang.schema import ast

SYNTAX_ERROR = "S-01"
ESCAPE_ERROR = "S-02"

_DECLARATION = r"(?<![A-Za-z0-9_])(?:interface|node|edge)\s+[A-Z]"

_PHRASES = {
    "NAME": "a property name",
    "ENUM_VALUE": "an enum value",
    "ENUM": "`enum(`",
    "CARD": "`@card`",
    "MEMBER_CONSTRAINT": "a constraint such as `@unique(…)`",
    "RANGE": "`@range`",
    "CHECK": "`@check`",
    "ANNOTATION": "an annotation",
    "END": "`@src` or `@dst`",
    "MINUS": "`-`",
    "EQUAL": "`=`",
    "__ANON_0": "`->`",
    "__ANON_1": "`..`",
}


_GROUPS = {
    frozenset({"NAME", "INTERFACE", "NODE", "EDGE", "IMPLEMENTS", "TRUE", "FALSE"}): "a property name",
    frozenset({"TRUE", "FALSE", "STRING", "FLOAT", "INT", "NAME", "TYPE_NAME", "END"}): "a property name",
    frozenset({"TRUE", "FALSE", "STRING", "FLOAT", "INT", "NAME", "TYPE_NAME"}): "a literal or a name",
    frozenset({"TYPE_NAME", "NAME", "ENUM", "VECTOR", "LSQB"}): "a type",
    frozenset({"TYPE_NAME", "NAME"}): "a type",
    frozenset({"MEMBER_CONSTRAINT", "RANGE", "CHECK"}): "a constraint such as `@unique(…)`",
    frozenset({"TRUE", "FALSE", "STRING", "FLOAT", "INT"}): "a literal",
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
        Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"),
        _Builder(),
        declaration=_DECLARATION,
        phrases=_PHRASES,
        groups=_GROUPS,
        code=SYNTAX_ERROR,
        escape_code=ESCAPE_ERROR,
        advise=_advise,
    )


def _advise(found: str, before: str, _after: str) -> str | None:
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


_Bounds = tuple[ast.Number | None, ast.Number | None]


@frozen
class _Body:
    members: tuple[ast.Member, ...]
    span: Span


@v_args(inline=True)
class _Builder(TreeBuilder):
    def interface(self, keyword: Token, name: ast.Name, *rest: ast.Property | Token) -> ast.InterfaceDecl:
        return ast.InterfaceDecl(name, only(ast.Property, rest), span_of(keyword, rest[-1]))

    def node(self, keyword: Token, name: ast.Name, *rest: ast.Header | tuple[ast.Name, ...] | _Body) -> ast.NodeDecl:
        body = only(_Body, rest)[0]
        implements = only(tuple, rest)
        return ast.NodeDecl(
            name,
            tuple(item for item in rest if not isinstance(item, tuple | _Body)),
            implements[0] if implements else (),
            body.members,
            span_of(keyword, body),
        )

    def implements(self, _: Token, *names: ast.Name) -> tuple[ast.Name, ...]:
        return names

    def edge(
        self, keyword: Token, name: ast.Name, source: ast.Name, target: ast.Name, *rest: ast.Card | ast.Header | _Body
    ) -> ast.EdgeDecl:
        cards, bodies = only(ast.Card, rest), only(_Body, rest)
        return ast.EdgeDecl(
            name,
            source,
            target,
            cards[0] if cards else None,
            tuple(item for item in rest if not isinstance(item, ast.Card | _Body)),
            bodies[0].members if bodies else (),
            span_of(keyword, rest[-1] if rest else target),
        )

    def body(self, *rest: ast.Member | Token) -> _Body:
        return _Body(tuple(item for item in rest if not isinstance(item, Token)), span_of(rest[-1]))

    def card(self, keyword: Token, low: ast.Number, *rest: ast.Number | Token) -> ast.Card:
        high = only(ast.Number, rest)
        return ast.Card(low, high[0] if high else None, span_of(keyword, rest[-1]))

    def property(self, name: ast.Name, type_: ast.TypeExpr, *annotations: ast.Annotation) -> ast.Property:
        return ast.Property(name, type_, annotations, span_of(name, annotations[-1] if annotations else type_))

    def type(self, base: ast.TypeExpr, question: Token | None = None) -> ast.TypeExpr:
        return base if question is None else replace(base, nullable=True, span=span_of(base, question))

    def enum_type(self, keyword: Token, *rest: Token) -> ast.TypeExpr:
        *values, close = rest
        return ast.TypeExpr("enum", False, values=tuple(map(str, values)), span=span_of(keyword, close))

    def member_constraint(self, keyword: Token, *rest: ast.Value | Token) -> ast.MemberConstraint:
        kind = cast("Literal['key', 'unique', 'index']", keyword[1:])
        return ast.MemberConstraint(kind, only(ast.Value, rest), span_of(keyword, rest[-1]))

    def range_constraint(self, keyword: Token, name: ast.Name, bounds: _Bounds, close: Token) -> ast.RangeConstraint:
        return ast.RangeConstraint(name, *bounds, span_of(keyword, close))

    def bounds_from(self, low: ast.Number, high: ast.Number | None = None) -> _Bounds:
        return low, high

    def bounds_to(self, high: ast.Number) -> _Bounds:
        return None, high

    def check_constraint(self, keyword: Token, name: ast.Name, pattern: Token, close: Token) -> ast.CheckConstraint:
        return ast.CheckConstraint(name, str(self.literal(pattern).value), span_of(keyword, close))

    def number(self, *parts: Token) -> ast.Number:
        return ast.Number("".join(parts), span_of(parts[0], parts[-1]))

    def annotation(
        self, keyword: Token, *rest: ast.Value | tuple[ast.Name, ast.Value] | Token | None
    ) -> ast.Annotation:
        close = (keyword, *only(Token, rest))[-1]
        return ast.Annotation(str(keyword[1:]), only(ast.Value, rest), only(tuple, rest), span_of(keyword, close))

    def keyword(self, name: Token, value: ast.Value) -> tuple[ast.Name, ast.Value]:
        return self.name(name), value

    def bare(self, token: Token) -> ast.Value:
        return ast.Value(str(token), str(token), True, span_of(token))

    def end(self, token: Token) -> ast.Value:
        return ast.Value(str(token).removeprefix("@"), str(token), True, span_of(token))

    def name(self, token: Token) -> ast.Name:
        return ast.Name(str(token), span_of(token))

    type_name = name
