"""Names that both ends of the wire use: media types, headers, and where a token comes from."""

from __future__ import annotations

from omnigraph.core.env_settings import Variable

#: Media types of bodies.
JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"

#: Header of a conditional write: the one commit at which the branch has to be.
IF_GRAPH_COMMIT = "Omnigraph-If-Graph-Commit"
#: Header of a blob or an export: the commit that was read.
SNAPSHOT_ID = "Omnigraph-Snapshot-Id"
#: Header of an export: the table keys of everything it holds, also of types without rows, separated by blanks.
EXPORTED_TYPES = "Omnigraph-Types"
#: Header of a blob: the table key of its type as the schema spells it.
TYPE_KEY = "Omnigraph-Type"

BEARER_TOKEN = Variable(
    "OMNIGRAPH_BEARER_TOKEN",
    "The token that a client or the command line sends when it is given none.",
    values="a token",
)
#: The graph of a server that serves one and has no name for it.
DEFAULT_GRAPH = "default"
