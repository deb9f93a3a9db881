"""Runs the representation of a query as a stream of batches, and tells its physical choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from omnigraph.core.arrow import one_array, pa
from omnigraph.core.budget import Budget
from omnigraph.core.cache import by_identity
from omnigraph.engine.operators.blocks import Blocks
from omnigraph.engine.operators.pipeline import START, Measured, Profile, ScanHints, operator_label, run_pipeline
from omnigraph.engine.plan.planned import WRONG_FACTOR, PlannedRead, is_wrong, plan_of, replanned
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
from omnigraph.engine.rows import BATCH_ROWS, Column, Rows
from omnigraph.engine.tables.context import (
    Context,
    counts_rows,
    live_after,
    needed_variables,
    optional_variables,
    result_expressions,
    variable_tables,
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
    plan = plan_of(context, query)
    context.blocks = _BLOCKS
    context.tables = variable_tables(plan.query.pipeline)
    context.optional = optional_variables(plan.query.pipeline)
    context.walked = walked_paths(plan.query.projections)
    context.wanted = None if query.per else window.end
    make = _grouped if query.grouped else _plain
    return ResultStream(schema, bounded_batches(context.budget, make(context, plan, window, schema, profile)))


def bounded_batches(budget: Budget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
    context: Context, plan: PlannedRead, window: _Window, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    query = plan.query
    left, most = window.limit if not query.per else None, FIRST_ROWS
    for rows in _timed("Project", _bags(context, plan, window, profile), profile):
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


def _bags(context: Context, plan: PlannedRead, window: _Window, profile: Profile | None) -> Iterator[Rows]:
    """The rows of the result from the offset on, in order where there is one."""
    query = plan.query
    if query.rank is not None:
        yield _ranked(context, query, window, profile)
        return
    stream = _matched(context, plan, profile)
    if query.order:
        per_group = window.limit if query.per else None
        ordered = _staged(profile, "Order", lambda: first_rows(context, stream, query, per_group))
        yield _cut(context, query, window, ordered)
    else:
        yield from stream


def _ranked(context: Context, query: ir.ReadIR, window: _Window, profile: Profile | None) -> Rows:
    ranked = _staged(profile, "Rank", lambda: ranked_rows(context, query, profile))
    return _cut(context, query, window, ranked)


def _matched(context: Context, plan: PlannedRead, profile: Profile | None) -> Iterator[Rows]:
    """The rows of the match. Where the plan hangs on a guess about its first scan, that is looked at first."""
    query = plan.query
    # Without an order a limit may be reached long before the scan is.
    is_cut = context.wanted is not None and not query.order and not query.grouped
    if plan.first_rows is None or is_cut:
        hints = scan_hints(context, query)
        return run_pipeline(context, query.pipeline, [START], needed_variables(query), hints=hints, profile=profile)
    return _checked(context, plan, plan.first_rows, profile)


def _checked(context: Context, plan: PlannedRead, expected: float, profile: Profile | None) -> Iterator[Rows]:
    """The rows of a match whose first scan is counted; when the estimate was badly wrong, the rest is planned anew."""
    first, rest = _parted(plan.query)
    needed, hints = needed_variables(plan.query), scan_hints(context, plan.query)
    live = live_after(plan.query.pipeline, needed)[0]
    scanned = run_pipeline(context, first, [START], live, hints=hints, profile=profile)
    counted: list[Rows] = []
    size, count, is_total = 0, 0, True
    for rows in scanned:
        size += context.budget.hold(rows.nbytes)
        counted.append(rows)
        count += rows.total
        if count > min(WRONG_FACTOR * max(expected, 1.0), BATCH_ROWS):
            is_total = False
            break
    if is_wrong(expected, count) and count:
        again = replanned(context, plan, count, is_total=is_total)
        context.tables = variable_tables(again.pipeline)
        if profile is not None:
            profile.replanned = again
            profile.reason = f"{operator_label(first[0])} made {count} rows{'' if is_total else ' and more'}"
        begin, rest = _parted(again)
        if begin != first:
            if profile is not None:
                profile.operators.clear()
            # What was scanned is of no use to a plan that begins elsewhere.
            counted.clear()
            scanned = iter(())
            context.budget.release(size)
            yield from run_pipeline(context, again.pipeline, [START], needed, profile=profile)
            return
    yield from run_pipeline(context, rest, chain(counted, scanned), needed, profile=profile, first=1)
    context.budget.release(size)


@by_identity
def _parted(query: ir.ReadIR) -> tuple[tuple[ir.Op, ...], tuple[ir.Op, ...]]:
    """The first operator of a read, and the others: the same objects every time, as what is kept of them asks for."""
    return query.pipeline[:1], query.pipeline[1:]


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
    context: Context, plan: PlannedRead, window: _Window, schema: pa.Schema, profile: Profile | None
) -> Iterator[pa.RecordBatch]:
    query = plan.query
    is_windowed = isinstance(query.rank, ir.Nearest | ir.Rrf)
    if query.rank is None:
        stream = _matched(context, plan, profile)
    else:
        # The window of a vector or of a fusion is what is grouped; of a text all that match are.
        ranked = context if is_windowed else replace(context, wanted=None)
        population = _ranked(ranked, _population(query), window if is_windowed else _EVERYTHING, profile)
        stream = iter((population,))
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
