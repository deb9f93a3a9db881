"""Requests to one server, what they carry, its answers and their failures."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import httpx

from omnigraph.api.operation import IF_GRAPH_COMMIT, JSON, Operation
from omnigraph.api.reading_api import TargetKeywords
from omnigraph.client.addresses import ServerAddress, check_graph_id, find_token, parse_address
from omnigraph.client.pool import Pool
from omnigraph.commit.notes import note_of
from omnigraph.commit.read_target import Target
from omnigraph.commit.references import read_reference
from omnigraph.core.budget import Budget
from omnigraph.core.ids import DEFAULT_GRAPH, check_branch_name, is_ulid_part
from omnigraph.core.parameters import json_params
from omnigraph.core.source import SourceText, read_source
from omnigraph.errors import (
    BadRequestError,
    CommitNotFoundError,
    CompilerError,
    DirectOnlyError,
    NotFoundError,
    OmniError,
    PolicyDeniedError,
    ResourceLimitError,
    ServerUnreachableError,
    UnauthorizedError,
    UnexpectedAnswerError,
    without_credentials,
)
from omnigraph.errors.bodies import error_from_body

if TYPE_CHECKING:
    from omnigraph.api.reading_api import FilterKeywords
    from omnigraph.errors import Diagnostic
    from omnigraph.lang.schema.compiler import CompiledSchema


# ---- The connection to one server
#
# A read is sent again once when its connection broke before the answer began. A write never is: its outcome is
# unknown, and the error says so.


if TYPE_CHECKING:
    Body = Mapping[str, object] | Iterator[bytes] | None
    Params = Mapping[str, str | float | bool | Sequence[str] | None]

_log = logging.getLogger(__name__)
#: How long an answer may take to begin, or a piece of it to come. Loads and merges take their time.
ANSWER_TIMEOUT_S = 600.0
_CONNECT_TIMEOUT_S = 10.0
_SEND_TIMEOUT_S = 60.0
#: Shorter than servers keep idle connections, so that a write does not meet one that is being closed.
_IDLE_S = 2.0
#: The connection was not made, so the server knows nothing of the request.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_TOKEN_ADVICE = "give token= to Graph.connect, set OMNIGRAPH_BEARER_TOKEN, or run `omnigraph login`"
_MAX_ERROR_BYTES = 64 * 1024 * 1024


class Connection:
    """Connections to one server under one token. Thread-safe. The token is in no text that it gives out.

    They are opened when they are needed, also after `close`.
    """

    def __init__(
        self,
        address: ServerAddress,
        token: str | None,
        *,
        timeout_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._address = address
        if token is not None and address.is_in_the_clear:
            _log.warning(
                "the token is sent to %s without encryption, and others on the way can read it: use https://",
                address.base,
            )
        headers = {"User-Agent": "omnigraph"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        new_client = partial(
            httpx.Client,
            headers=headers,
            timeout=httpx.Timeout(
                timeout_s or ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S, write=_SEND_TIMEOUT_S, pool=None
            ),
            # A result that is being read holds its connection: their number has no limit.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_IDLE_S),
            follow_redirects=False,
            trust_env=not address.is_loopback,
            transport=transport,
        )
        self._pool = Pool(new_client)

    @property
    def base(self) -> str:
        """The address of the server."""
        return self._address.base

    def close(self) -> None:
        """Give all connections back, those on which an answer is still read when it has been read or dropped."""
        self._pool.give_back()

    # ---- requests

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        is_write: bool = False,
    ) -> dict[str, Any]:
        """The JSON answer to a request; sent once.

        Raises:
            OmniError: what the server refused it with.
            ServerUnreachableError: no response; `outcome_unknown` says whether a write may have happened.
            UnexpectedAnswerError: the answer is not one of an OmniGraph server.
        """
        response = self.open(method, path, params=params, body=body, headers=headers, is_write=is_write)
        return self.body_of(response, is_write=is_write)

    def open(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        is_write: bool = False,
        accepts_redirect: bool = False,
    ) -> httpx.Response:
        """The answer to a request before its body has come; read it with `pieces`, and close it."""
        sent = {"Accept": JSON, **(headers or {})}
        content: bytes | Iterator[bytes] | None = None
        if isinstance(body, Mapping):
            content, sent["Content-Type"] = json_bytes(body), JSON
        else:
            content = body

        def ask(client: httpx.Client) -> httpx.Response:
            request = client.build_request(
                method,
                f"{self.base}{path}",
                params=httpx.QueryParams(tuple(_present(params or {}))),
                content=content,
                headers=sent,
            )
            return self._send(client, request, is_write=is_write)

        response = self._pool.send(ask)
        if response.is_success or (accepts_redirect and response.is_redirect):
            return response
        raise self._failure(response, is_write=is_write)

    def pieces(self, response: httpx.Response) -> Iterator[bytes]:
        """The body of an answer as it comes.

        Raises:
            ServerUnreachableError: the connection broke; what has come is not the whole.
        """
        try:
            yield from response.iter_bytes()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._broken("the answer is not complete, discard it", error) from error

    def body_of(self, response: httpx.Response, *, is_write: bool = False) -> dict[str, Any]:
        """The JSON object of an answer."""
        text = self._read(response, is_write=is_write)
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise self._odd(response, is_write=is_write)
        return body

    # ---- inside

    def _send(self, client: httpx.Client, request: httpx.Request, *, is_write: bool) -> httpx.Response:
        for is_last in (is_write, True):
            try:
                return client.send(request, stream=True)
            except KeyboardInterrupt as interrupt:
                _tell_unknown(interrupt, is_write=is_write)
                raise
            except _NOT_SENT as error:
                raise self._unreachable(error) from error
            except httpx.TimeoutException as error:
                raise self._silent(error, is_write=is_write) from error
            except httpx.HTTPError as error:
                if is_last:
                    raise self._lost(error, is_write=is_write) from error
        raise AssertionError("the last try returns or raises")

    def _read(self, response: httpx.Response, *, is_write: bool) -> bytes:
        try:
            return response.read()
        except KeyboardInterrupt as interrupt:
            _tell_unknown(interrupt, is_write=is_write)
            raise
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._lost(error, is_write=is_write) from error
        finally:
            response.close()

    def _failure(self, response: httpx.Response, *, is_write: bool) -> OmniError:
        """The failure that an answer tells."""
        if response.is_redirect:
            response.close()
            place = without_credentials(response.headers.get("location", ""))
            return UnexpectedAnswerError(
                f"{self.base} sends requests on to {place}, and a token is only sent where it belongs: "
                "connect to the address of the server itself"
            )
        text = self._read(response, is_write=is_write)
        try:
            body = json.loads(text[:_MAX_ERROR_BYTES])
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or "error" not in body:
            return self._odd(response, is_write=is_write)
        failure = error_from_body(response.status_code, body)
        if isinstance(failure, UnauthorizedError):
            return UnauthorizedError(f"{failure.message}: {_TOKEN_ADVICE}")
        return failure

    # ---- errors

    def _unreachable(self, error: Exception) -> ServerUnreachableError:
        return ServerUnreachableError(
            f"no server answers at {self.base}: {_reason(error)}; check the address, and that it runs"
        )

    def _silent(self, error: Exception, *, is_write: bool) -> ServerUnreachableError:
        if is_write:
            return self._unknown("did not answer in time", error)
        return self._broken("the server did not answer in time", error)

    def _lost(self, error: Exception, *, is_write: bool) -> ServerUnreachableError:
        if is_write:
            return self._unknown("broke off before its answer was complete", error)
        return self._broken("no complete answer came", error)

    def _unknown(self, what: str, error: Exception) -> ServerUnreachableError:
        return ServerUnreachableError(
            f"{self.base} {what} ({_reason(error)}): whether the write happened is unknown; look at the commits before "
            "you send it again",
            outcome_unknown=True,
        )

    def _broken(self, what: str, error: Exception) -> ServerUnreachableError:
        return ServerUnreachableError(f"the connection to {self.base} failed: {what} ({_reason(error)}); try again")

    def _odd(self, response: httpx.Response, *, is_write: bool) -> UnexpectedAnswerError:
        kind = response.headers.get("content-type", "no content type")[:100]
        outcome = "; whether the write happened is unknown" if is_write else ""
        return UnexpectedAnswerError(
            f"{self.base} answered with status {response.status_code} and {kind}, which is not an answer of an "
            f"OmniGraph server: check the address{outcome}"
        )


def _tell_unknown(interrupt: KeyboardInterrupt, *, is_write: bool) -> None:
    """What an interrupted request says about itself: a server may have done what it was asked for."""
    if is_write:
        interrupt.add_note("whether the server wrote it is unknown: look at `omnigraph log`")


def json_bytes(body: Mapping[str, object]) -> bytes:
    """A body as it is sent.

    Raises:
        BadRequestError: a value of it is none of JSON.
    """
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        # Also half of a character, which UTF-8 does not have.
        raise BadRequestError(f"the request holds a value that JSON does not have: {error}") from error


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Raise an invalid answer as an error of the server, not of this program."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnexpectedAnswerError(
            f"the server's answer for {what} is not valid in this release: the server may be of another release"
        ) from error


def _present(params: Params) -> list[tuple[str, str]]:
    """Parameters as they stand in a query string; what is None is left out, lists are repeated."""
    found: list[tuple[str, str]] = []
    for name, value in params.items():
        match value:
            case None:
                continue
            case bool():
                found.append((name, "true" if value else "false"))
            case str() | int() | float():
                found.append((name, str(value)))
            case _:
                found += [(name, item) for item in value]
    return found


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


# ---- Lists of graphs


def list_graphs(
    url: str, token: str | None = None, *, transport: httpx.BaseTransport | None = None
) -> list[dict[str, str]]:
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


def _graphs(connection: Connection) -> list[dict[str, str]]:
    body = connection.request("GET", "/graphs")
    with understood("a list of graphs"):
        return [{"graph_id": item["graph_id"], "uri": _address(connection, item)} for item in body["graphs"]]


def _address(connection: Connection, graph: Mapping[str, str]) -> str:
    """The address of a graph: servers give its path on themselves."""
    uri = graph["uri"]
    return f"{connection.base}{uri}" if uri == f"/graphs/{graph['graph_id']}" else uri


def only_graph(connection: Connection) -> str:
    """The only graph of a server, or `default` where it does not tell.

    Raises:
        NotFoundError: it has none.
        BadRequestError: it has several.
    """
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


# ---- What requests carry


def refuse_actor(actor: str | None) -> None:
    """The token decides who writes.

    Raises:
        BadRequestError: an actor was given.
    """
    if actor is not None:
        raise BadRequestError(
            "a server takes the actor from the token: leave out actor (--as), or connect with the token of that actor"
        )


def refuse_session(spark: object) -> None:
    """A server works where it decides to; the name of an engine changes no result, a session cannot be sent.

    Raises:
        BadRequestError: a session was given.
    """
    if spark is not None:
        raise BadRequestError("a Spark session cannot be sent to a server: leave out spark")


def target_members(target: Target) -> dict[str, str | int | None]:
    """A target as requests carry it."""
    if target.snapshot is not None:
        return {"snapshot": target.snapshot}
    as_of = None if target.as_of is None else str(target.as_of)
    return {"branch": target.branch, "version": target.version, "as_of": as_of}


def filter_members(chosen: FilterKeywords) -> dict[str, list[str] | None]:
    """A filter as requests carry it.

    Raises:
        BadRequestError: a text stands where a list has to.
    """
    asked = {"kind": chosen.get("kinds"), "type": chosen.get("types"), "operation": chosen.get("ops")}
    for name, given in asked.items():
        if isinstance(given, str):
            raise BadRequestError(f"a filter takes a list of {name}s: give [{given!r}]")
    kinds, types, ops = (None if given is None else list(given) for given in asked.values())
    return {"kind": kinds, "type": types, "op": ops}


def timed(timeout_s: float | None) -> dict[str, object]:
    """The time of a read as a member of a body; left out where the server decides."""
    return {} if timeout_s is None else {"timeout_s": timeout_s}


def condition(if_commit: str | None) -> dict[str, str] | None:
    """The header of a write that may have a condition; its path is another one, so that it is not overseen."""
    return None if if_commit is None else {IF_GRAPH_COMMIT: quote(if_commit.strip())}


def schema_source(schema: str | Path | CompiledSchema) -> SourceText:
    """The text of a schema: that of a file, the text itself, or that of a compiled schema."""
    from omnigraph.lang.schema.compiler import CompiledSchema
    from omnigraph.lang.schema.parser import SYNTAX_ERROR

    if isinstance(schema, CompiledSchema):
        return schema.source
    if isinstance(schema, Path) or "{" not in schema:
        return read_source(schema, code=SYNTAX_ERROR)
    return SourceText(schema, "<schema>")


def in_terms_of(source: object, error: CompilerError) -> CompilerError:
    """Findings under the name that the caller has for the text."""
    if not isinstance(source, SourceText):
        return error
    return CompilerError(named_after(source, error.diagnostics), total=error.total)


def named_after(source: SourceText, findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings about a text whose name a server does not know."""
    return tuple(replace(item, file=source.name) for item in findings)


def with_advice(error: ResourceLimitError) -> ResourceLimitError:
    """The refusal of a body that is too large, with what a loader can do."""
    if error.resource != "http_request_bytes":
        return error
    advice = (
        "load several smaller files, let the server take more (OMNIGRAPH_LOAD_BODY_MAX_BYTES), or open the storage of "
        "the graph, where a load has no limit"
    )
    return ResourceLimitError(error.resource, error.limit, error.actual, advice)


# ---- Operations of the catalogue


#: What failures call an answer, where it is not the name of its class.
_SAID = {"MutationResult": "a receipt", "SchemaApplyResult": "a receipt", "Plan": "a plan", "DiffPage": "a diff"}
#: What says which state of a graph is meant.
_TARGET = frozenset(TargetKeywords.__annotations__)


def perform(
    connection: Connection,
    graph: str,
    operation: Operation,
    arguments: dict[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Perform an operation of the catalogue on the graph at a path; returns what the method of a graph returns.

    What is None is not sent: a server does it without being told.
    """
    is_write = operation.cost.writes
    if is_write:
        refuse_actor(arguments.pop("actor", None))
    refuse_session(arguments.pop("spark", None))
    for here in ("engine", "progress"):
        arguments.pop(here, None)
    cancel = arguments.pop("cancel", None)
    if cancel is not None and is_write:
        raise DirectOnlyError(f"a cancel signal for {operation.call}")
    if "params" in arguments:
        arguments["params"] = json_params(arguments["params"])
    source = next((value for value in arguments.values() if isinstance(value, SourceText)), None)
    if not _TARGET.isdisjoint(arguments):
        target = Target(**{name: arguments.pop(name) for name in _TARGET & {*arguments}})
        arguments |= target_members(target)
    members = {operation.member_of(name): _sent(value) for name, value in arguments.items()}
    path = f"{graph}{_path_of(operation, members)}"
    members = {name: value for name, value in members.items() if value is not None}
    sent: dict[str, Any] = {"body": members} if operation.body else {"params": members}
    ask = partial(connection.request, operation.method, path, headers=headers, is_write=is_write, **sent)
    try:
        answer = ask() if cancel is None else Budget(cancel=cancel).patiently(ask)
    except CompilerError as error:
        raise in_terms_of(source, error) from None
    with understood(_SAID.get(operation.result_class.__name__, operation.result_class.__name__)):
        result = operation.result_class.from_json(answer | {"uri": f"{connection.base}{graph}"})
        if operation.member is None:
            return result
        if operation.member not in answer:
            raise KeyError(operation.member)
        return getattr(result, operation.member)


def _sent(value: object) -> object:
    """An argument as JSON carries it."""
    if isinstance(value, SourceText):
        return value.text
    return dict(value) if isinstance(value, Mapping) else value


def _path_of(operation: Operation, members: dict[str, Any]) -> str:
    """The path of an operation below its graph; what stands in it is not sent again."""
    values = {name: str(members.pop(name)) for name in operation.path_parameters}
    commit_id = values.get("commit_id")
    if commit_id is not None and read_reference(commit_id) is None and not is_ulid_part(commit_id):
        raise CommitNotFoundError(commit_id)
    if "branch" in values:
        values["branch"] = check_branch_name(values["branch"])
    return operation.path_of(values)


def mutation_bounds(max_affected: int | None, dry_run: bool) -> dict[str, object]:
    """The bounds of a mutation as members of a body; left out where there are none."""
    bounds: dict[str, object] = {} if max_affected is None else {"max_affected": max_affected}
    return {**bounds, "dry_run": True} if dry_run else bounds


def note_members(message: str | None, metadata: Mapping[str, object] | None) -> dict[str, object]:
    """What a writer says about its commit, as members of a body; left out where it says nothing.

    Raises:
        BadRequestError: it is too long or has another form.
    """
    note = note_of(message, metadata)
    members = {"message": note.message, "metadata": None if note.metadata is None else dict(note.metadata)}
    return {name: value for name, value in members.items() if value is not None}


def refused_method(name: str) -> Callable[..., NoReturn]:
    """A method that a graph behind a server refuses, with the way to run it."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise DirectOnlyError(name)

    return refuse
