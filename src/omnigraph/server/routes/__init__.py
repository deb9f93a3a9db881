"""All routes, one module per subject."""

from typing import TYPE_CHECKING

from omnigraph.server.routes import (
    blobs,
    branching,
    changes,
    exporting,
    health,
    history,
    loading,
    mutating,
    page,
    reading,
    schema,
    stored,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

__all__ = ["all_routers"]


def all_routers() -> list["APIRouter"]:
    """The routers of all subjects, in the order of the document."""
    return [
        health.router,
        reading.router,
        mutating.router,
        stored.router,
        schema.router,
        loading.router,
        exporting.router,
        blobs.router,
        branching.router,
        history.router,
        changes.router,
        page.router,
    ]
