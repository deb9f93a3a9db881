"""The OpenAPI document, made from the routes and served at `/openapi.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from omnigraph import __version__
from omnigraph.server.answers import Failure
from omnigraph.server.operations import MODELS, failure_components

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel

_TAGS = {
    "health": "whether the server lives, and how it is",
    "management": "which graphs there are",
    "queries": "reading graphs",
    "mutations": "changing graphs",
    "branches": "lines of work beside each other",
    "commits": "history",
    "changes": "what happened, entity by entity",
    "snapshots": "whole states",
    "schema": "the types of a graph",
    "blobs": "single large values",
}
#: Routes that answer without a token.
_PUBLIC = ("/healthz", "/openapi.json")
_DESCRIPTION = (
    "Typed property graphs with branches, merges, history and time travel. Every refusal has the same body: "
    "`error` for people, `kind` and `code` for programs, and one structured member per failure."
)


def openapi_document(app: FastAPI, *, is_open: bool) -> dict[str, Any]:
    """The whole document."""
    document = get_openapi(
        title="OmniGraph",
        version=__version__,
        openapi_version="3.1.0",
        description=_DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    models: dict[str, type[BaseModel]] = {**MODELS, "Failure": Failure}
    _, definitions = models_json_schema(
        [(models[name], "validation") for name in sorted(models)],
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = {
        "schemas": definitions["$defs"],
        "responses": failure_components(),
    }
    for path, operations in document["paths"].items():
        for described in operations.values():
            # FastAPI answers 422 nowhere here: every refusal of a shape is a 400 with the one envelope.
            described["responses"].pop("422", None)
            if not is_open and path not in _PUBLIC:
                described["security"] = [{"bearer_token": []}]
    if not is_open:
        components["securitySchemes"] = {"bearer_token": {"type": "http", "scheme": "bearer"}}
    document["components"] = components
    return document
