"""Query text → syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from lark import Token, Transformer, v_args

from omnigraph.core.source import UNNAMED, Findings, SourceText, Span
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import DeclarationGrammar, Lookahead, Progress, TreeBuilder, only, span_of, whole_number
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.advice import advise
from omnigraph.lang.query.syntax.commands import without_settings

SYNTAX_ERROR = "Q000"
_Part = TypeVar("_Part")

_DECLARATION = r"(?<![A-Za-z0-9_$.@])query\s+[A-Za-z_]\w*\s*\("

_PHRASES = {
    "DESCRIPTION": "`@description`",
    "INSTRUCTION": "`@instruction`",
    "VAR": "a variable such as `$p`",
    "SOURCE": "a traversal such as `$a knows $b`",
    "META": "a system field such as `@id`",
    "NAME": "a name",
    "NE": "`!=`",
    "GE": "`>=`",
    "LE": "`<=`",
    "EQ": "`=`",
    "MORETHAN": "`>`",
    "LESSTHAN": "`<`",
    "DOT": "`.`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "STAR": "`*`",
    "SLASH": "`/`",
    "PERCENT": "`%`",
    "VBAR": "`|`",
    "NOT_IN": "`not in`",
    "NULLS_FIRST": "`nulls first`",
    "NULLS_LAST": "`nulls last`",
}

_NAMES = {
    *("NAME", "QUERY", "MATCH", "RETURN", "DISTINCT", "HAVING", "ORDER", "OFFSET", "LIMIT", "PER", "NOT", "AS", "ASC"),
    *("DESC", "OPTIONAL", "LET", "PATH", "SHORTEST", "ALL", "EXISTS", "NULL", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("INSERT", "UPSERT", "UPDATE", "DELETE", "SET", "WHERE", "TRUE", "FALSE"),
}
_LITERALS = {"STRING", "FLOAT", "INT", "TRUE", "FALSE", "LSQB"}
_VALUES = _LITERALS | {"VAR", "NAME", "MINUS", "CASE", "META", "LPAR", "NULL"}
_EXPRESSIONS = _VALUES | {"NOT", "EXISTS"}
_SIGNS = {"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"}
_COMPARISONS = {"EQ", "NE", "GE", "LE", "MORETHAN", "LESSTHAN", "CONTAINS", "STARTS_WITH", "ENDS_WITH"}
_TESTS = _COMPARISONS | {"IN", "NOT_IN", "IS"}

_GROUPS = {
    frozenset(names): phrase
    for names, phrase in (
        (_NAMES, "a name"),
        (_EXPRESSIONS | {"SOURCE", "OPTIONAL", "LET", "PATH"}, "a pattern or a condition"),
        (_EXPRESSIONS, "an expression"),
        (_VALUES, "a value"),
        (_SIGNS | _TESTS | {"AND", "OR"}, "an operator such as `=` or `and`"),
        (_SIGNS | _TESTS, "an operator such as `=`"),
        (_SIGNS | {"AND", "OR"}, "an operator such as `+` or `and`"),
        (_SIGNS, "an operator such as `+`"),
        (_LITERALS, "a literal"),
    )
}

# ---- How the lexer knows the beginning of a traversal

_COMMENT = r"\/\/[^\n]*\n|\/\*[^*]*(?:\*(?!\/)[^*]*)*\*\/"
#: White space and comments. One character at a time, so that a failed look ahead goes back over each only once.
_BLANK = rf"(?:[ \t\r\n]|{_COMMENT})*"
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
#: The words that only quotes make an edge.
_WORD = rf"(?:(?!(?:and|or|not|is|null|in)(?![A-Za-z0-9_]))[a-z_][A-Za-z0-9_]*+|{_QUOTED})"
_GIVEN = r"\$[a-z_][A-Za-z0-9_]*+"
#: Bounds, wrong ones too, so that these are found where they are wrong. A block never looks like them.
_BOUNDS = (
    rf"\{{(?:{_BLANK}(?:[0-9]+|[,.*])|{_BLANK}{_GIVEN}(?={_BLANK}[,.]))"
    rf"(?:{_BLANK}(?:[0-9]+|[,.*-]|{_GIVEN}))*{_BLANK}\}}"
)
#: How deep parentheses may nest in the condition of a hop for the lexer to see its end.
_HOP_NESTING = 4


def _edge_pattern() -> str:
    """The pattern of an edge between two variables, without its bounds."""
    words = rf"{_WORD}{_BLANK}(?:\|{_BLANK}{_WORD}{_BLANK})*"
    # A quote or a parenthesis in a comment is none.
    condition = plain = rf'(?:{_COMMENT}|[^()"/]|\/(?![*\/])|{_QUOTED})'
    for _ in range(_HOP_NESTING):
        condition = rf"(?:{plain}|\({condition}*\))"
    several = rf"\({_BLANK}{words}(?:where(?![A-Za-z0-9_]){condition}*)?\)"
    return rf"(?:{_WORD}|\*|{several}|<{_BLANK}(?:\*{_BLANK}|{several}{_BLANK}|{words})>)"


def _traversal() -> Lookahead:
    """A variable begins a traversal where an edge and another variable follow, and no operator behind that one."""
    operators = (
        r"[.=<>!+*%-]|\/(?![*\/])|(?:and|or|in|is)(?![A-Za-z0-9_])"
        rf"|(?:contains|starts_with|ends_with)(?![A-Za-z0-9_])(?!{_BLANK}\()|not{_BLANK}in(?![A-Za-z0-9_])"
    )
    behind = (
        rf"{_BLANK}(?:{_GIVEN}{_BLANK}:{_BLANK})?{_edge_pattern()}{_BLANK}(?:{_BOUNDS}{_BLANK})?{_GIVEN}"
        rf"(?!{_BLANK}(?:{operators}))"
    )
    return Lookahead(terminal="VAR", becomes="SOURCE", behind=re.compile(behind))


def _grammar_text() -> str:
    return Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8").replace("%BLANK%", _BLANK)


# ---- Texts and their trees


def parse_queries(source: SourceText) -> ast.QueryFile:
    """The syntax tree of a query file.

    Raises:
        CompilerError: with the first syntax error of every broken query.
    """
    return ast.QueryFile(_grammar().parse(without_settings(source)))


def parse_queries_all(source: SourceText) -> tuple[ast.QueryFile, Findings]:
    """The declared queries that parse, and one finding for each that does not, or has no name."""
    queries, findings = _grammar().parse_all(without_settings(source))
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
    return grammar_with(_Builder())


def grammar_with(builder: Transformer[Token, object]) -> DeclarationGrammar[Any]:
    """The grammar of queries, with what makes something of its rules."""
    return DeclarationGrammar(
        _grammar_text(),
        builder,
        lookahead=_traversal(),
        declaration=_DECLARATION,
        phrases=_PHRASES,
        groups=_GROUPS,
        code=SYNTAX_ERROR,
        escape_code=SYNTAX_ERROR,
        advise=advise,
    )


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], span_of(token))


@frozen
class _Block:
    """The clauses between braces."""

    clauses: tuple[ast.Clause, ...]
    span: Span


@frozen
class _Alternatives:
    """The words of an edge."""

    words: tuple[ast.TypeName, ...]
    span: Span
    condition: ast.Expression | None = None


@frozen
class _Types:
    """The types of a variable, with what its properties have to be."""

    names: tuple[ast.TypeName, ...]
    matches: tuple[ast.PropertyMatch, ...]
    span: Span

    def of(self, variable: ast.Variable) -> ast.Binding:
        """The binding of a variable to them."""
        return ast.Binding(variable, self.names, self.matches, span_of(variable, self))


@frozen
class _Inline:
    matches: tuple[ast.PropertyMatch, ...]
    span: Span


@frozen
class _Order:
    keys: tuple[ast.Sort, ...]
    span: Span


@frozen
class _Having:
    condition: ast.Expression


@frozen
class _Offset:
    count: ast.Count


@frozen
class _Per:
    keys: tuple[ast.Expression, ...]
    span: Span


@frozen
class _Where:
    condition: ast.Expression
    span: Span


@frozen
class _Returns:
    projections: tuple[ast.Projection, ...]
    span: Span


@frozen
class _Otherwise:
    value: ast.Expression


#: What the transformer gives a rule for an expression.
_EXPRESSION_KINDS = get_args(ast.Expression)


def _first(kind: type[_Part], parts: Iterable[object]) -> _Part | None:
    """The part of one kind, if there is one."""
    return next(iter(only(kind, parts)), None)


def _expressions(parts: Iterable[object]) -> tuple[ast.Expression, ...]:
    return tuple(part for part in parts if isinstance(part, _EXPRESSION_KINDS))


@v_args(inline=True)
class _Builder(TreeBuilder):
    def query(self, keyword: Token, name: ast.Alias, *rest: object) -> ast.Query:
        *_, body, close = rest
        assert isinstance(body, ast.ReadBody | ast.MutationBody)
        span = span_of(keyword, cast("Token", close))
        return ast.Query(name.name, only(ast.Param, rest), only(ast.Note, rest), body, name_span=name.span, span=span)

    def bare(self, body: ast.Body) -> ast.Query:
        return ast.Query(UNNAMED, (), (), body, is_bare=True, name_span=body.span, span=body.span)

    def note(self, keyword: Token, text: Token, close: Token) -> ast.Note:
        kind = cast("Literal['description', 'instruction']", str(keyword[1:]))
        return ast.Note(kind, str(self.literal(text).value), span_of(keyword, close))

    def param(self, variable: Token, type_: ast.TypeExpr, *rest: Token | ast.Expression) -> ast.Param:
        question = _first(Token, rest)
        default = next(iter(_expressions(rest)), None)
        written = replace(type_, nullable=question is not None)
        span = span_of(variable, default or question or type_)
        return ast.Param(variable[1:], written, default, span)

    def default(self, _: Token, value: ast.Expression) -> ast.Expression:
        return value

    # ---- reads

    def read(self, keyword: Token, block: _Block, *rest: object) -> ast.ReadBody:
        order, having, offset = _first(_Order, rest), _first(_Having, rest), _first(_Offset, rest)
        return ast.ReadBody(
            block.clauses,
            only(ast.Projection, rest),
            order.keys if order else (),
            _first(ast.Limit, rest),
            any(token.type == "DISTINCT" for token in only(Token, rest)),
            having.condition if having else None,
            offset.count if offset else None,
            span_of(keyword),
        )

    def having(self, _: Token, condition: ast.Expression, __: Token) -> _Having:
        return _Having(condition)

    def order(self, keyword: Token, *rest: ast.Sort | Token) -> _Order:
        return _Order(only(ast.Sort, rest), span_of(keyword, rest[-1]))

    def offset(self, _: Token, count: ast.Count) -> _Offset:
        return _Offset(count)

    def limit(self, keyword: Token, count: ast.Count, per: _Per | None = None) -> ast.Limit:
        return ast.Limit(count, per.keys if per else (), span_of(count, per))

    def per(self, keyword: Token, *rest: ast.Expression | Token) -> _Per:
        return _Per(_expressions(rest), span_of(keyword, rest[-1]))

    def fixed_count(self, token: Token) -> ast.Count:
        return ast.Count(whole_number(token), span_of(token))

    def given_count(self, token: Token) -> ast.Count:
        return ast.Count(_variable(token), span_of(token))

    def projection(self, expression: ast.Expression, _: Token | None, alias: ast.Alias | None) -> ast.Projection:
        return ast.Projection(expression, alias.name if alias else None, span_of(expression, alias))

    def sort(self, expression: ast.Expression, *rest: Token) -> ast.Sort:
        direction = next((str(token) for token in rest if token.type in ("ASC", "DESC")), None)
        nulls = next((token.type.removeprefix("NULLS_").lower() for token in rest if "NULLS" in token.type), None)
        return ast.Sort(
            expression,
            cast("Literal['asc', 'desc'] | None", direction),
            cast("Literal['first', 'last'] | None", nulls),
            span_of(expression, rest[-1] if rest else None),
        )

    # ---- clauses

    def block(self, *rest: ast.Clause | Token) -> _Block:
        clauses = cast("tuple[ast.Clause, ...]", rest[:-1])
        return _Block(clauses, span_of(clauses[0], rest[-1]))

    def binding(self, variable: Token, types: _Types, inline: _Inline | None = None) -> ast.Binding:
        return self._typed(types, inline).of(_variable(variable))

    def types(self, *names: Token) -> _Types:
        return _Types(tuple(ast.TypeName(str(name), span_of(name)) for name in names), (), span_of(names[0], names[-1]))

    def right_types(self, types: _Types, inline: _Inline | None = None) -> _Types:
        return self._typed(types, inline)

    def _typed(self, types: _Types, inline: _Inline | None) -> _Types:
        return types if inline is None else _Types(types.names, inline.matches, span_of(types, inline))

    def inline(self, *rest: ast.PropertyMatch | Token) -> _Inline:
        return _Inline(only(ast.PropertyMatch, rest), span_of(rest[0], rest[-1]))

    def property_match(self, name: ast.Alias, value: ast.Expression) -> ast.PropertyMatch:
        return ast.PropertyMatch(name.name, value, span_of(name, value))

    def traversal(self, left: Token, hop: ast.Hop, right: Token, types: _Types | None = None) -> ast.Traversal:
        return self._traversal(left, None, hop, right, types)

    def bound_traversal(
        self, left: Token, edge: Token, hop: ast.Hop, right: Token, types: _Types | None = None
    ) -> ast.Traversal:
        return self._traversal(left, _variable(edge), hop, right, types)

    def _traversal(
        self, left: Token, edge: ast.Variable | None, hop: ast.Hop, right: Token, types: _Types | None
    ) -> ast.Traversal:
        end = _variable(right)
        binding = types.of(end) if types else None
        return ast.Traversal(_variable(left), edge, hop, end, binding, span_of(left, binding or end))

    def edge(self, words: _Alternatives, bounds: ast.Bounds | None = None) -> ast.Hop:
        return ast.Hop(words.words, False, bounds, words.condition, words.span)

    def undirected_edge(self, words: _Alternatives, bounds: ast.Bounds | None = None) -> ast.Hop:
        return ast.Hop(words.words, True, bounds, words.condition, words.span)

    def one_word(self, word: ast.TypeName) -> _Alternatives:
        return _Alternatives((word,), word.span)

    def bare_words(self, *words: ast.TypeName) -> _Alternatives:
        return _Alternatives(words, span_of(words[0], words[-1]))

    words = bare_words

    def several_words(self, opening: Token, words: _Alternatives, *rest: _Where | Token) -> _Alternatives:
        where = _first(_Where, rest)
        return _Alternatives(words.words, span_of(opening, rest[-1]), where.condition if where else None)

    def any_word(self, star: Token) -> _Alternatives:
        return _Alternatives((), span_of(star))

    def word(self, token: Token) -> ast.TypeName:
        name = str(self.literal(token).value) if token.type == "STRING" else str(token)
        return ast.TypeName(name, span_of(token))

    def bounds(self, low: Token, *rest: Token) -> ast.Bounds:
        *high, close = rest
        inside = Span(span_of(low).start, span_of(close).start)
        return ast.Bounds(whole_number(low), whole_number(high[0]) if high else None, inside)

    def where(self, keyword: Token, condition: ast.Expression) -> _Where:
        return _Where(condition, span_of(keyword, condition))

    condition_of_hop = where

    def optional(self, keyword: Token, block: _Block) -> ast.Optional:
        return ast.Optional(block.clauses, span_of(keyword, block))

    def let(self, keyword: Token, variable: Token, _: Token, expression: ast.Expression) -> ast.Let:
        return ast.Let(_variable(variable), expression, span_of(keyword, expression))

    def path(self, keyword: Token, variable: Token, _: Token, choice: Token, traversal: ast.Traversal) -> ast.Path:
        kind = cast("Literal['shortest', 'all']", str(choice))
        return ast.Path(_variable(variable), kind, traversal, span_of(keyword, traversal))

    def condition(self, expression: ast.Expression) -> ast.Condition:
        return ast.Condition(expression, expression.span)

    # ---- expressions

    def binary(self, left: ast.Expression, operator: Token, right: ast.Expression) -> ast.Binary:
        word = "not in" if operator.type == "NOT_IN" else str(operator)
        return ast.Binary(left, ast.Operator(word), right, span_of(left, right))

    def unary(self, operator: Token, operand: ast.Expression) -> ast.Expression:
        span = span_of(operator, operand)
        if operator.type == "NOT":
            return ast.Unary("not", operand, span)
        if (
            isinstance(operand, ast.Literal_)
            and operand.text[:1].isdigit()
            and not isinstance(operand.value, bool | str)
        ):
            # So that the smallest integer is one.
            return ast.Literal_(-operand.value, f"-{operand.text}", span=span)
        return ast.Unary("-", operand, span)

    def is_null(self, operand: ast.Expression, _: Token, *rest: Token) -> ast.NullTest:
        return ast.NullTest(operand, len(rest) == 2, span_of(operand, rest[-1]))

    def parenthesised(self, opening: Token, expression: ast.Expression, closing: Token) -> ast.Expression:
        return replace(expression, span=span_of(opening, closing))

    def exists(self, keyword: Token, block: _Block) -> ast.Exists:
        return ast.Exists(keyword.type == "NOT", block.clauses, span_of(keyword, block))

    def value_block(self, name: Token, block: _Block) -> ast.Call:
        return ast.Call(str(name), (), clauses=block.clauses, span=span_of(name, block))

    def property_access(self, variable: Token, name: ast.Alias) -> ast.PropertyAccess:
        return ast.PropertyAccess(_variable(variable), name.name, span_of(variable, name))

    def system_field(self, variable: Token, name: Token) -> ast.SystemField:
        return ast.SystemField(_variable(variable), name[1:], span_of(variable, name))

    def all_properties(self, variable: Token, star: Token) -> ast.AllProperties:
        return ast.AllProperties(_variable(variable), span_of(variable, star))

    def meta_name(self, name: Token) -> ast.MetaName:
        return ast.MetaName(name[1:], span_of(name))

    def variable(self, token: Token) -> ast.Variable:
        return _variable(token)

    def alias(self, token: Token) -> ast.Alias:
        return ast.Alias(str(token), span_of(token))

    name = alias

    def star(self, token: Token) -> ast.Star:
        return ast.Star(span_of(token))

    def named_argument(self, name: Token, value: ast.Expression) -> ast.NamedArgument:
        return ast.NamedArgument(str(name), value, span_of(name, value))

    def null(self, token: Token) -> ast.Null:
        return ast.Null(span_of(token))

    def call(self, name: Token, *rest: object) -> ast.Call:
        order, block = _first(_Order, rest), _first(_Block, rest)
        tokens = only(Token, rest)
        return ast.Call(
            str(name),
            _expressions(rest),
            any(token.type == "DISTINCT" for token in tokens),
            order.keys if order else (),
            _first(ast.Count, rest),
            block.clauses if block else None,
            span_of(name, block or tokens[-1]),
        )

    inner_order = order

    def inner_limit(self, _: Token, count: ast.Count) -> ast.Count:
        return count

    def case(self, keyword: Token, *rest: object) -> ast.Case:
        otherwise = _first(_Otherwise, rest)
        span = span_of(keyword, cast("Token", rest[-1]))
        return ast.Case(only(ast.When, rest), otherwise.value if otherwise else None, span)

    def when(self, keyword: Token, condition: ast.Expression, _: Token, value: ast.Expression) -> ast.When:
        return ast.When(condition, value, span_of(keyword, value))

    def otherwise(self, _: Token, value: ast.Expression) -> _Otherwise:
        return _Otherwise(value)

    def list_literal(self, opening: Token, *rest: ast.Expression | Token | None) -> ast.ListLiteral:
        return ast.ListLiteral(_expressions(rest), span_of(opening, cast("Token", rest[-1])))

    # ---- mutations

    def mutation(self, *rest: object) -> ast.MutationBody:
        return self._mutation(None, rest)

    def matching_mutation(self, keyword: Token, block: _Block, *rest: object) -> ast.MutationBody:
        return self._mutation(block.clauses, rest)

    def _mutation(self, clauses: tuple[ast.Clause, ...] | None, rest: Iterable[object]) -> ast.MutationBody:
        statements = tuple(part for part in rest if isinstance(part, ast.Statement))
        returns = _first(_Returns, rest)
        return ast.MutationBody(statements, clauses, returns.projections if returns else (), span_of(statements[0]))

    def returns(self, keyword: Token, *rest: ast.Projection | Token) -> _Returns:
        return _Returns(only(ast.Projection, rest), span_of(keyword, rest[-1]))

    def insert(self, keyword: Token, type_name: Token, *rest: ast.Assignment | ast.Variable | Token) -> ast.Insert:
        variable, span = _first(ast.Variable, rest), span_of(keyword, rest[-1])
        return ast.Insert(str(type_name), only(ast.Assignment, rest), variable, span_of(type_name), span)

    def naming(self, _: Token, variable: Token) -> ast.Variable:
        return _variable(variable)

    def upsert(self, keyword: Token, type_name: Token, *rest: ast.Assignment | Token) -> ast.Upsert:
        return ast.Upsert(str(type_name), only(ast.Assignment, rest), span_of(type_name), span_of(keyword, rest[-1]))

    def update(self, keyword: Token, target: Token, *rest: Token | ast.Assignment | _Where) -> ast.Update:
        where = _first(_Where, rest)
        span = span_of(keyword, rest[-1])
        return ast.Update(_target(target), only(ast.Assignment, rest), where.condition if where else None, span)

    def delete(self, keyword: Token, target: Token, where: _Where | None = None) -> ast.Delete:
        return ast.Delete(_target(target), where.condition if where else None, span_of(keyword, where or target))

    def assignment(self, name: ast.Alias, value: ast.Expression) -> ast.Assignment:
        return ast.Assignment(name.name, value, span_of(name, value))


def _target(token: Token) -> ast.TypeName | ast.Variable:
    return ast.TypeName(str(token), span_of(token)) if token.type == "TYPE_NAME" else _variable(token)
