"""`omnigraph demo`: the product on its example graphs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.commands.commit import commit_line
from omnigraph.cli.commands.lint import lint_files, report_lines
from omnigraph.cli.commands.mutate import result_line
from omnigraph.cli.output import print_text
from omnigraph.cli.tables import RowFormat, render_rows
from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from omnigraph.graph import Result

_EXAMPLES = ("bibliography", "dependencies")

_TOPICS = """
query topics() {
  insert Topic { slug: "trees", label: "Trees" }
  insert Topic { slug: "heaps", label: "Heaps" }
  insert PartOf { from: "heaps", to: "trees" }
}
"""
_SUBTOPICS = """
query subtopics() {
  match { $broad: Topic  $narrow partOf $broad }
  return { $broad.label as topic, count($narrow) as subtopics }
  order { subtopics desc }
}
"""
_SEARCH = """
query find($text: String) {
  match { $t: Topic }
  return { $t.slug as slug, bm25($t.label, $text) as score }
  order { bm25($t.label, $text) }
  limit 3
}
"""
_DANGLING = 'query dangling() { insert PartOf { from: "heaps", to: "nowhere" } }'


def demo() -> None:
    """Run the product on its two example graphs."""
    root = example_directory()
    failed = [name for name in _EXAMPLES if not _lint_example(root / name)]
    _explain_example(root / _EXAMPLES[0])
    _change_example(root / _EXAMPLES[0])
    if failed:
        raise typer.Exit(1)


def _lint_example(folder: Path) -> bool:
    """Check the queries of an example; whether all of them are right."""
    from omnigraph.schema import compile_schema_file

    catalog = compile_schema_file(folder / "schema.pg").catalog
    print_text(
        f"== {folder.name}: {len(catalog.nodes)} node types, {len(catalog.edges)} edge types"
    )
    reports = [
        lint_files(folder / "schema.pg", folder / f"{n}.gq") for n in ("queries", "mutations")
    ]
    for report in reports:
        print_text("\n".join(f"   {line}" for line in report_lines(report)))
    return not any(report.errors for report in reports)


def _explain_example(folder: Path) -> None:
    from omnigraph.query import compile_query, explain_ir, read_queries
    from omnigraph.schema import compile_schema_file

    catalog = compile_schema_file(folder / "schema.pg").catalog
    source = read_queries(folder / "queries.gq")
    compiled = compile_query(source, catalog, "influential_without_venue")
    print_text(f"\n== the plan of one query of the {folder.name}\n")
    print_text(explain_ir(compiled.ir))


def _change_example(folder: Path) -> None:
    """Create a graph, change two tables in one commit, and try to leave a dangling edge."""
    from omnigraph.graph import Graph

    print_text(f"== a graph with the schema of the {folder.name}, in a temporary directory\n")
    with (
        tempfile.TemporaryDirectory() as scratch,
        Graph.init(Path(scratch) / "demo.omni", folder / "schema.pg") as graph,
    ):
        print_text(f"mutate topics   → {result_line(graph.mutate(_TOPICS, actor='demo'))}")
        try:
            graph.mutate(_DANGLING)
        except BadRequestError as refusal:
            print_text(f"mutate dangling → refused, nothing written: {refusal}")
        _show(graph.query(_SUBTOPICS))
        _show(graph.query(_SEARCH, {"text": "heap"}))
        pins = graph.snapshot().pins.values()
        counts = ", ".join(f"{pin.table_key} {pin.row_count}" for pin in pins if pin.row_count)
        print_text(f"snapshot        → {counts}")
        for commit in graph.commits():
            print_text(f"commit          → {commit_line(commit)}")


def _show(result: Result) -> None:
    lines = "\n".join(f"  {line}" for line in render_rows(result, RowFormat.TABLE))
    print_text(f"query {result.query_name}:\n{lines}")


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
