"""`omnigraph log`: the history of a graph, as a list or as a drawing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.commit_graph import draw_commits
from omnigraph.cli.commit_lines import BRANCH_WIDTH, commit_line
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.errors import BranchNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnigraph.client.remote import RemoteGraph
    from omnigraph.graph.graph import Graph
    from omnigraph.manifest.rows import GraphCommit
    from omnigraph.manifest.snapshot import Snapshot


@scoped("log", positional=True)
def log(
    address: Address,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", metavar="NAME", help="branch; main is the default, with --graph all are"
        ),
    ] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="draw branches and merges, with all that was merged")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the commits of a graph, newest first."""
    from omnigraph.wire.commits import commit_json, is_of_deleted_branch

    with address.open(read_only=True) as opened:
        if graph:
            heads = branch_heads(opened)
            commits = opened.log(branch)
        else:
            commits = opened.commits(branch or "main")
    if not graph:
        if json:
            print_json({"commits": [commit_json(commit) for commit in commits]})
        else:
            print_lines(commit_line(commit) for commit in commits)
        return
    if json:
        bodies = [
            commit_json(commit) | {"branch_deleted": is_of_deleted_branch(commit, heads)}
            for commit in commits
        ]
        positions = {name: head.commit_id for name, head in heads.items()}
        print_json({"commits": bodies, "heads": positions})
    else:
        print_lines(drawn_history(commits, heads))


def branch_heads(graph: Graph | RemoteGraph) -> dict[str, Snapshot]:
    """Where every branch is."""
    heads = {}
    for name in graph.branches():
        with suppress(BranchNotFoundError):  # somebody deleted it just now
            heads[name] = graph.snapshot(name)
    return heads


def drawn_history(commits: Sequence[GraphCommit], heads: Mapping[str, Snapshot]) -> Iterator[str]:
    """Commits as lines with lanes between them; branches are named at their heads."""
    from omnigraph.wire.commits import is_of_deleted_branch

    branches = {
        commit.commit_id: f"{commit.branch} (deleted)"
        if is_of_deleted_branch(commit, heads)
        else commit.branch
        for commit in commits
    }
    width = max((len(name) for name in branches.values()), default=0)

    def describe(commit: GraphCommit) -> str:
        return commit_line(
            commit, branch=branches[commit.commit_id], branch_width=max(width, BRANCH_WIDTH)
        )

    return draw_commits(commits, head_labels(heads), describe)


def head_labels(heads: Mapping[str, Snapshot]) -> dict[str, list[str]]:
    """The branches that are at a commit, by its id."""
    labels: dict[str, list[str]] = {}
    for name, head in heads.items():
        labels.setdefault(head.commit_id, []).append(name)
    return labels
