"""`omnigraph doctor`: is a graph healthy, and what should be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Quiet
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import text_table, wrapped
from omnigraph.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.diagnosis import DoctorReport, Finding

_LARGEST_TYPES = 10
#: Rows of the table that are no types; with them it adds up.
_DERIVED = "kept indexes and vectors (__derived)"
_OTHER = "catalog and control files"
_MESSAGE_WIDTH = 160


@scoped("doctor", positional=True)
def doctor(
    address: Address,
    deep: Annotated[
        bool, typer.Option("--deep", help="read every file as well, as `verify` does")
    ] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Look at the health of a graph without changing anything, and say in plain words what to run."""
    from omnigraph.graph.graph import Graph

    progress = terminal_progress(quiet=quiet or json or not deep)
    report = Graph.examine(address.uri, deep=deep, progress=progress)
    if json:
        print_json(report.to_json())
    else:
        print_lines(report_lines(report))
    if not report.is_healthy:
        raise typer.Exit(1)


def report_lines(report: DoctorReport) -> Iterator[str]:
    """The report as a person reads it, the worst first; the last line says what to run."""
    rows = [row for item in report.findings for row in _finding_rows(item)]
    yield from text_table(["state", "check", "finding"], rows)
    if report.disk:
        yield ""
        sizes = [
            [item.type_key, size_text(item.size_bytes), f"{item.versions:,}", f"{item.forks:,}"]
            for item in report.disk[:_LARGEST_TYPES]
        ]
        if smaller := report.disk[_LARGEST_TYPES:]:
            size = size_text(sum(item.size_bytes for item in smaller))
            sizes.append([f"{len(smaller):,} smaller types", size, "", ""])
        if report.derived_bytes:
            sizes.append([_DERIVED, size_text(report.derived_bytes), "", ""])
        sizes.append([_OTHER, size_text(report.other_bytes), "", ""])
        yield from text_table(["type", "size", "versions", "forks"], sizes)
        yield f"{size_text(report.size_bytes)} in all"
    yield ""
    if report.is_healthy:
        yield "healthy: nothing has to be done"
    elif report.is_damaged:
        commands = "; ".join(report.actions)
        yield f"restore the files that the errors name from a copy, then run: {commands}"
    elif report.actions:
        yield f"run: {'; '.join(report.actions)}"
    else:
        yield "no command helps: read the errors above"


def _finding_rows(item: Finding) -> Iterator[list[str]]:
    """A finding as the lines of the table that it takes: nothing of it is cut."""
    first, *more = wrapped(item.message, _MESSAGE_WIDTH)
    yield [str(item.severity), item.check, first]
    yield from (["", "", line] for line in more)
