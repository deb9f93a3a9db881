"""Tools of agents: operations and stored queries, each a request to a route of this server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from urllib.parse import quote, urlencode

from omnigraph.api.operation import Operation, Tool
from omnigraph.api.operations import OPERATIONS
from omnigraph.codec import Json
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.lang.query.signature import FieldDescriptor, ValueKind
from omnigraph.policy.rules import Action
from omnigraph.server.calls import GraphCall
from omnigraph.server.inner_requests import InnerRequest, ask
from omnigraph.server.responses import internal_document, json_text, logger
from omnigraph.server.routes.writes import invocable
from omnigraph.server.routing import not_null
from omnigraph.server.stored_queries import StoredQuery

# ---- Tool definitions


Arguments = Mapping[str, object]


@frozen(kw_only=True)
class GraphTool:
    """One tool, hidden from callers that may do none of `needs` on any branch."""

    name: str
    description: str
    #: The JSON schema of every argument.
    properties: Mapping[str, Json]
    required: list[str]
    request: Callable[[Arguments], InnerRequest]
    needs: Action | None
    #: Arguments of a call that does not give them.
    defaults: Mapping[str, object]
    #: The list of the answer that may be cut.
    rows: str | None
    is_read: bool = True
    is_destructive: bool = False

    @property
    def input_schema(self) -> Json:
        """The JSON schema of all arguments."""
        schema: Json = {"type": "object", "properties": self.properties, "additionalProperties": False}
        return schema | ({"required": self.required} if self.required else {})

    def request_of(self, arguments: Arguments) -> InnerRequest:
        """The request that a call stands for.

        Raises:
            BadRequestError: the tool has no such argument.
        """
        for name in arguments:
            if name not in self.properties:
                hint = did_you_mean(name, self.properties)
                raise BadRequestError(f"`{self.name}` has no argument `{name}`" + (f": {hint}" if hint else ""))
        return self.request({**self.defaults, **arguments})

    def definition(self) -> Json:
        """The tool as the protocol lists it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": {
                "readOnlyHint": self.is_read,
                "destructiveHint": self.is_destructive,
                "openWorldHint": False,
            },
        }


def query_string(arguments: Arguments) -> str:
    """Arguments as the query string of a route; lists are repeated, nulls left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        items = value if isinstance(value, list) else [value]
        pairs += [(name, _text(item)) for item in items if item is not None]
    return urlencode(pairs)


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


# ---- The built-in tools of every graph


def _built_in(operation: Operation, tool: Tool) -> GraphTool:
    """The tool of an operation; its arguments are flat, and without a null where leaving out is meant."""
    properties: dict[str, Json] = {name: {"type": "string"} for name in operation.path_parameters}
    required = list(properties)
    for model in (operation.query_model, operation.body_model):
        document = {} if model is None else model.model_json_schema(by_alias=True)
        properties |= {name: not_null(value) for name, value in document.get("properties", {}).items()}
        required += document.get("required", [])
    example = "" if tool.example is None else f"\n\nExample: {json.dumps(tool.example)}"
    return GraphTool(
        name=tool.name,
        description=f"{tool.description}{example}",
        properties=_with_defaults(properties, tool.defaults),
        required=required,
        request=partial(_operation_request, operation),
        needs=operation.action,
        defaults=tool.defaults,
        rows=tool.rows,
        is_read=not operation.cost.writes,
        is_destructive=tool.is_destructive,
    )


def _with_defaults(properties: Mapping[str, Json], defaults: Mapping[str, object]) -> dict[str, Json]:
    return {
        name: {**schema, "default": defaults[name]} if name in defaults else schema
        for name, schema in properties.items()
    }


def _operation_request(operation: Operation, arguments: Arguments) -> InnerRequest:
    """The request that arguments stand for: parts of the path, then the query string or the body."""
    rest = dict(arguments)
    values: dict[str, str] = {}
    for name in operation.path_parameters:
        value = rest.pop(name, None)
        if not isinstance(value, str):
            raise BadRequestError(f"give `{name}`, a text")
        values[name] = value
    path = operation.path_of(values)
    if operation.body is not None:
        return InnerRequest(method=operation.method, path=path, body=rest)
    return InnerRequest(method=operation.method, path=path, query=query_string(rest), is_flat=operation.is_flat)


#: Every tool that is not a stored query, by name.
BUILT_INS: dict[str, GraphTool] = {
    entry.tool.name: _built_in(entry, entry.tool) for entry in OPERATIONS.values() if entry.tool is not None
}


# ---- Stored queries as tools


#: Where the query runs, for how long, and how many rows are wanted. No parameter has such a name: two underscores at
#: the beginning are reserved.
BRANCH, SNAPSHOT, TIMEOUT_S, FIRST = "__branch", "__snapshot", "__timeout_s", "__first"
_ROUTING = MappingProxyType({BRANCH: "branch", SNAPSHOT: "snapshot", TIMEOUT_S: "timeout_s", FIRST: "first"})
#: Rows of a stored read unless the agent asks for more.
_FEW_ROWS = MappingProxyType({FIRST: BUILT_INS["query"].defaults["first"]})


def stored_tool(query: StoredQuery) -> GraphTool:
    """The tool of a stored query."""
    defaults: Mapping[str, object] = {} if query.is_mutation else _FEW_ROWS
    return GraphTool(
        name=query.tool_name,
        description=_description(query),
        properties=_with_defaults(_arguments(query), defaults),
        required=[param.name for param in query.params if not param.nullable],
        request=partial(_request, query),
        defaults=defaults,
        rows=None if query.is_mutation else "rows",
        needs=Action.CHANGE if query.is_mutation else Action.READ,
        is_read=not query.is_mutation,
        is_destructive=query.is_destructive,
    )


def _request(query: StoredQuery, arguments: Arguments) -> InnerRequest:
    body: Json = {member: arguments[name] for name, member in _ROUTING.items() if name in arguments}
    body["params"] = {name: value for name, value in arguments.items() if name not in _ROUTING}
    body["expect_mutation"] = query.is_mutation
    return InnerRequest(method="POST", path=f"/queries/{segment(query.name)}", body=body)


def _description(query: StoredQuery) -> str:
    texts = [query.description, query.instruction]
    return "\n\n".join(text for text in texts if text) or f"The stored {query.kind} `{query.name}`."


def _arguments(query: StoredQuery) -> dict[str, Json]:
    properties = {param.name: _parameter(param) for param in query.params}
    properties[BRANCH] = {"type": "string", "description": "branch to work on, instead of main"}
    if not query.is_mutation:
        properties[SNAPSHOT] = {
            "type": "string",
            "description": "commit id: read the graph as it was right after it, instead of a branch",
        }
        properties[TIMEOUT_S] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "seconds that it may work, instead of the default of the server",
        }
        properties[FIRST] = {
            "type": "integer",
            "minimum": 1,
            "description": "only so many rows; `truncated` says whether there are more",
        }
    return properties


def _parameter(param: FieldDescriptor) -> Json:
    schema = _value(param.kind, param)
    if param.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema


_VALUES: Mapping[ValueKind, Json] = {
    ValueKind.STRING: {"type": "string"},
    ValueKind.BOOL: {"type": "boolean"},
    ValueKind.INT: {"type": "integer"},
    ValueKind.BIGINT: {
        "type": "string",
        "pattern": "^-?[0-9]{1,20}$",
        "description": "a whole number of up to 64 bits, as text",
    },
    ValueKind.FLOAT: {"type": "number"},
    ValueKind.DATE: {"type": "string", "format": "date", "description": "YYYY-MM-DD"},
    ValueKind.DATETIME: {"type": "string", "format": "date-time", "description": "ISO 8601"},
    ValueKind.BLOB: {"type": "string", "description": "`base64:` and the bytes, or an address"},
}


def _value(kind: ValueKind, param: FieldDescriptor) -> Json:
    if kind is ValueKind.VECTOR:
        size = param.vector_dim
        return {"type": "array", "items": {"type": "number"}, "minItems": size, "maxItems": size}
    if kind is ValueKind.LIST:
        return {"type": "array", "items": _value(param.item_kind or ValueKind.STRING, param)}
    return dict(_VALUES[kind])


# ---- Calls of tools


_log = logger(__name__)


def visible_tools(call: GraphCall) -> dict[str, GraphTool]:
    """The tools that the caller may know about, by name: those that it may use on some branch."""
    gate = call.served.gate
    tools = {**BUILT_INS, **{query.tool_name: stored_tool(query) for query in invocable(call)}}
    if gate is None:
        return tools
    return {name: tool for name, tool in tools.items() if tool.needs is None or gate.could(call.actor, tool.needs)}


async def run_tool(call: GraphCall, tool: GraphTool, arguments: Arguments) -> tuple[Json, bool]:
    """The document that a tool answers with, and whether it is a refusal."""
    try:
        status, document = await ask(call.request, call.served.graph_id, tool.request_of(arguments))
    except OmniError as error:
        status, document = error.http_status, call.service.hidden.in_document(error.to_json())
    except Exception:  # noqa: BLE001  # the edge of the protocol, which would tell the caller what went wrong inside
        _log.exception("tool failed", tool=tool.name)
        status, document = 500, internal_document()
    _log.info("tool", tool=tool.name, status=status)
    if status >= 400:
        return document, True
    return (document if tool.rows is None else _shortened(document, tool.rows, call.settings.tool_max_bytes)), False


def _shortened(document: Json, name: str, limit: int) -> Json:
    """An answer whose list ends where it becomes too long for an agent, with a note how to get the rest."""
    items = document[name]
    assert isinstance(items, list), name
    kept, size = 0, 0
    while kept < len(items) and (size := size + len(json_text(items[kept]))) <= limit:
        kept += 1
    # One item always: without any, an agent could not see what makes it so long.
    kept = min(max(kept, 1), len(items))
    if kept < len(items):
        how = f", cut at {size_text(limit)}: narrow the question, or ask for fewer properties"
    elif document.get("truncated"):
        how = ": for more give a larger `first`, a condition, or count instead"
    else:
        return document
    counted = {"row_count": kept} if "row_count" in document else {}
    return {**document, name: items[:kept], **counted, "truncated": True, "note": f"the first {kept:,} {name}{how}"}
