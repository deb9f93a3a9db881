"""The chain of operators, beginning with the scan of a node type."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Protocol, assert_never

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.core.cache import by_identity
from omnigraph.core.values import StoredValue
from omnigraph.engine.distinct import combined_numbers, distinct_numbers
from omnigraph.engine.nodes import Close, Intersect, PlanOp
from omnigraph.engine.operators.close import CloseOperator
from omnigraph.engine.operators.expand import ExpandOperator
from omnigraph.engine.operators.fuse import fused
from omnigraph.engine.operators.intersect import IntersectOperator
from omnigraph.engine.operators.paths import PathOperator
from omnigraph.engine.operators.unions import (
    ExpandEdgesOperator,
    OptionalJoinOperator,
    SearchOperator,
    UnionScanOperator,
)
from omnigraph.engine.predicates import keep_true, push_down, stored_columns
from omnigraph.engine.rows import BATCH_ROWS, BoolArray, IntArray, Rows, batch_rows, gathered, read_batches
from omnigraph.engine.tables.context import OUTER_ROW, Context, is_hidden, live_after, path_columns
from omnigraph.engine.tables.entities import Entities, row_id_array
from omnigraph.engine.tables.text_search import text_matches
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import CompareOp, Comparison, Constant, NodeScan, ParamRef, PropertyRef, TextMatch
from omnigraph.storage.datasets.reads import scan_rows

# ---- NodeScan: the nodes of a type that satisfy its filters


_SCAN_ROWS = 1 << 17
#: Rows of one batch when whole values are read with them.
_VALUE_ROWS = 1 << 13
#: Larger tables are streamed instead of being numbered first.
_NUMBERED_ROWS = 10_000_000


class ScanOperator:
    """Combines each row with each node; the nodes are read once.

    `columns` are read together with the nodes, because nearly all of them will be asked for. `limit` is how many
    nodes suffice, if the caller knows.
    """

    def __init__(
        self,
        context: Context,
        op: NodeScan,
        live: frozenset[str],
        columns: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._columns = tuple(columns)
        self._limit = limit
        #: The nodes, once they are combined with rows; the memory is accounted until the query ends.
        self._nodes: Rows | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """Scan, or combine with what is there."""
        if rows.count == 1 and not rows.variables and rows.weights is None:
            yield from self.nodes()
            return
        if self._nodes is None:
            self._nodes = gathered(self._context.budget, self.nodes())
        yield from _cross(self._context, rows.only(self._live), self._nodes)

    def nodes(self) -> Iterator[Rows]:
        """The nodes alone."""
        op, context = self._op, self._context
        conditions = [item for item in op.filters if isinstance(item, TextMatch)]
        if conditions:
            yield self._matching(conditions)
            return
        pushed = push_down(op.filters, context.values)
        entities = context.entities(op.variable)
        if op.variable not in self._live and not pushed.rest:
            total = entities.row_count
            if pushed.filter is not None:
                filter_ = pushed.filter
                total = context.budget.patiently(lambda: entities.table.count_rows(filter_), entities.row_count)
            yield Rows(count=1).multiplied(total)
            return
        if pushed.filter is None and not self._columns and entities.row_count <= _NUMBERED_ROWS:
            row_ids = entities.numbering().all_row_ids
            for start in range(0, len(row_ids), BATCH_ROWS):
                part = row_ids[start : start + BATCH_ROWS]
                rows = Rows(count=len(part), variables={op.variable: part})
                yield keep_true(context, rows, pushed.rest).only(self._live)
            return
        key = self._key_value()
        if key is not None and entities.has_key_lookup(key[0]):
            found = entities.row_of_key(*key)
            rows = Rows(count=len(found), variables={op.variable: found})
            yield keep_true(context, rows, op.filters[1:]).only(self._live)
            return
        if pushed.filter is not None and self._is_filtered_in_memory(entities):
            yield from self._filtered_in_memory(entities)
            return
        batches = scan_rows(
            entities.table,
            self._columns,
            pushed.filter,
            limit=None if pushed.rest else self._limit,
            batch_rows=_VALUE_ROWS if self._columns else _SCAN_ROWS,
        )
        for batch in read_batches(context.budget, batches, entities.row_count):
            columns = {(op.variable, name): batch.column(place) for place, name in enumerate(self._columns)}
            rows = Rows(count=batch.num_rows, variables={op.variable: row_id_array(batch)}, columns=columns)
            yield keep_true(context, rows, pushed.rest).only(self._live)

    def _key_value(self) -> tuple[str, StoredValue] | None:
        """The key property and its value, when the first filter asks for one key."""
        op = self._op
        key = self._context.catalog.nodes[op.node_type].key
        if key is None or len(key.members) != 1 or not op.filters:
            return None
        match op.filters[0]:
            case Comparison(PropertyRef(_, name), CompareOp.EQ, (ParamRef() | Constant()) as value):
                if name == key.members[0]:
                    return name, ir.value_of(value, self._context.values)
        return None

    def _is_filtered_in_memory(self, entities: Entities) -> bool:
        """Whether the filtered columns are in memory, or were asked for often enough to be read into it."""
        worth_keeping = [entities.is_worth_keeping(name) for name in self._filtered_columns()]
        return all(worth_keeping)

    def _filtered_columns(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in stored_columns(self._op.filters)))

    def _filtered_in_memory(self, entities: Entities) -> Iterator[Rows]:
        op = self._op
        row_ids = entities.numbering().all_row_ids
        columns = {(op.variable, name): entities.whole_column(name) for name in self._filtered_columns()}
        whole = Rows(count=len(row_ids), variables={op.variable: row_ids}, columns=columns)
        for start in range(0, whole.count, BATCH_ROWS):
            part = whole.slice(start, start + BATCH_ROWS)
            yield keep_true(self._context, part, op.filters).only(self._live)

    def _matching(self, conditions: Sequence[TextMatch]) -> Rows:
        """The nodes that match all text conditions, then all other predicates."""
        op, context = self._op, self._context
        others = [item for item in op.filters if item not in conditions]
        matches = [text_matches(context, condition) for condition in conditions]
        row_ids = reduce(np.intersect1d, matches)
        rows = Rows(count=len(row_ids), variables={op.variable: row_ids})
        return keep_true(context, rows, others).only(self._live)


def _cross(context: Context, rows: Rows, nodes: Rows) -> Iterator[Rows]:
    """Every pair of a row and a node, in batches that are made as they are asked for."""
    if not rows.count or not nodes.count:
        return
    if not nodes.variables:
        yield rows.multiplied(nodes.total)
        return
    most = batch_rows(rows.width + nodes.width)
    for begin in range(0, nodes.count, most):
        some = nodes.slice(begin, begin + most)
        height = max(1, most // some.count)
        for start in range(0, rows.count, height):
            part = rows.slice(start, start + height)
            pairs = part.count * some.count
            context.budget.allow(part.taken_bytes(pairs) + some.taken_bytes(pairs))
            yield _pairs(part, some)


def _pairs(rows: Rows, nodes: Rows) -> Rows:
    index = np.repeat(np.arange(rows.count), nodes.count)
    other = nodes.take(np.tile(np.arange(nodes.count), rows.count))
    pairs = rows.take(index).attach(other.columns)
    for variable, row_ids in other.variables.items():
        pairs = pairs.bind(variable, row_ids)
    return pairs if other.weights is None else pairs.multiplied(other.weights)


# ---- Operator pipelines
#
# Every operator makes batches of one batch. The loop goes depth first, with one open batch per operator: a large
# result never has to fit into memory, and a long pipeline takes no stack. It is also the one place that looks at the
# budget between batches, accounts what the open batches hold, and measures, so that no operator can forget to.


@frozen(kw_only=True)
class ScanHints:
    """Hints for the first scan of a query."""

    columns: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(slots=True)
class Measured:
    """Rows and time of one operator."""

    rows: int = 0
    seconds: float = 0.0
    path: str | None = None


@dataclass(slots=True)
class Profile:
    """Statistics of the operators of a run; operators are named by their place in the pipeline."""

    operators: dict[tuple[int, ...], Measured] = field(default_factory=dict)
    stages: dict[str, Measured] = field(default_factory=dict)
    #: The read as it was planned again while it ran, and why.
    replanned: ir.ReadIR | None = None
    reason: str = ""


class Operator(Protocol):
    """Makes batches of one batch. State that outlives a batch is its own.

    Between two batches the loop looks at the budget for it. What takes longer than about 100 ms until the next batch
    looks by itself, with `context.budget`; what allocates more than its batches asks there first.
    """

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """Apply the operator to a batch, which is never empty."""
        ...


@frozen
class _Stage:
    operator: Operator
    label: str
    measured: Measured | None


START = Rows(count=1)
_NO_HINTS = ScanHints()


def run_pipeline(
    context: Context,
    ops: Sequence[PlanOp],
    start: Iterable[Rows],
    needed: Iterable[str],
    *,
    hints: ScanHints = _NO_HINTS,
    profile: Profile | None = None,
    place: tuple[int, ...] = (),
    first: int = 0,
) -> Iterator[Rows]:
    """The rows that a pipeline makes of others; only `needed` variables survive.

    `first` is the number of the first operator, where the ones before it ran elsewhere.
    """
    ops = fused(ops)
    stages: list[_Stage] = []
    for number, (op, live) in enumerate(zip(ops, live_after(ops, frozenset(needed)), strict=True), first):
        here = (*place, number)
        measured = None if profile is None else profile.operators.setdefault(here, Measured())
        wanted = hints if number == 0 else _NO_HINTS
        operator = _operator(context, op, live, wanted, profile=profile, place=here)
        stages.append(_Stage(operator, operator_label(op), measured))
    return _drive(context.budget, stages, iter(start))


def _operator(
    context: Context,
    op: PlanOp,
    live: frozenset[str],
    hints: ScanHints,
    *,
    profile: Profile | None,
    place: tuple[int, ...],
) -> Operator:
    match op:
        case ir.NodeScan():
            return ScanOperator(context, op, live, hints.columns, hints.limit)
        case ir.Expand():
            return ExpandOperator(context, op, live)
        case Close():
            return CloseOperator(context, op, live)
        case Intersect():
            return IntersectOperator(context, op, live)
        case ir.Filter():
            return FilterOperator(context, op, live)
        case ir.AntiJoin() | ir.SemiJoin():
            return BlockJoinOperator(context, op, live, profile=profile, place=place)
        case ir.UnionScan():
            return UnionScanOperator(context, op, live, run_pipeline)
        case ir.ExpandEdges():
            return ExpandEdgesOperator(context, op, live, run_pipeline)
        case ir.Search():
            return SearchOperator(context, op, live, run_pipeline)
        case ir.PathSearch():
            return PathOperator(context, op, live, run_pipeline)
        case ir.OptionalJoin():
            return OptionalJoinOperator(context, op, live, run_pipeline)
        case _:
            assert_never(op)


def operator_label(op: PlanOp) -> str:
    """An operator as messages name it."""
    match op:
        case ir.NodeScan(variable, node_type):
            return f"NodeScan {_name(variable)}: {node_type}"
        case ir.Expand():
            return f"Expand {_name(op.source)} {op.edge_type} {_name(op.target)}"
        case Close():
            return f"Close {_name(op.source)} {op.edge_type} {_name(op.target)}"
        case Intersect():
            arms = ", ".join(f"{_name(arm.source)} {arm.edge_type}" for arm in op.arms)
            return f"Intersect {_name(op.target)}: {arms}"
        case ir.Filter():
            return "Filter"
        case ir.AntiJoin():
            return "AntiJoin"
        case ir.SemiJoin():
            return "SemiJoin"
        case ir.UnionScan(variable, node_types):
            return f"UnionScan {_name(variable)}: {' | '.join(node_types)}"
        case ir.ExpandEdges() | ir.Search():
            word = "Search" if isinstance(op, ir.Search) else "ExpandEdges"
            return f"{word} {_name(op.source)} {' | '.join(step.edge_type for step in op.steps)} {_name(op.target)}"
        case ir.PathSearch(path, choice, search):
            words = " | ".join(step.edge_type for step in search.steps)
            return f"PathSearch {_name(path)}: {choice} {_name(op.source)} {words} {_name(op.target)}"
        case ir.OptionalJoin(binds=binds):
            return f"OptionalJoin {', '.join(map(_name, binds))}"
        case _:
            assert_never(op)


def _name(variable: str) -> str:
    return "$_" if is_hidden(variable) else f"${variable}"


def _drive(budget: Budget, stages: Sequence[_Stage], start: Iterator[Rows]) -> Iterator[Rows]:
    open_batches = [start]
    held = [0]
    while open_batches:
        level = len(open_batches) - 1
        rows = next(start, None) if level == 0 else _next(budget, stages[level - 1], open_batches[-1])
        if rows is None:
            open_batches.pop()
            budget.release(held.pop())
            continue
        if not rows.count:
            continue
        size = budget.hold(rows.nbytes)
        if level == len(stages):
            yield rows
            budget.release(size)
        else:
            held.append(size)
            open_batches.append(stages[level].operator.apply(rows))


def _next(budget: Budget, stage: _Stage, batches: Iterator[Rows]) -> Rows | None:
    budget.enter(stage.label)
    measured = stage.measured
    if measured is None:
        return next(batches, None)
    begin = time.perf_counter()
    rows = next(batches, None)
    measured.seconds += time.perf_counter() - begin
    if (
        isinstance(stage.operator, ExpandOperator | CloseOperator | IntersectOperator)
        and stage.operator.path is not None
    ):
        measured.path = str(stage.operator.path)
    if rows is not None:
        measured.rows += rows.total
    return rows


class FilterOperator:
    """Keeps the rows for which a predicate is true."""

    def __init__(self, context: Context, op: ir.Filter, live: frozenset[str]) -> None:
        self._context = context
        self._op = op
        self._live = live

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows that are left."""
        op = self._op
        yield keep_true(self._context, rows, (op.predicate,), is_strict=op.is_strict).only(self._live)


class BlockJoinOperator:
    """Keeps the rows for which the inner pipeline finds something, or nothing.

    It runs once per batch, for the distinct outer bindings, each with a number of its own.
    """

    def __init__(
        self,
        context: Context,
        op: ir.AntiJoin | ir.SemiJoin,
        live: frozenset[str],
        *,
        profile: Profile | None,
        place: tuple[int, ...],
    ) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._profile = profile
        self._place = place

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows with a solution inside, or without."""
        op = self._op
        found = has_solution(self._context, rows, op.outer, op.pipeline, profile=self._profile, place=self._place)
        yield rows.only(self._live).keep(found if isinstance(op, ir.SemiJoin) else ~found)


# ---- Blocks: pipelines that begin with the rows of another one


def has_solution(
    context: Context,
    rows: Rows,
    outer: Sequence[str],
    pipeline: Sequence[ir.Op],
    *,
    profile: Profile | None = None,
    place: tuple[int, ...] = (),
) -> BoolArray:
    """Per row, whether a block emits anything for it."""
    start, number_of = block_start(rows, outer)
    solved = np.zeros(start.count, np.bool_)
    pipeline = _to_first_hop(pipeline)
    inner = run_pipeline(context.inside(pipeline), pipeline, [start], (OUTER_ROW,), profile=profile, place=place)
    for found in inner:
        solved[found.variables[OUTER_ROW]] = True
    result: BoolArray = solved[number_of]
    return result


@by_identity
def _to_first_hop(pipeline: Sequence[ir.Op]) -> Sequence[ir.Op]:
    """A pipeline that finds something exactly where another one does: who reaches anything has a neighbour."""
    last = pipeline[-1]
    if isinstance(last, ir.Expand) and last.low == 1 and last.high > 1 and not last.filters:
        return (*pipeline[:-1], replace(last, high=1))
    return pipeline


def block_start(rows: Rows, outer: Sequence[str]) -> tuple[Rows, IntArray]:
    """The distinct bindings of some variables, numbered, and for each row the number of its binding."""
    assert outer, "a block mentions a variable from outside"
    paths = path_columns(rows, outer)
    if paths:
        # A path is as good as never the same twice.
        distinct = Rows(count=rows.count, variables={name: rows.variables[name] for name in outer}, columns=paths)
        return distinct.bind(OUTER_ROW, np.arange(rows.count)), np.arange(rows.count)
    if len(outer) == 1:
        row_ids, number_of = distinct_numbers(rows.variables[outer[0]])
        distinct = Rows(count=len(row_ids), variables={outer[0]: row_ids})
    else:
        number_of = combined_numbers([rows.variables[name] for name in outer])
        place = np.empty(int(number_of.max(initial=-1)) + 1, np.int64)
        place[number_of] = np.arange(rows.count)
        distinct = Rows(count=len(place), variables={name: rows.variables[name][place] for name in outer})
    return distinct.bind(OUTER_ROW, np.arange(distinct.count)), number_of
