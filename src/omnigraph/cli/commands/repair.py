"""`omnigraph repair`: datasets that moved without the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Consent, Quiet
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.repairing import RepairReport


@scoped("repair", positional=True)
def repair(
    address: Address,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="heal what is safe to heal; without it only look")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="with --confirm: publish changed rows as well")
    ] = False,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find datasets that moved without a commit, doubled commits and dangling edges, and heal what is safe."""
    if confirm:
        if force:
            address.require_consent("publishes unchecked rows of", yes=yes, json=json)
        address.echo("repair", quiet=quiet)
    with address.open_storage(read_only=False) as graph:
        report = graph.repair(confirm=confirm, force=force, actor=address.actor)
    if json:
        print_json(report.to_json())
    else:
        print_lines(_lines(report))
    if report.has_refused:
        raise typer.Exit(1)


def _lines(report: RepairReport) -> Iterator[str]:
    yield from _drift_lines(report)
    end = "" if report.is_confirmed else ": heal it with --confirm"
    for commit_id in report.doubled_commits:
        what = "was" if report.is_confirmed else "is"
        yield f"commit {commit_id} {what} in the catalog more than once{end}"
    for item in report.dangling_edges:
        what = "removed" if report.is_confirmed else "found"
        examples = ", ".join(item.examples)
        yield f"{item.type_key} on {item.branch}: {what} {item.count:,} edges without an end ({examples}){end}"
    yield from (f"commit {commit.commit_id} on {commit.branch}" for commit in report.commits)


def _drift_lines(report: RepairReport) -> Iterator[str]:
    drifted = [table for table in report.tables if table.classification != "no_drift"]
    if not drifted:
        yield "no drift: every dataset is where the catalog says"
        yield "for damaged files run `omnigraph verify`"
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
