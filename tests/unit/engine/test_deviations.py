"""Standard deviations of values whose squares are beyond floats."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.results.grouping import deviations


def test_values_far_apart_have_a_deviation() -> None:
    found = deviations(np.array([0, 0, 1, 1]), pa.array([0.0, 1e300, 1.0, 3.0]), 2).to_pylist()
    assert found == [pytest.approx(1e300 / np.sqrt(2)), pytest.approx(np.sqrt(2))]


def test_an_infinite_value_leaves_other_groups_as_they_are() -> None:
    found = deviations(np.array([0, 0, 1, 1]), pa.array([0.0, float("inf"), 1.0, 3.0]), 2).to_pylist()
    assert found[1] == pytest.approx(np.sqrt(2))
