"""A read from its representation to a stream of result batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from omnigraph.engine.local.aggregate import Grouping
from omnigraph.engine.local.pipeline import START, Measured, ScanHints, run_pipeline
from omnigraph.engine.local.project import entity_columns, project, result_schema
from omnigraph.engine.local.rank import ranked_rows
from omnigraph.engine.local.rows import Rows
from omnigraph.engine.local.sorting import first_rows, sort_groups
from omnigraph.engine.local.variables import needed_variables, result_operands
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from omnigraph.budget import Budget
    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.pipeline import Profile

_Made = TypeVar("_Made", "Rows", "pa.Table")

#: Rows of one result batch: of the first, and at most; and how many bytes one should have.
FIRST_ROWS = 1 << 13
RESULT_ROWS = 1 << 16
RESULT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ResultStream:
    """The columns of a result, and its rows as they are made."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def execute(context: Context, query: ir.ReadIR, profile: Profile | None = None) -> ResultStream:
    """Run a read; nothing happens before the first batch is asked for."""
    schema = result_schema(query.projections)
    if query.limit == 0:
        return ResultStream(schema, iter(()))
    make = _grouped if query.grouped else _plain
    return ResultStream(schema, _bounded(context.budget, make(context, query, schema, profile)))


def _bounded(budget: Budget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a result, counted; the time that their reader takes is not that of the query."""
    try:
        for batch in batches:
            budget.count_rows(batch.num_rows)
            paused_at = budget.pause()
            yield batch
            budget.resume(paused_at)
    finally:
        budget.release_all()


def _plain(
    context: Context, query: ir.ReadIR, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    left, most = query.limit, FIRST_ROWS
    for rows in _timed("Project", _bags(context, query, profile), profile):
        start, total = 0, rows.total if left is None else min(left, rows.total)
        while start < total:
            context.budget.enter("Project")
            batch = rows.written_out(start, min(most, total - start))
            made = project(context, batch, query.projections, schema)
            yield made
            start += batch.count
            if made.num_rows == most:
                # Values may be of any size: what has come says how many rows make a batch.
                width = max(made.nbytes // made.num_rows, 1)
                most = max(1, min(RESULT_ROWS, RESULT_BYTES // width))
        if left is not None:
            left -= total
            if left == 0:
                return


def _bags(context: Context, query: ir.ReadIR, profile: Profile | None) -> Iterator[Rows]:
    """The rows of the result, in order where there is one."""
    if query.rank is not None:
        yield _staged(profile, "Rank", lambda: ranked_rows(context, query, profile))
        return
    stream = run_pipeline(
        context,
        query.pipeline,
        [START],
        needed_variables(query),
        hints=scan_hints(context, query),
        profile=profile,
    )
    if query.order:
        yield _staged(profile, "Order", lambda: first_rows(context, stream, query))
    else:
        yield from stream


def _grouped(
    context: Context, query: ir.ReadIR, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    stream = run_pipeline(
        context,
        query.pipeline,
        [START],
        needed_variables(query),
        hints=scan_hints(context, query),
        profile=profile,
    )
    groups = _staged(profile, "Group", lambda: _group(context, query, stream, schema))
    yield from context.budget.steps(groups.to_batches(max_chunksize=RESULT_ROWS))


def _group(
    context: Context, query: ir.ReadIR, stream: Iterator[Rows], schema: pa.Schema
) -> pa.Table:
    grouping = Grouping(context, query.projections)
    for rows in stream:
        context.budget.enter("Group")
        grouping.add(rows)
    context.budget.enter("Group")
    groups = sort_groups(context, grouping.finish(schema), query)
    return groups if query.limit is None else groups.slice(0, query.limit)


def scan_hints(context: Context, query: ir.ReadIR) -> ScanHints:
    """What the first scan reads beside the nodes.

    Values are read with the nodes when nearly all nodes that are found will be shown: there is no other operator, and
    no order that leaves most of them out; or the nodes are found by their key.
    """
    scan = query.pipeline[0]
    if not isinstance(scan, ir.NodeScan):
        # A filter without variables comes before everything else.
        return ScanHints()
    is_alone = len(query.pipeline) == 1
    is_cut = bool(query.order) and query.limit is not None
    if not (is_alone and not is_cut) and not _finds_by_key(context, scan):
        return ScanHints()
    wanted = dict.fromkeys(entity_columns(result_operands(query)))
    columns = tuple(name for variable, name in wanted if variable == scan.variable)
    limit = query.limit if is_alone and not query.order and not query.grouped else None
    return ScanHints(columns=columns, limit=limit)


def _finds_by_key(context: Context, scan: ir.NodeScan) -> bool:
    key = context.catalog.nodes[scan.node_type].key
    equal = {
        item.left.property
        for item in scan.filters
        if isinstance(item, ir.Comparison)
        and item.op is ir.CompareOp.EQ
        and isinstance(item.left, ir.PropertyRef)
        and isinstance(item.right, ir.ParamRef | ir.Constant)
    }
    return key is not None and equal.issuperset(key.members)


def _staged(profile: Profile | None, stage: str, work: Callable[[], _Made]) -> _Made:
    """Do the work of a stage; the time of the operators that it drives is theirs."""
    if profile is None:
        return work()
    measured = profile.stages.setdefault(stage, Measured())
    driven, begin = _operator_seconds(profile), time.perf_counter()
    made = work()
    elapsed = time.perf_counter() - begin
    measured.seconds += elapsed - (_operator_seconds(profile) - driven)
    measured.rows += _size(made)
    return made


def _size(made: Rows | pa.Table) -> int:
    return made.total if isinstance(made, Rows) else made.num_rows


def _operator_seconds(profile: Profile) -> float:
    """Time of all operators so far; those inside a negation are part of it."""
    return sum(item.seconds for place, item in profile.operators.items() if len(place) == 1)


def _timed(stage: str, bags: Iterator[Rows], profile: Profile | None) -> Iterator[Rows]:
    if profile is None:
        yield from bags
        return
    for rows in bags:
        measured = profile.stages.setdefault(stage, Measured())
        begin = time.perf_counter()
        yield rows
        measured.seconds += time.perf_counter() - begin
        measured.rows += rows.total
