"""Routes of health, metrics, graphs and the explorer page."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.api.answers import GraphEntry, Graphs, Health
from omnigraph.api.operations import Operation
from omnigraph.errors import NotFoundError
from omnigraph.policy.rules import Action
from omnigraph.server.calls import authorize_server, enter, visible_graphs
from omnigraph.server.http_input import is_not_modified
from omnigraph.server.responses import json_response
from omnigraph.server.routing import handles, openapi_document

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
_METHODS = ["GET", "HEAD"]


def page_routes() -> list[Route]:
    """The page, and the files of the page."""
    return [Route("/", _asset, methods=_METHODS), Route("/page/{path:path}", _asset, methods=_METHODS)]


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

    walk(files("omnigraph.server") / "page", "")
    return found
