"""The past of an open graph: commits, differences, changes and their feed, and recoveries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from omnigraph.api.listings import check_branch_choice, commit_list
from omnigraph.api.reading_api import FilterKeywords, TargetKeywords
from omnigraph.commit.audit import RecoveryRecord
from omnigraph.commit.lineage import first_parents
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.commit.targets import check_readable
from omnigraph.core.budget import CancelSignal, ReadLimits, bounded
from omnigraph.core.ids import check_branch_name
from omnigraph.errors.requests import DIFF
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph, graph_method

if TYPE_CHECKING:
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.diffs import Diff
    from omnigraph.branches.feed import FeedPage
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


@graph_method
def commits(
    graph: OpenGraph, branch: str = MAIN, actor: str | None = None, *, all_branches: bool = False
) -> list[GraphCommit]:
    name = check_branch_choice(branch, all_branches=all_branches)
    with graph.reading():
        state = graph.state()
        if name is None:
            found = graph.history.log(state, None)
        else:
            found = list(first_parents(graph.environment.manifest.commits(), state.head(name).commit_id))
    return commit_list(found, actor)


@graph_method
def commit(graph: OpenGraph, commit_id: str) -> GraphCommit:
    commit_id = graph.commit_id(commit_id)
    return check_readable(graph.state(), graph.environment.manifest.commit(commit_id), commit_id)


@graph_method
def log(graph: OpenGraph, branch: str | None = None) -> list[GraphCommit]:
    name = None if branch is None else check_branch_name(branch)
    with graph.reading():
        return commit_list(graph.history.log(graph.state(), name))


@graph_method
def entity_at(graph: OpenGraph, type_key: str, entity_id: str, **target: Unpack[TargetKeywords]) -> RowImage | None:
    wanted = graph.target(**target)
    with graph.reading():
        return graph.history.entity_at(graph.state(), wanted, type_key, entity_id)


# ---- differences and changes


@graph_method
def diff(
    graph: OpenGraph,
    one: str,
    other: str,
    *,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
    **chosen: Unpack[FilterKeywords],
) -> Diff:
    from omnigraph.branches.history import Selection
    from omnigraph.pipeline.workers import Silent, operation
    from omnigraph.spark import ElasticWorkers

    selection, workers = Selection(**chosen), ElasticWorkers(engine, spark, progress or Silent())
    budget = ReadLimits(timeout_s=timeout_s, cancel=cancel).budget()
    with graph.reading(), operation("diff", graph.uri), bounded(budget, DIFF):
        one, other = graph.state_name(one), graph.state_name(other)
        found = graph.history.diff(graph.state(), one, other, selection, workers)
    return replace(found, states=_States(graph))


@frozen
class _States:
    """The states of a graph for the pictures of its differences."""

    graph: OpenGraph

    def catalog(self, *, snapshot: str) -> Catalog:
        return self.graph.catalog_of(self.graph.resolve(Target(snapshot=snapshot)))

    def entity_at(self, type_key: str, entity_id: str, /, *, snapshot: str) -> RowImage | None:
        with self.graph.reading():
            return self.graph.history.entity_at(self.graph.state(), Target(snapshot=snapshot), type_key, entity_id)


@graph_method
def changes(
    graph: OpenGraph,
    commit_id: str,
    *,
    limit: int = 1_000,
    max_bytes: int = 4 * 1024 * 1024,
    page_token: str | None = None,
    **chosen: Unpack[FilterKeywords],
) -> ChangesPage:
    from omnigraph.branches.changes import PageBudget
    from omnigraph.branches.history import Selection

    selection, budget = Selection(**chosen), PageBudget.of(limit, max_bytes)
    with graph.reading():
        return graph.history.changes(graph.state(), graph.commit_id(commit_id), selection, budget, page_token)


@graph_method
def feed(
    graph: OpenGraph,
    branch: str = MAIN,
    cursor: str | None = None,
    start: str | None = None,
    *,
    limit: int = 1_000,
    max_bytes: int = 4 * 1024 * 1024,
    max_commits: int = 128,
    page_token: str | None = None,
    **chosen: Unpack[FilterKeywords],
) -> FeedPage:
    from omnigraph.branches.feed import FeedCall
    from omnigraph.branches.history import Selection

    call = FeedCall(
        cursor=cursor, start=start, page_token=page_token, limit=limit, max_bytes=max_bytes, max_commits=max_commits
    )
    selection = Selection(**chosen)
    with graph.reading():
        return graph.history.poll(graph.state(), check_branch_name(branch), selection, call)


# ---- recovery


@graph_method
def refresh(graph: OpenGraph) -> None:
    if not graph.read_only:
        graph.heal()
    graph.state()


@graph_method
def recoveries(graph: OpenGraph) -> list[RecoveryRecord]:
    return graph.environment.audit.records()


@graph_method
def pending_recoveries(graph: OpenGraph) -> list[str]:
    from omnigraph.commit.sidecar import list_sidecars

    return list_sidecars(graph.environment.objects)
