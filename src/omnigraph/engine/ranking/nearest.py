"""The nearest entities of one ranking, exact or through an index, as far as they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from omnigraph.core.ids import TableKey, node_table_key
from omnigraph.core.types import VectorType
from omnigraph.engine.operators.pipeline import START, run_pipeline
from omnigraph.engine.predicates import push_down
from omnigraph.engine.ranking.scores import CandidateRequest, Candidates, cut, no_candidates
from omnigraph.engine.rows import FloatArray, IntArray, Rows, gathered
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import row_id_array
from omnigraph.engine.tables.vector_columns import VectorColumn, distances_of
from omnigraph.engine.tables.vector_search import find_recall, find_vector_column, index_segments
from omnigraph.engine.tables.vector_ways import VectorChoice, VectorFacts, VectorWay, choose_way
from omnigraph.errors import BadRequestError
from omnigraph.lang.query import ir
from omnigraph.storage.datasets.reads import DISTANCE, nearest_rows

#: Candidates beyond the wanted ones: storage orders by 32-bit distances, and ties are broken here.
_SLACK = 8
#: Relative difference below which distances are computed again in 64 bits.
_NEAR = 1e-5
#: Vectors that are compared at once.
_VECTOR_ROWS = 1 << 14


class NearestCandidates:
    """The entities of a scan, or the given ones, nearest first; all of them satisfy the filters of the scan."""

    def __init__(
        self, context: Context, rank: ir.Nearest, scan: ir.NodeScan | None, survivors: IntArray | None = None
    ) -> None:
        self._context = context
        self._rank = rank
        self._scan = scan
        self._entities = context.entities(rank.field.variable)
        self._query = query_vector(context, rank)
        #: The entities that are compared: None is every row of the type.
        self._survivors = survivors
        self._has_filter = scan is not None and bool(scan.filters)
        self._column: VectorColumn | None = None
        self._has_looked = False
        #: The entities by distance, where all of them were compared one by one.
        self._compared: tuple[IntArray, FloatArray] | None = None

    def best(self, request: CandidateRequest) -> Candidates:
        """The best candidates, and those that only keys of other variables could tell from the last of them."""
        variable, count = self._rank.field.variable, request.count
        if self._query is None or not self._entities.row_count or count == 0:
            return no_candidates(variable)
        choice = self._choose(count)
        if choice.way is VectorWay.EXACT:
            return self._exact(self._query, request)
        return self._searched(self._query, request, choice)

    def _choose(self, count: int | None) -> VectorChoice:
        context, scan = self._context, self._scan
        if scan is None:
            return VectorChoice(VectorWay.EXACT)
        known = self._entities.row_count
        survivors = known if not self._has_filter else None
        if self._survivors is not None:
            survivors = len(self._survivors)
        choice = choose_way(vector_facts(context, self._rank, survivors, count))
        if choice is None:
            choice = choose_way(vector_facts(context, self._rank, len(self._filtered()), count))
            assert choice is not None, "the number of rows is known"
        if choice.way is VectorWay.STREAM and self._resident(known) is not None:
            return VectorChoice(VectorWay.EXACT)
        if choice.way is not VectorWay.EXACT and push_down(scan.filters, context.values).rest:
            # Storage cannot decide all of the filters.
            return VectorChoice(VectorWay.EXACT)
        return choice

    # ---- one by one

    def _filtered(self) -> IntArray:
        """The entities that satisfy the filters of the scan."""
        if self._survivors is None:
            scan, context = self._scan, self._context
            assert scan is not None, "only a scan has filters"
            found = gathered(context.budget, run_pipeline(context, (scan,), [START], (scan.variable,)))
            self._survivors = found.variables[scan.variable] if found.count else np.zeros(0, np.int64)
        return self._survivors

    def _resident(self, wanted: int) -> VectorColumn | None:
        if not self._has_looked:
            self._has_looked = True
            self._column = find_vector_column(self._context, self._entities, self._rank.field.property, wanted=wanted)
        return self._column

    def _exact(self, query: FloatArray, request: CandidateRequest) -> Candidates:
        row_ids = self._filtered() if self._has_filter else self._survivors
        total = self._entities.row_count if row_ids is None else len(row_ids)
        column = self._resident(total)
        if column is None:
            found, distances = self._read(query, row_ids)
            is_complete = True
        else:
            budget = self._context.budget
            places = None if row_ids is None else column.places(row_ids)
            near = column.nearest_places(query, request.count, places, budget)
            found, distances = column.row_ids[near], column.distances(query, near, budget)
            is_complete = request.count is None or request.count >= min(total, len(found) + 1)
        rows = Rows(count=len(found), variables={self._rank.field.variable: found})
        return cut(self._context, self._rank, rows, distances, request, is_complete=is_complete)

    def _read(self, query: FloatArray, row_ids: IntArray | None) -> tuple[IntArray, FloatArray]:
        """All distances, of vectors that do not stay in memory."""
        if self._compared is None:
            every = self._entities.numbering().all_row_ids if row_ids is None else row_ids
            self._compared = every, self._distances(query, every)
        return self._compared

    def _distances(self, query: FloatArray, row_ids: IntArray) -> FloatArray:
        name = self._rank.field.property
        parts = [
            distances_of(self._entities.column(row_ids[start : start + _VECTOR_ROWS], name), query)
            for start in self._context.budget.steps(range(0, len(row_ids), _VECTOR_ROWS))
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    # ---- by storage

    def _searched(self, query: FloatArray, request: CandidateRequest, choice: VectorChoice) -> Candidates:
        """Storage finds them, and distances that it cannot tell apart are computed again."""
        context, entities, count = self._context, self._entities, request.count
        variable, name = self._rank.field.variable, self._rank.field.property
        assert self._scan is not None, "storage searches types"
        filter_ = push_down(self._scan.filters, context.values).filter
        asked = entities.row_count if count is None else min(count + _SLACK, entities.row_count)
        while True:
            search = partial(nearest_rows, entities.table, name, query.tolist(), asked, filter_, probes=choice.probes)
            found = context.budget.patiently(search, entities.row_count)
            rows = Rows(count=found.num_rows, variables={variable: row_id_array(found)})
            distances = np.sqrt(np.asarray(found[DISTANCE].to_numpy()).astype(np.float64))
            is_complete = found.num_rows < asked or asked >= entities.row_count
            if is_complete or count is None or not _cuts_a_tie(distances, count):
                break
            # The cut falls between distances that storage cannot tell apart: all of them are needed for the choice.
            asked = min(asked * 4, entities.row_count)
        if request.exact or _has_near_ties(distances):
            distances = self._distances(query, rows.variables[variable])
        return cut(context, self._rank, rows, distances, request, is_complete=is_complete)


class NearestOfTypes:
    """The nearest of several types together; their scores are exact, so that they compare.

    Each type may have a model of its own for the text that is searched for.
    """

    def __init__(self, context: Context, rank: ir.Nearest, parts: Mapping[TableKey, NearestCandidates]) -> None:
        self._context = context
        self._rank = rank
        self._parts = parts

    def best(self, request: CandidateRequest) -> Candidates:
        """The best candidates of all types."""
        variable = self._rank.field.variable
        numbers, scores, is_complete = [np.zeros(0, np.int64)], [np.zeros(0)], True
        for key, part in self._parts.items():
            found = part.best(replace(request, exact=True))
            numbers.append(self._context.tagged(key, found.rows.variables[variable]))
            scores.append(found.scores)
            is_complete &= found.is_complete
        rows = Rows(count=sum(map(len, numbers)), variables={variable: np.concatenate(numbers)})
        return cut(self._context, self._rank, rows, np.concatenate(scores), request, is_complete=is_complete)


def nearest_of_scan(
    context: Context, rank: ir.Nearest, scan: ir.NodeScan | ir.UnionScan
) -> NearestCandidates | NearestOfTypes:
    """The nearest that a scan finds."""
    if isinstance(scan, ir.NodeScan):
        return NearestCandidates(context, rank, scan)
    parts = {}
    for name in scan.node_types:
        key = node_table_key(name)
        part = ir.NodeScan(scan.variable, name, scan.filters)
        parts[key] = NearestCandidates(context.narrowed({scan.variable: key}), rank, part)
    return NearestOfTypes(context, rank, parts)


def nearest_among(context: Context, rank: ir.Nearest, numbers: IntArray) -> NearestCandidates | NearestOfTypes:
    """The nearest among what a variable is bound to."""
    variable = rank.field.variable
    if context.is_plain(variable):
        return NearestCandidates(context, rank, None, survivors=numbers)
    parts = {
        key: NearestCandidates(context.narrowed({variable: key}), rank, None, survivors=row_ids)
        for key, _, row_ids in context.parts(variable, numbers)
    }
    return NearestOfTypes(context, rank, parts)


def vector_facts(context: Context, rank: ir.Nearest, survivors: int | None, count: int | None) -> VectorFacts:
    """The facts for the choice of a way, at this snapshot."""
    variable, name = rank.field.variable, rank.field.property
    entities, settings, base = context.entities(variable), context.settings, rank.field.type.base
    assert isinstance(base, VectorType), "the checker allows vectors only"
    return VectorFacts(
        rows=entities.row_count,
        survivors=survivors,
        dimension=base.dimension,
        count=count,
        wanted=wanted_recall(context, rank),
        curve=find_recall(context.caches, entities.table, name),
        exact_values=settings.exact_vector_values,
    )


def nearest_text(context: Context, rank: ir.Nearest, scan: ir.Op | None, *, rows: float, count: int) -> str:
    """The way that is expected, with its recall, to the nearest `count` of about so many rows.

    Without a scan the match comes first, and what it leaves is ranked.
    """
    total = context.entities(rank.field.variable).row_count
    is_whole = isinstance(scan, ir.NodeScan) and not scan.filters
    survivors = total if is_whole else max(1, min(total, round(rows)))
    facts = vector_facts(context, rank, survivors, count)
    choice = VectorChoice(VectorWay.EXACT) if scan is None else choose_way(facts)
    assert choice is not None, "the number of rows is estimated"
    about = "" if is_whole else "about "
    compared = f"{about}{survivors} row{'' if survivors == 1 else 's'}"
    if choice.way is VectorWay.INDEX:
        shown = f"{choice.probes} partition{'' if choice.probes == 1 else 's'}"
        return f"{choice.way}, {shown} of IVF_FLAT for {compared}, expected recall {choice.recall:.3f}"
    entities, name = context.entities(rank.field.variable), rank.field.property
    is_few = survivors * facts.dimension <= facts.exact_values
    known = is_few or facts.curve is not None or not index_segments(context.caches, entities.table, name)
    unmeasured = "" if known else ", the index is not measured"
    return f"{VectorWay.EXACT} of {compared}, recall 1{unmeasured}"


def wanted_recall(context: Context, rank: ir.Nearest) -> float:
    """The recall that the query asks for, else that of the settings.

    Raises:
        BadRequestError: it is not above 0 and up to 1.
    """
    value = None
    # Before it runs, a query is explained without its parameters.
    if isinstance(rank.recall, ir.Constant) or (rank.recall is not None and rank.recall.name in context.values):
        value = ir.value_of(rank.recall, context.values)
    if value is None:
        return context.settings.recall_of(context.tables[rank.field.variable].name, rank.field.property)
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadRequestError(f"the recall of nearest is {value!r}: it has to be a number above 0 and up to 1")
    return float(value)


def query_vector(context: Context, rank: ir.Nearest) -> FloatArray | None:
    """The vector that is searched for; a text is embedded."""
    value = ir.value_of(rank.query, context.values)
    if isinstance(value, str):
        value = context.embed(rank.field, context.tables[rank.field.variable].name, value)
    return None if value is None else np.asarray(value, np.float64)


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
