"""The MCP endpoint: the protocol of a server of tools, without sessions, in both forms that clients speak.

Revisions up to 2025-11-25 begin with `initialize`. Since 2026-07-28 there is no handshake: each request names its
revision in `_meta`, and over HTTP repeats in headers what it is about. Each message is answered by itself, with JSON,
for the actor of its token. The protocol stands here in full because a server of tools needs little of it: its package
would bring a release line that other packages of the same environment may not have.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.api.operation import Operation
from omnigraph.codec import Json
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.server.agent_tools import GraphTool, run_tool, visible_tools
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import parse_body, read_json_bytes
from omnigraph.server.responses import json_response, json_text
from omnigraph.server.routing import handles

# ---- Revisions and errors of the protocol


#: Revisions that begin with a handshake, and those in which each request stands alone; oldest first.
HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
REVISIONS = ("2026-07-28",)

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_HEADER_MISMATCH = -32020
_UNSUPPORTED_REVISION = -32022
#: The status of an error in revisions without handshake; in the others it is 200.
_STATUSES = {_METHOD_NOT_FOUND: 404, _INVALID_PARAMS: 400, _HEADER_MISMATCH: 400, _UNSUPPORTED_REVISION: 400}

#: Members of `_meta` that belong to the protocol.
_REVISION = "io.modelcontextprotocol/protocolVersion"
_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"

REVISION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
_IN_BASE64 = re.compile(r"=\?base64\?(.*)\?=")


class ProtocolError(Exception):
    """A request that the protocol refuses; failures of tools are results."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})


def _unsupported(requested: str) -> ProtocolError:
    return ProtocolError(
        _UNSUPPORTED_REVISION,
        "the server does not speak this revision of the protocol",
        {"supported": list(REVISIONS), "requested": requested},
    )


# ---- Messages


@frozen
class RpcRequest:
    """One request or notification of JSON-RPC 2.0."""

    method: str
    params: Json
    #: None: a notification, which has no answer.
    id: str | int | None

    @staticmethod
    def of(value: object) -> RpcRequest:
        """The message that a JSON value is.

        Raises:
            BadRequestError: it is not one request or notification.
        """
        if isinstance(value, dict) and value.get("jsonrpc") == "2.0":
            method, params, id_ = value.get("method"), value.get("params", {}), value.get("id")
            is_id = isinstance(id_, str | int) and not isinstance(id_, bool)
            if isinstance(method, str) and isinstance(params, dict) and (is_id or "id" not in value):
                return RpcRequest(method, params, id_)
        raise BadRequestError("the body is not a single request or notification of JSON-RPC 2.0")

    @property
    def meta(self) -> Json:
        """What the request says about itself."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def revision(self) -> object:
        """The revision that a request without handshake names."""
        return self.meta.get(_REVISION)

    @property
    def stands_alone(self) -> bool:
        """Whether it belongs to a revision without handshake."""
        return _REVISION in self.meta

    def check_revision(self) -> None:
        """Refuse a revision without handshake that is unknown.

        Raises:
            ProtocolError: it is, or the request lacks what each request of such a revision has.
        """
        revision = self.revision
        if not isinstance(revision, str) or _CLIENT_CAPABILITIES not in self.meta:
            raise ProtocolError(_INVALID_PARAMS, f"params._meta needs {_REVISION} and {_CLIENT_CAPABILITIES}")
        if revision not in REVISIONS:
            raise _unsupported(revision)

    def check_headers(self, headers: Headers) -> None:
        """Refuse headers that say something else than the message: what lies between may have decided by them.

        Raises:
            ProtocolError: they do, or they name an unknown revision.
        """
        given = headers.get(REVISION_HEADER)
        if not self.stands_alone:
            if given in REVISIONS:
                raise ProtocolError(_INVALID_PARAMS, f"params._meta needs {_REVISION} and {_CLIENT_CAPABILITIES}")
            if given is not None and given not in HANDSHAKE_REVISIONS:
                raise _unsupported(given)
            return
        expected = {REVISION_HEADER: self.revision, METHOD_HEADER: self.method}
        if self.method == "tools/call":
            expected[NAME_HEADER] = self.params.get("name")
        for name, value in expected.items():
            found = [_plain(text) for text in headers.getlist(name)]
            if found != [value]:
                raise ProtocolError(_HEADER_MISMATCH, f"the header {name} does not say what the message says")


def header_text(text: str) -> str:
    """A text as the value of a header: in Base64, which every text can have."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _plain(text: str) -> str | None:
    """The value of a header, which is in Base64 where it could not stand as it is; None: it is not Base64."""
    found = _IN_BASE64.fullmatch(text)
    if found is None:
        return text
    try:
        return base64.b64decode(found[1], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


# ---- Methods


_INSTRUCTIONS = (
    "A typed property graph with branches and history. Prefer the tools that are named after what they find or do; "
    "`schema` and `query` answer everything else. Work that should be reviewed belongs on a branch: create one, "
    "write there, and merge it."
)
_CAPABILITIES: Json = {"tools": {"listChanged": False}}
#: Lists may change with every request, and belong to one actor.
_UNCACHED: Json = {"ttlMs": 0, "cacheScope": "private"}


async def _initialize(call: GraphCall, request: RpcRequest) -> Json:
    wanted = request.params.get("protocolVersion")
    if not isinstance(wanted, str):
        raise ProtocolError(_INVALID_PARAMS, "params needs protocolVersion")
    return {
        "protocolVersion": wanted if wanted in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[-1],
        "capabilities": _CAPABILITIES,
        "serverInfo": _server_info(call),
        "instructions": _INSTRUCTIONS,
    }


async def _discover(_call: GraphCall, _request: RpcRequest) -> Json:
    return {
        "supportedVersions": list(REVISIONS),
        "capabilities": _CAPABILITIES,
        "instructions": _INSTRUCTIONS,
        **_UNCACHED,
    }


async def _ping(_call: GraphCall, _request: RpcRequest) -> Json:
    return {}


async def _list_tools(call: GraphCall, request: RpcRequest) -> Json:
    listed: Json = {"tools": [tool.definition() for tool in visible_tools(call).values()]}
    return listed | (_UNCACHED if request.stands_alone else {})


async def _call_tool(call: GraphCall, request: RpcRequest) -> Json:
    name, arguments = request.params.get("name"), request.params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        raise ProtocolError(_INVALID_PARAMS, "params needs name, a text, and arguments, an object")
    tool = visible_tools(call).get(name)
    if tool is None:
        raise ProtocolError(_INVALID_PARAMS, f"there is no tool {name!r}")
    return await _answer(call, tool, arguments or {})


async def _answer(call: GraphCall, tool: GraphTool, arguments: Json) -> Json:
    document, is_error = await run_tool(call, tool, arguments)
    text = {"type": "text", "text": json_text(document)}
    return {"content": [text], "structuredContent": document, "isError": is_error}


_Method = Callable[[GraphCall, RpcRequest], Awaitable[Json]]
_SHARED: Mapping[str, _Method] = {"ping": _ping, "tools/list": _list_tools, "tools/call": _call_tool}
_WITH_HANDSHAKE: Mapping[str, _Method] = {"initialize": _initialize, **_SHARED}
_ALONE: Mapping[str, _Method] = {"server/discover": _discover, **_SHARED}


async def _result(call: GraphCall, request: RpcRequest) -> Json:
    """The result of a request.

    Raises:
        ProtocolError: it is refused.
    """
    method = (_ALONE if request.stands_alone else _WITH_HANDSHAKE).get(request.method)
    if method is None:
        raise ProtocolError(_METHOD_NOT_FOUND, f"there is no method {request.method!r}")
    result = await method(call, request)
    if not request.stands_alone:
        return result
    return {**result, "resultType": "complete", "_meta": {_SERVER_INFO: _server_info(call)}}


def _server_info(call: GraphCall) -> Json:
    return {"name": "omnigraph", "title": f"OmniGraph: {call.served.graph_id}", "version": __version__}


# ---- `POST /graphs/{graph_id}/mcp`


@handles("mcp")
async def _mcp(http: Request, _operation: Operation) -> Response:
    call = enter_graph(http)
    body = await read_json_bytes(http, call.settings)
    value, _ = await parse_body(http, body, call.settings)
    request = RpcRequest.of(value)
    if request.id is None:
        return Response(status_code=202)
    status = 200
    try:
        if request.stands_alone:
            request.check_revision()
        request.check_headers(http.headers)
        outcome: Json = {"result": await _result(call, request)}
    except ProtocolError as error:
        outcome = {"error": error.document}
        with_handshake = http.headers.get(REVISION_HEADER, HANDSHAKE_REVISIONS[0]) in HANDSHAKE_REVISIONS
        status = 200 if with_handshake and not request.stands_alone else _STATUSES[error.code]
    return json_response({"jsonrpc": "2.0", "id": request.id, **outcome}, status=status)
