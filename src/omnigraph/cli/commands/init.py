"""`omnigraph init`: create a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import AsJson, SchemaFile
from omnigraph.cli.output import print_json, print_text, print_warning
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
    from omnigraph.graph.graph import Graph
    from omnigraph.ids import new_ulid
    from omnigraph.schema.compiler import compile_schema_file
    from omnigraph.schema.identity import fresh_identities

    root = storage_uri(uri, "the address")
    compiled = compile_schema_file(schema)
    hints = fresh_identities(compiled.catalog, new_ulid(), compiled.source)
    for warning in (*compiled.warnings, *hints.warnings):
        print_warning(warning.render())
    with Graph.init(root, compiled, force=force) as graph:
        if json:
            print_json({"uri": graph.uri, "commit": graph.snapshot().commit_id})
        else:
            print_text(f"initialized {graph.uri}")
