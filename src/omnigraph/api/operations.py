"""The catalogue: every operation of a server, declared once.

Routes, the OpenAPI document, authorisation, calls of the client, tools of agents, generated commands and the reference
follow from the entries. An entry that names a `call` needs no code in `server` and `client`: the request goes to the
method of that name, and its result comes back. Models and results are named by text, so that the catalogue loads
neither pydantic nor anything of the graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from omnigraph.api.protocol import JSON, NDJSON, OCTETS
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from pydantic import BaseModel

    from omnigraph.codec import Document

#: Paths of operations on one graph begin with it.
GRAPH = "/graphs/{graph_id}"
#: And their operation ids with it.
PREFIX = "cluster_"
_IN_BRACES = re.compile(r"\{(\w+)(?::path)?\}")


class Cost(Enum):
    """The place where an operation runs, and what ends it."""

    #: In a thread of the readers, to its end.
    READ = "read"
    #: In a thread of the readers, within a time, and only as long as the client is there.
    BOUNDED_READ = "bounded read"
    #: In a thread of the writers, to its end, also when the client goes away.
    WRITE = "write"
    #: In a thread of the writers, within a time, and only as long as the client is there.
    BOUNDED_WRITE = "bounded write"

    @property
    def writes(self) -> bool:
        """Whether it changes the graph."""
        return self in (Cost.WRITE, Cost.BOUNDED_WRITE)

    @property
    def is_bounded(self) -> bool:
        """Whether it is stopped after a time."""
        return self in (Cost.BOUNDED_READ, Cost.BOUNDED_WRITE)


@dataclass(frozen=True, slots=True)
class Tool:
    """An operation as agents see it."""

    name: str
    description: str
    is_destructive: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """A parameter of a method on a command line; one that is required is an argument."""

    help: str
    metavar: str | None = None
    #: Other than `--` and the name of the parameter.
    spelling: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """An operation as people call it, where its command is generated."""

    name: str
    #: By parameter, in the order of the help; without those that are the same in every command.
    flags: Mapping[str, Flag] = field(default_factory=dict)
    _: KW_ONLY
    #: Whether the graph may be an argument.
    is_positional: bool = False
    #: What is destroyed, with names of parameters in braces; a remote graph needs consent to it.
    loss: str | None = None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of a server."""

    id: str
    method: Literal["GET", "HEAD", "POST", "DELETE"] = "GET"
    #: Below the graph, or of the whole server where `is_flat`.
    path: str
    tag: str
    #: What it does, for the OpenAPI document and the reference.
    text: str
    #: A media type, or the class of the answer as `module:Class` below `omnigraph`; several are divided by ` | `.
    result: str | None
    #: The model of the query string, and of the body or its media type; classes of `omnigraph.api.models`.
    query: str | None = None
    body: str | None = None
    body_required: bool = True
    #: What the caller must be allowed to do; None: the operation asks for more than one thing itself, or for nothing.
    action: Action | None = Action.READ
    cost: Cost = Cost.READ
    #: The method of a graph that it calls; None: the server answers it in its own way.
    call: str | None = None
    #: Parameter of that method → member of the request, where they differ.
    names: Mapping[str, str] = field(default_factory=dict)
    #: The member of the answer that is the value of the method; None: it is the whole answer.
    member: str | None = None
    tool: Tool | None = None
    command: Command | None = None
    is_flat: bool = False
    is_conditional: bool = False
    #: The operation below the graph that replaces it.
    successor: str | None = None
    #: Statuses of failures beyond those that follow from the rest, and answers that are not failures.
    errors: tuple[int, ...] = ()
    also: Mapping[int, str] = field(default_factory=dict)

    @property
    def route(self) -> str:
        """The whole path, with parameters in braces."""
        return self.path if self.is_flat else f"{GRAPH}{self.path}"

    @property
    def operation_id(self) -> str:
        """The id in the OpenAPI document."""
        return self.id if self.is_flat else f"{PREFIX}{self.id}"

    @cached_property
    def query_model(self) -> type[BaseModel] | None:
        """The model of the query string."""
        return None if self.query is None else _model(self.query)

    @cached_property
    def body_model(self) -> type[BaseModel] | None:
        """The model of the body; None where there is none, or it is not JSON."""
        return None if self.body is None or "/" in self.body else _model(self.body)

    @cached_property
    def result_classes(self) -> tuple[type[Document], ...]:
        """The classes that the answer may have; none where it is not JSON."""
        if self.result is None or "/" in self.result:
            return ()
        return tuple(_class(name) for name in self.result.split(" | "))

    @property
    def result_class(self) -> type[Document]:
        """The one class of the answer."""
        (found,) = self.result_classes
        return found

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """The names in braces of the path below the graph."""
        return tuple(_IN_BRACES.findall(self.path))

    def path_of(self, values: Mapping[str, str]) -> str:
        """The path below the graph with its parameters, each as one segment."""
        return _IN_BRACES.sub(lambda found: quote(values[found[1]], safe=""), self.path)

    def member_of(self, parameter: str) -> str:
        """The member of the request that carries a parameter."""
        return self.names.get(parameter, parameter)


def _class(name: str) -> type[Document]:
    module, _, attribute = name.partition(":")
    found: type[Document] = getattr(import_module(f"omnigraph.{module}"), attribute)
    return found


def _model(name: str) -> type[BaseModel]:
    found: type[BaseModel] = getattr(import_module("omnigraph.api.models"), name)
    return found


_FILTERS = MappingProxyType({"kinds": "kind", "types": "type", "ops": "op"})
_TEXT = MappingProxyType({"text": "query"})
_MUTATION = "api.results:MutationResult"
_LOAD = "api.results:LoadResult"
_ROWS = "api.answers:Rows"
_BLOB_ALSO = MappingProxyType({302: "it is external, and this is its address", 304: "the caller has it already"})

_ENTRIES = (
    # ---- the server
    Operation(
        id="health",
        action=None,
        path="/healthz",
        tag="health",
        text="Whether the server lives.",
        result="api.answers:Health",
        tool=Tool("health", "Whether the server works, and its version."),
        is_flat=True,
    ),
    Operation(
        id="metrics",
        action=None,
        path="/metrics",
        tag="health",
        text="Metrics in the text format of Prometheus; those of a graph only for callers that may see it.",
        result="text/plain",
        is_flat=True,
    ),
    Operation(
        id="openapi",
        action=None,
        path="/openapi.json",
        tag="health",
        text="The description of all routes.",
        result=JSON,
        is_flat=True,
    ),
    Operation(
        id="list_graphs",
        path="/graphs",
        tag="management",
        text="The graphs that are served, sorted by id.",
        result="api.answers:Graphs",
        action=Action.GRAPH_LIST,
        is_flat=True,
    ),
    # ---- reads
    Operation(
        id="query",
        method="POST",
        path="/query",
        tag="queries",
        text="Run one read on one snapshot. With `Accept: application/vnd.apache.arrow.stream` the rows come as Arrow.",
        body="QueryBody",
        result=_ROWS,
        cost=Cost.BOUNDED_READ,
        tool=Tool(
            "query",
            "Run one read in the query language, on the head of a branch or on a state of the past. Example: "
            "query recent($year: I32) { match { $p: Paper  $p.year >= $year } return { $p.title } limit 10 }",
        ),
    ),
    Operation(
        id="read",
        method="POST",
        path="/read",
        tag="queries",
        text="Run one read; the older form of `/query`.",
        body="ReadBody",
        result=_ROWS,
        cost=Cost.BOUNDED_READ,
        successor="query",
    ),
    Operation(
        id="explain",
        method="POST",
        path="/explain",
        tag="queries",
        text="Explain a query: its meaning and its plan; `analyze` runs it.",
        body="ExplainBody",
        result="api.answers:Plan",
        cost=Cost.BOUNDED_READ,
        call="explain",
        names=_TEXT,
        member="text",
        tool=Tool(
            "explain",
            "Explain a query: its meaning and its plan, without running it; `analyze` runs it and adds times.",
        ),
    ),
    Operation(
        id="get_entity",
        path="/entity",
        tag="queries",
        text="One entity at the head of a branch, at a commit, a graph version or a moment; null if it is not there.",
        query="EntityParams",
        result="api.answers:Entity",
        call="entity_at",
        names={"type_key": "type", "entity_id": "id"},
        member="entity",
    ),
    Operation(
        id="get_snapshot",
        path="/snapshot",
        tag="snapshots",
        text="The dataset versions that are visible together: at the head of a branch, or at a point of the past.",
        query="TargetParams",
        result="commit.snapshot:Snapshot",
        call="snapshot",
        command=Command("snapshot", is_positional=True),
        tool=Tool("snapshot", "The version of every table at the head of a branch, with row counts."),
    ),
    Operation(
        id="export",
        method="POST",
        path="/export",
        tag="snapshots",
        text="Every entity of a branch, now or at any point, or of a commit, as JSON lines that a load reads back.",
        body="ExportBody",
        result=NDJSON,
        action=Action.EXPORT,
        cost=Cost.BOUNDED_READ,
    ),
    Operation(
        id="get_blob",
        path="/blob",
        tag="blobs",
        text="The bytes of one blob, or a range of them; an external one is answered by its address.",
        query="BlobParams",
        result=OCTETS,
        errors=(412, 416),
        also={**_BLOB_ALSO, 206: "a range of it"},
    ),
    Operation(
        id="head_blob",
        method="HEAD",
        path="/blob",
        tag="blobs",
        text="Describe one blob, without its bytes.",
        query="BlobParams",
        result=None,
        errors=(412,),
        also=_BLOB_ALSO,
    ),
    # ---- the schema
    Operation(
        id="get_schema",
        path="/schema",
        tag="schema",
        text="The accepted schema: its text, and its types for programs.",
        result="api.answers:SchemaAnswer",
        tool=Tool(
            "schema",
            "The schema of the graph: node and edge types with their properties. Read it before writing queries.",
        ),
    ),
    Operation(
        id="apply_schema",
        method="POST",
        path="/schema/apply",
        tag="schema",
        text="Make another schema the accepted one, in one commit; stored queries must still fit it.",
        body="SchemaApplyBody",
        names={"schema": "schema_source"},
        result="api.results:SchemaApplyResult",
        action=Action.SCHEMA_APPLY,
        cost=Cost.WRITE,
    ),
    # ---- history
    Operation(
        id="list_branches",
        path="/branches",
        tag="branches",
        text="The names of the branches that the caller may read, sorted.",
        result="api.answers:Branches",
        member="branches",
        call="branches",
        command=Command("branch list"),
        tool=Tool("branches", "The branches of the graph."),
    ),
    Operation(
        id="list_commits",
        path="/commits",
        tag="commits",
        text="The history of a branch, newest first: its own commits and those it inherited.",
        query="CommitsParams",
        result="api.answers:Commits",
        call="commits",
        member="commits",
        tool=Tool("commits", "The commits of a branch, newest first."),
    ),
    Operation(
        id="get_log",
        path="/log",
        tag="commits",
        text="Everything that one branch, or all that the caller may read, build on over both parents; newest first.",
        query="LogParams",
        result="commit.lineage:Log",
    ),
    Operation(
        id="get_commit",
        path="/commits/{commit_id}",
        tag="commits",
        text="One commit, of any branch that the caller may read.",
        result="commit.rows:GraphCommit",
        call="commit",
        command=Command("commit show", {"commit_id": Flag("commit id", "ID")}),
    ),
    Operation(
        id="get_diff",
        path="/diff",
        tag="changes",
        text="One page of what differs between two branches or commits: what turns the first into the second.",
        query="DiffParams",
        result="branches.diffs:DiffPage",
        cost=Cost.BOUNDED_READ,
        tool=Tool("diff", "Changes between two branches or commits, entity by entity, in pages."),
    ),
    Operation(
        id="get_commit_changes",
        path="/commits/{commit_id}/changes",
        tag="changes",
        text="One page of what a commit did, against its first parent, with every entity before and after.",
        query="ChangesParams",
        result="branches.changes:ChangesPage",
        call="changes",
        names=_FILTERS,
        errors=(409, 413),
    ),
    Operation(
        id="poll_changes",
        path="/changes",
        tag="changes",
        text="One page of the commits of a branch, oldest first, each with its changes.",
        query="FeedParams",
        result="branches.feed:FeedPage",
        call="feed",
        names=_FILTERS,
        errors=(409, 413),
        tool=Tool(
            "changes", "Changes of a branch, commit by commit: from the beginning, after a commit, or after a cursor."
        ),
    ),
    Operation(
        id="get_changes_baseline",
        method="POST",
        path="/changes/baseline",
        tag="changes",
        text="Every entity of a branch as JSON lines, and in a last line the cursor from which its feed goes on.",
        body="BaselineBody",
        body_required=False,
        result=NDJSON,
        action=Action.EXPORT,
        cost=Cost.BOUNDED_READ,
    ),
    # ---- writes
    Operation(
        id="mutate",
        method="POST",
        path="/mutate",
        tag="mutations",
        text="Run one mutation; all of it becomes visible at once, or nothing does.",
        body="MutateBody",
        names=_TEXT,
        result=_MUTATION,
        action=Action.CHANGE,
        cost=Cost.WRITE,
        tool=Tool(
            "mutate",
            "Run one mutation in the query language: insert, update or delete. All of it becomes visible at once, or "
            "nothing does. Example: query add($doi: String) { insert Paper { doi: $doi } }",
            is_destructive=True,
        ),
    ),
    Operation(
        id="mutate_if_graph_commit",
        method="POST",
        path="/mutate/if-graph-commit",
        tag="mutations",
        text="Run one mutation, if the branch is still at a commit.",
        body="MutateBody",
        names=_TEXT,
        result=_MUTATION,
        action=Action.CHANGE,
        cost=Cost.WRITE,
        is_conditional=True,
    ),
    Operation(
        id="change",
        method="POST",
        path="/change",
        tag="mutations",
        text="Run one mutation; the older name of `/mutate`.",
        body="MutateBody",
        names=_TEXT,
        result=_MUTATION,
        action=Action.CHANGE,
        cost=Cost.WRITE,
        successor="mutate",
    ),
    Operation(
        id="load",
        method="POST",
        path="/load",
        tag="mutations",
        text="Load the records of a JSON member in one commit.",
        body="LoadBody",
        result=_LOAD,
        action=Action.CHANGE,
        cost=Cost.BOUNDED_WRITE,
        tool=Tool(
            "load",
            "Load graph records, one JSON object per line, in one commit. `merge` replaces rows by id, `append` only "
            "adds, `overwrite` replaces all rows of the types that are present. With `from`, a missing branch is "
            "created.",
            is_destructive=True,
        ),
    ),
    Operation(
        id="ingest",
        method="POST",
        path="/ingest",
        tag="mutations",
        text="Load records with the compatible grammar; the older form of `/load`.",
        body="LoadBody",
        result=_LOAD,
        action=Action.CHANGE,
        cost=Cost.BOUNDED_WRITE,
        successor="load",
    ),
    Operation(
        id="load_ndjson",
        method="POST",
        path="/load/ndjson",
        tag="mutations",
        text="Load the records of the body, one JSON object per line, in one commit.",
        query="LoadParams",
        body=NDJSON,
        result=_LOAD,
        action=Action.CHANGE,
        cost=Cost.BOUNDED_WRITE,
    ),
    Operation(
        id="create_branch",
        method="POST",
        path="/branches",
        tag="branches",
        text="Create a branch at the head of another one, or at any commit; no data is copied.",
        body="BranchBody",
        result="api.results:BranchReceipt",
        action=Action.BRANCH_CREATE,
        cost=Cost.WRITE,
        call="create_branch",
        names={"base": "from"},
        command=Command(
            "branch create",
            {"name": Flag("branch", "NAME"), "base": Flag("branch or commit it begins at", "BASE", "--from")},
        ),
        tool=Tool("branch_create", "Create a branch from another branch or from a commit."),
    ),
    Operation(
        id="delete_branch",
        method="DELETE",
        path="/branches/{branch:path}",
        tag="branches",
        text="Delete a branch and what happened on it and was not merged. The name is one percent-encoded segment.",
        result="api.results:BranchReceipt",
        action=Action.BRANCH_DELETE,
        cost=Cost.WRITE,
        call="delete_branch",
        names={"name": "branch"},
        command=Command("branch delete", {"name": Flag("branch", "NAME")}, loss="deletes branch {name} of"),
        tool=Tool("branch_delete", "Delete a branch and the work on it that was not merged.", is_destructive=True),
    ),
    Operation(
        id="merge_branches",
        method="POST",
        path="/branches/merge",
        tag="branches",
        text="Merge what happened on one branch into another; all of it becomes visible at once, or nothing does.",
        body="MergeBody",
        result="api.results:MergeResult",
        action=Action.BRANCH_MERGE,
        cost=Cost.BOUNDED_WRITE,
        call="merge",
        names={"into": "target"},
        command=Command(
            "branch merge",
            {
                "source": Flag("branch to merge", "SOURCE"),
                "into": Flag("branch that gets the changes", "TARGET"),
                "delete_branch": Flag("delete the source when it is merged"),
                "dry_run": Flag("show outcome and conflicts, write nothing"),
                "strategy": Flag(
                    "decide conflicts about rows for the target (ours) or the source (theirs)",
                    choices=("ours", "theirs"),
                ),
            },
        ),
        tool=Tool(
            "branch_merge",
            "Merge a branch into another one, `main` by default. `dry_run` only tells what would happen.",
            is_destructive=True,
        ),
    ),
    # ---- stored queries and agents
    Operation(
        id="list_queries",
        path="/queries",
        tag="queries",
        text="The stored queries that the caller may run.",
        result="api.answers:StoredQueryList",
    ),
    Operation(
        id="invoke_query",
        action=None,
        method="POST",
        path="/queries/{name}",
        tag="queries",
        text="Run a stored query: the rows of a read, or the receipt of a mutation.",
        body="StoredQueryBody",
        body_required=False,
        result=f"{_ROWS} | {_MUTATION}",
        cost=Cost.WRITE,
        errors=(504,),
    ),
    Operation(
        id="invoke_query_if_graph_commit",
        action=None,
        method="POST",
        path="/queries/{name}/if-graph-commit",
        tag="queries",
        text="Run a stored mutation, if the branch is still at a commit.",
        body="StoredQueryBody",
        body_required=False,
        result=f"{_ROWS} | {_MUTATION}",
        cost=Cost.WRITE,
        is_conditional=True,
    ),
    Operation(
        id="mcp",
        action=None,
        method="POST",
        path="/mcp",
        tag="queries",
        text="The Model Context Protocol: tools of an agent for this graph. Streamable HTTP without sessions.",
        body="RpcMessage",
        result="api.answers:RpcAnswer",
        also={202: "a notification was taken"},
    ),
)

#: Every operation by its id.
OPERATIONS: Mapping[str, Operation] = MappingProxyType({entry.id: entry for entry in _ENTRIES})
