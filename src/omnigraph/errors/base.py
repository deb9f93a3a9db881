"""What every failure has: a kind, a code, a message, and diagnostics for texts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


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
