"""`omnigraph init`: create a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import AsJson, SchemaFile
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import resolve_uri


def init(
    uri: Annotated[str, typer.Argument(metavar="URI", help="where the graph will be")],
    schema: SchemaFile,
    force: Annotated[
        bool, typer.Option("--force", help="replace orphan schema files; never erases a graph")
    ] = False,
    json: AsJson = False,
) -> None:
    """Create a graph: its catalog, one empty dataset per type, and the schema files."""
    from omnigraph.graph import Graph

    with Graph.init(resolve_uri(uri, None), schema, force=force) as graph:
        if json:
            print_json({"uri": graph.uri, "commit": graph.snapshot().commit_id})
        else:
            print_text(f"initialized {graph.uri}")
