"""What a server serves: its graphs, and the stored queries of each.

Owns: the configuration file of a server, stored queries, their check against a schema and their catalog. Used by the
server and by the command line. Opens no graph and knows no HTTP. Start reading at `config`, then `stored`.
"""

from omnigraph.serving.config import ServedGraph, ServerConfig, read_config, single_graph
from omnigraph.serving.sources import QuerySource, query_sources
from omnigraph.serving.stored import (
    BUILT_IN_TOOLS,
    CheckReport,
    RegistryFinding,
    StoredQueries,
    StoredQuery,
    check_files,
)

__all__ = [
    "BUILT_IN_TOOLS",
    "CheckReport",
    "QuerySource",
    "RegistryFinding",
    "ServedGraph",
    "ServerConfig",
    "StoredQueries",
    "StoredQuery",
    "check_files",
    "query_sources",
    "read_config",
    "single_graph",
]
