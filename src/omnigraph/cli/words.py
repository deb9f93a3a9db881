"""The words of a command line before they are parsed: old spellings, and global flags wherever they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.options import GRAPH_ID
from omnigraph.cli.output import print_warning

if TYPE_CHECKING:
    from collections.abc import Collection

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
