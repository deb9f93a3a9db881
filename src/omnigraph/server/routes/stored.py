"""Stored queries: which there are, and running them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server import answers
from omnigraph.server.bodies import read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED, operation
from omnigraph.server.requests import StoredQueryBody
from omnigraph.server.responses import json_response
from omnigraph.server.routes.mutating import CONDITION, answer_mutation, condition_of
from omnigraph.server.routes.reading import answer_query
from omnigraph.server.targets import target_of

if TYPE_CHECKING:
    from omnigraph.server.calls import GraphCall
    from omnigraph.serving.stored import StoredQuery

router = APIRouter()


@operation(
    router,
    "GET",
    f"{GRAPH}/queries",
    id="list_queries",
    tag="queries",
    returns=answers.StoredQueryList,
)
async def list_queries(request: Request) -> Response:
    """The stored queries that the caller may run."""
    call = enter_graph(request)
    call.authorize(Action.READ, branch=MAIN)
    return json_response({"queries": [stored.to_json() for stored in invocable(call)]})


@operation(
    router,
    "POST",
    f"{GRAPH}/queries/{{name}}",
    errors=STOPPED,
    id="invoke_query",
    tag="queries",
    body=StoredQueryBody,
    body_required=False,
    returns=answers.StoredAnswer,
    writes=True,
)
async def invoke_query(request: Request) -> Response:
    """Run a stored query: the rows of a read, or the receipt of a mutation."""
    return await _invoke(request, is_conditional=False)


@operation(
    router,
    "POST",
    f"{GRAPH}/queries/{{name}}/if-graph-commit",
    id="invoke_query_if_graph_commit",
    tag="queries",
    body=StoredQueryBody,
    body_required=False,
    headers=[CONDITION],
    returns=answers.StoredAnswer,
    writes=True,
)
async def invoke_query_if_graph_commit(request: Request) -> Response:
    """Run a stored mutation, if the branch is still at a commit."""
    return await _invoke(request, is_conditional=True)


def invocable(call: GraphCall) -> list[StoredQuery]:
    """The stored queries that the caller may know about: all of them, or none."""
    if not call.decide(Action.INVOKE_QUERY).allowed:
        return []
    return list(call.served.queries)


def find_stored(call: GraphCall, name: str) -> StoredQuery:
    """A stored query that the caller may run.

    Raises:
        NotFoundError: there is none of that name, or the caller may run none; nobody can tell which.
    """
    stored = call.served.queries.get(name)
    if not call.decide(Action.INVOKE_QUERY).allowed or stored is None:
        raise NotFoundError("there is no stored query of that name")
    return stored


async def _invoke(request: Request, *, is_conditional: bool) -> Response:
    call = enter_graph(request)
    stored = find_stored(call, request.path_params["name"])
    if_commit = condition_of(request, is_conditional=is_conditional)
    body, size = await read_json(request, StoredQueryBody, call.settings, optional=True)
    check_expectation(stored, body.expect_mutation)
    if not stored.is_mutation:
        if is_conditional:
            raise BadRequestError(f"`{stored.name}` is a read: run it without a condition")
        return await answer_query(
            call,
            stored.source,
            body.params,
            stored.name,
            target_of(body),
            timeout_s=body.timeout_s,
            first=body.first,
        )
    if body.snapshot is not None:
        raise BadRequestError(f"`{stored.name}` is a mutation: it runs on a branch, not a snapshot")
    return await answer_mutation(
        call,
        stored.source,
        body.params,
        stored.name,
        branch=MAIN if body.branch is None else body.branch,
        if_commit=if_commit,
        size=size,
    )


def check_expectation(stored: StoredQuery, expect_mutation: bool | None) -> None:
    """Refuse to run another kind of query than the caller expects.

    Raises:
        BadRequestError: it is of the other kind.
    """
    if expect_mutation is not None and expect_mutation != stored.is_mutation:
        kind, verb = ("mutation", "mutate") if stored.is_mutation else ("read", "query")
        raise BadRequestError(f"`{stored.name}` is a {kind}: run it with `{verb}`")
