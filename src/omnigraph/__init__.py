"""OmniGraph: a typed property-graph database on Lance datasets.

Every node type and every edge type is its own Lance table, one manifest table makes a commit atomic across all of
them, and the whole graph has branches, merges, history and time travel.

Start with `Graph`. The names below are the public ones, together with the failures in `omnigraph.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.embedding.providers import mock_vector
    from omnigraph.graph.graph import Graph
    from omnigraph.graph.starting import infer
    from omnigraph.lang.query.compiler import compile_query
    from omnigraph.lang.schema.compiler import compile_schema
    from omnigraph.policy.policy import Policy, PolicyGate
    from omnigraph.policy.rules import Action, PolicyRequest
    from omnigraph.spark import OmniGraphDataSource, spark_frame, spark_session

__version__ = "0.1.0"

#: Storage format that this release reads and writes, stamped into every graph.
INTERNAL_SCHEMA_VERSION = 4

__all__ = [
    "INTERNAL_SCHEMA_VERSION",
    "Action",
    "Graph",
    "GraphApi",
    "OmniGraphDataSource",
    "Policy",
    "PolicyGate",
    "PolicyRequest",
    "__version__",
    "compile_query",
    "compile_schema",
    "infer",
    "mock_vector",
    "spark_frame",
    "spark_session",
]

#: Where the names are: they are loaded at first use, so that importing the package alone stays free.
_HOMES = {
    "Action": "policy.rules",
    "Graph": "graph.graph",
    "GraphApi": "api.graph_api",
    "OmniGraphDataSource": "spark",
    "Policy": "policy.policy",
    "PolicyGate": "policy.policy",
    "PolicyRequest": "policy.rules",
    "compile_query": "lang.query.compiler",
    "compile_schema": "lang.schema.compiler",
    "infer": "graph.starting",
    "mock_vector": "embedding.providers",
    "spark_frame": "spark",
    "spark_session": "spark",
}


def __getattr__(name: str) -> object:
    from omnigraph.core.lazy_exports import late_exports

    return late_exports(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return __all__
