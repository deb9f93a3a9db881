"""`omnigraph schema`: look at schemas and plan their changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, GraphUri, SchemaFile, Store
from omnigraph.cli.output import print_json, print_text, print_warning
from omnigraph.cli.scope import open_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.schema import MigrationPlan

app = typer.Typer(
    help="Look at schemas and plan their changes.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("show")
def show(uri: GraphUri = None, store: Store = None, json: AsJson = False) -> None:
    """Print the accepted schema of a graph."""
    with open_graph(uri, store, read_only=True) as graph:
        source = graph.schema
    if json:
        print_json({"schema_source": source})
    else:
        print_text(source)


app.command("get", hidden=True)(show)


@app.command("plan")
def plan(
    schema: SchemaFile,
    from_: Annotated[
        Path,
        typer.Option("--from", metavar="OLD", help="accepted schema (.pg)", show_default=False),
    ],
    allow_data_loss: Annotated[
        bool,
        typer.Option("--allow-data-loss", help="show drops as hard: old versions are purged too"),
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the steps from one schema to another, without effect.

    Exits with 0 also when a change is not supported: the plan says so.
    """
    result = plan_files(from_, schema, allow_data_loss=allow_data_loss)
    for warning in result.resolution.warnings:
        print_warning(warning.render())
    if json:
        print_json({"uri": None, "from": str(from_), **result.to_json()})
    else:
        print_text("\n".join(plan_lines(result)))


def plan_files(old: Path, new: Path, *, allow_data_loss: bool = False) -> MigrationPlan:
    """The plan between two schema files; no graph is needed."""
    from omnigraph.ids import new_ulid
    from omnigraph.schema import (
        AcceptedSchema,
        compile_schema_file,
        fresh_identities,
        plan_migration,
    )

    before, after = compile_schema_file(old), compile_schema_file(new)
    identities = fresh_identities(before.catalog, new_ulid(), before.source).identities
    accepted = AcceptedSchema(catalog=before.catalog, identities=identities)
    return plan_migration(accepted, after.catalog, after.source, allow_data_loss=allow_data_loss)


def plan_lines(plan: MigrationPlan) -> Iterator[str]:
    """The plan as a person reads it."""
    if not plan.steps:
        yield "no changes"
        return
    for step in plan.steps:
        yield step.describe()
    count = len(plan.steps)
    steps = "1 step" if count == 1 else f"{count} steps"
    yield (
        f"{steps}, supported"
        if plan.supported
        else f"{steps}, not supported: nothing would be applied"
    )
