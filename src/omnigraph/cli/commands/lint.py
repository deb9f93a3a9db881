"""`omnigraph lint`: check queries against a schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, OptionalSchemaFile
from omnigraph.cli.output import print_json, print_text, print_warning
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.query.lint import LintReport


@scoped("lint", positional=True)
def lint(
    query: Annotated[
        Path, typer.Option("--query", metavar="FILE", help="query file (.gq)", show_default=False)
    ],
    address: Address,
    schema: OptionalSchemaFile = None,
    json: AsJson = False,
) -> None:
    """Check every query of a file against a schema, or against the accepted one of a graph.

    Prints one line per query, then warnings and a total. Exits with 1 when a query has an error.
    """
    if schema is not None and address.is_explicit:
        raise typer.BadParameter("give --schema FILE or a graph, not both")
    report = lint_graph(address, query) if schema is None else lint_files(schema, query)
    if json:
        print_json(report.to_json())
    else:
        print_text("\n".join(report_lines(report)))
    if report.errors:
        raise typer.Exit(1)


def lint_files(schema: Path, query: Path) -> LintReport:
    """The lint report of a query file against a schema file."""
    from omnigraph.query.compiler import read_queries
    from omnigraph.query.lint import lint_queries
    from omnigraph.schema.compiler import compile_schema_file

    compiled = compile_schema_file(schema)
    for warning in compiled.warnings:
        print_warning(warning.render())
    return lint_queries(read_queries(query), compiled.catalog, str(schema))


def lint_graph(address: Address, query: Path) -> LintReport:
    """The lint report of a query file against the accepted schema of a graph."""
    from omnigraph.query.compiler import read_queries
    from omnigraph.query.lint import lint_queries
    from omnigraph.schema.compiler import compile_schema

    with address.open_storage(read_only=True) as graph:
        catalog = compile_schema(graph.schema).catalog
    return lint_queries(read_queries(query), catalog, address.uri)


def report_lines(report: LintReport) -> Iterator[str]:
    """The report as a person reads it."""
    for result in report.results:
        word = "ERROR" if result.diagnostics else "OK"
        yield f"{word:<5} {result.kind} {result.name}"
        for diagnostic in result.diagnostics:
            yield diagnostic.render()
        yield from _unlisted(result.diagnostic_total - len(result.diagnostics))
    for finding in report.findings:
        if finding.severity == "error" and finding.diagnostic is not None:
            yield finding.diagnostic.render()
            continue
        code = f"{finding.code}: " if finding.code else ""
        yield f"WARN  {code}{finding.message}"
        yield f"      at {report.query_path}:{finding.line}:{finding.column}"
    yield from _unlisted(report.unlisted)
    counts = [
        _count(len(report.results), "query", "queries"),
        _count(report.errors, "error", "errors"),
        _count(report.warnings, "warning", "warnings"),
    ]
    yield ", ".join(counts)


def _unlisted(number: int) -> Iterator[str]:
    if number > 0:
        yield f"… and {_count(number, 'more error', 'more errors')}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
