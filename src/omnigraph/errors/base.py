"""The base of every failure: code, status, exit code and fields; failures of storage and of creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

# ---- What every failure has: a kind, a code, a message, and diagnostics for texts


#: Characters of the message of a failure.
MAX_MESSAGE = 64 * 1024


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

    def document(self) -> dict[str, object]:
        """The finding as a server sends it: with the excerpt, so that a client renders the same text."""
        return self.to_json() | ({"excerpt": self.excerpt} if self.excerpt else {})

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Diagnostic:
        """The inverse of `document`."""
        return Diagnostic(
            code=body["code"],
            message=body["message"],
            file=body["file"],
            line=body["line"],
            column=body["column"],
            excerpt=body.get("excerpt", ""),
            hint=body.get("hint"),
            severity=Severity(body.get("severity", Severity.ERROR)),
        )


class OmniError(Exception):
    """Base of every failure that the library raises on purpose."""

    kind: ClassVar[str] = "internal"
    #: `code` member of the HTTP body; None where the body carries none.
    code: ClassVar[str | None] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        # Whatever stands in it, a name of megabytes for example: an error is something that a person reads.
        self.message = (
            message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE].rstrip('…')}…"
        )
        super().__init__(self.message)

    def details(self) -> dict[str, object]:
        """Structured members of the error body, beside `error`, `kind` and `code`."""
        return {}

    def to_json(self) -> dict[str, object]:
        """The error body that the CLI prints with `--json` and the server sends."""
        body: dict[str, object] = {"error": self.message, "kind": self.kind}
        if self.code is not None:
            body["code"] = self.code
        return body | self.details()


#: The class cannot be imported: it is made when an extension module is loaded.
_PANIC = ("pyo3_runtime", "PanicException")


def is_panic(error: BaseException) -> bool:
    """Whether an extension module gave up in the middle of a call; `except Exception` does not catch that.

    Every call into storage turns it into a `DamageError`. The outermost edges look for it as well.
    """
    return (type(error).__module__, type(error).__name__) == _PANIC


# ---- Failures of the storage below a graph, and of its creation


class AlreadyInitializedError(OmniError):
    """The root holds a graph, or parts of one, already."""

    kind = "already_initialized"
    code = "conflict"
    http_status = 409

    def __init__(self, uri: str, found: str) -> None:
        self.uri = uri
        super().__init__(f"{uri} is in use already: found {found}")

    def details(self) -> dict[str, object]:
        """The root."""
        return {"uri": self.uri}


class InitializationClaimedError(OmniError):
    """Another process is creating a graph at this root."""

    kind = "initialization_claimed"
    code = "conflict"
    http_status = 409

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"another process is creating a graph at {uri}; wait until it is done, then open the graph"
        )

    def details(self) -> dict[str, object]:
        """The root."""
        return {"uri": self.uri}


class InitializationCommittedError(OmniError):
    """The graph was created, a later step of init failed. Keep the files and open the graph."""

    kind = "initialization_committed"

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        super().__init__(
            f"the graph at {uri} was created, but a later step failed: {cause}; open it"
        )

    def details(self) -> dict[str, object]:
        """The root."""
        return {"uri": self.uri}


class HistoricalVersionReclaimedError(OmniError):
    """A version that was readable once has been cleaned up."""

    kind = "historical_version_reclaimed"
    code = None
    http_status = 410

    def __init__(self, table_key: str, version: int, context: str | None = None) -> None:
        self.table_key = table_key
        self.version = version
        what = f"version {version} of {table_key} was cleaned up and cannot be read any more"
        super().__init__(what if context is None else f"{context}: {what}")

    def details(self) -> dict[str, object]:
        """`version_reclaimed` with the version, and the table that had it."""
        return {"version_reclaimed": {"table_key": self.table_key, "version": self.version}}


class HistoryReclaimedError(OmniError):
    """What came before a commit has been cleaned up from the history."""

    kind = "history_reclaimed"
    code = None
    http_status = 410

    def __init__(self, first_commit_id: str) -> None:
        self.first_commit_id = first_commit_id
        super().__init__(
            f"the history before commit {first_commit_id} was cleaned up and cannot be read any more"
        )

    def details(self) -> dict[str, object]:
        """`history_reclaimed` with the oldest commit that is still known there."""
        return {"history_reclaimed": {"first_known_commit_id": self.first_commit_id}}


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


class DamageError(StorageError):
    """A stored file does not hold what was written to it."""

    def __init__(self, what: str, reason: str) -> None:
        #: What was being done; names the table or the file.
        self.what = what
        #: Why it failed, without what to do about it.
        self.reason = reason
        super().__init__(
            f"{what} failed: {reason}; a stored file is damaged: "
            "`omnigraph verify` tells which, then restore it from a copy",
            StorageFailure.PERMANENT,
        )

    def details(self) -> dict[str, object]:
        """`damage` with what could not be done, and why."""
        return super().details() | {"damage": {"what": self.what, "reason": self.reason}}


class OutsideRootError(StorageError):
    """Something in a graph leads, or would lead, out of its root. Nothing was read or changed there."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        # It comes from the graph: control characters in it do not reach a terminal.
        shown = path if path.isprintable() and path else repr(path)
        super().__init__(
            f"{shown} in the graph is refused: {reason}; use a graph from a source that you trust, or restore this one "
            "from a backup",
            StorageFailure.PERMANENT,
        )

    def details(self) -> dict[str, object]:
        """`outside_root` with the path and the reason."""
        return super().details() | {"outside_root": {"path": self.path, "reason": self.reason}}


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

    def details(self) -> dict[str, object]:
        """`storage_format` with both formats."""
        formats = {"found": self.found, "supported": self.supported}
        return super().details() | {"storage_format": formats}


class DriftError(StorageError):
    """A table is not at the version where its writer left it."""

    def __init__(
        self, location: str, expected: int, actual: int, *, by_late_writer: bool = False
    ) -> None:
        self.location = location
        self.expected = expected
        self.actual = actual
        if by_late_writer:
            why = "a writer that had lost the commit lock moved it; nothing happened, and the next write undoes it"
        else:
            why = "something else than omnigraph moved it; see what with `omnigraph repair`"
        super().__init__(
            f"{location} is at version {actual}, expected {expected}: {why}",
            StorageFailure.PRECONDITION,
        )

    def details(self) -> dict[str, object]:
        """`drift` with the table and both versions."""
        drift = {"location": self.location, "expected": self.expected, "actual": self.actual}
        return super().details() | {"drift": drift}


class EmbeddingError(OmniError):
    """The embedding provider failed, or returned something that is not a usable vector."""

    kind = "embedding"
    code = None
    http_status = 424

    def __init__(self, message: str, failure: StorageFailure) -> None:
        self.failure = failure
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """What is known about the cause."""
        return {"failure": str(self.failure)}
