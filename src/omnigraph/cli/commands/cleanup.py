"""`omnigraph cleanup`: remove old versions and leftovers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Consent, Quiet
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import text_table
from omnigraph.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.recovery.cleanup_report import CleanupReport


@scoped("cleanup", positional=True)
def cleanup(
    address: Address,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", help="the newest N commits of every branch stay readable"
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DUR",
            help="younger states stay readable: 45s, 30m, 12h, 7d, 2w",
        ),
    ] = None,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits", help="forget commits that cannot be read any more: history begins later"
        ),
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="do it; without, only say what would go")
    ] = False,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Remove versions that no policy keeps, forks of deleted branches and what dead writers left; else a preview."""
    if confirm:
        address.require_consent("removes old versions of", yes=yes, json=json)
    address.echo("cleanup" if confirm else "cleanup (preview) of", quiet=quiet)
    with address.open_storage(read_only=not confirm) as graph:
        report = graph.cleanup(keep=keep, older_than=older_than, commits=commits, confirm=confirm)
    if json:
        print_json(report.to_json())
    else:
        print_lines(report_lines(report))
    if report.errors:
        raise typer.Exit(1)


def report_lines(report: CleanupReport) -> Iterator[str]:
    """The report as a person reads it; types of which nothing goes are left out."""
    rows = [
        [
            item.type_key,
            f"{item.old_versions_removed:,}",
            f"{item.versions_kept:,}",
            f"{item.forks_removed:,}",
            f"{item.staged_files_removed:,}",
            size_text(item.bytes_removed),
        ]
        for item in report.datasets
        if item.bytes_removed
    ]
    yield from text_table(["type", "versions", "kept", "forks", "leftover files", "size"], rows)
    size = size_text(report.catalog_bytes_removed)
    yield f"catalog: {_count(report.catalog_versions_removed, 'old version')}, {size}"
    if report.other_files_removed:
        size = size_text(report.other_bytes_removed)
        yield f"beside the types: {_count(report.other_files_removed, 'file')}, {size}"
    if report.commits_forgotten:
        verb = "forgotten" if report.confirmed else "would be forgotten"
        yield f"history: {_count(report.commits_forgotten, 'commit')} {verb}"
    because = [
        f"{count:,} {_REASONS[name]}" for name, count in report.kept_because.items() if count
    ]
    yield f"readable: {_count(report.commits_kept, 'commit')} ({', '.join(because)})"
    for item in report.errors:
        yield f"{item.type_key}: not cleaned up, {item.error}"
    yield from report.notes
    if report.confirmed:
        yield f"removed {size_text(report.bytes_removed)}"
    else:
        yield f"nothing was removed: {size_text(report.bytes_removed)} would go with --confirm"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


#: Why commits stay readable, in words.
_REASONS = {
    "head": "at a head",
    "fork": "where branches began",
    "merge_base": "for merges",
    "count": "by number",
    "age": "by age",
    "reader": "for readers",
}
