"""Input over HTTP: bounded bodies, query strings, targets, ranges and preconditions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError

from omnigraph.api.operation import GRAPH, JSON, NDJSON
from omnigraph.api.reading_api import TargetKeywords
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN
from omnigraph.core.validation import listed, problems_of
from omnigraph.errors import (
    BadRequestError,
    NotFoundError,
    RequestTimeoutError,
    ResourceLimitError,
    TransportError,
    UnsupportedMediaTypeError,
)
from omnigraph.server.admission import memory_of
from omnigraph.server.calls import run_in_thread
from omnigraph.server.settings import BODY_VALUES, BodyLimit, ServerSettings
from omnigraph.server.untrusted_json import (
    ENVELOPE_VALUES,
    WINDOW_BYTES,
    LongText,
    check_characters,
    measure_json,
    parse_json,
    split_envelope,
)

if TYPE_CHECKING:
    from starlette.requests import Request


# ---- Request bodies and query strings


if TYPE_CHECKING:
    Grow = Callable[[int], None]

_Model = TypeVar("_Model", bound=BaseModel)
_Outcome = TypeVar("_Outcome")
_RESOURCE = "http_request_bytes"
#: Bodies up to this size are parsed where they are read; handing them to a thread would take longer.
_INLINE_BYTES = 32 * 1024
#: Digits of a length; those of nonsense are not turned into a number.
_LONGEST_LENGTH = 20


def _ignore(size: int) -> None:
    """Do not count the pieces of a body."""


async def read_json(
    request: Request, model: type[_Model], settings: ServerSettings, *, optional: bool = False
) -> tuple[_Model, int]:
    """The JSON body of a request as a model, and what it takes in memory.

    Raises:
        UnsupportedMediaTypeError: it is announced as something else.
        ResourceLimitError: it is larger than the limit, or holds more values.
        TooManyRequestsError: the bodies of all requests together take too much memory.
        BadRequestError: the body is not JSON, or not valid for the route.
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


async def parse_body(request: Request, body: bytes, settings: ServerSettings) -> tuple[object, int]:
    """The value of a JSON body, and what it takes in memory; made in a thread when it is not small.

    Raises:
        ResourceLimitError: it holds more values than the limit.
        TooManyRequestsError: the bodies of all requests together take too much memory.
        BadRequestError: it is not JSON.
    """
    memory = memory_of(request)

    def work() -> tuple[object, int]:
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
        BadRequestError: the body is not JSON, or not valid for the route.
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
    request: Request, settings: ServerSettings, limit: BodyLimit, grow: Grow, measure: Callable[[bytearray], None]
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
async def spooled_ndjson(request: Request, settings: ServerSettings, grow: Grow) -> AsyncIterator[str]:
    """The body of a load in a file of this process, which is gone afterwards."""
    _check_content_type(request, NDJSON)
    with NamedTemporaryFile(prefix="omnigraph-load-", suffix=".jsonl") as file:
        async for chunk in _chunks(request, settings, settings.load_body_limit, grow):
            file.write(chunk)
        file.flush()
        yield file.name


def announced_size(request: Request, limit: BodyLimit) -> int | None:
    """The announced size of a body; None when it is not announced.

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
    repeatable = {name for name, field in model.model_fields.items() if "list" in str(field.annotation)}
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    values: dict[str, object] = {}
    lists: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            raise BadRequestError(f"there is no parameter {name!r}: this route takes {', '.join(names) or 'none'}")
        if names[name] in repeatable:
            values[name] = lists.setdefault(name, [])
            lists[name].append(value)
        elif name in values:
            raise BadRequestError(f"the parameter {name!r} is given twice")
        else:
            values[name] = value
    check_characters(values)
    return _validated(model, values, strict=False)


def _validated(model: type[_Model], values: object, *, strict: bool = True) -> _Model:
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
        raise UnsupportedMediaTypeError(f"the body is packed ({encoding[:100]}): send it without a content encoding")


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


async def _chunks(request: Request, settings: ServerSettings, limit: BodyLimit, grow: Grow) -> AsyncIterator[bytes]:
    """The pieces of a body as they come; `grow` gets the size of each that was not announced."""
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


# ---- Read targets of requests


#: More than any graph has; larger numbers do not fit the columns that they would be compared with.
_MAX_VERSION = 2**53


def target_of(members: Mapping[str, Any]) -> Target:
    """The target that the members of a body or query string name.

    Raises:
        BadRequestError: they name two.
    """
    branch, snapshot, version = members["branch"], members["snapshot"], members.get("version")
    if branch is not None and snapshot is not None:
        raise BadRequestError("give one of branch and snapshot")
    if version is not None and not 0 <= version <= _MAX_VERSION:
        raise BadRequestError(f"{version} is not a graph version")
    branch = MAIN if branch is None else branch
    return Target(branch=branch, snapshot=snapshot, version=version, as_of=members.get("as_of"))


def arguments_of(target: Target) -> TargetKeywords:
    """A target as the methods of a graph take it."""
    return {"branch": target.branch, "snapshot": target.snapshot, "version": target.version, "as_of": target.as_of}


#: Slashes of the path of one thing of a graph.
_SLASHES = GRAPH.count("/") + 2


def one_segment(request: Request, parameter: str) -> str:
    """The name at the end of the path, which must not be spread over several segments.

    Raises:
        NotFoundError: it is.
    """
    name: str = request.path_params[parameter]
    raw: bytes = request.scope.get("raw_path", b"")
    if raw.partition(b"?")[0].count(b"/") > _SLASHES:
        raise NotFoundError("there is nothing at this path: encode a `/` in the name as %2F")
    return name


# ---- HTTP ranges and preconditions


_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)
_WEAK = "W/"


def fails_if_match(headers: Mapping[str, str], etag: str) -> bool:
    """Whether `If-Match` names other values only; weak tags never match here."""
    given = headers.get("if-match")
    return given is not None and given.strip() != "*" and etag not in _tags(given)


def is_not_modified(headers: Mapping[str, str], etag: str) -> bool:
    """Whether `If-None-Match` names this value; weak tags match too."""
    given = headers.get("if-none-match")
    if given is None:
        return False
    return given.strip() == "*" or etag in [tag.removeprefix(_WEAK) for tag in _tags(given)]


def may_use_range(headers: Mapping[str, str], etag: str) -> bool:
    """Whether a range still belongs to this value: there is no `If-Range`, or it names its strong tag."""
    given = headers.get("if-range")
    return given is None or given.strip() == etag


def read_range(headers: Mapping[str, str], size: int) -> tuple[int, int] | None:
    """Begin and end of the one range that is asked for; None when there is none, or several, or nonsense.

    >>> read_range({"range": "bytes=-3"}, 10)
    (7, 10)

    A range that begins behind the value is returned as it is: the caller refuses it.
    """
    match = _RANGE.fullmatch(headers.get("range", "").strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        last = int(match[2])
        return (size, size) if last == 0 else (max(0, size - last), size)
    begin = int(match[1])
    end = size if match[2] == "" else min(int(match[2]) + 1, size)
    if match[2] != "" and int(match[2]) < begin:
        return None
    return begin, end


def _tags(text: str) -> list[str]:
    return [tag.strip() for tag in text.split(",")]
