"""Bodies and query strings of requests: bounded in size and time, and exactly of the shape that a route takes."""

from __future__ import annotations

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
from omnigraph.server.admission import memory_of
from omnigraph.server.bounded_json import WINDOW_BYTES, check_characters, measure_json, parse_json
from omnigraph.server.load_envelopes import ENVELOPE_VALUES, split_envelope
from omnigraph.server.settings import BODY_VALUES
from omnigraph.server.threads import run_in_thread
from omnigraph.validation import listed, problems_of
from omnigraph.wire.protocol import JSON, NDJSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from omnigraph.server.load_envelopes import LongText
    from omnigraph.server.settings import BodyLimit, ServerSettings

    Grow = Callable[[int], None]

_Model = TypeVar("_Model", bound=BaseModel)
_Outcome = TypeVar("_Outcome")
_RESOURCE = "http_request_bytes"
#: Bodies up to this size are parsed where they are read; handing them to a thread would take longer.
_INLINE_BYTES = 32 * 1024
#: Digits of a length; those of nonsense are not turned into a number.
_LONGEST_LENGTH = 20


def _ignore(size: int) -> None:
    """What most bodies hold is not counted piece by piece."""


async def read_json(
    request: Request, model: type[_Model], settings: ServerSettings, *, optional: bool = False
) -> tuple[_Model, int]:
    """The JSON body of a request as a model, and what it takes in memory.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit, or holds more values.
        TooManyRequestsError: the bodies of all requests together take too much memory.
        BadRequestError: it is not JSON, or JSON of another shape.
    """
    if optional and not _has_body(request):
        return _validated(model, {}), 0
    body = await read_json_bytes(request, settings)
    if optional and not body:
        return _validated(model, {}), 0
    value, size = await parse_body(request, body, settings)
    return _validated(model, value), size


async def read_json_bytes(request: Request, settings: ServerSettings) -> bytes:
    """The body of a request that is announced as JSON.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit.
        TooManyRequestsError: the bodies of all requests together take too much memory.
    """

    def measure(body: bytearray) -> None:
        measure_json(body, max_values=settings.body_max_values, setting=BODY_VALUES)

    return bytes(await _json_bytes(request, settings, settings.body_limit, _ignore, measure))


async def parse_body(request: Request, body: bytes, settings: ServerSettings) -> tuple[Any, int]:
    """The value of a JSON body, and what it takes in memory; made in a thread when it is not small.

    Raises:
        ResourceLimitError: it holds more values than the limit.
        TooManyRequestsError: the bodies of all requests together take too much memory.
        BadRequestError: it is not JSON.
    """
    memory = memory_of(request)

    def work() -> tuple[Any, int]:
        size = measure_json(body, max_values=settings.body_max_values, setting=BODY_VALUES)
        memory.grow(size.memory_bytes)
        return parse_json(body), size.memory_bytes

    return await _run(request, work, len(body))


async def read_load(
    request: Request, model: type[_Model], settings: ServerSettings, *, member: str, grow: Grow
) -> tuple[_Model, LongText | None]:
    """The JSON body of a load as a model, and the long text of one of its members, which is empty in the model.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit, or holds more values than a load has.
        TooManyRequestsError: the bodies of all requests together take too much memory.
        BadRequestError: it is not JSON, or JSON of another shape.
    """

    def measure(body: bytearray) -> None:
        measure_json(body, max_values=ENVELOPE_VALUES)

    body = await _json_bytes(request, settings, settings.load_body_limit, grow, measure)
    document, text = await _run(request, lambda: split_envelope(body, member), len(body))
    return _validated(model, document), text


async def _run(request: Request, work: Callable[[], _Outcome], size: int) -> _Outcome:
    """Work on a body of a size: here when it is small, otherwise in one of few threads."""
    if size <= _INLINE_BYTES:
        return work()
    return await run_in_thread(work, limiter=request.app.state.service.parsers)


async def _json_bytes(
    request: Request,
    settings: ServerSettings,
    limit: BodyLimit,
    grow: Grow,
    measure: Callable[[bytearray], None],
) -> bytearray:
    """The bytes of a JSON body; one that begins with too many values is refused before the rest has come."""
    # A page of another origin may send forms and plain text without asking, but not JSON.
    _check_content_type(request, JSON)
    memory = memory_of(request)

    def hold(size: int) -> None:
        grow(size)
        memory.grow(size)

    announced = announced_size(request, limit)
    if announced is not None:
        memory.grow(announced)
    body = bytearray()
    async for chunk in _chunks(request, settings, limit, hold):
        is_first_window = len(body) < WINDOW_BYTES <= len(body) + len(chunk)
        body += chunk
        if is_first_window:
            measure(body[:WINDOW_BYTES])
    return body


@asynccontextmanager
async def spooled_ndjson(
    request: Request, settings: ServerSettings, grow: Grow
) -> AsyncIterator[str]:
    """The body of a load in a file of this process, which is gone afterwards."""
    _check_content_type(request, NDJSON)
    with NamedTemporaryFile(prefix="omnigraph-load-", suffix=".jsonl") as file:
        async for chunk in _chunks(request, settings, settings.load_body_limit, grow):
            file.write(chunk)
        file.flush()
        yield file.name


def announced_size(request: Request, limit: BodyLimit) -> int | None:
    """How large a body says it is; None when it does not say.

    Raises:
        ResourceLimitError: it says that it is larger than the limit.
    """
    text = request.headers.get("content-length", "")
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_LENGTH:
        return None
    size = int(text)
    _check_size(size, limit)
    return size


def _check_size(size: int, limit: BodyLimit) -> None:
    if size > limit.size_bytes:
        advice = f"send less at once, or raise {limit.setting} on the server"
        raise ResourceLimitError(_RESOURCE, limit.size_bytes, size, advice)


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
    check_characters(values)
    return _validated(model, values, strict=False)


def _validated(model: type[_Model], values: Any, *, strict: bool = True) -> _Model:
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as error:
        problems = listed(problems_of(error, values), "the body")
        raise BadRequestError(f"invalid request: {problems}") from error


def _check_content_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        shown = given[:100] or "none"
        raise UnsupportedMediaTypeError(f"the content type is {shown}: send {wanted}")
    # Nothing here unpacks bodies, so a small one cannot become a large one.
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaTypeError(
            f"the body is packed ({encoding[:100]}): send it without a content encoding"
        )


def _has_body(request: Request) -> bool:
    return (
        request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    )


async def _chunks(
    request: Request, settings: ServerSettings, limit: BodyLimit, grow: Grow
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
        _check_size(received, limit)
        if not is_announced:
            grow(len(chunk))
        yield chunk
