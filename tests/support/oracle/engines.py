"""Real graphs for worlds: in every state of the indexes, opened in every traversal mode."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from omnigraph import Graph
from omnigraph.errors import CompilerError, IntegerOverflowError
from support.oracle.answers import Answer
from support.oracle.graphs import SCHEMA, World, halves, load

MODE_VARIABLE = "OMNIGRAPH_TRAVERSAL_MODE"
KERNELS_VARIABLE = "OMNIGRAPH_KERNELS"
#: The ways of traversal, and the last one once more with the loops that walk it as machine code.
MODES = ("indexed", "scan", "csr", "compiled")


class IndexState(StrEnum):
    """How much of the data the indexes cover."""

    NONE = "none"
    HALF = "half"
    FULL = "full"


@contextmanager
def traversal_mode(mode: str) -> Iterator[None]:
    """The environment in which one way of traversal is forced."""
    forced = {MODE_VARIABLE: mode}
    if mode == "compiled":
        forced = {MODE_VARIABLE: "csr", KERNELS_VARIABLE: "compiled"}
    with mock.patch.dict(os.environ, forced):
        yield


class Workshop:
    """Makes graphs below one folder; creating one costs a copy of an empty graph, not an initialisation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template"
        self._made = 0
        Graph.init(self._template, SCHEMA).close()

    def store(self, world: World, state: IndexState) -> Path:
        """A graph with the rows of a world in two commits."""
        self._made += 1
        path = self._folder / f"graph{self._made}"
        shutil.copytree(self._template, path)
        first, second = halves(world)
        with Graph.open(path) as graph:
            load(graph, first)
            if state is IndexState.HALF:
                graph.ensure_indices()
            load(graph, second)
            if state is IndexState.FULL:
                graph.ensure_indices()
        return path

    @contextmanager
    def stored(self, world: World, state: IndexState) -> Iterator[Path]:
        """A graph that is gone afterwards."""
        path = self.store(world, state)
        try:
            yield path
        finally:
            shutil.rmtree(path)


def opened(path: Path) -> dict[str, Graph]:
    """The graph, opened once per traversal mode."""
    graphs: dict[str, Graph] = {}
    for mode in MODES:
        with traversal_mode(mode):
            graphs[mode] = Graph.open(path, read_only=True)
    return graphs


def objections(graphs: Mapping[str, Graph], text: str, params: Mapping[str, Any], answer: Answer) -> dict[str, str]:
    """What is wrong with the result in each mode; empty when everything is right."""
    found: dict[str, str] = {}
    for mode, graph in graphs.items():
        try:
            with traversal_mode(mode):
                result = graph.query(text, params)
                rows = result.to_pylist()
        except IntegerOverflowError as error:
            if not answer.fails:
                found[mode] = f"{error}"
            continue
        except CompilerError as error:
            # What overflows in constants alone is refused before anything runs.
            if set(error.codes) != {"Q109"}:
                found[mode] = f"{error}"
            continue
        except Exception as error:  # noqa: BLE001  # reported as what is wrong in this mode
            place = traceback.extract_tb(error.__traceback__)[-1]
            found[mode] = f"{type(error).__name__} at {place.filename}:{place.lineno}: {error}"
            continue
        problem = answer.objection(result.columns, rows)
        if problem is None and result.row_count != len(rows):
            problem = f"{len(rows)} rows, but a row count of {result.row_count}"
        if problem is not None:
            found[mode] = problem
    return found
