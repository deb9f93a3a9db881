"""`omnigraph demo`: the product on its example graphs."""

from __future__ import annotations

from pathlib import Path

import typer

from omnigraph.cli.commands.lint import lint_files, report_lines
from omnigraph.cli.output import print_text
from omnigraph.errors import InputFileError

_EXAMPLES = ("bibliography", "dependencies")


def demo() -> None:
    """Run the product on its two example graphs."""
    from omnigraph.query import compile_query, explain_ir, read_queries
    from omnigraph.schema import compile_schema_file

    root = example_directory()
    failed = False
    for name in _EXAMPLES:
        folder = root / name
        catalog = compile_schema_file(folder / "schema.pg").catalog
        counts = f"{len(catalog.nodes)} node types, {len(catalog.edges)} edge types"
        print_text(f"== {name}: {counts}")
        for file in ("queries.gq", "mutations.gq"):
            report = lint_files(folder / "schema.pg", folder / file)
            failed = failed or bool(report.errors)
            print_text("\n".join(f"   {line}" for line in report_lines(report)))
    folder = root / _EXAMPLES[0]
    source = read_queries(folder / "queries.gq")
    catalog = compile_schema_file(folder / "schema.pg").catalog
    compiled = compile_query(source, catalog, "influential_without_venue")
    print_text("\n== the plan of one query of the bibliography\n")
    print_text(explain_ir(compiled.ir))
    if failed:
        raise typer.Exit(1)


def example_directory() -> Path:
    """Where the example graphs are: inside an installed package, or beside the sources of a checkout.

    Raises:
        InputFileError: they are in neither place.
    """
    package = Path(__file__).parents[2]
    for candidate in (package / "examples", package.parents[1] / "examples"):
        if candidate.is_dir():
            return candidate
    raise InputFileError("examples", "the example graphs are not installed")
