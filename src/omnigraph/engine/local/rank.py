"""Ranking: entities that satisfy the whole match, best first.

Where the ranked variable is the first that a query binds, the best candidates are taken from storage and sent through
the rest of the match, more of them until enough survive. Otherwise the match runs first and its entities are scored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.engine.local.candidates import Candidates, Wish, best_candidates, score_entities
from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.order import total_order
from omnigraph.engine.local.pipeline import START, run_pipeline
from omnigraph.engine.local.project import SCORE_COLUMN
from omnigraph.engine.local.pushdown import push_down, value_of
from omnigraph.engine.local.reading import gathered
from omnigraph.engine.local.rows import Rows, concat_rows
from omnigraph.engine.local.sorting import key_codes
from omnigraph.engine.local.variables import needed_variables, rank_field
from omnigraph.errors import BadRequestError
from omnigraph.query import ir

if TYPE_CHECKING:
    from omnigraph.engine.local.arrays import FloatArray, IntArray
    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.pipeline import Profile

#: Candidates that are tried first when a match behind the ranking may drop some of them.
_FIRST_TRY = 64
_GROWTH = 8
#: Beyond so many candidates the match is run as a whole instead.
_MAX_CANDIDATES = 1 << 15


@dataclass(frozen=True, slots=True)
class _Arm:
    """The outcome of one ranking: entities best first, and the rows of the match that they have."""

    entities: IntArray
    scores: FloatArray
    rows: Rows


def ranked_rows(context: Context, query: ir.ReadIR, profile: Profile | None = None) -> Rows:
    """The rows of a ranked query in order, with their score attached, cut to the limit."""
    rank, limit = query.rank, query.limit
    assert rank is not None, "the query is ranked"
    if isinstance(rank, ir.Rrf):
        assert limit is not None, "a fusion has a limit"
        depth = ir.Rrf.depth(limit)
        first = _arm(context, query, rank.first, wanted=depth, profile=profile)
        second = _second_arm(context, query, rank, depth, profile)
        arm = _fuse(context, query, rank, first, second)
    else:
        arm = _arm(context, query, rank, wanted=limit, wanted_rows=limit, profile=profile)
    return _ordered(context, query, arm)


def _arm(
    context: Context,
    query: ir.ReadIR,
    rank: ir.Nearest | ir.Bm25,
    *,
    wanted: int | None,
    wanted_rows: int | None = None,
    profile: Profile | None,
) -> _Arm:
    """The best `wanted` entities that satisfy the match; fewer when the first of them have `wanted_rows` rows."""
    scan = query.pipeline[0]
    if isinstance(scan, ir.NodeScan) and scan.variable == rank.field.variable:
        found = _rank_first(
            context, query, rank, wanted=wanted, wanted_rows=wanted_rows, profile=profile
        )
        if found is not None:
            return found
    return _rank_after(context, query, rank, wanted, profile)


def _second_arm(
    context: Context, query: ir.ReadIR, rank: ir.Rrf, depth: int, profile: Profile | None
) -> _Arm:
    """The ranking of the second arm, of the entities that the first one ranks."""
    if rank.second.field.variable == rank.first.field.variable:
        return _arm(context, query, rank.second, wanted=depth, profile=profile)
    # It orders rows by another variable: entities come in the order of their first row.
    own = _rank_after(context, query, rank.second, None, profile)
    rows = _ordered(context, replace(query, rank=rank.second, limit=None), own)
    if not rows.count:
        return _Arm(np.zeros(0, np.int64), np.zeros(0), rows)
    entities, first = np.unique(rows.variables[rank.first.field.variable], return_index=True)
    in_order = entities[np.argsort(first)][:depth]
    # An entity that is ranked has all its rows, also those that gave it no rank.
    return _Arm(in_order, np.zeros(len(in_order)), own.rows)


def _rank_first(
    context: Context,
    query: ir.ReadIR,
    rank: ir.Nearest | ir.Bm25,
    *,
    wanted: int | None,
    wanted_rows: int | None,
    profile: Profile | None,
) -> _Arm | None:
    """Candidates first, the rest of the match behind them; None when too few survive."""
    scan, *rest = query.pipeline
    assert isinstance(scan, ir.NodeScan)
    pushed = push_down(scan.filters, context.values)
    drops_none = not rest and not pushed.rest
    exact = any(isinstance(item.expression, ir.Nearest) for item in query.projections)
    count = wanted if wanted is None or drops_none else max(wanted, _FIRST_TRY)
    while count is None or count <= _MAX_CANDIDATES or drops_none:
        wish = Wish(scan.filters, pushed.filter, count, exact)
        context.budget.enter("Rank")
        candidates = best_candidates(context, rank, wish)
        rows = candidates.rows
        if not drops_none:
            rows = keep_true(context, rows, pushed.rest)
            stream = run_pipeline(
                context, rest, [rows], needed_variables(query), profile=profile, first=1
            )
            rows = gathered(context, stream)
        arm = _surviving(candidates, rows, rank.field.variable, wanted)
        enough = wanted is not None and len(arm.entities) >= wanted
        enough |= wanted_rows is not None and rows.total >= wanted_rows
        if candidates.is_complete or enough or drops_none:
            return arm
        assert count is not None, "all candidates are complete"
        count *= _GROWTH
    return None


def _rank_after(
    context: Context,
    query: ir.ReadIR,
    rank: ir.Nearest | ir.Bm25,
    wanted: int | None,
    profile: Profile | None,
) -> _Arm:
    """The whole match first, then its entities in order."""
    variable = rank.field.variable
    stream = run_pipeline(
        context, query.pipeline, [START], needed_variables(query), profile=profile
    )
    rows = gathered(context, stream)
    if not rows.count:
        return _Arm(np.zeros(0, np.int64), np.zeros(0), Rows(count=0))
    candidates = score_entities(context, rank, np.unique(rows.variables[variable]))
    return _surviving(candidates, rows, variable, wanted)


def _surviving(candidates: Candidates, rows: Rows, variable: str, wanted: int | None) -> _Arm:
    """The candidates that have rows, at most `wanted` of them."""
    entities, scores = candidates.entities, candidates.scores
    if rows is not candidates.rows:
        present = rows.variables[variable] if rows.count else np.zeros(0, np.int64)
        survives = np.isin(entities, present)
        entities, scores = entities[survives], scores[survives]
    return _Arm(entities[:wanted], scores[:wanted], rows)


# ---- fusion


def _fuse(context: Context, query: ir.ReadIR, rank: ir.Rrf, first: _Arm, second: _Arm) -> _Arm:
    """Reciprocal rank fusion of two rankings of the same entities."""
    k = value_of(rank.k, context.values)
    if not isinstance(k, int) or k <= 0:
        raise BadRequestError(f"k of rrf is {k!r}: it has to be a whole number above zero")
    entities = np.union1d(first.entities, second.entities)
    places = [_places(arm.entities, entities) for arm in (first, second)]
    scores = np.zeros(len(entities))
    for place in places:
        found = place >= 0
        scores[found] += 1.0 / (k + place[found] + 1)
    absent = len(entities)
    ties = [np.where(place >= 0, place, absent) for place in places]
    order = np.lexsort((ties[1], ties[0], -scores))[: query.limit]
    kept = entities[order]
    variable = rank_field(rank).variable
    from_first = _rows_of(first.rows, variable, np.intersect1d(kept, first.entities))
    from_second = _rows_of(second.rows, variable, np.setdiff1d(kept, first.entities))
    return _Arm(kept, scores[order], concat_rows([from_first, from_second]))


def _places(ranked: IntArray, entities: IntArray) -> IntArray:
    """The place of each entity in a ranking, -1 where it is absent."""
    places = np.full(len(entities), -1, np.int64)
    places[np.searchsorted(entities, ranked)] = np.arange(len(ranked))
    return places


def _rows_of(rows: Rows, variable: str, entities: IntArray) -> Rows:
    return rows.keep(np.isin(rows.variables[variable], entities)) if rows.count else rows


# ---- order


def _ordered(context: Context, query: ir.ReadIR, arm: _Arm) -> Rows:
    """The rows of the ranked entities: by rank, then by the other keys, then by ids."""
    assert query.rank is not None
    rows = arm.rows
    if not rows.count or not len(arm.entities):
        return Rows(count=0)
    by_id = np.argsort(arm.entities)
    sorted_entities = arm.entities[by_id]
    row_entities = rows.variables[rank_field(query.rank).variable]
    spots = np.minimum(np.searchsorted(sorted_entities, row_entities), len(by_id) - 1)
    is_ranked = sorted_entities[spots] == row_entities
    place = by_id[spots]
    if not is_ranked.all():
        rows, place = rows.keep(is_ranked), place[is_ranked]
    rows = rows.attach({SCORE_COLUMN: pa.array(arm.scores[place], pa.float64())})
    rows, codes = key_codes(context, rows, query)
    order = total_order(context, rows, [place, *codes], query.limit)
    return rows.take(order)
