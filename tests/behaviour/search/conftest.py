from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from omnigraph import Graph
from support.search_graphs import State, in_each_state

KEY_VARIABLES = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting, key or proxy of the machine reaches a test."""
    for name in list(os.environ):
        is_setting = name.startswith(("OMNIGRAPH_EMBED", "OMNIGRAPH_TRAVERSAL", "OMNIGRAPH_EXPAND"))
        if is_setting or name in KEY_VARIABLES or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def libraries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[State, Graph]]:
    """The library of the module in every state of the indexes."""
    folder = tmp_path_factory.mktemp("libraries")
    graphs = {state: request.module.LIBRARY.build(folder, state) for state in State}
    yield graphs
    for graph in graphs.values():
        graph.close()


library = in_each_state("libraries", State)
