"""Whatever method of Lance gives up: callers get a typed failure, from every operation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from omnigraph.errors import OmniError

SCHEMA = """
node A { k: String @key  n: I64? @index  t: String? @index  b: Blob? }
edge E: A -> A
"""
QUERY = "query q() { match { $a: A  $a e $b  $b.n > 0 } return { $a.k, $b.t } }"
SEARCH = 'query q() { match { $a: A  search($a.t, "tea") } return { $a.k } }'
METHODS = ("scanner", "get_fragments", "describe_indices", "_take_rows", "commit")
OTHERS = (
    *("to_table", "count_rows", "get_fragment", "read_transaction", "tracked_files", "versions"),
    *("read_blobs", "read_blob_ranges", "merge_insert", "create_branch"),
)


class PanicException(BaseException):  # named as the one that cannot be imported
    """Stands for the class that extension modules make."""


PanicException.__module__ = "pyo3_runtime"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("panics") / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(
            'query q() { insert A { k: "x", n: 1, t: "tea", b: "base64:SGVsbG8=" } '
            'insert A { k: "y", n: 2 } insert E { from: "x", to: "y" } }'
        )
        graph.create_branch("side")
        graph.mutate('query q() { update A set { n: 5 } where k = "y" }', branch="side")
        graph.ensure_indices()
    return root


def operations(graph: Graph, folder: Path) -> dict[str, Callable[[], object]]:
    return {
        "query": lambda: list(graph.query(QUERY)),
        "search": lambda: list(graph.query(SEARCH, branch="side")),
        "blob": lambda: graph.read_blob("node:A", "x", "b"),
        "diff": lambda: graph.diff("main", "side").to_json(),
        "export": lambda: graph.export(folder / "out.jsonl"),
        "doctor": graph.doctor,
        "insert": lambda: graph.mutate('query q() { insert A { k: "z" } }'),
        "delete": lambda: graph.mutate('query q() { delete A where k = "x" }'),
        "merge": lambda: graph.merge("side", "main"),
        "indexes": graph.ensure_indices,
        "optimize": graph.optimize,
        "cleanup": lambda: graph.cleanup(keep=3, confirm=True),
    }


@pytest.mark.parametrize(
    "method", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_panic_is_a_typed_failure_of_every_operation(
    method: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "g.omni"
    shutil.copytree(source, root)
    assert hasattr(lance.LanceDataset, method), "Lance has another name for it"

    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    untyped = []
    with Graph.open(root) as graph:
        monkeypatch.setattr(lance.LanceDataset, method, panic)
        for name, run in operations(graph, tmp_path).items():
            try:
                run()
            except OmniError:
                continue
            except BaseException as error:  # noqa: BLE001  # what must not happen is what this looks for
                untyped.append((name, repr(error)))
        monkeypatch.undo()
    assert not untyped
