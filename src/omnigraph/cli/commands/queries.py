"""`omnigraph queries`: the stored queries of a server, before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import (
    AsJson,
    ConfigFile,
    ConfiguredGraph,
    OptionalSchemaFile,
    Store,
)
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.resolution import storage_uri
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.query import FieldDescriptor
    from omnigraph.schema import Catalog
    from omnigraph.serving import CheckReport, QuerySource, ServedGraph, StoredQuery

app = typer.Typer(
    help="List and check the stored queries of a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

QueryPath = Annotated[
    Path | None,
    typer.Option(
        "--queries", metavar="PATH", help="file or directory of queries, instead of --config"
    ),
]


@app.command("list")
@scoped("queries list")
def list_queries(
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    queries: QueryPath = None,
    json: AsJson = False,
) -> None:
    """List stored queries: kind, name, parameters, description, instruction, name as a tool."""
    from omnigraph.serving import StoredQueries

    sources, _ = _sources(config, graph, queries)
    stored = StoredQueries.read(sources)
    if json:
        print_json({"queries": stored.to_json()})
    else:
        print_text("\n".join(_list_lines(stored)) or "no stored queries")


@app.command("validate")
@scoped("queries validate")
def validate_queries(
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    queries: QueryPath = None,
    store: Store = None,
    schema: OptionalSchemaFile = None,
    json: AsJson = False,
) -> None:
    """Check stored queries against the schema of their graph, or against a schema file.

    Prints what is wrong, then a total. Exits with 1 when a server would not serve the graph.
    """
    from omnigraph.serving import check_files

    sources, served = _sources(config, graph, queries)
    report = check_files(sources, _catalog(served, store, schema))
    if json:
        print_json(report.to_json())
    else:
        print_text("\n".join(_report_lines(report)))
    if not report.ok:
        raise typer.Exit(1)


def _sources(
    config: Path | None, graph: str | None, queries: Path | None
) -> tuple[tuple[QuerySource, ...], ServedGraph | None]:
    """The sources that the flags name, and the graph when a configuration names it."""
    from omnigraph.serving import query_sources, read_config

    if queries is not None and config is None:
        if graph is not None:
            raise typer.BadParameter("--graph chooses among the graphs of --config")
        return query_sources(queries), None
    if config is None or queries is not None:
        raise typer.BadParameter("give exactly one of --config FILE and --queries PATH")
    served = read_config(config).graph(graph)
    return served.queries, served


def _catalog(served: ServedGraph | None, store: str | None, schema: Path | None) -> Catalog:
    from omnigraph.schema import compile_schema, compile_schema_file

    if store is not None and (served is not None or schema is not None):
        raise typer.BadParameter("give one of --config, --store and --schema to check against")
    if schema is not None:
        return compile_schema_file(schema).catalog
    address = store if served is None else served.store
    if address is None:
        raise typer.BadParameter("nothing to check against: give --store URI or --schema FILE")
    from omnigraph.graph import Graph

    with Graph.open(storage_uri(address, "the graph"), read_only=True) as graph:
        return compile_schema(graph.schema).catalog


def _list_lines(queries: Iterable[StoredQuery]) -> Iterator[str]:
    for query in queries:
        params = ", ".join(_parameter(param) for param in query.params)
        yield f"{query.kind:<8} {query.name}({params})"
        for label, text in (
            ("", query.description),
            ("instruction: ", query.instruction),
            ("tool: ", query.tool_name),
        ):
            if text is not None:
                yield f"         {label}{visible(text)}"


def _parameter(param: FieldDescriptor) -> str:
    kind = str(param.kind)
    if param.item_kind is not None:
        kind += f" of {param.item_kind}"
    if param.vector_dim is not None:
        kind += f" of {param.vector_dim}"
    return f"{param.name}: {kind}{'?' if param.nullable else ''}"


def _report_lines(report: CheckReport) -> Iterator[str]:
    for finding in (*report.breakages, *report.warnings):
        yield finding.diagnostic.render()
    counts = [
        _count(report.queries, "query", "queries"),
        _count(len(report.breakages), "breakage", "breakages"),
        _count(len(report.warnings), "warning", "warnings"),
    ]
    yield ", ".join(counts)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
