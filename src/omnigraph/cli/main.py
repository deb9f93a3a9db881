"""The executable: arguments before parsing, commands, and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import click
from click.exceptions import Exit

from omnigraph.cli.capabilities import legend
from omnigraph.cli.command_line import COMPLETION
from omnigraph.cli.console import (
    NOTHING_WRITTEN,
    Interrupts,
    guarded_streams,
    notes_of,
    print_error,
    print_internal_error,
    print_json,
    print_warning,
    taking_interrupts,
)
from omnigraph.cli.flags import GRAPH_ID
from omnigraph.cli.scoped import CommandGroup, ScopedCommand
from omnigraph.errors import OmniError

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


#: Where the commands are: module of `cli/commands` and function. One is loaded when it is run, all for the help.
_COMMANDS = {
    "init": "schema.init",
    "infer": "infer.infer",
    "load": "data.load",
    "ingest": "data.ingest",
    "mutate": "query.mutate",
    "query": "query.query",
    "shell": "shell.shell",
    "show": "show.show",
    "export": "data.export",
    "snapshot": "history.snapshot",
    "diff": "history.diff",
    "log": "history.log",
    "embed": "embed.embed",
    "optimize": "maintenance.optimize",
    "cleanup": "maintenance.cleanup",
    "repair": "maintenance.repair",
    "doctor": "maintenance.doctor",
    "verify": "maintenance.verify",
    "version": "setup.version",
    "lint": "query.lint",
    "explain": "query.explain",
    "demo": "demo.demo",
    "mcp": "serving.mcp",
    "alias": "query.alias",
    "login": "setup.login",
    "logout": "setup.logout",
    "completion": "completion.completion",
}
#: Commands that have commands below them.
_GROUPS = {
    "schema": "schema.app",
    "blob": "data.app",
    "branch": "history.branch_app",
    "tag": "history.tag_app",
    "commit": "history.commit_app",
    "changes": "history.changes_app",
    "recovery": "maintenance.app",
    "queries": "serving.queries_app",
    "policy": "serving.policy_app",
    "graphs": "serving.graphs_app",
    "profile": "setup.app",
}
#: Printing the release takes none of them.
_VERSION = ["--version", "-v"]
#: Commands that the help does not list.
_HIDDEN = {"ingest"}


@cache
def app_with(command: str | None = None) -> CommandGroup:
    """The executable with one of its commands, or with all of them."""
    app = CommandGroup(
        "A typed property graph on Lance datasets, with branches, merges, history and time travel.",
        name="omnigraph",
        epilog=legend() if command is None else None,
        context_settings={"help_option_names": ["--help", "-h"]},
        params=[_version_flag()],
    )
    for name, home in _COMMANDS.items():
        if command in (None, name):
            app.add_command(ScopedCommand(name, _loaded(home), hidden=name in _HIDDEN))
    for name, home in _GROUPS.items():
        if command in (None, name):
            app.add_command(_loaded(home), name)
    return app


def _app_for(words: list[str]) -> tuple[CommandGroup, list[str]]:
    """The executable for the beginning of a command line, and its words with the command first."""
    flags, rest = _leading_flags(words)
    if not rest and flags and _GLOBAL.get(flags[-1]) == 2:
        # The value of a flag is asked for, which any command with these flags knows.
        return app_with("query"), ["query", *flags]
    if not rest:
        return app_with(), []
    known = {**_COMMANDS, **_GROUPS}
    command = 2 if rest[0] in _GROUPS and rest[1:2] and not rest[1].startswith("-") else 1
    return app_with(rest[0] if rest[0] in known else None), [*rest[:command], *flags, *rest[command:]]


def _loaded(home: str) -> Any:
    module, _, name = home.partition(".")
    return getattr(import_module(f"omnigraph.cli.commands.{module}"), name)


def _version_flag() -> click.Option:
    return click.Option(
        _VERSION, is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="print the release"
    )


def _print_version(context: click.Context, _parameter: click.Parameter, requested: bool) -> None:
    if requested:
        from omnigraph.cli.commands.setup import show_version

        show_version()
        context.exit()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    if arguments is not None:
        with guarded_streams():
            _run(list(arguments), Interrupts())
        return
    if (instruction := os.environ.get(COMPLETION)) is not None:
        from omnigraph.cli.commands.completion import answer

        with guarded_streams():
            sys.exit(answer(instruction, _app_for))
    # The process is that of the command.
    with taking_interrupts() as interrupts, guarded_streams():
        _run(sys.argv[1:], interrupts)


def _run(words: list[str], interrupts: Interrupts) -> None:
    words = arranged(words, _GROUPS)
    as_json = wants_json(words)
    known = words[0] if words and words[0] in {*_COMMANDS, *_GROUPS, *_VERSION} else None
    try:
        # Not by `main` of click, which keeps interrupts and closed pipes for itself.
        with app_with(known).make_context("omnigraph", words) as context:
            context.command.invoke(context)
        sys.exit(0)
    except Exit as end:
        sys.exit(end.exit_code)
    except KeyboardInterrupt as interrupt:
        _print_interrupt(interrupt, interrupts, as_json=as_json)
        sys.exit(interrupts.exit_code)
    except click.ClickException as error:
        if as_json:
            message = error.format_message().removeprefix("Invalid value: ")
            print_json({"error": message, "kind": "usage", "code": "bad_request"})
        else:
            error.show()
        sys.exit(error.exit_code)
    except EOFError:
        print_warning("aborted: there was nothing more to read")
        sys.exit(1)
    except OmniError as error:
        print_error(error, as_json=as_json)
        # A signal to the whole group ends Spark too, and its failure may come first.
        sys.exit(error.exit_code if interrupts.stopped_by is None else interrupts.exit_code)
    except BaseException as error:  # the outermost edge
        if not print_internal_error(error):
            raise
        sys.exit(1)


def _print_interrupt(interrupt: KeyboardInterrupt, interrupts: Interrupts, *, as_json: bool) -> None:
    """One sentence about work that Ctrl-C or another signal stopped, with what it says about itself."""
    notes = [*interrupts.notes, *notes_of(interrupt)]
    # A command that has begun says what it left.
    sentence = ", ".join([interrupts.sentence, *dict.fromkeys(notes or [NOTHING_WRITTEN])])
    if as_json:
        print_json({"error": sentence, "kind": "interrupted", "code": "cancelled"})
    else:
        print_warning(sentence)
