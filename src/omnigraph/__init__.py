"""OmniGraph: a typed property-graph database on Lance datasets.

Every node type and every edge type is its own Lance table, one catalog table makes a commit atomic across all of
them, and the whole graph has branches, merges, history and time travel.

Start with `Graph`; read on at `omnigraph.schema` (the `.pg` language) and `omnigraph.query` (the `.gq` language).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.spark import OmniGraphDataSource, spark_frame
    from omnigraph.graph import Graph

__version__ = "0.1.0"

#: Storage format that this release reads and writes, stamped into every graph.
INTERNAL_SCHEMA_VERSION = 4

__all__ = [
    "INTERNAL_SCHEMA_VERSION",
    "Graph",
    "OmniGraphDataSource",
    "__version__",
    "spark_frame",
]


def __getattr__(name: str) -> object:
    # Loaded at first use: importing the package alone stays free.
    if name == "Graph":
        from omnigraph.graph import Graph as graph_class

        return graph_class
    if name in ("OmniGraphDataSource", "spark_frame"):
        import omnigraph.engine.spark

        return getattr(omnigraph.engine.spark, name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
