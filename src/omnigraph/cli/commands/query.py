"""`omnigraph query`: read a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
)
from omnigraph.cli.output import print_lines
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.sources import STORED, read_params, source_or_name
from omnigraph.cli.tables import (
    MAX_COLUMN_WIDTH,
    CellLayout,
    RowFormat,
    TableLayout,
    render_rows,
)

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import Defaults
    from omnigraph.graph import Result


RowFormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="how rows are printed: table, unless configured otherwise"),
]


@scoped("query")
def query(
    address: Address,
    name: QueryName = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    graph_version: GraphVersion = None,
    as_of: AsOf = None,
    format: RowFormatOption = None,
    json: AsJson = False,
) -> None:
    """Run one read query on a branch head, a commit, a graph version or a moment.

    With a source, NAME selects the query inside it; without one, it is a stored query of a server.
    """
    check_format(format, json=json)
    if branch is not None and snapshot is not None:
        raise typer.BadParameter("give one of --branch and --snapshot")
    if sum(item is not None for item in (snapshot, graph_version, as_of)) > 1:
        raise typer.BadParameter("give one of --snapshot, --graph-version and --as-of")
    source = source_or_name(query, query_string, name)
    values = read_params(params, params_file)
    if isinstance(source, str):
        if graph_version is not None or as_of is not None:
            raise typer.BadParameter("a stored query reads a branch or a --snapshot")
        with address.open_served(STORED) as server:
            found = server.run(
                source,
                values,
                branch=branch or "main",
                snapshot=snapshot,
                expect_mutation=False,
            )
            print_rows(found, address.config.defaults, json=json, format_=format)
        return
    with address.open(read_only=True) as graph:
        result = graph.query(
            source,
            values,
            name=name,
            branch=branch or "main",
            snapshot=snapshot,
            version=graph_version,
            as_of=as_of,
        )
        print_rows(result, address.config.defaults, json=json, format_=format)


def check_format(format_: RowFormat | None, *, json: bool) -> None:
    """Refuse two formats."""
    if json and format_ is not None:
        raise typer.BadParameter("give one of --format and --json")


def print_rows(
    result: Result, defaults: Defaults, *, json: bool, format_: RowFormat | None
) -> None:
    """Print rows in the first format that somebody chose: `--json`, `--format`, the defaults."""
    chosen = RowFormat.JSON if json else format_ or defaults.output or RowFormat.TABLE
    layout = TableLayout(
        defaults.table_max_column_width or MAX_COLUMN_WIDTH,
        defaults.table_cell_layout or CellLayout.TRUNCATE,
    )
    print_lines(render_rows(result, chosen, layout))
