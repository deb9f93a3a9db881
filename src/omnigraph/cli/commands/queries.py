"""`omnigraph queries`: the stored queries of a server, before it starts and while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import AsJson, ConfigFile, ConfiguredGraph, OptionalSchemaFile, Store
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.resolution import storage_uri
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from omnigraph.schema.catalog import Catalog
    from omnigraph.serving.config import ServedGraph
    from omnigraph.serving.sources import QuerySource
    from omnigraph.serving.stored import CheckReport

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
    address: Address, config: ConfigFile = None, queries: QueryPath = None, json: AsJson = False
) -> None:
    """List stored queries: kind, name, parameters, description, instruction, name as a tool.

    Those of a running server, as far as you may run them, or those of a configuration or of files.
    """
    entries = _entries(address, config, queries)
    if json:
        print_json({"queries": entries})
    else:
        print_text("\n".join(_list_lines(entries)) or "no stored queries")


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
    from omnigraph.serving.stored import check_files

    sources, served = _sources(config, graph, queries)
    report = check_files(sources, _catalog(served, store, schema))
    if json:
        print_json(report.to_json())
    else:
        print_text("\n".join(_report_lines(report)))
    if not report.ok:
        raise typer.Exit(1)


def _entries(address: Address, config: Path | None, queries: Path | None) -> list[dict[str, Any]]:
    """The catalog of what the flags name."""
    from omnigraph.serving.stored import StoredQueries

    if config is None and queries is None:
        with address.open_served("stored queries are those of a server") as graph:
            return list(graph.queries())
    if address.names_server:
        raise typer.BadParameter("give one of --server, --config FILE and --queries PATH")
    sources, _ = _sources(config, address.graph_id, queries)
    return StoredQueries.read(sources).to_json()


def _sources(
    config: Path | None, graph: str | None, queries: Path | None
) -> tuple[tuple[QuerySource, ...], ServedGraph | None]:
    """The sources that the flags name, and the graph when a configuration names it."""
    from omnigraph.serving.config import read_config
    from omnigraph.serving.sources import query_sources

    if queries is not None and config is None:
        if graph is not None:
            raise typer.BadParameter("--graph chooses among the graphs of --config")
        return query_sources(queries), None
    if config is None or queries is not None:
        raise typer.BadParameter("give exactly one of --config FILE and --queries PATH")
    served = read_config(config).graph(graph)
    return served.queries, served


def _catalog(served: ServedGraph | None, store: str | None, schema: Path | None) -> Catalog:
    from omnigraph.schema.compiler import compile_schema, compile_schema_file

    if store is not None and (served is not None or schema is not None):
        raise typer.BadParameter("give one of --config, --store and --schema to check against")
    if schema is not None:
        return compile_schema_file(schema).catalog
    address = store if served is None else served.store
    if address is None:
        raise typer.BadParameter("nothing to check against: give --store URI or --schema FILE")
    from omnigraph.graph.graph import Graph

    with Graph.open(storage_uri(address, "the graph"), read_only=True) as graph:
        return compile_schema(graph.schema).catalog


def _list_lines(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for entry in entries:
        kind = "mutation" if entry["mutation"] else "read"
        params = ", ".join(_parameter(param) for param in entry["params"])
        yield f"{kind:<8} {entry['name']}({params})"
        for label, text in (
            ("", entry.get("description")),
            ("instruction: ", entry.get("instruction")),
            ("tool: ", entry["tool_name"]),
        ):
            if text is not None:
                yield f"         {label}{one_line(text)}"


def _parameter(param: Mapping[str, Any]) -> str:
    size = param.get("item_kind") or param.get("vector_dim")
    of = "" if size is None else f" of {size}"
    return f"{param['name']}: {param['kind']}{of}{'?' if param['nullable'] else ''}"


def _report_lines(report: CheckReport) -> Iterator[str]:
    for finding in (*report.breakages, *report.warnings):
        yield finding.diagnostic.render()
    if report.unlisted:
        yield f"… and {_count(report.unlisted, 'more breakage', 'more breakages')}"
    counts = [
        _count(report.queries, "query", "queries"),
        _count(report.total, "breakage", "breakages"),
        _count(len(report.warnings), "warning", "warnings"),
    ]
    yield ", ".join(counts)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
