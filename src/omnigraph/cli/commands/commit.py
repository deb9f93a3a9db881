"""`omnigraph commit`: the history of a graph."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Branch, GraphUri, Store
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import open_graph

if TYPE_CHECKING:
    from omnigraph.manifest import GraphCommit

app = typer.Typer(
    help="Look at the history of a graph.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_commits(
    uri: GraphUri = None,
    store: Store = None,
    branch: Branch = "main",
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="actor=ID", help="only commits of an actor")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="ID", help="short form of --filter actor=ID")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the commits of a branch, newest first."""
    from omnigraph.graph import commit_json

    wanted = _actor(filter_, actor)
    with open_graph(uri, store, read_only=True) as graph:
        commits = graph.commits(branch, actor=wanted)
    if json:
        print_json({"commits": [commit_json(commit) for commit in commits]})
    elif commits:
        print_text("\n".join(commit_line(commit) for commit in commits))
    else:
        print_text("no commits")


@app.command("show")
def show_commit(
    commit_id: Annotated[str, typer.Argument(metavar="ID", help="commit id")],
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Show one commit."""
    from omnigraph.graph import commit_json

    with open_graph(None, store, read_only=True) as graph:
        commit = graph.commit(commit_id)
    if json:
        print_json(commit_json(commit))
        return
    facts = {
        "commit": commit.commit_id,
        "branch": commit.branch,
        "graph version": commit.graph_version,
        "parent": commit.parent_id or "none",
        "merged parent": commit.merged_parent_id,
        "actor": commit.actor or "none",
        "recovered for": commit.recovery_for_actor,
        "created": _time(commit.created_at),
        "kind": commit.kind,
        "tables": ", ".join(commit.tables) or "none",
    }
    print_text(
        "\n".join(f"{name:<14} {value}" for name, value in facts.items() if value is not None)
    )


def commit_line(commit: GraphCommit) -> str:
    """One commit as a line."""
    actor = commit.actor or "-"
    return f"{commit.commit_id}  {_time(commit.created_at)}  {commit.branch:<8} {commit.kind:<14} {actor}"


def _time(microseconds: int) -> str:
    return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"


def _actor(filter_: str | None, actor: str | None) -> str | None:
    if filter_ is None:
        return actor
    key, _, value = filter_.partition("=")
    if key != "actor" or not value or actor is not None:
        raise typer.BadParameter("the one filter is actor=ID")
    return value
