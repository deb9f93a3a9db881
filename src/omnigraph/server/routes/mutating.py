"""Mutations, conditional ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BadRequestError
from omnigraph.ids import is_ulid
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server.answers import Mutation
from omnigraph.server.bodies import read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, header, operation
from omnigraph.server.requests import MutateBody
from omnigraph.server.responses import json_response
from omnigraph.server.routes.reading import successor
from omnigraph.wire.protocol import IF_GRAPH_COMMIT
from omnigraph.wire.receipts import receipt_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.server.calls import GraphCall
    from omnigraph.syntax.source import SourceText

router = APIRouter()
CONDITION = header(IF_GRAPH_COMMIT, "the commit that the branch must be at", required=True)


@operation(
    router,
    "POST",
    f"{GRAPH}/mutate",
    id="mutate",
    tag="mutations",
    body=MutateBody,
    returns=Mutation,
    writes=True,
)
async def mutate(request: Request) -> Response:
    """Run one mutation; all of it becomes visible at once, or nothing does."""
    return await _mutate(request, is_conditional=False)


@operation(
    router,
    "POST",
    f"{GRAPH}/mutate/if-graph-commit",
    id="mutate_if_graph_commit",
    tag="mutations",
    body=MutateBody,
    headers=[CONDITION],
    returns=Mutation,
    writes=True,
)
async def mutate_if_graph_commit(request: Request) -> Response:
    """Run one mutation, if the branch is still at a commit."""
    return await _mutate(request, is_conditional=True)


@operation(
    router,
    "POST",
    f"{GRAPH}/change",
    id="change",
    tag="mutations",
    body=MutateBody,
    returns=Mutation,
    writes=True,
    deprecated=True,
)
async def change(request: Request) -> Response:
    """Run one mutation; the older name of `/mutate`."""
    response = await _mutate(request, is_conditional=False)
    response.headers.update(successor(request, "mutate"))
    return response


async def _mutate(request: Request, *, is_conditional: bool) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.CHANGE)
    if_commit = condition_of(request, is_conditional=is_conditional)
    body, size = await read_json(request, MutateBody, call.settings)
    branch = MAIN if body.branch is None else body.branch
    return await answer_mutation(
        call, body.query, body.params, body.name, branch=branch, if_commit=if_commit, size=size
    )


async def answer_mutation(
    call: GraphCall,
    source: str | SourceText,
    params: Mapping[str, object] | None,
    name: str | None,
    *,
    branch: str,
    if_commit: str | None,
    size: int,
) -> Response:
    """The receipt of a mutation that the caller may make."""
    call.authorize(Action.CHANGE, branch=branch)
    with call.admitted(size):
        result = await call.write(
            lambda: call.graph.mutate(
                source, params, name=name, branch=branch, actor=call.actor, if_commit=if_commit
            )
        )
    call.count_commit(result.commit)
    return json_response(receipt_document(result))


def condition_of(request: Request, *, is_conditional: bool) -> str | None:
    """The commit that a request makes its condition.

    Raises:
        BadRequestError: a conditional route got no commit id, or an ordinary one got a condition.
    """
    given = request.headers.getlist(IF_GRAPH_COMMIT)
    if not is_conditional:
        if given:
            raise BadRequestError(
                f"this route has no condition: send {IF_GRAPH_COMMIT} to its twin `…/if-graph-commit`"
            )
        return None
    if len(given) != 1 or not is_ulid(given[0]):
        raise BadRequestError(f"send one header {IF_GRAPH_COMMIT} with one commit id, as it is")
    return given[0]
