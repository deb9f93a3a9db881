"""The form of an operation of a server, and the names that both ends of the wire use: media types and headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from enum import Enum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from omnigraph.frozen import frozen
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from pydantic import BaseModel

    from omnigraph.codec import Document

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


@frozen
class Tool:
    """An operation as agents see it."""

    name: str
    description: str
    _: KW_ONLY
    is_destructive: bool = False
    #: Arguments of a typical call; its description ends with them.
    example: Mapping[str, object] | None = None
    #: Arguments of a call that does not give them: an agent reads little at a time.
    defaults: Mapping[str, object] = field(default_factory=dict)
    #: The list of the answer of which a beginning is of use when all of it is too long.
    rows: str | None = None


@frozen
class Flag:
    """A parameter of a method on a command line; one that is required is an argument."""

    help: str
    metavar: str | None = None
    #: Other than `--` and the name of the parameter.
    spelling: str | None = None
    choices: tuple[str, ...] = ()


@frozen
class Command:
    """An operation as people call it, where its command is generated."""

    name: str
    #: By parameter, in the order of the help; without those that are the same in every command.
    flags: Mapping[str, Flag] = field(default_factory=dict)
    _: KW_ONLY
    #: What is destroyed, with names of parameters in braces; a remote graph needs consent to it.
    loss: str | None = None


@frozen(kw_only=True, slots=False)
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
