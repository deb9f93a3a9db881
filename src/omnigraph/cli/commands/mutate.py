"""`omnigraph mutate`: change a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import (
    AsJson,
    Branch,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
)
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.cli.sources import STORED, read_params, source_or_name

if TYPE_CHECKING:
    from omnigraph.wire.receipts import MutationResult


@scoped("mutate")
def mutate(
    address: Address,
    name: QueryName = None,
    query: QueryFile = None,
    query_string: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="ID", help="run only while the branch head is ID"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run one mutation query; all of it becomes visible at once, or nothing does.

    With a source, NAME selects the query inside it; without one, it is a stored query of a server.
    """
    source = source_or_name(query, query_string, name)
    values = read_params(params, params_file)
    actor = address.actor
    result: MutationResult
    if isinstance(source, str):
        with address.open_served(STORED) as server:
            result = server.run(
                source, values, branch=branch, expect_mutation=True, if_commit=if_commit
            )
    else:
        with address.open(read_only=False) as graph:
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
