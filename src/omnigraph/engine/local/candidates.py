"""Scores of single entities: distances and relevance, from storage or computed here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.entities import row_id_array
from omnigraph.engine.local.order import order_codes, total_order
from omnigraph.engine.local.pushdown import value_of
from omnigraph.engine.local.rows import Rows
from omnigraph.engine.local.text import ranks_with_stored_index, search_text
from omnigraph.query import ir
from omnigraph.search.indexes import VECTOR_PROBES
from omnigraph.storage import DISTANCE, SCORE, TextQuery, nearest_rows, search_rows

if TYPE_CHECKING:
    from omnigraph.engine.local.arrays import ArrowColumn, FloatArray, IntArray
    from omnigraph.engine.local.context import Context
    from omnigraph.storage import Filter

#: Candidates beyond the wanted ones: storage orders by 32-bit scores, and ties are broken here.
_SLACK = 8
#: Relative difference below which distances are computed again in 64 bits.
_NEAR = 1e-5
#: Vectors that are compared at once.
_VECTOR_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Candidates:
    """Entities best first."""

    entities: IntArray
    scores: FloatArray
    #: The same entities as rows, with the columns that were asked for.
    rows: Rows
    #: Whether no entity was left out.
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """Which candidates are wanted."""

    #: All predicates on the ranked variable.
    predicates: tuple[ir.Predicate, ...]
    #: Those that storage evaluates.
    filter: Filter | None
    #: How many; None is all of them.
    count: int | None
    #: Whether the scores are shown, so that the last digit counts.
    exact: bool = False


def best_candidates(context: Context, rank: ir.Nearest | ir.Bm25, wish: Wish) -> Candidates:
    """The best entities that satisfy the filter of the wish."""
    match rank:
        case ir.Nearest():
            return _nearest(context, rank, wish)
        case ir.Bm25():
            return _relevant(context, rank, wish)


def score_entities(context: Context, rank: ir.Nearest | ir.Bm25, row_ids: IntArray) -> Candidates:
    """All of these entities that have a score, best first."""
    match rank:
        case ir.Nearest():
            scores = _distances_of(context, rank, row_ids)
        case ir.Bm25():
            scores = _relevance_of(context, rank, row_ids)
    has_score = ~np.isnan(scores)
    rows = Rows(count=int(has_score.sum()), variables={rank.field.variable: row_ids[has_score]})
    return _in_order(context, rank, rows, scores[has_score], None, is_complete=True)


# ---- nearest


def _nearest(context: Context, rank: ir.Nearest, wish: Wish) -> Candidates:
    entities, field, count = context.entities(rank.field.variable), rank.field, wish.count
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
                wish.filter,
                probes=VECTOR_PROBES,
            ),
            entities.row_count,
        )
        rows = _as_rows(found, field.variable)
        distances = np.sqrt(_floats(found[DISTANCE]))
        is_complete = found.num_rows < asked or asked >= entities.row_count
        if is_complete or count is None or not _cuts_a_tie(distances, count):
            break
        # The cut falls between distances that storage cannot tell apart: all of them are needed for the choice.
        asked = min(asked * 4, entities.row_count)
    if wish.exact or _has_near_ties(distances):
        distances = _distances_of(context, rank, rows.variables[field.variable])
    return _in_order(context, rank, rows, distances, count, is_complete=is_complete)


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
    value = value_of(rank.query, context.values)
    if isinstance(value, str):
        _, _, node_type = context.tables[rank.field.variable].partition(":")
        value = context.embed(rank.field, node_type, value)
    return None if value is None else np.asarray(value, np.float64)


def _distances(column: pa.ChunkedArray[Any] | ArrowColumn, query: FloatArray) -> FloatArray:
    """The distance of each vector; not a number where there is none."""
    combined: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    parts = []
    for start in range(0, len(combined), _VECTOR_ROWS):
        part = combined.slice(start, _VECTOR_ROWS)
        present = np.asarray(part.is_valid().to_numpy(zero_copy_only=False))
        flat = np.asarray(part.flatten().to_numpy(zero_copy_only=False), np.float64)
        distances = np.full(len(part), np.nan)
        distances[present] = np.sqrt(((flat.reshape(-1, len(query)) - query) ** 2).sum(axis=1))
        parts.append(distances)
    return np.concatenate(parts) if parts else np.zeros(0)


def _distances_of(context: Context, rank: ir.Nearest, row_ids: IntArray) -> FloatArray:
    query = query_vector(context, rank)
    if query is None:
        return np.full(len(row_ids), np.nan)
    entities = context.entities(rank.field.variable)
    parts = [
        _distances(
            entities.column(row_ids[start : start + _VECTOR_ROWS], rank.field.property), query
        )
        for start in context.budget.steps(range(0, len(row_ids), _VECTOR_ROWS))
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


# ---- relevance


def _relevant(context: Context, rank: ir.Bm25, wish: Wish) -> Candidates:
    entities, field, count = context.entities(rank.field.variable), rank.field, wish.count
    text = value_of(rank.query, context.values)
    if not isinstance(text, str) or count == 0:
        return _none(field.variable)
    if not ranks_with_stored_index(context, entities, field.property):
        return _relevant_in_memory(context, rank, wish, text)
    asked = None if count is None else count + _SLACK
    while True:
        found = context.budget.patiently(
            partial(
                search_rows,
                entities.table,
                field.property,
                text,
                TextQuery.ANY_WORD,
                filter_=wish.filter,
                limit=asked,
            ),
            entities.row_count,
        )
        rows = _as_rows(found, field.variable)
        scores = _floats(found[SCORE])
        is_complete = asked is None or found.num_rows < asked
        candidates = _in_order(context, rank, rows, scores, count, is_complete=is_complete)
        if is_complete or candidates.scores[-1] > scores.min():
            return candidates
        assert asked is not None, "without a limit everything is found"
        asked *= 4


def _relevant_in_memory(context: Context, rank: ir.Bm25, wish: Wish, text: str) -> Candidates:
    field, count = rank.field, wish.count
    entities = context.entities(field.variable)
    found = search_text(context, entities, field.property, text, TextQuery.ANY_WORD, ranked=True)
    order = np.argsort(row_id_array(found))
    row_ids, scores = row_id_array(found)[order], _floats(found[SCORE])[order]
    rows = Rows(count=len(row_ids), variables={field.variable: row_ids})
    comparisons = [item for item in wish.predicates if isinstance(item, ir.Comparison)]
    kept = keep_true(context, rows, comparisons)
    scores = scores[np.searchsorted(row_ids, kept.variables[field.variable])]
    is_complete = count is None or kept.count <= count
    return _in_order(context, rank, kept, scores, count, is_complete=is_complete)


def _relevance_of(context: Context, rank: ir.Bm25, row_ids: IntArray) -> FloatArray:
    scores = np.full(len(row_ids), np.nan)
    text = value_of(rank.query, context.values)
    if not isinstance(text, str):
        return scores
    entities = context.entities(rank.field.variable)
    found = search_text(
        context, entities, rank.field.property, text, TextQuery.ANY_WORD, ranked=True
    )
    if found.num_rows and len(row_ids):
        places = np.searchsorted(row_ids, row_id_array(found))
        places = np.minimum(places, len(row_ids) - 1)
        known = row_ids[places] == row_id_array(found)
        scores[places[known]] = _floats(found[SCORE])[known]
    return scores


# ---- shared


def _in_order(
    context: Context,
    rank: ir.Nearest | ir.Bm25,
    rows: Rows,
    scores: FloatArray,
    count: int | None,
    *,
    is_complete: bool,
) -> Candidates:
    """Entities by score, ties by id, cut to `count`."""
    present = ~np.isnan(scores)
    if not present.all():
        rows, scores = rows.keep(present), scores[present]
    codes = order_codes(pa.array(scores), descending=isinstance(rank, ir.Bm25))
    order = total_order(context, rows, [codes], count)
    rows = rows.take(order)
    entities = rows.variables[rank.field.variable]
    return Candidates(
        entities, scores[order], rows, is_complete and (count is None or count >= len(scores))
    )


def _as_rows(found: pa.Table, variable: str) -> Rows:
    return Rows(count=found.num_rows, variables={variable: row_id_array(found)})


def _floats(column: pa.ChunkedArray[Any]) -> FloatArray:
    return np.asarray(column.to_numpy()).astype(np.float64)


def _none(variable: str) -> Candidates:
    empty = np.zeros(0, np.int64)
    rows = Rows(count=0, variables={variable: empty})
    return Candidates(empty, np.zeros(0), rows, is_complete=True)
