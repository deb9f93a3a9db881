"""`omnigraph repair`: datasets that moved without the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import Actor, AsJson, Consent, GraphUri, Quiet, Store
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import echo_write, open_graph, require_consent, resolve_uri
from omnigraph.cli.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.repairing import RepairReport


def repair(
    uri: GraphUri = None,
    store: Store = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="publish what changed no row; without it only look")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="with --confirm: publish changed rows as well")
    ] = False,
    actor: Actor = None,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find datasets that something else than omnigraph moved, and publish what is safe."""
    address = resolve_uri(uri, store)
    if confirm:
        if force:
            require_consent("publishes unchecked rows of", address, yes=yes, json=json)
        echo_write("repair", address, quiet=quiet)
    with open_graph(uri, store, read_only=False) as graph:
        report = graph.repair(confirm=confirm, force=force, actor=actor)
    if json:
        print_json(report.to_json())
    else:
        print_lines(_lines(report))
    if report.has_refused:
        raise typer.Exit(1)


def _lines(report: RepairReport) -> Iterator[str]:
    drifted = [table for table in report.tables if table.classification != "no_drift"]
    if not drifted:
        yield "no drift: every dataset is where the catalog says"
        return
    yield from text_table(
        ("dataset", "branch", "published", "head", "classification", "action"),
        [
            (
                table.type_key,
                table.branch,
                str(table.published_dataset_version),
                "-" if table.lance_head_version is None else str(table.lance_head_version),
                str(table.classification),
                str(table.action),
            )
            for table in drifted
        ],
    )
    yield from (f"{table.type_key}: {table.advice}" for table in drifted if table.advice)
    yield from (f"commit {commit.commit_id} on {commit.branch}" for commit in report.commits)
