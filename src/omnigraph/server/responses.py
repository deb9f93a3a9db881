"""Responses: JSON, failures, and structured logs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from omnigraph.api.operation import JSON
from omnigraph.errors import (
    BlobRangeError,
    MethodNotAllowedError,
    NotFoundError,
    OmniError,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
)
from omnigraph.errors.text import one_line, printable
from omnigraph.server.admission import RETRY_AFTER_S
from omnigraph.server.service import HiddenPlaces

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request


# ---- Responses in the forms that all routes share


def json_text(value: object) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_bytes(document: Mapping[str, object]) -> bytes:
    """A document as compact JSON in UTF-8."""
    return json_text(document).encode()


def json_response(
    document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document as a response."""
    return Response(json_bytes(document), status_code=status, headers=headers, media_type=JSON)


# ---- Structured logs
#
# Loggers belong to the standard library, so that an embedding application decides where they go; only the
# executable configures them.


_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)

#: Members that have several lines.
_LONG = ("exception", "stack")


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module: takes an event and its facts."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, *_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", wrapped)


def _without_control(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Entries that no terminal obeys, and that stay on their line: paths and names are untrusted."""
    return {
        name: (printable if name in _LONG else one_line)(value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def configure_logs(*, level: int = logging.INFO) -> None:
    """Send what the server and the libraries below it log to standard error."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _without_control,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Their INFO records repeat those of this server with fewer facts.
    for name in ("uvicorn", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)


# ---- Error responses


_log = logger(__name__)
_INTERNAL = "the server failed; its log tells more under the id of this request"


def install_handlers(app: Starlette, routes: Sequence[BaseRoute]) -> None:
    """Answer every failure with the envelope; `routes` are all that the application has."""

    async def on_http_exception(request: Request, error: Exception) -> Response:
        return _unrouted(request, cast("HTTPException", error), routes)

    app.add_exception_handler(OmniError, _on_omni_error)
    app.add_exception_handler(HTTPException, on_http_exception)


def failure_response(error: OmniError, hidden: HiddenPlaces | None = None) -> Response:
    """The response of a typed failure, without the places of the storage."""
    headers = {}
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, BlobRangeError):
        headers["Content-Range"] = f"bytes */{error.length}"
    document = error.to_json()
    if hidden is not None:
        document = hidden.in_document(document)
    return json_response(document, status=error.http_status, headers=headers)


def internal_response() -> Response:
    """The response of an unexpected failure, without internal details."""
    return json_response(internal_document(), status=500)


def internal_document() -> dict[str, object]:
    """The body of an unexpected failure."""
    return {"error": _INTERNAL, "kind": "internal", "code": "internal"}


async def _on_omni_error(request: Request, error: Exception) -> Response:
    failure = cast("OmniError", error)
    service = request.app.state.service
    try:
        await service.unknown_tokens.wait(getattr(request.state, "refusal_delay_s", 0.0))
    except TooManyRequestsError as refused:
        failure = refused
    if failure.http_status >= 500:
        _log.error("request failed", kind=failure.kind, message=failure.message)
    return failure_response(failure, service.hidden)


def _unrouted(request: Request, error: HTTPException, routes: Sequence[BaseRoute]) -> Response:
    """Paths and methods that the router does not know."""
    if error.status_code == 404:
        return failure_response(NotFoundError("there is nothing at this path"))
    if error.status_code == 405:
        response = failure_response(MethodNotAllowedError(f"{request.method} is not a method of this path"))
        # The router names the methods of the first route of a path, which may have several.
        response.headers["Allow"] = ", ".join(_methods(request, routes))
        return response
    return failure_response(TransportError("the request is malformed"))


def _methods(request: Request, routes: Sequence[BaseRoute]) -> list[str]:
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)
