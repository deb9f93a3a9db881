"""The judge itself: what it accepts and what it objects to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, seed, settings

from omnigraph import Graph
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import bind_params
from omnigraph.lang.schema.compiler import compile_schema
from support.oracle import evaluation
from support.oracle.answers import Answer, Instant, Unpredicted, reduced, shown
from support.oracle.cases import matching, patterns, results, search, values
from support.oracle.cases.case import Case
from support.oracle.engines import IndexState, Workshop, objections, opened
from support.oracle.graphs import SCHEMA, World, read_shape, worlds
from support.oracle.queries import AllProperties, Bind, Hop, Maybe, PathOf, render, walk
from support.oracle.random_queries import Question, Scenario, questions, scenarios
from support.oracle.reading import from_text
from support.oracle.text import distance, is_similar, matches_text, searches
from support.oracle.values import Approximate, UndeterminedError
from support.subtests import each_case

NOW = datetime(2024, 5, 1, tzinfo=UTC)


def judge(wanted: list[Any], found: list[Any], *, ordered: bool = False, limit: int | None = None):
    answer = Answer(("x",), [{"x": cell} for cell in wanted], ordered, limit)
    return answer.objection(["x"], [{"x": cell} for cell in found])


@each_case(
    ("wanted", "found", "options"),
    [
        ([], [], {}),
        ([1, 2, 2], [2, 1, 2], {}),
        ([1, 2], [1, 2], {"ordered": True}),
        ([1, 2, 3], [3], {"limit": 1}),
        ([1, 2, 3], [1], {"limit": 1, "ordered": True}),
        ([1, 2], [1, 2], {"limit": 5, "ordered": True}),
        ([1], [], {"limit": 0}),
        ([[1, None]], [[1, None]], {}),
        ([0.0], [-0.0], {}),
        ([Approximate(1.0, 1e-9)], [1.0 + 1e-10], {}),
        ([Approximate(1.0, 1e-9), None], [None, 1.0], {}),
        ([Unpredicted()] * 2, [2.5, 1.0], {}),
        ([Instant(NOW)] * 2, [NOW + timedelta(seconds=1)] * 2, {}),
    ],
)
def test_a_right_result_is_accepted(wanted, found, options) -> None:
    assert judge(wanted, found, **options) is None


@each_case(
    ("wanted", "found", "options"),
    [
        ([1], [], {}),
        ([], [1], {}),
        ([1, 2, 2], [2, 1, 1], {}),
        ([1, 2], [2, 1], {"ordered": True}),
        ([1, 2, 3], [4], {"limit": 1}),
        ([1, 2, 3], [2], {"limit": 1, "ordered": True}),
        ([1, 2], [1, 2], {"limit": 1}),
        ([1], [1.0], {}),
        ([1], [True], {}),
        ([1.0], [1], {}),
        ([None], [0], {}),
        ([""], [None], {}),
        ([[]], [None], {}),
        ([[1, 2]], [[2, 1]], {}),
        ([Approximate(1.0, 1e-9)], [1.1], {}),
        ([Approximate(1.0, 1e-9)], [1], {}),
        ([Approximate(1.0, 1e-9)] * 2, [1.0, 2.0], {}),
        ([Unpredicted()] * 2, [1.0, 2.5], {}),
        ([Unpredicted()], [float("nan")], {}),
        ([Instant(NOW)] * 2, [NOW, NOW + timedelta(seconds=1)], {}),
        ([Instant(NOW)], [NOW + timedelta(days=1)], {}),
    ],
)
def test_a_wrong_result_is_not(wanted, found, options) -> None:
    assert judge(wanted, found, **options) is not None


def test_columns_have_an_order() -> None:
    answer = Answer(("a", "b"), [{"a": 1, "b": 2}], True, None)
    assert answer.objection(["a", "b"], [{"b": 2, "a": 1}]) is None
    assert answer.objection(["b", "a"], [{"a": 1, "b": 2}]) is not None
    assert answer.objection(["a", "b"], [{"a": 1}]) is not None


@each_case(
    ("left", "right", "edits"),
    [("", "", 0), ("", "ab", 2), ("graph", "grap", 1), ("graph", "garph", 2), ("abc", "xyz", 3)],
)
def test_the_distance_of_words(left: str, right: str, edits: int) -> None:
    assert distance(left, right) == distance(right, left) == edits


def test_words_are_found_as_the_language_says() -> None:
    assert searches("The Graphs, of lance", "graph tensor")
    assert not searches("graph", "the")
    assert matches_text("lance graphs vector", "Graph vector")
    assert not matches_text("lance graph vector", "lance vector")
    assert not matches_text("graph", "")
    assert is_similar("Graph lance", "tensor grapx", 1)
    assert not is_similar("graph", "garph", 1)


# ---- Cases that a person computed: the oracle agrees with them, and so does the engine in every state and mode


CASES = [*matching.CASES, *patterns.CASES, *values.CASES, *results.CASES, *search.CASES]
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


# ---- The generators: every random query compiles, reads back as it was made, and worlds are what they promise


CATALOG = compile_schema(SCHEMA).catalog


@given(questions())
def test_a_random_query_compiles_and_takes_its_parameters(question) -> None:
    compiled = compile_query(question.text, CATALOG)
    bind_params(compiled.ir, question.params)
    names = [item.name for item in compiled.ir.projections]
    if not any(isinstance(item.expression, AllProperties) for item in question.query.returns):
        assert names == [item.column for item in question.query.returns]


@pytest.mark.slow
@settings(max_examples=10_000)
@given(questions())
def test_many_random_queries_compile(question) -> None:
    bind_params(compile_query(question.text, CATALOG).ir, question.params)


@given(questions())
def test_a_random_query_reads_back_as_it_was_made(question) -> None:
    assert render(from_text(question.text)) == question.text


@settings(max_examples=40)
@given(worlds())
def test_a_world_has_every_column_and_no_loose_end(world) -> None:
    shape = read_shape()
    assert world.keys() == {*shape.nodes, *shape.edges}
    for type_, rows in world.items():
        ids = [row["id"] for row in rows]
        assert len(ids) == len(set(ids))
        for row in rows:
            assert row.keys() - {"id", "src", "dst"} == shape.properties(type_).keys()
    for edge in shape.edges.values():
        for row in world[edge.name]:
            assert row["src"] in {node["id"] for node in world[edge.source]}
            assert row["dst"] in {node["id"] for node in world[edge.target]}


def test_the_shape_is_that_of_the_schema() -> None:
    shape = read_shape()
    assert shape.nodes.keys() == CATALOG.nodes.keys()
    assert shape.edges.keys() == CATALOG.edges.keys()
    for name, definition in {**CATALOG.nodes, **CATALOG.edges}.items():
        written = {item.name: f"{item.type}{'?' if item.nullable else ''}" for item in shape.properties(name).values()}
        assert written == {key: str(prop.type) for key, prop in definition.properties.items()}


def test_random_queries_find_something() -> None:
    """A differential test over empty results would show nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=25, database=None)
    @given(scenarios())
    def run(scenario: Scenario) -> None:
        for question in scenario.questions:
            answer = predicted(scenario.world, question)
            seen["all"] += 1
            if answer is None:
                seen["open"] += 1
                continue
            seen["failing"] += answer.fails
            seen["some"] += bool(answer.rows)
            parts = list(walk(question.query)) if answer.rows else []
            seen["optional"] += any(isinstance(part, Maybe) for part in parts)
            seen["paths"] += any(isinstance(part, PathOf) for part in parts)
            seen["types"] += any(isinstance(part, Bind) and len(part.types) > 1 for part in parts)
            seen["words"] += any(isinstance(part, Hop) and len(part.words) != 1 for part in parts)
            seen["hop conditions"] += any(isinstance(part, Hop) and part.condition is not None for part in parts)
            seen["several"] += len(answer.rows) > 1
            seen["ordered"] += answer.is_ordered

    run()
    assert seen["some"] > seen["all"] / 4
    assert seen["several"] > seen["all"] / 8
    assert seen["all"] / 4 < seen["ordered"] < seen["all"] * 9 / 10
    assert min(seen[kind] for kind in ("optional", "paths", "types", "words", "hop conditions")) > 0, seen
    assert seen["open"] < seen["all"] / 10
    assert 0 < seen["failing"] < seen["all"] / 10


# ---- Random queries over random worlds: the engine gives the rows of the oracle, in every index state and mode


def predicted(world: World, question: Question) -> Answer | None:
    """The answer to a question; None where the language leaves it open."""
    try:
        return evaluation.evaluate(question.query, world, question.params)
    except UndeterminedError:
        return None


def disagreements(
    workshop: Workshop, state: IndexState, world: World, questions: tuple[Question, ...]
) -> tuple[Question, dict[str, str]] | None:
    """The first question on which engine and oracle differ, and how they do in each mode."""
    with workshop.stored(world, state) as path:
        graphs = opened(path)
        for question in questions:
            answer = predicted(world, question)
            if answer is None:
                continue
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
            *failures[0], lambda world, question: bool(disagreements(workshop, state, world, (question,)))
        )
        found = disagreements(workshop, state, world, (question,))
        problems = {} if found is None else found[1]
        report = "\n".join(f"{mode}: {problem}" for mode, problem in problems.items())
        pytest.fail(f"indexes: {state}\n{shown(world, question)}\n{report}", pytrace=False)


@pytest.mark.parametrize("state", IndexState)
def test_the_engine_agrees_with_the_oracle(workshop: Workshop, state: IndexState) -> None:
    # Building indexes costs more than everything else together.
    check(workshop, state, examples=10 if state is IndexState.NONE else 5)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("state", IndexState)
def test_the_engine_agrees_with_the_oracle_on_many_worlds(workshop: Workshop, state: IndexState) -> None:
    check(workshop, state, examples=1500)
