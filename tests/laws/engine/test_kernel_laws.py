"""Loops over neighbour lists against sets: with numpy and as machine code, in parts and tables of any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.engine.distinct import distinct_numbers, sorted_distinct
from omnigraph.engine.kernels import intersections, lists
from omnigraph.engine.kernels.intersections import Pair, Ways, are_linked, common_counts, common_pairs, way_sums
from omnigraph.engine.kernels.lists import Lists, are_in_lists, first_places, parts_of
from omnigraph.engine.operators.neighbours import lists_of
from omnigraph.engine.tables.adjacency import build_side
from support.kernels import kernels

#: Nodes of the small graphs; node 0 is a hub.
NODES = 12


@st.composite
def neighbour_sets(draw: st.DrawFn) -> tuple[Lists, list[set[int]]]:
    """Lists of a graph with loops, parallel edges, nodes without edges and a hub, and the same as sets."""
    node = st.integers(0, NODES - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=40))
    if draw(st.booleans()):
        pairs += [(0, other) for other in range(NODES)]
    source, target = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    side = build_side(source, target, np.arange(len(pairs)), NODES, NODES)
    sets = [{end for begin, end in pairs if begin == node} for node in range(NODES)]
    made = lists_of(side, NODES)
    if draw(st.booleans()):
        made = _scattered(made)
    return made, sets


def _scattered(made: Lists) -> Lists:
    """The same lists in another order, with gaps between them."""
    starts, ends, targets = np.zeros(NODES, np.int64), np.zeros(NODES, np.int64), [7]
    for node in reversed(range(NODES)):
        starts[node] = len(targets)
        targets += made.targets[made.starts[node] : made.ends[node]].tolist()
        ends[node] = len(targets)
        targets.append(3)
    return Lists(starts, ends, np.array(targets, np.uint32), NODES)


ROWS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=30)
ALLOWED = st.none() | st.lists(st.booleans(), min_size=NODES, max_size=NODES).map(np.array)
#: Rows in runs, as operators make them, or in any order.
SORTED = st.booleans()


@contextmanager
def sized(form: str) -> Iterator[None]:
    """The loops of one form: as they are, in parts of one step, with marks that are hashed, or with much skew."""
    mode, _, shape = form.partition(" ")
    with ExitStack() as stack:
        stack.enter_context(kernels(mode))
        changes: dict[str, dict[str, int]] = {
            "small": {"_TABLE_CELLS": 100, "MORSEL": 2, "PART_STEPS": 3},
            "hashed": {"_LEAST_SLOTS": 1 << 20, "_TABLE_CELLS": 1 << 12, "_WIDEST": 8},
            "skewed": {"_SKEW": 1},
        }
        for name, value in changes.get(shape, {}).items():
            stack.enter_context(mock.patch.object(intersections, name, value))
        if shape == "small":
            stack.enter_context(mock.patch.object(lists, "PART_STEPS", 0))
        yield


FORMS = ("numpy", "numpy small", "numpy hashed", "numpy skewed", "compiled", "compiled small")
each_form = pytest.mark.parametrize("form", FORMS)


def columns(rows: list[tuple[int, int]], *, is_sorted: bool) -> tuple[np.ndarray, np.ndarray]:
    ordered = sorted(rows) if is_sorted else rows
    return tuple(np.array([row[end] for row in ordered], np.int64) for end in (0, 1))


@each_form
@settings(max_examples=80)
@given(one=neighbour_sets(), two=neighbour_sets(), rows=ROWS, allowed=ALLOWED, is_sorted=SORTED)
def test_intersections_are_those_of_sets(form, one, two, rows, allowed, is_sorted) -> None:
    first, second = columns(rows, is_sorted=is_sorted)
    pair = Pair(one[0], first, two[0], second)
    common = [
        {node for node in one[1][x] & two[1][y] if allowed is None or allowed[node]}
        for x, y in zip(first.tolist(), second.tolist(), strict=True)
    ]
    with sized(form):
        assert common_counts(pair, allowed, Budget()).tolist() == [len(nodes) for nodes in common]
        found = [
            (start + row, node)
            for start, index, nodes in common_pairs(pair, allowed, Budget())
            for row, node in zip(index.tolist(), nodes.tolist(), strict=True)
        ]
    assert sorted(found) == [(row, node) for row, nodes in enumerate(common) for node in sorted(nodes)]


@each_form
@settings(max_examples=80)
@given(one=neighbour_sets(), rows=ROWS, is_sorted=SORTED)
def test_membership_is_that_of_sets(form, one, rows, is_sorted) -> None:
    nodes, wanted = columns(rows, is_sorted=is_sorted)
    expected = [other in one[1][node] for node, other in zip(nodes.tolist(), wanted.tolist(), strict=True)]
    with sized(form):
        assert are_linked(one[0], nodes, wanted, Budget()).tolist() == expected
    assert are_in_lists(one[0], nodes, wanted).tolist() == expected
    places = first_places(one[0], nodes, wanted) - one[0].starts[nodes]
    smaller = [sum(item < other for item in one[1][node]) for node, other in zip(nodes, wanted, strict=True)]
    assert places.tolist() == smaller


@each_form
@settings(max_examples=80)
@given(near=neighbour_sets(), back=neighbour_sets(), rows=ROWS, allowed=ALLOWED, weights=st.booleans())
def test_weights_of_ways_are_added_up(form, near, back, rows, allowed, weights) -> None:
    heads, others = columns(rows, is_sorted=True)
    shares = np.arange(len(rows)) + 2 if weights else None
    starts = np.flatnonzero(np.append(True, heads[1:] != heads[:-1])) if len(heads) else np.zeros(0, np.int64)
    offsets = np.append(starts, len(heads))
    expected = [
        sum(
            1 if shares is None else int(shares[row])
            for row in range(offsets[place], offsets[place + 1])
            for node in near[1][heads[start]]
            if (allowed is None or allowed[node]) and others[row] in back[1][node]
        )
        for place, start in enumerate(starts)
    ]
    ways = Ways(near[0], heads[starts], back[0], offsets, others, shares)
    with sized(form):
        assert way_sums(ways, allowed, Budget()).tolist() == expected


@pytest.mark.parametrize("scale", [1, 1 << 30])
@given(st.lists(st.integers(-5, 40), max_size=30))
def test_distinct_numbers_and_their_places(scale, drawn) -> None:
    numbers = np.array(drawn, np.int64) * scale
    expected = sorted(set(numbers.tolist()))
    assert sorted_distinct(numbers).tolist() == expected
    found, places = distinct_numbers(numbers)
    assert found.tolist() == expected
    assert found[places].tolist() == numbers.tolist()


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 12))
def test_parts_follow_each_other_and_are_bounded(steps, most) -> None:
    parts = list(parts_of(np.array(steps, np.int64), most))
    assert [row for begin, end in parts for row in range(begin, end)] == list(range(len(steps)))
    assert all(sum(steps[begin : end - 1]) <= most for begin, end in parts)
