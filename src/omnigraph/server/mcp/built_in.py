"""The tools that every graph has: its own operations, described by the same models as its routes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from omnigraph.errors import BadRequestError
from omnigraph.policy.rules import Action
from omnigraph.server.mcp.tools import GraphTool, InnerRequest, query_string, segment
from omnigraph.server.requests import (
    BranchBody,
    BranchParam,
    CommitsParams,
    DiffParams,
    ExplainBody,
    FeedParams,
    LoadBody,
    MergeBody,
    MutateBody,
    QueryBody,
)

if TYPE_CHECKING:
    from omnigraph.server.mcp.tools import Arguments


class _Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _BranchName(BaseModel):
    model_config = ConfigDict(extra="forbid")

    branch: str = Field(description="the branch to delete")


def _get(path: str, arguments: Arguments, *, is_flat: bool = False) -> InnerRequest:
    query = query_string(arguments)
    return InnerRequest(method="GET", path=path, query=query, is_flat=is_flat)


def _post(path: str, arguments: Arguments) -> InnerRequest:
    return InnerRequest(method="POST", path=path, body=arguments)


def _delete_branch(arguments: Arguments) -> InnerRequest:
    branch = arguments.get("branch")
    if not isinstance(branch, str) or len(arguments) != 1:
        raise BadRequestError("`branch_delete` takes one argument: `branch`, a text")
    return InnerRequest(method="DELETE", path=f"/branches/{segment(branch)}")


def _read(
    name: str, path: str, model: type[BaseModel], description: str, *, posts: bool = False
) -> GraphTool:
    return GraphTool(
        name=name,
        description=description,
        input_schema=_input_schema(model),
        request=partial(_post if posts else _get, path),
        needs=Action.READ,
    )


def _write(
    name: str,
    path: str,
    model: type[BaseModel],
    needs: Action,
    description: str,
    *,
    is_destructive: bool = True,
) -> GraphTool:
    return GraphTool(
        name=name,
        description=description,
        input_schema=_input_schema(model),
        request=partial(_post, path),
        needs=needs,
        is_read=False,
        is_destructive=is_destructive,
    )


def _input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model as agents read it best: flat, and without a null where leaving out is meant."""
    document = model.model_json_schema(by_alias=True)
    properties = {name: _plain(value) for name, value in document.get("properties", {}).items()}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required := document.get("required"):
        schema["required"] = required
    return schema


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    options = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    found = {**schema, **(options[0] if options else {})}
    return {
        name: value
        for name, value in found.items()
        if name not in ("anyOf", "title") and not (name == "default" and value is None)
    }


#: Every tool that is not a stored query, by name.
BUILT_INS: dict[str, GraphTool] = {
    tool.name: tool
    for tool in (
        GraphTool(
            name="health",
            description="Whether the server works, and its version.",
            input_schema=_input_schema(_Nothing),
            request=partial(_get, "/healthz", is_flat=True),
            needs=None,
        ),
        _read(
            "schema",
            "/schema",
            _Nothing,
            "The schema of the graph: node and edge types with their properties. Read it before writing queries.",
        ),
        _read(
            "snapshot",
            "/snapshot",
            BranchParam,
            "The version of every table at the head of a branch, with row counts.",
        ),
        _read(
            "query",
            "/query",
            QueryBody,
            "Run one read in the query language, on the head of a branch or on a state of the past. Example: "
            "query recent($year: I32) { match { $p: Paper  $p.year >= $year } return { $p.title } limit 10 }",
            posts=True,
        ),
        _read(
            "explain",
            "/explain",
            ExplainBody,
            "What a query means and how it would run, without running it; `analyze` runs it and adds times.",
            posts=True,
        ),
        _read("branches", "/branches", _Nothing, "The branches of the graph."),
        _read("commits", "/commits", CommitsParams, "The commits of a branch, newest first."),
        _read(
            "diff",
            "/diff",
            DiffParams,
            "What differs between two branches or commits, entity by entity, in pages.",
        ),
        _read(
            "changes",
            "/changes",
            FeedParams,
            "What changed on a branch, commit by commit: from the beginning, after a commit, or after a cursor.",
        ),
        _write(
            "mutate",
            "/mutate",
            MutateBody,
            Action.CHANGE,
            "Run one mutation in the query language: insert, update or delete. All of it becomes visible at once, or "
            "nothing does. Example: query add($doi: String) { insert Paper { doi: $doi } }",
        ),
        _write(
            "load",
            "/load",
            LoadBody,
            Action.CHANGE,
            "Load graph records, one JSON object per line, in one commit. `merge` replaces rows by id, `append` only "
            "adds, `overwrite` replaces all rows of the types that are present. With `from`, a missing branch is "
            "created.",
        ),
        _write(
            "branch_create",
            "/branches",
            BranchBody,
            Action.BRANCH_CREATE,
            "Create a branch from another branch or from a commit.",
            is_destructive=False,
        ),
        GraphTool(
            name="branch_delete",
            description="Delete a branch and the work on it that was not merged.",
            input_schema=_input_schema(_BranchName),
            request=_delete_branch,
            needs=Action.BRANCH_DELETE,
            is_read=False,
            is_destructive=True,
        ),
        _write(
            "branch_merge",
            "/branches/merge",
            MergeBody,
            Action.BRANCH_MERGE,
            "Merge a branch into another one, `main` by default. `dry_run` only tells what would happen.",
        ),
    )
}
