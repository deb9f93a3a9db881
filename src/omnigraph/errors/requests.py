"""Refused requests: the input is wrong, and nothing happened."""

from __future__ import annotations

from itertools import islice

from omnigraph.errors.base import Diagnostic, OmniError
from omnigraph.sizes import compared_sizes

#: How many findings an error carries; `total` counts all of them.
MAX_DIAGNOSTICS = 100
#: How many names or problems an error lists.
_MAX_LISTED = MAX_DIAGNOSTICS


class CompilerError(OmniError):
    """A schema or a query is wrong. `diagnostics` holds the first independent findings, `total` counts all of them."""

    kind = "compiler"
    code = "bad_request"
    http_status = 400

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

    def details(self) -> dict[str, object]:
        """The findings, one JSON object each, with their excerpts, and their number where some are left out."""
        return _documents(self.diagnostics, self.total)


class BadRequestError(OmniError):
    """Refused input: the request itself is wrong, and nothing happened."""

    kind = "bad_request"
    code = "bad_request"
    http_status = 400


class ConfigurationError(BadRequestError):
    """A configuration file is wrong. `diagnostics` holds the first findings with their places, `total` counts all."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], total: int | None = None) -> None:
        if not diagnostics:
            raise ValueError("a ConfigurationError needs at least one diagnostic")
        self.diagnostics = diagnostics[:MAX_DIAGNOSTICS]
        self.total = max(total or 0, len(diagnostics))
        super().__init__(_listing(self.diagnostics, self.total))

    def details(self) -> dict[str, object]:
        """The findings, one JSON object each, with their excerpts, and their number where some are left out."""
        return _documents(self.diagnostics, self.total)


class ParameterError(BadRequestError):
    """Query parameters do not fit their declaration. `problems` maps the first parameter names to their sentences."""

    def __init__(self, query: str, problems: dict[str, str]) -> None:
        self.query = query
        self.problems = dict(islice(problems.items(), _MAX_LISTED))
        listing = "; ".join([*self.problems.values(), *_more(len(problems), "problem")])
        super().__init__(f"parameters of query `{query}` do not fit: {listing}")

    def details(self) -> dict[str, object]:
        """The sentence of each parameter that does not fit."""
        return {"query_name": self.query, "parameters": dict(self.problems)}


class QuerySelectionError(BadRequestError):
    """The source does not hold exactly the query that was asked for. `available` lists the first that it holds."""

    def __init__(self, message: str, available: tuple[str, ...]) -> None:
        self.available = available[:_MAX_LISTED]
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

    def details(self) -> dict[str, object]:
        """The mutation."""
        return {"mixed_mutation": {"query_name": self.query}}


class DirectOnlyError(BadRequestError):
    """Something that only works beside the storage was asked of a server. Nothing happened."""

    kind = "direct_only"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"a server does not offer `{operation}`: open the storage of the graph with Graph.open(uri), or give the "
            "command --store URI"
        )

    def details(self) -> dict[str, object]:
        """The operation."""
        return {"operation": self.operation}


class InputFileError(OmniError):
    """A file that the caller named cannot be read."""

    kind = "io"
    http_status = 500

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot read {path}: {reason}")

    def details(self) -> dict[str, object]:
        """The path as the caller gave it, and the reason."""
        return {"path": self.path, "reason": self.reason}


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


class BranchExistsError(BadRequestError):
    """A branch of that name exists already; nothing happened."""

    kind = "branch_exists"
    code = "conflict"
    http_status = 409

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(f"branch {branch!r} exists already")

    def details(self) -> dict[str, object]:
        """The name that is taken."""
        return {"branch": self.branch}


#: Names of bounded resources, which programs read → how people call them, and whether they are counted in bytes.
_RESOURCES = {
    "Blob read range bytes": ("range of the Blob", True),
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

    def __init__(self, resource: str, limit: int, actual: int, advice: str) -> None:
        self.resource = resource
        self.limit = limit
        self.actual = actual
        self.advice = advice
        what, is_size = _RESOURCES.get(resource, (resource.replace("_", " "), "bytes" in resource))
        found, most = compared_sizes(actual, limit) if is_size else (f"{actual:,}", f"{limit:,}")
        super().__init__(f"{what}: {found}, above the limit of {most}; {advice}")

    def details(self) -> dict[str, object]:
        """`resource_limit` with the bound."""
        return {
            "resource_limit": {
                "resource": self.resource,
                "limit": self.limit,
                "actual": self.actual,
                "advice": self.advice,
            }
        }


def _listing(diagnostics: tuple[Diagnostic, ...], total: int) -> str:
    return "\n".join([*(item.render() for item in diagnostics), *_more(total, "error")])


def _more(total: int, word: str) -> list[str]:
    """What stands behind a list that leaves some out."""
    hidden = total - _MAX_LISTED
    return [f"… and {hidden} more {word}{'' if hidden == 1 else 's'}"] if hidden > 0 else []


def _documents(diagnostics: tuple[Diagnostic, ...], total: int) -> dict[str, object]:
    body: dict[str, object] = {"diagnostics": [item.document() for item in diagnostics]}
    return body | ({"diagnostic_total": total} if total > len(diagnostics) else {})
