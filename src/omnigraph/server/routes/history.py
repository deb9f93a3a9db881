"""Routes of branches, commits, log, diffs, changes, feed and baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.answers import Branches, Commits
from omnigraph.api.diffs import DiffFilter, diff_page
from omnigraph.api.listings import check_branch_choice, commit_list
from omnigraph.api.models import BaselineBody, BranchBody, CommitsParams, DiffParams, LogParams, MergeBody
from omnigraph.api.operation import GRAPH, JSON, NDJSON, Operation
from omnigraph.branches.diffs import Diff
from omnigraph.commit.lineage import log_of
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import newest_first
from omnigraph.errors import BranchNotFoundError
from omnigraph.policy.rules import Action
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import one_segment, parse_query, read_json
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.server.routing import handles
from omnigraph.server.streams import Sink, produced

# ---- Branches: list, create, delete, merge


#: In the path of one branch whose name is one segment.
_SLASHES = GRAPH.count("/") + 2


@handles("list_branches")
async def _list_branches(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    return json_response(Branches(branches=await call.read(call.visible_branches)).document())


@handles("create_branch")
async def _create_branch(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.BRANCH_CREATE)
    body, _ = await read_json(request, BranchBody, call.settings)
    base = MAIN if body.from_ is None else body.from_.strip()
    # A commit is found because the caller may read it.
    commit = await call.read(lambda: call.commit_named(base))
    call.authorize(Action.BRANCH_CREATE, branch=base if commit is None else commit.branch, target=body.name)
    if commit is None:
        call.authorize(Action.READ, branch=base)
    else:
        base = commit.commit_id
    with call.admitted(BRANCH_OPERATION_BYTES):
        made = await call.write(lambda: call.graph.create_branch(body.name, base, actor=call.actor))
    return json_response(replace(made, uri=call.served.address).document())


@handles("delete_branch")
async def _delete_branch(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    name = one_segment(request, "branch")
    call.authorize(Action.BRANCH_DELETE, target=name)
    with call.admitted(BRANCH_OPERATION_BYTES):
        gone = await call.write(lambda: call.graph.delete_branch(name, actor=call.actor))
    return json_response(replace(gone, uri=call.served.address).document())


@handles("merge_branches")
async def _merge(request: Request, _operation: Operation) -> Response:
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
                check_minimum=body.check_minimum,
                delete_branch=may_delete,
                actor=call.actor,
                message=body.message,
                metadata=body.metadata,
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
    return json_response(result.document())


# ---- Commits, the log, and diffs


@handles("list_commits")
async def _commits(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    params = parse_query(request, CommitsParams)
    branch = check_branch_choice(MAIN if params.branch is None else params.branch, all_branches=params.all_branches)
    if branch is None:
        call.authorize_some(Action.READ)
    else:
        call.authorize(Action.READ, branch=branch)

    def work() -> bytes:
        if branch is None:
            found = commit_list(_visible_log(call, _heads(call), None), params.actor)
        else:
            found = call.graph.commits(branch, params.actor)
        return json_bytes(Commits(commits=found).document())

    return Response(await call.read(work), media_type=JSON)


@handles("get_log")
async def _log(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    branch = parse_query(request, LogParams).branch
    if branch is not None:
        call.authorize(Action.READ, branch=branch)
    else:
        call.authorize_some(Action.READ)

    def work() -> bytes:
        heads = _heads(call)
        found = log_of(_visible_log(call, heads, branch), heads)
        shown = replace(found, heads={name: found.heads[name] for name in _visible(call, heads)})
        return json_bytes(shown.document())

    return Response(await call.read(work), media_type=JSON)


def _heads(call: GraphCall) -> dict[str, Snapshot]:
    heads = {}
    for name in call.graph.branches():
        with suppress(BranchNotFoundError):  # it was deleted meanwhile
            heads[name] = call.graph.snapshot(name)
    return heads


def _visible(call: GraphCall, heads: Mapping[str, Snapshot]) -> list[str]:
    return [name for name in heads if call.decide(Action.READ, branch=name).allowed]


def _visible_log(call: GraphCall, heads: Mapping[str, Snapshot], branch: str | None) -> list[GraphCommit]:
    """The log of a branch, or of all that the caller may read, newest first.

    Commits that were merged from branches which the caller must not read are left out.
    """
    visible = _visible(call, heads)
    logs = [call.graph.log(name) for name in (visible if branch is None else [branch])]
    found = newest_first({commit.commit_id: commit for log in logs for commit in log}.values())
    if len(visible) == len(heads):
        return found
    inherited = {commit.commit_id for name in visible for commit in call.graph.commits(name)}
    return [commit for commit in found if commit.branch in visible or commit.commit_id in inherited]


@handles("get_diff")
async def _diff(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    params = parse_query(request, DiffParams)
    timeout_s, signal = call.settings.stream_timeout_s(params.timeout_s), call.new_signal()

    def work() -> bytes:
        one, other = (call.visible_state(name) for name in (params.from_, params.to))
        chosen = DiffFilter(kinds=params.kind, types=params.type, ops=params.op)

        def compare() -> Diff:
            made = call.graph.diff(
                one,
                other,
                kinds=params.kind,
                types=params.type,
                ops=params.op,
                engine="local",
                timeout_s=timeout_s,
                cancel=signal,
            )
            assert isinstance(made, Diff), "the graph is beside its storage"
            return made

        found = call.served.diffs.get(one, other, chosen.digest, compare)
        page = diff_page(found, chosen, limit=params.limit, page_token=params.page_token)
        return json_bytes(page.document())

    return Response(await call.stoppable(work, signal), media_type=JSON)


# ---- Changes, the change feed, and baselines


@handles("get_changes_baseline")
async def _baseline(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.EXPORT)
    body, _ = await read_json(request, BaselineBody, call.settings, optional=True)
    branch = MAIN if body.branch is None else body.branch
    call.authorize(Action.EXPORT, branch=branch)
    timeout_s, signal = call.settings.stream_timeout_s(body.timeout_s), call.new_signal()

    def produce(sink: Sink) -> None:
        result = call.graph.baseline(
            branch, out=sink, kinds=body.kind, types=body.type, ops=body.op, timeout_s=timeout_s, cancel=signal
        )
        handshake = {"snapshot_commit_id": result.snapshot_commit_id, "resume_cursor": result.resume_cursor}
        sink.write(json.dumps({"baseline": handshake}) + "\n")

    return await produced(call, produce, media_type=NDJSON, signal=signal)
