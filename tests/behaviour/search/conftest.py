from __future__ import annotations

import os

import pytest

KEY_VARIABLES = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting, key or proxy of the machine reaches a test."""
    for name in list(os.environ):
        is_setting = name.startswith(("OMNIGRAPH_EMBED", "OMNIGRAPH_TRAVERSAL", "OMNIGRAPH_EXPAND"))
        if is_setting or name in KEY_VARIABLES or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
