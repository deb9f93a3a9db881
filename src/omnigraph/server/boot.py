"""Opens the configured graphs, and reads tokens and policies again on SIGHUP."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from omnigraph.api.operations import OPERATIONS
from omnigraph.core.budget import ReadLimits
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.frozen import frozen
from omnigraph.graph.graph import Graph
from omnigraph.policy.policy import READ_ONLY, Policy, PolicyGate
from omnigraph.server.admission import StreamSlots
from omnigraph.server.config import ServedGraph, ServerConfig
from omnigraph.server.responses import logger
from omnigraph.server.service import Authority, OpenGraph, Service, Tokens, read_tokens, token_warnings
from omnigraph.server.settings import ServerSettings
from omnigraph.server.stored_queries import StoredQueries

# ---- Opening the graphs of a configuration


_log = logger(__name__)
_OPENED_AT_ONCE = 4


@frozen(kw_only=True)
class FreshAuthority:
    """Tokens and policies as they are on disk now. `policies` is empty in the open state."""

    tokens: Tokens | None
    policies: Mapping[str, Policy]
    server_policy: Policy | None


def read_authority(config: ServerConfig, environment: Mapping[str, str], *, is_open: bool) -> FreshAuthority:
    """Read tokens and policies, and refuse combinations that would serve more than was meant.

    Raises:
        BadRequestError: there are no tokens and the server was not opened, or there is a policy without tokens.
        InputFileError: a file cannot be read.
    """
    tokens = read_tokens(environment)
    has_policy = config.policy is not None or any(item.policy for item in config.graphs)
    if tokens is None:
        if has_policy:
            raise BadRequestError(
                "there is a policy and no token: actors cannot be told apart. Set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
            )
        if not is_open:
            raise BadRequestError(
                "there is no token: set OMNIGRAPH_SERVER_BEARER_TOKEN or OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, "
                "or serve every client with --unauthenticated"
            )
        return FreshAuthority(tokens=None, policies={}, server_policy=None)
    for warning in token_warnings(tokens, environment):
        _log.warning("tokens", warning=warning)
    policies = {
        item.graph_id: READ_ONLY if item.policy is None else Policy.from_file(item.policy) for item in config.graphs
    }
    for item in config.graphs:
        if not policies[item.graph_id].is_for_graph:
            raise BadRequestError(f"{item.policy}: a policy of a server, given for a graph")
    server_policy = None if config.policy is None else Policy.from_file(config.policy)
    if server_policy is not None and not server_policy.is_for_server:
        raise BadRequestError(f"{config.policy}: a policy of a graph, given for the server")
    return FreshAuthority(tokens=tokens, policies=policies, server_policy=server_policy)


def open_service(
    config: ServerConfig,
    settings: ServerSettings,
    *,
    unauthenticated: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Service:
    """Open all graphs, a few at a time; those that cannot be opened are set aside.

    Raises:
        BadRequestError: tokens and policies do not fit together, or no graph, or with `require_all_graphs` not every
            graph can be served.
        InputFileError: a file cannot be read.
    """
    fresh = read_authority(config, environment, is_open=unauthenticated)
    limits = settings.read_limits()
    opened: dict[str, OpenGraph] = {}
    quarantined: dict[str, str] = {}

    def attempt(item: ServedGraph) -> None:
        policy = fresh.policies.get(item.graph_id)
        try:
            gate = None if policy is None else PolicyGate(policy)
            opened[item.graph_id] = _open(item, gate, settings, limits)
        except OmniError as problem:
            quarantined[item.graph_id] = problem.message
            _log.error("graph quarantined", graph=item.graph_id, reason=problem.message)

    with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
        list(pool.map(attempt, config.graphs))
    _check_health(opened, quarantined, settings)
    gate = None if fresh.server_policy is None else PolicyGate(fresh.server_policy)
    return Service(
        graphs=dict(sorted(opened.items())),
        quarantined=quarantined,
        config=config,
        authority=Authority(tokens=fresh.tokens, server_gate=gate),
        settings=settings,
    )


def open_for_actor(graph: ServedGraph, actor: str, policy: Policy, settings: ServerSettings) -> tuple[Service, str]:
    """A service of one graph for one actor, and the token that the actor has in this process alone.

    Raises:
        BadRequestError: the policy allows the actor nothing.
        OmniError: the graph cannot be served.
    """
    if not policy.knows(actor):
        raise BadRequestError(f"the policy allows nothing to actor `{actor}`: name another one with --as")
    gate, token = PolicyGate(policy), secrets.token_urlsafe()
    writes = (entry.action for entry in OPERATIONS.values() if entry.cost.writes and entry.action is not None)
    is_writer = any(policy.could(actor, action) for action in writes)
    opened = _open(graph, gate, settings, settings.read_limits(), read_only=not is_writer)
    service = Service(
        graphs={graph.graph_id: opened},
        quarantined={},
        config=ServerConfig(graphs=(graph,)),
        authority=Authority(tokens=Tokens({actor: token}, "this process")),
        settings=settings,
    )
    return service, token


def _check_health(opened: Mapping[str, OpenGraph], quarantined: Mapping[str, str], settings: ServerSettings) -> None:
    if opened and not (quarantined and settings.require_all_graphs):
        return
    for served in opened.values():
        served.graph.close()
    listing = "\n".join(f"  {graph_id}: {reason}" for graph_id, reason in quarantined.items())
    what = "not every graph" if opened else "no graph"
    raise BadRequestError(f"{what} can be served:\n{listing}")


def _open(
    item: ServedGraph, gate: PolicyGate | None, settings: ServerSettings, limits: ReadLimits, *, read_only: bool = False
) -> OpenGraph:
    """Open one graph with its stored queries.

    Raises:
        OmniError: it cannot be served.
    """
    queries = StoredQueries.read(item.queries)
    graph = Graph.open(item.store, read_only, policy=gate, external_blobs=item.external_blobs, limits=limits)
    try:
        report = queries.check(graph.catalog())
        for warning in report.warnings:
            _log.warning("stored query", graph=item.graph_id, finding=str(warning))
        if report.breakages:
            listing = "; ".join(str(found) for found in report.breakages)
            raise BadRequestError(f"stored queries do not fit the schema: {listing}")
    except OmniError:
        graph.close()
        raise
    slots = StreamSlots(settings.exports_per_graph, per_caller=settings.exports_per_caller)
    return OpenGraph(graph_id=item.graph_id, graph=graph, queries=queries, gate=gate, slots=slots)


# ---- Reloading tokens and policies on SIGHUP


@contextmanager
def install_reload(service: Service) -> Iterator[None]:
    """Reload at SIGHUP while the server runs; only a process that owns its signals can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, reload, service))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def reload(service: Service) -> bool:
    """Read tokens and policies again. What cannot be read changes nothing; says whether it worked."""
    # One after the other: otherwise what was read first could be put in place last.
    with service.reloading:
        try:
            fresh = read_authority(service.config, os.environ, is_open=service.is_open)
        except OmniError as problem:
            _log.error("reload refused, nothing changed", reason=problem.message)
        except Exception:  # noqa: BLE001  # no caller waits for this thread: its log is the only report
            _log.exception("reload failed, nothing changed")
        else:
            _replace(service, fresh)
            service.metrics.reloads.labels("done").inc()
            return True
    service.metrics.reloads.labels("refused").inc()
    return False


def _replace(service: Service, fresh: FreshAuthority) -> None:
    for graph_id, served in service.graphs.items():
        if served.gate is not None:
            served.gate.replace(fresh.policies[graph_id])
    gate = service.authority.server_gate
    if gate is not None and fresh.server_policy is not None:
        gate.replace(fresh.server_policy)
    service.authority.tokens = fresh.tokens
    _log.info("tokens and policy reloaded", actors=0 if fresh.tokens is None else len(fresh.tokens))
