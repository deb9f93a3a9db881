"""Failures that only exist between a client and a server: who asks, how, how often, and whether anybody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from omnigraph.errors.base import OmniError

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """`server_unreachable` with what is known about the outcome."""
        return {"server_unreachable": {"outcome_unknown": self.outcome_unknown}}


class UnexpectedAnswerError(TransportError):
    """What answered is no OmniGraph server, or the answer is not complete. Of a write, the outcome is unknown."""

    kind = "unexpected_answer"
    code = None
    http_status = 502


class RemoteError(TransportError):
    """A server refused for a reason that this release has no class for. `status` and `body` are what it sent."""

    kind = "remote"
    code = None
    http_status = 502

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = body
        super().__init__(str(body.get("error") or f"the server answered with status {status}"))

    def to_json(self) -> dict[str, object]:
        """The body as it came."""
        return {"error": self.message, "kind": self.kind} | dict(self.body)
