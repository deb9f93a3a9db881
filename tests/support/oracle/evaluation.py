"""What a read query means, over dictionaries and with nested loops.

Written from the documentation (`docs/reference/query-language.md`, the docstrings of `lang.query.ir`) and
sharing nothing with the engine. A match is understood declaratively: a row is one choice of an entity for every
variable, `$_` included, that makes every clause true. How the choice is found does not matter and is not clever.

Where the texts leave something open, this is what is assumed:

* `$a $w:<knows> $a`, and any undirected traversal over a self-loop, gives one row for that stored edge, not two.
* The rows of a grouped query that tie are ordered by their group columns in the order of `return`, ascending, null
  first. A list has no order: rows that differ in nothing else are in no order.
* 0.0 and -0.0 are one value, also as a group.
* A projected `nearest` is the distance, not its square.
* A null query of `nearest` or `bm25` is a null operand: it ranks nothing.
* `fuzzy` compares folded words.
* If the arms of `rrf` rank different variables, an arm orders whole rows, and entities of the first arm's variable
  rank by their first appearance. Further order keys do not matter inside an arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise
from math import fsum, isclose, log, sqrt
from typing import Any

from support.oracle import text as words
from support.oracle.answers import TOLERANCE, Answer, Approximate, Instant
from support.oracle.graphs import Row, Shape, World, f32, read_shape
from support.oracle.matching import Match, Matcher, is_hidden, named_clauses, resolve
from support.oracle.queries import (
    Aggregate,
    Bm25,
    Column,
    Expression,
    Nearest,
    Now,
    Property,
    Query,
    Rank,
    Rrf,
    moment_of,
)

RRF_K = 60
#: Integers up to here add up exactly in a double.
_EXACT = 2**53


def evaluate(
    query: Query, world: World, params: Mapping[str, object] | None = None, *, now: datetime | None = None
) -> Answer:
    """The answer to a query that type-checks."""
    now = now or datetime.now(UTC)
    given = params or {}
    values = {item.name: _parameter(item.type, given.get(item.name)) for item in query.params}
    shape, types = read_shape(), {item.name: item.type for item in query.params}
    return _Oracle(shape, Matcher(shape, world, values, types, now), now).answer(query)


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


@dataclass(frozen=True, slots=True)
class _Oracle:
    shape: Shape
    matcher: Matcher
    now: datetime

    # ---- result

    def answer(self, query: Query) -> Answer:
        """The whole query."""
        block = resolve(self.shape, named_clauses(query.clauses), {})
        matches = list(self.matcher.matches(block, {}))
        columns = tuple(item.column for item in query.returns)
        if any(isinstance(item.expression, Aggregate) for item in query.returns):
            rows, is_ordered = self._grouped(query, matches)
        else:
            rows, is_ordered = self._plain(query, matches)
        return Answer(columns, rows, is_ordered, query.limit)

    def _plain(self, query: Query, matches: list[Match]) -> tuple[list[Row], bool]:
        rank = _rank_of(query)
        keys = [(key.expression, key.direction == "desc") for key in query.order]
        if rank is not None:
            keys = keys[1:]
        by_column = {item.column: item.expression for item in query.returns}

        def key_value(expression: Expression, match: Match) -> Any:
            if isinstance(expression, Column):
                expression = by_column[expression.name]
            return self.matcher.value(expression, match)

        # Sorting is stable: the least important key first, so the ids of all variables come before everything else.
        names = sorted(name for name in (matches[0] if matches else ()) if not is_hidden(name))
        matches = sorted(matches, key=lambda match: [match[name]["id"] for name in names])
        ranking = None if rank is None else self._ranking(rank, matches, query.limit)
        if ranking is not None:
            matches = [match for match in matches if ranking.id_of(match) in ranking.best]
            matches.sort(key=lambda match: (ranking.places[ranking.id_of(match)], ranking.id_of(match)))
        for expression, descending in reversed(keys):
            matches.sort(key=lambda match, e=expression: _sort_key(key_value(e, match)), reverse=descending)
        if ranking is None:
            rows = [self._projected(query, match, None) for match in matches]
            return rows, bool(query.order)
        matches.sort(key=lambda match: ranking.best[ranking.id_of(match)])
        rows = [self._projected(query, match, ranking.scores[ranking.id_of(match)]) for match in matches]
        return rows, True

    def _projected(self, query: Query, match: Match, score: Any) -> Row:
        row: Row = {}
        for item in query.returns:
            match item.expression:
                case Nearest() | Bm25() | Rrf():
                    row[item.column] = score
                case Now():
                    row[item.column] = Instant(self.now)
                case expression:
                    row[item.column] = self.matcher.value(expression, match)
        return row

    # ---- groups

    def _grouped(self, query: Query, matches: list[Match]) -> tuple[list[Row], bool]:
        plain = [item for item in query.returns if not isinstance(item.expression, Aggregate)]
        groups: dict[tuple[Any, ...], list[Match]] = {} if plain else {(): []}
        for match in matches:
            key = tuple(_hashable(self.matcher.value(item.expression, match)) for item in plain)
            groups.setdefault(key, []).append(match)
        rows: list[Row] = []
        for members in groups.values():
            row: Row = {}
            for item in query.returns:
                if isinstance(item.expression, Aggregate):
                    row[item.column] = self._aggregate(item.expression, members)
                else:
                    row[item.column] = self.matcher.value(item.expression, members[0])
            rows.append(row)
        keys = [(_column_of(key.expression), key.direction == "desc") for key in query.order]
        keys += [(item.column, False) for item in plain]
        is_ordered = bool(query.order)
        for column, descending in reversed(keys):
            cells = [row[column] for row in rows]
            if any(isinstance(cell, list) for cell in cells):
                # A list has no order; what it leaves tied is found below.
                continue
            is_ordered = is_ordered and not _is_shaky(cells)
            rows.sort(key=lambda row, c=column: _sort_key(row[c]), reverse=descending)
        sortable = [c for c, _ in keys if not any(isinstance(row[c], list) for row in rows)]
        positions = {tuple(_sort_key(row[column]) for column in sortable) for row in rows}
        return rows, is_ordered and len(positions) == len(rows)

    def _aggregate(self, aggregate: Aggregate, members: list[Match]) -> Any:
        values = [self.matcher.value(aggregate.argument, match) for match in members]
        values = [value for value in values if value is not None]
        if aggregate.function == "count":
            return len(values)
        if not values:
            return None
        match aggregate.function:
            case "min":
                return min(values)
            case "max":
                return max(values)
        total = sum(map(Fraction, values))
        size = sum(abs(Fraction(value)) for value in values)
        is_exact = size <= _EXACT and all(Fraction(value).denominator == 1 for value in values)
        if aggregate.function == "avg":
            total, size = total / len(values), size / len(values)
        return Approximate(float(total), float(size) * TOLERANCE, is_exact)

    # ---- ranking

    def _ranking(self, rank: Rank, matches: list[Match], limit: int | None) -> _Ranking:
        """The scores of the entities that satisfy a match; rows come in the order of all their ids."""
        if isinstance(rank, Rrf):
            return self._fused(rank, matches, limit or 0)
        variable = rank.field.variable
        numbers = {match[variable]["id"]: number for match, number in self._arm(rank, matches)}
        if isinstance(rank, Nearest):
            scores = {id_: Approximate(sqrt(number), sqrt(number) * 1e-6) for id_, number in numbers.items()}
        else:
            scores = {id_: Approximate(-number, -number * TOLERANCE) for id_, number in numbers.items()}
        return _Ranking(variable, numbers, scores, dict.fromkeys(numbers, ()))

    def _arm(self, arm: Nearest | Bm25, matches: list[Match]) -> list[tuple[Match, Any]]:
        """The rows of one ranking, best first; the smaller the number, the better."""
        query = self.matcher.value(arm.query, {})
        variable = arm.field.variable
        found: list[tuple[Match, Any]] = []
        relevance = self._relevance(arm, query, matches) if isinstance(arm, Bm25) else {}
        for match in matches:
            value = self.matcher.value(arm.field, match)
            if query is None or value is None:
                continue
            if isinstance(arm, Bm25):
                if match[variable]["id"] in relevance:
                    found.append((match, -relevance[match[variable]["id"]]))
                continue
            pairs = zip(value, [f32(part) for part in query], strict=True)
            found.append((match, sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)))
        return sorted(found, key=lambda item: (item[1], item[0][variable]["id"]))

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

    def _fused(self, rank: Rrf, matches: list[Match], limit: int) -> _Ranking:
        """Scores of the entities that either arm has among its best."""
        variable = rank.first.field.variable
        k = RRF_K if rank.k is None else self.matcher.value(rank.k, {})
        depth = max(5 * limit, 50)
        sums: dict[str, Fraction] = {}
        places: list[dict[str, int]] = []
        for arm in (rank.first, rank.second):
            order = dict.fromkeys(m[variable]["id"] for m, _ in self._arm(arm, matches))
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
    best: dict[str, Any]
    scores: dict[str, Approximate]
    #: What breaks ties before the id does.
    places: dict[str, tuple[int, ...]]

    def id_of(self, match: Match) -> str:
        found: str = match[self.variable]["id"]
        return found


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


def _column_of(expression: Expression) -> str:
    """The column of an order key in a grouped query, where a property is returned under its own name."""
    match expression:
        case Column(name):
            return name
        case Property(variable, name):
            return f"{variable}.{name}"
    raise ValueError(f"{expression} is no order key")


def _sort_key(value: Any) -> tuple[Any, ...]:
    """Null comes before every value."""
    if value is None:
        return (0,)
    return (1, value.value if isinstance(value, Approximate) else value)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_shaky(cells: Iterable[Any]) -> bool:
    """Whether sums lie so close together that the order of additions decides about their order."""
    sums = sorted((c for c in cells if isinstance(c, Approximate)), key=lambda cell: cell.value)
    return any(
        right.value - left.value <= left.slack + right.slack and not (left.is_exact and right.is_exact)
        for left, right in pairwise(sums)
    )
