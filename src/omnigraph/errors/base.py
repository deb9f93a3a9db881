"""The base of every failure: code, status, exit code and fields; failures of storage and of creation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from omnigraph.codec import COMPLETE, OMIT_EMPTY, Document, Key, Member, encode_members, own_members
from omnigraph.frozen import frozen

# ---- The base of all errors


#: Characters of the message of a failure.
MAX_MESSAGE = 64 * 1024


class Severity(StrEnum):
    """The severity of a finding; only errors fail a command."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@frozen(kw_only=True)
class Diagnostic(Document):
    """One finding in a source text: a stable code, a place and a sentence.

    `excerpt` is the offending line with carets below it, empty when the finding has no place; a client that gets it
    renders the same text.
    """

    code: str
    severity: Severity = Severity.ERROR
    message: str
    file: str
    line: int
    column: int
    hint: Annotated[str | None, OMIT_EMPTY] = None
    excerpt: Annotated[str, OMIT_EMPTY, COMPLETE] = ""

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


class OmniError(Exception):
    """Base of every failure that the library raises on purpose.

    A class declares its fields as annotations: the error body, the messages of tasks and the way back from both follow.
    """

    kind: ClassVar[str] = "internal"
    #: `code` member of the HTTP body; None where the body carries none.
    code: ClassVar[str | None] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    #: The member of the body that holds the fields of the class, without those of its bases; None: the body itself.
    inside: ClassVar[str | None] = None

    def __init__(self, message: str) -> None:
        # Whatever stands in it, a name of megabytes for example: an error is something that a person reads.
        self.message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE].rstrip('…')}…"
        super().__init__(self.message)

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is otherwise made again from its message alone; it has to leave worker processes as it is.
        return _revived, (type(self), self.args, self.__dict__)

    def details(self) -> dict[str, object]:
        """Structured members of the error body, beside `error`, `kind` and `code`."""
        body: dict[str, object] = {}
        for inside, members in declared_fields(type(self)):
            found = encode_members(self, members, complete=True)
            body |= found if inside is None else {inside: found}
        return body

    def to_json(self) -> dict[str, object]:
        """The error body that the CLI prints with `--json` and the server sends."""
        body: dict[str, object] = {"error": self.message, "kind": self.kind}
        if self.code is not None:
            body["code"] = self.code
        return body | self.details()


def _revived(kind: type[OmniError], args: tuple[object, ...], fields: dict[str, object]) -> OmniError:
    """A failure as it was in the process that raised it."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def declared_fields(error: type[OmniError]) -> list[tuple[str | None, tuple[Member, ...]]]:
    """The fields of a failure, from the base to the class, each with the member of the body that holds them."""
    bases = (base for base in reversed(error.__mro__) if issubclass(base, OmniError))
    found = ((vars(base).get("inside"), own_members(base)) for base in bases)
    return [(inside, members) for inside, members in found if members]


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
    uri: str

    def __init__(self, uri: str, found: str) -> None:
        self.uri = uri
        super().__init__(f"{uri} is in use already: {found}")


class InitializationClaimedError(OmniError):
    """Another process is creating a graph at this root."""

    kind = "initialization_claimed"
    code = "conflict"
    http_status = 409
    uri: str

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(f"another process is creating a graph at {uri}; wait until it is done, then open the graph")


class InitializationCommittedError(OmniError):
    """The graph was created, a later step of init failed. Keep the files and open the graph."""

    kind = "initialization_committed"
    uri: str

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        super().__init__(f"the graph at {uri} was created, but a later step failed: {cause}; open it")


class HistoricalVersionReclaimedError(OmniError):
    """A version that was readable once has been cleaned up."""

    kind = "historical_version_reclaimed"
    code = None
    http_status = 410
    inside = "version_reclaimed"
    table_key: str
    version: int

    def __init__(self, table_key: str, version: int, context: str | None = None) -> None:
        self.table_key = table_key
        self.version = version
        what = f"version {version} of {table_key} was cleaned up and cannot be read any more"
        super().__init__(what if context is None else f"{context}: {what}")


class HistoryReclaimedError(OmniError):
    """The history before a commit has been cleaned up."""

    kind = "history_reclaimed"
    code = None
    http_status = 410
    inside = "history_reclaimed"
    first_commit_id: Annotated[str, Key("first_known_commit_id")]

    def __init__(self, first_commit_id: str) -> None:
        self.first_commit_id = first_commit_id
        super().__init__(f"the history before commit {first_commit_id} was cleaned up and cannot be read any more")


class StorageFailure(StrEnum):
    """The kind of evidence of a storage failure."""

    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


class StorageError(OmniError):
    """The storage below the graph failed. `failure` says what is known about why."""

    kind = "storage"
    failure: StorageFailure

    def __init__(self, message: str, failure: StorageFailure = StorageFailure.UNKNOWN) -> None:
        self.failure = failure
        super().__init__(message)


class DamageError(StorageError):
    """A stored file does not hold what was written to it."""

    inside = "damage"
    #: What was being done; names the table or the file.
    what: str
    #: Why it failed, without what to do about it.
    reason: str

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(
            f"{what} failed: {reason}; a stored file is damaged: "
            "`omnigraph verify` tells which, then restore it from a copy",
            StorageFailure.PERMANENT,
        )


class OutsideRootError(StorageError):
    """Something in a graph leads, or would lead, out of its root. Nothing was read or changed there."""

    inside = "outside_root"
    path: str
    reason: str

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


class StorageFormatError(StorageError):
    """The graph was written in another storage format than this release reads."""

    inside = "storage_format"
    found: str
    supported: int

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

    inside = "drift"
    location: str
    expected: int
    actual: int

    def __init__(self, location: str, expected: int, actual: int, *, by_late_writer: bool = False) -> None:
        self.location = location
        self.expected = expected
        self.actual = actual
        if by_late_writer:
            why = "a writer that had lost the commit lock moved it; nothing happened, and the next write undoes it"
        else:
            why = "something else than omnigraph moved it; see what with `omnigraph repair`"
        super().__init__(f"{location} is at version {actual}, expected {expected}: {why}", StorageFailure.PRECONDITION)


class EmbeddingError(OmniError):
    """The embedding provider failed, or returned something that is not a usable vector."""

    kind = "embedding"
    code = None
    http_status = 424
    failure: StorageFailure

    def __init__(self, message: str, failure: StorageFailure) -> None:
        self.failure = failure
        super().__init__(message)
