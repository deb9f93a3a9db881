"""What has to agree whatever a query means: rows part into three by a condition, and texts of one meaning agree."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.core.source import SourceText
from omnigraph.errors import IntegerOverflowError
from omnigraph.lang.query.syntax.parser import parse_queries
from omnigraph.lang.query.syntax.printing import print_queries
from support.oracle.engines import IndexState, Workshop
from support.oracle.graphs import World, read_shape, worlds
from support.oracle.patterns import types_of
from support.oracle.queries import (
    Aggregate,
    Binary,
    Column,
    Exists,
    Expression,
    IsNull,
    Literal,
    Return,
    Sort,
    Unary,
    Variable,
    Where,
)
from support.oracle.random_queries import Judged, Question, judged_matches

_COUNT = Return(Aggregate("count", None), "n")


def rows_of(graph: Graph, question: Question, text: str | None = None) -> list[dict[str, Any]]:
    return graph.query(question.text if text is None else text, question.params).to_pylist()


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(list(row.values())) for row in rows)


def kept(graph: Graph, judged: Judged, *conditions: Expression) -> Counter[str]:
    """The nodes for which further conditions are true, as often as they are found."""
    return bag(rows_of(graph, judged.asking(*map(Where, conditions), returns=_returned(judged))))


def check_parts(graph: Graph, judged: Judged) -> None:
    """Every row is one for which a condition is true, false or unknown; counts and sums add up."""
    condition = judged.first
    # Asked first: a condition that overflows is an error here, and none of the three in a match.
    by_flag = {
        row["is_true"]: row["n"]
        for row in rows_of(graph, judged.asking(returns=(Return(condition, "is_true"), _COUNT)))
    }
    parts = [condition, Unary("not", condition), IsNull(condition)]
    every = kept(graph, judged)
    assert sum((kept(graph, judged, part) for part in parts), Counter()) == every, judged
    returns = (_COUNT, Return(Aggregate("sum", judged.number), "total"), Return(Aggregate("count", judged.number), "m"))
    (whole,) = rows_of(graph, judged.asking(returns=returns))
    found = [rows_of(graph, judged.asking(Where(part), returns=returns))[0] for part in parts]
    for name in ("n", "m"):
        assert whole[name] == sum(row[name] for row in found), judged
    totals = [row["total"] for row in found if row["total"] is not None]
    if totals and whole["total"] is not None and all(abs(total) < 1e15 for total in totals):
        assert math.isclose(whole["total"], math.fsum(totals), rel_tol=1e-6, abs_tol=1e-6), judged
    assert [by_flag.get(flag, 0) for flag in (True, False, None)] == [row["n"] for row in found], judged


def check_rewritings(graph: Graph, judged: Judged) -> None:
    """Conditions that mean the same keep the same rows."""
    first, second, block = judged.first, judged.second, judged.block
    count = Binary(Aggregate("count", None, clauses=block), ">", Literal(0))
    both, either = Binary(first, "and", second), Binary(first, "or", second)
    one, other = Unary("not", first), Unary("not", second)
    pairs: list[tuple[Expression, Expression]] = [
        (Unary("not", both), Binary(one, "or", other)),
        (Unary("not", either), Binary(one, "and", other)),
        (Exists(block), count),
        (Exists(block, negated=True), Unary("not", Exists(block))),
        (Unary("not", Unary("not", first)), first),
    ]
    for left, right in pairs:
        assert kept(graph, judged, left) == kept(graph, judged, right), (judged, left, right)
    assert kept(graph, judged, both) == kept(graph, judged, first, second), judged
    turned = judged.clauses[::-1]
    types = types_of(read_shape(), judged.clauses, {})
    if types is not None and types == types_of(read_shape(), turned, {}):
        # Where no binding says what a variable is, the first traversal does.
        asked = replace(judged, clauses=(Where(second), Where(first), *turned)).asking(returns=_returned(judged))
        assert bag(rows_of(graph, asked)) == kept(graph, judged, first, second), judged


def _returned(judged: Judged) -> tuple[Return, ...]:
    return (Return(Variable(judged.subject)),)


def check_results(graph: Graph, judged: Judged) -> None:
    """Distinct rows are groups, windows tile the whole result, and the canonical text gives the same rows."""
    columns = (Return(judged.number, "number"), *_returned(judged))
    distinct = judged.asking(Where(judged.first), returns=columns, distinct=True)
    groups = judged.asking(Where(judged.first), returns=(*columns, _COUNT))
    plain = [{name: cell for name, cell in row.items() if name != "n"} for row in rows_of(graph, groups)]
    assert bag(rows_of(graph, distinct)) == bag(plain), judged
    order = (Sort(Column("number"), "desc", "first"),)
    whole = rows_of(graph, judged.asking(returns=columns, order=order))
    tiles: list[dict[str, Any]] = []
    for start in range(0, min(len(whole), 9) + 3, 3):
        tiles += rows_of(graph, judged.asking(returns=columns, order=order, offset=start, limit=3))
    assert tiles == whole[: len(tiles)], judged
    assert len(tiles) == len(whole) or len(tiles) >= 9, judged
    canonical = print_queries(parse_queries(SourceText(distinct.text)))
    assert parse_queries(SourceText(canonical)) == parse_queries(SourceText(distinct.text)), judged
    assert bag(rows_of(graph, distinct, canonical)) == bag(plain), judged


LAWS = (check_parts, check_rewritings, check_results)


@st.composite
def _asked(draw: st.DrawFn) -> tuple[World, list[Judged]]:
    world = draw(worlds())
    return world, draw(st.lists(judged_matches(world), min_size=4, max_size=4, unique_by=repr))


def check(workshop: Workshop, examples: int) -> None:
    held: Counter[str] = Counter()

    @seed(f"laws {examples}")
    @settings(max_examples=examples)
    @given(_asked())
    def run(asked: tuple[World, list[Judged]]) -> None:
        world, matches = asked
        with workshop.stored(world, IndexState.NONE) as path, Graph.open(path, read_only=True) as graph:
            for judged in matches:
                for law in LAWS:
                    try:
                        law(graph, judged)
                    except IntegerOverflowError:
                        held["overflows"] += 1
                    else:
                        held["holds"] += 1

    run()
    assert held["holds"] > 10 * held["overflows"]


def test_texts_of_one_meaning_give_the_same_rows(workshop: Workshop) -> None:
    check(workshop, 12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_texts_of_one_meaning_give_the_same_rows_on_many_worlds(workshop: Workshop) -> None:
    check(workshop, 600)
