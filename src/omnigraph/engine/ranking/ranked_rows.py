"""Ranking: entities that satisfy the whole match, best first, by one score or by the fusion of two.

Where the ranked variable is the first that a query binds, the best candidates are sent through the rest of the
match, more of them until enough survive. Otherwise the match runs first and its entities are scored. Either way all
entities that could be among the first are there before the further order keys break the ties of the score.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from omnigraph.core.arrow import pa
from omnigraph.core.ids import node_table_key
from omnigraph.engine.operators.pipeline import START, Profile, run_pipeline
from omnigraph.engine.ranking.nearest import nearest_among, nearest_of_scan
from omnigraph.engine.ranking.scores import (
    GROWTH,
    CandidateRequest,
    Candidates,
    FieldRank,
    relevant_candidates,
    score_codes,
    score_texts,
)
from omnigraph.engine.results.projection import SCORE_COLUMN, key_codes, key_operand, total_order
from omnigraph.engine.rows import FloatArray, IntArray, Rows, concat_rows, gathered
from omnigraph.engine.tables.context import Context, needed_variables, rank_field
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: Candidates that are tried first when a match behind the ranking may drop some of them.
_FIRST_TRY = 64
#: Beyond so many candidates, or one row in this number, the match is run as a whole instead.
_MAX_CANDIDATES = 1 << 15
_WHOLE_SHARE = 2
#: How many candidates more than the last ones let expect are tried next, and how many times as many at most.
_MARGIN = 1.5
_MAX_GROWTH = 64
#: Relative difference below which sums of two fractions may be equal.
_ROUNDING = 1e-12


@frozen
class _Arm:
    """The outcome of one ranking: entities with their scores, and the rows of the match that they have."""

    entities: IntArray
    scores: FloatArray
    rows: Rows


def ranked_rows(context: Context, query: ir.ReadIR, profile: Profile | None = None) -> Rows:
    """The rows of a ranked query in order, with their score attached, cut to the limit."""
    rank, limit = query.rank, context.wanted
    assert rank is not None, "the query is ranked"
    if isinstance(rank, ir.Rrf):
        return _fused_rows(context, query, rank, profile)
    arm = _arm(context, query, rank, wanted=limit, wanted_rows=limit, profile=profile)
    rows, place = _rows_of(arm, rank.field.variable)
    if not rows.count:
        return rows
    rows = rows.attach({SCORE_COLUMN: pa.array(arm.scores[place], pa.float64())})
    rows, codes = key_codes(context, rows, query)
    codes = [score_codes(rank, arm.scores)[place], *codes]
    return rows.take(total_order(context, rows, codes, limit, first=rank.field.variable))


def _arm(
    context: Context,
    query: ir.ReadIR,
    rank: FieldRank,
    *,
    wanted: int | None,
    wanted_rows: int | None = None,
    profile: Profile | None,
) -> _Arm:
    """At least the best `wanted` entities that satisfy the match; fewer when the first of them have `wanted_rows` rows.

    Entities that are left out come behind all others, in the order of the query.
    """
    scan = query.pipeline[0]
    if isinstance(scan, ir.NodeScan | ir.UnionScan) and scan.variable == rank.field.variable:
        found = _rank_first(context, query, rank, wanted=wanted, wanted_rows=wanted_rows, profile=profile)
        if found is not None:
            return found
    return _rank_after(context, query, rank, profile, wanted=wanted)


def _rank_first(
    context: Context,
    query: ir.ReadIR,
    rank: FieldRank,
    *,
    wanted: int | None,
    wanted_rows: int | None,
    profile: Profile | None,
) -> _Arm | None:
    """Candidates first, the rest of the match behind them; None when too few survive."""
    scan, *rest = query.pipeline
    assert isinstance(scan, ir.NodeScan | ir.UnionScan)
    nearest = nearest_of_scan(context, rank, scan) if isinstance(rank, ir.Nearest) else None
    count = wanted if wanted is None or not rest else max(wanted, _FIRST_TRY)
    while True:
        request = _request(query, rank, count, scan.filters)
        context.budget.enter("Rank")
        if nearest is not None:
            candidates = nearest.best(request)
        else:
            assert isinstance(rank, ir.Bm25)
            candidates = relevant_candidates(context, rank, request)
        if not rest:
            return _surviving(candidates, candidates.rows, scan.variable)
        stream = run_pipeline(context, rest, [candidates.rows], needed_variables(query), profile=profile, first=1)
        rows = gathered(context.budget, stream)
        arm = _surviving(candidates, rows, scan.variable)
        enough = wanted is not None and len(arm.entities) >= wanted
        enough |= wanted_rows is not None and rows.total >= wanted_rows
        if candidates.is_complete or enough:
            return arm
        assert count is not None, "all candidates are complete"
        assert wanted is not None, "who asks for all gets all"
        count = next_window(count, len(arm.entities), wanted)
        if count > _MAX_CANDIDATES or count * _WHOLE_SHARE > _population(context, scan):
            return None


def _population(context: Context, scan: ir.NodeScan | ir.UnionScan) -> int:
    types = scan.node_types if isinstance(scan, ir.UnionScan) else (scan.node_type,)
    return sum(context.type_entities(node_table_key(name)).row_count for name in types)


def next_window(count: int, survived: int, wanted: int) -> int:
    """How many candidates to try after so many of `count` survived: enough at the same rate, with some more."""
    if not survived:
        return count * GROWTH
    return min(max(ceil(_MARGIN * count * wanted / survived), 2 * count), _MAX_GROWTH * count)


def _request(
    query: ir.ReadIR, rank: FieldRank, count: int | None, predicates: tuple[ir.Expression, ...]
) -> CandidateRequest:
    keys, is_total = _entity_keys(query, rank)
    exact = any(isinstance(item.expression, ir.Nearest) for item in query.projections)
    return CandidateRequest(query, predicates, count, keys, is_total, exact)


def _entity_keys(query: ir.ReadIR, rank: FieldRank) -> tuple[tuple[ir.OrderKey, ...], bool]:
    """The leading keys that follow from the ranked entity alone, and whether those are all of them.

    The arms of a fusion are ordered by score and id.
    """
    if query.rank is not rank:
        return (), True
    keys: list[ir.OrderKey] = []
    for key in query.order:
        operand = key_operand(query, key.expression)
        if not isinstance(operand, ir.PropertyRef) or operand.variable != rank.field.variable:
            return tuple(keys), False
        keys.append(key)
    return tuple(keys), True


def _rank_after(
    context: Context, query: ir.ReadIR, rank: FieldRank, profile: Profile | None, *, wanted: int | None
) -> _Arm:
    """The whole match first, then the best `wanted` of its entities."""
    variable = rank.field.variable
    stream = run_pipeline(context, query.pipeline, [START], needed_variables(query), profile=profile)
    rows = gathered(context.budget, stream)
    if not rows.count:
        return _Arm(np.zeros(0, np.int64), np.zeros(0), Rows(count=0))
    entities = _distinct(rows.variables[variable])
    if isinstance(rank, ir.Bm25):
        candidates = score_texts(context, rank, entities)
    else:
        found = nearest_among(context, rank, entities)
        candidates = found.best(_request(query, rank, wanted, ()))
    return _surviving(candidates, rows, variable)


def _distinct(numbers: IntArray) -> IntArray:
    """The numbers in order, each once."""
    ordered = np.sort(numbers)
    found: IntArray = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return found


def _surviving(candidates: Candidates, rows: Rows, variable: str) -> _Arm:
    """The candidates that have rows."""
    entities, scores = candidates.rows.variables[variable], candidates.scores
    if rows is not candidates.rows:
        present = rows.variables[variable] if rows.count else np.zeros(0, np.int64)
        survives = np.isin(entities, present)
        entities, scores = entities[survives], scores[survives]
    return _Arm(entities, scores, rows)


def _rows_of(arm: _Arm, variable: str) -> tuple[Rows, IntArray]:
    """The rows of the entities of a ranking, and which of them each row belongs to."""
    rows = arm.rows
    if not rows.count or not len(arm.entities):
        return Rows(count=0), np.zeros(0, np.int64)
    by_id = np.argsort(arm.entities)
    sorted_entities = arm.entities[by_id]
    row_entities = rows.variables[variable]
    spots = np.minimum(np.searchsorted(sorted_entities, row_entities), len(by_id) - 1)
    is_ranked = sorted_entities[spots] == row_entities
    return rows.keep(is_ranked), by_id[spots][is_ranked]


# ---- fusion


@frozen
class _Ranking:
    """The best entities of one arm of a fusion, best first, and rows of the match that have all of theirs."""

    entities: IntArray
    rows: Rows


def _fused_rows(context: Context, query: ir.ReadIR, rank: ir.Rrf, profile: Profile | None) -> Rows:
    """The rows of a fusion in order: by score, by the other keys, by the places in both arms, by ids."""
    assert context.wanted is not None, "a fusion has a limit"
    variable, depth = rank.first.field.variable, ir.Rrf.depth(context.wanted)
    first = _ranking(context, query, rank.first, depth, profile)
    if rank.second.field.variable == variable:
        second = _ranking(context, query, rank.second, depth, profile)
    else:
        second = _ranking_of_rows(context, query, rank, depth, profile)
    fused, places = _fuse(context, query, rank, first, second)
    rows, place = _rows_of(fused, variable)
    if not rows.count:
        return rows
    rows = rows.attach({SCORE_COLUMN: pa.array(fused.scores[place], pa.float64())})
    rows, codes = key_codes(context, rows, query)
    codes = [score_codes(rank, fused.scores)[place], *codes, *(item[place] for item in places)]
    return rows.take(total_order(context, rows, codes, context.wanted, first=variable))


def _ranking(context: Context, query: ir.ReadIR, rank: FieldRank, depth: int, profile: Profile | None) -> _Ranking:
    arm = _arm(context, query, rank, wanted=depth, profile=profile)
    entities = Rows(count=len(arm.entities), variables={rank.field.variable: arm.entities})
    order = total_order(context, entities, [score_codes(rank, arm.scores)], depth)
    return _Ranking(arm.entities[order], arm.rows)


def _ranking_of_rows(context: Context, query: ir.ReadIR, rank: ir.Rrf, depth: int, profile: Profile | None) -> _Ranking:
    """The second arm ranks another variable: the entities of the first one come in the order of their first row."""
    own, variable = rank.second.field.variable, rank.first.field.variable
    arm = _rank_after(context, query, rank.second, profile, wanted=None)
    rows, place = _rows_of(arm, own)
    codes = [score_codes(rank.second, arm.scores)[place]] if rows.count else []
    order = total_order(context, rows, codes, None, first=own)
    in_order = rows.variables[variable][order] if rows.count else np.zeros(0, np.int64)
    entities, first = np.unique(in_order, return_index=True)
    # An entity that is ranked has all its rows, also those that gave it no rank.
    return _Ranking(entities[np.argsort(first)][:depth], arm.rows)


def _fuse(
    context: Context, query: ir.ReadIR, rank: ir.Rrf, first: _Ranking, second: _Ranking
) -> tuple[_Arm, tuple[IntArray, IntArray]]:
    """Reciprocal rank fusion of two rankings of the same entities, and the place of each entity in both."""
    k = ir.value_of(rank.k, context.values)
    if not isinstance(k, int) or k <= 0:
        raise BadRequestError(f"k of rrf is {k!r}: it has to be a whole number above zero")
    entities = np.union1d(first.entities, second.entities)
    absent = len(entities)
    places = (_places(first.entities, entities, absent), _places(second.entities, entities, absent))
    scores = _fused_scores(k, *places, absent=absent)
    wanted = context.wanted
    if wanted is not None and len(entities) > wanted:
        # Every entity has a row, so no row of an entity behind these is among the first.
        last = -np.partition(-scores, wanted - 1)[wanted - 1] if wanted else np.inf
        is_kept = scores >= last
        entities, scores = entities[is_kept], scores[is_kept]
        places = (places[0][is_kept], places[1][is_kept])
    variable = rank_field(rank).variable
    from_first = _rows_among(first.rows, variable, np.intersect1d(entities, first.entities))
    from_second = _rows_among(second.rows, variable, np.setdiff1d(entities, first.entities))
    return _Arm(entities, scores, concat_rows([from_first, from_second])), places


def _fused_scores(k: int, first: IntArray, second: IntArray, *, absent: int) -> FloatArray:
    """The sum of `1 / (k + place + 1)` over both places.

    Places whose sums are the same fraction get the same number: rounding would tell some of them apart.
    """
    scores = np.zeros(len(first))
    for place in (first, second):
        found = place < absent
        scores[found] += 1.0 / (k + place[found] + 1)
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    for at in np.flatnonzero(np.abs(np.diff(ordered)) <= _ROUNDING * ordered[:-1]):
        before, after = order[at], order[at + 1]
        sums = [
            sum(Fraction(1, k + int(place[entity]) + 1) for place in (first, second) if place[entity] < absent)
            for entity in (before, after)
        ]
        if sums[0] == sums[1]:
            scores[after] = scores[before]
    return scores


def _places(ranked: IntArray, entities: IntArray, absent: int) -> IntArray:
    """The place of each entity in a ranking."""
    places = np.full(len(entities), absent, np.int64)
    places[np.searchsorted(entities, ranked)] = np.arange(len(ranked))
    return places


def _rows_among(rows: Rows, variable: str, entities: IntArray) -> Rows:
    return rows.keep(np.isin(rows.variables[variable], entities)) if rows.count else rows
