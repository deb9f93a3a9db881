from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnigraph.graph.graph import Graph
from support.change_feeds import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph of people."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as opened:
        yield opened
