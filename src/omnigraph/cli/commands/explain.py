"""`omnigraph explain`: the plan of a query."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import (
    AsJson,
    OptionalSchemaFile,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    ReadBranch,
    Timeout,
)
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.sources import query_source, read_params


@scoped("explain")
def explain(
    address: Address,
    name: QueryName = None,
    schema: OptionalSchemaFile = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="run the query, show rows and time per operator")
    ] = False,
    timeout: Timeout = None,
    json: AsJson = False,
) -> None:
    """Print what a query means, one operator per line; with a graph also how it would run there."""
    from omnigraph.query.compiler import compile_query
    from omnigraph.query.explain import explain_ir
    from omnigraph.schema.compiler import compile_schema, compile_schema_file

    if schema is not None and address.is_explicit:
        raise typer.BadParameter("give --schema FILE or a graph, not both")
    source = query_source(query, query_string)
    values = read_params(params, params_file)
    if schema is not None:
        if analyze or values or branch is not None:
            raise typer.BadParameter("--analyze, --params and --branch need a graph, not --schema")
        catalog = compile_schema_file(schema).catalog
        compiled = compile_query(source, catalog, name)
        plan = explain_ir(compiled.ir)
    else:
        with address.open(read_only=True) as graph:
            plan = graph.explain(
                source,
                values,
                name=name,
                branch=branch or "main",
                analyze=analyze,
                timeout_s=timeout,
            )
            catalog = compile_schema(graph.schema).catalog
        compiled = compile_query(source, catalog, name)
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
