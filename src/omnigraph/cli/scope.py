"""The graph of a command: resolved, opened in this process or behind a server, and named before it is written to."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.credentials import find_token, read_credentials
from omnigraph.cli.operator_config import read_operator_config
from omnigraph.cli.output import print_warning
from omnigraph.cli.resolution import ServerScope, StoreScope, resolve_scope

if TYPE_CHECKING:
    from omnigraph.cli.capabilities import CommandRule
    from omnigraph.cli.operator_config import OperatorConfig
    from omnigraph.cli.resolution import Scope, ScopeFlags
    from omnigraph.client.remote import RemoteGraph
    from omnigraph.graph.graph import Graph


class Address:
    """What a command line says about its graph. Nothing is looked up before it is needed."""

    def __init__(self, flags: ScopeFlags, rule: CommandRule) -> None:
        self._flags = flags
        self._rule = rule
        #: The address of the graph behind a server, once it is known which one of its graphs is meant.
        self._graph_uri: str | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether the command line itself names a graph, or a profile."""
        flags = self._flags
        return bool(flags.primitives) or flags.profile is not None or flags.graph is not None

    @property
    def graph_id(self) -> str | None:
        """Which graph of several the command line chooses."""
        return self._flags.graph

    @property
    def names_server(self) -> bool:
        """Whether the command line itself names a server, or a profile."""
        return self._flags.server is not None or self._flags.profile is not None

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
        """What the command works on.

        Raises:
            typer.BadParameter: nothing, or something that it cannot work on.
        """
        profile = os.environ.get("OMNIGRAPH_PROFILE")
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
        """Where the storage is.

        Raises:
            typer.BadParameter: the graph is behind a server.
        """
        if isinstance(self.scope, StoreScope):
            return self.scope.uri
        raise typer.BadParameter(f"{self.text} is a server: give --store URI")

    @property
    def actor(self) -> str | None:
        """Who writes: what `--as` says, else the operator; None behind a server, which knows it from the token.

        Raises:
            typer.BadParameter: `--as` is given for a server.
        """
        if self.is_served:
            if self._flags.actor is not None:
                raise typer.BadParameter(
                    f"--as does not go with the server {self.text}: who writes there follows from the token"
                )
            return None
        return self._flags.actor if self._flags.actor is not None else self.config.actor

    def open(self, *, read_only: bool) -> Graph | RemoteGraph:
        """Open the graph."""
        if isinstance(self.scope, ServerScope):
            return self._connect(self.scope)
        return self.open_storage(read_only=read_only)

    def open_storage(self, *, read_only: bool) -> Graph:
        """Open the graph in this process."""
        from omnigraph.graph.graph import Graph

        return Graph.open(self.uri, read_only=read_only)

    def open_served(self, what: str) -> RemoteGraph:
        """Open the graph behind its server, for what only servers have.

        Raises:
            typer.BadParameter: the graph is storage.
        """
        if isinstance(self.scope, StoreScope):
            raise typer.BadParameter(f"{what}, and {self.text} is storage: give --server")
        return self._connect(self.scope)

    def served_graphs(self) -> list[dict[str, Any]]:
        """The graphs of the server, `graph_id` and `uri` each, sorted by id."""
        from omnigraph.client.remote import list_graphs

        assert isinstance(self.scope, ServerScope), "its rule says so"
        return list_graphs(self.scope.url, token_of(self.scope, self.config))

    def refuse_on_server(self, flag: str) -> None:
        """Refuse a flag that only means something where the work is done in this process.

        Raises:
            typer.BadParameter: the graph is behind a server.
        """
        if self.is_served:
            raise typer.BadParameter(f"{flag} works on storage, and {self.text} is a server")

    def echo(self, verb: str, *, quiet: bool) -> None:
        """Say what is about to be written to, before it is: a wrong address shows while one can still stop."""
        if not quiet:
            self._settle()
            print_warning(f"{verb} {self.text} ({self._access})")

    def require_consent(self, effect: str, *, yes: bool, json: bool) -> None:
        """Destroying something in a graph that is not on this machine needs a word.

        Raises:
            typer.BadParameter: nobody can be asked.
            typer.Exit: the answer was no.
        """
        if yes or self._access == _LOCAL:
            return
        self._settle()
        if json or not sys.stdin.isatty():
            raise typer.BadParameter(f"this {effect} {self.text}: give --yes")
        sys.stderr.write(f"this {effect} {self.text}. Go on? [yes/no] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise typer.Exit(1)

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
    from omnigraph.client.remote import RemoteGraph

    return RemoteGraph.connect(at or scope.url, token_of(scope, config), scope.graph)


def token_of(scope: ServerScope, config: OperatorConfig) -> str | None:
    """The token for a server, when there is one."""
    # With the graph: a server may be configured by the address of one.
    return find_token(str(scope), scope.name, config.servers, os.environ, read_credentials)
