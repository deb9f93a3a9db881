"""The terminal of a person: its size, its colours, and its pager."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import chain, islice
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

from omnigraph.cli.console import print_lines, unguarded
from omnigraph.errors.text import printable
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from rich.text import Text


class Color(StrEnum):
    """Whether colours are used."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@frozen
class Screen:
    """The terminal that a person looks at; `height` is None where nothing is scrolled away."""

    width: int
    height: int | None
    has_color: bool


def terminal(color: Color) -> Screen | None:
    """The terminal behind stdout; None where a program or a file gets what is printed.

    With `Color.ALWAYS` the output is made as for a terminal wherever it goes: for `| less -R`.
    """
    is_terminal = sys.stdout.isatty()
    if not is_terminal and color is not Color.ALWAYS:
        return None
    size = shutil.get_terminal_size()
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    has_color = color is Color.ALWAYS or (color is Color.AUTO and not is_plain)
    return Screen(size.columns, size.lines if is_terminal else None, has_color)


def paged(screen: Screen, lines: Sequence[Text], *, is_allowed: bool = True) -> None:
    """Print lines of styled text, through the pager of the person when they are more than fit on the screen."""
    from rich.console import Console

    sink = io.StringIO()
    system = "standard" if screen.has_color else None
    # What is printed holds no control characters of its own: texts were escaped when they became lines.
    console = Console(file=sink, width=screen.width, force_terminal=screen.has_color, color_system=system)  # type: ignore[arg-type]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
    text = sink.getvalue()
    fits = screen.height is None or len(lines) < screen.height
    pager = None if fits or not is_allowed else _pager()
    if pager is None:
        stream = unguarded(sys.stdout)
        stream.write(text)
        stream.flush()
    else:
        _show_in(pager, (text,))


def print_pages(lines: Iterable[str], *, is_allowed: bool = True) -> None:
    """Print lines for people as they are made, through their pager when they are more than fit on the terminal."""
    screen = terminal(Color.AUTO)
    pager = _pager() if is_allowed and screen is not None and screen.height is not None else None
    if pager is None or screen is None:
        print_lines(lines)
        return
    rest = iter(lines)
    first = list(islice(rest, screen.height))
    if len(first) == screen.height:
        _show_in(pager, (f"{printable(line)}\n" for line in chain(first, rest)))
    else:
        print_lines(first)


def _pager() -> list[str] | None:
    """The command of the pager; None where there is none."""
    words = shlex.split(os.environ.get("PAGER", "less"))
    return None if not words or words == ["cat"] or shutil.which(words[0]) is None else words


def _show_in(words: Sequence[str], texts: Iterable[str]) -> None:
    """Show texts in a pager, which gets them as they are made."""
    sys.stdout.flush()
    # As git does: colours stay, and a text that fits on the screen is only printed.
    settings = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=settings, encoding="utf-8", errors="replace") as pager:
        assert pager.stdin is not None, "made with a pipe"
        with _interrupts_ignored():
            with suppress(BrokenPipeError):  # it was left before the end
                pager.stdin.writelines(texts)
                pager.stdin.close()
            pager.wait()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """While a pager runs, Ctrl-C is for it."""
    if current_thread() is not main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
