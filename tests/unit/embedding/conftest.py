from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.embedded_notes import StandIn, StillTime

KEY_VARIABLES = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine reaches a test: neither settings and keys, nor a proxy in front of the loopback."""
    for name in list(os.environ):
        is_setting = name.startswith("OMNIGRAPH_EMBED") or name in KEY_VARIABLES
        if is_setting or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


@pytest.fixture
def time() -> StillTime:
    return StillTime()
