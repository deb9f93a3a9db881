"""`omnigraph explain`: the plan of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from omnigraph.cli.options import AsJson, QueryFile, QueryName, QueryText, SchemaFile
from omnigraph.cli.output import print_json, print_text

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.syntax import SourceText


def explain(
    schema: SchemaFile,
    name: QueryName = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    json: AsJson = False,
) -> None:
    """Print what a query means, as stable text: one operator per line."""
    from omnigraph.query import compile_query, explain_ir
    from omnigraph.schema import compile_schema_file

    source = query_source(query, query_string)
    catalog = compile_schema_file(schema).catalog
    compiled = compile_query(source, catalog, name)
    plan = explain_ir(compiled.ir)
    if not json:
        print_text(plan)
        return
    print_json(
        {
            "query_name": compiled.name,
            "kind": "mutation" if compiled.is_mutation else "read",
            "plan": plan.splitlines(),
            "operation": compiled.operation.to_json(),
        }
    )


def query_source(path: Path | None, text: str | None) -> SourceText:
    """The one source that the flags name."""
    from omnigraph.query import read_queries
    from omnigraph.syntax import SourceText

    if (path is None) == (text is None):
        raise typer.BadParameter("give exactly one of --query FILE and -e GQ")
    if path is not None:
        return read_queries(path)
    if text is None or not text.strip():
        raise typer.BadParameter("the query text is empty")
    return SourceText(text, "<query>")
