"""Failures as responses: one envelope for everything that can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from omnigraph.errors import (
    BlobRangeError,
    MethodNotAllowedError,
    NotFoundError,
    OmniError,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
)
from omnigraph.server.admission import RETRY_AFTER_S
from omnigraph.server.logs import logger
from omnigraph.server.responses import json_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

    from omnigraph.server.hidden_places import HiddenPlaces

_log = logger(__name__)
_INTERNAL = "the server failed; its log tells more under the id of this request"


def install_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
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
    """The response of a failure that nobody foresaw; it tells nothing about the inside."""
    return json_response(internal_document(), status=500)


def internal_document() -> dict[str, object]:
    """The body of a failure that nobody foresaw."""
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
        response = failure_response(
            MethodNotAllowedError(f"{request.method} is not a method of this path")
        )
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
