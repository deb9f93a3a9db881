"""Random queries over random worlds: the engine gives the rows of the oracle, in every index state and mode."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings

from support.oracle import evaluation
from support.oracle.engines import IndexState, Workshop, objections, opened
from support.oracle.graphs import World
from support.oracle.random_queries import Question, Scenario, scenarios
from support.oracle.reducing import reduced, shown


def disagreements(
    workshop: Workshop, state: IndexState, world: World, questions: tuple[Question, ...]
) -> tuple[Question, dict[str, str]] | None:
    """The first question on which engine and oracle differ, and how they do in each mode."""
    with workshop.stored(world, state) as path:
        graphs = opened(path)
        for question in questions:
            answer = evaluation.evaluate(question.query, world, question.params)
            found = objections(graphs, question.text, question.params, answer)
            if found:
                return question, found
    return None


def check(workshop: Workshop, state: IndexState, examples: int) -> None:
    """Random scenarios until one fails, which is then made small.

    Failures do not reach Hypothesis: shrinking its choices would load thousands of graphs.
    """
    failures: list[tuple[World, Question]] = []

    @seed(f"{state} {examples}")
    @settings(max_examples=examples)
    @given(scenarios())
    def run(scenario: Scenario) -> None:
        if not failures:
            found = disagreements(workshop, state, scenario.world, scenario.questions)
            if found is not None:
                failures.append((scenario.world, found[0]))

    run()
    if failures:
        world, question = reduced(
            *failures[0],
            lambda world, question: bool(disagreements(workshop, state, world, (question,))),
        )
        found = disagreements(workshop, state, world, (question,))
        problems = {} if found is None else found[1]
        report = "\n".join(f"{mode}: {problem}" for mode, problem in problems.items())
        pytest.fail(f"indexes: {state}\n{shown(world, question)}\n{report}", pytrace=False)


@pytest.mark.parametrize("state", IndexState)
def test_the_engine_agrees_with_the_oracle(workshop: Workshop, state: IndexState) -> None:
    # Building indexes costs more than everything else together.
    check(workshop, state, examples=16 if state is IndexState.NONE else 8)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("state", IndexState)
def test_the_engine_agrees_with_the_oracle_on_many_worlds(
    workshop: Workshop, state: IndexState
) -> None:
    check(workshop, state, examples=1500)
