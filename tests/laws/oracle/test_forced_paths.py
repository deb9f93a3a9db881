"""The ways that only large results take, forced upon small ones: they give the rows of the oracle too."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings

from omnigraph.engine import executor, rows
from omnigraph.engine.operators import expand, pipeline
from omnigraph.engine.results import aggregate, bounds, first_rows, group_numbers
from support.oracle import evaluation
from support.oracle.answers import shown
from support.oracle.engines import IndexState, Workshop, objections, opened
from support.oracle.random_queries import Scenario, scenarios
from support.oracle.values import UndeterminedError

#: What is deferred, cut, pruned and numbered from a few rows on, in batches of a few rows.
EARLY = {
    (expand, "_DEFERRED_PAIRS"): 0,
    (executor, "FIRST_ROWS"): 2,
    (rows, "BATCH_ROWS"): 3,
    (pipeline, "BATCH_ROWS"): 3,
    (bounds, "_FEW_ROWS"): 0,
    (bounds, "_SPARE"): 2,
    (bounds, "_SAMPLE_ROWS"): 2,
    (first_rows, "_PRUNE_ROWS"): 1,
    (first_rows, "_SPARE"): 1,
    (first_rows, "_PRUNE_GROUPED_ROWS"): 2,
    (aggregate, "_MAX_PARTIALS"): 2,
}
#: The same without numbers of groups.
HASHED = EARLY | {(group_numbers, "_FEW_NUMBERS"): 0, (group_numbers, "_NUMBERS_PER_ROW"): 0}
#: Values of keys are numbered wherever they can be.
BY_VALUE = EARLY | {(group_numbers, "_FEW_NUMBERS"): 0, (group_numbers, "_NUMBERS_PER_ROW"): 3}
WAYS = {"early": EARLY, "hashed": HASHED, "by value": BY_VALUE}


def check(workshop: Workshop, name: str, examples: int) -> None:
    failures: list[str] = []

    @seed(f"{name} {examples}")
    @settings(max_examples=examples)
    @given(scenarios())
    def run(scenario: Scenario) -> None:
        if failures:
            return
        with workshop.stored(scenario.world, IndexState.NONE) as path:
            graphs = opened(path)
            for question in scenario.questions:
                try:
                    answer = evaluation.evaluate(question.query, scenario.world, question.params)
                except UndeterminedError:
                    continue
                found = objections(graphs, question.text, question.params, answer)
                if found:
                    problems = "\n".join(f"{mode}: {problem}" for mode, problem in found.items())
                    failures.append(f"{shown(scenario.world, question)}\n{problems}")
                    return

    run()
    if failures:
        pytest.fail(failures[0], pytrace=False)


@pytest.fixture
def forced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    for (module, constant), value in WAYS[name].items():
        monkeypatch.setattr(module, constant, value)
    return name


@pytest.mark.parametrize("forced", WAYS, indirect=True)
def test_forced_ways_agree_with_the_oracle(workshop: Workshop, forced: str) -> None:
    check(workshop, forced, examples=6)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("forced", WAYS, indirect=True)
def test_forced_ways_agree_with_the_oracle_on_many_worlds(workshop: Workshop, forced: str) -> None:
    check(workshop, forced, examples=1000)
