"""What happened: the changes of a commit, the feed of a branch, and baselines to begin from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server import answers
from omnigraph.server.bodies import parse_query, read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED, operation
from omnigraph.server.requests import BaselineBody, ChangesParams, FeedParams
from omnigraph.server.responses import json_bytes
from omnigraph.server.streams import produced, reserve
from omnigraph.wire.protocol import JSON, NDJSON

if TYPE_CHECKING:
    from omnigraph.server.streams import Sink

router = APIRouter()


@operation(
    router,
    "GET",
    f"{GRAPH}/commits/{{commit_id}}/changes",
    id="get_commit_changes",
    tag="changes",
    query=ChangesParams,
    returns=answers.ChangesAnswer,
    errors=(409, 413),
)
async def commit_changes(request: Request) -> Response:
    """One page of what a commit did, against its first parent, with every entity before and after."""
    call = enter_graph(request)
    params = parse_query(request, ChangesParams)
    commit_id = request.path_params["commit_id"]

    def work() -> bytes:
        call.visible_commit(commit_id)
        page = call.graph.changes(
            commit_id,
            kinds=params.kind,
            types=params.type,
            ops=params.op,
            limit=params.limit,
            max_bytes=params.max_bytes,
            page_token=params.page_token,
        )
        return json_bytes(page.to_json())

    return Response(await call.read(work), media_type=JSON)


@operation(
    router,
    "GET",
    f"{GRAPH}/changes",
    id="poll_changes",
    tag="changes",
    query=FeedParams,
    returns=answers.FeedAnswer,
    errors=(409, 413),
)
async def poll(request: Request) -> Response:
    """One page of the commits of a branch, oldest first, each with its changes."""
    call = enter_graph(request)
    params = parse_query(request, FeedParams)
    branch = MAIN if params.branch is None else params.branch
    call.authorize(Action.READ, branch=branch)

    def work() -> bytes:
        page = call.graph.feed(
            branch,
            params.cursor,
            params.start,
            kinds=params.kind,
            types=params.type,
            ops=params.op,
            limit=params.limit,
            max_bytes=params.max_bytes,
            max_commits=params.max_commits,
            page_token=params.page_token,
        )
        return json_bytes(page.to_json())

    return Response(await call.read(work), media_type=JSON)


@operation(
    router,
    "POST",
    f"{GRAPH}/changes/baseline",
    errors=STOPPED,
    id="get_changes_baseline",
    tag="changes",
    body=BaselineBody,
    body_required=False,
    returns=NDJSON,
)
async def baseline(request: Request) -> Response:
    """Every entity of a branch as JSON lines, and in a last line the cursor from which its feed goes on."""
    call = enter_graph(request)
    call.authorize_some(Action.EXPORT)
    body, _ = await read_json(request, BaselineBody, call.settings, optional=True)
    branch = MAIN if body.branch is None else body.branch
    call.authorize(Action.EXPORT, branch=branch)
    timeout_s, signal = call.settings.stream_timeout_s(body.timeout_s), call.new_signal()

    def produce(sink: Sink) -> None:
        result = call.graph.baseline(
            branch,
            out=sink,
            kinds=body.kind,
            types=body.type,
            ops=body.op,
            timeout_s=timeout_s,
            cancel=signal,
        )
        handshake = {
            "snapshot_commit_id": result.snapshot_commit_id,
            "resume_cursor": result.resume_cursor,
        }
        sink.write(json.dumps({"baseline": handshake}) + "\n")

    release = await reserve(call)
    return await produced(call.service, produce, media_type=NDJSON, signal=signal, release=release)
