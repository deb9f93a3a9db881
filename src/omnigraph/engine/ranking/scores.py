"""Candidates of one ranking: what is asked for, how they are cut, and the most relevant ones of a text."""

from __future__ import annotations

import numpy as np

from omnigraph.core.arrow import pa
from omnigraph.engine.predicates import keep_true
from omnigraph.engine.results.projection import SCORE_COLUMN, key_codes, order_codes, sort_by_codes, total_order
from omnigraph.engine.rows import FloatArray, IntArray, Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.text_analysis import query_terms
from omnigraph.engine.tables.text_columns import NO_ROWS, Scored
from omnigraph.engine.tables.text_search import find_text_column
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: A ranking by one property.
FieldRank = ir.Nearest | ir.Bm25
#: How many more candidates are asked for when those before were too few.
GROWTH = 8


@frozen
class Candidates:
    """Entities with their scores. Those that were left out come behind all of these."""

    #: The entities as rows, with the columns that were asked for.
    rows: Rows
    scores: FloatArray
    #: Whether no entity was left out.
    is_complete: bool


@frozen
class CandidateRequest:
    """A request for the best candidates."""

    query: ir.ReadIR
    #: What the ranked variable has to satisfy.
    predicates: tuple[ir.Expression, ...]
    #: How many at least, if there are so many; None is all of them.
    count: int | None
    #: The keys that order entities of one score, as far as they follow from the entity alone.
    keys: tuple[ir.OrderKey, ...]
    #: Whether score, keys and id decide everything, so that ties need not be kept together.
    is_total: bool
    #: Whether the scores are shown, so that the last digit counts.
    exact: bool = False


def score_codes(rank: ir.Rank, scores: FloatArray) -> IntArray:
    """Numbers that sort as scores do, best first; equal scores have equal numbers."""
    return order_codes(pa.array(scores), descending=not isinstance(rank, ir.Nearest))


# ---- relevance


def relevant_candidates(context: Context, rank: ir.Bm25, request: CandidateRequest) -> Candidates:
    """The most relevant entities that satisfy the predicates of the request."""
    field, count = rank.field, request.count
    scored = _relevance(context, rank)
    if not len(scored.row_ids) or count == 0:
        return no_candidates(field.variable)
    asked = count
    while True:
        best = _best(scored, asked)
        is_complete = len(best.row_ids) == len(scored.row_ids)
        rows = Rows(
            count=len(best.row_ids),
            variables={field.variable: best.row_ids},
            columns={SCORE_COLUMN: pa.array(best.scores)},
        )
        rows = keep_true(context, rows, request.predicates)
        if is_complete or asked is None or count is None or rows.count >= count:
            break
        asked *= GROWTH
    scores = np.asarray(rows.columns[SCORE_COLUMN].to_numpy())
    return cut(context, rank, rows, scores, request, is_complete=is_complete)


def _best(scored: Scored, count: int | None) -> Scored:
    """The rows with the highest scores, at least `count`: rows of one score stay together."""
    total = len(scored.scores)
    if count is None or count >= total:
        return scored
    last = np.partition(scored.scores, total - count)[total - count]
    is_best = scored.scores >= last
    return Scored(scored.row_ids[is_best], scored.scores[is_best])


def _relevance(context: Context, rank: ir.Bm25) -> Scored:
    """The relevance of all rows that have any. Computed once per query."""
    key = (context.tables[rank.field.variable], rank)
    known = context.relevances.get(key)
    if known is None:
        text = ir.value_of(rank.query, context.values)
        known = Scored(NO_ROWS, np.zeros(0))
        if isinstance(text, str):
            entities = context.entities(rank.field.variable)
            column = find_text_column(context, entities, rank.field.property)
            known = column.relevance(query_terms(text), context.budget)
        context.relevances[key] = known
    return known


def score_texts(context: Context, rank: ir.Bm25, row_ids: IntArray) -> Candidates:
    """All of these entities, which are sorted, that have a score."""
    scores = np.full(len(row_ids), np.nan)
    found = _relevance(context, rank)
    if len(found.row_ids) and len(row_ids):
        places = np.minimum(np.searchsorted(row_ids, found.row_ids), len(row_ids) - 1)
        known = row_ids[places] == found.row_ids
        scores[places[known]] = found.scores[known]
    has_score = ~np.isnan(scores)
    rows = Rows(count=int(has_score.sum()), variables={rank.field.variable: row_ids[has_score]})
    return Candidates(rows, scores[has_score], is_complete=True)


# ---- shared


def cut(
    context: Context, rank: FieldRank, rows: Rows, scores: FloatArray, request: CandidateRequest, *, is_complete: bool
) -> Candidates:
    """The best `count` entities, and those that only keys of other variables could tell from the last of them."""
    present = ~np.isnan(scores)
    if not present.all():
        rows, scores = rows.keep(present), scores[present]
    count = request.count
    if count is None or rows.count <= count:
        return Candidates(rows, scores, is_complete)
    codes = score_codes(rank, scores)
    is_best = codes <= np.partition(codes, count - 1)[count - 1]
    rows, scores, codes = rows.keep(is_best), scores[is_best], codes[is_best]
    if rows.count > count and (request.keys or request.is_total):
        rows, further = key_codes(context, rows, request.query, request.keys)
        if request.is_total:
            order = total_order(context, rows, [codes, *further], count)
        else:
            order = _with_ties([codes, *further], count)
        rows, scores = rows.take(order), scores[order]
    return Candidates(rows, scores, is_complete=False)


def _with_ties(codes: list[IntArray], count: int) -> IntArray:
    """The places of the first `count` by codes, and of all that are equal to the last of them."""
    order = sort_by_codes(codes, len(codes[0]))
    is_tied = np.ones(len(order), np.bool_)
    for code in codes:
        is_tied &= code[order] == code[order[count - 1]]
    is_tied[:count] = True
    return order[is_tied]


def no_candidates(variable: str) -> Candidates:
    """Nothing, and nothing was left out."""
    rows = Rows(count=0, variables={variable: np.zeros(0, np.int64)})
    return Candidates(rows, np.zeros(0), is_complete=True)
