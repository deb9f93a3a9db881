"""The engine that runs reads in this process, over Arrow arrays, Lance scans and traversal indexes.

Owns: operators on row ids with late materialisation, and what is kept between queries. Never starts a JVM, never writes
to a table. Rows travel as batches of row ids; values are read when an operator needs them. Start reading at `executor`,
then `pipeline`; semantics are those of `omnigraph.query.ir` and nothing else.
"""

from omnigraph.engine.local.adjacencies import PERSIST_MIN_EDGES, find_adjacency
from omnigraph.engine.local.context import Context, EngineCaches, QueryEmbedder
from omnigraph.engine.local.executor import ResultStream, execute
from omnigraph.engine.local.pipeline import Measured, Profile
from omnigraph.engine.local.plan import Plan, plan_query
from omnigraph.engine.local.text_parts import keep_text_column
from omnigraph.engine.local.variables import variable_tables

__all__ = [
    "PERSIST_MIN_EDGES",
    "Context",
    "EngineCaches",
    "Measured",
    "Plan",
    "Profile",
    "QueryEmbedder",
    "ResultStream",
    "execute",
    "find_adjacency",
    "keep_text_column",
    "plan_query",
    "variable_tables",
]
