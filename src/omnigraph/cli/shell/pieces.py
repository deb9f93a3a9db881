"""What is typed as pieces that run one after the other: commands, and texts of queries.

A text ends with the line at whose end its brackets are closed and it parses, with a `;`, or with an empty line outside
of brackets. The next line may still belong to it: one that begins no text itself, as `limit 3`, goes on with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from omnigraph.core.source import SourceText
from omnigraph.errors import CompilerError
from omnigraph.frozen import frozen
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries, progress_of

#: Commands begin with it; no text does.
DOT = "."
#: Commands behind which a text stands, which may have several lines.
_WITH_TEXT = re.compile(r"\.explain(?:\s+--analyze)?(?=\s+\S)")
_PART = re.compile(r'"|//|/\*|[{(\[]|[})\]]|;|[^\s"/{}()\[\];]+|/')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)


@frozen
class Piece:
    """A command, a text, or a command with the text behind it."""

    #: The line it begins in, counted from 1.
    line: int
    command: str = ""
    text: str = ""


class Pieces:
    """Cuts lines into pieces as they come. Not thread-safe."""

    def __init__(self) -> None:
        self._number = 0
        self._clear()

    def _clear(self) -> None:
        self._text, self._command, self._begin = "", "", 0
        self._depth = 0
        #: What a string or a comment that is open ends with.
        self._closing = ""
        #: Whether the text is one unless the next line goes on with it.
        self._may_end = False

    @property
    def is_open(self) -> bool:
        """Whether a text has begun that needs more lines."""
        return bool(self._begin or self._closing) and not self._may_end

    @property
    def lacks_condition(self) -> bool:
        """Whether the text may end by the grammar, and its last statement needs a `where` still: as `delete Person`."""
        if not self._may_end:
            return False
        try:
            queries = parse_queries(SourceText(self._text)).queries
        except CompilerError:
            return False
        body = queries[-1].body if queries else None
        last = body.statements[-1] if isinstance(body, ast.MutationBody) else None
        if not isinstance(last, ast.Update | ast.Delete) or not isinstance(last.target, ast.TypeName):
            return False
        return last.condition is None

    def feed(self, line: str) -> Iterator[Piece]:
        """Add a line; gives the pieces that it ends."""
        self._number += 1
        line = line.rstrip("\r\n") + "\n"
        if self._may_end and not self._goes_on_with(line):
            yield self._piece()
        if not line.strip() and self._begin and self._depth <= 0 and not self._closing:
            yield self._piece()
            return
        rest: str | None = line
        while rest is not None:
            if not self._begin and not self._closing and rest.lstrip().startswith(DOT):
                stripped = rest.strip()
                command = _WITH_TEXT.match(stripped)
                if command is None:
                    yield Piece(self._number, stripped.rstrip("; \t"))
                    return
                self._command, self._begin = command[0], self._number
                rest = f"{stripped[command.end() :].lstrip()}\n"
            end = self._scan(rest)
            if end is not None and self._begin:
                yield self._piece()
            rest = None if end is None else rest[end:]
        if not self._begin and not self._closing:
            # Only blanks and comments: they belong to no text.
            self._text = ""
        elif self._begin and self._depth <= 0 and not self._closing:
            self._may_end = _may_end(self._text)

    def end(self) -> Iterator[Piece]:
        """There are no more lines; gives the text that was left open, if any."""
        if self._begin:
            yield self._piece()

    def _goes_on_with(self, line: str) -> bool:
        """Whether a line belongs to the text before it, which could end here: it begins nothing else."""
        if not line.strip() or line.lstrip().startswith(DOT):
            return False
        if line.lstrip().startswith((";", "//")):
            return True
        start = len(line) - len(line.lstrip())
        try:
            if progress_of(line).failed_at != start:
                return False
            return progress_of(self._text + line).failed_at != len(self._text) + start
        except CompilerError:
            return False

    def _scan(self, line: str) -> int | None:
        """Take a line, or its part up to a `;`; then the place behind it."""
        place = 0
        while place < len(line):
            if self._closing:
                place = self._closed(line, place)
                continue
            part = _PART.search(line, place)
            if part is None or part[0] == "//":
                break
            found, place = part[0], part.end()
            if found == ";":
                self._text += line[: part.start()]
                return place
            if found == "/*":
                self._closing = "*/"
                continue
            self._begin = self._begin or self._number
            if found == '"':
                self._closing = found
            elif found in "{([":
                self._depth += 1
            elif found in "})]":
                self._depth -= 1
        self._text += line
        return None

    def _closed(self, line: str, place: int) -> int:
        """Where the open string or comment ends, or the line."""
        if self._closing == '"':
            match = _STRING_END.match(line, place)
            end = -1 if match is None else match.end()
        else:
            found = line.find(self._closing, place)
            end = -1 if found < 0 else found + len(self._closing)
        if end < 0:
            return len(line)
        self._closing = ""
        return end

    def _piece(self) -> Piece:
        piece = Piece(self._begin, self._command, self._text.strip())
        self._clear()
        return piece


def _may_end(text: str) -> bool:
    """Whether a text with closed brackets is whole, or wrong in a way that more lines would not mend."""
    try:
        progress = progress_of(text)
    except CompilerError:
        return True
    return progress.is_whole or progress.failed_at is not None


def cut(text: str) -> list[Piece]:
    """All pieces of a text."""
    pieces = Pieces()
    found = [piece for line in text.split("\n") for piece in pieces.feed(line)]
    return [*found, *pieces.end()]


def is_complete(text: str) -> bool:
    """Whether what stands at a prompt runs when Enter is pressed: nothing in it waits for more, or it ends itself.

    An empty line ends any text, also one with open brackets: so a person gets to see what is wrong with it.

    >>> is_complete("match { $p: Person }"), is_complete("match { $p: Person } return { $p }"), is_complete(".help")
    (False, True, True)
    """
    pieces = Pieces()
    lines = text.split("\n")
    for line in lines:
        for _ in pieces.feed(line):
            pass
    is_settled = not pieces.is_open and not pieces.lacks_condition
    return is_settled or (len(lines) > 1 and not lines[-1].strip())
