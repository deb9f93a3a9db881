"""Predicates on rows: which rows are certainly true."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, assert_never

import numpy as np

from omnigraph.engine.local.compare import Fixed, Side, Values, holds
from omnigraph.engine.local.pushdown import value_of
from omnigraph.engine.local.rows import BATCH_ROWS, Rows
from omnigraph.engine.local.text import text_matches
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.engine.local.arrays import ArrowColumn, BoolArray, IntArray
    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.rows import Column


def with_columns(context: Context, rows: Rows, wanted: Iterable[Column]) -> Rows:
    """The rows with the values of these properties read; what was read before is not read again."""
    missing: dict[str, list[str]] = defaultdict(list)
    for variable, name in dict.fromkeys(wanted):
        if (variable, name) not in rows.columns:
            missing[variable].append(name)
    if not missing:
        return rows
    found: dict[Column, ArrowColumn] = {}
    for variable, names in missing.items():
        columns = context.entities(variable).columns(rows.variables[variable], names)
        found |= {(variable, name): column for name, column in columns.items()}
    return rows.attach(found)


def keep_true(context: Context, rows: Rows, predicates: Sequence[ir.Predicate]) -> Rows:
    """The rows for which every predicate is true."""
    for predicate in context.budget.steps(predicates):
        if not rows.count:
            return rows
        match predicate:
            case ir.Comparison():
                rows = _keep_comparison(context, rows, predicate)
            case ir.TextMatch():
                matches = text_matches(context, predicate)
                rows = rows.keep(is_member(rows.variables[predicate.field.variable], matches))
            case _:
                assert_never(predicate)
    return rows


def is_member(row_ids: IntArray, sorted_ids: IntArray) -> BoolArray:
    """Which row ids are among sorted ones."""
    if not len(sorted_ids):
        return np.zeros(len(row_ids), np.bool_)
    places = np.searchsorted(sorted_ids, row_ids)
    places[places == len(sorted_ids)] = 0
    found: BoolArray = sorted_ids[places] == row_ids
    return found


def _keep_comparison(context: Context, rows: Rows, predicate: ir.Comparison) -> Rows:
    left, op, right = predicate.left, predicate.op, predicate.right
    if isinstance(left, ir.EntityRef) and isinstance(right, ir.EntityRef):
        return rows.keep(rows.variables[left.variable] == rows.variables[right.variable])
    wanted = [
        (operand.variable, operand.property)
        for operand in (left, right)
        if isinstance(operand, ir.PropertyRef)
    ]
    rows = with_columns(context, rows, wanted)
    return rows.keep(holds(op, _side(context, rows, left), _side(context, rows, right), rows.count))


def _side(context: Context, rows: Rows, operand: ir.Operand) -> Side:
    match operand:
        case ir.PropertyRef(variable, name, type_):
            return Values(rows.columns[variable, name], type_.base)
        case ir.EntityRef(variable):
            ids = context.entities(variable).column(rows.variables[variable], "id")
            return Values(ids, ir.ID_TYPE.base)
        case ir.ParamRef() | ir.Constant():
            return Fixed(value_of(operand, context.values), operand.type.base)
        case _:
            assert_never(operand)


class Restriction:
    """Which entities of one variable satisfy predicates on it alone; remembered once it was asked about many."""

    def __init__(self, context: Context, variable: str, predicates: Sequence[ir.Predicate]) -> None:
        self._context = context
        self._variable = variable
        self._predicates = tuple(predicates)
        self._whole: BoolArray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every entity satisfies it."""
        return not self._predicates

    def keeps(self, row_ids: IntArray) -> BoolArray:
        """Per row id, whether it satisfies all predicates."""
        entities = self._context.entities(self._variable)
        if self._whole is None and len(row_ids) * 4 < entities.row_count:
            return self._evaluate(row_ids)
        numbering = entities.numbering()
        if self._whole is None:
            self._whole = self._evaluate(numbering.all_row_ids)
        return self._whole[numbering.numbers(row_ids)]

    def _evaluate(self, row_ids: IntArray) -> BoolArray:
        place = "~place"
        mask = np.zeros(len(row_ids), np.bool_)
        for start in range(0, len(row_ids), BATCH_ROWS):
            part = row_ids[start : start + BATCH_ROWS]
            places = np.arange(start, start + len(part))
            rows = Rows(count=len(part), variables={self._variable: part, place: places})
            kept = keep_true(self._context, rows, self._predicates)
            mask[kept.variables[place]] = True
        return mask
