"""History: commits, the log over all branches, and the differences of two states."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BranchNotFoundError
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.server import answers
from omnigraph.server.bodies import parse_query
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED, operation
from omnigraph.server.requests import CommitsParams, DiffParams, LogParams
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.wire.commits import commit_document, log_document
from omnigraph.wire.diffs import DiffFilter, diff_page
from omnigraph.wire.protocol import JSON

if TYPE_CHECKING:
    from omnigraph.branches.diffs import Diff
    from omnigraph.manifest.rows import GraphCommit
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.server.calls import GraphCall

router = APIRouter()


@operation(
    router,
    "GET",
    f"{GRAPH}/commits",
    id="list_commits",
    tag="commits",
    query=CommitsParams,
    returns=answers.Commits,
)
async def list_commits(request: Request) -> Response:
    """The history of a branch, newest first: its own commits and those it inherited."""
    call = enter_graph(request)
    params = parse_query(request, CommitsParams)
    branch = MAIN if params.branch is None else params.branch
    call.authorize(Action.READ, branch=branch)

    def work() -> bytes:
        commits = call.graph.commits(branch, actor=params.actor)
        return json_bytes({"commits": [commit_document(commit) for commit in commits]})

    return Response(await call.read(work), media_type=JSON)


@operation(
    router,
    "GET",
    f"{GRAPH}/log",
    id="get_log",
    tag="commits",
    query=LogParams,
    returns=answers.Log,
)
async def log(request: Request) -> Response:
    """Everything that one branch, or all that the caller may read, build on over both parents; newest first."""
    call = enter_graph(request)
    branch = parse_query(request, LogParams).branch
    if branch is not None:
        call.authorize(Action.READ, branch=branch)
    else:
        call.authorize_some(Action.READ)

    def work() -> bytes:
        heads = _heads(call)
        visible = [name for name in heads if call.decide(Action.READ, branch=name).allowed]
        names = visible if branch is None else [branch]
        commits = _merged([call.graph.log(name) for name in names])
        if len(visible) < len(heads):
            commits = _without_hidden(call, commits, visible)
        document = log_document(commits, heads)
        document["heads"] = {name: heads[name].commit_id for name in visible}
        return json_bytes(document)

    return Response(await call.read(work), media_type=JSON)


def _heads(call: GraphCall) -> dict[str, Snapshot]:
    heads = {}
    for name in call.graph.branches():
        with suppress(BranchNotFoundError):  # somebody deleted it just now
            heads[name] = call.graph.snapshot(name)
    return heads


def _without_hidden(
    call: GraphCall, commits: list[GraphCommit], visible: list[str]
) -> list[GraphCommit]:
    """Without commits that were merged from branches which the caller must not read."""
    inherited = {commit.commit_id for name in visible for commit in call.graph.commits(name)}
    return [c for c in commits if c.branch in visible or c.commit_id in inherited]


def _merged(logs: list[list[GraphCommit]]) -> list[GraphCommit]:
    """The commits of several logs, each once, newest first."""
    found = {commit.commit_id: commit for log in logs for commit in log}
    return sorted(found.values(), key=lambda commit: commit.graph_version, reverse=True)


@operation(
    router,
    "GET",
    f"{GRAPH}/commits/{{commit_id}}",
    id="get_commit",
    tag="commits",
    returns=answers.Commit,
)
async def get_commit(request: Request) -> Response:
    """One commit, of any branch that the caller may read."""
    call = enter_graph(request)
    commit_id = request.path_params["commit_id"]
    commit = await call.read(lambda: call.visible_commit(commit_id))
    return json_response(commit_document(commit))


@operation(
    router,
    "GET",
    f"{GRAPH}/diff",
    id="get_diff",
    tag="changes",
    query=DiffParams,
    returns=answers.DiffAnswer,
    errors=STOPPED,
)
async def diff(request: Request) -> Response:
    """One page of what differs between two branches or commits: what turns the first into the second."""
    call = enter_graph(request)
    params = parse_query(request, DiffParams)
    timeout_s, signal = call.settings.stream_timeout_s(params.timeout_s), call.new_signal()

    def work() -> bytes:
        one, other = (call.visible_state(name) for name in (params.from_, params.to))
        chosen = DiffFilter(kinds=params.kind, types=params.type, ops=params.op)

        def compare() -> Diff:
            return call.graph.diff(
                one,
                other,
                kinds=params.kind,
                types=params.type,
                ops=params.op,
                engine="local",
                timeout_s=timeout_s,
                cancel=signal,
            )

        found = call.served.diffs.get(one, other, chosen.digest, compare)
        page = diff_page(found, chosen, limit=params.limit, page_token=params.page_token)
        return json_bytes(page)

    return Response(await call.stoppable(work, signal), media_type=JSON)
