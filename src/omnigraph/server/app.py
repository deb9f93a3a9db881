"""Routes, middleware and failures around one service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from starlette.applications import Starlette

from omnigraph.core.ids import new_ulid
from omnigraph.server.boot import install_reload
from omnigraph.server.mcp import endpoint
from omnigraph.server.responses import install_handlers, internal_response, logger
from omnigraph.server.routes import history, reads, schema, writes
from omnigraph.server.routes.site import page_routes
from omnigraph.server.routing import catalogue_routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from omnigraph.server.service import Service


#: Modules that register handlers of operations.
_HANDLERS = (endpoint, history, reads, schema, writes)


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
