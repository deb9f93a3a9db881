"""What both languages share: literals and types as written, and grammars over files of declarations."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from lark import Lark, TextSlice, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.lark import PostLex
from lark.lexer import LexerState, LexerThread, LineCounter
from typing_extensions import override

from omnigraph.core.env_settings import cache_folder
from omnigraph.core.source import OPAQUE, Findings, SourceText, Span, check_readable, one_of, span_field
from omnigraph.core.types import (
    MAX_VECTOR_DIMENSION,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.errors import Diagnostic
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from lark.lexer import Lexer
    from lark.parsers.lalr_parser_state import ParserState


# ---- String literals, which both languages spell alike


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class EscapeFailure(Exception):
    """A string literal holds an escape that the languages do not have; never leaves the parsers."""

    def __init__(self, offset: int, escape: str) -> None:
        super().__init__(escape)
        self.offset = offset
        self.escape = escape


def unescape(literal: str, offset: int) -> str:
    """The value of a quoted literal that begins at `offset` of its source.

    Raises:
        EscapeFailure: at the first unknown escape.
    """
    body = literal[1:-1]
    if "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        try:
            return _ESCAPES[match[1]]
        except KeyError:
            raise EscapeFailure(offset + 1 + match.start(), match[0]) from None

    return _ESCAPE.sub(replace, body)


# ---- Literals and types as they are written
#
# Spans never take part in equality, so two trees are equal when their texts mean the same.


#: Longer digit strings are out of range for every number of the languages.
MAX_DIGITS = 40
#: The scalars by the words of the languages.
SCALARS = {scalar.value: scalar for scalar in Scalar}


@dataclass(frozen=True, slots=True, eq=False)
class Literal_:
    """A string, number or boolean, or a bare name where one may stand. Numbers keep their spelling in `text`."""

    value: str | int | float | bool
    text: str
    bare: bool = False
    span: Span = span_field()

    @property
    def name(self) -> str:
        """The property that it names, in a list of properties: `true` may be one."""
        return self.text if isinstance(self.value, bool) else str(self.value)

    @property
    def meaning(self) -> tuple[str, str | int | float | bool, bool]:
        """The value of the literal; `1`, `1.0` and `true` are three different things."""
        return type(self.value).__name__, self.value, self.bare

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal_) and self.meaning == other.meaning

    def __hash__(self) -> int:
        return hash(self.meaning)


@frozen
class TypeExpr:
    """A type as written. `name` is the scalar of a scalar or list type; it may not exist."""

    form: Literal["scalar", "list", "enum", "vector"]
    nullable: bool
    name: str = ""
    values: tuple[str, ...] = ()
    dimension: int = 0
    span: Span = span_field()

    def __str__(self) -> str:
        match self.form:
            case "scalar":
                text = self.name
            case "list":
                text = f"[{self.name}]"
            case "enum":
                text = f"enum({', '.join(self.values)})"
            case "vector":
                text = f"Vector({self.dimension})"
        return f"{text}?" if self.nullable else text

    def resolved(self) -> PropertyType | TypeFailure:
        """The type that is meant, or why there is none."""
        base: BaseType
        match self.form:
            case "enum":
                values = sorted(self.values)
                for value, after in pairwise(values):
                    if value == after:
                        return TypeFailure("enum", f"enum value `{value}` is listed twice")
                base = EnumType(tuple(values))
            case "vector":
                if not 1 <= self.dimension <= MAX_VECTOR_DIMENSION:
                    return TypeFailure("vector", f"a vector has 1 to {MAX_VECTOR_DIMENSION} dimensions")
                base = VectorType(self.dimension)
            case _:
                scalar = SCALARS.get(self.name)
                if scalar is None:
                    return TypeFailure("unknown", f"there is no type `{self.name}`")
                if self.form == "list" and scalar is Scalar.BLOB:
                    return TypeFailure("list", "there is no list of Blob")
                base = ListType(scalar) if self.form == "list" else ScalarType(scalar)
        return PropertyType(base, self.nullable)


@frozen
class TypeFailure:
    """Why a type is wrong."""

    kind: Literal["unknown", "list", "enum", "vector"]
    message: str


Part = TypeVar("Part")


class Located(Protocol):
    """A part of a syntax tree that knows its place."""

    @property
    def span(self) -> Span:
        """Where it stands."""
        ...


def span_of(first: Token | Located, last: Token | Located | None = None) -> Span:
    """From the beginning of one part of a text to the end of another, or of the same."""
    last = first if last is None else last
    start = first.start_pos or 0 if isinstance(first, Token) else first.span.start
    end = last.end_pos or 0 if isinstance(last, Token) else last.span.end
    return Span(start, end)


def only(kind: type[Part], parts: Iterable[object]) -> tuple[Part, ...]:
    """The parts of one kind."""
    return tuple(part for part in parts if isinstance(part, kind))


def repeated(parts: Iterable[Part], name: Callable[[Part], str]) -> Iterator[Part]:
    """The parts that have the name of an earlier one."""
    seen: set[str] = set()
    for part in parts:
        if name(part) in seen:
            yield part
        seen.add(name(part))


def whole_number(token: Token) -> int:
    """The number of a digit string; one beyond every bound of the languages is cut, and still out of range."""
    return int(token.lstrip("0")[:MAX_DIGITS] or "0")


@v_args(inline=True)
class TreeBuilder(Transformer[Token, object]):
    """Builds a syntax tree while lark parses; each method is a grammar rule and gets its children.

    These are the rules that both grammars have.
    """

    def file(self, *declarations: object) -> tuple[object, ...]:
        """All declarations."""
        return declarations

    def literal(self, token: Token) -> Literal_:
        """A string, number or boolean."""
        text = str(token)
        value: str | int | float | bool
        match token.type:
            case "STRING":
                value = unescape(token, cast("int", token.start_pos))
            case "FLOAT":
                value = float(text)
            case "INT":
                value = whole_number(token)
            case _:
                value = text == "true"
        return Literal_(value, text, span=span_of(token))

    def scalar_type(self, word: Token) -> TypeExpr:
        """`Word`."""
        return TypeExpr("scalar", False, str(word), span=span_of(word))

    def list_type(self, opening: Token, word: Token, closing: Token) -> TypeExpr:
        """`[Word]`."""
        return TypeExpr("list", False, str(word), span=span_of(opening, closing))

    def vector_type(self, keyword: Token, dimension: Token, closing: Token) -> TypeExpr:
        """`Vector(dimension)`."""
        return TypeExpr("vector", False, dimension=whole_number(dimension), span=span_of(keyword, closing))


# ---- The cache of analysed grammars


def grammar_cache(grammar: str) -> str | None:
    """The file that keeps the analysis of a grammar; None when there is no place for it."""
    folder = cache_folder("grammars")
    if folder is None:
        return None
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    return str(folder / f"{sha256(grammar.encode()).hexdigest()[:24]}-{python}.bin")


# ---- Parsing declarations
#
# The whole file is parsed in one go. Only when that fails is it cut at the beginnings of declarations and each piece
# parsed alone, so that one run shows the first syntax error of every declaration instead of the first of the file.


T = TypeVar("T")

#: Terminals of both grammars in plain English. A keyword is named by itself.
_PHRASES = {
    "TYPE_NAME": "a type name",
    "VECTOR": "`Vector(`",
    "STRING": "a string",
    "FLOAT": "a number",
    "INT": "a whole number",
    "QUESTION": "`?`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "$END": "the end of the text",
}
_WORD = re.compile(r"[0-9]+\.(?![0-9])|@?\$?[A-Za-z0-9_]+|\S")
_LONGEST_ENUMERATION = 7
#: How much of the text around a mistake is looked at for advice.
_CONTEXT = 300
_ENDLESS_STRING = "a string that never ends"
_ENDLESS_COMMENT = "a comment that never ends"


#: A terminal that is one word, with what must not follow it.
_KEYWORD = re.compile(r"(@?[A-Za-z_]+)(?:\(\?[=!].*|\\b.*)?", re.DOTALL)


@frozen
class Progress:
    """How far a text got that somebody still types."""

    #: Whether it is a text as it stands.
    is_whole: bool = False
    #: The place of a mistake that nothing behind it can mend; None where the text may go on.
    failed_at: int | None = None
    #: The terminals that may follow, by name. None follows within a string or a comment.
    expected: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Lookahead:
    """A terminal that is another one where more follows.

    As a pattern of the grammar it would be a part of the pattern of every state in which it may stand, and Python
    would compile it for each of them.
    """

    terminal: str
    becomes: str
    #: Matches what follows.
    behind: re.Pattern[str]


class DeclarationGrammar(Generic[T]):
    """A grammar whose texts are sequences of declarations, with the words for its errors.

    Args:
        grammar: lark grammar text with the start rule `file`.
        builder: makes the declarations while parsing.
        declaration: matches the beginning of a declaration, for recovery after a syntax error.
        phrases: terminals that only this grammar has, in plain English, for "expected …".
        groups: sets of terminals that are named together when all of them may stand somewhere.
        code: code of a syntax error; `escape_code` that of an unknown string escape.
        advise: extra hints for well-known mistakes: gets the text found, and what stands before and behind it.
        lookahead: the terminal that depends on what follows, which the grammar declares without a pattern.
    """

    def __init__(
        self,
        grammar: str,
        builder: Transformer[Token, object],
        *,
        declaration: str,
        phrases: Mapping[str, str],
        groups: Mapping[frozenset[str], str],
        code: str,
        escape_code: str,
        advise: Callable[[str, str, str], str | None],
        lookahead: Lookahead | None = None,
    ) -> None:
        self._lark = Lark(
            grammar,
            parser="lalr",
            start="file",
            transformer=builder,
            lexer_callbacks={"STRING": _check_escapes},
            cache=grammar_cache(grammar) or False,
            _plugins={"LexerThread": _Lexers(lookahead)},
            postlex=None if lookahead is None else _Everywhere(lookahead.terminal),
        )
        self._beginning = re.compile(rf"{OPAQUE}|(?P<declaration>{declaration})", re.DOTALL)
        self._phrases = {**_PHRASES, **phrases}
        self._groups = groups
        self._code = code
        self._escape_code = escape_code
        self._advise = advise

    def parse(self, source: SourceText) -> tuple[T, ...]:
        """All declarations of a text.

        Raises:
            CompilerError: with the first syntax error of every broken declaration.
        """
        declarations, findings = self.parse_all(source)
        findings.raise_errors()
        return declarations

    def parse_all(self, source: SourceText) -> tuple[tuple[T, ...], Findings]:
        """The declarations that parse, and one finding for each that does not."""
        check_readable(source, self._code)
        findings = Findings(source)
        try:
            return tuple(self._parse_text(source.text)), findings
        except (UnexpectedInput, EscapeFailure) as failure:
            first = failure
        parsed: list[T] = []
        for piece in self._pieces(source.text):
            part = TextSlice(source.text, piece.start, piece.end)
            try:
                parsed.extend(self._parse_text(part))
            except (UnexpectedInput, EscapeFailure) as failure:
                findings.add(partial(self._explain, source, part, failure))
        if not findings.error_count:
            # A text can fail as a whole although its pieces parse: what stands between them is then to blame.
            findings.add(partial(self._explain, source, TextSlice.cast_from(source.text), first))
        return tuple(parsed), findings

    @cached_property
    def keywords(self) -> Mapping[str, str]:
        """The words that the grammar knows, by the names of their terminals."""
        found = ((item.name, _KEYWORD.fullmatch(item.pattern.value)) for item in self._lark.terminals)
        return {name: match[1] for name, match in found if match}

    def progress(self, text: str) -> Progress:
        """How far a text gets, and what may follow it.

        Raises:
            CompilerError: it is too large, or nothing that a parser should see.
        """
        check_readable(SourceText(text), self._code)
        parser = self._lark.parse_interactive(text)
        try:
            parser.exhaust_lexer()
        except EscapeFailure as failure:
            return Progress(failed_at=failure.offset)
        except UnexpectedInput as failure:
            span, found = _place(text, failure)
            return Progress(failed_at=None if found in (_ENDLESS_STRING, _ENDLESS_COMMENT) else span.start)
        expected = frozenset(parser.accepts())  # type: ignore[no-untyped-call]  # lark leaves it untyped
        return Progress("$END" in expected, None, expected)

    def _parse_text(self, text: str | TextSlice[str]) -> Sequence[T]:
        return cast("Sequence[T]", self._lark.parse(text))

    def _pieces(self, text: str) -> Iterator[Span]:
        starts = [m.start() for m in self._beginning.finditer(text) if m["declaration"]]
        bounds = [0, *starts[1:], len(text)] if starts else [0, len(text)]
        for begin, end in pairwise(bounds):
            yield Span(begin, end)

    def _explain(
        self, source: SourceText, part: TextSlice[str], failure: UnexpectedInput | EscapeFailure
    ) -> Diagnostic:
        if isinstance(failure, EscapeFailure):
            return source.diagnostic(
                self._escape_code,
                Span(failure.offset, failure.offset + len(failure.escape)),
                f"unknown escape `{failure.escape}` in a string",
                hint='the escapes are \\" \\\\ \\n \\r \\t',
            )
        span, found = _place(source.text, failure)
        if found == _ENDLESS_STRING and _ends_in_an_escape(source.text):
            end = len(source.text)
            return source.diagnostic(self._escape_code, Span(end - 1, end), "the text ends inside an escape")
        word = source.text[span.start : span.end]
        endless = found in (_ENDLESS_STRING, _ENDLESS_COMMENT)
        return source.diagnostic(
            self._code,
            span,
            f"found {found}" if endless else f"found {found}, expected {self._expected(part, span.start)}",
            hint=self._advise(
                word,
                source.text[max(0, span.start - _CONTEXT) : span.start].rstrip(),
                source.text[span.end : span.end + _CONTEXT].lstrip(),
            ),
        )

    def _expected(self, part: TextSlice[str], end: int) -> str:
        names = self._following(part, end)
        words, alone = set(), names
        for group, phrase in self._groups.items():
            # Groups overlap: a smaller one is named only for what no larger one has said.
            if group <= names and group & alone:
                alone = alone - group
                words.add(phrase)
        words |= {self._phrases.get(name) or f"`{name.lower()}`" for name in alone}
        phrases = sorted(words, key=_by_kind)
        if len(phrases) > _LONGEST_ENUMERATION:
            phrases = [*phrases[: _LONGEST_ENUMERATION - 1], "something else that may stand here"]
        return one_of(phrases) or "something else"

    def _following(self, part: TextSlice[str], end: int) -> set[str]:
        """The terminals that may stand at the place of a mistake.

        Parsed again up to there: a parser that has seen the wrong token may have ended what another token goes on with,
        because elsewhere in the grammar that token ends it.
        """
        parser = self._lark.parse_interactive(part)
        with suppress(UnexpectedInput):  # the mistake is in the characters
            for token in parser.iter_parse():
                if cast("int", token.start_pos) >= end:
                    break
        return set(parser.accepts())  # type: ignore[no-untyped-call]  # lark leaves it untyped


class _OffsetLexer(LexerThread):
    """Reads a slice without counting the lines before it, which would take the square of a text of many pieces.

    Lines and columns of lark are not used: offsets are, and `SourceText` turns them into places.
    """

    def __init__(self, lexer: Lexer, state: LexerState, lookahead: Lookahead | None) -> None:
        super().__init__(lexer, state)
        self._text: TextSlice[str] = state.text
        self._lookahead = lookahead

    def __copy__(self) -> _OffsetLexer:
        return _OffsetLexer(self.lexer, copy(cast("LexerState", self.state)), self._lookahead)

    def lex(self, parser_state: ParserState[Any]) -> Iterator[Token]:
        tokens: Iterator[Token] = super().lex(parser_state)  # type: ignore[no-untyped-call]  # lark leaves it untyped
        ahead = self._lookahead
        if ahead is None:
            yield from tokens
            return
        text = self._text
        for token in tokens:
            if (
                token.type == ahead.terminal
                and ahead.becomes in parser_state.parse_conf.states[parser_state.position]
                and ahead.behind.match(text.text, token.end_pos or 0, text.end)
            ):
                token.type = ahead.becomes
            yield token


class _Everywhere(PostLex):
    """Makes lark look for a terminal also where only what it becomes may stand."""

    def __init__(self, terminal: str) -> None:
        self.always_accept = (terminal,)

    @override
    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@frozen
class _Lexers:
    """What lark takes for the class of its lexers: those of one grammar."""

    lookahead: Lookahead | None

    def from_text(self, lexer: Lexer, text_or_slice: str | TextSlice[str]) -> _OffsetLexer:
        """A lexer of a text."""
        text = TextSlice.cast_from(text_or_slice)
        start = LineCounter("\n")  # type: ignore[no-untyped-call]  # lark leaves it untyped
        start.char_pos = text.start
        return _OffsetLexer(lexer, LexerState(text, start), self.lookahead)


def _ends_in_an_escape(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _by_kind(phrase: str) -> tuple[bool, str]:
    # Things a person thinks of first (a name, a type), punctuation and keywords after them.
    return phrase.startswith("`"), phrase


def _place(text: str, failure: UnexpectedInput) -> tuple[Span, str]:
    if isinstance(failure, UnexpectedToken) and failure.token.type == "$END":
        # Inside a piece of a larger file the end of the piece is the end of the declaration.
        end = failure.token.end_pos or 0
        is_last = not text[end:].strip()
        return Span(end, end), "the end of the text" if is_last else "the end of the declaration"
    start = cast("int", failure.pos_in_stream)
    if text.startswith('"', start) and isinstance(failure, UnexpectedCharacters):
        return Span(start, start + 1), _ENDLESS_STRING
    if text.startswith("/*", start):
        return Span(start, start + 2), _ENDLESS_COMMENT
    if isinstance(failure, UnexpectedToken) and failure.token.end_pos is not None:
        end = failure.token.end_pos
    else:
        word = _WORD.match(text, start)
        end = word.end() if word else start + 1
    return Span(start, end), _quoted(text[start:end])


def _quoted(word: str) -> str:
    if len(word) == 1 and not word.isprintable():
        return f"the character U+{ord(word):04X}"
    return f"`{word if len(word) <= 40 else word[:40] + '…'}`"


def _check_escapes(token: Token) -> Token:
    # Raised from here an unknown escape ends the parse at once, like any other lexical error.
    if "\\" in token:
        unescape(token, token.start_pos or 0)
    return token


# ---- Regular expressions


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression; None where it is valid."""
    # RE2 is the engine that later judges the values, so it is asked here; nothing else needs pyarrow this early.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as problem:
        return str(problem).removeprefix("Invalid regular expression: ")
    return None
