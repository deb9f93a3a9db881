"""Predicates as filters of storage, and text conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.core.types import FLOATS, INTEGERS, ListType, ScalarType, scalar_of
from omnigraph.engine.text_analysis import analyse_query, query_terms
from omnigraph.engine.text_columns import NO_ROWS, close_rows, tokenize
from omnigraph.engine.text_parts import TEXT_WORDS, find_text_column
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import CompareOp, Comparison, Constant, Operand, ParamRef, Predicate, PropertyRef, value_of
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, HasItem, HasText

if TYPE_CHECKING:
    from omnigraph.core.values import StoredValue
    from omnigraph.engine.arrays import IntArray
    from omnigraph.engine.context import Context


# ---- Storage filters from predicates


_MIRRORED = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}
#: Longer lists are compared in memory: the text of the filter would cost more than it saves.
_MAX_LIST = 1000
#: Comparisons, and characters of the values they are made with, that one filter holds; what is beyond them is
#: evaluated in memory, with the same meaning. Storage parses, plans and rewrites a filter on every scan.
_MAX_COMPARISONS = 2000
_MAX_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filter that storage evaluates, and the remaining predicates."""

    filter: Filter | None
    rest: tuple[Predicate, ...]


def push_down(predicates: Iterable[Predicate], values: Mapping[str, StoredValue]) -> Pushed:
    """Split predicates on one variable into a storage filter and the rest."""
    filters: list[Filter] = []
    rest: list[Predicate] = []
    comparisons, characters = _MAX_COMPARISONS, _MAX_CHARACTERS
    for predicate in predicates:
        filter_ = _filter_of(predicate, values)
        if filter_ is None:
            rest.append(predicate)
            continue
        cost, size = _cost(filter_)
        if cost > comparisons or size > characters:
            rest.append(predicate)
            continue
        comparisons, characters = comparisons - cost, characters - size
        filters.append(filter_)
    if len(filters) == 1:
        return Pushed(filters[0], tuple(rest))
    return Pushed(AllOf(tuple(filters)) if filters else None, tuple(rest))


def _cost(filter_: Filter) -> tuple[int, int]:
    """The comparisons of a filter plus the characters of its texts."""
    match filter_:
        case AnyOf(filters):
            costs = [_cost(item) for item in filters]
            return sum(cost for cost, _ in costs), sum(size for _, size in costs)
        case HasText(text=text):
            return 1, len(text)
        case Compare(value=str(text)) | HasItem(value=str(text)):
            return 1, len(text)
        case _:
            return 1, 0


def _filter_of(predicate: Predicate, values: Mapping[str, StoredValue]) -> Filter | None:
    if not isinstance(predicate, Comparison):
        return None
    match predicate.left, predicate.right:
        case PropertyRef() as field, (ParamRef() | Constant()) as operand:
            return _property_filter(field, predicate.op, operand, value_of(operand, values))
        case (ParamRef() | Constant()) as operand, PropertyRef() as field:
            value = value_of(operand, values)
            if predicate.op is CompareOp.CONTAINS:
                return _list_filter(field, operand, value)
            mirrored = _MIRRORED.get(predicate.op)
            return None if mirrored is None else _property_filter(field, mirrored, operand, value)
        case _:
            return None


def _property_filter(field: PropertyRef, op: CompareOp, operand: Operand, value: StoredValue) -> Filter | None:
    base = field.type.base
    match op:
        case CompareOp.CONTAINS:
            if not isinstance(base, ListType) or base.item in FLOATS:
                return None
            if base.item in INTEGERS and scalar_of(operand.type.base) not in INTEGERS:
                return None
            return HasItem(field.property, base.item, value)
        case CompareOp.STRING_CONTAINS | CompareOp.STARTS_WITH:
            if not isinstance(value, str):
                return None
            return HasText(field.property, value, at_start=op is CompareOp.STARTS_WITH)
        case _:
            return Compare(field.property, base, str(op), value)


def _list_filter(field: PropertyRef, operand: Operand, value: StoredValue) -> Filter | None:
    """A property that is one of a given list."""
    if not isinstance(value, tuple) or len(value) > _MAX_LIST:
        return None
    item = operand.type.base
    assert isinstance(item, ListType), "the checker allows lists only"
    if scalar_of(ScalarType(item.item)) is None:
        return None
    equals = [Compare(field.property, field.type.base, "=", part) for part in value if part is not None]
    return AnyOf(tuple(equals))


# ---- Text conditions: which rows of a type match


def text_matches(context: Context, condition: ir.TextMatch) -> IntArray:
    """The sorted row ids of all rows that match."""
    key = (context.tables[condition.field.variable], condition)
    known = context.matches.get(key)
    if known is None:
        known = context.matches[key] = _find(context, condition)
    return known


def _find(context: Context, condition: ir.TextMatch) -> IntArray:
    text = value_of(condition.query, context.values)
    if not isinstance(text, str):
        return NO_ROWS
    entities = context.entities(condition.field.variable)
    column = condition.field.property
    match condition.kind:
        case ir.TextKind.SEARCH:
            texts = find_text_column(context, entities, column)
            return texts.rows_with_any(query_terms(text), context.budget)
        case ir.TextKind.MATCH_TEXT:
            texts = find_text_column(context, entities, column)
            return texts.rows_with_phrase(analyse_query(text), context.budget)
        case ir.TextKind.FUZZY:
            edits = ir.FUZZY_DEFAULT_EDITS
            if condition.edits is not None:
                given = value_of(condition.edits, context.values)
                if not isinstance(given, int):
                    return NO_ROWS
                edits = given
            key = (entities.fingerprint, column)
            budget = context.budget
            tokens = context.caches.tokens.get_or_build(
                key,
                lambda: budget.patiently(lambda: tokenize(entities, column), entities.row_count * TEXT_WORDS),
                budget.check,
            )
            return close_rows(tokens, text, edits, budget)
