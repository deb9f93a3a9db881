"""Scores of entities, from storage or computed here, and the choice of the best candidates of one ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.ids import node_table_key
from omnigraph.engine.predicates import keep_true
from omnigraph.engine.results.projection import SCORE_COLUMN, key_codes, order_codes, sort_by_codes, total_order
from omnigraph.engine.rows import FloatArray, IntArray, Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import row_id_array
from omnigraph.engine.tables.text_analysis import query_terms
from omnigraph.engine.tables.text_columns import NO_ROWS, Scored
from omnigraph.engine.tables.text_search import find_text_column
from omnigraph.engine.tables.wanted_indexes import VECTOR_PROBES
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.storage.datasets.filters import Filter
from omnigraph.storage.datasets.reads import DISTANCE, nearest_rows

#: A ranking by one property.
FieldRank = ir.Nearest | ir.Bm25
#: Candidates beyond the wanted ones: storage orders by 32-bit distances, and ties are broken here.
_SLACK = 8
#: Relative difference below which distances are computed again in 64 bits.
_NEAR = 1e-5
#: Vectors that are compared at once.
_VECTOR_ROWS = 1 << 14
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
    #: All predicates on the ranked variable.
    predicates: tuple[ir.Expression, ...]
    #: Those that storage evaluates.
    filter: Filter | None
    #: How many at least, if there are so many; None is all of them.
    count: int | None
    #: The keys that order entities of one score, as far as they follow from the entity alone.
    keys: tuple[ir.OrderKey, ...]
    #: Whether score, keys and id decide everything, so that ties need not be kept together.
    is_total: bool
    #: Whether the scores are shown, so that the last digit counts.
    exact: bool = False


def best_candidates(context: Context, rank: FieldRank, request: CandidateRequest) -> Candidates:
    """The best entities that satisfy the filter of the request."""
    match rank:
        case ir.Nearest():
            return _nearest(context, rank, request)
        case ir.Bm25():
            return _relevant(context, rank, request)


def best_of_types(
    context: Context, rank: FieldRank, request: CandidateRequest, node_types: Sequence[str]
) -> Candidates:
    """The best entities of several types together; their scores are exact, so that they compare."""
    variable = rank.field.variable
    numbers, scores, is_complete = [np.zeros(0, np.int64)], [np.zeros(0)], True
    for key in map(node_table_key, node_types):
        found = best_candidates(context.narrowed({variable: key}), rank, replace(request, exact=True))
        numbers.append(context.tagged(key, found.rows.variables[variable]))
        scores.append(found.scores)
        is_complete &= found.is_complete
    rows = Rows(count=sum(map(len, numbers)), variables={variable: np.concatenate(numbers)})
    return _cut(context, rank, rows, np.concatenate(scores), request, is_complete=is_complete)


def score_entities(context: Context, rank: FieldRank, row_ids: IntArray) -> Candidates:
    """All of these entities that have a score."""
    match rank:
        case ir.Nearest():
            scores = _distances_of(context, rank, row_ids)
        case ir.Bm25():
            scores = _relevance_of(context, rank, row_ids)
    has_score = ~np.isnan(scores)
    rows = Rows(count=int(has_score.sum()), variables={rank.field.variable: row_ids[has_score]})
    return Candidates(rows, scores[has_score], is_complete=True)


def score_codes(rank: ir.Rank, scores: FloatArray) -> IntArray:
    """Numbers that sort as scores do, best first; equal scores have equal numbers."""
    return order_codes(pa.array(scores), descending=not isinstance(rank, ir.Nearest))


# ---- nearest


def _nearest(context: Context, rank: ir.Nearest, request: CandidateRequest) -> Candidates:
    entities, field, count = context.entities(rank.field.variable), rank.field, request.count
    query = query_vector(context, rank)
    if query is None or not entities.row_count or count == 0:
        return _none(field.variable)
    asked = entities.row_count if count is None else min(count + _SLACK, entities.row_count)
    while True:
        found = context.budget.patiently(
            partial(
                nearest_rows,
                entities.table,
                field.property,
                query.tolist(),
                asked,
                request.filter,
                probes=VECTOR_PROBES,
            ),
            entities.row_count,
        )
        rows = Rows(count=found.num_rows, variables={field.variable: row_id_array(found)})
        distances = np.sqrt(np.asarray(found[DISTANCE].to_numpy()).astype(np.float64))
        is_complete = found.num_rows < asked or asked >= entities.row_count
        if is_complete or count is None or not _cuts_a_tie(distances, count):
            break
        # The cut falls between distances that storage cannot tell apart: all of them are needed for the choice.
        asked = min(asked * 4, entities.row_count)
    if request.exact or _has_near_ties(distances):
        distances = _distances_of(context, rank, rows.variables[field.variable])
    return _cut(context, rank, rows, distances, request, is_complete=is_complete)


def _has_near_ties(distances: FloatArray) -> bool:
    """Whether two distances are closer than the 32 bits of storage tell apart, or unknown to it."""
    ordered = np.sort(distances)
    if not np.isfinite(ordered).all():
        return True
    return bool((np.diff(ordered) <= _NEAR * ordered[1:]).any())


def _cuts_a_tie(distances: FloatArray, count: int) -> bool:
    """Whether the last of the nearest `count` and the farthest that was found may be equal."""
    ordered = np.sort(distances)
    last = ordered[min(count, len(ordered)) - 1]
    return bool(not np.isfinite(ordered[-1]) or ordered[-1] <= last * (1 + _NEAR))


def query_vector(context: Context, rank: ir.Nearest) -> FloatArray | None:
    """The vector that is searched for; a text is embedded."""
    value = ir.value_of(rank.query, context.values)
    if isinstance(value, str):
        value = context.embed(rank.field, context.tables[rank.field.variable].name, value)
    return None if value is None else np.asarray(value, np.float64)


def _distances(vectors: Array, query: FloatArray) -> FloatArray:
    """The distance of each vector; not a number where there is none."""
    present = np.asarray(vectors.is_valid().to_numpy(zero_copy_only=False))
    flat = np.asarray(pc.list_flatten(vectors).to_numpy(zero_copy_only=False), np.float64)
    distances = np.full(len(vectors), np.nan)
    distances[present] = np.sqrt(((flat.reshape(-1, len(query)) - query) ** 2).sum(axis=1))
    return distances


def _distances_of(context: Context, rank: ir.Nearest, row_ids: IntArray) -> FloatArray:
    variable = rank.field.variable
    if not context.is_plain(variable):
        # Each type may have a model of its own for the text that is searched for.
        distances = np.full(len(row_ids), np.nan)
        for key, places, some in context.parts(variable, row_ids):
            distances[places] = _distances_of(context.narrowed({variable: key}), rank, some)
        return distances
    query = query_vector(context, rank)
    if query is None:
        return np.full(len(row_ids), np.nan)
    entities = context.entities(rank.field.variable)
    parts = [
        _distances(entities.column(row_ids[start : start + _VECTOR_ROWS], rank.field.property), query)
        for start in context.budget.steps(range(0, len(row_ids), _VECTOR_ROWS))
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


# ---- relevance


def _relevant(context: Context, rank: ir.Bm25, request: CandidateRequest) -> Candidates:
    field, count = rank.field, request.count
    scored = _relevance(context, rank)
    if not len(scored.row_ids) or count == 0:
        return _none(field.variable)
    comparisons = [item for item in request.predicates if isinstance(item, ir.Comparison)]
    asked = count
    while True:
        best = _best(scored, asked)
        is_complete = len(best.row_ids) == len(scored.row_ids)
        rows = Rows(
            count=len(best.row_ids),
            variables={field.variable: best.row_ids},
            columns={SCORE_COLUMN: pa.array(best.scores)},
        )
        rows = keep_true(context, rows, comparisons)
        if is_complete or asked is None or count is None or rows.count >= count:
            break
        asked *= GROWTH
    scores = np.asarray(rows.columns[SCORE_COLUMN].to_numpy())
    return _cut(context, rank, rows, scores, request, is_complete=is_complete)


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


def _relevance_of(context: Context, rank: ir.Bm25, row_ids: IntArray) -> FloatArray:
    scores = np.full(len(row_ids), np.nan)
    found = _relevance(context, rank)
    if len(found.row_ids) and len(row_ids):
        places = np.minimum(np.searchsorted(row_ids, found.row_ids), len(row_ids) - 1)
        known = row_ids[places] == found.row_ids
        scores[places[known]] = found.scores[known]
    return scores


# ---- shared


def _cut(
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


def _none(variable: str) -> Candidates:
    rows = Rows(count=0, variables={variable: np.zeros(0, np.int64)})
    return Candidates(rows, np.zeros(0), is_complete=True)
