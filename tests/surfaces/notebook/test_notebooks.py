"""The magic `%%gq`, and the notebook of the examples as Jupyter runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from omnigraph import Graph
from omnigraph.errors import BadRequestError
from omnigraph.notebook import load_ipython_extension, read_call

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebook" / "first-hour.ipynb"


class Shell:
    """Knows variables and magics, as IPython does."""

    def __init__(self, **variables: Any) -> None:
        self.user_ns = variables
        self.magics: dict[str, Any] = {}

    def register_magic_function(self, func: Any, magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "line_cell"
        assert func._ipython_magic_no_var_expand
        self.magics[magic_name] = func


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", "node Person { name: String @key  age: I32? }") as graph:
        graph.mutate('insert Person { name: "ada", age: 36 } insert Person { name: "bo", age: 5 }')
        yield graph


def test_the_magic_runs_queries_with_variables_as_parameters(graph: Graph) -> None:
    shell = Shell(graph=graph, _=graph, age=6, name="cy")
    load_ipython_extension(shell)
    gq = shell.magics["gq"]
    found = gq("--into older", "match { $p: Person  $p.age > $age } return { $p.name as name }")
    assert found.to_pylist() == [{"name": "ada"}]
    assert shell.user_ns["older"] is found
    assert gq("graph match { $p: Person } return { count($p) as n }").to_pylist() == [{"n": 2}]
    graph.create_branch("work")
    assert gq("--branch work", "insert Person { name: $name }").affected_nodes == 1
    assert gq("--branch work match { $p: Person } return { count($p) as n }").to_pylist() == [{"n": 3}]
    assert gq("graph --show", "match { $p: Person } return { $p.age }").drawing.label == "query: 2 nodes and 0 edges"


def test_a_wrong_use_of_the_magic_says_what_is_right(graph: Graph) -> None:
    for line, cell, variables, text in (
        ("--brnch x", "match", {"graph": graph}, "there is no option --brnch"),
        ("grph", "match", {"graph": graph}, "neither a variable with a graph nor an option"),
        ("", "match", {}, "no variable holds a graph"),
    ):
        with pytest.raises(BadRequestError, match=text):
            read_call(line, cell, variables)
    with Graph.open(graph.uri) as other, pytest.raises(BadRequestError, match="several variables hold graphs"):
        read_call("", "match", {"one": graph, "two": other})


def test_the_notebook_of_the_examples_runs_and_shows_everything() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert sum(page.startswith("<iframe ") for page in pages) == 3
    assert any("<svg " in page for page in pages)
    assert not any(" object at 0x" in data["text/plain"] for data in shown)
