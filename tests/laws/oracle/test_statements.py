"""Statements behind a random match write exactly what the same match reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import IntegerOverflowError
from support.oracle.engines import IndexState, Workshop
from support.oracle.graphs import World, read_shape, worlds
from support.oracle.patterns import named, types_of
from support.oracle.queries import Property, Query, Return, Text, Where, render, walk
from support.oracle.random_queries import Judged, judged_matches

#: A property of every node type that any row may have another value of, and a value that no row has.
CHANGED = {"Person": ("nick", '"changed"'), "Thing": ("wide", "77"), "Place": ("size", "77"), "Note": ("rank", "77")}

Found = Counter[tuple[str, str]]


def statement(judged: Judged, written: str) -> str:
    """A mutation behind the match and its first condition."""
    clauses = (*judged.clauses, Where(judged.first))
    text = render(Query(judged.params, clauses, (Return(Property(judged.subject, "@id")),)))
    head, _, _ = text.rpartition("  return {")
    return f"{head}  {written}\n}}"


def matched(graph: Graph, judged: Judged) -> Found:
    """Every node that the match is about, once."""
    returns = tuple(Return(Property(judged.subject, name), name[1:]) for name in ("@id", "@type"))
    question = judged.asking(Where(judged.first), returns=returns, distinct=True)
    return Counter((row["id"], row["type"]) for row in graph.query(question.text, question.params).to_pylist())


def nodes(graph: Graph, type_: str, condition: str = "") -> Found:
    found = graph.query(f"match {{ $n: {type_}  {condition} }} return {{ $n.@id as id }}").to_pylist()
    return Counter((row["id"], type_) for row in found)


def every_node(graph: Graph) -> Found:
    return sum((nodes(graph, type_) for type_ in CHANGED), Counter())


def check_update(graph: Graph, judged: Judged, type_: str) -> None:
    """`update $x` changes the nodes of the match and no others, and returns each of them."""
    name, value = CHANGED[type_]
    wanted, subject = matched(graph, judged), judged.subject
    text = statement(judged, f"update ${subject} set {{ {name}: {value} }} return {{ ${subject}.@id as id }}")
    receipt = graph.mutate(text, judged.values)
    assert receipt.affected_nodes == len(wanted), judged
    # What is returned are the rows of the match.
    assert {(row["id"], type_) for row in receipt.rows or ()} == set(wanted), judged
    assert nodes(graph, type_, f"$n.{name} = {value}") == wanted, judged


def check_delete(graph: Graph, judged: Judged) -> None:
    """`delete $x` removes the nodes of the match, and the edges at them."""
    wanted, before = matched(graph, judged), every_node(graph)
    assert graph.mutate(statement(judged, f"delete ${judged.subject}"), judged.values).affected_nodes == len(wanted)
    left = every_node(graph)
    assert left == before - wanted, judged
    for edge in read_shape().edges.values():
        word = edge.name[0].lower() + edge.name[1:]
        ends = graph.query(f"match {{ $a $e:{word} $b }} return {{ $e.@src as a, $e.@dst as b }}").to_pylist()
        assert all((row["a"], edge.source) in left and (row["b"], edge.target) in left for row in ends), judged


def check_insert(graph: Graph, judged: Judged) -> None:
    """`insert` behind a match runs once for every node that it mentions, whatever else multiplies the rows."""
    wanted, before = matched(graph, judged), nodes(graph, "Note")
    text = statement(judged, f"insert Note {{ text: ${judged.subject}.@id }} as $made return {{ $made.text as t }}")
    receipt = graph.mutate(text, judged.values)
    ids = Counter(id_ for id_, _ in wanted.elements())
    assert {row["t"] for row in receipt.rows or ()} == set(ids), judged
    assert (nodes(graph, "Note") - before).total() == ids.total(), judged


@st.composite
def _asked(draw: st.DrawFn) -> tuple[World, list[Judged]]:
    world = draw(worlds())
    return world, draw(st.lists(judged_matches(world), min_size=3, max_size=3, unique_by=repr))


def check(workshop: Workshop, examples: int) -> None:
    held: Counter[Any] = Counter()

    @seed(f"statements {examples}")
    @settings(max_examples=examples, phases=[Phase.generate])
    @given(_asked())
    def run(asked: tuple[World, list[Judged]]) -> None:
        world, matches = asked
        with workshop.stored(world, IndexState.NONE) as path, Graph.open(path) as graph:
            for judged in matches:
                if any(isinstance(part, Text) for part in walk((judged.clauses, judged.first))):
                    continue
                types = types_of(read_shape(), named(judged.clauses), {}) or {}
                members = types[judged.subject]
                try:
                    held["all"] += 1
                    if len(members) == 1:
                        check_update(graph, judged, members[0])
                    check_insert(graph, judged)
                    check_delete(graph, judged)
                except IntegerOverflowError:
                    held["overflows"] += 1

    run()
    assert held["all"] > 10 * held["overflows"]


def test_statements_write_what_their_match_reads(workshop: Workshop) -> None:
    check(workshop, 6)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_statements_write_what_their_match_reads_on_many_worlds(workshop: Workshop) -> None:
    check(workshop, 500)
