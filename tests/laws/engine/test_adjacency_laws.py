"""The traversal index against dictionaries, and walks over it against walks by definition. No disk."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.engine import adjacency as reachability
from omnigraph.engine.adjacency import (
    Adjacency,
    AdjacentNeighbours,
    Reach,
    Side,
    build_side,
    neighbours_of,
    ranges,
    reach_within,
)
from omnigraph.engine.entities import Numbering
from omnigraph.lang.query.ir import Direction
from support.random_edges import Edges, edges_between, hops
from support.subtests import each_case

#: Row ids of edges are far from their places, so that one is never taken for the other.
FIRST_EDGE = 1_000


def index_of(edges: Edges) -> Adjacency:
    source, target = (np.array([pair[end] for pair in edges.pairs], np.int64) for end in (0, 1))
    return Adjacency.build(
        source,
        target,
        np.arange(len(edges.pairs)) + FIRST_EDGE,
        sources=edges.sources,
        targets=edges.targets,
    )


def steps_of(side: Side, node: int) -> list[tuple[int, int]]:
    part = slice(int(side.offsets[node]), int(side.offsets[node + 1]))
    edges = (side.edges[part].astype(np.int64) - FIRST_EDGE).tolist()
    return list(zip(side.targets[part].tolist(), edges, strict=True))


def neighbours_in(side: Side, node: int) -> list[int]:
    part = slice(int(side.distinct_offsets[node]), int(side.distinct_offsets[node + 1]))
    return side.distinct_targets[part].tolist()


def directions(edges: Edges) -> list[Direction]:
    """Both ways at once exist only inside one type."""
    return [
        direction
        for direction in Direction
        if direction is not Direction.BOTH or edges.sources == edges.targets
    ]


@settings(max_examples=250)
@given(edges_between())
def test_every_side_has_the_edges_of_every_node(edges: Edges) -> None:
    adjacency = index_of(edges)
    for direction in directions(edges):
        side = adjacency.side(direction)
        nodes = range(edges.begins(direction))
        assert len(side.offsets) == len(side.distinct_offsets) == len(nodes) + 1
        for node in nodes:
            found = steps_of(side, node)
            assert sorted(found) == edges.steps(node, direction)
            assert [target for target, _ in found] == sorted(target for target, _ in found)
            assert neighbours_in(side, node) == sorted(edges.neighbours(node, direction))
    assert adjacency.edge_count == len(edges.pairs)


@settings(max_examples=100)
@given(edges_between())
def test_a_second_pair_of_arrays_exists_only_for_parallel_edges(edges: Edges) -> None:
    side = index_of(edges).side(Direction.OUT)
    has_parallel = len(set(edges.pairs)) < len(edges.pairs)
    assert (side.distinct_targets is not side.targets) == has_parallel
    assert (side.distinct_offsets is not side.offsets) == has_parallel


@settings(max_examples=100)
@given(edges_between())
def test_an_edge_costs_twelve_bytes_per_direction_at_most(edges: Edges) -> None:
    adjacency = index_of(edges)
    for direction in (Direction.OUT, Direction.IN):
        side = adjacency.side(direction)
        copies = 2 if side.distinct_targets is not side.targets else 1
        per_node = copies * 8 * (edges.begins(direction) + 1)
        assert side.nbytes - per_node <= 12 * len(edges.pairs)
    sides = adjacency.known_sides()
    assert adjacency.nbytes == sum(side.nbytes for side in sides.values())
    assert set(sides) == {Direction.OUT, Direction.IN}


def test_a_graph_of_usual_degree_costs_less_than_twelve_bytes_per_edge() -> None:
    """Ten edges per node without parallel ones: the ends, the edges and the offsets of nodes together."""
    nodes, degree = 1_000, 10
    source = np.repeat(np.arange(nodes), degree)
    target = (source + np.tile(np.arange(1, degree + 1), nodes)) % nodes
    side = build_side(source, target, np.arange(nodes * degree), nodes, nodes)
    assert side.nbytes <= 9 * nodes * degree


def test_row_ids_beyond_32_bits_are_kept_whole() -> None:
    large = np.array([2**32, 5, 2**40 + 1])
    side = build_side(np.array([1, 0, 1]), np.array([0, 0, 0]), large, 2, 1)
    assert side.edges[side.offsets[0] : side.offsets[1]].tolist() == [5]
    assert sorted(side.edges[side.offsets[1] :].tolist()) == [2**32, 2**40 + 1]
    narrow = build_side(np.array([0]), np.array([0]), np.array([2**32 - 1]), 1, 1)
    assert narrow.edges.tolist() == [2**32 - 1]
    assert narrow.edges.itemsize == 4


@each_case(("sources", "targets"), [(0, 0), (3, 0), (0, 3), (2, 2)])
def test_no_edges_lead_nowhere(sources: int, targets: int) -> None:
    none = np.zeros(0, np.int64)
    adjacency = Adjacency.build(none, none, none, sources=sources, targets=targets)
    assert adjacency.side(Direction.OUT).offsets.tolist() == [0] * (sources + 1)
    assert adjacency.side(Direction.IN).offsets.tolist() == [0] * (targets + 1)
    assert adjacency.edge_count == 0


def test_a_side_is_made_once() -> None:
    adjacency = index_of(Edges(2, 2, ((0, 1), (1, 1))))
    assert set(adjacency.known_sides()) == {Direction.OUT}
    assert adjacency.side(Direction.BOTH) is adjacency.side(Direction.BOTH)
    assert set(adjacency.known_sides()) == {Direction.OUT, Direction.BOTH}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ranges_run_one_after_the_other(parts: list[tuple[int, int]]) -> None:
    starts, counts = (np.array([part[end] for part in parts], np.int64) for end in (0, 1))
    expected = [start + step for start, count in parts for step in range(count)]
    assert ranges(starts, counts).tolist() == expected


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=8),
)
def test_pairs_of_places_and_targets_follow_the_question(
    counts: list[int], asked: list[int]
) -> None:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    reach = Reach(offsets, np.arange(int(offsets[-1])))
    places = np.array([place % len(counts) for place in asked], np.int64)
    index, spots = neighbours_of(reach, places)
    expected = [
        (number, spot)
        for number, place in enumerate(places.tolist())
        for spot in range(int(offsets[place]), int(offsets[place + 1]))
    ]
    assert list(zip(index.tolist(), spots.tolist(), strict=True)) == expected


# ---- reachability


def walker(edges: Edges, direction: Direction, gap: int = 1) -> AdjacentNeighbours:
    """Walks over the index; the row id of node `n` is `gap * n`."""

    def numbered(count: int) -> Any:
        ids = None if gap == 1 else np.arange(count) * gap
        return SimpleNamespace(numbering=lambda: Numbering(count, ids), budget=Budget())

    begin, end = edges.sources, edges.targets
    if direction is Direction.IN:
        begin, end = end, begin
    return AdjacentNeighbours(index_of(edges), direction, numbered(begin), numbered(end))


def answers(
    neighbours: AdjacentNeighbours, sources: np.ndarray, low: int, high: int, *, is_dense: bool
) -> list[list[int]]:
    """Per source, the row ids that it reaches."""
    found: list[list[int]] = []
    parts = reach_within(neighbours, sources, low, high, is_dense=is_dense, budget=Budget())
    for start, reach in parts:
        assert start == len(found), "parts follow each other"
        ids = neighbours.row_ids(reach.targets).tolist()
        bounds = reach.offsets.tolist()
        found += [ids[low_:high_] for low_, high_ in pairwise(bounds)]
    return found


@settings(max_examples=250)
@given(
    edges=edges_between(same_type=True),
    bounds=hops(),
    direction=st.sampled_from(Direction),
    gap=st.sampled_from([1, 3]),
    data=st.data(),
)
def test_reached_is_what_a_walk_by_definition_reaches(edges, bounds, direction, gap, data) -> None:
    nodes = data.draw(st.lists(st.integers(0, edges.sources - 1), min_size=1, unique=True))
    low, high = bounds
    neighbours = walker(edges, direction, gap)
    sources = np.array(nodes, np.int64) * gap
    expected = [
        sorted(n * gap for n in edges.reached(node, direction, low, high)) for node in nodes
    ]
    for is_dense in (True, False):
        assert answers(neighbours, sources, low, high, is_dense=is_dense) == expected


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["by marks", "by sorting"])
@pytest.mark.parametrize("cells", [1, 10, 30])
@settings(max_examples=60)
@given(edges=edges_between(same_type=True), bounds=hops())
def test_parts_and_bitmaps_of_any_size_give_the_same(cells, share, edges, bounds) -> None:
    neighbours = walker(edges, Direction.OUT)
    sources = np.arange(edges.sources)
    expected = [sorted(edges.reached(node, Direction.OUT, *bounds)) for node in sources.tolist()]
    with (
        mock.patch.object(reachability, "_BITMAP_CELLS", cells),
        mock.patch.object(reachability, "_DENSE_SHARE", share),
        mock.patch.object(reachability, "_STEP_EDGES", 2),
        mock.patch.object(reachability, "_STEP_NODES", 3),
    ):
        assert answers(neighbours, sources, *bounds, is_dense=True) == expected


@pytest.mark.parametrize("is_dense", [True, False])
def test_nobody_reaches_nobody(is_dense: bool) -> None:
    neighbours = walker(Edges(1, 1, ((0, 0),)), Direction.OUT)
    assert answers(neighbours, np.zeros(0, np.int64), 1, 2, is_dense=is_dense) == []


#: 0 → 1 → 2 → 0 is a cycle, 2 → 3 leaves it, 1 and 3 have loops, 0 → 1 is doubled.
KNOWN = Edges(4, 4, ((0, 1), (0, 1), (1, 2), (2, 0), (2, 3), (1, 1), (3, 3)))


@each_case(
    ("node", "direction", "low", "high", "expected"),
    [
        (0, Direction.OUT, 1, 1, {1}),
        (0, Direction.OUT, 1, 9, {1, 2, 3}),
        (0, Direction.OUT, 2, 2, {2}),
        (0, Direction.OUT, 3, 3, {3}),
        (0, Direction.OUT, 4, 9, set()),
        # The loop of the source counts at hop 1, and only there.
        (1, Direction.OUT, 1, 1, {1, 2}),
        (1, Direction.OUT, 1, 9, {0, 1, 2, 3}),
        (1, Direction.OUT, 2, 9, {0, 3}),
        (3, Direction.OUT, 1, 5, {3}),
        (3, Direction.OUT, 2, 5, set()),
        (3, Direction.IN, 1, 2, {1, 2, 3}),
        (0, Direction.BOTH, 1, 1, {1, 2}),
        (0, Direction.BOTH, 2, 9, {3}),
    ],
)
def test_cycles_loops_and_bounds_on_a_known_graph(node, direction, low, high, expected) -> None:
    assert KNOWN.reached(node, direction, low, high) == expected, "the model itself"
    for is_dense in (True, False):
        (found,) = answers(walker(KNOWN, direction), np.array([node]), low, high, is_dense=is_dense)
        assert found == sorted(expected)
