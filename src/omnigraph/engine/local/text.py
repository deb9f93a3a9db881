"""Text conditions: which rows of a type match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.engine.local.pushdown import value_of
from omnigraph.engine.local.text_columns import NO_ROWS
from omnigraph.engine.local.text_parts import TEXT_WORDS, find_text_column
from omnigraph.engine.local.tokens import close_rows, tokenize
from omnigraph.query import ir
from omnigraph.search.analysis import analyse_query, query_terms

if TYPE_CHECKING:
    from omnigraph.engine.local.arrays import IntArray
    from omnigraph.engine.local.context import Context


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
                lambda: budget.patiently(
                    lambda: tokenize(entities, column), entities.row_count * TEXT_WORDS
                ),
                budget.check,
            )
            return close_rows(tokens, text, edits, budget)
