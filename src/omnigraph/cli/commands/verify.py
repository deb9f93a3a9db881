"""`omnigraph verify`: does every file hold what was written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Quiet
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.verification import VerifyReport


@scoped("verify", positional=True)
def verify(
    address: Address,
    branch: Annotated[
        list[str] | None,
        typer.Option(
            "--branch",
            metavar="NAME",
            help="the head of this branch only; may be given several times",
        ),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="give a checksum to files that have none, unless a file is damaged"
        ),
    ] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Read every file that branches and kept commits need, and compare it with its recorded checksum."""
    from omnigraph.graph.graph import Graph

    progress = terminal_progress(quiet=quiet or json)
    report = Graph.verify_at(address.uri, branches=branch or None, record=record, progress=progress)
    if json:
        print_json(report.to_json())
    else:
        print_lines(report_lines(report))
    if not report.is_sound:
        raise typer.Exit(1)


def report_lines(report: VerifyReport) -> Iterator[str]:
    """The damaged files, then how many files are as they should be."""
    from omnigraph.graph.verification import FileStatus

    yield from (str(item) for item in report.problems)
    counts = report.counts()
    total = f"{len(report.files):,} files, {size_text(report.read_bytes)} read"
    old = counts[FileStatus.UNRECORDED]
    note = f"; {old:,} without a recorded checksum" if old else ""
    if report.recorded:
        note = f"; {report.recorded:,} checksums recorded"
    if report.is_sound:
        yield f"sound: {total}{note}"
    else:
        yield f"damaged: {len(report.problems):,} of {total}{note}; restore them from a copy"
