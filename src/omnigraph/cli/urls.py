"""Addresses: what those of graphs and servers look like, and which server an address belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS = {"http": 80, "https": 443}
_GRAPHS = "/graphs/"


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
        raise ValueError(f"is no address such as https://graphs.example: `{text}`")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error}") from error
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
