"""The executable: arguments before parsing, commands, and exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from omnigraph.cli.capabilities import legend
from omnigraph.cli.commands import data, demo, embed, history, maintenance, query, schema, serving, setup, show
from omnigraph.cli.flags import GRAPH_ID
from omnigraph.cli.output import (
    INTERRUPTED,
    Interrupts,
    guarded_streams,
    print_error,
    print_json,
    print_warning,
    taking_interrupts,
)
from omnigraph.cli.scoped import use_scoped_commands
from omnigraph.core.env_settings import Variable
from omnigraph.errors import OmniError, is_panic

_DEBUG = Variable("OMNIGRAPH_DEBUG", "Prints the stack trace of an internal error.", default="off", values="`1`")

# ---- Normalising the arguments


#: Old spellings of commands, rewritten before parsing.
_RENAMED = {
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
    ("change",): ("mutate",),
    ("read",): ("query",),
}

#: Flags that may stand before the command as well; with the number of words they take.
_GLOBAL = {
    "--as": 2,
    "--server": 2,
    "--cluster": 2,
    "--graph": 2,
    "--store": 2,
    "--profile": 2,
    "--json": 1,
    "--yes": 1,
    "--quiet": 1,
}
#: What ends the flags: everything behind it is an argument.
_END = "--"


def arranged(words: list[str], groups: Collection[str]) -> list[str]:
    """The command first, in its present spelling, and the global flags that stood before or within it behind it.

    `groups` are the commands that have commands below them.

    >>> arranged(["--store", "g.omni", "branch", "--json", "list"], {"branch"})
    ['branch', 'list', '--store', 'g.omni', '--json']
    """
    flags, words = _leading_flags(words)
    command, words = words[:1], words[1:]
    if command and command[0] in groups:
        within, words = _leading_flags(words)
        flags += within
        # A group is followed by a command, unless it is asked for its help.
        if words and not words[0].startswith("-"):
            command.append(words.pop(0))
    for old, new in _RENAMED.items():
        found = [*command, *words][: len(old)]
        if tuple(found) == old:
            print_warning(f"`{' '.join(old)}` is deprecated: use `{' '.join(new)}`")
            words = [*command, *words][len(old) :]
            command = list(new)
            break
    return [*command, *flags, *words]


def wants_json(words: list[str]) -> bool:
    """Whether a program reads the output, also that of a wrong command line."""
    end = words.index(_END) if _END in words else len(words)
    return "--json" in words[:end]


def _leading_flags(words: list[str]) -> tuple[list[str], list[str]]:
    """The global flags at the beginning, and the rest."""
    flags: list[str] = []
    while words and (name := words[0].partition("=")[0]) in _GLOBAL:
        count = _GLOBAL[name] if name == words[0] else 1
        # Behind some commands `--graph` is a switch; here it is always the graph of a server.
        first = words[0].replace("--graph", GRAPH_ID, 1) if name == "--graph" else words[0]
        flags += [first, *words[1:count]]
        words = words[count:]
    return flags, words


# ---- The `omnigraph` executable


app = typer.Typer(
    name="omnigraph",
    help="A typed property graph on Lance datasets, with branches, merges, history and time travel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=legend(),
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command("init")(schema.init)
app.command("load")(data.load)
app.command("ingest", hidden=True)(data.ingest)
app.command("mutate")(query.mutate)
app.command("query")(query.query)
app.command("show")(show.show)
app.command("export")(data.export)
app.command("snapshot")(history.snapshot)
app.command("diff")(history.diff)
app.command("log")(history.log)
app.command("embed")(embed.embed)
app.command("optimize")(maintenance.optimize)
app.command("cleanup")(maintenance.cleanup)
app.command("repair")(maintenance.repair)
app.command("doctor")(maintenance.doctor)
app.command("verify")(maintenance.verify)
app.command("version")(setup.version)
app.command("lint")(query.lint)
app.command("explain")(query.explain)
app.command("demo")(demo.demo)
app.command("mcp")(serving.mcp)
app.command("alias")(query.alias)
app.command("login")(setup.login)
app.command("logout")(setup.logout)
app.add_typer(schema.app, name="schema")
app.add_typer(data.app, name="blob")
app.add_typer(history.branch_app, name="branch")
app.add_typer(history.commit_app, name="commit")
app.add_typer(history.changes_app, name="changes")
app.add_typer(maintenance.app, name="recovery")
app.add_typer(serving.queries_app, name="queries")
app.add_typer(serving.policy_app, name="policy")
app.add_typer(serving.graphs_app, name="graphs")
app.add_typer(setup.app, name="profile")

use_scoped_commands(app)

#: Commands that have commands below them.
_GROUPS = frozenset(group.name for group in app.registered_groups if isinstance(group.name, str))


def _print_version(requested: bool) -> None:
    if requested:
        setup.show_version()
        raise typer.Exit


@app.callback()
def _global_options(
    _version: Annotated[
        bool, typer.Option("--version", "-v", callback=_print_version, is_eager=True, help="print the release")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    if arguments is not None:
        with guarded_streams():
            _run(list(arguments), Interrupts())
        return
    # The process is that of the command.
    with taking_interrupts() as interrupts, guarded_streams():
        _run(sys.argv[1:], interrupts)


def _run(words: list[str], interrupts: Interrupts) -> None:
    words = arranged(words, _GROUPS)
    as_json = wants_json(words)
    try:
        # Standing alone, it prints wrong command lines itself, for people.
        code = app(args=words, prog_name="omnigraph", standalone_mode=not as_json)
        sys.exit(code or 0)
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        _print_interrupt(end, interrupts, as_json=as_json)
        sys.exit(interrupts.exit_code)
    except TyperException as error:
        message = error.format_message().removeprefix("Invalid value: ")
        print_json({"error": message, "kind": "usage", "code": "bad_request"})
        sys.exit(error.exit_code)
    except typer.Abort:
        print_warning("aborted: there was nothing more to read")
        sys.exit(1)
    except OmniError as error:
        print_error(error, as_json=as_json)
        # A signal to the whole group ends Spark too, and its failure may come first.
        sys.exit(error.exit_code if interrupts.stopped_by is None else interrupts.exit_code)
    except BaseException as error:
        # The outermost edge: a person never sees a stack trace unasked.
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if _DEBUG.text():
            traceback.print_exc()
        else:
            print_warning(f"internal error: {error!r} (set OMNIGRAPH_DEBUG=1 for the stack trace)")
        sys.exit(1)


def _print_interrupt(end: BaseException, interrupts: Interrupts, *, as_json: bool) -> None:
    """One sentence about work that Ctrl-C or another signal stopped, with what it says about itself."""
    cause: BaseException | None = end
    # With --json Typer gives a code instead of what was raised.
    notes = list(interrupts.notes)
    while cause is not None:
        notes += getattr(cause, "__notes__", [])
        cause = cause.__cause__ or cause.__context__
    sentence = "; ".join([interrupts.sentence, *dict.fromkeys(notes)])
    if as_json:
        print_json({"error": sentence, "kind": "interrupted", "code": "cancelled"})
    else:
        print_warning(sentence)
