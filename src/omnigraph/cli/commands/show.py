"""`omnigraph show`: a graph at a glance, and parts of it as pictures in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from omnigraph.cli.command_line import Option
from omnigraph.cli.console import print_text
from omnigraph.cli.flags import Point, QueryName, Quiet
from omnigraph.cli.input import ParameterFlags, QuerySource, parameters_of
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.cli.flags import PointArguments
    from omnigraph.display.pictures import Picture


@scoped("show")
def show(
    address: Address,
    *,
    name: QueryName = None,
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="write a picture: a page (.html) or an image (.svg)")
    ] = None,
    source: QuerySource,
    parameters: ParameterFlags,
    node: Annotated[
        list[str] | None, Option("--node", metavar="TYPE:ID", help="show this node and its neighbours; repeat for more")
    ] = None,
    schema: Annotated[bool, Option("--schema", help="show the types instead of nodes")] = False,
    hops: Annotated[int, Option("--hops", help="with --node: how far away neighbours may be")] = 1,
    limit: Annotated[int, Option("--limit", metavar="N", help="nodes of the picture")] = 100,
    point: Point,
    quiet: Quiet = False,
) -> None:
    """Show a graph at a glance, or write a picture of a part of it: a query, nodes, the types, or some of everything.

    Without --out it prints the head of main and the types with their counts. A picture needs no network.
    """
    flags = {"a query": source.is_given, "--node": bool(node), "--schema": schema}
    chosen = [flag for flag, is_given in flags.items() if is_given]
    if len(chosen) > 1:
        raise click.BadParameter(f"give one of {' and '.join(chosen)}")
    if name is not None and not source.is_given:
        raise click.BadParameter(f"`{name}` is the name of a query: give its file with --query, or a node with --node")
    if out is None and chosen:
        raise click.BadParameter("a picture needs a file: give --out picture.html or --out picture.svg")
    state = point.arguments()
    with address.open(read_only=True) as graph:
        if out is None:
            print_text(str(graph))
            return
        if source.is_given:
            text, given = source.text(), parameters.read()
            values = given.typed(lambda: parameters_of(graph, text, name, **state), name)
            picture = graph.show(text, values, name=name, limit=limit, **state)
        elif schema:
            picture = graph.catalog(**state).show()
        else:
            picture = _of_nodes(graph, node or (), state, hops=hops, limit=limit)
        picture.save(out)
    if not quiet:
        print_text(f"{picture.drawing.label}; written to {out}")


def _of_nodes(graph: GraphApi, nodes: Sequence[str], state: PointArguments, *, hops: int, limit: int) -> Picture:
    """A picture of nodes with their neighbours, or of some of everything."""
    pairs = []
    for text in nodes:
        type_name, colon, entity_id = text.partition(":")
        if not colon or not type_name or not entity_id:
            raise click.BadParameter(f"--node is TYPE:ID, as in Person:ada, not {text!r}")
        pairs.append((type_name, entity_id))
    return graph.show(pairs or None, hops=hops, limit=limit, **state)
