"""A pipeline as a chain of operators, each a generator of row batches over the one before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

import numpy as np

from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.expand import ExpandOperator
from omnigraph.engine.local.rows import Rows
from omnigraph.engine.local.scan import ScanOperator
from omnigraph.engine.local.variables import OUTER_ROW, live_after
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    stream = iter(start)
    for number, (op, live) in enumerate(zip(ops, live_after(ops, needed), strict=True), first):
        here = (*place, number)
        measured = None if profile is None else profile.operators.setdefault(here, Measured())
        source = stream if measured is None else _deduct(stream, measured)
        match op:
            case ir.NodeScan():
                wanted = hints if number == 0 else _NO_HINTS
                scan = ScanOperator(context, op, live, wanted.columns, wanted.limit)
                stream = scan.run(source)
            case ir.Expand():
                expand = ExpandOperator(context, op, live)
                stream = expand.run(source)
                if measured is not None:
                    stream = _note_path(stream, expand, measured)
            case ir.Filter(predicate):
                stream = _filter(context, predicate, live, source)
            case ir.AntiJoin():
                stream = _anti_join(context, op, live, source, profile=profile, place=here)
            case _:
                assert_never(op)
        if measured is not None:
            stream = _measure(stream, measured)
    return stream


def _filter(
    context: Context, predicate: ir.Predicate, live: frozenset[str], batches: Iterator[Rows]
) -> Iterator[Rows]:
    for rows in batches:
        kept = keep_true(context, rows, (predicate,)).only(live)
        if kept.count:
            yield kept


def _anti_join(
    context: Context,
    op: ir.AntiJoin,
    live: frozenset[str],
    batches: Iterator[Rows],
    *,
    profile: Profile | None,
    place: tuple[int, ...],
) -> Iterator[Rows]:
    """The inner pipeline runs once per batch, for the distinct outer bindings, each with a number of its own."""
    inside = context.inside(op.pipeline)
    for rows in batches:
        outer, number_of = _distinct(rows, op.outer)
        start = outer.bind(OUTER_ROW, np.arange(outer.count))
        has_solution = np.zeros(outer.count, np.bool_)
        inner = run_pipeline(
            inside, op.pipeline, [start], (OUTER_ROW,), profile=profile, place=place
        )
        for found in inner:
            has_solution[found.variables[OUTER_ROW]] = True
        kept = rows.only(live).keep(~has_solution[number_of])
        if kept.count:
            yield kept


def _distinct(rows: Rows, variables: Sequence[str]) -> tuple[Rows, np.ndarray]:
    """The distinct bindings of some variables, and for each row the number of its binding."""
    if len(variables) == 1:
        row_ids, number_of = np.unique(rows.variables[variables[0]], return_inverse=True)
        return Rows(count=len(row_ids), variables={variables[0]: row_ids}), number_of
    bound = {name: rows.variables[name] for name in variables}
    return Rows(count=rows.count, variables=bound), np.arange(rows.count)


# ---- measuring


def _measure(batches: Iterator[Rows], measured: Measured) -> Iterator[Rows]:
    while True:
        begin = time.perf_counter()
        rows = next(batches, None)
        measured.seconds += time.perf_counter() - begin
        if rows is None:
            return
        measured.rows += rows.total
        yield rows


def _deduct(batches: Iterator[Rows], measured: Measured) -> Iterator[Rows]:
    """Time that the operator spends waiting for the one before it is not its own."""
    while True:
        begin = time.perf_counter()
        rows = next(batches, None)
        measured.seconds -= time.perf_counter() - begin
        if rows is None:
            return
        yield rows


def _note_path(
    batches: Iterator[Rows], expand: ExpandOperator, measured: Measured
) -> Iterator[Rows]:
    for rows in batches:
        measured.path = None if expand.path is None else str(expand.path)
        yield rows
    measured.path = None if expand.path is None else str(expand.path)
