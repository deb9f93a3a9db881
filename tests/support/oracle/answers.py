"""What the oracle says about a result, and whether a real result agrees with it.

An answer is more than rows: without an order any arrangement is right, with a limit besides any choice of rows is, a
sum of floats depends on the order of its additions, and relevance is not predicted at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.oracle.graphs import SCHEMA, Row, World, read_shape
from support.oracle.queries import Declared, Expression, Query
from support.oracle.random_queries import Question
from support.oracle.values import Approximate


@dataclass(frozen=True, slots=True)
class Unpredicted:
    """A score that is not predicted: any finite float."""

    def accepts(self, found: object) -> bool:
        return type(found) is float and math.isfinite(found)


@dataclass(frozen=True, slots=True)
class Instant:
    """The moment of `now()`, about which only the neighbourhood is known."""

    about: datetime

    def accepts(self, found: object) -> bool:
        return isinstance(found, datetime) and abs(found - self.about) < timedelta(minutes=5)


Judge = Approximate | Unpredicted | Instant


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query, as far as the language determines it."""

    columns: tuple[str, ...]
    #: All rows before the limit, in order if the order is determined.
    rows: list[Row]
    is_ordered: bool
    limit: int | None
    offset: int = 0
    #: Whether the query fails, because an integer is beyond 64 bits.
    fails: bool = False

    @property
    def window(self) -> slice:
        """Which of the rows are shown, if they are in order."""
        return slice(self.offset, None if self.limit is None else self.offset + self.limit)

    @property
    def row_count(self) -> int:
        """How many rows are shown."""
        return len(self.rows[self.window])

    def objection(self, columns: Sequence[str], rows: Sequence[Row]) -> str | None:
        """Why a result is wrong; None when it is right."""
        if self.fails:
            return f"an answer, but an integer overflows: {list(rows)[:20]}"
        if tuple(columns) != self.columns:
            return f"columns {list(columns)}, wanted {list(self.columns)}"
        for row in rows:
            if row.keys() != set(self.columns):
                return f"a row has the columns {list(row)}"
        if len(rows) != self.row_count:
            return f"{len(rows)} rows, wanted {self.row_count}: {self._shown(rows)}"
        return self._drifting(rows) or (self._misplaced(rows) if self.is_ordered else self._surplus(rows))

    def _misplaced(self, rows: Sequence[Row]) -> str | None:
        for number, (wanted, found) in enumerate(zip(self.rows[self.window], rows, strict=False)):
            if not _same_row(wanted, found):
                return f"row {number} is {found}, wanted {wanted}; all: {self._shown(rows)}"
        return None

    def _surplus(self, rows: Sequence[Row]) -> str | None:
        """A row that is not among the wanted ones, or too often."""
        if not any(isinstance(cell, Judge) for row in self.rows for cell in row.values()):
            surplus = Counter(map(_frozen, rows)) - Counter(map(_frozen, self.rows))
            return f"{next(iter(surplus))} is too much: {self._shown(rows)}" if surplus else None
        waiting = list(self.rows)
        for found in rows:
            at = next((n for n, row in enumerate(waiting) if _same_row(row, found)), None)
            if at is None:
                return f"{found} is too much: {self._shown(rows)}"
            del waiting[at]
        return None

    def _drifting(self, rows: Sequence[Row]) -> str | None:
        """Scores fall from row to row, and there is one `now()` per query."""
        for column, cell in self.rows[0].items() if self.rows else ():
            found = [row[column] for row in rows]
            if isinstance(cell, Instant) and len(set(found)) > 1:
                return f"`now()` moves: {found}"
            is_score = isinstance(cell, Unpredicted) and all(map(cell.accepts, found))
            if is_score and any(later > earlier for earlier, later in pairwise(found)):
                return f"the scores rise: {found}"
        return None

    def _shown(self, rows: Sequence[Row]) -> str:
        how = "in this order" if self.is_ordered else "in any order"
        if self.offset:
            how += f", without the first {self.offset}"
        if self.limit is not None:
            how += f", the first {self.limit}" if self.is_ordered else f", any {self.limit}"
        return f"found {list(rows)[:20]}, wanted {how} {self.rows[:20]}"


def _same_row(wanted: Row, found: Row) -> bool:
    return all(_same_cell(cell, found[column]) for column, cell in wanted.items())


def _same_cell(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Judge):
        return wanted.accepts(found)
    return bool(_frozen_cell(wanted) == _frozen_cell(found))


def _frozen(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((column, _frozen_cell(cell)) for column, cell in row.items()))


def _frozen_cell(cell: Any) -> Any:
    """A cell that can be counted and knows its type: 1, 1.0 and true are three values."""
    if isinstance(cell, list):
        return "list", tuple(map(_frozen_cell, cell))
    return type(cell).__name__, cell


# ---- A disagreement made small: rows and parts of the query are left out as long as it stays


#: Tries after which the current state is good enough.
MOST_TRIES = 300

_CATALOG = compile_schema(SCHEMA).catalog


def reduced(world: World, question: Question, fails: Callable[[World, Question], bool]) -> tuple[World, Question]:
    """The smallest world and query that still fail, as far as a greedy search finds them."""
    tries = 0
    again = True
    while again:
        again = False
        for smaller in _smaller_queries(question.query):
            candidate = _with_query(question, smaller)
            tries += 1
            if tries < MOST_TRIES and compiles(candidate) and fails(world, candidate):
                question, again = candidate, True
                break
        for smaller_world in _smaller_worlds(world):
            tries += 1
            if tries < MOST_TRIES and fails(smaller_world, question):
                world, again = smaller_world, True
                break
    return world, question


def compiles(question: Question) -> bool:
    """Whether what is left of a query still has a meaning."""
    try:
        compile_query(question.text, _CATALOG)
    except (CompilerError, ValueError, IndexError):
        return False
    return True


def shown(world: World, question: Question) -> str:
    """A world and a query for a person: only the properties that the query mentions."""
    lines = []
    for type_, rows in world.items():
        for row in rows:
            kept = {
                name: value
                for name, value in row.items()
                if name in ("id", "src", "dst") or f".{name}" in question.text or f"{name}:" in question.text
            }
            lines.append(f"{type_} {kept}")
    return "\n".join([*lines, question.text, f"params = {question.params}"])


def _with_query(question: Question, query: Query) -> Question:
    """The question with another query, and without the parameters that it no longer uses."""
    body = str(replace(query, params=()))
    used = tuple(item for item in query.params if f"${item.name}" in body)
    values = {item.name: question.params[item.name] for item in used if item.name in question.params}
    return Question(replace(query, params=used), values)


def _smaller_queries(query: Query) -> Iterator[Query]:
    """The query without one of its parts, or with a part of an expression in its place; not all have a meaning."""
    for smaller in _smaller(query):
        if isinstance(smaller, Query) and smaller.clauses and smaller.returns:
            yield smaller


def _smaller(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        for at in range(len(node)):
            yield node[:at] + node[at + 1 :]
        for at, part in enumerate(node):
            for smaller in _smaller(part):
                yield (*node[:at], smaller, *node[at + 1 :])
    elif is_dataclass(node) and not isinstance(node, Declared):
        values = {item.name: getattr(node, item.name) for item in fields(node)}
        if isinstance(node, Expression):
            yield from (value for value in values.values() if isinstance(value, Expression))
        for name, value in values.items():
            if name in _OPTIONAL and value:
                yield replace(node, **{name: _OPTIONAL[name]})
            for smaller in _smaller(value):
                yield replace(node, **{name: smaller})


#: Fields that may be left out, with what stands there then.
_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("limit", "offset", "having", "bounds", "edge_variable", "otherwise", "edits", "k")),
    **dict.fromkeys(("distinct", "negated", "undirected"), False),
    **dict.fromkeys(("direction", "nulls"), ""),
}


def _smaller_worlds(world: World) -> Iterator[World]:
    for type_, rows in world.items():
        if rows:
            yield _without(world, type_, {row["id"] for row in rows})
    for type_, rows in world.items():
        if len(rows) > 1:
            for row in rows:
                yield _without(world, type_, {row["id"]})


def _without(world: World, type_: str, ids: set[str]) -> World:
    """The world without some rows, and without the edges at them."""
    kept = {**world, type_: [row for row in world[type_] if row["id"] not in ids]}
    for edge in read_shape().edges.values():
        for end, node_type in (("src", edge.source), ("dst", edge.target)):
            if node_type == type_:
                kept[edge.name] = [row for row in kept[edge.name] if row[end] not in ids]
    return kept
