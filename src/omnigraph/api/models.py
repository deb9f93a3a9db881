"""Bodies, query strings and answers of all operations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from omnigraph.branches.changes import DEFAULT_PAGE_BYTES, MAX_PAGE_CHANGES
from omnigraph.branches.feed import DEFAULT_POLL_COMMITS

# ---- What requests hold: bodies and query strings, as models that refuse everything else


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


Seconds = Annotated[
    float | None,
    Field(
        description="how long it may work; the default and the longest time are those of the server",
        gt=0,
        allow_inf_nan=False,
    ),
]


# ---- targets of reads


def _whole_number(value: object) -> object:
    """Refuse what would only be rounded or converted to a number: `true` and `1.0` name no version."""
    if isinstance(value, bool | float) or (isinstance(value, str) and not value.isdecimal()):
        raise ValueError("a graph version is a whole number")
    return value


class TargetParams(_Strict):
    """Which state is read: the head of a branch, or a state of the past."""

    branch: Annotated[str | None, Field(description="branch; `main` is the default")] = None
    snapshot: Annotated[str | None, Field(description="commit id; excludes the others")] = None
    version: Annotated[
        int | None,
        BeforeValidator(_whole_number),
        Field(description="graph version of the branch"),
    ] = None
    as_of: Annotated[str | None, Field(description="moment, such as 2026-05-01T12:00:00Z")] = None


class BranchParam(_Strict):
    """A branch."""

    branch: Annotated[str | None, Field(description="branch; `main` is the default")] = None


class CommitsParams(BranchParam):
    """A branch, and whose commits."""

    actor: Annotated[str | None, Field(description="only commits of this actor")] = None


class LogParams(_Strict):
    """One branch, or all."""

    branch: Annotated[str | None, Field(description="branch; all that may be read by default")] = (
        None
    )


class EntityParams(TargetParams):
    """One entity."""

    type: Annotated[str, Field(description="table key, such as `node:Paper`")]
    id: str


class BlobParams(TargetParams):
    """One Blob cell."""

    entity: Annotated[Literal["node", "edge"], Field(description="what has the cell")]
    type: str
    id: str
    property: str


# ---- changes


class _ChangeParams(_Strict):
    kind: Annotated[list[str] | None, Field(description="`node` or `edge`; repeatable")] = None
    type: Annotated[list[str] | None, Field(description="only this type; repeatable")] = None
    op: Annotated[
        list[str] | None, Field(description="`insert`, `update` or `delete`; repeatable")
    ] = None


class PageParams(_ChangeParams):
    """A page of changes."""

    limit: Annotated[int, Field(description=f"changes per page, at most {MAX_PAGE_CHANGES:,}")] = (
        1_000
    )
    page_token: str | None = None


class ChangesParams(PageParams):
    """A page of changes with entities before and after, which may be large."""

    max_bytes: Annotated[int, Field(description="bytes per page, about")] = DEFAULT_PAGE_BYTES


class FeedParams(ChangesParams):
    """A page of the change feed of a branch."""

    branch: str | None = None
    cursor: Annotated[str | None, Field(description="go on from an earlier poll")] = None
    start: Annotated[str | None, Field(description="`now`, `beginning` or `after:<commit id>`")] = (
        None
    )
    max_commits: Annotated[int, Field(description="commits per poll")] = DEFAULT_POLL_COMMITS


class DiffParams(PageParams):
    """A page of the differences of two states."""

    from_: Annotated[str, Field(alias="from", description="branch or commit id")]
    to: Annotated[str, Field(description="branch or commit id")]
    timeout_s: Seconds = None


class BaselineBody(_Strict):
    """Which branch, and which of its entities."""

    branch: str | None = None
    kind: list[str] | None = None
    type: list[str] | None = None
    op: list[str] | None = None
    timeout_s: Seconds = None


# ---- queries

FirstRows = Annotated[
    int | None,
    Field(description="only so many rows, as JSON; `truncated` tells whether there are more", ge=1),
]


class QueryBody(_Strict):
    """A read in `.gq`, and the state that it reads."""

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    as_of: str | None = None
    timeout_s: Seconds = None
    first: FirstRows = None


class ReadBody(_Strict):
    """The older form of `QueryBody`."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    timeout_s: Seconds = None


class ExplainBody(_Strict):
    """A query whose plan is wanted."""

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    analyze: bool = False
    timeout_s: Seconds = None


class MutateBody(_Strict):
    """A mutation in `.gq`."""

    query: Annotated[str, Field(validation_alias=AliasChoices("query", "query_source"))]
    name: Annotated[str | None, Field(validation_alias=AliasChoices("name", "query_name"))] = None
    params: dict[str, Any] | None = None
    branch: str | None = None


class StoredQueryBody(_Strict):
    """How a stored query is run."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    timeout_s: Seconds = None
    first: FirstRows = None


# ---- writes


class LoadBody(_Strict):
    """Graph records as text, one JSON object per line."""

    data: str
    branch: str | None = None
    from_: Annotated[str | None, Field(alias="from")] = None
    mode: str = "merge"
    grammar: str | None = None
    timeout_s: Seconds = None


class LoadParams(_Strict):
    """How the records of the body are loaded."""

    branch: str | None = None
    from_: Annotated[
        str | None, Field(alias="from", description="create a missing branch from this one")
    ] = None
    mode: Annotated[str, Field(description="`merge`, `append` or `overwrite`")] = "merge"
    grammar: Annotated[str, Field(description="`strict` or `compatible`")] = "strict"
    dry_run: Annotated[bool, Field(description="do everything but the commit")] = False
    source: Annotated[
        str | None, Field(description="what reports call the body", max_length=500)
    ] = None
    timeout_s: Seconds = None


class ExportBody(_Strict):
    """Which entities."""

    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    as_of: str | None = None
    type_names: list[str] | None = None
    timeout_s: Seconds = None


class SchemaApplyBody(_Strict):
    """The schema that is wanted."""

    schema_source: str
    allow_data_loss: bool = False
    backfill: dict[str, Any] | None = None


class BranchBody(_Strict):
    """A branch to create."""

    name: str
    from_: Annotated[str | None, Field(alias="from", description="branch or commit id")] = None


class MergeBody(_Strict):
    """A merge."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    strategy: str | None = None
    dry_run: bool = False
    timeout_s: Seconds = None


# ---- What responses hold, as models: the OpenAPI document describes them, and tests hold answers against them


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
