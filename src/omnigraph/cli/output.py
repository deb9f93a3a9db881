"""Printing: results on stdout, everything about the run on stderr.

This is the border to the terminal. What is printed for people passes `printable`; while a command runs, so does all
that other libraries print to stderr, and to stdout when that is a terminal. Only data for programs is written as it is,
and only where no terminal reads it.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar, cast

from omnigraph.errors import UnauthorizedError
from omnigraph.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from omnigraph.errors import OmniError

_HOW_TO_LOG_IN = (
    "give a token: `omnigraph login NAME` for a server of your configuration, "
    "or the variable OMNIGRAPH_BEARER_TOKEN"
)

_Item_co = TypeVar("_Item_co", covariant=True)
#: Pieces of a document that are printed together.
_PIECES = 8_192


class PrintableStream:
    """A stream of text that escapes what a terminal would obey; bytes cannot be written to it."""

    def __init__(self, stream: TextIO) -> None:
        #: For what moves the cursor itself.
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self.unguarded.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """There is none: bytes would pass unseen."""
        raise AttributeError("buffer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Let nothing reach a terminal, or stderr, that it would obey."""
    out, err = sys.stdout, sys.stderr
    if out.isatty():
        sys.stdout = cast("TextIO", PrintableStream(out))
    sys.stderr = cast("TextIO", PrintableStream(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def unguarded(stream: TextIO) -> TextIO:
    """The stream below a guarded one, for what draws on the terminal itself."""
    return stream.unguarded if isinstance(stream, PrintableStream) else stream


def print_text(text: str) -> None:
    """Print a result for people."""
    sys.stdout.write(printable(text if text.endswith("\n") else f"{text}\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print a result for people line by line as it is made."""
    for line in lines:
        sys.stdout.write(f"{printable(line)}\n")


def print_data(lines: Iterable[str]) -> None:
    """Print a result for programs line by line, as it is."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def print_json(document: Mapping[str, object]) -> None:
    """Print a result for programs: one pretty-printed JSON document. It is printed as it is made."""
    waiting: list[str] = []
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
        waiting.append(piece)
        if len(waiting) >= _PIECES:
            sys.stdout.write(printable("".join(waiting)))
            waiting.clear()
    print_text("".join(waiting))


class _Streamable(Protocol[_Item_co]):
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[_Item_co]: ...


class StreamedList(list[object]):
    """A list for `print_json` whose items are made one by one while they are printed."""

    def __init__(self, items: _Streamable[_Item_co], to_json: Callable[[_Item_co], object]) -> None:
        super().__init__()
        self._items = items
        self._to_json = to_json

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return map(self._to_json, self._items)


def print_warning(text: str) -> None:
    """Print a warning or an echo line; stdout stays parseable."""
    sys.stderr.write(f"{printable(text)}\n")


def print_error(error: OmniError, *, as_json: bool) -> None:
    """Print a failure: one readable message on stderr, or the error body on stdout."""
    if as_json:
        print_json(error.to_json())
    else:
        print_warning(error.message)
        if isinstance(error, UnauthorizedError):
            print_warning(_HOW_TO_LOG_IN)
