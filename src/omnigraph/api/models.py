"""Bodies and query strings of all operations, as models that refuse everything else."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from omnigraph.branches.changes import DEFAULT_PAGE_BYTES, MAX_PAGE_CHANGES
from omnigraph.branches.feed import DEFAULT_POLL_COMMITS


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
    """The state to read: the head of a branch, or a state of the past."""

    branch: Annotated[str | None, Field(description="branch; `main` is the default")] = None
    snapshot: Annotated[str | None, Field(description="commit id; excludes the others")] = None
    version: Annotated[int | None, BeforeValidator(_whole_number), Field(description="graph version of the branch")] = (
        None
    )
    as_of: Annotated[str | None, Field(description="moment, such as 2026-05-01T12:00:00Z")] = None


class BranchParam(_Strict):
    """A branch."""

    branch: Annotated[str | None, Field(description="branch; `main` is the default")] = None


class CommitsParams(BranchParam):
    """A branch or all of them, and whose commits."""

    all_branches: Annotated[
        bool, Field(description="everything that the branches which may be read build on, instead of one branch")
    ] = False
    actor: Annotated[str | None, Field(description="only commits of this actor")] = None


class LogParams(_Strict):
    """One branch, or all."""

    branch: Annotated[str | None, Field(description="branch; all that may be read by default")] = None


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
    op: Annotated[list[str] | None, Field(description="`insert`, `update` or `delete`; repeatable")] = None


class PageParams(_ChangeParams):
    """A page of changes."""

    limit: Annotated[int, Field(description=f"changes per page, at most {MAX_PAGE_CHANGES:,}")] = 1_000
    page_token: str | None = None


class ChangesParams(PageParams):
    """A page of changes with entities before and after, which may be large."""

    max_bytes: Annotated[int, Field(description="bytes per page, about")] = DEFAULT_PAGE_BYTES


class FeedParams(ChangesParams):
    """A page of the change feed of a branch."""

    branch: str | None = None
    cursor: Annotated[str | None, Field(description="go on from an earlier poll")] = None
    start: Annotated[str | None, Field(description="`now`, `beginning` or `after:<commit id>`")] = None
    max_commits: Annotated[int, Field(description="commits per poll")] = DEFAULT_POLL_COMMITS


class DiffParams(PageParams):
    """A page of the differences of two states."""

    from_: Annotated[str, Field(alias="from", description="branch or commit id")]
    to: Annotated[str, Field(description="branch or commit id")]
    timeout_s: Seconds = None


class BaselineBody(_Strict):
    """The branch of a baseline, and a filter of its entities."""

    branch: str | None = None
    kind: list[str] | None = None
    type: list[str] | None = None
    op: list[str] | None = None
    timeout_s: Seconds = None


# ---- queries

FirstRows = Annotated[
    int | None, Field(description="only so many rows, as JSON; `truncated` says whether there are more", ge=1)
]


class QueryBody(_Strict):
    """A read in `.gq`, and the state that it reads."""

    query: str
    name: str | None = None
    params: dict[str, object] | None = None
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
    params: dict[str, object] | None = None
    branch: str | None = None
    snapshot: str | None = None
    timeout_s: Seconds = None


class ExplainBody(_Strict):
    """A query whose plan is wanted."""

    query: str
    name: str | None = None
    params: dict[str, object] | None = None
    branch: str | None = None
    analyze: bool = False
    timeout_s: Seconds = None


MaxAffected = Annotated[
    int | None, Field(description="refuse the mutation if it would change more nodes and edges than that", ge=0)
]
DryRun = Annotated[bool, Field(description="write nothing, and say what would change")]


Message = Annotated[str | None, Field(description="why the commit is made; the commit keeps it")]
_METADATA = "values that the commit keeps for programs: texts, numbers, truth values and nulls by name"
_METADATA_TEXT = f"{_METADATA}; the text of a JSON object"
Metadata = Annotated[dict[str, str | int | float | bool | None] | None, Field(description=_METADATA)]


def _json_object(text: object) -> object:
    """A parameter of a query string that is a JSON object."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise ValueError("this is not the text of a JSON object") from error


class MutateBody(_Strict):
    """A mutation in `.gq`."""

    query: Annotated[str, Field(validation_alias=AliasChoices("query", "query_source"))]
    name: Annotated[str | None, Field(validation_alias=AliasChoices("name", "query_name"))] = None
    params: dict[str, object] | None = None
    branch: str | None = None
    max_affected: MaxAffected = None
    dry_run: DryRun = False
    message: Message = None
    metadata: Metadata = None


class StoredQueryBody(_Strict):
    """The parameters and the target of a stored query."""

    params: dict[str, object] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    timeout_s: Seconds = None
    first: FirstRows = None
    max_affected: MaxAffected = None
    dry_run: DryRun = False
    message: Message = None
    metadata: Metadata = None


# ---- writes


class LoadBody(_Strict):
    """Graph records as text, one JSON object per line."""

    data: str
    branch: str | None = None
    from_: Annotated[str | None, Field(alias="from")] = None
    mode: str = "merge"
    grammar: str | None = None
    upsert: bool = False
    check_minimum: bool = False
    on_duplicate: str | None = None
    dangling: str | None = None
    message: Message = None
    metadata: Metadata = None
    timeout_s: Seconds = None


class LoadParams(_Strict):
    """Options of a load of the records in the body."""

    branch: str | None = None
    from_: Annotated[str | None, Field(alias="from", description="create a missing branch from this one")] = None
    mode: Annotated[str, Field(description="`merge`, `append`, `overwrite` or `patch`")] = "merge"
    grammar: Annotated[str, Field(description="`strict` or `compatible`")] = "strict"
    upsert: Annotated[bool, Field(description="records of a patch may be new rows")] = False
    check_minimum: Annotated[bool, Field(description="every node needs the edges that `@card` asks for")] = False
    on_duplicate: Annotated[str | None, Field(description="of equal ids: `first`, `last` or `error`")] = None
    dangling: Annotated[str | None, Field(description="of edges without an end: `drop` or `error`")] = None
    dry_run: Annotated[bool, Field(description="do everything but the commit")] = False
    message: Message = None
    metadata: Annotated[Metadata, BeforeValidator(_json_object), Field(description=_METADATA_TEXT)] = None
    source: Annotated[str | None, Field(description="what reports call the body", max_length=500)] = None
    timeout_s: Seconds = None


class ExportBody(_Strict):
    """A filter of entities."""

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
    backfill: dict[str, object] | None = None
    message: Message = None
    metadata: Metadata = None


class BranchBody(_Strict):
    """A branch to create."""

    name: str
    from_: Annotated[str | None, Field(alias="from", description="branch or commit id")] = None


class TagBody(_Strict):
    """A tag to create."""

    name: str
    commit: Annotated[str | None, Field(description="commit id, branch, or `main~1`; `main` is the default")] = None
    message: Message = None
    metadata: Metadata = None


class MergeBody(_Strict):
    """A merge."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    strategy: str | None = None
    dry_run: bool = False
    check_minimum: bool = False
    message: Message = None
    metadata: Metadata = None
    timeout_s: Seconds = None


class RpcMessage(_Strict):
    """One request or notification of JSON-RPC 2.0, as MCP uses it."""

    jsonrpc: str
    method: str
    id: str | int | None = None
    params: dict[str, object] | None = None
