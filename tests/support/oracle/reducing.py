"""A disagreement made small: rows and parts of the query are left out as long as it stays.

Hypothesis would shrink the choices behind a scenario and load a graph at every step; leaving out whole parts gets
there in a few dozen steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.oracle.graphs import SCHEMA, World, read_shape
from support.oracle.queries import Bind, Clause, Hop, Not, Query
from support.oracle.random_queries import Question

#: Tries after which the current state is good enough.
MOST_TRIES = 300

_CATALOG = compile_schema(SCHEMA).catalog


def reduced(
    world: World, question: Question, fails: Callable[[World, Question], bool]
) -> tuple[World, Question]:
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
    except CompilerError:
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
                if name in ("id", "src", "dst")
                or f".{name}" in question.text
                or f"{name}:" in question.text
            }
            lines.append(f"{type_} {kept}")
    return "\n".join([*lines, question.text, f"params = {question.params}"])


def _with_query(question: Question, query: Query) -> Question:
    """The question with another query, and without the parameters that it no longer uses."""
    body = str(replace(query, params=()))
    used = tuple(item for item in query.params if f"${item.name}" in body)
    values = {
        item.name: question.params[item.name] for item in used if item.name in question.params
    }
    return Question(replace(query, params=used), values)


def _smaller_queries(query: Query) -> Iterator[Query]:
    if query.limit is not None:
        yield replace(query, limit=None)
    for clauses in _smaller_blocks(query.clauses):
        if clauses:
            yield replace(query, clauses=clauses)
    for at in range(len(query.order)):
        yield replace(query, order=query.order[:at] + query.order[at + 1 :])
    for at in range(len(query.returns)):
        yield replace(query, returns=query.returns[:at] + query.returns[at + 1 :])


def _smaller_blocks(clauses: tuple[Clause, ...]) -> Iterator[tuple[Clause, ...]]:
    for at, clause in enumerate(clauses):
        before, after = clauses[:at], clauses[at + 1 :]
        yield before + after
        for smaller in _smaller_clauses(clause):
            yield (*before, smaller, *after)


def _smaller_clauses(clause: Clause) -> Iterator[Clause]:
    match clause:
        case Bind(_, _, matches):
            for at in range(len(matches)):
                yield replace(clause, matches=matches[:at] + matches[at + 1 :])
        case Hop():
            if clause.bounds is not None:
                yield replace(clause, bounds=None)
            if clause.edge_variable is not None:
                yield replace(clause, edge_variable=None)
            if clause.undirected:
                yield replace(clause, undirected=False)
        case Not(inner):
            for smaller in _smaller_blocks(inner):
                if smaller:
                    yield Not(smaller)


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
