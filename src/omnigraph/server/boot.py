"""From a configuration to open graphs: which state the server is in, and which graphs it can serve."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, OmniError
from omnigraph.graph.graph import Graph
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.policy import READ_ONLY, Policy
from omnigraph.schema.compiler import compile_schema
from omnigraph.server.logs import logger
from omnigraph.server.service import Authority, OpenGraph, Service
from omnigraph.server.stream_slots import StreamSlots
from omnigraph.server.tokens import Tokens, read_tokens, token_warnings
from omnigraph.serving.stored import StoredQueries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.graph.limits import ReadLimits
    from omnigraph.server.settings import ServerSettings
    from omnigraph.serving.config import ServedGraph, ServerConfig

_log = logger(__name__)
_OPENED_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshAuthority:
    """Tokens and policies as they are on disk now. `policies` is empty in the open state."""

    tokens: Tokens | None
    policies: Mapping[str, Policy]
    server_policy: Policy | None


def read_authority(
    config: ServerConfig, environment: Mapping[str, str], *, is_open: bool
) -> FreshAuthority:
    """Read tokens and policies, and refuse combinations that would serve more than somebody meant to.

    Raises:
        BadRequestError: there are no tokens and nobody asked for an open server, or there is a policy without tokens.
        InputFileError: a file cannot be read.
    """
    tokens = read_tokens(environment)
    has_policy = config.policy is not None or any(item.policy for item in config.graphs)
    if tokens is None:
        if has_policy:
            raise BadRequestError(
                "there is a policy and no token: nobody could be told apart. Set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
            )
        if not is_open:
            raise BadRequestError(
                "there is no token: set OMNIGRAPH_SERVER_BEARER_TOKEN or OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, "
                "or serve everybody with --unauthenticated"
            )
        return FreshAuthority(tokens=None, policies={}, server_policy=None)
    for warning in token_warnings(tokens, environment):
        _log.warning("tokens", warning=warning)
    policies = {
        item.graph_id: READ_ONLY if item.policy is None else Policy.from_file(item.policy)
        for item in config.graphs
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


def _check_health(
    opened: Mapping[str, OpenGraph], quarantined: Mapping[str, str], settings: ServerSettings
) -> None:
    if opened and not (quarantined and settings.require_all_graphs):
        return
    for served in opened.values():
        served.graph.close()
    listing = "\n".join(f"  {graph_id}: {reason}" for graph_id, reason in quarantined.items())
    what = "not every graph" if opened else "no graph"
    raise BadRequestError(f"{what} can be served:\n{listing}")


def _open(
    item: ServedGraph, gate: PolicyGate | None, settings: ServerSettings, limits: ReadLimits
) -> OpenGraph:
    """Open one graph with its stored queries.

    Raises:
        OmniError: it cannot be served.
    """
    queries = StoredQueries.read(item.queries)
    graph = Graph.open(item.store, policy=gate, external_blobs=item.external_blobs, limits=limits)
    try:
        report = queries.check(compile_schema(graph.schema).catalog)
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
