"""One request: who asks, for which graph, whether it is allowed, and where it runs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio
import structlog

from omnigraph.commit.read_target import Target
from omnigraph.commit.references import Reference, read_reference
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.tags import Tag, find_tag, tag_name
from omnigraph.commit.targets import commits_named, one_commit
from omnigraph.core.budget import LinkedSignal
from omnigraph.core.ids import is_ulid, is_ulid_part
from omnigraph.core.source import did_you_mean, with_hint
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ForbiddenHostError,
    HistoryReclaimedError,
    InternalError,
    NotFoundError,
    QueryCancelledError,
    TooManyRequestsError,
    UnauthorizedError,
    is_panic,
)
from omnigraph.frozen import frozen
from omnigraph.graph.graph import Graph
from omnigraph.policy.policy import READ_ONLY, PolicyGate
from omnigraph.policy.rules import Action, Decision, PolicyRequest
from omnigraph.server.admission import Grant
from omnigraph.server.connections import peer_of
from omnigraph.server.responses import logger
from omnigraph.server.service import OpenGraph, Service
from omnigraph.server.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive


# ---- Worker threads


_Outcome = TypeVar("_Outcome")


async def run_in_thread(work: Callable[[], _Outcome], *, limiter: anyio.CapacityLimiter) -> _Outcome:
    """Run work in a thread and return its result.

    Raises:
        InternalError: an extension module gave up. The loop would take that for the end of the process.
    """
    return await anyio.to_thread.run_sync(_contained, work, limiter=limiter)


def _contained(work: Callable[[], _Outcome]) -> _Outcome:
    try:
        return work()
    except BaseException as error:
        if is_panic(error):
            raise InternalError(f"an extension module gave up: {error}") from error
        raise


# ---- The call of a route


_log = logger(__name__)
_MAX_TOKEN_CHARACTERS = 4096
_NO_GATE = Decision(allowed=True, rule=None, message="the server is open")


@frozen(kw_only=True)
class Call:
    """A request whose caller is known."""

    request: Request
    service: Service
    #: Whose token came with the request; None in the open state.
    actor: str | None

    @property
    def settings(self) -> ServerSettings:
        """The limits of the server."""
        return self.service.settings

    @property
    def caller(self) -> str:
        """Whose share of the server it uses: the actor, or where there are none the address of the client."""
        return f"peer {peer_of(self.request.client)}" if self.actor is None else self.actor

    async def read(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Run work that only reads, in a thread of the readers."""
        return await run_in_thread(work, limiter=self.service.reads)

    def new_signal(self) -> LinkedSignal:
        """A signal that stops the work of this request; set when the client is gone or the server stops."""
        return LinkedSignal(self.service.stopping)

    async def stoppable(self, work: Callable[[], _Outcome], signal: LinkedSignal, *, writes: bool = False) -> _Outcome:
        """As `read`, for work that stops at a signal; it is set as soon as the client is gone.

        With `writes` as `write`. Either way the work has ended when this does, with its effect or without.

        Raises:
            QueryCancelledError: the client went away before its turn came, or while it was working.
        """
        outcome: tuple[_Outcome] | None = None
        failure: Exception | None = None
        limiter = self.service.writes if writes else self.service.reads
        # What is raised inside a group leaves it as a group of exceptions, so it is carried out by hand.
        async with anyio.create_task_group() as group:
            group.start_soon(until_gone, self.request.receive, signal, group.cancel_scope)
            try:
                outcome = (await run_in_thread(work, limiter=limiter),)
            except Exception as error:  # noqa: BLE001  # raised again below
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if outcome is None:
            raise QueryCancelledError("the queue of the server")
        return outcome[0]

    async def write(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Run work that writes, in a thread of the writers; it is finished even when the client goes away."""
        with anyio.CancelScope(shield=True):
            outcome = await run_in_thread(work, limiter=self.service.writes)
        return outcome  # noqa: RET504  # a scope may swallow a cancellation, so nothing returns from inside it


@frozen(kw_only=True)
class GraphCall(Call):
    """A request about one graph."""

    served: OpenGraph

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.served.graph

    def decide(self, action: Action, *, branch: str | None = None, target: str | None = None) -> Decision:
        """The decision of the policy; every decision is counted here and logged by the gate."""
        request = PolicyRequest(self.actor, action, branch=branch, target_branch=target)
        return _decide(self, self.served.gate, self.served.graph_id, request)

    def authorize(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Refuse what the policy does not allow.

        Raises:
            PolicyDeniedError: it does not.
        """
        decision = self.decide(action, branch=branch, target=target)
        if not decision.allowed:
            request = PolicyRequest(self.actor, action, branch=branch, target_branch=target)
            raise request.denied(decision)

    def authorize_some(self, action: Action) -> None:
        """Refuse early what the policy allows on no branch, before a body is read.

        Raises:
            PolicyDeniedError: it is allowed nowhere.
        """
        gate = self.served.gate
        if gate is None or gate.could(self.actor, action):
            return
        decision = self.decide(action)
        reason = "the graph has no policy, so a token only reads" if gate.policy is READ_ONLY else "no rule allows it"
        message = f"actor `{self.actor}` may {action} on no branch: {reason}"
        raise PolicyRequest(self.actor, action).denied(replace(decision, message=message))

    async def authorize_target(self, target: Target, action: Action = Action.READ) -> Target:
        """The target, its commit in full; refuses what the policy does not allow to read: the branch, or the commit's.

        Raises:
            PolicyDeniedError: the branch must not be read.
            NotFoundError: there is no such commit, or it must not be seen.
        """
        if target.snapshot is None:
            self.authorize(action, branch=target.branch)
            return target
        name = target.snapshot
        commit = await self.read(lambda: self.visible_commit(name, action))
        return replace(target, snapshot=commit.commit_id)

    def visible_commit(self, name: str, action: Action = Action.READ) -> GraphCommit:
        """A commit that the caller may read, by its id, or the beginning or end of it.

        Raises:
            CommitNotFoundError: there is none, or its branch must not be read; the error is the same.
            NotFoundError: its branch was deleted.
            AmbiguousCommitError: several commits that the caller may read are named.
        """
        commit_id = self._named_id(name, action)
        try:
            commit = self.graph.commit(commit_id)
        except NotFoundError:
            if self._may_know(commit_id, action):
                raise
            raise CommitNotFoundError(commit_id) from None
        if not self._may_see(commit, action):
            raise CommitNotFoundError(commit_id)
        return commit

    def visible_id(self, name: str, action: Action = Action.READ) -> str:
        """The id of the commit that a shortened id names among those that the caller may read; else the text itself.

        Without a policy the graph completes it, among all of its commits.
        """
        if self.served.gate is None or not is_ulid_part(name) or is_ulid(name):
            return name
        commits = {commit.commit_id: commit for commit in self.graph.log()}
        named = commits_named(name, commits)
        visible = [commit_id for commit_id in named if self._may_see(commits[commit_id], action)]
        return one_commit(name, visible) or name

    def _named_id(self, name: str, action: Action) -> str:
        """As `visible_id`, also of a branch, a tag, or a way such as `main~3`.

        Raises:
            CommitNotFoundError: it begins at what the caller must not read, or leads to nothing.
        """
        if self.served.gate is None or (is_ulid_part(name) and is_ulid(name)):
            return name
        reference = read_reference(name)
        if reference is None and (name in self.graph.branches() or name in self._tags()):
            reference = Reference.to_head(name)
        return self.visible_id(name, action) if reference is None else self._end_of(reference, action)

    def _end_of(self, reference: Reference, action: Action) -> str:
        """Where a way leads that begins at a branch or commit that the caller may read; else there is no such commit.

        Whether its end may be read is for the caller of this to find out.
        """
        commits = {commit.commit_id: commit for commit in self.graph.log()}
        if reference.base in self.graph.branches():
            is_readable = self.decide(action, branch=reference.base).allowed
            start = self.graph.snapshot(branch=reference.base).commit_id if is_readable else None
        elif (tag := self._tags().get(reference.base)) is not None:
            start = tag.commit_id if self._shows(tag, commits, action) else None
        else:
            start = self.visible_id(reference.base, action)
            if start not in commits or not self._may_see(commits[start], action):
                start = None
        if start is None:
            raise CommitNotFoundError(reference.text)
        try:
            return reference.resolve(start, commits)
        except (NotFoundError, HistoryReclaimedError):
            # Messages name commits on the way, which the caller may not know.
            raise CommitNotFoundError(reference.text) from None

    def _tags(self) -> dict[str, Tag]:
        return {tag.name: tag for tag in self.graph.tags()}

    def visible_tags(self) -> list[Tag]:
        """The tags whose commits the caller may read."""
        tags = self.graph.tags()
        if self.served.gate is None or not tags:
            return tags
        commits = {commit.commit_id: commit for commit in self.graph.log()}
        return [tag for tag in tags if self._shows(tag, commits, Action.READ)]

    def visible_tag(self, name: str) -> Tag:
        """A tag whose commit the caller may read.

        Raises:
            TagNotFoundError: there is none; the error is the same.
        """
        return find_tag(tag_name(name), {tag.name: tag for tag in self.visible_tags()})

    def _shows(self, tag: Tag, commits: Mapping[str, GraphCommit], action: Action) -> bool:
        return tag.commit_id in commits and self._may_see(commits[tag.commit_id], action)

    def _may_see(self, commit: GraphCommit, action: Action) -> bool:
        return self.decide(action, branch=commit.branch).allowed or self._is_inherited(commit.commit_id, action)

    def _may_know(self, commit_id: str, action: Action) -> bool:
        """Whether the caller may know why a commit cannot be read: its branch was deleted, and was readable."""
        if self.served.gate is None:
            return True
        made = next((item for item in self.graph.log() if item.commit_id == commit_id), None)
        return made is not None and self.decide(action, branch=made.branch).allowed

    def _is_inherited(self, commit_id: str, action: Action) -> bool:
        """Whether a commit is in the past of a branch that the caller may read, where its version shows the same."""
        return any(
            commit_id in {commit.commit_id for commit in self.graph.commits(name)}
            for name in self.graph.branches()
            if self.decide(action, branch=name).allowed
        )

    def commit_named(self, name: str) -> GraphCommit | None:
        """The commit that a name without surrounding blanks means where branches have names too; None for a branch.

        Raises:
            NotFoundError: there is no such commit, or its branch must not be read; the error is the same.
            AmbiguousCommitError: several commits are named.
        """
        if read_reference(name) is not None:
            return self.visible_commit(name)
        if name in self.graph.branches():
            return None
        if name in self._tags():
            return self.visible_commit(name)
        if not is_ulid_part(name):
            return None
        try:
            return self.visible_commit(name)
        except CommitNotFoundError:
            if is_ulid(name):
                raise
            return None  # the name of a branch that is not there

    def visible_branches(self) -> list[str]:
        """The names of the branches that the caller may read, sorted."""
        return [name for name in self.graph.branches() if self.decide(Action.READ, branch=name).allowed]

    async def advised(self, error: BranchNotFoundError) -> BranchNotFoundError:
        """The same failure, with what the caller may read under a similar name.

        Without a policy the graph has told it already.
        """
        if self.served.gate is None:
            return error
        hint = did_you_mean(error.branch, await self.read(self.visible_branches))
        return BranchNotFoundError(error.branch, "; ".join(text for text in (error.hint, hint) if text) or None)

    def visible_state(self, name: str) -> str:
        """A branch or commit that the caller may read, by the name under which the graph finds the same one.

        Raises:
            PolicyDeniedError: the branch must not be read.
            NotFoundError: there is no such commit, or it must not be seen.
        """
        # The graph reads names without surrounding blanks: whatever is decided is decided about the same name.
        name = name.strip()
        commit = self.commit_named(name)
        if commit is not None:
            return commit.commit_id
        self.authorize(Action.READ, branch=name)
        return name

    @contextmanager
    def admitted(self, size: int) -> Iterator[Grant]:
        """Hold a place among the writes of the actor.

        Raises:
            TooManyRequestsError: it has too much in flight.
        """
        try:
            with self.service.admission.admitted(self.actor, size) as grant:
                yield grant
        except TooManyRequestsError:
            self.service.metrics.refused.labels(self.served.graph_id).inc()
            raise

    def count_commit(self, commit: GraphCommit | None) -> None:
        """Remember that a commit was published."""
        if commit is not None:
            self.service.metrics.commits.labels(self.served.graph_id).inc()


async def until_gone(receive: Receive, signal: LinkedSignal | None, scope: anyio.CancelScope) -> None:
    """Wait until the client is gone, and stop what works for it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if signal is not None:
        signal.set()
    scope.cancel()


def enter(request: Request) -> Call:
    """Find out who asks.

    Raises:
        UnauthorizedError: the token is missing or unknown.
        ForbiddenHostError: the server is open, and was addressed by a name that is not its own, or by a page of
            another site.
    """
    service: Service = request.app.state.service
    tokens = service.authority.tokens
    if tokens is None:
        _check_host(request, service.settings)
        _check_origin(request)
        return Call(request=request, service=service, actor=None)
    actor = tokens.actor_of(_token(request))
    if actor is None:
        peer = peer_of(request.client)
        request.state.refusal_delay_s = delay_s = service.unknown_tokens.count(peer)
        service.metrics.unknown_tokens.inc()
        _log.warning("unknown token", peer=peer, delay_s=delay_s)
        raise UnauthorizedError("the token is not known here")
    structlog.contextvars.bind_contextvars(actor=actor)
    return Call(request=request, service=service, actor=actor)


def enter_graph(request: Request) -> GraphCall:
    """Find out who asks, and about which graph.

    Raises:
        UnauthorizedError: the token is missing or unknown.
        NotFoundError: no graph of that id is served, or the caller may do nothing to it and does not learn that it is.
    """
    call = enter(request)
    graph_id = request.path_params["graph_id"]
    served = call.service.graphs.get(graph_id)
    if served is not None and not _may_know(call, served):
        _log.info("hidden graph", graph=graph_id)
        served = None
    if served is None:
        visible = [name for name, other in call.service.graphs.items() if _may_know(call, other)]
        raise NotFoundError(with_hint(f"no graph {graph_id[:100]!r} is served here", graph_id, visible))
    structlog.contextvars.bind_contextvars(graph=graph_id)
    entered = GraphCall(request=request, service=call.service, actor=call.actor, served=served)
    request.state.graph_call = entered
    return entered


def _may_know(call: Call, served: OpenGraph) -> bool:
    """Whether the caller may learn that a graph is served: it may do something to it, or list all graphs."""
    return served.gate is None or served.gate.knows(call.actor) or _may_list(call)


def _may_list(call: Call) -> bool:
    gate = call.service.authority.server_gate
    return call.service.is_open or (gate is not None and gate.could(call.actor, Action.GRAPH_LIST))


def visible_graphs(call: Call) -> frozenset[str] | None:
    """The graphs that the caller may read on some branch; None for all, to whom may list them."""
    if _may_list(call):
        return None
    return frozenset(
        graph_id
        for graph_id, served in call.service.graphs.items()
        if served.gate is None or served.gate.could(call.actor, Action.READ)
    )


def authorize_server(call: Call, action: Action) -> None:
    """Refuse what the policy of the server does not allow; without one it allows nothing, unless the server is open.

    Raises:
        PolicyDeniedError: it does not.
    """
    if call.service.is_open:
        return
    gate = call.service.authority.server_gate
    request = PolicyRequest(call.actor, action)
    if gate is not None:
        decision = _decide(call, gate, "", request)
    else:
        decision = Decision(allowed=False, rule=None, message=f"no policy of the server grants {action}")
        call.service.metrics.decisions.labels("", str(action), decision.word).inc()
        _log.info("policy decision", action=str(action), decision=decision.word, rule=None)
    if not decision.allowed:
        raise request.denied(decision)


def _decide(call: Call, gate: PolicyGate | None, graph_id: str, request: PolicyRequest) -> Decision:
    if gate is None:
        return _NO_GATE
    decision = gate.decide(request)
    call.service.metrics.decisions.labels(graph_id, str(request.action), decision.word).inc()
    return decision


def _token(request: Request) -> str:
    """The one bearer token of a request.

    Raises:
        UnauthorizedError: there is none, or several.
    """
    given = request.headers.getlist("authorization")
    if len(given) != 1:
        raise UnauthorizedError("send one header `Authorization: Bearer <token>`")
    scheme, _, token = given[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip() or len(token) > _MAX_TOKEN_CHARACTERS:
        raise UnauthorizedError("send one header `Authorization: Bearer <token>`")
    # Headers arrive as Latin-1; a token that was configured with other characters is sent as UTF-8.
    return token.strip().encode("latin-1").decode("utf-8", "surrogateescape")


def _check_host(request: Request, settings: ServerSettings) -> None:
    """Refuse foreign host names, by which a page of another site could reach an open server (DNS rebinding)."""
    host = request.headers.get("host", "").lower()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name in ("", "localhost") or name in settings.allowed_hosts:
        return
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        raise ForbiddenHostError(
            "this server is open and answers to addresses and `localhost` only: set OMNIGRAPH_ALLOWED_HOSTS, or tokens"
        ) from None


def _check_origin(request: Request) -> None:
    """Refuse what a page of another origin lets a browser send: some requests need no question before.

    Where there are tokens, no such page has one.
    """
    origin = request.headers.get("origin")
    if origin is None or origin.partition("://")[2].lower() == request.headers.get("host", "").lower():
        return
    raise ForbiddenHostError("this server is open and takes nothing from pages of other origins")
