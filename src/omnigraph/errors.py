"""Every failure of the library, as one tree of typed exceptions.

    OmniError
    ├── CompilerError                    a schema or query does not parse or type-check; carries diagnostics
    ├── BadRequestError                  refused input, nothing happened
    │   ├── ParameterError               query parameters do not fit their declaration
    │   ├── QuerySelectionError          no query, several, or another kind of query than asked for
    │   └── MixedMutationError           one mutation query both writes and deletes
    ├── InputFileError                   a file that the caller named cannot be read
    ├── NotFoundError                    what was named does not exist
    │   └── BranchNotFoundError
    ├── ConflictError                    *lost*: nothing happened, a repetition may succeed
    │   ├── ExpectedVersionMismatchError a touched table moved
    │   ├── ReadSetConflictError         something only read moved
    │   └── RetryableCommitConflictError lock or catalog stayed busy
    ├── KeyConflictError                 strict insert met an existing id
    ├── AlreadyInitializedError, InitializationClaimedError, InitializationCommittedError
    ├── PreconditionFailedError          the branch head is not the expected commit
    ├── ResourceLimitError               a configured bound would be crossed
    ├── BlobRangeError, ExternalBlobPolicyError
    ├── RecoveryRequiredError            *unknown*: look before you retry
    ├── HistoricalVersionReclaimedError  the version was cleaned up
    ├── StorageError                     the storage below failed
    │   ├── StorageFormatError           written by another release
    │   └── DriftError                   a table is not where its writer left it
    └── InternalError                    an invariant is broken

`kind` and `code` are stable and meant for programs; the message is meant for people and says what to do next.
`http_status` and `exit_code` are the one place where failures are mapped to the two outer surfaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

#: How many findings the message of a `CompilerError` spells out; `diagnostics` holds all of them.
MAX_SHOWN_DIAGNOSTICS = 100


class Severity(StrEnum):
    """How bad a finding is; only errors fail a command."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding in a source text: a stable code, a place and a sentence.

    `excerpt` is the offending line with carets below it, empty when the finding has no place.
    """

    code: str
    message: str
    file: str
    line: int
    column: int
    excerpt: str = ""
    hint: str | None = None
    severity: Severity = Severity.ERROR

    @property
    def location(self) -> str:
        """`file:line:column`, as editors and terminals recognise it."""
        return f"{self.file}:{self.line}:{self.column}"

    def render(self) -> str:
        """The finding as a person reads it on a terminal."""
        lines = [f"{self.location}: {self.severity} {self.code}: {self.message}"]
        if self.excerpt:
            lines.append(self.excerpt)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The finding as a JSON object; `hint` only when there is one."""
        body: dict[str, object] = {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "column": self.column,
        }
        if self.hint:
            body["hint"] = self.hint
        return body


class OmniError(Exception):
    """Base of every failure that the library raises on purpose."""

    kind: ClassVar[str] = "internal"
    #: `code` member of the HTTP body; None where the body carries none.
    code: ClassVar[str | None] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def details(self) -> dict[str, object]:
        """Structured members of the error body, beside `error`, `kind` and `code`."""
        return {}

    def to_json(self) -> dict[str, object]:
        """The error body that the CLI prints with `--json` and the server sends."""
        body: dict[str, object] = {"error": self.message, "kind": self.kind}
        if self.code is not None:
            body["code"] = self.code
        return body | self.details()


class CompilerError(OmniError):
    """A schema or a query is wrong. `diagnostics` holds every independent finding, the first one first."""

    kind = "compiler"
    code = "bad_request"
    http_status = 400

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        if not diagnostics:
            raise ValueError("a CompilerError needs at least one diagnostic")
        self.diagnostics = diagnostics
        shown = [item.render() for item in diagnostics[:MAX_SHOWN_DIAGNOSTICS]]
        if (hidden := len(diagnostics) - len(shown)) > 0:
            shown.append(f"… and {hidden} more error{'' if hidden == 1 else 's'}")
        super().__init__("\n".join(shown))

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings, in order."""
        return tuple(item.code for item in self.diagnostics)

    def details(self) -> dict[str, object]:
        """The findings, one JSON object each."""
        return {"diagnostics": [item.to_json() for item in self.diagnostics]}


class BadRequestError(OmniError):
    """Refused input: the request itself is wrong, and nothing happened."""

    kind = "bad_request"
    code = "bad_request"
    http_status = 400


class ParameterError(BadRequestError):
    """Query parameters do not fit their declaration. `problems` maps each parameter name to its sentence."""

    def __init__(self, query: str, problems: dict[str, str]) -> None:
        self.query = query
        self.problems = problems
        listing = "; ".join(problems.values())
        super().__init__(f"parameters of query `{query}` do not fit: {listing}")

    def details(self) -> dict[str, object]:
        """The sentence of each parameter that does not fit."""
        return {"parameters": dict(self.problems)}


class QuerySelectionError(BadRequestError):
    """The source does not hold exactly the query that was asked for. `available` lists what it holds."""

    def __init__(self, message: str, available: tuple[str, ...]) -> None:
        self.available = available
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """The names of the queries in the source."""
        return {"available": list(self.available)}


class MixedMutationError(BadRequestError):
    """One mutation query holds both writes (insert, update) and deletes."""

    def __init__(self, query: str) -> None:
        self.query = query
        super().__init__(
            f"mutation `{query}` mixes insert/update with delete: split it into two queries, writes first and "
            "deletes second, or run both on a branch and merge it"
        )


class InputFileError(OmniError):
    """A file that the caller named cannot be read."""

    kind = "io"
    http_status = 500

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot read {path}: {reason}")

    def details(self) -> dict[str, object]:
        """The path as the caller gave it."""
        return {"path": self.path}


class NotFoundError(OmniError):
    """Something that was named does not exist: a graph, a commit, a schema file, a cell."""

    kind = "not_found"
    code = "not_found"
    http_status = 404


class BranchNotFoundError(NotFoundError):
    """No branch of that name exists."""

    kind = "branch_not_found"

    def __init__(self, branch: str, hint: str | None = None) -> None:
        self.branch = branch
        super().__init__(f"there is no branch `{branch}`" + (f": {hint}" if hint else ""))

    def details(self) -> dict[str, object]:
        """The name that was asked for."""
        return {"branch": self.branch}


class ConflictError(OmniError):
    """The graph moved in a way that this operation cannot follow. Nothing happened; a repetition may succeed."""

    kind = "conflict"
    code = "conflict"
    http_status = 409
    exit_code = 75


class ExpectedVersionMismatchError(ConflictError):
    """A touched table moved between reading and publishing."""

    def __init__(self, table_key: str, expected: int | None, actual: int | None) -> None:
        self.table_key = table_key
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"stale view of {table_key}: read version {expected}, now {actual}; read again and retry"
        )

    def details(self) -> dict[str, object]:
        """`manifest_conflict` with the table and both versions."""
        conflict = {"table_key": self.table_key, "expected": self.expected, "actual": self.actual}
        return {"manifest_conflict": conflict}


class ReadSetConflictError(ConflictError):
    """Something that was only read moved: another table, the branch itself, or the schema."""

    def __init__(self, member: str, expected: object = None, actual: object = None) -> None:
        self.member = member
        self.expected = expected
        self.actual = actual
        super().__init__(f"{member} changed while this operation was prepared; read again and retry")

    def details(self) -> dict[str, object]:
        """`read_set_conflict` with what moved."""
        conflict = {"member": self.member, "expected": self.expected, "actual": self.actual}
        return {"read_set_conflict": conflict}


class RetryableCommitConflictError(ConflictError):
    """The commit lock or the catalog stayed busy. Nothing happened; try again."""

    kind = "retryable_commit_conflict"


class KeyConflictError(OmniError):
    """A strict insert met an id that exists already; repeating it stays a conflict."""

    kind = "key_conflict"
    code = "conflict"
    http_status = 409

    def __init__(self, entity_kind: str, type_name: str, entity_id: str | None) -> None:
        self.entity_kind = entity_kind
        self.type_name = type_name
        self.entity_id = entity_id
        which = f" with id {entity_id!r}" if entity_id is not None else ""
        super().__init__(f"a {entity_kind} of type {type_name}{which} exists already")

    def details(self) -> dict[str, object]:
        """`key_conflict` with the entity."""
        conflict = {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
        }
        return {"key_conflict": conflict}


class AlreadyInitializedError(OmniError):
    """The root holds a graph, or parts of one, already."""

    kind = "already_initialized"
    code = "conflict"
    http_status = 409

    def __init__(self, uri: str, found: str) -> None:
        self.uri = uri
        super().__init__(f"{uri} is in use already: found {found}")


class InitializationClaimedError(OmniError):
    """Another process is creating a graph at this root."""

    kind = "initialization_claimed"
    code = "conflict"
    http_status = 409

    def __init__(self, uri: str, claim: str) -> None:
        self.uri = uri
        super().__init__(
            f"another process is creating a graph at {uri}; if it is dead, remove {claim} and try again"
        )


class PreconditionFailedError(OmniError):
    """The branch head is not the commit that the caller expected. Nothing happened."""

    kind = "precondition_failed"
    code = None
    http_status = 412
    exit_code = 4

    def __init__(self, branch: str, expected: str, actual: str | None) -> None:
        self.branch = branch
        self.expected = expected
        self.actual = actual
        super().__init__(f"branch {branch} is at commit {actual}, not at {expected}; read again")

    def details(self) -> dict[str, object]:
        """`precondition_failure` with both commits."""
        failure = {"branch": self.branch, "expected": self.expected, "actual": self.actual}
        return {"precondition_failure": failure}


class ResourceLimitError(OmniError):
    """A configured bound would be crossed. Nothing was written."""

    kind = "resource_limit"
    code = "bad_request"
    http_status = 413

    def __init__(self, resource: str, limit: int, actual: int, advice: str) -> None:
        self.resource = resource
        self.limit = limit
        self.actual = actual
        super().__init__(f"{resource}: {actual} is above the limit of {limit}; {advice}")

    def details(self) -> dict[str, object]:
        """`resource_limit` with the bound."""
        return {
            "resource_limit": {"resource": self.resource, "limit": self.limit, "actual": self.actual}
        }


class BlobRangeError(OmniError):
    """A range outside the value of a blob."""

    kind = "blob_range"
    code = "bad_request"
    http_status = 416

    def __init__(self, start: int, end: int, length: int) -> None:
        super().__init__(f"bytes {start} to {end} are outside a blob of {length} bytes")
        self.start, self.end, self.length = start, end, length


class ExternalBlobPolicyError(OmniError):
    """An external blob URI is not allowed."""

    kind = "external_blob_policy"
    code = "bad_request"
    http_status = 400

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        self.reason = reason
        super().__init__(f"external blob {uri} is refused: {reason}")


class RecoveryRequiredError(OmniError):
    """A write failed after its first effect and could not be settled at once. Look before you retry."""

    kind = "recovery_required"
    code = None
    http_status = 503

    def __init__(self, operation_id: str, reason: str) -> None:
        self.operation_id = operation_id
        self.reason = reason
        super().__init__(
            f"operation {operation_id} is unsettled: {reason}; the next write, open or refresh settles it, "
            "`omnigraph recovery list` shows it"
        )

    def details(self) -> dict[str, object]:
        """`recovery_required` with the operation."""
        return {"recovery_required": {"operation_id": self.operation_id, "reason": self.reason}}


class HistoricalVersionReclaimedError(OmniError):
    """A version that was readable once has been cleaned up."""

    kind = "historical_version_reclaimed"
    code = None
    http_status = 410

    def __init__(self, table_key: str, version: int) -> None:
        self.table_key = table_key
        self.version = version
        super().__init__(f"version {version} of {table_key} was reclaimed by cleanup")


class StorageFailure(StrEnum):
    """What kind of evidence a storage failure comes with."""

    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


class StorageError(OmniError):
    """The storage below the graph failed. `failure` says what is known about why."""

    kind = "storage"

    def __init__(self, message: str, failure: StorageFailure = StorageFailure.UNKNOWN) -> None:
        self.failure = failure
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """The kind of failure."""
        return {"failure": str(self.failure)}


class StorageFormatError(StorageError):
    """The graph was written in another storage format than this release reads."""

    def __init__(self, found: str, supported: int) -> None:
        self.found = found
        self.supported = supported
        if found.isdigit() and int(found) > supported:
            advice = "upgrade omnigraph to the release that wrote it"
        else:
            advice = "export it with the release that wrote it, then init and load with this one"
        super().__init__(
            f"the graph has storage format {found}, this release reads {supported}: {advice}",
            StorageFailure.CONFIGURATION,
        )


class DriftError(StorageError):
    """A table is not at the version where its writer left it."""

    def __init__(self, location: str, expected: int, actual: int) -> None:
        self.location = location
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{location} is at version {actual}, expected {expected}", StorageFailure.PRECONDITION
        )


class InitializationCommittedError(OmniError):
    """The graph was created, a later step of init failed. Keep the files and open the graph."""

    kind = "initialization_committed"

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        super().__init__(f"the graph at {uri} was created, but a later step failed: {cause}; open it")


class InternalError(OmniError):
    """An invariant is broken. Nothing was repaired on its own."""

    kind = "internal"
