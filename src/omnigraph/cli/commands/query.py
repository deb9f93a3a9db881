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
    Timeout,
)
from omnigraph.cli.output import print_data, print_lines
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.sources import STORED, read_params, source_or_name
from omnigraph.cli.tables import MAX_COLUMN_WIDTH, CellLayout, RowFormat, TableLayout, render_rows

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import Defaults
    from omnigraph.wire.answer import Result


RowFormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="how rows are printed: table, unless configured otherwise"),
]
CsvSafe = Annotated[
    bool,
    typer.Option(
        "--csv-safe", help="with --format csv: texts that a spreadsheet would run begin with '"
    ),
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
    timeout: Timeout = None,
    format: RowFormatOption = None,
    csv_safe: CsvSafe = False,
    json: AsJson = False,
) -> None:
    """Run one read query on a branch head, a commit, a graph version or a moment.

    With a source, NAME selects the query inside it; without one, it is a stored query of a server.
    """
    check_format(format, json=json)
    defaults = address.config.defaults
    chosen = row_format(defaults, json=json, format_=format)
    check_csv_safe(chosen, csv_safe=csv_safe)
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
                timeout_s=timeout,
            )
            print_rows(found, defaults, chosen, csv_safe=csv_safe)
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
            timeout_s=timeout,
        )
        print_rows(result, defaults, chosen, csv_safe=csv_safe)


def check_format(format_: RowFormat | None, *, json: bool) -> None:
    """Refuse two formats."""
    if json and format_ is not None:
        raise typer.BadParameter("give one of --format and --json")


def check_csv_safe(format_: RowFormat, *, csv_safe: bool) -> None:
    """Refuse a promise about CSV for another format."""
    if csv_safe and format_ is not RowFormat.CSV:
        raise typer.BadParameter("--csv-safe is about CSV: give --format csv")


def row_format(defaults: Defaults, *, json: bool, format_: RowFormat | None) -> RowFormat:
    """The first format that was chosen: `--json`, `--format`, the defaults."""
    return RowFormat.JSON if json else format_ or defaults.output or RowFormat.TABLE


def print_rows(
    result: Result, defaults: Defaults, format_: RowFormat, *, csv_safe: bool = False
) -> None:
    """Print rows in a format."""
    layout = TableLayout(
        defaults.table_max_column_width or MAX_COLUMN_WIDTH,
        defaults.table_cell_layout or CellLayout.TRUNCATE,
    )
    lines = render_rows(result, format_, layout, csv_safe=csv_safe)
    if format_.is_data:
        print_data(lines)
    else:
        print_lines(lines)
