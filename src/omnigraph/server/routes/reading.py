"""Reads: queries, plans, single entities, snapshots."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BadRequestError
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.query.compiler import compile_query
from omnigraph.schema.compiler import compile_schema
from omnigraph.server import answers
from omnigraph.server.bodies import parse_query, read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED, operation
from omnigraph.server.requests import EntityParams, ExplainBody, QueryBody, ReadBody, TargetParams
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.server.streams import pulled
from omnigraph.server.targets import arguments_of, target_of
from omnigraph.wire.arrow_results import encode_result
from omnigraph.wire.commits import snapshot_document
from omnigraph.wire.json_answers import encode_answer
from omnigraph.wire.protocol import ARROW_STREAM, JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from omnigraph.budget import LinkedSignal
    from omnigraph.manifest.targets import Target
    from omnigraph.server.calls import GraphCall
    from omnigraph.syntax.source import SourceText
    from omnigraph.wire.answer import Result

router = APIRouter()
#: Results up to this size are sent in one piece.
_SMALL_BYTES = 1024 * 1024


@operation(
    router,
    "POST",
    f"{GRAPH}/query",
    errors=STOPPED,
    id="query",
    tag="queries",
    body=QueryBody,
    returns=answers.Rows,
)
async def query(request: Request) -> Response:
    """Run one read on one snapshot. With `Accept: application/vnd.apache.arrow.stream` the rows come as Arrow."""
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, QueryBody, call.settings)
    target = target_of(body)
    return await answer_query(
        call,
        body.query,
        body.params,
        body.name,
        target,
        timeout_s=body.timeout_s,
        first=body.first,
    )


@operation(
    router,
    "POST",
    f"{GRAPH}/read",
    errors=STOPPED,
    id="read",
    tag="queries",
    body=ReadBody,
    returns=answers.Rows,
    deprecated=True,
)
async def read(request: Request) -> Response:
    """Run one read; the older form of `/query`."""
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, ReadBody, call.settings)
    target = target_of(body)
    await call.authorize_target(target)
    timeout_s, signal = call.settings.timeout_s(body.timeout_s), call.new_signal()

    def work() -> bytes:
        result = call.graph.query(
            body.query_source,
            body.params,
            name=body.query_name,
            timeout_s=timeout_s,
            cancel=signal,
            **arguments_of(target),
        )
        return encode_answer(result, names_commit=False)

    content = await call.stoppable(work, signal)
    return Response(content, media_type=JSON, headers=successor(request, "query"))


async def answer_query(
    call: GraphCall,
    source: str | SourceText,
    params: Mapping[str, object] | None,
    name: str | None,
    target: Target,
    *,
    timeout_s: float | None = None,
    first: int | None = None,
) -> Response:
    """The rows of a read that the caller may make, as JSON or as Arrow.

    With `first` an answer in JSON has only so many rows, and says whether there are more.
    """
    await call.authorize_target(target)
    allowed_s, signal = call.settings.timeout_s(timeout_s), call.new_signal()

    def run() -> Result:
        return call.graph.query(
            source, params, name=name, timeout_s=allowed_s, cancel=signal, **arguments_of(target)
        )

    if ARROW_STREAM in call.request.headers.get("accept", ""):
        if first is not None:
            raise BadRequestError(
                "`first` goes with JSON: take as many rows of the Arrow stream as you want"
            )
        return await _arrow_answer(call, run, signal)
    content = await call.stoppable(lambda: encode_answer(run(), first=first), signal)
    return Response(content, media_type=JSON)


async def _arrow_answer(
    call: GraphCall, run: Callable[[], Result], signal: LinkedSignal
) -> Response:
    """Rows as Arrow: at once when they are few, otherwise as they are made."""

    def begin() -> tuple[list[bytes], Generator[bytes] | None]:
        pieces, size = [], 0
        rest = encode_result(run())
        for piece in rest:
            pieces.append(piece)
            size += len(piece)
            if size > _SMALL_BYTES:
                return pieces, rest
        return pieces, None

    pieces, rest = await call.stoppable(begin, signal)
    if rest is None:
        return Response(b"".join(pieces), media_type=ARROW_STREAM)
    return pulled(call.service, _joined(pieces, rest), media_type=ARROW_STREAM, signal=signal)


def _joined(pieces: list[bytes], rest: Generator[bytes]) -> Generator[bytes]:
    """What is made already, then the rest; whoever closes it closes the rest as well."""
    with closing(rest):
        yield from pieces
        yield from rest


def successor(request: Request, name: str) -> dict[str, str]:
    """The headers of a route that has a successor."""
    graph_id = request.path_params["graph_id"]
    link = f'</graphs/{graph_id}/{name}>; rel="successor-version"'
    return {"Deprecation": "true", "Link": link}


@operation(
    router,
    "POST",
    f"{GRAPH}/explain",
    errors=STOPPED,
    id="explain",
    tag="queries",
    body=ExplainBody,
    returns=answers.Plan,
)
async def explain(request: Request) -> Response:
    """What a query means and how it would run; `analyze` runs it."""
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, ExplainBody, call.settings)
    branch = MAIN if body.branch is None else body.branch
    call.authorize(Action.READ, branch=branch)
    timeout_s, signal = call.settings.timeout_s(body.timeout_s), call.new_signal()

    def work() -> bytes:
        text = call.graph.explain(
            body.query,
            body.params,
            name=body.name,
            branch=branch,
            analyze=body.analyze,
            timeout_s=timeout_s,
            cancel=signal,
        )
        compiled = compile_query(body.query, compile_schema(call.graph.schema).catalog, body.name)
        return json_bytes(
            {
                "query_name": compiled.name,
                "kind": "mutation" if compiled.is_mutation else "read",
                "plan": text.splitlines(),
                "operation": compiled.operation.to_json(),
                "text": text,
            }
        )

    return Response(await call.stoppable(work, signal), media_type=JSON)


@operation(
    router,
    "GET",
    f"{GRAPH}/entity",
    id="get_entity",
    tag="queries",
    query=EntityParams,
    returns=answers.EntityAnswer,
)
async def entity(request: Request) -> Response:
    """One entity at the head of a branch, at a commit, a graph version or a moment; null if it is not there."""
    call = enter_graph(request)
    params = parse_query(request, EntityParams)
    target = target_of(params)
    await call.authorize_target(target)
    found = await call.read(
        lambda: call.graph.entity_at(params.type, params.id, **arguments_of(target))
    )
    return json_response({"entity": found})


@operation(
    router,
    "GET",
    f"{GRAPH}/snapshot",
    id="get_snapshot",
    tag="snapshots",
    query=TargetParams,
    returns=answers.SnapshotAnswer,
)
async def snapshot(request: Request) -> Response:
    """The dataset versions that are visible together: at the head of a branch, or at a point of the past."""
    call = enter_graph(request)
    target = target_of(parse_query(request, TargetParams))
    await call.authorize_target(target)
    found = await call.read(lambda: call.graph.snapshot(**arguments_of(target)))
    return json_response(snapshot_document(found))
