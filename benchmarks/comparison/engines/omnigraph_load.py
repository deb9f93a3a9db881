"""Fills an empty graph from a dataset, in one commit, through the loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphs.folder import Dataset
    from omnigraph import Graph


def fill(graph: Graph, dataset: Dataset) -> None:
    """Append every row of the dataset; all of them become visible at once."""
    nodes = {name: {"source": str(dataset.node_path(name))} for name in dataset.nodes}
    edges = {name: {"source": str(dataset.edge_path(name)), "from": "from", "to": "to"} for name in dataset.edges}
    graph.load(mapping={"nodes": nodes, "edges": edges}, mode="append", engine="spark")
