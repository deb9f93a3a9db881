from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.change_feeds import SCHEMA


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph of people."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as opened:
        yield opened
