"""Whether the server lives, what it counts, which graphs it serves."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.policy.rules import Action
from omnigraph.server.answers import Graphs, Health
from omnigraph.server.calls import authorize_server, enter, visible_graphs
from omnigraph.server.operations import operation
from omnigraph.server.responses import json_response

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
