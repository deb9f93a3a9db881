"""`omnigraph mutate`: change a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import (
    Actor,
    AsJson,
    Branch,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    Store,
)
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import open_graph
from omnigraph.cli.sources import query_source, read_params

if TYPE_CHECKING:
    from omnigraph.graph import MutationResult


def mutate(
    name: QueryName = None,
    store: Store = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="ID", help="run only while the branch head is ID"),
    ] = None,
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Run one mutation query; all of it becomes visible at once, or nothing does."""
    source = query_source(query, query_string)
    values = read_params(params, params_file)
    with open_graph(None, store, read_only=False) as graph:
        result = graph.mutate(
            source, values, name=name, branch=branch, actor=actor, if_commit=if_commit
        )
    if json:
        print_json(result.to_json())
    else:
        print_text(result_line(result))


def result_line(result: MutationResult) -> str:
    """The receipt as a person reads it."""
    if result.commit is None:
        return "nothing matched, nothing changed"
    nodes = f"{result.affected_nodes} node{'' if result.affected_nodes == 1 else 's'}"
    edges = f"{result.affected_edges} edge{'' if result.affected_edges == 1 else 's'}"
    return f"{nodes}, {edges} in commit {result.commit.commit_id} on {result.branch}"
