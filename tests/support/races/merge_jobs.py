"""What one participant of a race of merges does; runs in a thread or in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omnigraph.errors import BadRequestError, ConflictError, OmniError
from omnigraph.graph.graph import Graph
from support.races.jobs import Outcome, insert_notes


def told(call: Callable[[], Outcome]) -> Outcome:
    """The outcome of a call, or its typed failure."""
    try:
        return call()
    except OmniError as error:
        return {
            "error": type(error).__name__,
            "message": error.message,
            "lost": isinstance(error, ConflictError),
            "refused": isinstance(error, BadRequestError),
        }


def merge(graph: Graph, who: int, source: str, into: str = "main", **options: Any) -> list[Outcome]:
    """One merge; it is never submitted again."""

    def call() -> Outcome:
        result = graph.merge(source, into, **options)
        commit = result.commit
        return {
            "outcome": str(result.outcome),
            "commit": None if commit is None else commit.commit_id,
            "parent": None if commit is None else commit.parent_id,
            "graph_version": None if commit is None else commit.graph_version,
            "branch": into,
            "branch_deleted": result.branch_deleted,
        }

    return [told(call)]


def merge_often(graph: Graph, who: int, source: str, count: int, into: str = "main") -> list[Outcome]:
    """The same merge again and again."""
    return [outcome for _ in range(count) for outcome in merge(graph, who, source, into)]


def create(graph: Graph, who: int, name: str, base: str = "main") -> list[Outcome]:
    """One creation of a branch."""

    def call() -> Outcome:
        graph.create_branch(name, base)
        return {"created": name}

    return [told(call)]


def delete(graph: Graph, who: int, name: str) -> list[Outcome]:
    """One deletion of a branch."""

    def call() -> Outcome:
        graph.delete_branch(name)
        return {"deleted": name}

    return [told(call)]


JOBS: dict[str, Callable[..., list[Outcome]]] = {
    job.__name__: job for job in (insert_notes, merge, merge_often, create, delete)
}


def run_job(name: str, root: str, who: int, arguments: dict[str, Any]) -> list[Outcome]:
    """Run a job on a graph of its own."""
    with Graph.open(root) as graph:
        return JOBS[name](graph, who, **arguments)
