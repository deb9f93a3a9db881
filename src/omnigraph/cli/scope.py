"""Which graph a command talks to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.output import print_warning

if TYPE_CHECKING:
    from omnigraph.graph import Graph


def resolve_uri(positional: str | None, store: str | None) -> str:
    """The one address that the arguments name.

    Raises:
        typer.BadParameter: none, two, or a remote one.
    """
    given = [uri for uri in (positional, store) if uri is not None]
    if len(given) > 1:
        raise typer.BadParameter("give the graph once: as an argument or with --store")
    if not given:
        raise typer.BadParameter("no graph is addressed: give its URI, or --store URI")
    if given[0].startswith(("http://", "https://")):
        raise typer.BadParameter(f"{given[0]} is a server: address the storage of the graph")
    return given[0]


def open_graph(positional: str | None, store: str | None, *, read_only: bool) -> Graph:
    """Open the graph that the arguments name."""
    from omnigraph.graph import Graph

    return Graph.open(resolve_uri(positional, store), read_only=read_only)


def echo_write(verb: str, address: str, *, quiet: bool) -> None:
    """Say what is about to be written to, before it is: a wrong address shows while one can still stop."""
    if not quiet:
        access = "direct, local" if _is_local(address) else "direct, remote"
        print_warning(f"{verb} {address} ({access})")


def require_consent(effect: str, address: str, *, yes: bool, json: bool) -> None:
    """Destroying something in a graph that is not on this machine needs a word.

    Raises:
        typer.BadParameter: nobody can be asked.
        typer.Exit: the answer was no.
    """
    if yes or _is_local(address):
        return
    if json or not sys.stdin.isatty():
        raise typer.BadParameter(f"this {effect} {address}: give --yes")
    sys.stderr.write(f"this {effect} {address}. Go on? [yes/no] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def _is_local(address: str) -> bool:
    return "://" not in address or address.startswith("file://")
