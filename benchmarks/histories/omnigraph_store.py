"""OmniGraph as it comes: every commit is flushed to disk, every rule of the schema is checked."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from histories.contract import ANCHOR, MAIN
from histories.data import Files, spread
from loading.data import SCHEMA
from omnigraph import Graph
from omnigraph.commit.rows import INTERNAL_SCHEMA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

_QUERIES = """
query insert_person($pid: String) { insert Person { pid: $pid, name: "n", age: 3, score: 0.5 } }
query insert_edge($pid: String) {
  insert Knows { from: $pid, to: $pid, since: date("2020-01-01"), kind: "work", weight: 0.5 }
}
query change_person($pid: String, $score: F64) {
  update Person set { score: $score } where pid = $pid
}
"""


class OmnigraphStore:
    """A graph on disk."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._path = path
        self._files = files
        self._graph = Graph.open(path)

    @staticmethod
    def build(files: Files, path: Path) -> None:
        """Load through Spark and build the indexes."""
        with Graph.init(path, SCHEMA) as graph:
            graph.load(mapping=files.mapping, mode="append", engine="spark")
            graph.ensure_indices()

    @staticmethod
    def create(path: Path) -> None:
        """A graph with one person."""
        with Graph.init(path, SCHEMA) as graph:
            graph.mutate(_QUERIES, {"pid": ANCHOR}, name="insert_person")

    @staticmethod
    def version() -> str:
        """Of the package and of its storage format."""
        return f"{metadata.version('omnigraph')}-{INTERNAL_SCHEMA_VERSION}"

    def create_branch(self, name: str) -> None:
        """One row of the catalog."""
        self._graph.create_branch(name)

    def insert_person(self, key: str, branch: str = MAIN) -> None:
        """A mutation that looks for the key first."""
        self._graph.mutate(_QUERIES, {"pid": key}, name="insert_person", branch=branch)

    def insert_edge(self, branch: str = MAIN) -> None:
        """A mutation that looks for both ends first."""
        self._graph.mutate(_QUERIES, {"pid": ANCHOR}, name="insert_edge", branch=branch)

    def change_person(self, score: float) -> None:
        """An update by key."""
        self._graph.mutate(_QUERIES, {"pid": ANCHOR, "score": score}, name="change_person")

    def change_edges(self, branch: str, count: int, offset: int, weight: float) -> None:
        """A load of whole rows under their ids."""
        import pyarrow as pa

        assert self._files is not None, "only a filled store has edges to change"
        chosen = pa.array(spread(self._files.edges, count, offset))
        rows = self._files.edge_rows.take(chosen)
        weights = pa.array([weight] * count, pa.float64())
        rows = rows.set_column(rows.schema.get_field_index("weight"), "weight", weights)
        self._graph.load(frames={"Knows": rows}, mode="merge", branch=branch, engine="local")

    def diff(self, old: str, new: str) -> int:
        """Every change as an object."""
        return len(list(self._graph.diff(old, new)))

    def merge(self, source: str) -> None:
        """All types of a branch."""
        self._graph.merge(source)

    def log(self) -> int:
        """Every commit as an object."""
        return len(self._graph.commits())

    def reopen(self) -> None:
        """A handle that knows nothing."""
        self.close()
        self._graph = Graph.open(self._path)

    def close(self) -> None:
        """The handle."""
        self._graph.close()
