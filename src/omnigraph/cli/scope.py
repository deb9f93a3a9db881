"""Resolving and opening the graph of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.cli.capabilities import Capability, CommandRule, ScopeFlag
from omnigraph.cli.config import OperatorConfig, active_profile, find_token, read_credentials, read_operator_config
from omnigraph.cli.console import is_confirmed, print_warning
from omnigraph.client.addresses import graph_in_url, is_server_url, looks_like_address, server_url
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.client.remote_graph import RemoteGraph
    from omnigraph.graph.graph import Graph


# ---- Resolving the graph of a command


@frozen(kw_only=True)
class ScopeFlags:
    """The scope flags of a command line, as they were written."""

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
        """The flags that were given, without addresses, which have no flag of their own."""
        names = {flag: "actor" if flag is ScopeFlag.AS else flag.removeprefix("--") for flag in ScopeFlag}
        return {flag: value for flag, name in names.items() if (value := getattr(self, name)) is not None}

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


@frozen
class StoreScope:
    """The storage of one graph, opened in this process."""

    uri: str

    def __str__(self) -> str:
        return self.uri


@frozen
class ServerScope:
    """A server, or one graph behind it."""

    url: str
    graph: str | None = None
    #: How the configuration calls it, when it was addressed by name.
    name: str | None = None

    def __str__(self) -> str:
        return self.url if self.graph is None else f"{self.url}/graphs/{self.graph}"


Scope = StoreScope | ServerScope


def resolve_scope(flags: ScopeFlags, rule: CommandRule, config: OperatorConfig, active_profile: str | None) -> Scope:
    """Resolve the scope of a command: an explicit address, else a profile, else the defaults.

    `active_profile` is what `OMNIGRAPH_PROFILE` holds.

    Raises:
        click.BadParameter: nothing is addressed, or twice, or something that the command cannot work on.
    """
    check_flags(flags, rule)
    primitives = flags.primitives
    if len(primitives) > 1:
        raise click.BadParameter(f"give the graph once, not with {' and '.join(primitives)}")
    if primitives and flags.profile is not None:
        raise click.BadParameter(f"give the graph with {next(iter(primitives))} or with --profile, not both")
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
        click.BadParameter: there is one.
    """
    refused = rule.first_refused(flags.given)
    if refused is not None:
        raise click.BadParameter(rule.refusal(refused))


def profile_scope(name: str, config: OperatorConfig) -> Scope:
    """The scope of a profile.

    Raises:
        click.BadParameter: there is no such profile, or it is not exactly one thing.
    """
    profile = config.profiles.get(name)
    if profile is None:
        raise click.BadParameter(_unknown("profile", name, config.profiles))
    kinds = [kind for kind in ("server", "cluster", "store") if getattr(profile, kind) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none"
        raise click.BadParameter(f"profile `{name}` needs exactly one of server, cluster and store, and has {found}")
    if profile.server is not None:
        return server_scope(profile.server, config, profile.default_graph)
    if profile.store is None:
        raise click.BadParameter(f"profile `{name}` is a cluster: {_NO_CLUSTERS}")
    if profile.default_graph is not None:
        raise click.BadParameter(f"profile `{name}` has `default_graph` beside `store`, which is one graph already")
    return StoreScope(storage_uri(profile.store, f"`store` of profile `{name}`"))


_NO_CLUSTERS = "clusters cannot be used yet; address the storage of the graph with --store"


def _explicit(flags: ScopeFlags, rule: CommandRule, config: OperatorConfig) -> Scope:
    if flags.cluster is not None:
        raise click.BadParameter(_NO_CLUSTERS)
    if flags.server is not None:
        return server_scope(flags.server, config)
    what, address = "--store", flags.store
    if address is None:
        what, address = "the address", flags.positional if flags.positional is not None else flags.uri
    assert address is not None, "one of the five is given"
    if rule.capability is Capability.SERVED:
        return server_scope(address, config)
    if not is_server_url(address):
        return StoreScope(storage_uri(address, what))
    if rule.capability is not Capability.ANY:
        raise click.BadParameter(
            f"{address} is a server, and {_storage_only(rule)}: give the path or the s3:// address of the storage"
        )
    if flags.store is not None:
        raise click.BadParameter(f"--store is storage, and {address} is a server: give --server {address}")
    return server_scope(address, config)


def _default(rule: CommandRule, config: OperatorConfig) -> Scope:
    defaults = config.defaults
    if defaults.server is not None:
        return server_scope(defaults.server, config, defaults.default_graph)
    if defaults.store is not None:
        return StoreScope(storage_uri(defaults.store, "`store` of the defaults"))
    if rule.capability is Capability.SERVED:
        raise click.BadParameter("no server is addressed: give its name or address, or --server")
    how = "--store or --server" if ScopeFlag.SERVER in rule.flags else "--store"
    raise click.BadParameter(f"no graph is addressed: give it as the first argument, or with {how}")


def server_scope(text: str, config: OperatorConfig, graph: str | None = None) -> ServerScope:
    """The server of a name or an address, which may name a graph too.

    Raises:
        click.BadParameter: there is no such name, or it is not an address.
    """
    name = None
    if is_server_url(text):
        try:
            url = server_url(text)
        except ValueError as error:
            raise click.BadParameter(f"the server {error}") from error
    elif text in config.servers:
        name, url = text, config.servers[text]
    else:
        raise click.BadParameter(_unknown("server", text, config.servers))
    within = graph_in_url(url)
    if within is not None:
        if graph not in (None, within):
            raise click.BadParameter(f"{url} is the graph `{within}`, and `{graph}` is asked for")
        url = url.removesuffix(f"/graphs/{within}")
    return ServerScope(url, graph or within, name)


def _with_graph(scope: Scope, graph: str | None, source: str) -> Scope:
    """The chosen graph of a scope; one that the scope has by itself, as a default, gives way."""
    if graph is None:
        return scope
    if isinstance(scope, StoreScope):
        what = scope.uri if source == "this" else f"{source} ({scope.uri})"
        raise click.BadParameter(f"--graph chooses a graph of a server, and {what} is one graph already")
    if source == "this" and scope.graph not in (None, graph):
        raise click.BadParameter(f"{scope} is one graph already, and --graph names another one")
    return ServerScope(scope.url, graph, scope.name)


def _fitting(scope: Scope, rule: CommandRule, source: str) -> Scope:
    what = str(scope) if source == "this" else f"{source} ({scope})"
    if isinstance(scope, ServerScope) and rule.capability in (Capability.DIRECT, Capability.CONTROL):
        raise click.BadParameter(
            f"{what} is a server, and {_storage_only(rule)}: give --store with the URI of the storage"
        )
    if isinstance(scope, StoreScope) and rule.capability is Capability.SERVED:
        raise click.BadParameter(
            f"{what} is the storage of a graph, and `{rule.command}` asks a server: give --server NAME or URL"
        )
    return scope


def _storage_only(rule: CommandRule) -> str:
    return f"`{rule.command}` works on the storage of a graph"


def storage_uri(text: str, what: str) -> str:
    """The address of storage; `what` is how messages call it.

    Raises:
        click.BadParameter: it is empty, or a server.
    """
    if not text.strip():
        raise click.BadParameter(f"{what} is empty")
    if is_server_url(text):
        raise click.BadParameter(f"{what} is storage, and {text} is a server: give --server {text}")
    return text


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    from omnigraph.cli.config import config_path

    listed = f"it has {', '.join(sorted(known))}" if known else f"it has no {kind}s"
    hint = ", or give a URL" if kind == "server" else ""
    return f"there is no {kind} `{name}` in {config_path()}: {listed}{hint}"


# ---- Words that name a graph


def looks_like_graph(text: str) -> bool:
    """Whether a word can only be meant as a graph.

    >>> looks_like_graph("papers.omni"), looks_like_graph("s3://bucket/papers"), looks_like_graph("review")
    (True, True, False)
    """
    return looks_like_address(text) or text.rstrip("/").endswith(".omni")


def is_graph_folder(text: str) -> bool:
    """Whether a word is the path of a folder with a graph in it."""
    from omnigraph.storage.location import MANIFEST

    return bool(text) and os.path.isdir(os.path.join(text, MANIFEST))


# ---- Opening the graph of a command


class Address:
    """The address of the graph of a command. Nothing is looked up before it is needed."""

    def __init__(self, flags: ScopeFlags, rule: CommandRule) -> None:
        self._flags = flags
        self._rule = rule
        #: The address of the graph behind a server, once it is known which one of its graphs is meant.
        self._graph_uri: str | None = None
        #: Whether the graph was opened in a way that lets the command change it.
        self.may_be_written = False

    @property
    def is_explicit(self) -> bool:
        """Whether the command line itself names a graph, or a profile."""
        return self.is_named or self._flags.graph is not None

    @property
    def graph_id(self) -> str | None:
        """The graph id that the command line chooses."""
        return self._flags.graph

    @property
    def is_named(self) -> bool:
        """Whether the command line itself names what the command works on."""
        return bool(self._flags.primitives) or self._flags.profile is not None

    @property
    def has_actor(self) -> bool:
        """Whether the command line says who writes."""
        return self._flags.actor is not None

    @cached_property
    def config(self) -> OperatorConfig:
        """The configuration of the person at the keyboard."""
        return read_operator_config()

    @cached_property
    def scope(self) -> Scope:
        """The scope of the command.

        Raises:
            click.BadParameter: nothing, or something that it cannot work on.
        """
        profile = active_profile()
        return resolve_scope(self._flags, self._rule, self.config, profile)

    @property
    def text(self) -> str:
        """The address as a person reads it; that of the very graph as soon as it is known."""
        return self._graph_uri or str(self.scope)

    @property
    def is_served(self) -> bool:
        """Whether a server stands between the command and the graph."""
        return isinstance(self.scope, ServerScope)

    @property
    def uri(self) -> str:
        """The address of the storage.

        Raises:
            click.BadParameter: the graph is behind a server.
        """
        if isinstance(self.scope, StoreScope):
            return self.scope.uri
        raise click.BadParameter(f"{self.text} is a server: give --store URI")

    @property
    def actor(self) -> str | None:
        """The actor of writes: `--as`, else the operator; None behind a server, which knows it from the token.

        Raises:
            click.BadParameter: `--as` is given for a server.
        """
        if self.is_served:
            if self._flags.actor is not None:
                raise click.BadParameter(
                    f"--as does not go with the server {self.text}: who writes there follows from the token"
                )
            return None
        return self._flags.actor if self._flags.actor is not None else self.config.actor

    def open(self, *, read_only: bool) -> GraphApi:
        """Open the graph."""
        if not isinstance(self.scope, ServerScope):
            return self.open_storage(read_only=read_only)
        graph = self._connect(self.scope)
        self.may_be_written = not read_only
        return graph

    def open_storage(self, *, read_only: bool) -> Graph:
        """Open the graph in this process."""
        from omnigraph.graph.graph import Graph

        graph = Graph.open(self.uri, read_only=read_only)
        self.may_be_written = not read_only
        return graph

    def open_served(self, what: str) -> RemoteGraph:
        """Open the graph behind its server, for what only servers have.

        Raises:
            click.BadParameter: the graph is storage.
        """
        if isinstance(self.scope, StoreScope):
            raise click.BadParameter(f"{what}, and {self.text} is storage: give --server")
        graph = self._connect(self.scope)
        self.may_be_written = self._rule.writes
        return graph

    def served_graphs(self) -> Sequence[Mapping[str, str]]:
        """The graphs of the server, `graph_id` and `uri` each, sorted by id."""
        from omnigraph.client.connection import list_graphs

        assert isinstance(self.scope, ServerScope), "its rule says so"
        return list_graphs(self.scope.url, token_of(self.scope, self.config))

    def refuse_on_server(self, flag: str, reason: str = "") -> None:
        """Refuse a flag that only means something where the work is done in this process.

        Raises:
            click.BadParameter: the graph is behind a server.
        """
        if self.is_served:
            because = f": {reason}" if reason else ""
            raise click.BadParameter(f"{flag} works on storage, and {self.text} is a server{because}")

    def echo(self, verb: str, *, quiet: bool) -> None:
        """Say what is about to be written to, before it is: a wrong address shows while one can still stop."""
        if not quiet:
            self._settle()
            print_warning(f"{verb} {self.text} ({self._access})")

    def require_consent(self, effect: str, *, yes: bool, json: bool) -> None:
        """Destroying something in a graph that is not on this machine needs a word.

        Raises:
            click.BadParameter: there is no terminal to ask on.
            Exit: the answer was no.
        """
        if yes or self._access == _LOCAL:
            return
        self._settle()
        if json or not sys.stdin.isatty():
            raise click.BadParameter(f"this {effect} {self.text}: give --yes")
        if not is_confirmed(f"this {effect} {self.text}"):
            raise Exit(1)

    def _settle(self) -> None:
        """Find out which graph of a server is meant: by its name where the command line has it, else by asking."""
        if isinstance(self.scope, ServerScope) and self._graph_uri is None:
            self._connect(self.scope).close()

    def _connect(self, scope: ServerScope) -> RemoteGraph:
        graph = connect(scope, self.config, at=self._graph_uri)
        self._graph_uri = graph.uri
        return graph

    @property
    def _access(self) -> str:
        if isinstance(self.scope, ServerScope):
            return "served"
        uri = self.scope.uri
        is_local = "://" not in uri or uri.startswith("file://")
        return _LOCAL if is_local else "direct, remote"


_LOCAL = "direct, local"


def connect(scope: ServerScope, config: OperatorConfig, *, at: str | None = None) -> RemoteGraph:
    """Open a graph behind a server, with the token that belongs to it; `at` is its address where that is known."""
    from omnigraph.client.remote_graph import RemoteGraph

    return RemoteGraph.connect(at or scope.url, token_of(scope, config), scope.graph)


def token_of(scope: ServerScope, config: OperatorConfig) -> str | None:
    """The token for a server, when there is one."""
    # With the graph: a server may be configured by the address of one.
    return find_token(str(scope), scope.name, config.servers, os.environ, read_credentials)
