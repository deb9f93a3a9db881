"""Closed edges and intersections among the operators of a pipeline."""

from __future__ import annotations

import pytest

from omnigraph.engine.nodes import Intersect
from omnigraph.engine.operators.fuse import fused, without_arm
from omnigraph.engine.operators.pipeline import operator_label
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

CATALOG = compile_schema(
    """
node Person { name: String @key  age: I64? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge Likes: Person -> Person
edge LivesIn: Person -> Town
"""
).catalog


def pipeline(match: str) -> tuple[ir.Op, ...]:
    query = compile_query(f"query q() {{ match {{ {match} }} return {{ $a.name }} }}", CATALOG).ir
    assert isinstance(query, ir.ReadIR)
    return query.pipeline


def labels(match: str) -> list[str]:
    return [operator_label(op) for op in fused(pipeline(match))]


@each_case(
    ("match", "expected"),
    [
        ("$a: Person $a knows $b", ["Expand $a Knows $b"]),
        ("$a: Person $a knows $b $b knows $a", ["Intersect $b: $a Knows, $a Knows"]),
        ("$a: Person $a knows $b $a knows $b", ["Expand $a Knows $b"]),
        ("$a: Person $a knows $a", ["Close $a Knows $a"]),
        ("$a: Person $a knows $b $b knows $c $a knows $c", ["Expand $a Knows $b", "Intersect $c: $b Knows, $a Knows"]),
        (
            "$a: Person $a knows $b $b knows $c $c knows $a $c.age > 3 $a.age < $c.age",
            ["Expand $a Knows $b", "Intersect $c: $b Knows, $a Knows", "Filter"],
        ),
        (
            "$a: Person $a knows $b $a knows $c $b knows $d $c knows $d $a likes $d",
            ["Expand $a Knows $b", "Expand $a Knows $c", "Intersect $d: $b Knows, $c Knows, $a Likes"],
        ),
        (
            "$a: Person $a livesIn $t $a knows $b $b livesIn $t",
            ["Expand $a LivesIn $t", "Intersect $b: $a Knows, $t LivesIn"],
        ),
        # Several hops, and edges with a name, are not arms; with a name they close all the same.
        ("$a: Person $a knows{1,2} $b $a knows $b", ["Expand $a Knows $b", "Close $a Knows $b"]),
        ("$a: Person $a knows $b $a knows{1,2} $b", ["Expand $a Knows $b", "Expand $a Knows $_", "Filter"]),
        ("$a: Person $a knows $b $b $e: knows $a $e.since > 3", ["Expand $a Knows $b", "Close $b Knows $a"]),
        ("$a: Person $a $e: knows $b $a knows $b", ["Expand $a Knows $b", "Close $a Knows $b"]),
    ],
)
def test_what_becomes_of_a_pattern(match: str, expected: list[str]) -> None:
    found = labels(match)
    assert found[0] == "NodeScan $a: Person"
    assert found[1:] == expected


def test_nothing_to_fuse_is_the_pipeline_itself_and_the_rest_is_made_once() -> None:
    plain, cycle = pipeline("$a: Person $a knows $b"), pipeline("$a: Person $a knows $b $b knows $a")
    assert fused(plain) is plain
    assert fused(cycle) is fused(cycle)


def test_blocks_are_fused_when_they_run() -> None:
    (_, _, _, anti) = pipeline("$a: Person $a knows $b $b knows $c not { $a knows $c }")
    assert isinstance(anti, ir.AntiJoin)
    assert [operator_label(op) for op in fused(anti.pipeline)] == ["Close $a Knows $c"]


def test_a_hidden_end_that_something_else_asks_for_stays() -> None:
    expand = ir.Expand("a", "~1", "Knows", ir.Direction.OUT, "Person")
    equal = ir.Comparison(ir.EntityRef("~1", "Person"), ir.CompareOp.EQ, ir.EntityRef("b", "Person"))
    again = ir.Expand("~1", "c", "Knows", ir.Direction.OUT, "Person")
    ops = (expand, ir.Filter(equal), again)
    assert fused(ops) is ops


@pytest.mark.parametrize("place", [0, 1])
def test_an_intersection_is_an_expand_and_closes(place: int) -> None:
    ops = fused(pipeline("$a: Person $a knows $b $b likes $c $a knows $c"))
    (op,) = (op for op in ops if isinstance(op, Intersect))
    expand, (close,) = without_arm(op, place)
    first, second = ("b", "Likes"), ("a", "Knows")
    if place:
        first, second = second, first
    assert ((expand.source, expand.edge_type), (close.source, close.edge_type)) == (first, second)
    assert (expand.target, close.target) == ("c", "c")
    assert fused((expand, close)) == (Intersect("c", "Person", (op.arms[place], op.arms[1 - place])),)
