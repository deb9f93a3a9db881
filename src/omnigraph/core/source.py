"""Source texts with places: reading within bounds, excerpts for messages, and near names."""

from __future__ import annotations

import codecs
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from omnigraph.errors import MAX_DIAGNOSTICS, BadRequestError, CompilerError, Diagnostic, InputFileError, Severity
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

# ---- Suggestions and enumerations in messages


_LISTED = 8
#: Beyond this many known names a near one is not looked for: comparing costs more than the hint is worth.
_COMPARED = 256
#: Longer names are neither compared nor shown: comparing takes the product of two lengths.
_LONGEST = 64
#: How like a near name is: `persn` is near to `person`, and `year` is not near to `search`.
_LIKENESS = 0.7


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known word, or lists the known ones when they are few.

    >>> did_you_mean("Papr", ["Paper", "Venue"])
    'did you mean `Paper`?'
    """
    names = _comparable(name, known)
    near = _nearest(name, names)
    if near is not None:
        return f"did you mean `{near}`?"
    if names and len(names) <= _LISTED:
        return f"known here: {', '.join(f'`{item}`' for item in names)}"
    return None


def with_hint(message: str, name: str, known: Iterable[str]) -> str:
    """A sentence about an unknown name, with the nearest known one behind it.

    >>> with_hint("there is no type `Papr`", "Papr", ["Paper", "Venue"])
    'there is no type `Papr`: did you mean `Paper`?'
    """
    hint = did_you_mean(name, known)
    return message if hint is None else f"{message}: {hint}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The nearest known word, where one is near.

    >>> nearest("Papr", ["Paper", "Venue"])
    'Paper'
    """
    return _nearest(name, _comparable(name, known))


def _comparable(name: str, known: Iterable[str]) -> list[str]:
    """The known words in order; none where comparing would cost too much."""
    distinct = set(islice(known, _COMPARED + 1))
    if len(distinct) > _COMPARED or len(name) > _LONGEST or max(map(len, distinct), default=0) > _LONGEST:
        return []
    return sorted(distinct)


def _nearest(name: str, names: list[str]) -> str | None:
    folded = {known_name.casefold(): known_name for known_name in reversed(names)}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=_LIKENESS)
    return folded[near[0]] if near else None


def one_of(phrases: Iterable[str]) -> str:
    """An enumeration in plain English.

    >>> one_of(["a name", "`}`", "`@`"])
    'a name, `}` or `@`'
    """
    items = list(dict.fromkeys(phrases))
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} or {items[-1]}"


# ---- Limits of source texts
#
# Each of them is far beyond what people and tools write, and far below what a parser, a recursive walk or a reader of
# errors could not survive. `docs/project/decisions/0003-source-limits.md` gives the reasons.


#: Largest source text of either language. A schema or query file is written by people and tools for people; data
#: belongs into load files, which have no such limit.
MAX_SOURCE_BYTES = 4 * 1024 * 1024

#: Deepest nesting of brackets. Far beyond any readable query, far below what a recursive walk could not survive.
MAX_NESTING = 64

#: Conditions that one `and` or `or` joins. Long lists are compared with `in`.
MAX_CHAIN = 256

#: Words, numbers, strings and signs of one text. The parser is linear, but its constant is that of Python.
MAX_TOKENS = 250_000

#: Bindings, traversals and `not` blocks of one query, nested ones included: each is an operator that holds rows.
MAX_PATTERNS = 256

#: Everything that one query lists: clauses, inline matches, columns, order keys, parameters, statements, assignments.
MAX_PARTS = 20_000

#: Characters of the message of one finding; names of any length stand in it.
MAX_MESSAGE = 1_000


# ---- Source texts and places in them
#
# A `Span` is a pair of code-point offsets, which is all that syntax trees carry. Lines, columns and excerpts are
# worked out only when a finding is reported.


#: The name of a query whose text gives it none.
UNNAMED = "query"

#: What to do about a finding, or how to find out.
Hint = str | Callable[[], str | None] | None

_EXCERPT_WIDTH = 160
_TAB = "    "

#: Matches what no structure is looked for in: strings and comments, unterminated ones up to the end of the text.
OPAQUE = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|//[^\n]*|/\*(?:.*?\*/|.*)'
_OPAQUE_OR_BRACKET = re.compile(rf"{OPAQUE}|(?P<open>[{{(\[])|(?P<close>[}})\]])", re.DOTALL)
#: About one token of either language; blanks are skipped.
_TOKEN = re.compile(rf"{OPAQUE}|\w+|[^\w\s]", re.DOTALL)


class Span(NamedTuple):
    """A half-open range of code-point offsets in one source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The range from the beginning of this span to the end of `other`."""
        return Span(self.start, other.end)


_BEGINNING = Span(0, 0)


def span_field() -> Span:
    """A dataclass field for the place of a syntax tree node; never part of equality."""
    nowhere: Span = field(default=_BEGINNING, compare=False, repr=False)
    return nowhere


@frozen
class SourceText:
    """A text and the name under which it is reported."""

    text: str
    name: str = "<input>"
    _line_starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        if not self._line_starts:
            lengths = (len(line) + 1 for line in self.text.split("\n"))
            self._line_starts.extend(accumulate(lengths, initial=0))
        line = bisect_right(self._line_starts, offset, hi=len(self._line_starts) - 1)
        return line, offset - self._line_starts[line - 1] + 1

    def diagnostic(
        self, code: str, span: Span, message: str, *, hint: str | None = None, severity: Severity = Severity.ERROR
    ) -> Diagnostic:
        """A finding at `span`, with its excerpt."""
        line, column = self.position(span.start)
        return Diagnostic(
            code=code,
            # A name in it may be a string of several lines.
            message=one_line(message),
            file=self.name,
            line=line,
            column=column,
            excerpt=self._excerpt(span, line, column),
            hint=hint and one_line(hint),
            severity=severity,
        )

    def _excerpt(self, span: Span, line: int, column: int) -> str:
        begin = self._line_starts[line - 1]
        end = self.text.find("\n", begin)
        whole = self.text[begin : len(self.text) if end < 0 else end].rstrip("\r")
        before, marked = column - 1, max(1, min(span.end, begin + len(whole)) - span.start)
        # A very long line is shown as the window around the finding.
        first = max(0, before - _EXCERPT_WIDTH // 2) if len(whole) > _EXCERPT_WIDTH else 0
        shown = whole[first : first + _EXCERPT_WIDTH]
        lead = "…" if first else ""
        tail = "…" if first + _EXCERPT_WIDTH < len(whole) else ""
        marked = min(marked, max(1, len(shown) - (before - first)))
        margin = " " * len(str(line))
        pad = " " * (len(lead) + _cells(shown[: before - first]))
        carets = "^" * max(1, _cells(shown[before - first : before - first + marked]))
        return f"  {line} | {lead}{_printable(shown)}{tail}\n  {margin} | {pad}{carets}"


def query_source(text: object) -> SourceText:
    """The source of a query that a caller gives as a text, or as a source of its own.

    Raises:
        BadRequestError: it is neither.
    """
    if isinstance(text, SourceText):
        return text
    if not isinstance(text, str):
        raise BadRequestError(f"a query is a text, not {type(text).__name__}")
    return SourceText(text, "<query>")


@dataclass(slots=True)
class Findings:
    """Collects the diagnostics of one source text while a compiler walks over it.

    Keeps the first of them and counts the others: a text that is wrong in 30,000 places costs as little as one that is
    wrong in a hundred, and its answer can be read.
    """

    source: SourceText
    items: list[Diagnostic] = field(default_factory=list)
    error_count: int = 0
    warning_count: int = 0

    def error(self, code: str, span: Span, message: str, hint: Hint = None) -> None:
        """Record an error and go on."""
        self.error_count += 1
        if self.error_count <= MAX_DIAGNOSTICS:
            self._keep(code, span, message, hint, Severity.ERROR)

    def add(self, error: Callable[[], Diagnostic]) -> None:
        """Record an error that its finder words itself: asked for only when the finding is kept."""
        self.error_count += 1
        if self.error_count <= MAX_DIAGNOSTICS:
            self.items.append(error())

    def warning(self, code: str, span: Span, message: str, hint: Hint = None) -> None:
        """Record a warning and go on."""
        self.warning_count += 1
        # Counted apart: however many warnings there are, they never take the place of an error.
        if self.warning_count <= MAX_DIAGNOSTICS:
            self._keep(code, span, message, hint, Severity.WARNING)

    def _keep(self, code: str, span: Span, message: str, hint: Hint, severity: Severity) -> None:
        found = hint() if callable(hint) else hint
        text = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
        self.items.append(self.source.diagnostic(code, span, text, hint=found, severity=severity))

    def mark(self) -> tuple[int, int, int]:
        """The current position, to be given to `forget`."""
        return len(self.items), self.error_count, self.warning_count

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Drop everything that was recorded after a mark."""
        length, self.error_count, self.warning_count = mark
        del self.items[length:]

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The errors alone, in the order of the checks."""
        return tuple(item for item in self.items if item.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings alone, in the order of the checks."""
        return tuple(item for item in self.items if item.severity is Severity.WARNING)

    def raise_errors(self) -> None:
        """Raise one `CompilerError` with the first errors and the number of all, if there are any."""
        if errors := self.errors:
            raise CompilerError(errors, total=self.error_count)


def read_source(path: str | Path, *, code: str) -> SourceText:
    """Read a source file.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: the file is not UTF-8, or is larger than `MAX_SOURCE_BYTES`; the finding carries `code`.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise InputFileError(name, reason or str(cause)) from cause
    return decode_source(data, name, code=code)


def decode_source(data: bytes, name: str, *, code: str) -> SourceText:
    """The text of bytes that were read; `name` is where they come from.

    Raises:
        CompilerError: they are not UTF-8, or more than `MAX_SOURCE_BYTES`; the finding carries `code`.
    """
    if len(data) > MAX_SOURCE_BYTES:
        _refuse(code, SourceText("", name), _too_large())
    body = data.removeprefix(codecs.BOM_UTF8)
    try:
        return SourceText(body.decode(), name)
    except UnicodeDecodeError as cause:
        readable = SourceText(body[: cause.start].decode("utf-8", "replace"), name)
        place = Span(len(readable.text), len(readable.text))
        offset = cause.start + len(data) - len(body)
        finding = readable.diagnostic(
            code,
            place,
            f"the file is not UTF-8: byte 0x{data[offset]:02x} at offset {offset}",
            hint="save the file as UTF-8",
        )
        raise CompilerError((finding,)) from cause


def check_readable(source: SourceText, code: str) -> None:
    """Refuse a text that no parser should see: too large, with NUL characters, too long or too deep.

    Raises:
        CompilerError: with one finding that carries `code`.
    """
    text = source.text
    try:
        is_large = len(text) > MAX_SOURCE_BYTES or len(text.encode()) > MAX_SOURCE_BYTES
    except UnicodeEncodeError as cause:
        place = Span(cause.start, cause.start + 1)
        _refuse(code, source, "the text holds half a surrogate pair, not a character", place)
    if is_large:
        _refuse(code, source, _too_large())
    if (offset := text.find("\0")) >= 0:
        _refuse(code, source, "the text holds a NUL character", Span(offset, offset + 1))
    if len(text) > MAX_TOKENS:
        _check_tokens(source, code)
    if sum(map(text.count, "{([")) > MAX_NESTING:
        _check_nesting(source, code)


def _check_tokens(source: SourceText, code: str) -> None:
    """Count what a parser would have to read, at a fraction of its cost."""
    for number, match in enumerate(_TOKEN.finditer(source.text)):
        if number >= MAX_TOKENS:
            message = (
                f"the text has more than {MAX_TOKENS:,} words and signs, the limit of a source: "
                "pass long lists as parameters, load data from files, or split the text"
            )
            _refuse(code, source, message, Span(*match.span()))


def _check_nesting(source: SourceText, code: str) -> None:
    depth = 0
    for match in _OPAQUE_OR_BRACKET.finditer(source.text):
        if match["open"]:
            depth += 1
            if depth > MAX_NESTING:
                _refuse(code, source, f"brackets nest deeper than {MAX_NESTING} levels", Span(*match.span()))
        elif match["close"]:
            depth = max(0, depth - 1)


def _refuse(code: str, source: SourceText, message: str, span: Span = _BEGINNING) -> NoReturn:
    raise CompilerError((source.diagnostic(code, span, message),))


def _too_large() -> str:
    return f"the text is larger than {MAX_SOURCE_BYTES // (1024 * 1024)} MiB, the limit of a source file"


def _printable(text: str) -> str:
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char == "\t":
        return _TAB
    return char if char.isprintable() else "·"


def _cells(text: str) -> int:
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if char == "\t":
        return len(_TAB)
    if unicodedata.combining(char):
        return 0
    if not char.isprintable():
        return 1
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
