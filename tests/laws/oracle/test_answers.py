"""The judge itself: what it accepts and what it objects to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from support.oracle.answers import Answer, Approximate, Instant, Unpredicted
from support.oracle.text import distance, is_similar, matches_text, searches
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
