"""The application around one service: middleware, the routes of the server itself, and the explorer page."""

from __future__ import annotations

import hashlib
import mimetypes
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.api.answers import GraphEntry, Graphs, Health
from omnigraph.api.operation import Operation
from omnigraph.core.ids import new_ulid
from omnigraph.errors import NotFoundError
from omnigraph.policy.rules import Action
from omnigraph.server import mcp
from omnigraph.server.boot import install_reload
from omnigraph.server.calls import authorize_server, enter, visible_graphs
from omnigraph.server.http_input import is_not_modified
from omnigraph.server.responses import install_handlers, internal_response, json_response, logger
from omnigraph.server.routes import history, reads, tags, writes
from omnigraph.server.routing import catalogue_routes, handles, openapi_document
from omnigraph.server.service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


# ---- Health, metrics, and the list of graphs


@handles("health")
async def _health(_request: Request, _operation: Operation) -> Response:
    found = Health(version=__version__, internal_schema_version=INTERNAL_SCHEMA_VERSION)
    return json_response(found.document())


@handles("metrics")
async def _metrics(request: Request, _operation: Operation) -> Response:
    call = enter(request)
    text = call.service.metrics.render(visible_graphs(call))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@handles("openapi")
async def _openapi(request: Request, _operation: Operation) -> Response:
    return json_response(openapi_document(is_open=request.app.state.service.is_open))


@handles("list_graphs")
async def _list_graphs(request: Request, _operation: Operation) -> Response:
    call = enter(request)
    authorize_server(call, Action.GRAPH_LIST)
    served = call.service.graphs.items()
    found = [GraphEntry(graph_id=name, uri=graph.address) for name, graph in served]
    return json_response(Graphs(graphs=found).document())


# ---- The explorer page and its assets


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY", "Cache-Control": "no-cache"}
_INDEX = "index.html"


def page_routes() -> list[Route]:
    """The page, and the files of the page."""
    return [Route("/", _asset, methods=["GET", "HEAD"]), Route("/page/{path:path}", _asset, methods=["GET", "HEAD"])]


async def _asset(request: Request) -> Response:
    path = request.path_params.get("path", _INDEX)
    if path not in _assets():
        raise NotFoundError("there is nothing at this path")
    content, etag = _content(path)
    headers = _HEADERS | {"ETag": etag}
    if is_not_modified(request.headers, etag):
        return Response(status_code=304, headers=headers)
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers=headers)


@cache
def _content(path: str) -> tuple[bytes, str]:
    """A file of the page and its tag; both stay the same as long as the server runs."""
    content = _assets()[path].read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@cache
def _assets() -> dict[str, Traversable]:
    """Every file of the page by its path; nothing else can be asked for."""
    found: dict[str, Traversable] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            else:
                found[f"{prefix}{item.name}"] = item

    walk(files("omnigraph.display") / "page", "")
    return found


#: Modules that register handlers of operations.
_HANDLERS = (mcp, history, reads, tags, writes)


# ---- Middleware: request ids, logs, counts and headers


_log = logger(__name__)
_UNKNOWN_ROUTE = "unknown"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
#: Refusals of a body of which the rest is still to come, maybe for ever.
_UNREAD = (408, 413)
_CLOSE = (b"connection", b"close")
_STANDARD_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
_NO_STORE = (b"cache-control", b"no-store")


class RequestEdge:
    """The outermost application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_ulid()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        answer = _Answer(send, request_id, ends_connection=_is_ambiguous(scope))
        metrics = self._service.metrics
        begun = time.perf_counter()
        metrics.in_flight.inc()
        try:
            with self._service.bodies.of_request(scope):
                await self._app(scope, receive, answer.send)
        except Exception:  # the edge of the server: everything becomes a response and a log entry
            _log.exception("unexpected failure")
            if answer.status is None:
                await internal_response()(scope, receive, answer.send)
            else:
                # The response has begun and cannot be taken back: only a broken connection says that it is not whole.
                raise
        finally:
            metrics.in_flight.dec()
            seconds = time.perf_counter() - begun
            route = _route_of(scope)
            status = str(answer.status or "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.requests.labels(method, route, status).inc()
            metrics.seconds.labels(method, route).observe(seconds)
            _log.info(
                "request", method=scope["method"], path=scope["path"], status=answer.status, ms=round(seconds * 1000, 1)
            )


class _Answer:
    """Sends a response on, with the headers that all have."""

    def __init__(self, send: Send, request_id: str, *, ends_connection: bool) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self._ends_connection = ends_connection
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            headers += _STANDARD_HEADERS
            headers.append((b"omnigraph-request-id", self._request_id))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append(_NO_STORE)
            if self._ends_connection or self.status in _UNREAD:
                headers.append(_CLOSE)
            message = {**message, "headers": headers}
        await self._send(message)


def _is_ambiguous(scope: Scope) -> bool:
    """Whether a request tells its length in two ways: what one proxy takes for its body is for another the next one."""
    names = {name.lower() for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


def _route_of(scope: Scope) -> str:
    """The pattern of the route, which has few values, instead of the path, which may have any."""
    path: str = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
    return path


# ---- The application: all routes around one service


def make_app(service: Service) -> Starlette:
    """The application that serves the graphs of a service."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with install_reload(service):
            yield

    # The explorer page comes last: its route takes every path that no other one does.
    routes = [*catalogue_routes(), *page_routes()]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.service = service
    install_handlers(app, routes)
    app.add_middleware(RequestEdge, service=service)
    return app
