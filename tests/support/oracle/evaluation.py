"""What a read query means, over dictionaries and with nested loops.

Written from the documentation (`docs/reference/query-language.md`, the docstrings of `lang.query.ir`) and
sharing nothing with the engine. A match is understood declaratively: a row is one choice of an entity for every
variable, `$_` included, that makes every clause true. How the choice is found does not matter and is not clever.

Where the texts leave something open, this is what is assumed:

* `$a $w:<knows> $a`, and any undirected traversal over a self-loop, gives one row for that stored edge, not two.
* A list has no order: rows that differ in nothing else are in no order.
* 0.0 and -0.0 are one value, also as a group.
* A projected `nearest` is the distance, not its square.
* A null query of `nearest` or `bm25` is a null operand: it ranks nothing.
* `fuzzy` compares folded words.
* If the arms of `rrf` rank different variables, an arm orders whole rows, and entities of the first arm's variable
  rank by their first appearance. Further order keys do not matter inside an arm.
* What overflows in a match is unknown together with everything that is made of it, `is null` included.
* Which way an edge is followed that fits its ends both ways depends on what other traversals leave of their types: the
  traversals of a block are read in text order, those with a known end first.
* Of a query with `limit 0` nothing is computed, so nothing overflows.
* Groups are returned values: nodes of two types with one id are two groups, and equal as an order key or in `per`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise, takewhile
from math import fsum, isclose, log, sqrt
from typing import Any

from support.oracle import text as words
from support.oracle.aggregates import aggregated, placed
from support.oracle.answers import Answer, Instant
from support.oracle.graphs import Row, World, f32, read_shape
from support.oracle.kinds import Known, Types
from support.oracle.matching import COLUMNS, Match, Matcher, Walked, identity
from support.oracle.patterns import lets_of, named, resolve, substituted, without_lets
from support.oracle.queries import (
    Aggregate,
    AllProperties,
    Bm25,
    Column,
    Exists,
    Expression,
    ListOf,
    Literal,
    Nearest,
    Now,
    Parameter,
    Property,
    Query,
    Rank,
    Return,
    Rrf,
    Sort,
    has_aggregate,
    moment_of,
    rewritten,
    walk,
)
from support.oracle.values import OVERFLOW, TOLERANCE, Approximate, Identity, UndeterminedError, plain

RRF_K = 60


def evaluate(
    query: Query, world: World, params: Mapping[str, object] | None = None, *, now: datetime | None = None
) -> Answer:
    """The answer to a query that type-checks.

    Raises:
        UndeterminedError: the language does not say what the answer is.
    """
    now = now or datetime.now(UTC)
    given = params or {}
    values = {item.name: _parameter(item.type, given.get(item.name)) for item in query.params}
    shape, types = read_shape(), {item.name: item.type for item in query.params}
    return _Oracle(Matcher(shape, world, values, types, now), now).answer(_prepared(query))


def _parameter(type_: str, value: Any) -> Any:
    """The value of a parameter, from the form in which JSON carries it."""
    if value is None:
        return None
    if type_.startswith("["):
        return [_parameter(type_[1:-1], part) for part in value]
    if type_.startswith("Vector"):
        return [f32(part) for part in value]
    match type_:
        case "Date":
            return date.fromisoformat(value)
        case "DateTime":
            return moment_of(value)
        case "F32":
            return f32(value)
        case "F64":
            return float(value)
        case "I32" | "I64" | "U32" | "U64":
            return int(value)
    return value


def _prepared(query: Query) -> Query:
    """The query without `let`, `$_` and `$p.*`, and with a name for every column."""
    lets = lets_of(query.clauses, {})
    returns = [part for item in query.returns for part in _columns_of(query, item)]
    query = replace(query, returns=tuple(Return(item.expression, item.column) for item in returns))
    rest = {name: substituted(getattr(query, name), lets) for name in ("returns", "order", "having", "per")}
    prepared: Query = named(replace(query, clauses=without_lets(query.clauses, {}), **rest))
    return prepared


def _columns_of(query: Query, item: Return) -> Iterable[Return]:
    if not isinstance(item.expression, AllProperties):
        return [item]
    shape, variable = read_shape(), item.expression.variable
    block = resolve(shape, named(without_lets(query.clauses, {})), {})
    properties = shape.common(block.types[variable]).values()
    wanted = [part.name for part in properties if not part.type.startswith(("Vector", "Blob"))]
    return [Return(Property(variable, name)) for name in wanted]


class _FailureError(Exception):
    """An integer overflowed where that fails the query."""


def _is_constant(expression: Expression) -> bool:
    """Whether an expression is no group: the same for all rows."""
    return not any(
        isinstance(part, Property | Exists | Aggregate) or type(part).__name__ == "Variable"
        for part in walk(expression)
    )


@dataclass(slots=True)
class _Oracle:
    matcher: Matcher
    now: datetime

    # ---- result

    def answer(self, query: Query) -> Answer:
        """The whole query."""
        block = resolve(self.matcher.shape, query.clauses, {})
        types = self.matcher.types(block.types)
        matches = self.matcher.by_ids(self.matcher.matches(block, {}))
        columns = tuple(item.column for item in query.returns)
        self.matcher.is_doubtful = False
        is_grouped = query.distinct or any(has_aggregate(item.expression) for item in query.returns)
        make = self._grouped if is_grouped else self._plain
        limit, offset = self._count(query.limit), self._count(query.offset) or 0
        if limit == 0 and not _is_window(query):
            return Answer(columns, [], False, limit, offset)
        try:
            rows, is_ordered = make(query, matches, types)
            if query.per and limit is not None:
                rows, limit = self._first_of_each(query, rows, is_ordered, limit), None
        except _FailureError:
            return Answer(columns, [], False, None, fails=True)
        # A row is a dictionary of columns here, and its match is only needed for keys that are not returned.
        shown = [{name: _shown(cell) for name, cell in row[COLUMNS].items()} for row in rows]
        if _is_window(query):
            # The window has chosen the rows that were grouped.
            limit, offset = None, 0
        answer = Answer(columns, shown, is_ordered, limit, offset)
        return self._strict(answer)

    def _strict(self, answer: Answer) -> Answer:
        """The answer, or the failure that an overflow in it is."""
        if self.matcher.is_doubtful:
            raise UndeterminedError("something overflowed whose value may not matter")
        seen = answer.rows[answer.window] if answer.is_ordered else answer.rows
        overflows = [row for row in seen if OVERFLOW in row.values()]
        if not overflows:
            everywhere = [row for row in answer.rows if OVERFLOW in row.values()]
            if everywhere and answer.row_count == 0 and not answer.is_ordered:
                return replace(answer, rows=[])
            return answer
        if not answer.is_ordered and answer.row_count < len(answer.rows):
            raise UndeterminedError("some rows overflow, and which ones are shown is open")
        return Answer(answer.columns, [], False, None, fails=True)

    def _count(self, count: int | Parameter | None) -> int | None:
        found = self.matcher.value(count, {}, self.matcher.types({})) if isinstance(count, Parameter) else count
        assert found is None or isinstance(found, int), "a count is a number"
        return found

    def _first_of_each(self, query: Query, rows: list[Row], is_ordered: bool, limit: int) -> list[Row]:
        """The first rows of every group of `per`."""
        if not is_ordered:
            raise UndeterminedError("the first rows of groups without an order")
        counts: dict[Any, int] = {}
        kept = []
        for row in rows:
            key = tuple(_hashable(self._key_value(query, expression, row)) for expression in query.per)
            counts[key] = counts.get(key, 0) + 1
            if counts[key] <= limit:
                kept.append(row)
        return kept

    def _key_value(self, query: Query, expression: Expression, row: Row) -> Any:
        """The value of an order key: a column, a returned expression, or a property of the match."""
        by_expression = {_identity(item.expression): item.column for item in query.returns}
        if isinstance(expression, Column):
            value = row[COLUMNS][expression.name]
        elif _identity(expression) in by_expression:
            value = row[COLUMNS][by_expression[_identity(expression)]]
        else:
            value = self.matcher.value(expression, row, row["types"])
        if value is OVERFLOW:
            raise _FailureError
        return value

    def _having(self, query: Query, rows: list[Row], types: Types) -> list[Row]:
        if query.having is None:
            return rows
        by_expression = {
            _identity(item.expression): item.column
            for item in query.returns
            if not isinstance(item.expression, Literal | ListOf)
        }

        def change(part: Any) -> Any:
            return Column(by_expression[_identity(part)]) if _identity(part) in by_expression else None

        condition = rewritten(query.having, change)
        columns = {
            item.column: types.of(item.expression) for item in query.returns if not isinstance(item.expression, Rank)
        }
        known = self.matcher.types({}, columns)
        kept = []
        for row in rows:
            found = self.matcher.value(condition, row, known)
            if found is OVERFLOW:
                raise _FailureError
            if found is True:
                kept.append(row)
        return kept

    def _plain(self, query: Query, matches: list[Match], types: Types) -> tuple[list[Row], bool]:
        rank = _rank_of(query)
        ranking = None if rank is None else self._ranking(rank, matches, self._count(query.limit), types)
        if ranking is not None:
            matches = ranking.ranked(matches)
        rows: list[Row] = []
        for match in matches:
            score = None if ranking is None else ranking.scores[ranking.id_of(match)]
            rows.append({**match, COLUMNS: self._projected(query, match, score, types), "types": types})
        rows = self._having(query, rows, types)
        try:
            rows, is_ordered = self._sorted(query, rows, query.order if rank is None else query.order[1:])
        except _FailureError:
            if rank is not None:
                raise UndeterminedError("keys behind a rank are looked at where scores are equal") from None
            raise
        if ranking is None:
            return rows, is_ordered and bool(query.order)
        rows.sort(key=lambda row: ranking.best[ranking.id_of(row)])
        return rows, True

    def _sorted(self, query: Query, rows: list[Row], keys: Sequence[Sort]) -> tuple[list[Row], bool]:
        """Rows by keys, and whether their order is known."""
        # Sorting is stable: the least important key first, so what ordered the rows before breaks ties.
        is_known = True
        for key in reversed(keys):
            cells = [self._key_value(query, key.expression, row) for row in rows]
            is_known = is_known and not _is_shaky(cells)
            rows = placed(rows, cells, key)
        return rows, is_known

    def _projected(self, query: Query, match: Match, score: Any, types: Types) -> Row:
        row: Row = {}
        for item in query.returns:
            match item.expression:
                case Nearest() | Bm25() | Rrf():
                    row[item.column] = score
                case Now():
                    row[item.column] = Instant(self.now)
                case expression:
                    row[item.column] = self.matcher.value(expression, match, types)
        return row

    # ---- groups

    def _population(self, query: Query, rank: Rank, matches: list[Match], types: Types) -> list[Match]:
        """The rows that a ranked query groups: those that it would return without aggregates."""
        limit, offset = self._count(query.limit) or 0, self._count(query.offset) or 0
        ranking = self._ranking(rank, matches, offset + limit, types)
        found = ranking.ranked(matches)
        if not _is_window(query):
            return found
        aggregates = {item.column for item in query.returns if has_aggregate(item.expression)}
        for key in reversed(query.order[1:]):
            if key.expression in map(Column, aggregates) or has_aggregate(key.expression):
                continue
            expression = next(
                (item.expression for item in query.returns if Column(item.column) == key.expression), key.expression
            )
            cells = [self.matcher.value(expression, match, types) for match in found]
            if OVERFLOW in cells or _is_shaky(cells):
                raise UndeterminedError("keys that decide about the rows of a window")
            found = placed(found, cells, key)
        found.sort(key=lambda match: ranking.best[ranking.id_of(match)])
        return found[offset : offset + limit]

    def _grouped(self, query: Query, matches: list[Match], types: Types) -> tuple[list[Row], bool]:
        rank, order = _rank_of(query), query.order
        if rank is not None:
            matches, order = self._population(query, rank, matches, types), order[1:]
        plains = [item for item in query.returns if not has_aggregate(item.expression)]
        keys = [item for item in plains if not _is_constant(item.expression)]
        is_distinct_only = len(plains) == len(query.returns)
        groups: dict[tuple[Any, ...], list[Match]] = {} if keys or is_distinct_only else {(): []}
        for match in matches:
            cells = [self.matcher.value(item.expression, match, types) for item in keys]
            if OVERFLOW in cells:
                raise _FailureError
            if any(isinstance(cell, Approximate) and not cell.is_exact for cell in cells):
                raise UndeterminedError("groups of floats that are not known to the last digit")
            groups.setdefault(tuple(map(_hashable, cells)), []).append(match)
        rows: list[Row] = [{COLUMNS: self._group_row(query, members, types)} for members in groups.values()]
        if query.distinct and not is_distinct_only:
            rows = list({tuple(_hashable(cell) for cell in row[COLUMNS].values()): row for row in rows}.values())
        # From here on there are returned values only: a node is its id.
        rows = [{COLUMNS: {name: _shown(cell) for name, cell in row[COLUMNS].items()}} for row in rows]
        rows = self._having(query, rows, types)
        rows, is_ordered = self._ties_broken(query, rows)
        rows, is_known = self._sorted(query, rows, order)
        return rows, is_ordered and is_known and bool(query.order)

    def _group_row(self, query: Query, members: list[Match], types: Types) -> Row:
        row: Row = {}
        first = members[0] if members else {}
        for item in query.returns:
            if isinstance(item.expression, Now):
                row[item.column] = Instant(self.now)
                continue
            expression = rewritten(item.expression, lambda part: self._known(part, members, types))
            row[item.column] = self.matcher.value(expression, first, types)
        return row

    def _known(self, part: Any, members: list[Match], types: Types) -> Known | Exists | None:
        if isinstance(part, Exists) or (isinstance(part, Aggregate) and part.clauses is not None):
            return part
        if not isinstance(part, Aggregate):
            return None
        found = aggregated(part, members, lambda expression, row: self.matcher.value(expression, row, types))
        if found is OVERFLOW:
            raise _FailureError
        return Known(found, types.of(part))

    def _ties_broken(self, query: Query, rows: list[Row]) -> tuple[list[Row], bool]:
        """Rows in the order of their columns, and whether that is an order of all of them."""
        # A list has no order: what stands behind one breaks no ties that are known.
        leading = takewhile(
            lambda item: not any(isinstance(row[COLUMNS][item.column], list | dict) for row in rows), query.returns
        )
        sortable = [item.column for item in leading if not isinstance(item.expression, Now)]
        for column in reversed(sortable):
            cells = [row[COLUMNS][column] for row in rows]
            if OVERFLOW in cells or _is_shaky(cells):
                return rows, False
            rows = placed(rows, cells, Sort(Column(column)))
        positions = {tuple(plain(row[COLUMNS][column]) for column in sortable) for row in rows}
        return rows, len(positions) == len(rows)

    # ---- ranking

    def _ranking(self, rank: Rank, matches: list[Match], limit: int | None, types: Types) -> _Ranking:
        """The scores of the entities that satisfy a match; rows come in the order of all their ids."""
        if isinstance(rank, Rrf):
            return self._fused(rank, matches, limit or 0, types)
        variable = rank.field.variable
        numbers = {identity(match[variable]): number for match, number in self._arm(rank, matches, types)}
        if isinstance(rank, Nearest):
            scores = {id_: Approximate(sqrt(number), sqrt(number) * 1e-6) for id_, number in numbers.items()}
        else:
            scores = {id_: Approximate(-number, -number * TOLERANCE) for id_, number in numbers.items()}
        return _Ranking(variable, numbers, scores, dict.fromkeys(numbers, ()))

    def _arm(self, arm: Nearest | Bm25, matches: list[Match], types: Types) -> list[tuple[Match, Any]]:
        """The rows of one ranking, best first; the smaller the number, the better."""
        query = self.matcher.value(arm.query, {}, types)
        variable = arm.field.variable
        found: list[tuple[Match, Any]] = []
        relevance = self._relevance(arm, query, matches) if isinstance(arm, Bm25) else {}
        for match in matches:
            value = self.matcher.value(arm.field, match, types)
            if query is None or value is None:
                continue
            if isinstance(arm, Bm25):
                if match[variable]["id"] in relevance:
                    found.append((match, -relevance[match[variable]["id"]]))
                continue
            pairs = zip(value, [f32(part) for part in query], strict=True)
            found.append((match, sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)))
        return sorted(found, key=lambda item: (item[1], identity(item[0][variable])))

    def _relevance(self, arm: Bm25, query: str | None, matches: list[Match]) -> dict[str, float]:
        """BM25 of all nodes of the type, whatever the match leaves of them; equal scores are the same number."""
        if query is None or not matches:
            return {}
        entity, name = matches[0][arm.field.variable], arm.field.name
        nodes = next(rows for rows in self.matcher.world.values() if any(row is entity for row in rows))
        terms = {row["id"]: words.stems(row[name] or "") for row in nodes}
        terms = {id_: stems for id_, stems in terms.items() if stems}
        average = sum(map(len, terms.values())) / max(len(terms), 1)
        scores: dict[str, float] = {}
        for id_, stems in terms.items():
            parts = []
            for term in set(words.stems(query)) & set(stems):
                having = sum(term in other for other in terms.values())
                weight = log(1 + (len(terms) - having + 0.5) / (having + 0.5))
                count = stems.count(term)
                norm = 1.2 * (0.25 + 0.75 * len(stems) / average)
                parts.append(weight * count * 2.2 / (count + norm))
            if parts:
                scores[id_] = fsum(parts)
        known: list[float] = []
        for id_, score in scores.items():
            same = next((other for other in known if isclose(other, score, rel_tol=1e-12)), None)
            if same is None:
                known.append(score)
            scores[id_] = score if same is None else same
        return scores

    def _fused(self, rank: Rrf, matches: list[Match], limit: int, types: Types) -> _Ranking:
        """Scores of the entities that either arm has among its best."""
        variable = rank.first.field.variable
        k = RRF_K if rank.k is None else self.matcher.value(rank.k, {}, types)
        depth = max(5 * limit, 50)
        sums: dict[Identity, Fraction] = {}
        places: list[dict[Identity, int]] = []
        for arm in (rank.first, rank.second):
            order = dict.fromkeys(identity(m[variable]) for m, _ in self._arm(arm, matches, types))
            places.append({id_: place for place, id_ in enumerate(list(order)[:depth])})
            for id_, place in places[-1].items():
                sums[id_] = sums.get(id_, Fraction(0)) + Fraction(1, k + place + 1)
        return _Ranking(
            variable,
            {id_: -total for id_, total in sums.items()},
            {id_: Approximate(float(total), 1e-12) for id_, total in sums.items()},
            {id_: tuple(arm.get(id_, 1 << 30) for arm in places) for id_ in sums},
        )


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The ranked entities of one variable, by id."""

    variable: str
    #: The smaller, the better.
    best: dict[Identity, Any]
    scores: dict[Identity, Approximate]
    #: What breaks ties before the id does.
    places: dict[Identity, tuple[int, ...]]

    def id_of(self, match: Match) -> Identity:
        return identity(match[self.variable])

    def ranked(self, matches: list[Match]) -> list[Match]:
        """The matches of ranked entities, in the order in which ties are broken."""
        found = [match for match in matches if self.id_of(match) in self.best]
        return sorted(found, key=lambda match: (self.places[self.id_of(match)], self.id_of(match)))


# ---- small parts


def _rank_of(query: Query) -> Rank | None:
    """The rank function of the first order key, written there or returned under the name that is written there."""
    if not query.order:
        return None
    first = query.order[0].expression
    if isinstance(first, Column):
        named = [item.expression for item in query.returns if item.column == first.name]
        first = named[0]
    return first if isinstance(first, Rank) else None


def _is_window(query: Query) -> bool:
    """Whether the limit of a query is that of the rows which it groups."""
    is_grouped = any(has_aggregate(item.expression) for item in query.returns)
    return is_grouped and isinstance(_rank_of(query), Nearest | Rrf)


def _shown(cell: Any) -> Any:
    """A cell as a result has it: nodes and edges are their ids."""
    match cell:
        case Identity(id_):
            return id_
        case Walked():
            return cell.steps
        case list():
            return [_shown(part) for part in cell]
    return cell


def _hashable(value: Any) -> Any:
    """What stands for a value in groups: numbers by value, lists element by element."""
    if isinstance(value, Approximate):
        if not value.is_exact:
            raise UndeterminedError("groups of floats that are not known to the last digit")
        return value.value
    return tuple(value) if isinstance(value, list) else value


def _identity(expression: Any) -> str:
    """Equal for equal trees only: 1, 1.0 and true are equal for Python."""
    return repr(expression)


def _is_shaky(cells: Iterable[Any]) -> bool:
    """Whether floats lie so close together that the order of additions decides about their order."""
    found = [cell for cell in cells if isinstance(cell, Approximate)]
    if any(not cell.is_exact for cell in found):
        cells = sorted(found, key=plain)
        return any(right.value - left.value <= left.slack + right.slack for left, right in pairwise(cells))
    return False
