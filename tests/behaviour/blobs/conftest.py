from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from omnigraph.graph.graph import Graph
from support.cli_graphs import Outcome
from support.papers_with_blobs import SCHEMA, SIZES, citation, content, paper, text_of, write_lines


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Papers and citations with a blob of every size, an empty one and none; tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        folder = tmp_path_factory.mktemp("library")
        cells = {name: text_of(content(size)) for name, size in SIZES.items()}
        cells |= {"empty": "base64:", "none": None}
        records = [paper(name, scan=text) for name, text in cells.items()]
        records += [citation(name, name, "empty", text) for name, text in cells.items()]
        with Graph.init(folder / "g.omni", SCHEMA) as graph:
            graph.load(write_lines(folder / "in.jsonl", records), mode="append", engine="local")
            yield graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        yield graph


@pytest.fixture
def og(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Run a command in this process; what it prints comes as it was written, in a text of single bytes."""

    def call(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        printed = capfdbinary.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out.decode("latin-1"), printed.err.decode("utf-8"))

    return call
