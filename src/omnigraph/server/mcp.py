"""The MCP endpoint: operations and stored queries as tools of an agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import Tool as McpTool
from mcp_types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.api.operation import JSON, Operation, Tool
from omnigraph.api.operations import OPERATIONS
from omnigraph.codec import Json
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError, InternalError, OmniError, ResourceLimitError
from omnigraph.lang.query.signature import FieldDescriptor, ValueKind
from omnigraph.policy.rules import Action
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import parse_body, read_json_bytes
from omnigraph.server.responses import internal_document, json_bytes, logger
from omnigraph.server.routes.writes import invocable
from omnigraph.server.routing import handles, not_null
from omnigraph.server.stored_queries import StoredQuery

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


# ---- Tool definitions


Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """A request to a route of this server. `path` is below the graph unless it is `is_flat`."""

    method: str
    path: str
    query: str = ""
    #: The JSON body; None: there is none.
    body: Mapping[str, object] | None = None
    is_flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTool:
    """One tool, hidden from callers that may do none of `needs` on any branch."""

    name: str
    description: str
    #: The JSON schema of every argument.
    properties: Mapping[str, Json]
    required: list[str]
    request: Callable[[Arguments], InnerRequest]
    needs: Action | None
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
        return self.request(arguments)

    def definition(self) -> McpTool:
        """The tool as it is listed."""
        return McpTool(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            annotations=ToolAnnotations(
                read_only_hint=self.is_read, destructive_hint=self.is_destructive, open_world_hint=False
            ),
        )


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
    return GraphTool(
        name=tool.name,
        description=tool.description,
        properties=properties,
        required=required,
        request=partial(_operation_request, operation),
        needs=operation.action,
        is_read=not operation.cost.writes,
        is_destructive=tool.is_destructive,
    )


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


#: Where the query runs, and for how long. No parameter has such a name: two underscores at the beginning are reserved.
BRANCH, SNAPSHOT, TIMEOUT_S = "__branch", "__snapshot", "__timeout_s"


def stored_tool(query: StoredQuery) -> GraphTool:
    """The tool of a stored query."""
    return GraphTool(
        name=query.tool_name,
        description=_description(query),
        properties=_arguments(query),
        required=[param.name for param in query.params if not param.nullable],
        request=partial(_request, query),
        needs=Action.CHANGE if query.is_mutation else Action.READ,
        is_read=not query.is_mutation,
        is_destructive=query.is_destructive,
    )


def _request(query: StoredQuery, arguments: Arguments) -> InnerRequest:
    routing = {BRANCH: "branch", SNAPSHOT: "snapshot", TIMEOUT_S: "timeout_s"}
    body: Json = {routing[name]: arguments[name] for name in routing if name in arguments}
    body["params"] = {name: value for name, value in arguments.items() if name not in routing}
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


# ---- In-process requests to the server's own routes


#: Larger answers are of no use to an agent, and would fill the memory.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: What an inner request keeps of the headers of the outer one: who asks, and under which name of the server.
_KEPT = (b"authorization", b"host")
#: What it keeps of the connection.
_SHARED = ("asgi", "http_version", "scheme", "server", "client", "root_path")


async def ask(outer: Request, graph_id: str, inner: InnerRequest) -> tuple[int, Json]:
    """Request a route; the status and the document of its answer.

    Raises:
        ResourceLimitError: it answers too much.
    """
    collected = _Collected()
    body = b"" if inner.body is None else json_bytes(inner.body)

    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        # Behind the body only the end of the connection comes, which is that of the outer request.
        return await outer.receive()

    scope = _scope(outer.scope, graph_id, inner, body)
    # In a task, because a request gives its id and its actor to all log entries of its context.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outer.app, scope, receive, collected.send)
    if collected.size > MAX_ANSWER_BYTES:
        advice = "ask for less: give a `limit`, or return fewer columns"
        raise ResourceLimitError("mcp_answer_bytes", MAX_ANSWER_BYTES, collected.size, advice)
    document = json.loads(b"".join(collected.parts))
    if not isinstance(document, dict):
        raise InternalError("a route answered something else than an object")
    return collected.status, document


def _scope(outer: Scope, graph_id: str, inner: InnerRequest, body: bytes) -> Scope:
    path = inner.path if inner.is_flat else f"/graphs/{graph_id}{inner.path}"
    headers = [(name, value) for name, value in outer["headers"] if name in _KEPT]
    if inner.body is not None:
        headers += [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
    return {name: outer[name] for name in _SHARED if name in outer} | {
        "type": "http",
        "method": inner.method,
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": inner.query.encode("ascii"),
        "headers": headers,
        "state": dict(outer.get("state", {})),
    }


class _Collected:
    """A response, kept while it is small enough."""

    def __init__(self) -> None:
        self.status = 0
        self.size = 0
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        part = message.get("body", b"")
        self.size += len(part)
        if self.size > MAX_ANSWER_BYTES:
            self.parts.clear()
        else:
            self.parts.append(part)


# ---- `POST /graphs/{graph_id}/mcp`
#
# Stateless: every request stands alone, is answered with JSON, and belongs to the actor of its token.


_log = logger(__name__)

_INSTRUCTIONS = (
    "A typed property graph with branches and history. Prefer the tools that are named after what they find or do; "
    "`schema` and `query` answer everything else. Work that should be reviewed belongs on a branch: create one, "
    "write there, and merge it."
)


@handles("mcp")
async def _mcp(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    body = await read_json_bytes(request, call.settings)
    message, _ = await parse_body(request, body, call.settings)
    _check_message(message)
    return _McpResponse(call, body)


def visible_tools(call: GraphCall) -> dict[str, GraphTool]:
    """The tools that the caller may know about, by name: those that it may use on some branch."""
    gate = call.served.gate
    tools = {**BUILT_INS, **{query.tool_name: stored_tool(query) for query in invocable(call)}}
    if gate is None:
        return tools
    return {name: tool for name, tool in tools.items() if tool.needs is None or gate.could(call.actor, tool.needs)}


def _check_message(message: object) -> None:
    """Refuse a message that is not one request or notification, before the protocol reads it.

    Raises:
        BadRequestError: it is neither.
    """
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or not isinstance(message.get("method"), str)
        or not isinstance(message.get("params", {}), dict)
        or not _is_id(message.get("id", 0))
    ):
        raise BadRequestError("the body is not a single request or notification of JSON-RPC 2.0")


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


class _McpResponse(Response):
    """Answers one message; the protocol writes the response itself."""

    def __init__(self, call: GraphCall, message: bytes) -> None:
        super().__init__()
        self._call = call
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the protocol answer."""
        # A manager of its own for every message: what a request starts ends with it, and nothing is shared.
        manager = StreamableHTTPSessionManager(
            _server_of(self._call), json_response=True, stateless=True, max_request_body_size=max(1, len(self._message))
        )
        is_read = False

        async def receive_message() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._message, "more_body": False}

        async with manager.run():
            await manager.handle_request(_accepting_json(scope), receive_message, send)


def _accepting_json(scope: Scope) -> Scope:
    """The request as one that accepts what this endpoint answers, which is JSON whatever the client asks for."""
    replaced = (b"accept", b"content-type", b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in replaced]
    headers += [(b"accept", b"application/json, text/event-stream"), (b"content-type", JSON.encode())]
    return {**scope, "headers": headers}


def _server_of(call: GraphCall) -> Server[Any]:
    """The server of the protocol as one caller sees it."""

    async def list_tools(_context: object, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = visible_tools(call).values()
        return types.ListToolsResult(tools=[tool.definition() for tool in tools])

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = visible_tools(call).get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
        return await _run(call, tool, params.arguments or {})

    return Server(
        "omnigraph",
        version=__version__,
        title=f"OmniGraph: {call.served.graph_id}",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No parameter travels in a header, so nothing has to be looked up before a call.
        get_tool_input_schema=lambda _name: None,
    )


async def _run(call: GraphCall, tool: GraphTool, arguments: Json) -> types.CallToolResult:
    try:
        status, document = await ask(call.request, call.served.graph_id, tool.request_of(arguments))
    except OmniError as error:
        status, document = error.http_status, call.service.hidden.in_document(error.to_json())
    except Exception:  # noqa: BLE001  # the edge of the protocol, which would tell the caller what went wrong inside
        _log.exception("tool failed", tool=tool.name)
        status, document = 500, internal_document()
    _log.info("tool", tool=tool.name, status=status)
    text = json.dumps(document, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=document, is_error=status >= 400
    )
