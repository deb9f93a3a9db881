from __future__ import annotations

import pytest

from support.spark import spark

__all__ = ["spark"]


@pytest.fixture
def _few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vector indexes for tables that a test can fill."""
    monkeypatch.setattr("omnigraph.engine.tables.wanted_indexes.VECTOR_INDEX_MIN_ROWS", 8)
