"""A pipeline as a list of operators, and the one loop that drives rows through them.

Every operator makes batches of one batch. The loop goes depth first, with one open batch per operator: a large result
never has to fit into memory, and a long pipeline takes no stack. It is also the one place that looks at the budget
between batches, accounts what the open batches hold, and measures, so that no operator can forget to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, assert_never

import numpy as np

from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.expand import ExpandOperator
from omnigraph.engine.local.rows import Rows
from omnigraph.engine.local.scan import ScanOperator
from omnigraph.engine.local.variables import OUTER_ROW, is_hidden, live_after
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from omnigraph.budget import Budget
    from omnigraph.engine.local.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanHints:
    """What the first scan of a query may do beyond finding nodes."""

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
    """What every operator of a run did; operators are named by their place in the pipeline."""

    operators: dict[tuple[int, ...], Measured] = field(default_factory=dict)
    stages: dict[str, Measured] = field(default_factory=dict)


class Operator(Protocol):
    """Makes batches of one batch. State that outlives a batch is its own.

    Between two batches the loop looks at the budget for it. What takes longer than about 100 ms until the next batch
    looks by itself, with `context.budget`; what allocates more than its batches asks there first.
    """

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """What becomes of a batch, which is never empty."""
        ...


@dataclass(frozen=True, slots=True)
class _Stage:
    operator: Operator
    label: str
    measured: Measured | None


START = Rows(count=1)
_NO_HINTS = ScanHints()


def run_pipeline(
    context: Context,
    ops: Sequence[ir.Op],
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
    stages: list[_Stage] = []
    for number, (op, live) in enumerate(zip(ops, live_after(ops, needed), strict=True), first):
        here = (*place, number)
        measured = None if profile is None else profile.operators.setdefault(here, Measured())
        wanted = hints if number == 0 else _NO_HINTS
        operator = _operator(context, op, live, wanted, profile=profile, place=here)
        stages.append(_Stage(operator, operator_label(op), measured))
    return _drive(context.budget, stages, iter(start))


def _operator(
    context: Context,
    op: ir.Op,
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
        case ir.Filter(predicate):
            return FilterOperator(context, predicate, live)
        case ir.AntiJoin():
            return AntiJoinOperator(context, op, live, profile=profile, place=place)
        case _:
            assert_never(op)


def operator_label(op: ir.Op) -> str:
    """An operator as messages name it."""
    match op:
        case ir.NodeScan(variable, node_type):
            return f"NodeScan {_name(variable)}: {node_type}"
        case ir.Expand():
            return f"Expand {_name(op.source)} {op.edge_type} {_name(op.target)}"
        case ir.Filter():
            return "Filter"
        case ir.AntiJoin():
            return "AntiJoin"
        case _:
            assert_never(op)


def _name(variable: str) -> str:
    return "$_" if is_hidden(variable) else f"${variable}"


def _drive(budget: Budget, stages: Sequence[_Stage], start: Iterator[Rows]) -> Iterator[Rows]:
    open_batches = [start]
    held = [0]
    while open_batches:
        level = len(open_batches) - 1
        rows = (
            next(start, None) if level == 0 else _next(budget, stages[level - 1], open_batches[-1])
        )
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
    if isinstance(stage.operator, ExpandOperator) and stage.operator.path is not None:
        measured.path = str(stage.operator.path)
    if rows is not None:
        measured.rows += rows.total
    return rows


class FilterOperator:
    """Keeps the rows for which a predicate is true."""

    def __init__(self, context: Context, predicate: ir.Predicate, live: frozenset[str]) -> None:
        self._context = context
        self._predicate = predicate
        self._live = live

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows that are left."""
        yield keep_true(self._context, rows, (self._predicate,)).only(self._live)


class AntiJoinOperator:
    """Keeps the rows for which the inner pipeline finds nothing.

    It runs once per batch, for the distinct outer bindings, each with a number of its own.
    """

    def __init__(
        self,
        context: Context,
        op: ir.AntiJoin,
        live: frozenset[str],
        *,
        profile: Profile | None,
        place: tuple[int, ...],
    ) -> None:
        self._inside = context.inside(op.pipeline)
        self._op = op
        self._live = live
        self._profile = profile
        self._place = place

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows without a solution inside."""
        outer, number_of = _distinct(rows, self._op.outer)
        start = outer.bind(OUTER_ROW, np.arange(outer.count))
        has_solution = np.zeros(outer.count, np.bool_)
        inner = run_pipeline(
            self._inside,
            self._op.pipeline,
            [start],
            (OUTER_ROW,),
            profile=self._profile,
            place=self._place,
        )
        for found in inner:
            has_solution[found.variables[OUTER_ROW]] = True
        yield rows.only(self._live).keep(~has_solution[number_of])


def _distinct(rows: Rows, variables: Sequence[str]) -> tuple[Rows, np.ndarray]:
    """The distinct bindings of some variables, and for each row the number of its binding."""
    if len(variables) == 1:
        row_ids, number_of = np.unique(rows.variables[variables[0]], return_inverse=True)
        return Rows(count=len(row_ids), variables={variables[0]: row_ids}), number_of
    bound = {name: rows.variables[name] for name in variables}
    return Rows(count=rows.count, variables=bound), np.arange(rows.count)
