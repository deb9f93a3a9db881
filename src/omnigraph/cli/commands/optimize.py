"""`omnigraph optimize`: bring layout, indexes and catalog into their best shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Branch, ElasticEngine, EngineChoice, Quiet, Timeout
from omnigraph.cli.output import print_json, print_lines, print_text
from omnigraph.cli.progress import terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph.graph import Graph
    from omnigraph.graph.optimizing import OptimizedTable, OptimizeReport
    from omnigraph.graph.results import IndexReport


@scoped("optimize", positional=True)
def optimize(
    address: Address,
    indexes_only: Annotated[
        bool, typer.Option("--indexes-only", help="build missing indexes and nothing else")
    ] = False,
    branch: Branch = "main",
    engine: EngineChoice = ElasticEngine.AUTO,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Compact every dataset of main, complete its indexes and fold the catalog, as one commit that changes no row."""
    if not indexes_only and branch != "main":
        raise typer.BadParameter("other branches than main get indexes only: give --indexes-only")
    actor = address.actor
    address.echo("optimize", quiet=quiet)
    with address.open_storage(read_only=False) as graph:
        if indexes_only:
            built = graph.ensure_indices(branch, actor=actor, timeout_s=timeout)
            _print_indexes(graph, built, json=json)
            return
        report = graph.optimize(
            actor=actor,
            engine=engine,
            progress=terminal_progress(quiet=quiet),
            timeout_s=timeout,
        )
    if json:
        print_json(report.to_json())
    else:
        print_lines(_lines(report))


def _lines(report: OptimizeReport) -> Iterator[str]:
    for table in report.tables:
        done = _work(table)
        if done:
            yield f"{table.type_key}: {'; '.join(done)}"
        for item in table.pending_indexes:
            yield f"{table.type_key}.{item.property}: pending, {item.reason}"
    catalog = report.catalog
    if catalog.fragments_removed or catalog.versions_removed:
        yield (
            f"catalog: {_count(catalog.fragments_removed, 'fragment')} folded, "
            f"{_count(catalog.versions_removed, 'old version')} removed"
        )
    if report.commit is None:
        yield "nothing to commit"
    else:
        yield f"commit {report.commit.commit_id} on {report.branch}"


def _work(table: OptimizedTable) -> list[str]:
    done = []
    if table.skipped == "drift_needs_repair":
        done.append("skipped, something else moved it: see `omnigraph repair`")
    elif table.skipped is not None:
        done.append("skipped, writers kept changing it")
    if table.fragments_removed:
        into = _count(table.fragments_added, "fragment")
        done.append(f"{_count(table.fragments_removed, 'fragment')} into {into}")
    if table.built_indexes:
        done.append(f"built {', '.join(table.built_indexes)}")
    return done


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


# ---- indexes only


def _print_indexes(graph: Graph, report: IndexReport, *, json: bool) -> None:
    if not json:
        print_text(_index_text(report))
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
        for key, pin in sorted(graph.snapshot(report.branch).pins.items())
    ]
    commit = None if report.commit is None else report.commit.commit_id
    print_json({"branch": report.branch, "graph_commit_id": commit, "datasets": datasets})


def _index_text(report: IndexReport) -> str:
    lines = [f"{item.type_key}: built {', '.join(item.names)}" for item in report.built]
    lines += [f"{item.type_key}.{item.property}: pending, {item.reason}" for item in report.pending]
    if report.commit is None:
        lines.append("nothing to build" if report.pending else "every index is up to date")
    else:
        lines.append(f"commit {report.commit.commit_id} on {report.branch}")
    return "\n".join(lines)
