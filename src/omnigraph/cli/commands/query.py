"""`omnigraph query`: read a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import (
    AsJson,
    AsOf,
    GraphVersion,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    ReadBranch,
    SnapshotId,
    Store,
)
from omnigraph.cli.output import print_lines
from omnigraph.cli.scope import open_graph
from omnigraph.cli.sources import query_source, read_params
from omnigraph.cli.tables import RowFormat, render_rows


def query(
    name: QueryName = None,
    store: Store = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    graph_version: GraphVersion = None,
    as_of: AsOf = None,
    format: Annotated[
        RowFormat | None,
        typer.Option("--format", help="how rows are printed: table is the default"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run one read query on a branch head, a commit, a graph version or a moment."""
    if json and format is not None:
        raise typer.BadParameter("give one of --format and --json")
    if branch is not None and snapshot is not None:
        raise typer.BadParameter("give one of --branch and --snapshot")
    if sum(item is not None for item in (snapshot, graph_version, as_of)) > 1:
        raise typer.BadParameter("give one of --snapshot, --graph-version and --as-of")
    chosen = RowFormat.JSON if json else format or RowFormat.TABLE
    source = query_source(query, query_string)
    values = read_params(params, params_file)
    with open_graph(None, store, read_only=True) as graph:
        result = graph.query(
            source,
            values,
            name=name,
            branch=branch or "main",
            snapshot=snapshot,
            version=graph_version,
            as_of=as_of,
        )
        print_lines(render_rows(result, chosen))
