"""Which graph the words of a command line mean: a decision about flags and configuration, without looking anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.capabilities import Capability, ScopeFlag
from omnigraph.cli.urls import graph_in_url, is_server_url, server_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.cli.capabilities import CommandRule
    from omnigraph.cli.operator_config import OperatorConfig, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFlags:
    """What a command line says about its graph, as it was written."""

    positional: str | None = None
    uri: str | None = None
    server: str | None = None
    cluster: str | None = None
    graph: str | None = None
    store: str | None = None
    actor: str | None = None
    profile: str | None = None

    @property
    def given(self) -> dict[ScopeFlag, str]:
        """The flags that were given, without the addresses that are no flag of their own."""
        values = {
            ScopeFlag.SERVER: self.server,
            ScopeFlag.CLUSTER: self.cluster,
            ScopeFlag.GRAPH: self.graph,
            ScopeFlag.STORE: self.store,
            ScopeFlag.AS: self.actor,
            ScopeFlag.PROFILE: self.profile,
        }
        return {flag: value for flag, value in values.items() if value is not None}

    @property
    def primitives(self) -> dict[str, str]:
        """The explicit addresses, by how they were given."""
        values = {
            "the argument": self.positional,
            "--uri": self.uri,
            "--store": self.store,
            "--server": self.server,
            "--cluster": self.cluster,
        }
        return {how: value for how, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StoreScope:
    """The storage of one graph, opened in this process."""

    uri: str

    def __str__(self) -> str:
        return self.uri


@dataclass(frozen=True, slots=True)
class ServerScope:
    """A server, or one graph behind it."""

    url: str
    graph: str | None = None
    #: How the configuration calls it, when it was addressed by name.
    name: str | None = None

    def __str__(self) -> str:
        return self.url if self.graph is None else f"{self.url}/graphs/{self.graph}"


Scope = StoreScope | ServerScope


def resolve_scope(
    flags: ScopeFlags, rule: CommandRule, config: OperatorConfig, active_profile: str | None
) -> Scope:
    """What a command works on: an explicit address, else a profile, else the defaults.

    `active_profile` is what `OMNIGRAPH_PROFILE` holds.

    Raises:
        typer.BadParameter: nothing is addressed, or twice, or something that the command cannot work on.
    """
    check_flags(flags, rule)
    primitives = flags.primitives
    if len(primitives) > 1:
        raise typer.BadParameter(f"give the graph once, not with {' and '.join(primitives)}")
    if primitives and flags.profile is not None:
        raise typer.BadParameter(
            f"give the graph with {next(iter(primitives))} or with --profile, not both"
        )
    if primitives:
        scope, source = _explicit(flags, rule, config), "this"
    elif name := flags.profile or active_profile:
        scope, source = profile_scope(name, config), f"profile `{name}`"
    else:
        scope, source = _default(rule, config), "the default in your configuration"
    return _fitting(_with_graph(scope, flags.graph, source), rule, source)


def check_flags(flags: ScopeFlags, rule: CommandRule) -> None:
    """Refuse a flag that a command cannot use: it is never ignored.

    Raises:
        typer.BadParameter: there is one.
    """
    refused = rule.first_refused(flags.given)
    if refused is not None:
        raise typer.BadParameter(rule.refusal(refused))


def profile_scope(name: str, config: OperatorConfig) -> Scope:
    """What a profile stands for.

    Raises:
        typer.BadParameter: there is no such profile, or it is not exactly one thing.
    """
    profile = config.profiles.get(name)
    if profile is None:
        raise typer.BadParameter(_unknown("profile", name, config.profiles))
    kinds = [kind for kind in ("server", "cluster", "store") if getattr(profile, kind) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none"
        raise typer.BadParameter(
            f"profile `{name}` needs exactly one of server, cluster and store, and has {found}"
        )
    return _profile_binding(name, profile, config)


def _profile_binding(name: str, profile: Profile, config: OperatorConfig) -> Scope:
    if profile.server is not None:
        return server_scope(profile.server, config, profile.default_graph)
    if profile.store is None:
        raise typer.BadParameter(f"profile `{name}` is a cluster: {_NO_CLUSTERS}")
    if profile.default_graph is not None:
        raise typer.BadParameter(
            f"profile `{name}` has `default_graph` beside `store`, which is one graph already"
        )
    return StoreScope(storage_uri(profile.store, f"`store` of profile `{name}`"))


_NO_CLUSTERS = "clusters cannot be used yet; address the storage of the graph with --store"


def _explicit(flags: ScopeFlags, rule: CommandRule, config: OperatorConfig) -> Scope:
    if flags.cluster is not None:
        raise typer.BadParameter(_NO_CLUSTERS)
    if flags.server is not None:
        return server_scope(flags.server, config)
    if flags.store is not None:
        return StoreScope(storage_uri(flags.store, "--store"))
    address = flags.positional if flags.positional is not None else flags.uri
    assert address is not None, "one of the five is given"
    if not is_server_url(address):
        return StoreScope(storage_uri(address, "the address"))
    if rule.capability is not Capability.ANY:
        raise typer.BadParameter(
            f"{address} is a server, and {_storage_only(rule)}: give the URI of the storage"
        )
    return server_scope(address, config)


def _default(rule: CommandRule, config: OperatorConfig) -> Scope:
    defaults = config.defaults
    if defaults.server is not None:
        return server_scope(defaults.server, config, defaults.default_graph)
    if defaults.store is not None:
        return StoreScope(storage_uri(defaults.store, "`store` of the defaults"))
    if rule.capability is Capability.SERVED:
        raise typer.BadParameter("no server is addressed: give --server NAME or URL")
    how = "its URI, --store URI or --server NAME"
    if ScopeFlag.SERVER not in rule.flags:
        how = "its URI, or --store URI"
    raise typer.BadParameter(f"no graph is addressed: give {how}")


def server_scope(text: str, config: OperatorConfig, graph: str | None = None) -> ServerScope:
    """The server of a name or an address, which may name a graph too.

    Raises:
        typer.BadParameter: there is no such name, or it is no address.
    """
    name = None
    if is_server_url(text):
        try:
            url = server_url(text)
        except ValueError as error:
            raise typer.BadParameter(f"the server {error}") from error
    elif text in config.servers:
        name, url = text, config.servers[text]
    else:
        raise typer.BadParameter(_unknown("server", text, config.servers))
    within = graph_in_url(url)
    if within is not None:
        if graph not in (None, within):
            raise typer.BadParameter(f"{url} is the graph `{within}`, and `{graph}` is asked for")
        url = url.removesuffix(f"/graphs/{within}")
    return ServerScope(url, graph or within, name)


def _with_graph(scope: Scope, graph: str | None, source: str) -> Scope:
    """The chosen graph of a scope; one that the scope has by itself, as a default, gives way."""
    if graph is None:
        return scope
    if isinstance(scope, StoreScope):
        what = scope.uri if source == "this" else f"{source} ({scope.uri})"
        raise typer.BadParameter(
            f"--graph chooses a graph of a server, and {what} is one graph already"
        )
    if source == "this" and scope.graph not in (None, graph):
        raise typer.BadParameter(f"{scope} is one graph already, and --graph names another one")
    return ServerScope(scope.url, graph, scope.name)


def _fitting(scope: Scope, rule: CommandRule, source: str) -> Scope:
    what = str(scope) if source == "this" else f"{source} ({scope})"
    if isinstance(scope, ServerScope) and rule.capability in (
        Capability.DIRECT,
        Capability.CONTROL,
    ):
        raise typer.BadParameter(
            f"{what} is a server, and {_storage_only(rule)}: give --store with the URI of the storage"
        )
    if isinstance(scope, StoreScope) and rule.capability is Capability.SERVED:
        raise typer.BadParameter(
            f"{what} is the storage of a graph, and `{rule.command}` asks a server: give --server NAME or URL"
        )
    return scope


def _storage_only(rule: CommandRule) -> str:
    return f"`{rule.command}` works on the storage of a graph"


def storage_uri(text: str, what: str) -> str:
    """The address of storage; `what` is how messages call it.

    Raises:
        typer.BadParameter: it is empty, or a server.
    """
    if not text.strip():
        raise typer.BadParameter(f"{what} is empty")
    if is_server_url(text):
        raise typer.BadParameter(f"{what} is storage, and {text} is a server: give --server {text}")
    return text


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    from omnigraph.cli.operator_config import config_path

    listed = f"it has {', '.join(sorted(known))}" if known else f"it has no {kind}s"
    hint = ", or give a URL" if kind == "server" else ""
    return f"there is no {kind} `{name}` in {config_path()}: {listed}{hint}"
