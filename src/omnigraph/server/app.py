"""The application: all routes around one service."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from omnigraph.server.failures import install_handlers
from omnigraph.server.mcp.endpoint import router as mcp_router
from omnigraph.server.middleware import RequestEdge
from omnigraph.server.openapi import openapi_document
from omnigraph.server.reload import install_reload
from omnigraph.server.routes import all_routers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from fastapi import APIRouter

    from omnigraph.server.service import Service


def make_app(service: Service) -> FastAPI:
    """The application that serves the graphs of a service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with install_reload(service):
            yield

    app = _routed(lifespan)
    app.state.service = service
    install_handlers(app, [route for router in _routers() for route in router.routes])
    app.openapi = cache(lambda: openapi_document(app, is_open=service.is_open))  # type: ignore[method-assign]  # FastAPI documents this as the way to replace it
    app.add_middleware(RequestEdge, service=service)
    return app


def describe_routes() -> dict[str, Any]:
    """The OpenAPI document of a server with tokens; it needs no graph."""
    return openapi_document(_routed(), is_open=False)


def _routed(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan
    )
    for router in _routers():
        app.include_router(router)
    return app


def _routers() -> list[APIRouter]:
    return [*all_routers(), mcp_router]
