"""OmniGraph: a typed property-graph database on Lance datasets.

Every node type and every edge type is its own Lance table, one catalog table makes a commit atomic across all of
them, and the whole graph has branches, merges, history and time travel.

Start reading at `omnigraph.schema` (the `.pg` language) and `omnigraph.query` (the `.gq` language).
"""

__version__ = "0.1.0"

#: Storage format that this release reads and writes, stamped into every graph.
INTERNAL_SCHEMA_VERSION = 4

__all__ = ["INTERNAL_SCHEMA_VERSION", "__version__"]
