"""Branches: list, create, delete, merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import NotFoundError
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server import answers
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.bodies import read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED_WRITE, operation
from omnigraph.server.requests import BranchBody, MergeBody
from omnigraph.server.responses import json_response
from omnigraph.wire.receipts import receipt_document

if TYPE_CHECKING:
    from omnigraph.server.calls import GraphCall

router = APIRouter()
#: In the path of one branch whose name is one segment.
_SLASHES = GRAPH.count("/") + 2


@operation(
    router,
    "GET",
    f"{GRAPH}/branches",
    id="list_branches",
    tag="branches",
    returns=answers.Branches,
)
async def list_branches(request: Request) -> Response:
    """The names of the branches that the caller may read, sorted."""
    call = enter_graph(request)
    call.authorize_some(Action.READ)

    def work() -> list[str]:
        names = call.graph.branches()
        return [name for name in names if call.decide(Action.READ, branch=name).allowed]

    return json_response({"branches": await call.read(work)})


@operation(
    router,
    "POST",
    f"{GRAPH}/branches",
    id="create_branch",
    tag="branches",
    body=BranchBody,
    returns=answers.BranchChanged,
    writes=True,
)
async def create_branch(request: Request) -> Response:
    """Create a branch at the head of another one, or at any commit; no data is copied."""
    call = enter_graph(request)
    call.authorize_some(Action.BRANCH_CREATE)
    body, _ = await read_json(request, BranchBody, call.settings)
    base = MAIN if body.from_ is None else body.from_.strip()
    origin = await _origin(call, base)
    call.authorize(Action.BRANCH_CREATE, branch=origin, target=body.name)
    if origin == base:  # otherwise it is a commit, which was found because the caller may read it
        call.authorize(Action.READ, branch=base)
    with call.admitted(BRANCH_OPERATION_BYTES):
        await call.write(lambda: call.graph.create_branch(body.name, base, actor=call.actor))
    return json_response(
        {
            "uri": call.served.address,
            "name": body.name.strip(),
            "from": base,
            "actor_id": call.actor,
        }
    )


async def _origin(call: GraphCall, base: str) -> str:
    """The branch that a base belongs to: itself, or the one where a commit landed, if the caller may see it."""
    commit = await call.read(lambda: call.commit_named(base))
    return base if commit is None else commit.branch


@operation(
    router,
    "DELETE",
    f"{GRAPH}/branches/{{branch:path}}",
    id="delete_branch",
    tag="branches",
    returns=answers.BranchChanged,
    writes=True,
)
async def delete_branch(request: Request) -> Response:
    """Delete a branch; what it did and nobody merged is gone. The name is one percent-encoded segment."""
    call = enter_graph(request)
    name = _one_segment(request)
    call.authorize(Action.BRANCH_DELETE, target=name)
    with call.admitted(BRANCH_OPERATION_BYTES):
        await call.write(lambda: call.graph.delete_branch(name, actor=call.actor))
    return json_response(
        {
            "uri": call.served.address,
            "name": name.strip(),
            "actor_id": call.actor,
        }
    )


def _one_segment(request: Request) -> str:
    """The name at the end of the path, which must not be spread over several segments.

    Raises:
        NotFoundError: it is.
    """
    name: str = request.path_params["branch"]
    raw: bytes = request.scope.get("raw_path", b"")
    if raw.partition(b"?")[0].count(b"/") > _SLASHES:
        raise NotFoundError("there is nothing at this path: encode a `/` in the name as %2F")
    return name


@operation(
    router,
    "POST",
    f"{GRAPH}/branches/merge",
    id="merge_branches",
    tag="branches",
    body=MergeBody,
    returns=answers.Merge,
    errors=STOPPED_WRITE,
    writes=True,
)
async def merge(request: Request) -> Response:
    """Merge what happened on one branch into another; all of it becomes visible at once, or nothing does."""
    call = enter_graph(request)
    call.authorize_some(Action.BRANCH_MERGE)
    body, _ = await read_json(request, MergeBody, call.settings)
    target = MAIN if body.target is None else body.target
    call.authorize(Action.BRANCH_MERGE, branch=body.source, target=target)
    for name in (body.source, target):  # conflicts show the rows of both
        call.authorize(Action.READ, branch=name)
    deletion = call.decide(Action.BRANCH_DELETE, target=body.source) if body.delete_branch else None
    may_delete = deletion is not None and deletion.allowed
    timeout_s, signal = call.settings.write_timeout_s(body.timeout_s), call.new_signal()
    with call.admitted(BRANCH_OPERATION_BYTES):
        result = await call.stoppable(
            lambda: call.graph.merge(
                body.source,
                target,
                strategy=body.strategy,
                dry_run=body.dry_run,
                delete_branch=may_delete,
                actor=call.actor,
                engine="local",
                timeout_s=timeout_s,
                cancel=signal,
            ),
            signal,
            writes=True,
        )
    if deletion is not None and not may_delete and not body.dry_run:
        result = replace(result, branch_deleted=False, branch_delete_error=deletion.message)
    elif result.branch_delete_error is not None:
        shown = call.service.hidden.in_text(result.branch_delete_error)
        result = replace(result, branch_delete_error=shown)
    call.count_commit(result.commit)
    return json_response(receipt_document(result))
