"""Addresses of servers, ids of graphs, and tokens."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from omnigraph.core.env_settings import Variable
from omnigraph.core.ids import is_graph_id
from omnigraph.errors import BadRequestError, without_credentials
from omnigraph.frozen import frozen

BEARER_TOKEN = Variable(
    "OMNIGRAPH_BEARER_TOKEN",
    "The token that a client or the command line sends when it is given none.",
    values="a token",
)

# ---- Validation of server addresses, graph ids and tokens


_TOKEN = re.compile(r"[\x21-\x7e]+")
_GRAPHS = "/graphs/"


@frozen(kw_only=True)
class ServerAddress:
    """The address of a server, and of a graph on it."""

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
        BadRequestError: the text is not the address of a server, or contains a password.
    """
    shown = without_credentials(url)
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequestError(f"{shown} is not the address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadRequestError(
            f"{shown} is not the address of a server: give one such as https://host:8080/graphs/papers"
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
    return ServerAddress(base=f"{parts.scheme}://{parts.netloc}{path}", graph=graph, is_loopback=is_loopback(host))


def check_graph_id(name: str) -> str:
    """The id of a graph.

    Raises:
        BadRequestError: no graph can have it.
    """
    if not is_graph_id(name):
        raise BadRequestError(f"{name[:100]!r} is not a graph id: it has up to 64 letters, digits and dashes")
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
        raise BadRequestError("the token holds characters that no token has: it is printable ASCII without blanks")
    return token


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---- Parsing of addresses


_PORTS = {"http": 80, "https": 443}


def is_server_url(text: str) -> bool:
    """Whether an address is that of a server rather than of storage."""
    return text.lower().startswith(("http://", "https://"))


def looks_like_address(text: str) -> bool:
    """Whether a text that should be a name is where a graph lies; neither queries nor branches have such names.

    >>> looks_like_address("s3://bucket/papers.omni"), looks_like_address("review/2024")
    (True, False)
    """
    return "://" in text or text.startswith(("/", "./", "../", "~"))


def server_url(text: str) -> str:
    """An address of a server without a slash at its end.

    >>> server_url("http://127.0.0.1:9000/")
    'http://127.0.0.1:9000'

    Raises:
        ValueError: it is none; the message goes on after the name of what was read.
    """
    if not is_server_url(text) or any(character.isspace() for character in text):
        raise ValueError(f"is not an address such as https://graphs.example: `{text}`")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not an address: {error}") from error
    if not host:
        raise ValueError(f"names no host: `{text}`")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or a password: use `omnigraph login`")
    if parts.query or parts.fragment:
        raise ValueError(f"ends with a query or a fragment: `{text}`")
    return text.rstrip("/")


def graph_in_url(url: str) -> str | None:
    """The graph that an address names at its end: `…/graphs/papers`.

    >>> graph_in_url("http://127.0.0.1:9000/graphs/papers")
    'papers'
    """
    _, found, graph = urlsplit(url).path.rpartition(_GRAPHS)
    return graph if found and graph and "/" not in graph else None


def owner_of(url: str, servers: Mapping[str, str]) -> str | None:
    """The name of the server that an address belongs to: of all that it begins with, the longest.

    Whole parts are compared, so that neither another port nor a host whose name begins alike takes its token.

    >>> owner_of("http://lab:9000/graphs/papers", {"lab": "http://lab:9000", "other": "http://lab:90"})
    'lab'
    """
    origin, path = _origin(url), _segments(url)
    matches = {
        name: len(_segments(known))
        for name, known in servers.items()
        if _origin(known) == origin and path[: len(_segments(known))] == _segments(known)
    }
    return max(matches, key=matches.__getitem__, default=None)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _segments(url: str) -> list[str]:
    return [part for part in urlsplit(url).path.split("/") if part]
