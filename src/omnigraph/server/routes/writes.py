"""Routes of mutations, stored queries and loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from tempfile import NamedTemporaryFile

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.answers import StoredQueryList
from omnigraph.api.models import LoadBody, LoadParams, MutateBody, StoredQueryBody
from omnigraph.api.operation import IF_GRAPH_COMMIT, Operation
from omnigraph.api.results import LoadResult, MutationResult
from omnigraph.commit.rows import MAIN
from omnigraph.core.budget import LinkedSignal
from omnigraph.core.ids import is_ulid_part
from omnigraph.core.source import SourceText, with_hint
from omnigraph.errors import BadRequestError, InputFileError, LoadKeyConflictError, LoadRejectedError, NotFoundError
from omnigraph.errors.writes import with_source_named
from omnigraph.frozen import frozen
from omnigraph.policy.rules import Action
from omnigraph.server.admission import LOAD_FACTOR, Grant, memory_of
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import announced_size, parse_query, read_json, read_load, spooled_ndjson, target_of
from omnigraph.server.responses import json_response
from omnigraph.server.routes.reads import answer_query
from omnigraph.server.routing import handles
from omnigraph.server.stored_queries import StoredQuery

# ---- Mutations, conditional ones too


@handles("mutate", "mutate_if_graph_commit", "change")
async def _mutate(request: Request, operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.CHANGE)
    if_commit = condition_of(request, operation)
    body, size = await read_json(request, MutateBody, call.settings)
    branch = MAIN if body.branch is None else body.branch
    return await answer_mutation(call, body.query, body, body.name, branch=branch, if_commit=if_commit, size=size)


async def answer_mutation(
    call: GraphCall,
    source: str | SourceText,
    body: MutateBody | StoredQueryBody,
    name: str | None,
    *,
    branch: str,
    if_commit: str | None,
    size: int,
) -> Response:
    """The receipt of a mutation that the caller may make."""
    call.authorize(Action.CHANGE, branch=branch)

    def work() -> MutationResult:
        expected = None if if_commit is None else call.visible_id(if_commit)
        return call.graph.mutate(
            source,
            body.params,
            name=name,
            branch=branch,
            actor=call.actor,
            if_commit=expected,
            max_affected=body.max_affected,
            dry_run=body.dry_run,
            message=body.message,
            metadata=body.metadata,
        )

    with call.admitted(size):
        result = await call.write(work)
    call.count_commit(result.commit)
    return json_response(result.document())


def condition_of(request: Request, operation: Operation) -> str | None:
    """The commit that a request makes its condition.

    Raises:
        BadRequestError: a conditional route got no commit id, or an ordinary one got a condition.
    """
    given = request.headers.getlist(IF_GRAPH_COMMIT)
    if not operation.is_conditional:
        if given:
            raise BadRequestError(
                f"this route has no condition: send {IF_GRAPH_COMMIT} to its twin `…/if-graph-commit`"
            )
        return None
    if len(given) != 1 or not is_ulid_part(given[0]):
        raise BadRequestError(f"send one header {IF_GRAPH_COMMIT} with one commit id, as it is")
    return given[0]


# ---- Stored queries


@handles("list_queries")
async def _list_queries(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize(Action.READ, branch=MAIN)
    found = [stored.entry() for stored in invocable(call)]
    return json_response(StoredQueryList(queries=found).document())


def invocable(call: GraphCall) -> list[StoredQuery]:
    """The stored queries that the caller may know about: all of them, or none."""
    if not call.decide(Action.INVOKE_QUERY).allowed:
        return []
    return list(call.served.queries)


def find_stored(call: GraphCall, name: str) -> StoredQuery:
    """A stored query that the caller may run.

    Raises:
        NotFoundError: there is none of that name, or the caller may run none; the error is the same.
    """
    stored = call.served.queries.get(name)
    if not call.decide(Action.INVOKE_QUERY).allowed or stored is None:
        known = (other.name for other in invocable(call))
        raise NotFoundError(with_hint("there is no stored query of that name", name, known))
    return stored


@handles("invoke_query", "invoke_query_if_graph_commit")
async def _invoke(request: Request, operation: Operation) -> Response:
    call = enter_graph(request)
    stored = find_stored(call, request.path_params["name"])
    if_commit = condition_of(request, operation)
    body, size = await read_json(request, StoredQueryBody, call.settings, optional=True)
    check_expectation(stored, body.expect_mutation)
    if not stored.is_mutation:
        if operation.is_conditional:
            raise BadRequestError(f"`{stored.name}` is a read: run it without a condition")
        if body.dry_run or any(item is not None for item in (body.max_affected, body.message, body.metadata)):
            members = "dry_run, max_affected, message and metadata"
            raise BadRequestError(f"`{stored.name}` is a read: {members} are about mutations")
        return await answer_query(
            call,
            stored.source,
            body.params,
            stored.name,
            target_of(vars(body)),
            timeout_s=body.timeout_s,
            first=body.first,
        )
    if body.snapshot is not None:
        raise BadRequestError(f"`{stored.name}` is a mutation: it runs on a branch, not a snapshot")
    return await answer_mutation(
        call,
        stored.source,
        body,
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


# ---- Loads: the records of a body, as one commit


_BODY = "body"


@frozen(kw_only=True)
class _LoadRequest:
    branch: str
    base: str | None
    mode: str
    grammar: str
    on_duplicate: str | None
    dangling: str | None
    timeout_s: float | None
    upsert: bool = False
    check_minimum: bool = False
    dry_run: bool = False
    message: str | None = None
    metadata: Mapping[str, object] | None = None
    source: str = _BODY


@handles("load_ndjson")
async def _load_ndjson(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    params = parse_query(request, LoadParams)
    wanted = _LoadRequest(
        branch=MAIN if params.branch is None else params.branch,
        base=params.from_,
        mode=params.mode,
        grammar=params.grammar,
        on_duplicate=params.on_duplicate,
        dangling=params.dangling,
        timeout_s=call.settings.write_timeout_s(params.timeout_s),
        upsert=params.upsert,
        check_minimum=params.check_minimum,
        dry_run=params.dry_run,
        message=params.message,
        metadata=params.metadata,
        source=params.source or _BODY,
    )
    await _authorize(call, wanted)
    size, signal = announced_size(request, call.settings.load_body_limit), call.new_signal()
    with call.admitted(0) as grant:
        hold = _holder(call, grant)
        hold(size or 0)
        async with spooled_ndjson(request, call.settings, hold) as path:
            result = await call.stoppable(lambda: _load(call, wanted, path, signal), signal, writes=True)
    call.count_commit(result.commit)
    return json_response(replace(result, uri=call.served.address).document())


@handles("load", "ingest")
async def _load_text(request: Request, operation: Operation) -> Response:
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
            grammar=body.grammar or ("compatible" if operation.id == "ingest" else "strict"),
            upsert=body.upsert,
            check_minimum=body.check_minimum,
            on_duplicate=body.on_duplicate,
            dangling=body.dangling,
            message=body.message,
            metadata=body.metadata,
            timeout_s=call.settings.write_timeout_s(body.timeout_s),
        )
        await _authorize(call, wanted)

        def work() -> LoadResult:
            with _written([body.data] if text is None else text.pieces()) as path:
                return _load(call, wanted, path, signal)

        result = await call.stoppable(work, signal, writes=True)
    call.count_commit(result.commit)
    return json_response(replace(result, uri=call.served.address).document())


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
    try:
        receipt = call.graph.load(
            path,
            mode=wanted.mode,
            branch=wanted.branch,
            base=wanted.base,
            actor=call.actor,
            message=wanted.message,
            metadata=wanted.metadata,
            on_duplicate=wanted.on_duplicate,
            dangling=wanted.dangling,
            dry_run=wanted.dry_run,
            grammar=wanted.grammar,
            upsert=wanted.upsert,
            check_minimum=wanted.check_minimum,
            timeout_s=wanted.timeout_s,
            cancel=signal,
        )
    except (LoadRejectedError, LoadKeyConflictError, InputFileError) as refused:
        # Reports name the file that the body was kept in, which means nothing to the client.
        raise with_source_named(refused, path, wanted.source) from None
    report = receipt.report
    return receipt if report is None else replace(receipt, report=report.with_source_named(path, wanted.source))


@contextmanager
def _written(pieces: Iterable[str]) -> Iterator[str]:
    with NamedTemporaryFile("w", prefix="omnigraph-load-", suffix=".jsonl", encoding="utf-8", newline="") as file:
        file.writelines(pieces)
        file.flush()
        yield file.name
