"""`omnigraph shell`: queries and mutations at a prompt, or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Option
from omnigraph.cli.commands.query import table_layout
from omnigraph.cli.console import print_warning
from omnigraph.cli.flags import Quiet, ReadBranch, SnapshotId, Timeout
from omnigraph.cli.input import ASK_ABOVE, STDIN_NAME, Param, assignments
from omnigraph.cli.rows import RowFlags
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.core.ids import DEFAULT_GRAPH
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.cli.shell.pieces import Piece


@scoped("shell")
def shell(
    address: Address,
    *,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    param: Param = None,
    rows: RowFlags,
    timeout: Timeout = None,
    read_only: Annotated[bool, Option("--read-only", help="refuse mutations")] = False,
    keep_going: Annotated[
        bool, Option("--keep-going", help="from standard input: go on behind a failure; the first one's exit code")
    ] = False,
    yes: Annotated[
        bool, Option("--yes", help=f"change more than {ASK_ABOVE:,} nodes and edges without being asked")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Query and change a graph at a prompt, with completion and history; `.help` lists its commands.

    Commands and texts that come from a pipe or a file run one after the other, to the first that fails.
    """
    from omnigraph.cli.shell.commands import run_command
    from omnigraph.cli.shell.session import Session

    if branch is not None and snapshot is not None:
        raise click.BadParameter("give one of --branch and --snapshot")
    defaults, actor = address.config.defaults, None if read_only else address.actor
    form = rows.form(defaults.output, json=False)
    is_interactive = sys.stdin.isatty()
    with address.open(read_only=read_only) as graph:
        session = Session(
            graph=graph,
            form=replace(form, more_rows="`.limit N`", all_columns="`.mode kv`"),
            layout=table_layout(defaults),
            actor=actor,
            timeout_s=timeout,
            asks=is_interactive and sys.stderr.isatty() and not yes,
            quiet=quiet,
            parameters=assignments(param or []),
            keeps_going=keep_going,
            commands=run_command,
        )
        if (place := branch or snapshot) is not None:
            session.use(place)
        if not is_interactive:
            if code := session.run_all(_pieces(), STDIN_NAME):
                raise Exit(code)
            return
        # Lazy: a script needs no prompt.
        from omnigraph.cli.shell.prompt import converse

        if not quiet:
            print_warning(f"{address.text}: `.help` lists the commands, Ctrl-D leaves")
        converse(session, _short_name(address.text))


def _short_name(text: str) -> str:
    """A graph as the prompt calls it: the end of its address, or the server of a graph that has no name of its own.

    >>> _short_name("data/papers.omni"), _short_name("http://lab:8080/graphs/default")
    ('papers', 'lab:8080')
    """
    text = text.rstrip("/").removesuffix(f"/graphs/{DEFAULT_GRAPH}")
    return text.rpartition("/")[2].removesuffix(".omni") or text


def _pieces() -> Iterator[Piece]:
    """The commands and texts of standard input, as they come."""
    from omnigraph.cli.shell.pieces import Pieces

    pieces = Pieces()
    for number, line in enumerate(getattr(sys.stdin, "buffer", sys.stdin), start=1):
        yield from pieces.feed(_decoded(line, number))
    yield from pieces.end()


def _decoded(line: bytes | str, number: int) -> str:
    if isinstance(line, str):
        return line
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"line {number} of standard input is not UTF-8") from error
