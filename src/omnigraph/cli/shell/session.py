"""One use of the shell: where it reads and writes, how it prints, and what runs a piece."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.api.reading_api import TargetKeywords
from omnigraph.cli.console import (
    Interrupts,
    notes_of,
    print_error,
    print_internal_error,
    print_json,
    print_lines,
    print_warning,
)
from omnigraph.cli.input import GivenParameters, confirmed, parameters_of
from omnigraph.cli.rendering import receipt_lines
from omnigraph.cli.rows import RowForm, RowFormat, print_rows
from omnigraph.cli.screen import print_pages
from omnigraph.cli.shell.pieces import Piece
from omnigraph.cli.tables import TableLayout
from omnigraph.core.ids import short_id
from omnigraph.core.source import SourceText, with_hint
from omnigraph.errors import BadRequestError, CompilerError, NotFoundError, OmniError, ParameterError
from omnigraph.lang.query.syntax.ast import MutationBody
from omnigraph.lang.query.syntax.parser import parse_queries, progress_of

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.api.results import MutationResult
    from omnigraph.lang.schema.catalog import Catalog

#: What commands and texts are called in messages.
SOURCE = "<query>"
_WRITE_OUTCOME = "`.log` shows whether it was written"


@dataclass(slots=True)
class Place:
    """The state that texts read: the head of a branch, or a commit."""

    branch: str = "main"
    commit: str | None = None

    @property
    def keywords(self) -> TargetKeywords:
        """The state as methods take it."""
        return {"branch": self.branch} if self.commit is None else {"snapshot": self.commit}

    @property
    def reference(self) -> str:
        """The state as a branch or a commit."""
        return self.branch if self.commit is None else self.commit

    def __str__(self) -> str:
        return self.branch if self.commit is None else f"@{short_id(self.commit)}"


@dataclass(kw_only=True)
class Session:
    """A graph, and everything that commands change."""

    graph: GraphApi
    form: RowForm
    layout: TableLayout = field(default_factory=TableLayout)
    actor: str | None = None
    timeout_s: float | None = None
    #: Whether a mutation that changes much asks first.
    asks: bool = False
    quiet: bool = False
    place: Place = field(default_factory=Place)
    parameters: dict[str, str] = field(default_factory=dict)
    shows_time: bool = False
    #: The text that was run last.
    last_text: str = ""
    is_over: bool = False
    #: The files that `.read` is in the middle of.
    reading: list[Path] = field(default_factory=list)
    keeps_going: bool = False
    #: Runs a command by its words.
    commands: Callable[[Session, Piece], None]

    # ---- where it is

    def use(self, name: str) -> None:
        """Read and write a branch from now on, or read a commit.

        Raises:
            NotFoundError: there is neither.
        """
        branches = self.graph.branches()
        if name in branches:
            self.place = Place(name)
        else:
            try:
                self.place = Place(self.place.branch, self.graph.commit(name).commit_id)
            except NotFoundError:
                message = with_hint(f"there is neither a branch nor a commit `{name}`", name, branches)
                raise BadRequestError(message) from None
        self.forget()

    @cached_property
    def catalog(self) -> Catalog | None:
        """The schema of the state that is read, kept while nothing runs; None where it cannot be had."""
        try:
            return self.graph.catalog(**self.place.keywords)
        except OmniError:
            return None

    def forget(self) -> None:
        """Look the schema up again when it is needed next: another process may have changed it."""
        self.__dict__.pop("catalog", None)

    # ---- pieces

    def attempt(self, piece: Piece) -> int:
        """Run a piece; what went wrong is printed, and its exit code is the answer.

        Raises:
            KeyboardInterrupt: it was stopped; its notes say what is left.
        """
        begin, is_timed = time.monotonic(), self.shows_time
        try:
            self._run(piece)
        except OmniError as error:
            print_error(error, as_json=False)
            return error.exit_code
        except click.ClickException as error:
            print_warning(error.format_message())
            return error.exit_code
        except Exit as end:
            return end.exit_code
        except BaseException as error:  # a defect ends the text, not the shell
            if not print_internal_error(error):
                raise
            return 1
        finally:
            self.forget()
        if is_timed:
            print_warning(f"time: {1_000 * (time.monotonic() - begin):,.1f} ms")
        return 0

    def run_all(self, pieces: Iterable[Piece], name: str) -> int:
        """Run pieces of a file to the first that fails, or all of them where it keeps going.

        The answer is the exit code of the first that failed; 0 when none did.
        """
        first = 0
        for piece in pieces:
            if code := self.attempt(piece):
                print_warning(f"in line {piece.line} of {name}")
                first = first or code
                if not self.keeps_going:
                    break
            if self.is_over:
                break
        return first

    def _run(self, piece: Piece) -> None:
        if piece.command:
            self.commands(self, piece)
        else:
            self.run_text(piece.text)
        sys.stdout.flush()

    def run_text(self, text: str) -> None:
        """Run every query of a text, one after the other.

        Raises:
            OmniError: one of them fails.
        """
        source = SourceText(text, SOURCE)
        try:
            queries = parse_queries(source).queries
        except CompilerError as error:
            if (hint := _meant_command(text) or _meant_text(self.last_text, text)) is None:
                raise
            raise BadRequestError(hint) from error
        self.last_text = text
        for query in queries:
            name = None if query.is_bare else query.name
            if isinstance(query.body, MutationBody):
                self._mutate(source, name)
            else:
                self._query(source, name)

    def explain(self, text: str, *, analyze: bool) -> Iterator[str]:
        """The lines of the plan of a text."""
        if self.place.commit is not None:
            raise BadRequestError("a plan is that of a branch: go to one with `.use BRANCH`")
        source = SourceText(text, SOURCE)
        for query in parse_queries(source).queries:
            name = None if query.is_bare else query.name
            values = self._values(source, name)
            plan = self.graph.explain(
                source, values, name=name, branch=self.place.branch, analyze=analyze, timeout_s=self.timeout_s
            )
            yield from plan.splitlines()

    def _query(self, source: SourceText, name: str | None) -> None:
        with self._asking_for_parameters():
            values = self._values(source, name)
            result = self.graph.query(source, values, name=name, timeout_s=self.timeout_s, **self.place.keywords)
        print_rows(result, self.form, self.layout, quiet=self.quiet)

    def _mutate(self, source: SourceText, name: str | None) -> None:
        if self.place.commit is not None:
            raise BadRequestError("a commit never changes: go to a branch with `.use BRANCH`")

        def change(bound: int | None) -> MutationResult:
            branch, actor = self.place.branch, self.actor
            return self.graph.mutate(source, values, name=name, branch=branch, actor=actor, max_affected=bound)

        try:
            with self._asking_for_parameters():
                values = self._values(source, name)
                result = confirmed(change, asks=self.asks)
        except KeyboardInterrupt as stop:
            if not hasattr(stop, "__notes__"):
                stop.add_note(_WRITE_OUTCOME)
            raise
        self._print_receipt(result)

    def _print_receipt(self, result: MutationResult) -> None:
        match self.form.format:
            case RowFormat.JSON:
                print_json(result.to_json())
            case RowFormat.JSONL:
                print_lines([json.dumps(result.to_json(), ensure_ascii=False)])
            case RowFormat.CSV:
                # Standard output holds rows only.
                print_warning("\n".join(receipt_lines(result)))
            case _:
                print_lines(receipt_lines(result))

    def _values(self, source: SourceText, name: str | None) -> dict[str, object]:
        """The parameters that a query declares, of those that are set."""
        if not self.parameters:
            return {}
        declared = parameters_of(self.graph, source, name, **self.place.keywords)
        texts = {item.name: self.parameters[item.name] for item in declared if item.name in self.parameters}
        return GivenParameters({}, texts).typed(lambda: declared, name)

    @contextmanager
    def _asking_for_parameters(self) -> Iterator[None]:
        """Say behind a failure of parameters how they are set."""
        try:
            yield
        except ParameterError as error:
            print_error(error, as_json=False)
            print_warning("set parameters with `.param NAME=VALUE`")
            raise Exit(error.exit_code) from None

    # ---- printing

    def print(self, lines: Iterator[str]) -> None:
        """Print lines for people, through their pager when there are many."""
        print_pages(lines, is_allowed=self.form.is_paged)


#: What people type who come from other shells.
_COMMAND_WORDS = {"exit": "quit", "quit": "quit", "q": "quit", "help": "help", "h": "help", "d": "schema", "?": "help"}


def _meant_command(text: str) -> str | None:
    """What to type instead, where a text is a word that means a command in other shells."""
    word = text.strip().removeprefix("\\").rstrip(";")
    meant = _COMMAND_WORDS.get(word)
    return None if meant is None else f"commands begin with a dot: `.{meant}`"


def _meant_text(last: str, text: str) -> str | None:
    """What to type instead, where a text is the rest of the one before it: `limit 3` came behind a complete text."""
    if not last or progress_of(text).failed_at != 0 or not progress_of(f"{last}\n{text}").is_whole:
        return None
    return "this goes on with the text before it: bring that back with ↑, and begin a new line in it with Alt-Enter"


# ---- Ctrl-C


@contextmanager
def cancelling() -> Iterator[None]:
    """Let Ctrl-C stop what runs in the block, and say so in a sentence; the block ends, and the shell goes on."""
    if current_thread() is not main_thread():
        yield
        return
    interrupts = Interrupts()
    before = signal.signal(signal.SIGINT, interrupts)
    try:
        with interrupts.raising_lost():
            yield
    except KeyboardInterrupt as stop:
        if interrupts.stopped_by is None:
            # Another signal, which ends the process.
            raise
        print_warning(", ".join(["cancelled", *notes_of(stop)]))
    finally:
        signal.signal(signal.SIGINT, before)
