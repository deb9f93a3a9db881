from __future__ import annotations

import os

import pytest

from support.spark import spark
from unit.embedding.conftest import KEY_VARIABLES, stand_in

__all__ = ["spark", "stand_in"]


@pytest.fixture(autouse=True)
def _mock_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are made up, by `embed` and not by writes, and no variable of the machine reaches a test."""
    for name in list(os.environ):
        is_setting = name.startswith("OMNIGRAPH_EMBED") or name in KEY_VARIABLES
        if is_setting or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")
