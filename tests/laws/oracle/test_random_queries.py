"""The generators: every random query compiles, reads back as it was made, and worlds are what they promise."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import bind_params
from omnigraph.lang.schema.compiler import compile_schema
from support.oracle import evaluation
from support.oracle.graphs import SCHEMA, read_shape, worlds
from support.oracle.queries import from_text, render
from support.oracle.random_queries import Scenario, questions, scenarios

CATALOG = compile_schema(SCHEMA).catalog


@given(questions())
def test_a_random_query_compiles_and_takes_its_parameters(question) -> None:
    compiled = compile_query(question.text, CATALOG)
    bind_params(compiled.ir, question.params)
    assert [item.name for item in compiled.ir.projections] == [
        item.column for item in question.query.returns
    ]


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
        written = {
            item.name: f"{item.type}{'?' if item.nullable else ''}"
            for item in shape.properties(name).values()
        }
        assert written == {key: str(prop.type) for key, prop in definition.properties.items()}


def test_random_queries_find_something() -> None:
    """A differential test over empty results would show nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=40, database=None)
    @given(scenarios())
    def run(scenario: Scenario) -> None:
        for question in scenario.questions:
            answer = evaluation.evaluate(question.query, scenario.world, question.params)
            seen["all"] += 1
            seen["some"] += bool(answer.rows)
            seen["several"] += len(answer.rows) > 1
            seen["ordered"] += answer.is_ordered

    run()
    assert seen["some"] > seen["all"] / 3
    assert seen["several"] > seen["all"] / 6
    assert seen["all"] / 4 < seen["ordered"] < seen["all"] * 9 / 10
