"""A graph behind a server: `RemoteGraph`, lists of graphs, and stored queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from omnigraph.api.graph_api import DIRECT_ONLY, GraphApi
from omnigraph.api.operations import OPERATIONS
from omnigraph.api.protocol import ARROW_STREAM, DEFAULT_GRAPH
from omnigraph.api.results import MutationResult
from omnigraph.client.addresses import check_graph_id, find_token, parse_address
from omnigraph.client.blobs import RemoteBlobs
from omnigraph.client.connection import Connection, derived_method, direct_only, understood
from omnigraph.client.history import RemoteHistory
from omnigraph.client.reads import ROWS, RemoteReading, timed
from omnigraph.client.writes import RemoteWriting, conditional
from omnigraph.commit.rows import MAIN
from omnigraph.commit.targets import Target
from omnigraph.errors import BadRequestError, NotFoundError, PolicyDeniedError, UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

    from omnigraph.api.rows import Result


# ---- Stored queries of a server


class RemoteStoredQueries(RemoteReading):
    """Methods that only a server offers."""

    def queries(self) -> list[dict[str, Any]]:
        """The stored queries that the token may run: `name`, `tool_name`, `mutation`, `params`, and descriptions."""
        body = self._connection.ask("GET", f"{self._path}/queries")
        with understood("stored queries"):
            return list(body["queries"])

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: Literal[False],
        if_commit: None = None,
        timeout_s: float | None = None,
    ) -> Result: ...

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: None = None,
        expect_mutation: Literal[True],
        if_commit: str | None = None,
        timeout_s: None = None,
    ) -> MutationResult: ...

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: bool | None = None,
        if_commit: str | None = None,
        timeout_s: float | None = None,
    ) -> Result | MutationResult: ...

    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: bool | None = None,
        if_commit: str | None = None,
        timeout_s: float | None = None,
    ) -> Result | MutationResult:
        """Run a stored query: rows of a read, the receipt of a mutation.

        `expect_mutation` refuses one of the other kind; `timeout_s` bounds a read. With `if_commit` a
        mutation runs only while the branch head is that commit.

        Raises:
            NotFoundError: there is no such stored query, or the token may not run it.
            ParameterError: the parameters do not fit it.
            BadRequestError: it is of the other kind.
            ServerUnreachableError: `outcome_unknown` says whether a mutation may have happened.
        """
        if not name.isidentifier():
            raise NotFoundError("there is no stored query of that name")
        target = Target(branch=branch, snapshot=snapshot)
        body: dict[str, object] = {
            "params": None if params is None else dict(params),
            "expect_mutation": expect_mutation,
            **timed(timeout_s),
        }
        body |= {"branch": branch} if snapshot is None else {"snapshot": snapshot}
        path, condition = conditional(f"{self._path}/queries/{name}", if_commit)
        response = self._connection.open(
            "POST", path, body=body, headers={**ROWS, **(condition or {})}, is_write=expect_mutation is not False
        )
        if response.headers.get("content-type", "").startswith(ARROW_STREAM):
            if expect_mutation:
                response.close()
                raise UnexpectedAnswerError("the server sent rows for a mutation")
            return self._rows(response, target)
        answer = self._connection.body_of(response, is_write=True)
        if expect_mutation is False:
            raise UnexpectedAnswerError("the server sent no rows for a read")
        with understood("a receipt"):
            return MutationResult.from_json(answer)


# ---- The remote graph


class RemoteGraph(RemoteStoredQueries, RemoteWriting, RemoteHistory, RemoteBlobs):
    """A graph behind a server, with the methods, results and errors of `Graph`: see `GraphApi`.

    Operations that the catalogue answers alone have no method of their own. Thread-safe; close it, or use it in a
    `with` statement.
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
            ServerUnreachableError: the server was asked, and did not respond.
        """
        address = parse_address(url)
        if address.graph is not None and graph not in (None, address.graph):
            raise BadRequestError(f"the address names the graph {address.graph}, and {graph} is asked for: give one")
        name = graph or address.graph
        if name is not None:
            check_graph_id(name)
        connection = Connection(address, find_token(token), timeout_s=timeout_s, transport=transport)
        try:
            return cls(connection, name or _only_graph(connection))
        except BaseException:  # also after an interrupt: only this closes it
            connection.close()
            raise


for _operation in OPERATIONS.values():
    _name = _operation.call
    if _name is not None and getattr(RemoteGraph, _name, None) is getattr(GraphApi, _name):
        setattr(RemoteGraph, _name, derived_method(_operation))
for _name in DIRECT_ONLY:
    setattr(RemoteGraph, _name, direct_only(_name))


def list_graphs(
    url: str, token: str | None = None, *, transport: httpx.BaseTransport | None = None
) -> list[dict[str, Any]]:
    """The graphs of a server, `graph_id` and `uri` each, sorted by id.

    Raises:
        PolicyDeniedError: the server does not tell.
        UnauthorizedError: it does not know the token.
        ServerUnreachableError: no response from the server.
    """
    connection = Connection(parse_address(url), find_token(token), transport=transport)
    try:
        return _graphs(connection)
    finally:
        connection.close()


def _graphs(connection: Connection) -> list[dict[str, Any]]:
    body = connection.ask("GET", "/graphs")
    with understood("a list of graphs"):
        return [{"graph_id": item["graph_id"], "uri": _address(connection, item)} for item in body["graphs"]]


def _address(connection: Connection, graph: Mapping[str, str]) -> str:
    """The address of a graph: servers give its path on themselves."""
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
