"""Indexes, optimize, repair, cleanup, doctor, verify and embed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from omnigraph.commit.notes import note_of
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN
from omnigraph.core.budget import CancelSignal, ReadLimits
from omnigraph.core.ids import check_branch_name
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.graph.reads import prepare_indexes
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from omnigraph.embedding.row_job import EmbedResult
    from omnigraph.maintenance.cleanup import CleanupReport
    from omnigraph.maintenance.findings import DoctorReport
    from omnigraph.maintenance.indexes import IndexReport, PendingIndex
    from omnigraph.maintenance.optimize import OptimizeReport
    from omnigraph.maintenance.repair import RepairReport
    from omnigraph.maintenance.verify import VerifyReport
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


@graph_method
def ensure_indices(
    graph: OpenGraph,
    branch: str = MAIN,
    *,
    actor: str | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> IndexReport:
    from omnigraph.maintenance.indexes import ensure_indices

    limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
    graph.require_writable()
    branch = check_branch_name(branch)
    graph.authorize(Action.ADMIN, actor)
    graph.heal()
    report = ensure_indices(graph.environment, graph.schema_of, branch, actor, limits)
    prepare_indexes(graph, branch)
    return report


@graph_method
def optimize(
    graph: OpenGraph,
    *,
    actor: str | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> OptimizeReport:
    from omnigraph.maintenance.optimize import OptimizeCall, optimize_graph
    from omnigraph.pipeline.workers import Silent, operation

    limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
    graph.require_writable()
    graph.authorize(Action.ADMIN, actor)
    graph.heal()
    call = OptimizeCall(actor=actor, engine=engine, spark=spark, progress=progress or Silent(), limits=limits)
    with operation("optimize", graph.uri):
        report = optimize_graph(graph.environment, graph.schema_of, call)
    prepare_indexes(graph, MAIN)
    return report


@graph_method
def pending_indexes(graph: OpenGraph, branch: str = MAIN) -> list[PendingIndex]:
    from omnigraph.maintenance.indexes import missing_indexes

    snapshot = graph.resolve(Target(branch=branch))
    return missing_indexes(graph.catalog_of(snapshot), snapshot, graph.open_table)


@graph_method
def embed(
    graph: OpenGraph,
    *,
    types: Sequence[str] | None = None,
    branch: str = MAIN,
    reembed: bool = False,
    batch_size: int = 256,
    rate: float | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> EmbedResult:
    from omnigraph.embedding.row_job import EmbedCall, embed_graph
    from omnigraph.pipeline.workers import Silent, operation

    graph.require_writable()
    call = EmbedCall(
        types=types or None,
        branch=check_branch_name(branch),
        reembed=reembed,
        batch_size=batch_size,
        rate=rate,
        engine=engine,
        spark=spark,
        actor=actor,
        note=note_of(message, metadata),
        dry_run=dry_run,
        progress=progress or Silent(),
        limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
    )
    graph.authorize(Action.CHANGE, actor, branch=call.branch)
    graph.heal()
    with graph.reading(), operation("embed", graph.uri):
        return embed_graph(graph.environment, graph.schema_of, call)


@graph_method
def cleanup(
    graph: OpenGraph,
    *,
    keep: int | None = None,
    older_than: str | timedelta | None = None,
    commits: bool = False,
    confirm: bool = False,
    actor: str | None = None,
) -> CleanupReport:
    from omnigraph.maintenance.cleanup import clean_up
    from omnigraph.maintenance.retention import cleanup_call

    call = cleanup_call(keep, older_than, commits=commits, confirm=confirm)
    if confirm:
        graph.require_writable()
        graph.authorize(Action.ADMIN, actor)
    return clean_up(graph.environment, call)


@graph_method
def verify(
    graph: OpenGraph,
    *,
    branches: Collection[str] | None = None,
    record: bool = False,
    actor: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    from omnigraph.maintenance.minimum import edges_outside
    from omnigraph.maintenance.verify import verify_graph
    from omnigraph.pipeline.workers import Silent

    if record:
        graph.require_writable()
        graph.authorize(Action.ADMIN, actor)
    report = verify_graph(graph.environment, branches=branches, progress=progress or Silent(), record=record)
    # Rows of damaged files would not be counted.
    outside = edges_outside(graph.environment, branches) if report.is_sound else ()
    return replace(report, outside=tuple(outside))


@graph_method
def doctor(
    graph: OpenGraph, *, deep: bool = False, rules: bool = False, progress: Progress | None = None
) -> DoctorReport:
    from omnigraph.maintenance.doctor import examine

    return examine(graph.environment, deep=deep, rules=rules, progress=progress)


@graph_method
def repair(graph: OpenGraph, *, confirm: bool = False, force: bool = False, actor: str | None = None) -> RepairReport:
    from omnigraph.maintenance.repair import repair_graph

    graph.require_writable()
    graph.authorize(Action.ADMIN, actor)
    return repair_graph(graph.environment, graph.schema_of, confirm=confirm, force=force, actor=actor)
