"""`omnigraph completion`: completion in bash, zsh and fish, and the words that their scripts ask for.

A script calls the executable with the command line so far; `answer` prints the words that may stand next. Those of
commands and flags follow from the commands, those of graphs, branches, servers and profiles from what is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, suppress
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Annotated

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from omnigraph.cli.capabilities import RULES
from omnigraph.cli.command_line import COMPLETERS, COMPLETION, Argument, Completer, Words
from omnigraph.cli.config import active_profile, read_operator_config
from omnigraph.cli.console import print_data
from omnigraph.cli.scope import ScopeFlags, StoreScope, is_graph_folder, resolve_scope
from omnigraph.cli.scoped import ADDRESSES, scoped
from omnigraph.errors import OmniError

_PROGRAM = "omnigraph"
_ASKING = "complete"


class ShellName(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@scoped("completion")
def completion(
    shell: Annotated[ShellName, Argument(metavar="bash|zsh|fish", help="the shell that gets the script")],
) -> None:
    """Print the script that completes commands, flags, graphs and branches in a shell.

    In `~/.bashrc` stands `eval "$(omnigraph completion bash)"`, in `~/.zshrc` the same with zsh, and in
    `~/.config/fish/config.fish` `omnigraph completion fish | source`.
    """
    # Not by the method of its class, which looks for the shell on this machine.
    print_data(ShellComplete.source(_machinery(shell, click.Command(_PROGRAM))).splitlines())


def answer(instruction: str, make_app: Callable[[list[str]], tuple[click.Command, list[str]]]) -> int:
    """Print the words that may stand next, for the script of a shell; the answer is an exit code.

    `make_app` gives the executable for the words so far, and these words in their order.
    """
    name, _, what = instruction.partition("_")
    if name not in list(ShellName) or what != _ASKING:
        return 1
    # What a configuration or a graph has to say would stand in the middle of the command line.
    with redirect_stderr(StringIO()):
        try:
            words, incomplete = _machinery(name, click.Command(_PROGRAM)).get_completion_args()
            app, words = make_app(words)
            machinery = _machinery(name, app)
            lines = list(map(machinery.format_completion, machinery.get_completions(words, incomplete)))
        except (OmniError, click.ClickException, KeyError, ValueError):
            # A wrong beginning of a command line, a graph that cannot be read, or a call that no script makes.
            return 1
    print_data(lines)
    return 0


def _machinery(name: str, app: click.Command) -> ShellComplete:
    made = get_completion_class(name)
    assert made is not None, "click has one for each of them"
    return made(app, {}, _PROGRAM, COMPLETION)


# ---- The words of arguments


def _completer(words: Words) -> Callable[[Completer], Completer]:
    """Make a function the one that completes words of a kind."""

    def decorate(function: Completer) -> Completer:
        COMPLETERS[words] = function
        return function

    return decorate


@_completer(Words.GRAPH)
def _graphs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders that are graphs; all folders where others begin alike. And names, where a graph is known already."""
    is_argument = isinstance(parameter, click.Argument)
    items = _next_argument(context, parameter, incomplete) if is_argument and _scope(context) is not None else []
    if is_argument and any(context.params.get(name) for name in ADDRESSES):
        return items
    found = list(_folders(incomplete))
    if not all(map(is_graph_folder, found)):
        # The shell itself completes paths: it leaves the cursor behind a slash.
        return items or [CompletionItem(incomplete, type="dir")]
    return [*items, *map(CompletionItem, found)]


def _next_argument(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The completions of the argument behind the graph."""
    arguments = [item for item in context.command.params if isinstance(item, click.Argument)]
    missing = (item for item in arguments if item is not parameter and not context.params.get(item.name))
    behind = next(missing, None)
    return [] if behind is None else behind.shell_complete(context, incomplete)


def _folders(incomplete: str) -> Iterator[str]:
    """The folders that a path may go on to."""
    begin, slash, name = incomplete.rpartition("/")
    place = f"{begin}{slash}"
    with suppress(OSError), os.scandir(os.path.expanduser(place) or ".") as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            if entry.name.startswith(name or "") and (name or not entry.name.startswith(".")) and entry.is_dir():
                yield f"{place}{entry.name}"


@_completer(Words.BRANCH)
def _branches(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The branches of a graph on this machine; asking a server would take too long."""
    scope = _scope(context)
    if not isinstance(scope, StoreScope) or ("://" in scope.uri and not scope.uri.startswith("file://")):
        return []
    from omnigraph.graph.graph import Graph

    with Graph.open(scope.uri, read_only=True) as graph:
        return _beginning(graph.branches(), incomplete)


@_completer(Words.SERVER)
def _servers(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(read_operator_config().servers, incomplete)


@_completer(Words.PROFILE)
def _profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(read_operator_config().profiles, incomplete)


@_completer(Words.QUERY)
def _queries(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The queries of the file that stands before."""
    file = context.params.get("query")
    if not isinstance(file, Path):
        return []
    from omnigraph.lang.query.compiler import read_queries
    from omnigraph.lang.query.syntax.parser import parse_queries_all

    tree, _ = parse_queries_all(read_queries(file))
    return _beginning((query.name for query in tree.queries), incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in sorted(words) if word.startswith(incomplete)]


def _scope(context: click.Context) -> object:
    """The graph that the words so far name; None where they name none."""
    rule = RULES.get(context.command_path.partition(" ")[2])
    if rule is None:
        return None
    names = ("positional", "uri", "server", "cluster", "graph", "store", "profile")
    given = {name: value for name in names if isinstance(value := context.params.get(f"scope_{name}"), str)}
    try:
        return resolve_scope(ScopeFlags(**given), rule, read_operator_config(), active_profile())
    except click.BadParameter:
        return None
