"""Bodies and query strings of requests: bounded in size and time, and exactly of the shape that a route takes."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError

from omnigraph.errors import (
    BadRequestError,
    RequestTimeoutError,
    ResourceLimitError,
    TransportError,
    UnsupportedMediaTypeError,
)
from omnigraph.wire.protocol import JSON, NDJSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from omnigraph.server.settings import ServerSettings

    Grow = Callable[[int], None]

_Model = TypeVar("_Model", bound=BaseModel)
_RESOURCE = "http_request_bytes"
_ADVICE = "send less at once"
_MAX_DEPTH = 100
_SHOWN_PROBLEMS = 10
#: Digits of a length; those of nonsense are not turned into a number.
_LONGEST_LENGTH = 20


def _ignore(size: int) -> None:
    """What most bodies hold is not counted piece by piece."""


async def read_json(
    request: Request,
    model: type[_Model],
    settings: ServerSettings,
    *,
    limit: int | None = None,
    optional: bool = False,
    grow: Grow = _ignore,
) -> tuple[_Model, int]:
    """The JSON body of a request as a model, and its size.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit.
        BadRequestError: it is no JSON, or JSON of another shape.
    """
    limit = limit or settings.body_max_bytes
    if optional and not _has_body(request):
        return _validated(model, {}), 0
    body = await read_json_bytes(request, settings, limit=limit, grow=grow)
    if optional and not body:
        return _validated(model, {}), 0
    return _validated(model, parse_json(body)), len(body)


async def read_json_bytes(
    request: Request,
    settings: ServerSettings,
    *,
    limit: int | None = None,
    grow: Grow = _ignore,
) -> bytes:
    """The body of a request that is announced as JSON.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit.
    """
    # A page of another origin may send forms and plain text without asking, but not JSON.
    _check_content_type(request, JSON)
    chunks = _chunks(request, settings, limit or settings.body_max_bytes, grow)
    return b"".join([chunk async for chunk in chunks])


@asynccontextmanager
async def spooled_ndjson(
    request: Request, settings: ServerSettings, grow: Grow
) -> AsyncIterator[str]:
    """The body of a load in a file of this process, which is gone afterwards."""
    _check_content_type(request, NDJSON)
    with NamedTemporaryFile(prefix="omnigraph-load-", suffix=".jsonl") as file:
        async for chunk in _chunks(request, settings, settings.load_body_max_bytes, grow):
            file.write(chunk)
        file.flush()
        yield file.name


def announced_size(request: Request, limit: int) -> int | None:
    """How large a body says it is; None when it does not say.

    Raises:
        ResourceLimitError: it says that it is larger than the limit.
    """
    text = request.headers.get("content-length", "")
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_LENGTH:
        return None
    if (size := int(text)) > limit:
        raise ResourceLimitError(_RESOURCE, limit, size, _ADVICE)
    return size


def parse_json(body: bytes) -> Any:
    """JSON as it is written down: no NaN, no lone surrogates, no towers of brackets.

    Raises:
        BadRequestError: it is something else.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadRequestError("the body is not UTF-8") from error
    except RecursionError as error:
        raise BadRequestError("the body is nested too deeply") from error
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    _check_values(value, 0)
    return value


def parse_query(request: Request, model: type[_Model]) -> _Model:
    """The query string of a request as a model; lists are parameters that may be repeated.

    Raises:
        BadRequestError: a parameter is unknown, repeated or malformed.
    """
    repeatable = {
        name for name, field in model.model_fields.items() if "list" in str(field.annotation)
    }
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            raise BadRequestError(
                f"there is no parameter {name!r}: this route takes {', '.join(names) or 'none'}"
            )
        if names[name] in repeatable:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise BadRequestError(f"the parameter {name!r} is given twice")
        else:
            values[name] = value
    _check_values(values, 0)
    return _validated(model, values, strict=False)


def _validated(model: type[_Model], values: Any, *, strict: bool = True) -> _Model:
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in item['loc']) or 'body'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        shown = "; ".join(problems[:_SHOWN_PROBLEMS])
        more = len(problems) - _SHOWN_PROBLEMS
        rest = f"; and {more:,} more" if more > 0 else ""
        raise BadRequestError(f"the request has another shape: {shown}{rest}") from error


def _check_content_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        shown = given[:100] or "none"
        raise UnsupportedMediaTypeError(f"the content type is {shown}: send {wanted}")


def _has_body(request: Request) -> bool:
    return (
        request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    )


async def _chunks(
    request: Request, settings: ServerSettings, limit: int, grow: Grow
) -> AsyncIterator[bytes]:
    """The pieces of a body as they come; `grow` is told the size of each that was not announced."""
    is_announced = announced_size(request, limit) is not None
    received = 0
    deadline = anyio.current_time() + settings.body_total_s
    is_complete = False
    while not is_complete:
        wait = min(settings.body_idle_s, deadline - anyio.current_time())
        try:
            # Not `request.stream()`: it would be asked, and timed, twice more after the last piece.
            with anyio.fail_after(wait):
                message = await request.receive()
        except TimeoutError as error:
            raise RequestTimeoutError("the body came too slowly") from error
        if message["type"] == "http.disconnect":
            raise TransportError("the client went away before its body was complete")
        is_complete = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        received += len(chunk)
        if received > limit:
            raise ResourceLimitError(_RESOURCE, limit, received, _ADVICE)
        if not is_announced:
            grow(len(chunk))
        yield chunk


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _check_values(value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise BadRequestError("the body is nested too deeply")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRequestError("a text holds half of a character (a lone surrogate)") from error
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_values(name, depth + 1)
            _check_values(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, depth + 1)
