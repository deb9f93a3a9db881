"""How often a write looks at the catalog, and how often it lists what dead writers left.

A look costs a request on an object store. Two are needed: one for the snapshot that a write is prepared against, one
inside the commit window. Sidecars are listed once, in the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError
from omnigraph.storage.location import RECOVERY_FOLDER
from omnigraph.storage.manifest_table import ManifestView
from omnigraph.storage.objects import ControlObjects

SCHEMA = "node Person { name: String @key  age: I32? }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        mutate(graph, 'insert Person { name: "ann" }')
        graph.create_branch("dev")
        mutate(graph, 'insert Person { name: "bob" }', branch="dev")
        yield graph


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the catalog was probed and read, and how often sidecars were listed."""
    counted: Counter[str] = Counter()

    def count(owner: type, method: str, name: str, wanted: Callable[..., bool]) -> None:
        original = getattr(owner, method)

        def counting(self: object, *given: Any) -> Any:
            counted[name] += wanted(*given)
            return original(self, *given)

        monkeypatch.setattr(owner, method, counting)

    count(ManifestView, "is_current", "probes", lambda: True)
    count(ManifestView, "_read", "scans", lambda _: True)
    count(ControlObjects, "names", "listings", lambda folder: folder == RECOVERY_FOLDER)
    return counted


def mutate(graph: Graph, statement: str, **options: Any) -> object:
    return graph.mutate(f"query write() {{ {statement} }}", **options)


WRITES: dict[str, tuple[Callable[[Graph], object], dict[str, int]]] = {
    "insert": (lambda graph: mutate(graph, 'insert Person { name: "cid" }'), {"probes": 2, "listings": 1}),
    "insert on a branch": (
        lambda graph: mutate(graph, 'insert Person { name: "cid" }', branch="dev"),
        {"probes": 2, "listings": 1},
    ),
    "update": (
        lambda graph: mutate(graph, 'update Person set { age: 3 } where name = "ann"'),
        {"probes": 2, "listings": 1},
    ),
    "no row matches": (lambda graph: mutate(graph, 'delete Person where name = "zoe"'), {"probes": 1, "listings": 1}),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_asks_no_more_than_it_has_to(graph: Graph, requests: Counter[str], name: str) -> None:
    write, wanted = WRITES[name]
    write(graph)
    assert +requests == wanted


def test_a_precondition_costs_nothing_while_the_head_is_the_expected_one(graph: Graph, requests: Counter[str]) -> None:
    head = graph.snapshot().commit_id
    requests.clear()
    mutate(graph, 'insert Person { name: "cid" }', if_commit=head)
    assert +requests == {"probes": 2, "listings": 1}


def test_a_refused_write_asks_once(graph: Graph, requests: Counter[str]) -> None:
    with pytest.raises(CompilerError):
        mutate(graph, 'insert Person { nme: "cid" }')
    assert +requests == {"probes": 1, "listings": 1}
