"""Cases that a person computed: the oracle agrees with them, and so does the engine in every state and mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph import Graph
from support.oracle import evaluation
from support.oracle.cases import matching, results, search, values
from support.oracle.cases.case import Case
from support.oracle.engines import IndexState, Workshop, objections, opened
from support.oracle.graphs import World
from support.oracle.queries import from_text, render
from support.subtests import each_case

CASES = [*matching.CASES, *values.CASES, *results.CASES, *search.CASES]
every_case = each_case("case", CASES, ids=lambda case: case.title)


@every_case
def test_the_oracle_agrees_with_a_person(case: Case) -> None:
    answer = evaluation.evaluate(case.query, case.world, case.params)
    assert answer.objection(case.columns, case.expected) is None


@every_case
def test_a_case_reads_the_same_after_it_was_written_again(case: Case) -> None:
    assert from_text(render(case.query)) == case.query


@pytest.fixture(scope="module")
def graphs_of(workshop: Workshop) -> Callable[[World, IndexState], dict[str, Graph]]:
    """The graphs of a world; cases share worlds."""
    known: dict[tuple[int, IndexState], dict[str, Graph]] = {}

    def get(world: World, state: IndexState) -> dict[str, Graph]:
        key = id(world), state
        if key not in known:
            known[key] = opened(workshop.store(world, state))
        return known[key]

    return get


@each_case("state", IndexState)
@every_case
def test_the_engine_agrees_with_a_person(
    case: Case, state: IndexState, graphs_of: Callable[[World, IndexState], dict[str, Graph]]
) -> None:
    # The test above shows that this answer holds exactly the rows of the case.
    answer = evaluation.evaluate(case.query, case.world, case.params)
    assert objections(graphs_of(case.world, state), case.text, case.params, answer) == {}
