"""Whatever order the parts of a read run in, its rows are those of the oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given, seed, settings

from omnigraph import Graph
from support.oracle import evaluation
from support.oracle.answers import Answer, reduced, shown
from support.oracle.engines import IndexState, Workshop, objections
from support.oracle.graphs import World
from support.oracle.random_queries import Question, Scenario, scenarios
from support.oracle.values import UndeterminedError

#: As the text says, and orders that no estimate would choose: products first, links closed in either direction.
ORDERS = ("text", "random:1", "random:2", "random:3")


@contextmanager
def in_orders(workshop: Workshop, world: World) -> Iterator[dict[str, Graph]]:
    """The graph of a world, opened once per order."""
    with workshop.stored(world, IndexState.NONE) as path:
        graphs: dict[str, Graph] = {}
        for order in ORDERS:
            with mock.patch.dict(os.environ, {"OMNIGRAPH_PLAN_ORDER": order}):
                graphs[order] = Graph.open(path, read_only=True)
        yield graphs


def predicted(world: World, question: Question) -> Answer | None:
    try:
        return evaluation.evaluate(question.query, world, question.params)
    except UndeterminedError:
        return None


def disagreements(
    workshop: Workshop, world: World, questions: tuple[Question, ...]
) -> tuple[Question, dict[str, str]] | None:
    """The first question on which an order and the oracle differ, and how they do."""
    with in_orders(workshop, world) as graphs:
        for question in questions:
            answer = predicted(world, question)
            found = {} if answer is None else objections(graphs, question.text, question.params, answer)
            if found:
                return question, found
    return None


def check(workshop: Workshop, examples: int) -> None:
    failures: list[tuple[World, Question]] = []

    @seed(f"orders {examples}")
    @settings(max_examples=examples)
    @given(scenarios())
    def run(scenario: Scenario) -> None:
        if not failures:
            found = disagreements(workshop, scenario.world, scenario.questions)
            if found is not None:
                failures.append((scenario.world, found[0]))

    run()
    if failures:
        world, question = reduced(
            *failures[0], lambda world, question: bool(disagreements(workshop, world, (question,)))
        )
        found = disagreements(workshop, world, (question,))
        problems = {} if found is None else found[1]
        report = "\n".join(f"{order}: {problem}" for order, problem in problems.items())
        pytest.fail(f"{shown(world, question)}\n{report}", pytrace=False)


def test_every_order_gives_the_rows_of_the_oracle(workshop: Workshop) -> None:
    check(workshop, examples=10)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_order_gives_the_rows_of_the_oracle_on_many_worlds(workshop: Workshop) -> None:
    check(workshop, examples=1500)
