"""Text conditions: which rows of a type match, with any state of the text index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.engine.local.entities import row_id_array
from omnigraph.engine.local.pushdown import value_of
from omnigraph.engine.local.tokens import NO_ROWS, close_rows, tokenize
from omnigraph.query import ir
from omnigraph.search.indexes import text_index_name
from omnigraph.storage import TextIndex, TextQuery, read_rows, search_rows

if TYPE_CHECKING:
    from omnigraph.engine.local.arrays import IntArray
    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.entities import Entities
    from omnigraph.storage import Filter

#: Tables up to this size are ranked through an index in memory while the stored one is not complete.
_RANKED_IN_MEMORY = 50_000
#: Words of a text, about: analysing texts is work per word.
_TEXT_WORDS = 64
_QUERIES = {
    ir.TextKind.SEARCH: TextQuery.ANY_WORD,
    ir.TextKind.MATCH_TEXT: TextQuery.PHRASE,
}


def text_matches(
    context: Context, condition: ir.TextMatch, filter_: Filter | None = None
) -> IntArray:
    """The sorted row ids of all rows that match; with a filter at least those that also satisfy it."""
    if filter_ is not None:
        return _find(context, condition, filter_)
    key = (context.tables[condition.field.variable], condition)
    known = context.matches.get(key)
    if known is None:
        known = context.matches[key] = _find(context, condition, None)
    return known


def _find(context: Context, condition: ir.TextMatch, filter_: Filter | None) -> IntArray:
    text = value_of(condition.query, context.values)
    if not isinstance(text, str):
        return NO_ROWS
    entities = context.entities(condition.field.variable)
    column = condition.field.property
    if condition.kind is ir.TextKind.FUZZY:
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
                lambda: tokenize(entities, column), entities.row_count * _TEXT_WORDS
            ),
            budget.check,
        )
        return close_rows(tokens, text, edits, budget)
    found = search_text(context, entities, column, text, _QUERIES[condition.kind], filter_=filter_)
    return np.sort(row_id_array(found))


def search_text(
    context: Context,
    entities: Entities,
    column: str,
    text: str,
    query: TextQuery,
    *,
    filter_: Filter | None = None,
    ranked: bool = False,
) -> pa.Table:
    """Row ids and scores of all rows that match; with a filter at least those that also satisfy it.

    Through the stored index when there is one, whatever it covers; else through one in memory that analyses alike.
    Where the scores count, the stored index has to be complete.
    """
    budget = context.budget
    is_usable = ranks_with_stored_index if ranked else has_text_index
    if is_usable(context, entities, column):
        return budget.patiently(
            lambda: search_rows(entities.table, column, text, query, filter_=filter_),
            entities.row_count,
        )
    key = (entities.fingerprint, column)
    index = context.caches.text_indexes.get_or_build(
        key,
        lambda: budget.patiently(
            lambda: _index_text(entities, column), entities.row_count * _TEXT_WORDS
        ),
        budget.check,
    )
    return budget.patiently(lambda: index.search(text, query), entities.row_count)


def ranks_with_stored_index(context: Context, entities: Entities, column: str) -> bool:
    """Whether relevance comes from the stored index.

    An index that covers only some rows knows only their statistics, and would rank differently than a complete one; a
    table that is not too large is then ranked through an index in memory.
    """
    coverage = context.caches.indexes(entities.table).get(text_index_name(column))
    if coverage is None:
        return False
    return not coverage.missing_fragments or entities.row_count > _RANKED_IN_MEMORY


def has_text_index(context: Context, entities: Entities, column: str) -> bool:
    """Whether a stored index helps to search a column."""
    return text_index_name(column) in context.caches.indexes(entities.table)


def _index_text(entities: Entities, column: str) -> TextIndex:
    rows = read_rows(entities.table, [column])
    return TextIndex(pa.array(row_id_array(rows)), rows[column].combine_chunks())
