"""The choice of a way to the nearest vectors, and what is kept of the measurement of an index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omnigraph.engine.ranking.ranked_rows import next_window
from omnigraph.engine.tables.settings import EngineSettings
from omnigraph.engine.tables.vector_ways import RecallCurve, VectorChoice, VectorFacts, VectorWay, choose_way
from support.subtests import each_case

CURVE = RecallCurve(
    probes=np.array([1, 4, 16, 64]),
    depths=np.array([10, 100]),
    recalls=np.array([[0.5, 0.90, 0.97, 1.0], [0.3, 0.70, 0.94, 0.99]]),
    errors=np.array([[0.05, 0.01, 0.01, 0.0], [0.05, 0.01, 0.01, 0.0]]),
    rows=100_000,
)
FACTS = VectorFacts(
    rows=100_000, survivors=100_000, dimension=100, count=10, wanted=0.95, curve=CURVE, exact_values=1_000_000
)
EXACT, STREAM = VectorChoice(VectorWay.EXACT), VectorChoice(VectorWay.STREAM)


def index(probes: int, recall: float) -> VectorChoice:
    return VectorChoice(VectorWay.INDEX, probes, recall)


@each_case(
    ("changes", "expected"),
    [
        ({}, index(16, 0.97)),
        # The error of the measurement is not taken for recall.
        ({"wanted": 0.965}, index(64, 1.0)),
        ({"wanted": 0.4}, index(1, 0.5)),
        ({"wanted": 1.0}, STREAM),
        ({"count": None}, STREAM),
        # Deeper than what was measured.
        ({"count": 101}, STREAM),
        ({"count": 11}, index(64, 0.99)),
        ({"curve": None}, STREAM),
        # Rows times dimensions within the budget, with and without a filter.
        ({"exact_values": 10_000_000}, EXACT),
        ({"survivors": 10_000}, EXACT),
        ({"survivors": None, "exact_values": 10_000_000}, EXACT),
        # It depends on how many rows pass the filter.
        ({"survivors": None}, None),
        # A filter lets one row in two pass: the ten nearest are among the twenty nearest of all.
        ({"survivors": 50_000}, index(64, 0.99)),
        ({"survivors": 50_000, "count": 5}, index(16, 0.97)),
        ({"survivors": 10_001, "count": 20}, EXACT),
        # Half of what was there when it was measured is deleted.
        ({"rows": 50_000, "survivors": 50_000}, index(64, 0.99)),
    ],
)
def test_the_cheapest_way_with_the_wanted_recall_is_taken(changes: dict, expected: VectorChoice | None):
    assert choose_way(replace(FACTS, **changes)) == expected


def test_a_curve_is_what_was_kept():
    kept = RecallCurve.unpack(CURVE.pack())
    assert kept is not None
    assert kept.rows == CURVE.rows
    for name in ("probes", "depths", "recalls", "errors"):
        assert np.array_equal(getattr(kept, name), getattr(CURVE, name))


@each_case(
    "changes",
    [
        {"probes": np.array([1, 4, 4, 64])},
        {"probes": np.array([0, 4, 16, 64])},
        {"probes": np.array([1.0, 4.0, 16.0, 64.0])},
        {"probes": np.zeros((0,), np.int64)},
        {"depths": np.array([10])},
        {"recalls": np.array([[0.5, 0.9, 0.97, 1.1], [0.3, 0.7, 0.94, 0.99]])},
        {"recalls": np.array([[0.5, 0.9, 0.97, np.nan], [0.3, 0.7, 0.94, 0.99]])},
        {"errors": np.array([0.0])},
        {"rows": np.array([0])},
        {"rows": np.array([1, 2])},
    ],
)
def test_what_is_not_a_curve_is_not_taken_for_one(changes: dict):
    assert RecallCurve.unpack(CURVE.pack() | changes) is None


@pytest.mark.parametrize("name", ["probes", "depths", "recalls", "errors", "rows"])
def test_a_curve_that_lacks_a_part_is_not_one(name: str):
    arrays = CURVE.pack()
    del arrays[name]
    assert RecallCurve.unpack(arrays) is None


@each_case(
    ("count", "survived", "wanted", "expected"),
    [(64, 0, 10, 512), (64, 1, 10, 960), (64, 5, 10, 192), (64, 9, 10, 128), (64, 1, 1000, 4096)],
)
def test_a_window_grows_by_what_the_last_one_let_through(count: int, survived: int, wanted: int, expected: int):
    assert next_window(count, survived, wanted) == expected


# ---- settings


@each_case(
    ("text", "default", "of_note"),
    [
        (None, 0.95, 0.95),
        ("0.8", 0.8, 0.8),
        (" 0.8 , Note.vec = 0.99 ", 0.8, 0.99),
        ("Note.vec=1", 0.95, 1.0),
        ("0, Note.vec=2", 0.95, 0.95),
        ("much", 0.95, 0.95),
        ("nan", 0.95, 0.95),
    ],
)
def test_the_wanted_recall_is_that_of_the_property_or_of_all(text: str | None, default: float, of_note: float):
    with pytest.MonkeyPatch.context() as patch:
        if text is not None:
            patch.setenv("OMNIGRAPH_VECTOR_RECALL", text)
        settings = EngineSettings.from_environment()
    assert settings.recall_of("Doc", "vec") == default
    assert settings.recall_of("Note", "vec") == of_note


def test_a_recall_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("OMNIGRAPH_VECTOR_RECALL", "0.9, Note.vec=2")
    assert EngineSettings.from_environment().vector_recall == 0.9
    assert "Note.vec=2 is not a recall" in caplog.text
