"""Addresses of servers, ids of graphs and tokens: what is accepted, before anything is sent."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from omnigraph.errors import BadRequestError, without_credentials
from omnigraph.wire.protocol import BEARER_TOKEN

_GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_GRAPHS = "/graphs/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server is, and the graph that its address names."""

    #: Scheme, host, port and the path in front of all routes; no slash at the end.
    base: str
    graph: str | None
    #: Whether it is on this machine: no proxy of the environment leads there.
    is_loopback: bool

    @property
    def is_in_the_clear(self) -> bool:
        """Whether others on the way can read what is sent there."""
        return self.base.startswith("http://") and not self.is_loopback


def parse_address(url: str) -> ServerAddress:
    """The parts of an address; it may end with the path of a graph.

    >>> parse_address("http://127.0.0.1:8080/graphs/papers")
    ServerAddress(base='http://127.0.0.1:8080', graph='papers', is_loopback=True)

    Raises:
        BadRequestError: it is no address of a server, or carries a password.
    """
    shown = without_credentials(url)
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequestError(f"{shown} is no address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadRequestError(
            f"{shown} is no address of a server: give one such as https://host:8080/graphs/papers"
        )
    if parts.username is not None or parts.password is not None:
        raise BadRequestError(f"{shown}: an address carries no password; give the token apart")
    if parts.query or parts.fragment:
        raise BadRequestError(f"{shown}: an address of a server ends with its path")
    path, graph = parts.path.rstrip("/"), None
    if _GRAPHS in path:
        path, _, name = path.rpartition(_GRAPHS)
        graph = check_graph_id(unquote(name))
    elif path.endswith("/graphs"):
        path = path.removesuffix("/graphs")
    return ServerAddress(
        base=f"{parts.scheme}://{parts.netloc}{path}", graph=graph, is_loopback=_is_loopback(host)
    )


def check_graph_id(name: str) -> str:
    """The id of a graph.

    Raises:
        BadRequestError: no graph can have it.
    """
    if not _GRAPH_ID.fullmatch(name):
        raise BadRequestError(
            f"{name[:100]!r} is no id of a graph: it has up to 64 letters, digits and dashes"
        )
    return name


def find_token(given: str | None) -> str | None:
    """The token to send: the one given, else that of `OMNIGRAPH_BEARER_TOKEN`, else none.

    Raises:
        BadRequestError: it cannot be sent. The message does not show it.
    """
    token = os.environ.get(BEARER_TOKEN) if given is None else given
    token = (token or "").strip()
    if not token:
        return None
    if not _TOKEN.fullmatch(token):
        raise BadRequestError(
            "the token holds characters that no token has: it is printable ASCII without blanks"
        )
    return token


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
