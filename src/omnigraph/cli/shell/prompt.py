"""The prompt: entry of several lines, completion, history. The only module that imports prompt_toolkit."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import ColorDepth, Output, create_output

from omnigraph.cli.console import print_warning, unguarded
from omnigraph.cli.shell.commands import COMMANDS, command_of
from omnigraph.cli.shell.pieces import DOT, Pieces, cut, is_complete
from omnigraph.cli.shell.session import Session, cancelling
from omnigraph.core.env_settings import Variable
from omnigraph.errors import OmniError
from omnigraph.errors.text import printable
from omnigraph.lang.query.describe.completion import completions
from omnigraph.lang.query.syntax.parser import keywords

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input

# ---- The loop


def converse(session: Session, name: str, *, terminal_input: Input | None = None, output: Output | None = None) -> None:
    """Read pieces at a prompt and run them, until the person leaves."""
    prompt = _prompt(session, terminal_input, output or _terminal_output())
    while not session.is_over:
        try:
            with _taking_sigterm():
                text = prompt.prompt(lambda: _label(session, name))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        except _SigtermReceived:
            # To the handler of the process, now that the terminal is as it was.
            signal.raise_signal(signal.SIGTERM)
            return
        with cancelling():
            for piece in cut(text):
                if session.attempt(piece) or session.is_over:
                    break


def _prompt(session: Session, terminal_input: Input | None, output: Output) -> PromptSession[str]:
    has_color = session.form.color != "never" and not os.environ.get("NO_COLOR")
    return PromptSession(
        multiline=True,
        key_bindings=_keys(),
        completer=ShellCompleter(session),
        lexer=TextColors(),
        complete_while_typing=False,
        history=EntryHistory(history_file()),
        prompt_continuation=lambda width, _line, _wraps: "...> ".rjust(width),
        color_depth=None if has_color else ColorDepth.DEPTH_1_BIT,
        input=terminal_input,
        output=output,
    )


def _label(session: Session, name: str) -> FormattedText:
    return FormattedText([("bold", printable(name)), ("", f" {printable(str(session.place))}> ")])


def _terminal_output() -> Output:
    """The terminal: standard error where standard output goes elsewhere."""
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    return create_output(stdout=unguarded(stream))


class _SigtermReceived(Exception):
    """SIGTERM came while the prompt waited; never leaves this module."""


@contextmanager
def _taking_sigterm() -> Iterator[None]:
    """While the prompt waits, let SIGTERM end it first: so the terminal is as it was before.

    Raises:
        _SigtermReceived: it came.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def end(_number: int, _frame: FrameType | None) -> None:
        app = get_app_or_none()
        if app is not None and app.is_running:
            app.exit(exception=_SigtermReceived())

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- Keys


def _keys() -> KeyBindings:
    """Enter runs what is complete, and begins a new line otherwise; Alt-Enter always begins one."""
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=True)

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=True)

    @keys.add("tab")
    def complete(event: KeyPressEvent) -> None:
        buffer: Buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
        elif not buffer.document.current_line_before_cursor.strip() and "\n" in buffer.text:
            buffer.insert_text("  ")
        else:
            _complete(buffer)

    return keys


def _complete(buffer: Buffer) -> None:
    """Insert what all completions have in common at once: what is typed meanwhile stands behind it. Show the rest."""
    document = buffer.document
    found = list(buffer.completer.get_completions(document, CompleteEvent(completion_requested=True)))
    if len(found) == 1:
        buffer.apply_completion(found[0])
    elif common := get_common_complete_suffix(document, found):
        buffer.insert_text(common)
    elif found:
        buffer.start_completion(select_first=False)


# ---- Completion


class ShellCompleter(Completer):
    """Completes commands and what stands behind them, and texts by the schema of the state that is read."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The words that may stand at the cursor."""
        before = _last_piece(document.text_before_cursor)
        word, blank, rest = before.partition(" ")
        if not before.startswith(DOT):
            yield from self._of_text(before, document.text_after_cursor)
        elif not blank:
            found = ((f"{DOT}{name}", command.help) for name, command in COMMANDS.items())
            yield from _beginning(before, found)
        elif word == ".explain":
            text = rest.lstrip().removeprefix("--analyze")
            yield from self._of_text(text.lstrip(), document.text_after_cursor)
        elif word == ".read":
            yield from _beginning(rest, ((path, "") for path in _paths(rest)))
        elif (command := command_of(word)) is not None:
            typed = rest.rpartition(" ")[2]
            try:
                words = list(command.words(self._session))
            except OmniError:
                # A server that cannot be reached has no words; running the command says why.
                return
            yield from _beginning(typed, ((item, "") for item in words))

    def _of_text(self, before: str, after: str) -> Iterator[Completion]:
        found = completions(before, after, self._session.catalog, self._session.parameters)
        for item in found.items:
            yield Completion(item.word, found.start - len(before), display_meta=item.meaning)


def _last_piece(text: str) -> str:
    """The piece that is being typed at the end of a text."""
    pieces, begin = Pieces(), 0
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        for _ in pieces.feed(line):
            begin = number
        if not pieces.is_open:
            begin = number
    return "\n".join(lines[begin:]).lstrip()


def _beginning(typed: str, words: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    return (
        Completion(word, -len(typed), display=printable(word), display_meta=meaning)
        for word, meaning in words
        if word.startswith(typed)
    )


def _paths(typed: str) -> list[str]:
    """The files and folders that a path may go on to."""
    folder, slash, _ = typed.rpartition("/")
    try:
        with os.scandir(os.path.expanduser(f"{folder}{slash}") or ".") as found:
            names = sorted(f"{item.name}{'/' if item.is_dir() else ''}" for item in found)
    except OSError:
        return []
    return [f"{folder}{slash}{name}" for name in names if not name.startswith(".")]


# ---- Colours


#: Parts of a text by their styles; words are looked at again.
_PARTS = re.compile(
    r"(?P<comment>//[^\n]*|/\*(?:.*?\*/|.*))"
    r'|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))'
    r"|(?P<command>^\s*\.\w+)|(?P<variable>\$\w+)|(?P<word>@?[A-Za-z_]\w*)",
    re.DOTALL | re.MULTILINE,
)
_STYLES = {"comment": "ansibrightblack", "string": "ansigreen", "command": "bold", "variable": "ansicyan", "word": ""}


class TextColors(Lexer):
    """Shows keywords, variables, strings and comments in their styles."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The styled lines of a text."""
        lines = list(split_lines(_styled(document.text)))
        return lambda number: lines[number] if number < len(lines) else []


def _styled(text: str) -> StyleAndTextTuples:
    parts: StyleAndTextTuples = []
    known, place = frozenset(keywords().values()) if text else frozenset(), 0
    for match in _PARTS.finditer(text):
        style = "bold" if match["word"] in known else _STYLES[match.lastgroup or "word"]
        parts += [("", text[place : match.start()]), (style, match[0])]
        place = match.end()
    return [*parts, ("", text[place:])]


# ---- History


_HISTORY = Variable(
    "OMNIGRAPH_HISTORY",
    "The file in which the shell keeps what was typed, for the user alone; `off` keeps nothing.",
    default="`~/.local/state/omnigraph/history`, or below `XDG_STATE_HOME`",
    values="a file, or `off`",
)
_OFF = "off"
#: Entries that are kept; the file is cut back to them when it holds twice as many.
_KEPT = 5_000
_SEPARATOR = "\0"


def history_file() -> Path | None:
    """The file of the history; None where none is kept."""
    chosen = _HISTORY.text()
    if chosen == _OFF:
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME")
    # Unlike `Path.home`, this goes on for a user without a home, as in some containers.
    return Path(base or os.path.expanduser("~/.local/state")) / "omnigraph" / "history"


class EntryHistory(History):
    """What was typed, in a file that only its user may read. A line that begins with a blank is not kept.

    Several shells may write to it at a time: each entry is appended in one piece.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterator[str]:
        """The entries, newest first."""
        if self._path is None:
            return
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        entries = [entry for entry in text.split(_SEPARATOR) if entry]
        if len(entries) > 2 * _KEPT:
            entries = entries[-_KEPT:]
            self._write("".join(f"{entry}{_SEPARATOR}" for entry in entries), os.O_TRUNC)
        yield from reversed(entries)

    def append_string(self, string: str) -> None:
        """Keep an entry, unless it begins with a blank or repeats the last one."""
        if string.strip() and not string[0].isspace() and string != next(iter(reversed(self.get_strings())), None):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Append an entry to the file."""
        self._write(f"{string.replace(_SEPARATOR, '')}{_SEPARATOR}", os.O_APPEND)

    def _write(self, text: str, how: int) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)
                file.write(text)
        except OSError as error:
            print_warning(f"the history is not kept: {self._path}: {error.strerror or error}")
            self._path = None
