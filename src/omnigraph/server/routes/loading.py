"""Loads: the records of a body, as one commit."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import InputFileError, LoadKeyConflictError, LoadRejectedError
from omnigraph.graph.settings import local_load_max_bytes
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server.admission import LOAD_FACTOR, memory_of
from omnigraph.server.answers import Load
from omnigraph.server.bodies import announced_size, parse_query, read_load, spooled_ndjson
from omnigraph.server.calls import enter_graph
from omnigraph.server.load_reports import named
from omnigraph.server.operations import GRAPH, STOPPED_WRITE, operation
from omnigraph.server.requests import LoadBody, LoadParams
from omnigraph.server.responses import json_response
from omnigraph.server.routes.reading import successor
from omnigraph.wire.protocol import NDJSON
from omnigraph.wire.receipts import receipt_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from omnigraph.budget import LinkedSignal
    from omnigraph.server.admission import Grant
    from omnigraph.server.calls import GraphCall
    from omnigraph.wire.receipts import LoadResult

router = APIRouter()
_BODY = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadRequest:
    branch: str
    base: str | None
    mode: str
    grammar: str
    timeout_s: float | None
    dry_run: bool = False
    source: str = _BODY


@operation(
    router,
    "POST",
    f"{GRAPH}/load",
    id="load",
    tag="mutations",
    body=LoadBody,
    returns=Load,
    errors=STOPPED_WRITE,
    writes=True,
)
async def load(request: Request) -> Response:
    """Load the records of a JSON member in one commit."""
    return await _load_text(request, grammar="strict")


@operation(
    router,
    "POST",
    f"{GRAPH}/ingest",
    id="ingest",
    tag="mutations",
    body=LoadBody,
    returns=Load,
    errors=STOPPED_WRITE,
    writes=True,
    deprecated=True,
)
async def ingest(request: Request) -> Response:
    """Load records with the compatible grammar; the older form of `/load`."""
    response = await _load_text(request, grammar="compatible")
    response.headers.update(successor(request, "load"))
    return response


@operation(
    router,
    "POST",
    f"{GRAPH}/load/ndjson",
    id="load_ndjson",
    tag="mutations",
    query=LoadParams,
    body=NDJSON,
    returns=Load,
    errors=STOPPED_WRITE,
    writes=True,
)
async def load_ndjson(request: Request) -> Response:
    """Load the records of the body, one JSON object per line, in one commit."""
    call = enter_graph(request)
    params = parse_query(request, LoadParams)
    wanted = _LoadRequest(
        branch=MAIN if params.branch is None else params.branch,
        base=params.from_,
        mode=params.mode,
        grammar=params.grammar,
        timeout_s=call.settings.write_timeout_s(params.timeout_s),
        dry_run=params.dry_run,
        source=params.source or _BODY,
    )
    await _authorize(call, wanted)
    size, signal = announced_size(request, call.settings.load_body_limit), call.new_signal()
    with call.admitted(0) as grant:
        hold = _holder(call, grant)
        hold(size or 0)
        async with spooled_ndjson(request, call.settings, hold) as path:
            result = await call.stoppable(
                lambda: _load(call, wanted, path, signal), signal, writes=True
            )
    call.count_commit(result.commit)
    body = receipt_document(result)
    del body["uri"]
    return json_response(body)


async def _load_text(request: Request, *, grammar: str) -> Response:
    call = enter_graph(request)
    # Which branch is meant stands in the body; whether any could be is known before.
    call.authorize_some(Action.CHANGE)
    size, signal = announced_size(request, call.settings.load_body_limit), call.new_signal()
    with call.admitted(0) as grant:
        hold = _holder(call, grant)
        hold(size or 0)
        body, text = await read_load(request, LoadBody, call.settings, member="data", grow=hold)
        wanted = _LoadRequest(
            branch=MAIN if body.branch is None else body.branch,
            base=body.from_,
            mode=body.mode,
            grammar=body.grammar or grammar,
            timeout_s=call.settings.write_timeout_s(body.timeout_s),
        )
        await _authorize(call, wanted)

        def work() -> LoadResult:
            with _written([body.data] if text is None else text.pieces()) as path:
                return _load(call, wanted, path, signal)

        result = await call.stoppable(work, signal, writes=True)
    call.count_commit(result.commit)
    return json_response(receipt_document(result) | {"uri": call.served.address})


def _holder(call: GraphCall, grant: Grant) -> Callable[[int], None]:
    """Counts bytes of a body as the memory that loading them takes: of the actor, and of the server."""
    memory = memory_of(call.request)

    def hold(size: int) -> None:
        grant.grow(size * LOAD_FACTOR)
        memory.grow(size * LOAD_FACTOR)

    return hold


async def _authorize(call: GraphCall, wanted: _LoadRequest) -> None:
    """A load that creates its branch needs the right to do that as well."""
    if wanted.base is not None:
        branches = await call.read(call.graph.branches)
        if wanted.branch.strip() not in branches:
            call.authorize(Action.BRANCH_CREATE, branch=wanted.base, target=wanted.branch)
            call.authorize(Action.READ, branch=wanted.base)
    call.authorize(Action.CHANGE, branch=wanted.branch)


def _load(call: GraphCall, wanted: _LoadRequest, path: str, signal: LinkedSignal) -> LoadResult:
    is_small = os.path.getsize(path) <= local_load_max_bytes()
    try:
        return call.graph.load(
            path,
            mode=wanted.mode,
            branch=wanted.branch,
            base=wanted.base,
            actor=call.actor,
            engine="local" if is_small else "spark",
            dry_run=wanted.dry_run,
            grammar=wanted.grammar,
            timeout_s=wanted.timeout_s,
            cancel=signal,
        )
    except (LoadRejectedError, LoadKeyConflictError, InputFileError) as refused:
        # Reports name the file that the body was kept in, which means nothing to whoever sent it.
        raise named(refused, path, wanted.source) from None


@contextmanager
def _written(pieces: Iterable[str]) -> Iterator[str]:
    with NamedTemporaryFile(
        "w", prefix="omnigraph-load-", suffix=".jsonl", encoding="utf-8", newline=""
    ) as file:
        file.writelines(pieces)
        file.flush()
        yield file.name
