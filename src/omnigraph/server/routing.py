"""The catalogue as routes and as the OpenAPI document."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from omnigraph import __version__, errors
from omnigraph.api.graph_api import GraphApi
from omnigraph.api.operation import IF_GRAPH_COMMIT, JSON, NDJSON, Operation
from omnigraph.api.operations import OPERATIONS
from omnigraph.codec import Json, Schemas
from omnigraph.commit.rows import MAIN
from omnigraph.errors import BranchNotFoundError
from omnigraph.errors.base import OmniError, declared_fields
from omnigraph.policy.rules import Action
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import arguments_of, parse_query, read_json, target_of
from omnigraph.server.responses import json_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.types import Scope

# ---- Routes from the operation catalogue


Handler = Callable[[Request, Operation], Awaitable[Response]]
_HANDLERS: dict[str, Handler] = {}


def handles(*ids: str) -> Callable[[Handler], Handler]:
    """Make a function the handler of operations that the catalogue alone does not answer."""

    def register(handler: Handler) -> Handler:
        for id_ in ids:
            assert id_ in OPERATIONS, id_
            _HANDLERS[id_] = handler
        return handler

    return register


def catalogue_routes() -> list[Route]:
    """The routes of all operations."""
    return [_OperationRoute(entry) for entry in OPERATIONS.values()]


class _OperationRoute(Route):
    """The route of one operation, which has the methods that it declares and no others."""

    def __init__(self, operation: Operation) -> None:
        handler = _HANDLERS.get(operation.id, _answer_call)

        async def endpoint(request: Request) -> Response:
            try:
                response = await handler(request, operation)
            except BranchNotFoundError as error:
                call: GraphCall = request.state.graph_call
                raise await call.advised(error) from error.__cause__
            if operation.successor is not None:
                graph_id = request.path_params["graph_id"]
                link = f'</graphs/{graph_id}/{operation.successor}>; rel="successor-version"'
                response.headers.update({"Deprecation": "true", "Link": link})
            return response

        super().__init__(operation.route, endpoint, name=operation.operation_id)
        # Starlette adds HEAD to every GET.
        self.methods = {operation.method}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As every route; metrics count requests by it."""
        match, child = super().matches(scope)
        return match, {**child, "route": self}


async def _answer_call(request: Request, operation: Operation) -> Response:
    """Call the method that an operation names, with the members of the request, and answer with its result."""
    call = enter_graph(request)
    assert operation.call is not None, operation.id
    assert operation.action is not None, operation.id
    values: dict[str, Any] = dict(request.path_params)
    if operation.query_model is not None:
        values |= _members(parse_query(request, operation.query_model))
    if operation.body_model is not None:
        call.authorize_some(operation.action)
        body, _ = await read_json(request, operation.body_model, call.settings, optional=not operation.body_required)
        values |= _members(body)
    values |= await _authorized(call, operation.action, values)
    parameters = inspect.signature(getattr(GraphApi, operation.call)).parameters
    arguments = {
        name: values[operation.member_of(name)]
        for name in parameters
        if values.get(operation.member_of(name)) is not None
    }
    signal = call.new_signal()
    given = {
        # Of a read it is a filter.
        **({"actor": call.actor} if operation.cost.writes else {}),
        "engine": "local",
        "cancel": signal,
        "timeout_s": _timeout_s(call, operation, values.get("timeout_s")),
    }
    arguments |= {name: value for name, value in given.items() if name in parameters}

    def work() -> bytes:
        found = getattr(call.graph, operation.call or "")(**arguments)
        return json_bytes(answer_document(operation, found, call.served.address))

    if operation.cost.is_bounded:
        content = await call.stoppable(work, signal, writes=operation.cost.writes)
    elif operation.cost.writes:
        content = await call.write(work)
    else:
        content = await call.read(work)
    return Response(content, media_type=JSON)


def answer_document(operation: Operation, value: Any, address: str) -> dict[str, object]:
    """The answer that holds the value of a method; the graph is where the server serves it."""
    if operation.member is not None:
        value = operation.result_class(**{operation.member: value})
    elif hasattr(value, "uri"):
        value = replace(value, uri=address)
    document: dict[str, object] = value.document()
    return document


def _members(model: BaseModel) -> dict[str, Any]:
    """The members of a request, by their names on the wire."""
    return {item.alias or name: getattr(model, name) for name, item in type(model).model_fields.items()}


async def _authorized(call: GraphCall, action: Action, values: Mapping[str, Any]) -> Json:
    """Refuse what the caller may not see; the members that say which state of the graph is meant."""
    if "commit_id" in values:
        commit = await call.read(lambda: call.visible_commit(values["commit_id"], action))
        return {"commit_id": commit.commit_id}
    if "snapshot" in values:
        return dict(arguments_of(await call.authorize_target(target_of(values), action)))
    branch = values.get("branch")
    branch = MAIN if branch is None else branch
    call.authorize(action, branch=branch)
    return {"branch": branch}


def _timeout_s(call: GraphCall, operation: Operation, asked_s: float | None) -> float | None:
    if not operation.cost.is_bounded:
        return None
    if operation.cost.writes:
        return call.settings.write_timeout_s(asked_s)
    return call.settings.timeout_s(asked_s)


# ---- The OpenAPI document, served at `/openapi.json`


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
_FLAT_ERRORS = (401, 403, 500)
_BODY_ERRORS = (408, 413, 415)
_WRITE_ERRORS = (409, 412, 424, 429, 503)
_STOPPED_READ = (413, 503, 504)
_STOPPED_WRITE = (504,)
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
_PUBLIC = ("health", "openapi")
_DESCRIPTION = (
    "Typed property graphs with branches, merges, history and time travel. Every refusal has the same body: "
    "`error` for people, `kind` and `code` for programs, and one structured member per failure."
)
_SCHEMAS = "#/components/schemas/"


@cache
def openapi_document(*, is_open: bool) -> Json:
    """The whole document."""
    schemas = Schemas(_SCHEMAS)
    paths: dict[str, Json] = {}
    for entry in OPERATIONS.values():
        described = _described(entry, schemas)
        if not is_open and entry.id not in _PUBLIC:
            described["security"] = [{"bearer_token": []}]
        path = entry.route.replace(":path}", "}")
        paths.setdefault(path, {})[entry.method.lower()] = described
    bodies = {entry.body_model for entry in OPERATIONS.values()} - {None}
    _, models = models_json_schema(
        [(model, "validation") for model in sorted(bodies, key=str)],  # type: ignore[misc]  # None is gone
        ref_template=f"{_SCHEMAS}{{model}}",
    )
    failures = _failure_schema(schemas)
    components: Json = {
        "schemas": dict(sorted({**models["$defs"], **schemas.definitions, "Failure": failures}.items())),
        "responses": _failure_responses(),
    }
    if not is_open:
        components["securitySchemes"] = {"bearer_token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "OmniGraph", "description": _DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": components,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
    }


def _described(entry: Operation, schemas: Schemas) -> Json:
    described: Json = {
        "tags": [entry.tag],
        "summary": entry.text.splitlines()[0].rstrip("."),
        "description": entry.text,
        "operationId": entry.operation_id,
        "parameters": [*_path_parameters(entry), *_query_parameters(entry), *_headers(entry)],
    }
    if entry.body is not None:
        described["requestBody"] = {
            "required": entry.body_required,
            "content": _media(entry.body)
            if entry.body_model is None
            else {JSON: {"schema": {"$ref": f"{_SCHEMAS}{entry.body}"}}},
        }
    described["responses"] = {
        "200": _ok(entry, schemas),
        **{str(status): {"description": text} for status, text in entry.also.items()},
        **{str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(_statuses(entry))},
    }
    if entry.successor is not None:
        described["deprecated"] = True
    return described


def _statuses(entry: Operation) -> set[int]:
    statuses = {*(_FLAT_ERRORS if entry.is_flat else _READ_ERRORS), *entry.errors}
    if entry.body is not None:
        statuses |= {*_BODY_ERRORS}
    if entry.cost.writes:
        statuses |= {*_WRITE_ERRORS}
    if entry.cost.is_bounded:
        statuses |= {*(_STOPPED_WRITE if entry.cost.writes else _STOPPED_READ)}
    return statuses


def _ok(entry: Operation, schemas: Schemas) -> Json:
    found: Json = {"description": "done"}
    if entry.result_classes:
        options = [schemas.reference(cls) for cls in entry.result_classes]
        schema = options[0] if len(options) == 1 else {"anyOf": options}
        found["content"] = {JSON: {"schema": schema}}
    elif entry.result is not None:
        found["content"] = _media(entry.result)
    return found


def _media(form: str) -> Json:
    """Content of a media type that has no model."""
    if form == JSON:
        return {form: {"schema": {"type": "object"}}}
    is_binary = form != NDJSON and not form.startswith("text/")
    return {form: {"schema": {"type": "string"} | ({"format": "binary"} if is_binary else {})}}


def _path_parameters(entry: Operation) -> Iterable[Json]:
    for name in (*(() if entry.is_flat else ("graph_id",)), *entry.path_parameters):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(entry: Operation) -> Iterable[Json]:
    if entry.query_model is None:
        return
    document = entry.query_model.model_json_schema(by_alias=True)
    required = document.get("required", ())
    for name, schema in document["properties"].items():
        parameter = {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": not_null(schema, "description"),
        }
        text = schema.get("description")
        yield parameter | ({"description": text} if text else {})


def not_null(schema: dict[str, Any], *hidden: str) -> Json:
    """The schema of a value that is left out rather than null, without its title and further members."""
    options = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    found = {**schema, **(options[0] if options else {})}
    for name in ("anyOf", "title", "default", *hidden):
        found.pop(name, None)
    default = schema.get("default")
    return found if default is None else found | {"default": default}


def _headers(entry: Operation) -> Iterable[Json]:
    if entry.is_conditional:
        yield {
            "name": IF_GRAPH_COMMIT,
            "in": "header",
            "required": True,
            "description": "the commit that the branch must be at",
            "schema": {"type": "string"},
        }


def _failure_responses() -> Json:
    content = {JSON: {"schema": {"$ref": f"{_SCHEMAS}Failure"}}}
    return {str(status): {"description": text, "content": content} for status, text in _ERROR_TEXTS.items()}


def _failure_schema(schemas: Schemas) -> Json:
    """The one body of all failures, with the members that their classes declare."""
    text = {"type": "string"}
    members: dict[str, list[Any]] = {}
    codes: set[str] = set()
    for name in errors.__all__:
        error = getattr(errors, name)
        if not (isinstance(error, type) and issubclass(error, OmniError)):
            continue
        codes |= set() if error.code is None else {error.code}
        for inside, fields in declared_fields(error):
            found = {item.key: item.form.schema(schemas) for item in fields}
            if inside is not None:
                found = {
                    inside: {
                        "type": "object",
                        "properties": found,
                        "additionalProperties": False,
                        "required": [item.key for item in fields if item.is_required],
                    }
                }
            for key, schema in found.items():
                known = members.setdefault(key, [])
                known += [schema] if schema not in known else []
    return {
        "type": "object",
        "description": "The body of every refusal; structured members depend on the kind of failure.",
        "properties": {
            "error": text | {"description": "for people"},
            "kind": text | {"description": "stable name of the failure"},
            "code": text | {"enum": sorted(codes), "description": "left out at 410, 412, 424 and 503"},
            **{key: options[0] if len(options) == 1 else {"anyOf": options} for key, options in members.items()},
        },
        "additionalProperties": False,
        "required": ["error", "kind"],
    }
