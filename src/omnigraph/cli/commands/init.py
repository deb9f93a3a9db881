"""`omnigraph init`: create a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import AsJson, SchemaFile
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.resolution import storage_uri
from omnigraph.cli.scoped import scoped


@scoped("init")
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

    with Graph.init(storage_uri(uri, "the address"), schema, force=force) as graph:
        if json:
            print_json({"uri": graph.uri, "commit": graph.snapshot().commit_id})
        else:
            print_text(f"initialized {graph.uri}")
