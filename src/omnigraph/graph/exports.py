"""Exports and baselines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from omnigraph.api.reading_api import FilterKeywords, TargetKeywords
from omnigraph.api.results import STDOUT, BaselineResult, ExportResult, ExportTarget, line_writer
from omnigraph.branches.deltas import make_filter
from omnigraph.commit.rows import MAIN
from omnigraph.commit.snapshot import Snapshot, snapshot_of
from omnigraph.commit.targets import reading_pins
from omnigraph.core.budget import CancelSignal, ReadLimits, bounded
from omnigraph.core.ids import check_branch_name
from omnigraph.core.source import nearest
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
from omnigraph.pipeline.engine_choice import (
    AUTO_LOCAL_MAX_BYTES,
    ChosenEngine,
    Engine,
    bytes_of,
    check_engine,
    choose_engine,
)
from omnigraph.pipeline.export.files import export_target
from omnigraph.pipeline.export.formats import refuse_long_line, shape_of
from omnigraph.pipeline.export.job import Exported, ExportFormat, ExportSource, export_files, export_stream
from omnigraph.pipeline.sources.records import MAX_LINE_BYTES
from omnigraph.pipeline.workers import Progress, Silent, operation
from omnigraph.spark import choose_workers
from omnigraph.storage.datasets.blobs import BlobFacts, look_at_blobs
from omnigraph.storage.datasets.fragments import read_addresses
from omnigraph.storage.datasets.partitions import stored_bytes
from omnigraph.writes.columns import blob_columns

if TYPE_CHECKING:
    from omnigraph.spark import Session


# ---- Exporting a snapshot


@frozen(kw_only=True)
class ExportCall:
    """What is written where, and by whom."""

    target: ExportTarget
    #: Names or table keys; None is every type.
    types: Sequence[str] | None
    format: str = "jsonl"
    parts: bool = False
    engine: str = Engine.LOCAL
    spark: Session | None = None
    progress: Progress
    limits: ReadLimits


@graph_method
def export(
    graph: OpenGraph,
    target: ExportTarget,
    *,
    types: Sequence[str] | None = None,
    format: str = "jsonl",
    parts: bool = False,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
    **state: Unpack[TargetKeywords],
) -> ExportResult:
    wanted = graph.target(**state)
    call = ExportCall(
        target=target,
        types=types or None,
        format=format,
        parts=parts,
        engine=engine,
        spark=spark,
        progress=progress or Silent(),
        limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
    )
    with graph.reading():
        return _export(graph, graph.resolve(wanted), call)


def _export(graph: OpenGraph, snapshot: Snapshot, call: ExportCall) -> ExportResult:
    """Write the rows of a snapshot.

    Raises:
        BadRequestError: a name, an option or the target is wrong, or a value cannot be expressed; nothing was written.
        HistoricalVersionReclaimedError: a version was cleaned up.
    """
    format_ = _format(call)
    definitions = _chosen(graph.catalog_of(snapshot), call.types)
    pins = [snapshot.pins[definition.table_key] for definition in definitions]
    with (
        reading_pins(graph.environment.tables, pins),
        operation("export", graph.uri),
        bounded(call.limits.budget(), "Export"),
    ):
        target = call.target
        if isinstance(target, str | os.PathLike) and os.fspath(target) != STDOUT:
            place = export_target(target, graph.uri)
            with call.progress.stage("look at the tables", 1) as stage:
                sources = _sources(graph, snapshot, definitions, format_)
                size = sum(stored_bytes(source.table) for source in sources)
                chosen = _choose(call, size)
                stage.note(str(chosen))
            exported = export_files(
                sources,
                place,
                format=format_,
                parts=call.parts,
                workers=choose_workers(chosen.name, call.spark, call.progress, size),
                progress=call.progress,
                durable=graph.environment.durable,
            )
            return _result(place.uri, format_, exported, snapshot, chosen)
        if format_ is ExportFormat.PARQUET or call.parts:
            raise BadRequestError("a stream takes JSON lines: give a path for Parquet or for parts")
        sources = _sources(graph, snapshot, definitions, format_)
        written = export_stream(sources, line_writer(target), call.progress)
        return _result(STDOUT, format_, written, snapshot, None)


def _choose(call: ExportCall, size: int) -> ChosenEngine:
    """The engine for tables that take so many bytes."""
    only_spark = "" if call.spark is None else "a Spark session was given"
    return choose_engine(call.engine, bytes_of("tables", size, AUTO_LOCAL_MAX_BYTES.read()), only_spark=only_spark)


def _format(call: ExportCall) -> ExportFormat:
    if call.format not in list(ExportFormat):
        known = ", ".join(ExportFormat)
        raise BadRequestError(f"there is no export format {call.format!r}: give one of {known}")
    check_engine(call.engine)
    if call.format == ExportFormat.PARQUET and call.parts:
        raise BadRequestError("Parquet is always written in parts: give one of the two")
    return ExportFormat(call.format)


def _chosen(catalog: Catalog, types: Sequence[str] | None) -> list[NodeDef | EdgeDef]:
    """The types that names mean, by table key as text. A bare name means the node type and the edge type."""
    if isinstance(types, str):
        raise BadRequestError(f"types is a list of names: give [{types!r}]")
    every = [definition for _, definition in sorted(catalog.types.items())]
    known = {definition.table_key for definition in every} | {item.name for item in every}
    if types is None:
        return every
    unknown = [name for name in types if name not in known]
    if unknown:
        near = nearest(unknown[0], known)
        listing = ", ".join(definition.table_key for definition in every)
        hint = f"the graph has {listing}" if near is None else f"did you mean `{near}`?"
        raise BadRequestError(f"there is no type {', '.join(unknown)}: {hint}")
    return [item for item in every if item.name in types or item.table_key in types]


def _sources(
    graph: OpenGraph, snapshot: Snapshot, definitions: Sequence[NodeDef | EdgeDef], format_: ExportFormat
) -> list[ExportSource]:
    sources = []
    for definition in definitions:
        key = definition.table_key
        table = graph.open_table(snapshot.pins[key])
        shape = shape_of(definition)
        if blobs := sorted(blob_columns(definition)):
            facts = look_at_blobs(table, blobs)
            # Told before the first line: what a stream has taken cannot be taken back.
            if format_ is ExportFormat.JSONL and _base64_bytes(facts) > MAX_LINE_BYTES:
                (entity_id,) = read_addresses(table, "id", [facts.largest_row])
                refuse_long_line(key, entity_id, _base64_bytes(facts))
            shape = replace(shape, referring=facts.referring)
        sources.append(ExportSource(shape=shape, table=table))
    return sources


def _base64_bytes(facts: BlobFacts) -> int:
    """The minimal length of the largest blobs of a row as text."""
    return -(-facts.largest_bytes // 3) * 4


def _result(
    target: str, format_: ExportFormat, exported: Exported, snapshot: Snapshot, engine: ChosenEngine | None
) -> ExportResult:
    counts: dict[str, dict[str, int]] = {"node": {}, "edge": {}}
    for key, rows in exported.rows.items():
        counts[key.kind][key.name] = rows
    return ExportResult(
        target=target,
        format=str(format_),
        files=exported.names,
        nodes=counts["node"],
        edges=counts["edge"],
        commit_id=snapshot.commit_id,
        engine=engine,
    )


# ---- Baselines of the change feed


@graph_method
def baseline(
    graph: OpenGraph,
    branch: str = MAIN,
    *,
    out: ExportTarget,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
    **chosen: Unpack[FilterKeywords],
) -> BaselineResult:
    from omnigraph.branches.history import Selection

    selection, limits = Selection(**chosen), ReadLimits(timeout_s=timeout_s, cancel=cancel)
    name = check_branch_name(branch)
    with graph.reading():
        state = graph.state()
        head = state.head(name)
        catalog = graph.catalog_of(head)
        cursor = graph.history.cursor_at_head(state, name, selection)
        # Operations of the selection bind the cursor only: a baseline has none.
        filter_ = make_filter([catalog], selection.kinds, selection.types, selection.ops)
        wanted = [key for key in sorted(catalog.types) if filter_.has_type(key)]
        call = ExportCall(target=out, types=wanted, progress=Silent(), limits=limits)
        exported = _export(graph, snapshot_of(head), call)
    return BaselineResult(
        target=exported.target,
        entities=sum(exported.nodes.values()) + sum(exported.edges.values()),
        snapshot_commit_id=head.commit_id,
        resume_cursor=cursor,
    )
