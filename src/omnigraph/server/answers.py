"""What responses hold, as models: the OpenAPI document describes them, and tests hold answers against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Code = Literal[
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class Failure(_Answer):
    """The body of every refusal; structured members depend on the kind of failure."""

    error: Annotated[str, Field(description="for people")]
    kind: Annotated[str | None, Field(description="stable name of the failure")] = None
    code: Annotated[Code | None, Field(description="left out at 410, 412, 424 and 503")] = None


class Health(_Answer):
    """A server that lives."""

    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: str | None = None


class GraphEntry(_Answer):
    """A graph."""

    graph_id: str
    uri: str


class Graphs(_Answer):
    """Graphs by id."""

    graphs: list[GraphEntry]


class Commit(_Answer):
    """A commit; times are in microseconds since 1970, `written_at` is the writer's where it differs."""

    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    actor_id: str | None = None
    created_at: int
    written_at: int | None = None


class Commits(_Answer):
    """Commits, newest first."""

    commits: list[Commit]


class Log(Commits):
    """Commits over all parents, and where branches are."""

    heads: dict[str, str]


class Rows(_Answer):
    """The rows of a read, and the commit whose state they show."""

    query_name: str
    target: dict[str, Any]
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = None
    truncated: Annotated[
        bool | None, Field(description="with `first`: whether there are more rows")
    ] = None


class Plan(_Answer):
    """What a query means and how it would run."""

    query_name: str
    kind: Literal["read", "mutation"]
    plan: list[str]
    operation: dict[str, Any]
    text: str


class Mutation(_Answer):
    """The receipt of a mutation; `commit` is null when nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None = None
    commit: Commit | None = None


class StoredQueryEntry(_Answer):
    """A stored query as a caller may run it."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[dict[str, Any]]


class StoredQueryList(_Answer):
    """Stored queries by name."""

    queries: list[StoredQueryEntry]


class StoredAnswer(BaseModel):
    """The rows of a stored read, or the receipt of a stored mutation."""

    model_config = ConfigDict(extra="allow")
    query_name: str


class LoadedType(_Answer):
    """Records of one type."""

    name: str
    entities_loaded: Annotated[int, Field(description="records of the input")]
    superseded: Annotated[
        int | None, Field(description="of these, replaced by later ones of the same id")
    ] = None


class Load(_Answer):
    """The receipt of a load; `commit` is null after a dry run."""

    branch: str
    base_branch: str | None = None
    branch_created: bool
    mode: str
    nodes: list[LoadedType]
    edges: list[LoadedType]
    total_entities: Annotated[int, Field(description="records of the input")]
    superseded: Annotated[
        int, Field(description="of these, replaced by later ones of the same id")
    ] = 0
    actor_id: str | None = None
    commit: Commit | None = None


class Dataset(_Answer):
    """One dataset of a snapshot."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None = None
    entity_count: int


class SnapshotAnswer(_Answer):
    """Dataset versions that are visible together."""

    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str
    internal_schema_version: int
    datasets: list[Dataset]


class SchemaAnswer(_Answer):
    """The accepted schema, as text and as types."""

    schema_source: str
    types: dict[str, Any]


class SchemaApplied(_Answer):
    """The receipt of a schema change."""

    supported: bool
    applied: bool
    step_count: int
    steps: list[dict[str, Any]]


class EntityAnswer(_Answer):
    """One entity, or null."""

    entity: dict[str, Any] | None


class Branches(_Answer):
    """Names, sorted."""

    branches: list[str]


class BranchChanged(_Answer):
    """A branch that was created or deleted."""

    uri: str
    name: str
    actor_id: str | None = None


class Merge(_Answer):
    """The receipt of a merge, or the preview of one."""

    source: str
    target: str
    outcome: str
    commit: Commit | None = None
    actor_id: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None


class ChangesAnswer(_Answer):
    """A page of what a commit did."""

    cause: dict[str, Any]
    changes: list[dict[str, Any]]
    next_page_token: str | None = None


class FeedAnswer(_Answer):
    """A page of a feed."""

    blocks: list[dict[str, Any]]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class DiffAnswer(_Answer):
    """A page of differences."""

    changes: list[dict[str, Any]]
    stats: dict[str, Any]
    next_page_token: str | None = None
