"""OmniGraph: a typed property-graph database on Lance datasets.

Every node type and every edge type is its own Lance table, one catalog table makes a commit atomic across all of
them, and the whole graph has branches, merges, history and time travel.

Start with `Graph`. The names below are the public ones, together with the failures in `omnigraph.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.spark.datasource import OmniGraphDataSource
    from omnigraph.engine.spark.frames import spark_frame
    from omnigraph.engine.spark.session import spark_session
    from omnigraph.graph.graph import Graph
    from omnigraph.policy.gate import PolicyGate
    from omnigraph.policy.policy import Policy
    from omnigraph.policy.requests import PolicyRequest
    from omnigraph.policy.rules import Action
    from omnigraph.query.compiler import compile_query
    from omnigraph.schema.compiler import compile_schema
    from omnigraph.search.embedding.mock import mock_vector

__version__ = "0.1.0"

#: Storage format that this release reads and writes, stamped into every graph.
INTERNAL_SCHEMA_VERSION = 4

__all__ = [
    "INTERNAL_SCHEMA_VERSION",
    "Action",
    "Graph",
    "OmniGraphDataSource",
    "Policy",
    "PolicyGate",
    "PolicyRequest",
    "__version__",
    "compile_query",
    "compile_schema",
    "mock_vector",
    "spark_frame",
    "spark_session",
]

#: Where the names are: they are loaded at first use, so that importing the package alone stays free.
_HOMES = {
    "Action": "policy.rules",
    "Graph": "graph.graph",
    "OmniGraphDataSource": "engine.spark.datasource",
    "Policy": "policy.policy",
    "PolicyGate": "policy.gate",
    "PolicyRequest": "policy.requests",
    "compile_query": "query.compiler",
    "compile_schema": "schema.compiler",
    "mock_vector": "search.embedding.mock",
    "spark_frame": "engine.spark.frames",
    "spark_session": "engine.spark.session",
}


def __getattr__(name: str) -> object:
    from omnigraph.late import late_exports

    return late_exports(__name__, _HOMES)(name)
