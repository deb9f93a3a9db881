"""The JSON-RPC endpoint of MCP, and its requests without a socket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.api.operations import Operation
from omnigraph.api.protocol import JSON
from omnigraph.errors import BadRequestError, InternalError, OmniError, ResourceLimitError
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import parse_body, read_json_bytes
from omnigraph.server.mcp.tools import BUILT_INS, GraphTool, InnerRequest, stored_tool
from omnigraph.server.responses import internal_document, json_bytes, logger
from omnigraph.server.routes.writes import invocable
from omnigraph.server.routing import handles

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


# ---- In-process requests to the server's own routes


#: Larger answers are of no use to an agent, and would fill the memory.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: What an inner request keeps of the headers of the outer one: who asks, and under which name of the server.
_KEPT = (b"authorization", b"host")
#: What it keeps of the connection.
_SHARED = ("asgi", "http_version", "scheme", "server", "client", "root_path")


@dataclass(frozen=True, slots=True)
class InnerAnswer:
    """The status and the document of a route."""

    status: int
    document: dict[str, Any]


async def ask(outer: Request, graph_id: str, inner: InnerRequest) -> InnerAnswer:
    """Request a route and return its answer.

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
    return InnerAnswer(collected.status, document)


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


async def _run(call: GraphCall, tool: GraphTool, arguments: dict[str, Any]) -> types.CallToolResult:
    try:
        answer = await ask(call.request, call.served.graph_id, tool.request_of(arguments))
    except OmniError as error:
        status, document = error.http_status, call.service.hidden.in_document(error.to_json())
    except Exception:  # noqa: BLE001  # the edge of the protocol, which would tell the caller what went wrong inside
        _log.exception("tool failed", tool=tool.name)
        status, document = 500, internal_document()
    else:
        status, document = answer.status, answer.document
    _log.info("tool", tool=tool.name, status=status)
    text = json.dumps(document, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=document, is_error=status >= 400
    )
