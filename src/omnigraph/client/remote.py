"""The façade of a graph behind a server: connecting, and all methods together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.client.addresses import check_graph_id, find_token, parse_address
from omnigraph.client.blobs import RemoteBlobs
from omnigraph.client.connection import Connection, understood
from omnigraph.client.direct_only import DirectOnlyMethods
from omnigraph.client.history import RemoteHistory
from omnigraph.client.stored import RemoteStoredQueries
from omnigraph.client.writing import RemoteWriting
from omnigraph.errors import BadRequestError, NotFoundError, PolicyDeniedError
from omnigraph.wire.protocol import DEFAULT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import httpx


class RemoteGraph(
    RemoteStoredQueries, RemoteWriting, RemoteHistory, RemoteBlobs, DirectOnlyMethods
):
    """A graph behind a server, with the methods, results and errors of `Graph`.

    Thread-safe; close it, or use it in a `with` statement.
    """

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        graph: str | None = None,
        *,
        timeout_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> RemoteGraph:
        """A graph of a server. The address may name it (`https://host/graphs/papers`), or `graph` does.

        Without a name the server is asked: its only graph is meant, or `default` where it does not tell. Otherwise
        nothing is sent before the first call. The token is `OMNIGRAPH_BEARER_TOKEN` unless one is given. `timeout_s`
        bounds how long an answer may take.

        Raises:
            BadRequestError: the address or the token is malformed, or the server has several graphs.
            UnauthorizedError: the server was asked, and does not know the token.
            ServerUnreachableError: the server was asked, and nobody answered.
        """
        address = parse_address(url)
        if address.graph is not None and graph not in (None, address.graph):
            raise BadRequestError(
                f"the address names the graph {address.graph}, and {graph} is asked for: give one"
            )
        name = graph or address.graph
        if name is not None:
            check_graph_id(name)
        connection = Connection(
            address, find_token(token), timeout_s=timeout_s, transport=transport
        )
        try:
            return cls(connection, name or _only_graph(connection))
        except BaseException:  # also after an interrupt: nobody else closes it
            connection.close()
            raise

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def list_graphs(
    url: str, token: str | None = None, *, transport: httpx.BaseTransport | None = None
) -> list[dict[str, Any]]:
    """The graphs of a server, `graph_id` and `uri` each, sorted by id.

    Raises:
        PolicyDeniedError: the server does not tell.
        UnauthorizedError: it does not know the token.
        ServerUnreachableError: nobody answered.
    """
    connection = Connection(parse_address(url), find_token(token), transport=transport)
    try:
        return _graphs(connection)
    finally:
        connection.close()


def _graphs(connection: Connection) -> list[dict[str, Any]]:
    body = connection.ask("GET", "/graphs")
    with understood("a list of graphs"):
        return [
            {"graph_id": item["graph_id"], "uri": _address(connection, item)}
            for item in body["graphs"]
        ]


def _address(connection: Connection, graph: Mapping[str, str]) -> str:
    """Where a graph is reached: servers give its path on themselves."""
    uri = graph["uri"]
    return f"{connection.base}{uri}" if uri == f"/graphs/{graph['graph_id']}" else uri


def _only_graph(connection: Connection) -> str:
    try:
        names = [graph["graph_id"] for graph in _graphs(connection)]
    except PolicyDeniedError:
        return DEFAULT_GRAPH
    if not names:
        raise NotFoundError(f"{connection.base} serves no graph")
    if len(names) > 1:
        raise BadRequestError(
            f"{connection.base} serves several graphs: choose one with graph (--graph): {', '.join(names)}"
        )
    return check_graph_id(names[0])
