"""Routes of tags: a caller sees those whose commits it may read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.answers import Tags
from omnigraph.api.models import TagBody
from omnigraph.api.operation import Operation
from omnigraph.commit.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.calls import enter_graph
from omnigraph.server.http_input import one_segment, read_json
from omnigraph.server.responses import json_response
from omnigraph.server.routing import handles


@handles("list_tags")
async def _list_tags(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    return json_response(Tags(tags=await call.read(call.visible_tags)).document())


@handles("create_tag")
async def _create_tag(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.BRANCH_CREATE)
    body, size = await read_json(request, TagBody, call.settings)
    # A commit is found because the caller may read it.
    commit = await call.read(lambda: call.visible_commit(body.commit or MAIN))
    call.authorize(Action.BRANCH_CREATE, branch=commit.branch, target=body.name)
    with call.admitted(size + BRANCH_OPERATION_BYTES):
        made = await call.write(
            lambda: call.graph.create_tag(
                body.name, commit.commit_id, actor=call.actor, message=body.message, metadata=body.metadata
            )
        )
    return json_response(made.document())


@handles("delete_tag")
async def _delete_tag(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    name = one_segment(request, "tag")
    call.authorize(Action.BRANCH_DELETE, target=name)
    await call.read(lambda: call.visible_tag(name))
    with call.admitted(BRANCH_OPERATION_BYTES):
        gone = await call.write(lambda: call.graph.delete_tag(name, actor=call.actor))
    return json_response(gone.document())
