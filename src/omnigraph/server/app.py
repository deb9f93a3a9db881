"""The application: all routes around one service."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from omnigraph import __version__
from omnigraph.server.failures import install_handlers
from omnigraph.server.middleware import RequestEdge
from omnigraph.server.openapi import install_document
from omnigraph.server.reload import install_reload
from omnigraph.server.routes import all_routers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from omnigraph.server.service import Service


def make_app(service: Service) -> FastAPI:
    """The application that serves the graphs of a service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with install_reload(service):
            yield

    app = FastAPI(
        title="OmniGraph",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    for router in all_routers():
        app.include_router(router)
    install_handlers(app)
    install_document(app, service)
    app.add_middleware(RequestEdge, service=service)
    return app
