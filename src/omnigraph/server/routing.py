"""Operations as routes, and the OpenAPI document."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from omnigraph import __version__
from omnigraph.api.models import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from fastapi import APIRouter, FastAPI
    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response


# ---- How routes are declared: one place that gives FastAPI the endpoint and OpenAPI its description
#
# Endpoints read bodies and query strings themselves, because who asks is decided before anything is read.


if TYPE_CHECKING:
    Endpoint = Callable[[Request], Awaitable[Response]]

GRAPH = "/graphs/{graph_id}"
#: Operation ids of routes below a graph begin with it.
PREFIX = "cluster_"
#: Models that the document refers to, by name; filled as routes are declared.
MODELS: dict[str, type[BaseModel]] = {}

_ERROR_TEXTS = {
    400: "the request is wrong, nothing happened",
    401: "no token, or an unknown one",
    403: "the policy does not allow it",
    404: "there is no such thing",
    405: "the path has other methods",
    408: "the body came too slowly",
    409: "a conflict, nothing happened",
    410: "history was cleaned up",
    412: "the precondition does not hold, nothing happened",
    413: "a limit would be crossed, nothing happened",
    415: "another content type is needed",
    416: "the range is outside the value",
    424: "an external blob cannot be read",
    429: "the actor has too much in flight",
    500: "the server failed",
    503: "a write is unsettled, look before you retry; or the work was cancelled, nothing happened",
    504: "it took longer than it may, nothing happened",
}
_READ_ERRORS = (400, 401, 403, 404, 410, 500)
#: Of routes whose reads are bounded in time, memory and rows.
STOPPED = (413, 503, 504)
_FLAT_ERRORS = (401, 403, 500)
_BODY_ERRORS = (408, 413, 415)
_WRITE_ERRORS = (409, 412, 424, 429, 503)
#: Of routes whose writes are bounded in time.
STOPPED_WRITE = (504,)


class _DirectRoute(APIRoute):
    """Gives the request to its endpoint at once: FastAPI would look for parameters that no endpoint has."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint itself."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint


def operation(
    router: APIRouter,
    method: str,
    path: str,
    *,
    id: str,
    tag: str,
    returns: type[BaseModel] | str | None,
    query: type[BaseModel] | None = None,
    body: type[BaseModel] | str | None = None,
    body_required: bool = True,
    headers: Sequence[dict[str, Any]] = (),
    errors: Sequence[int] = (),
    also: Mapping[int, str] = MappingProxyType({}),
    writes: bool = False,
    deprecated: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Declare a route; `returns` and `body` are models, or media types, `also` other answers that are no failures."""
    statuses = {*(_READ_ERRORS if path.startswith(GRAPH) else _FLAT_ERRORS), *errors}
    if body is not None:
        statuses |= {*_BODY_ERRORS}
    if writes:
        statuses |= {*_WRITE_ERRORS}
    extra: dict[str, Any] = {
        "parameters": [*_path_parameters(path), *_query_parameters(query), *headers],
        "responses": {
            "200": _ok(returns),
            **{str(status): {"description": text} for status, text in also.items()},
            **{str(status): _failure(status) for status in sorted(statuses)},
        },
    }
    if body is not None:
        extra["requestBody"] = {"required": body_required, "content": _content(body)}

    def declare(endpoint: Endpoint) -> Endpoint:
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=f"{PREFIX if path.startswith(GRAPH) else ''}{id}",
            tags=[tag],
            summary=(endpoint.__doc__ or "").strip().splitlines()[0].rstrip("."),
            description=" ".join((endpoint.__doc__ or "").split()),
            deprecated=deprecated or None,
            response_model=None,
            openapi_extra=extra,
            route_class_override=_DirectRoute,
        )
        return endpoint

    return declare


def header(name: str, text: str, *, required: bool) -> dict[str, Any]:
    """The description of a header that a route reads."""
    schema = {"type": "string"}
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": text,
        "schema": schema,
    }


def _ok(returns: type[BaseModel] | str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"description": "done"}
    if returns is not None:
        found["content"] = _content(returns)
    return found


def _failure(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{status}"}


def failure_components() -> dict[str, Any]:
    """What the failures of all routes refer to."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
    return {
        str(status): {"description": text, "content": content}
        for status, text in _ERROR_TEXTS.items()
    }


def _content(form: type[BaseModel] | str) -> dict[str, Any]:
    if form == "application/json":
        return {form: {"schema": {"type": "object"}}}
    if isinstance(form, str):
        binary = form not in ("application/x-ndjson", "text/plain", "text/html")
        return {form: {"schema": {"type": "string", **({"format": "binary"} if binary else {})}}}
    MODELS[form.__name__] = form
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _query_parameters(model: type[BaseModel] | None) -> list[dict[str, Any]]:
    if model is None:
        return []
    document = model.model_json_schema(by_alias=True)
    required = document.get("required", ())
    found = []
    for name, schema in document["properties"].items():
        parameter: dict[str, Any] = {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _plain(schema),
        }
        if text := schema.get("description"):
            parameter["description"] = text
        found.append(parameter)
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value in a query string, where nothing is null."""
    options = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    kept = options[0] if options else schema
    hidden = ("title", "description", "default", "anyOf")
    found = {name: item for name, item in {**schema, **kept}.items() if name not in hidden}
    if schema.get("default") is not None:
        found["default"] = schema["default"]
    return found


# ---- The OpenAPI document, made from the routes and served at `/openapi.json`


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
