"""Runs the representation of a query as a stream of batches, and tells its physical choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from omnigraph.core.arrow import one_array, pa
from omnigraph.core.budget import Budget
from omnigraph.core.cache import by_identity
from omnigraph.engine.operators.blocks import Blocks
from omnigraph.engine.operators.pipeline import START, Measured, Profile, ScanHints, run_pipeline
from omnigraph.engine.predicates import stored_columns
from omnigraph.engine.ranking.ranked_rows import ranked_rows
from omnigraph.engine.results.aggregate import Grouping, aggregates_of, group_keys
from omnigraph.engine.results.first_rows import first_of_groups, first_rows
from omnigraph.engine.results.groups import first_groups, group_table
from omnigraph.engine.results.projection import (
    first_of_each,
    key_operand,
    order_codes,
    project,
    result_schema,
    shown,
    sort_groups,
)
from omnigraph.engine.rows import Column, Rows
from omnigraph.engine.tables.context import (
    Context,
    counts_rows,
    needed_variables,
    optional_variables,
    result_expressions,
    walked_paths,
)
from omnigraph.errors import ParameterError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

# ---- A read from its representation to a stream of result batches


_Made = TypeVar("_Made", "Rows", "pa.Table")

#: Rows of one result batch: of the first, and at most; and how many bytes one should have.
FIRST_ROWS = 1 << 13
RESULT_ROWS = 1 << 16
RESULT_BYTES = 1 << 26


@frozen
class ResultStream:
    """The columns of a result, and its rows as they are made."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@frozen
class _Window:
    """Which rows of the result are returned, in numbers."""

    offset: int
    limit: int | None

    @classmethod
    def of(cls, context: Context, query: ir.ReadIR) -> _Window:
        """That of a query with its parameters.

        Raises:
            ParameterError: a number of rows is negative.
        """
        if query.offset is None and query.limit is None:
            return _EVERYTHING
        numbers: dict[str, int | None] = {}
        problems: dict[str, str] = {}
        for word, count in (("offset", query.offset), ("limit", query.limit)):
            number = None if count is None else ir.value_of(count, context.values)
            assert number is None or isinstance(number, int), "a number of rows is an integer"
            if number is not None and number < 0:
                assert isinstance(count, ir.ParamRef), "a literal is never negative"
                problems[count.name] = f"`{count.name}` is the `{word}` and cannot be negative, found {number}"
            numbers[word] = number
        if problems:
            raise ParameterError(query.name, problems)
        return cls(numbers["offset"] or 0, numbers["limit"])

    @property
    def end(self) -> int | None:
        """How many rows there are at most, those that are left out at the beginning included."""
        return None if self.limit is None else self.offset + self.limit


_BLOCKS = Blocks()


def execute(context: Context, query: ir.ReadIR, profile: Profile | None = None) -> ResultStream:
    """Run a read; nothing happens before the first batch is asked for.

    Raises:
        ParameterError: a number of rows is negative.
    """
    schema = result_schema(query.projections)
    window = _Window.of(context, query)
    if window.limit == 0 and not (query.grouped and isinstance(query.rank, ir.Nearest | ir.Rrf)):
        return ResultStream(schema, iter(()))
    context.blocks = _BLOCKS
    context.optional = optional_variables(query.pipeline)
    context.walked = walked_paths(query.projections)
    context.wanted = None if query.per else window.end
    make = _grouped if query.grouped else _plain
    return ResultStream(schema, _bounded(context.budget, make(context, query, window, schema, profile)))


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
    context: Context, query: ir.ReadIR, window: _Window, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    left, most = window.limit if not query.per else None, FIRST_ROWS
    for rows in _timed("Project", _bags(context, query, window, profile), profile):
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


def _bags(context: Context, query: ir.ReadIR, window: _Window, profile: Profile | None) -> Iterator[Rows]:
    """The rows of the result from the offset on, in order where there is one."""
    if query.rank is not None:
        ranked = _staged(profile, "Rank", lambda: ranked_rows(context, query, profile))
        yield _cut(context, query, window, ranked)
        return
    stream = run_pipeline(
        context, query.pipeline, [START], needed_variables(query), hints=scan_hints(context, query), profile=profile
    )
    if query.order:
        per_group = window.limit if query.per else None
        ordered = _staged(profile, "Order", lambda: first_rows(context, stream, query, per_group))
        yield _cut(context, query, window, ordered)
    else:
        yield from stream


def _cut(context: Context, query: ir.ReadIR, window: _Window, rows: Rows) -> Rows:
    """Ordered rows between offset and limit, or the first of each group. A row may stand for several equal ones."""
    if not rows.total:
        return rows
    if query.per and window.limit is not None:
        return first_of_groups(context, rows, query, window.limit)
    start = min(window.offset, rows.total)
    count = rows.total - start if window.limit is None else min(window.limit, rows.total - start)
    return rows if count == rows.total else rows.written_out(start, count)


def _grouped(
    context: Context, query: ir.ReadIR, window: _Window, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    is_windowed = isinstance(query.rank, ir.Nearest | ir.Rrf)
    if query.rank is None:
        stream = run_pipeline(
            context, query.pipeline, [START], needed_variables(query), hints=scan_hints(context, query), profile=profile
        )
    else:
        # The window of a vector or of a fusion is what is grouped; of a text all that match are.
        ranked = context if is_windowed else replace(context, wanted=None)
        stream = _bags(ranked, _population(query), window if is_windowed else _EVERYTHING, profile)
    shown_groups = _EVERYTHING if is_windowed else window
    groups = _staged(profile, "Group", lambda: _group(context, query, stream, shown_groups.end))
    groups = _cut_groups(groups, query, shown_groups)
    made = pa.table(
        [
            shown(one_array(groups[item.name]), item.type.base, schema.field(item.name).type)
            for item in query.projections
        ],
        schema=schema,
    )
    yield from context.budget.steps(made.to_batches(max_chunksize=RESULT_ROWS))


_EVERYTHING = _Window(0, None)


@by_identity
def _population(query: ir.ReadIR) -> ir.ReadIR:
    """A ranked query of groups as it chooses the rows that are grouped: aggregates order the groups alone."""
    return replace(query, order=tuple(key for key in query.order if not _orders_groups(query, key)))


def _orders_groups(query: ir.ReadIR, key: ir.OrderKey) -> bool:
    operand = key_operand(query, key.expression)
    return not isinstance(operand, ir.Nearest | ir.Bm25 | ir.Rrf) and any(
        isinstance(part, ir.Aggregate) for part in ir.walk(operand)
    )


def _group(context: Context, query: ir.ReadIR, stream: Iterator[Rows], wanted: int | None) -> pa.Table:
    grouping = Grouping(context, group_keys(query.projections), aggregates_of(query.projections))
    for rows in stream:
        context.budget.enter("Group")
        grouping.add(rows)
    context.budget.enter("Group")
    groups = first_groups(context, grouping.finish(), query, wanted)
    return sort_groups(context, group_table(context, groups, query), query)


def _cut_groups(groups: pa.Table, query: ir.ReadIR, window: _Window) -> pa.Table:
    if query.per and window.limit is not None:
        columns = [one_array(groups[key.name]) for key in query.per if isinstance(key, ir.ColumnRef)]
        codes = [order_codes(column, descending=False) for column in columns]
        return groups.take(pa.array(first_of_each(codes, window.limit, groups.num_rows)))
    return groups.slice(window.offset, window.limit)


def scan_hints(context: Context, query: ir.ReadIR) -> ScanHints:
    """The hints for the first scan.

    Values are read with the nodes when nearly all nodes that are found will be shown: there is no other operator, and
    no order that leaves most of them out; or the nodes are found by their key.
    """
    scan = query.pipeline[0]
    if not isinstance(scan, ir.NodeScan):
        # A filter without variables comes before everything else.
        return ScanHints()
    is_alone = len(query.pipeline) == 1
    is_cut = bool(query.order) and context.wanted is not None
    if not (is_alone and not is_cut) and not _finds_by_key(context, scan):
        return ScanHints()
    columns = tuple(name for variable, name in _read_from_rows(query) if variable == scan.variable)
    limit = context.wanted if is_alone and not query.order and not query.grouped else None
    return ScanHints(columns=columns, limit=limit)


@by_identity
def _read_from_rows(query: ir.ReadIR) -> tuple[Column, ...]:
    """The stored columns that are read of the rows for the result; a count of rows reads nothing."""
    read = (
        expression
        for expression in result_expressions(query)
        if not (isinstance(expression, ir.Aggregate) and counts_rows(expression))
    )
    return tuple(dict.fromkeys(stored_columns(read)))


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
