"""Answers that have no class elsewhere: what a server says beside results, commits and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from omnigraph.codec import OMIT_NONE, Document, Key, Text
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.tags import Tag
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.query.signature import FieldDescriptor, Operation


@frozen(kw_only=True)
class Health(Document):
    """A server that lives."""

    status: Literal["ok"] = "ok"
    version: str
    internal_schema_version: int


@frozen(kw_only=True)
class GraphEntry(Document):
    """A graph."""

    graph_id: str
    uri: str


@frozen(kw_only=True)
class Graphs(Document):
    """Graphs by id."""

    graphs: list[GraphEntry]


@frozen(kw_only=True)
class Commits(Document):
    """Commits, newest first."""

    commits: list[GraphCommit]


@frozen(kw_only=True)
class Tags(Document):
    """Tags, sorted by name."""

    tags: list[Tag]


@frozen(kw_only=True)
class Branches(Document):
    """Names, sorted."""

    branches: list[str]


@frozen(kw_only=True)
class Entity(Document):
    """One entity, or null."""

    entity: RowImage | None


@frozen(kw_only=True)
class TargetAnswer(Document):
    """The state that was read: a commit, or a branch at a graph version or a moment."""

    snapshot: Annotated[str | None, OMIT_NONE] = None
    branch: Annotated[str | None, OMIT_NONE] = None
    graph_version: Annotated[int | None, OMIT_NONE] = None
    as_of: Annotated[str | None, OMIT_NONE] = None


@frozen(kw_only=True)
class Rows(Document):
    """The rows of a read, and the commit whose state they show."""

    query_name: str
    target: TargetAnswer
    row_count: int
    columns: list[str]
    rows: list[dict[str, object]]
    graph_commit_id: Annotated[str | None, OMIT_NONE] = None
    truncated: Annotated[bool | None, OMIT_NONE, Text("with `first`: whether there are more rows")] = None


@frozen(kw_only=True)
class Plan(Document):
    """The plan of a query."""

    query_name: str
    kind: Literal["read", "mutation"]
    plan: list[str]
    operation: Operation
    text: str


@frozen(kw_only=True)
class StoredQueryEntry(Document):
    """A stored query as a caller may run it."""

    name: str
    tool_name: str
    description: Annotated[str | None, OMIT_NONE] = None
    instruction: Annotated[str | None, OMIT_NONE] = None
    mutation: bool
    params: list[FieldDescriptor]


@frozen(kw_only=True)
class StoredQueryList(Document):
    """Stored queries by name."""

    queries: list[StoredQueryEntry]


@frozen(kw_only=True)
class SchemaProperty(Document):
    """A property of a type; `annotations` are spelled as in the schema."""

    name: str
    type: str
    nullable: bool
    description: str | None
    annotations: list[str]


@frozen(kw_only=True)
class SchemaType(Document):
    """A node or edge type; the last four are those of edges."""

    name: str
    description: str | None
    properties: list[SchemaProperty]
    source: Annotated[str | None, Key("from"), OMIT_NONE] = None
    target: Annotated[str | None, Key("to"), OMIT_NONE] = None
    cardinality: Annotated[str | None, OMIT_NONE] = None
    key: Annotated[list[str] | None, OMIT_NONE] = None


@frozen(kw_only=True)
class SchemaAnswer(Document):
    """The accepted schema, as text and as types."""

    schema_source: str
    types: Mapping[str, list[SchemaType]]


@frozen(kw_only=True)
class RpcAnswer(Document):
    """The result or the error of a JSON-RPC request."""

    jsonrpc: str
    id: str | int | None
    result: Annotated[Mapping[str, object] | None, OMIT_NONE] = None
    error: Annotated[Mapping[str, object] | None, OMIT_NONE] = None
