"""Refused input, stopped reads, denials of a policy, blob addresses, and failures between client and server."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, ClassVar, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from omnigraph.codec import OMIT_NONE, Absent, Key, When
from omnigraph.errors.base import Diagnostic, OmniError
from omnigraph.errors.text import compared_sizes

# ---- Refused requests: the input is wrong, and nothing happened


#: How many findings an error carries; `total` counts all of them.
MAX_DIAGNOSTICS = 100
#: How many names or problems an error lists.
_MAX_LISTED = MAX_DIAGNOSTICS
#: How many rows a message names.
_SHOWN_ROWS = 3
#: How many findings there are; told where an error does not carry all of them.
DiagnosticTotal = Annotated[
    int,
    Key("diagnostic_total"),
    When(lambda error: error.total > len(error.diagnostics)),
    Absent(lambda fields: len(fields["diagnostics"])),
]


class CompilerError(OmniError):
    """A schema or a query is wrong. `diagnostics` holds the first independent findings, `total` counts all of them."""

    kind = "compiler"
    code = "bad_request"
    http_status = 400
    diagnostics: tuple[Diagnostic, ...]
    total: DiagnosticTotal

    def __init__(self, diagnostics: tuple[Diagnostic, ...], total: int | None = None) -> None:
        if not diagnostics:
            raise ValueError("a CompilerError needs at least one diagnostic")
        self.diagnostics = diagnostics[:MAX_DIAGNOSTICS]
        self.total = max(total or 0, len(diagnostics))
        super().__init__(_listing(self.diagnostics, self.total))

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, in order."""
        return tuple(item.code for item in self.diagnostics)


class BadRequestError(OmniError):
    """Refused input: the request itself is wrong, and nothing happened."""

    kind = "bad_request"
    code = "bad_request"
    http_status = 400


class ConfigurationError(BadRequestError):
    """A configuration file is wrong. `diagnostics` holds the first findings with their places, `total` counts all."""

    diagnostics: tuple[Diagnostic, ...]
    total: DiagnosticTotal

    def __init__(self, diagnostics: tuple[Diagnostic, ...], total: int | None = None) -> None:
        if not diagnostics:
            raise ValueError("a ConfigurationError needs at least one diagnostic")
        self.diagnostics = diagnostics[:MAX_DIAGNOSTICS]
        self.total = max(total or 0, len(diagnostics))
        super().__init__(_listing(self.diagnostics, self.total))


class ParameterError(BadRequestError):
    """Query parameters do not fit their declaration. `problems` maps the first parameter names to their sentences."""

    query: Annotated[str, Key("query_name")]
    problems: Annotated[dict[str, str], Key("parameters")]

    def __init__(self, query: str, problems: dict[str, str]) -> None:
        self.query = query
        self.problems = dict(islice(problems.items(), _MAX_LISTED))
        listing = "; ".join([*self.problems.values(), *_more(len(problems), "problem")])
        super().__init__(f"parameters of query `{query}` do not fit: {listing}")


class IntegerOverflowError(BadRequestError):
    """Integers of a query went beyond 64 bits. `rows` names the first of these rows by the ids of their variables."""

    kind = "query"
    rows: tuple[str, ...]
    total: int

    def __init__(self, rows: tuple[str, ...], total: int) -> None:
        self.rows = rows[:_MAX_LISTED]
        self.total = total
        where = f" in {', '.join(self.rows[:_SHOWN_ROWS])}" if rows else ""
        more = f" and {total - _SHOWN_ROWS:,} more rows" if rows and total > _SHOWN_ROWS else ""
        advice = "compute with floats, as in `f64($x.n) * 2`, or leave these rows out"
        super().__init__(f"integer overflow{where}{more}: a result is beyond 64 bits; {advice}")


class QuerySelectionError(BadRequestError):
    """The source does not hold exactly the query that was asked for. `available` lists the first that it holds."""

    available: tuple[str, ...]

    def __init__(self, message: str, available: tuple[str, ...]) -> None:
        self.available = available[:_MAX_LISTED]
        super().__init__(message)


class MixedMutationError(BadRequestError):
    """One mutation query holds both writes (insert, upsert, update) and deletes."""

    inside = "mixed_mutation"
    query: Annotated[str, Key("query_name")]

    def __init__(self, query: str) -> None:
        self.query = query
        super().__init__(
            f"mutation `{query}` mixes insert/update with delete: split it into two queries, writes first and "
            "deletes second, or run both on a branch and merge it"
        )


class DirectOnlyError(BadRequestError):
    """Something that only works beside the storage was asked of a server. Nothing happened."""

    kind = "direct_only"
    operation: str

    def __init__(self, operation: str, reason: str = "") -> None:
        self.operation = operation
        because = f", because {reason}" if reason else ""
        super().__init__(
            f"a server does not offer `{operation}`{because}: open the storage of the graph with Graph.open(uri), or "
            "give the command --store URI"
        )


class MissingPackageError(BadRequestError, ImportError):
    """The installation lacks a package that an extra of OmniGraph installs. Nothing happened."""

    kind = "missing_package"
    inside = "missing_package"
    package: str
    extra: str

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{purpose} needs {package}, which is not installed: run `pip install 'omnigraph[{extra}]'`")


class InputFileError(OmniError):
    """A file that the caller named cannot be read."""

    kind = "io"
    http_status = 500
    path: str
    reason: str

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot read {path}: {reason}")


class NotFoundError(OmniError):
    """Something that was named does not exist: a graph, a commit, a schema file, a cell."""

    kind = "not_found"
    code = "not_found"
    http_status = 404


#: Names of bounded resources, which programs read → how people call them, and whether they are counted in bytes.
_RESOURCES = {
    "Blob read range bytes": ("range of the Blob", True),
    "affected_rows": ("nodes and edges that would change", False),
    "change_continuation_token_encoded_bytes": ("cursor", True),
    "change_feed_commits_per_poll": ("commits per poll", False),
    "commit_changes_page_bytes": ("size of a page", True),
    "commit_changes_page_changes": ("changes per page", False),
    "external blob URI bytes": ("address of an external blob", True),
    "external blob bytes in memory": ("external blobs that are copied at once", True),
    "external blobs of one operation": ("external blobs of one operation", False),
    "http_request_bytes": ("body of the request", True),
    "http_request_values": ("values in the body of the request", False),
    "mcp_answer_bytes": ("answer of the tool", True),
    "paths": ("paths that the read found", False),
    "pending mutation bytes": ("rows that the mutation holds", True),
    "query_memory_bytes": ("memory of the read", True),
    "query_rows": ("rows of the answer", False),
    "stream_export_slots": ("exports at the same time", False),
    "stream_export_transport_bytes": ("memory of open streams", True),
    "strict_input_arrow_bytes": ("input of a load in this process", True),
    "unpacked_bytes": ("unpacked content", True),
}


class ResourceLimitError(OmniError):
    """A configured bound would be crossed. Nothing was written."""

    kind = "resource_limit"
    code = "bad_request"
    http_status = 413
    inside = "resource_limit"
    resource: str
    limit: int
    actual: int
    advice: str

    def __init__(self, resource: str, limit: int, actual: int, advice: str) -> None:
        self.resource = resource
        self.limit = limit
        self.actual = actual
        self.advice = advice
        what, is_size = _RESOURCES.get(resource, (resource.replace("_", " "), "bytes" in resource))
        found, most = compared_sizes(actual, limit) if is_size else (f"{actual:,}", f"{limit:,}")
        super().__init__(f"{what}: {found}, above the limit of {most}; {advice}")


def _listing(diagnostics: tuple[Diagnostic, ...], total: int) -> str:
    return "\n".join([*(item.render() for item in diagnostics), *_more(total, "error")])


def _more(total: int, word: str) -> list[str]:
    """The suffix of a shortened list."""
    hidden = total - _MAX_LISTED
    return [f"… and {hidden} more {word}{'' if hidden == 1 else 's'}"] if hidden > 0 else []


# ---- Stopped reads and bulk work


#: What bulk operations call themselves where a read names its operator.
LOAD = "Load"
MERGE = "Merge"
OPTIMIZE = "Optimize"
INDEXES = "Indexes"
EMBED = "Embed"
DIFF = "Diff"


class _Bulk(NamedTuple):
    """The name of a bulk operation in messages."""

    name: str
    #: What is true after it was stopped.
    left: str
    #: What else helps when it takes too long.
    advice: str = ""


_BULK = {
    LOAD: _Bulk("load", "nothing was written", ", or load less at once"),
    MERGE: _Bulk("merge", "nothing was written"),
    OPTIMIZE: _Bulk("optimization", "nothing was written"),
    INDEXES: _Bulk("index build", "nothing was written"),
    EMBED: _Bulk(
        "embedding", "nothing was written to the graph", "; vectors that were computed are kept for the next run"
    ),
    DIFF: _Bulk("diff", "nothing was changed", ", or compare fewer types"),
}


class QueryTimeoutError(OmniError):
    """A read or bulk work took longer than it may. Nothing happened; `operator` is where its time ended."""

    kind = "query_timeout"
    code = None
    http_status = 504
    inside = "query_timeout"
    timeout_s: float
    operator: str

    def __init__(self, timeout_s: float, operator: str) -> None:
        self.timeout_s = timeout_s
        self.operator = operator
        bulk = _BULK.get(operator)
        if bulk is not None:
            message = (
                f"the {bulk.name} took longer than {timeout_s:g} s and was stopped, {bulk.left}: allow more time "
                f"(timeout_s, --timeout){bulk.advice}"
            )
        else:
            message = (
                f"the read took longer than {timeout_s:g} s, its time ended in {operator}: add a filter or a limit, "
                "look at the plan with `explain`, or allow more time (timeout_s, --timeout, on a server up to "
                "OMNIGRAPH_QUERY_TIMEOUT_MAX)"
            )
        super().__init__(message)


class QueryCancelledError(OmniError):
    """A read or bulk work was cancelled: by its caller, because the client went away, or because the server stops."""

    kind = "cancelled"
    code = None
    http_status = 503
    inside = "cancelled"
    operator: str

    def __init__(self, operator: str) -> None:
        self.operator = operator
        bulk = _BULK.get(operator)
        what = f"the read was cancelled in {operator}" if bulk is None else f"the {bulk.name} was cancelled"
        left = "nothing happened" if bulk is None else bulk.left
        super().__init__(f"{what}, by its caller or because the server stops; {left}")


# ---- Refusals by a policy


class PolicyDeniedError(OmniError):
    """The policy does not allow the action, or the request names no actor. Nothing happened."""

    kind = "policy"
    code = "forbidden"
    http_status = 403
    inside = "policy_denial"
    action: str
    actor: Annotated[str | None, Key("actor_id")]
    branch: Annotated[str | None, OMIT_NONE]
    target_branch: Annotated[str | None, OMIT_NONE]

    def __init__(
        self,
        message: str,
        *,
        action: str,
        actor: str | None,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> None:
        self.action = action
        self.actor = actor
        self.branch = branch
        self.target_branch = target_branch
        super().__init__(message)


# ---- Errors of blob cells


_SHOWN_CHARACTERS = 500


def without_credentials(uri: str) -> str:
    """An address as messages may show it: without user, password and query, which carries signatures, and not endless.

    >>> without_credentials("https://me:secret@example.org/a?X-Amz-Signature=00")
    'https://example.org/a'
    """
    try:
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        # Not even the parts can be told apart, so a secret may be anywhere.
        shown = f"{uri.partition(':')[0][:20]}:…"
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"


class BlobRangeError(OmniError):
    """A range outside the value of a blob."""

    kind = "blob_range"
    code = "bad_request"
    http_status = 416
    inside = "blob_range"
    start: int
    end: int
    length: int

    def __init__(self, start: int, end: int, length: int) -> None:
        super().__init__(f"bytes {start} to {end} are outside a blob of {length} bytes")
        self.start, self.end, self.length = start, end, length


class BlobChangedError(OmniError):
    """A blob is not the value that the caller has seen."""

    kind = "blob_changed"
    code = "conflict"
    http_status = 412


class ExternalBlobPolicyError(OmniError):
    """An external blob URI is not allowed."""

    kind = "external_blob_policy"
    code = "bad_request"
    http_status = 400
    inside = "external_blob_policy"
    uri: str
    reason: str

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = without_credentials(uri)
        self.reason = reason
        super().__init__(f"external blob {self.uri} is refused: {reason}")


class ExternalBlobSourceError(OmniError):
    """An allowed external blob cannot be read. Nothing was written."""

    kind = "external_blob_source"
    code = None
    http_status = 424
    inside = "external_blob_source"
    uri: str
    reason: str

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = without_credentials(uri)
        self.reason = reason
        super().__init__(f"external blob {self.uri} cannot be read: {reason}")


class BlobIntegrityError(OmniError):
    """A stored blob contradicts its descriptor."""

    kind = "blob_integrity"
    inside = "blob_integrity"
    reason: str

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"a stored blob is damaged: {reason}; restore its file from a copy, or write the value again")


# ---- Errors between client and server


class TransportError(OmniError):
    """Base of everything that a request can fail with before or beside the graph."""

    kind = "transport"
    code: ClassVar[str | None] = "bad_request"
    http_status = 400


class UnauthorizedError(TransportError):
    """No token, or one that the server does not know. Nothing happened."""

    kind = "unauthorized"
    code = "unauthorized"
    http_status = 401


class ForbiddenHostError(TransportError):
    """A request was sent to a name that this open server does not answer to. Nothing happened."""

    kind = "forbidden_host"
    code = "forbidden"
    http_status = 403


class MethodNotAllowedError(TransportError):
    """The path exists, and the method does not. Nothing happened."""

    kind = "method_not_allowed"
    code = "method_not_allowed"
    http_status = 405


class RequestTimeoutError(TransportError):
    """A body came too slowly. Nothing happened."""

    kind = "request_timeout"
    http_status = 408


class UnsupportedMediaTypeError(TransportError):
    """The body is of another content type than the route takes. Nothing happened."""

    kind = "unsupported_media_type"
    http_status = 415


class TooManyRequestsError(TransportError):
    """The actor or the server has too much work in flight. Nothing happened; try again later."""

    kind = "too_many_requests"
    code = "too_many_requests"
    http_status = 429
    exit_code = 75


class ServerUnreachableError(TransportError):
    """No OmniGraph server answered. `outcome_unknown` says that a write may have happened all the same."""

    kind = "server_unreachable"
    code = None
    http_status = 503
    inside = "server_unreachable"
    outcome_unknown: bool

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(message)


class UnexpectedAnswerError(TransportError):
    """The answer is not from an OmniGraph server, or is not complete. Of a write, the outcome is unknown."""

    kind = "unexpected_answer"
    code = None
    http_status = 502


class RemoteError(TransportError):
    """A server refused for a reason that this release has no class for. `status` and `body` are what it sent."""

    kind = "remote"
    code = None
    http_status = 502

    def __init__(self, status: int, body: Mapping[str, object]) -> None:
        self.status = status
        self.body = body
        super().__init__(str(body.get("error") or f"the server answered with status {status}"))

    def to_json(self) -> dict[str, object]:
        """The body as it came."""
        return {"error": self.message, "kind": self.kind} | dict(self.body)
