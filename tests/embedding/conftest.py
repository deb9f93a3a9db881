from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from search.conftest import KEY_VARIABLES, stand_in
from spark.conftest import spark

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["spark", "stand_in"]


@pytest.fixture(scope="package", autouse=True)
def _no_flush() -> Iterator[None]:
    """No test here pulls the plug, so nothing has to be flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        yield


@pytest.fixture(autouse=True)
def _mock_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are made up, and no variable of the machine reaches a test."""
    for name in list(os.environ):
        is_setting = name.startswith("OMNIGRAPH_EMBED") or name in KEY_VARIABLES
        if is_setting or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
