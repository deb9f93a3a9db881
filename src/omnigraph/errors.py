"""Every failure of the library, as one tree of typed exceptions.

    OmniError
    ├── CompilerError           a schema or query does not parse or type-check; carries diagnostics
    ├── BadRequestError         refused input, nothing happened
    │   ├── ParameterError      query parameters do not fit their declaration
    │   ├── QuerySelectionError no query, several queries, or another kind of query than asked for
    │   └── MixedMutationError  one mutation query both writes and deletes
    └── InputFileError          a file that the caller named cannot be read

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
            shown.append(f"… and {hidden} more errors")
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
