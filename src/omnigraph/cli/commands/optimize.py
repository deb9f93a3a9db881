"""`omnigraph optimize`: bring derived state up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import Actor, AsJson, Branch, GraphUri, Store
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import open_graph

if TYPE_CHECKING:
    from omnigraph.graph import IndexReport


def optimize(
    uri: GraphUri = None,
    store: Store = None,
    indexes_only: Annotated[
        bool, typer.Option("--indexes-only", help="build missing indexes and nothing else")
    ] = False,
    branch: Branch = "main",
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Build the indexes that the schema declares and the data lacks, as one commit."""
    if not indexes_only:
        raise typer.BadParameter("this release builds indexes only: give --indexes-only")
    with open_graph(uri, store, read_only=False) as graph:
        report = graph.ensure_indices(branch, actor=actor)
        pins = graph.snapshot(branch).pins
    if not json:
        print_text(_text(report))
        return
    built = {item.type_key: item.names for item in report.built}
    datasets: list[dict[str, object]] = [
        {
            "type_key": key,
            "built_indexes": list(built.get(key, ())),
            "committed": key in built,
            "published_dataset_version": pin.version,
            "pending_indexes": [
                {"property": item.property, "reason": item.reason}
                for item in report.pending
                if item.type_key == key
            ],
        }
        for key, pin in sorted(pins.items())
    ]
    commit = None if report.commit is None else report.commit.commit_id
    print_json({"branch": report.branch, "graph_commit_id": commit, "datasets": datasets})


def _text(report: IndexReport) -> str:
    lines = [f"{item.type_key}: built {', '.join(item.names)}" for item in report.built]
    lines += [f"{item.type_key}.{item.property}: pending, {item.reason}" for item in report.pending]
    if report.commit is None:
        lines.append("nothing to build" if report.pending else "every index is up to date")
    else:
        lines.append(f"commit {report.commit.commit_id} on {report.branch}")
    return "\n".join(lines)
