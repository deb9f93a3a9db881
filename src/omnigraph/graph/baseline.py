"""Baselines: a whole branch as it is now, and the cursor from which its change feed goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.branches.selection import make_filter
from omnigraph.branches.type_deltas import definitions_of
from omnigraph.graph.exporting import ExportCall, export_snapshot
from omnigraph.manifest.snapshot import snapshot_of
from omnigraph.wire.exports import BaselineResult

if TYPE_CHECKING:
    from omnigraph.graph.history import Selection
    from omnigraph.graph.limits import ReadLimits
    from omnigraph.manifest.rows import Head
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.schema.catalog import Catalog
    from omnigraph.wire.exports import ExportTarget


def write_baseline(
    environment: GraphEnvironment,
    head: Head,
    catalog: Catalog,
    selection: Selection,
    *,
    out: ExportTarget,
    cursor: str,
    limits: ReadLimits,
) -> BaselineResult:
    """Write the entities of a head. Operations of the selection bind the cursor only: a baseline has none."""
    filter_ = make_filter([catalog], selection.kinds, selection.types, selection.ops)
    wanted = [key for key in sorted(definitions_of(catalog)) if filter_.has_type(key)]
    call = ExportCall(
        target=out,
        types=wanted,
        format="jsonl",
        parts=False,
        engine="local",
        spark=None,
        progress=None,
        limits=limits,
    )
    exported = export_snapshot(environment, snapshot_of(head), catalog, call)
    return BaselineResult(
        target=exported.target,
        entities=sum(exported.nodes.values()) + sum(exported.edges.values()),
        snapshot_commit_id=head.commit_id,
        resume_cursor=cursor,
    )
