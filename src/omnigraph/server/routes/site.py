"""Routes of health, metrics, graphs and the explorer page."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.api.models import Graphs, Health
from omnigraph.errors import NotFoundError
from omnigraph.policy.rules import Action
from omnigraph.server.calls import authorize_server, enter, visible_graphs
from omnigraph.server.http_input import is_not_modified
from omnigraph.server.responses import json_response
from omnigraph.server.routing import operation

# ---- Whether the server lives, what it counts, which graphs it serves


router = APIRouter()


@operation(router, "GET", "/healthz", id="health", tag="health", returns=Health)
async def health(_: Request) -> Response:
    """Whether the server lives."""
    return json_response(
        {
            "status": "ok",
            "version": __version__,
            "internal_schema_version": INTERNAL_SCHEMA_VERSION,
        }
    )


@operation(router, "GET", "/metrics", id="metrics", tag="health", returns="text/plain")
async def metrics(request: Request) -> Response:
    """What the server counts, as Prometheus reads it; about a graph to whom it may be shown."""
    call = enter(request)
    text = call.service.metrics.render(visible_graphs(call))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@operation(router, "GET", "/openapi.json", id="openapi", tag="health", returns="application/json")
async def openapi(request: Request) -> Response:
    """The description of all routes."""
    return json_response(request.app.openapi())


@operation(router, "GET", "/graphs", id="list_graphs", tag="management", returns=Graphs)
async def list_graphs(request: Request) -> Response:
    """The graphs that are served, sorted by id."""
    call = enter(request)
    authorize_server(call, Action.GRAPH_LIST)
    return json_response(
        {
            "graphs": [
                {"graph_id": graph_id, "uri": served.address}
                for graph_id, served in call.service.graphs.items()
            ]
        }
    )


# ---- The explorer page and its assets


page_router = APIRouter()
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}
_INDEX = "index.html"
_METHODS = ["GET", "HEAD"]


@page_router.api_route("/", methods=_METHODS, include_in_schema=False)
async def index(request: Request) -> Response:
    """The page."""
    return _answer(request, _INDEX)


@page_router.api_route("/page/{path:path}", methods=_METHODS, include_in_schema=False)
async def asset(request: Request) -> Response:
    """A file of the page."""
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
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

    walk(files("omnigraph.server") / "page", "")
    return found
