"""Which graph a command talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

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
