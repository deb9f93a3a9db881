"""How an embedding call fails: one attempt inside the room, one typed error outside of it."""

from __future__ import annotations

from omnigraph.errors import EmbeddingError, StorageFailure


class AttemptError(Exception):
    """One attempt failed. Never leaves the room: the client retries it or turns it into a typed error.

    `outcome` is one word for the log, `reason` a clause for people; neither ever holds a key or an embedded text.
    """

    def __init__(self, outcome: str, reason: str, failure: StorageFailure) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.failure = failure

    @property
    def is_transient(self) -> bool:
        """True when the same request may succeed a moment later."""
        return self.failure is StorageFailure.TRANSIENT


def timed_out(timeout_s: float) -> AttemptError:
    """The provider did not answer in time."""
    return AttemptError("timeout", f"no answer within {timeout_s:g} s", StorageFailure.TRANSIENT)


def connection_failed(error: Exception) -> AttemptError:
    """The connection was refused, broken or never made."""
    reason = f"the connection failed ({type(error).__name__})"
    return AttemptError("connection_failed", reason, StorageFailure.TRANSIENT)


def undecodable(reason: str) -> AttemptError:
    """The answer does not have the shape that the provider documents."""
    return AttemptError(
        "undecodable", f"the answer cannot be read: {reason}", StorageFailure.PERMANENT
    )


def invalid_vector(reason: str) -> AttemptError:
    """The answer has the right shape, but a vector in it must not be stored or searched with."""
    return AttemptError(
        "invalid_vector", f"the answer holds an unusable vector: {reason}", StorageFailure.PERMANENT
    )


def given_up(who: str, attempts: int, error: AttemptError, *, out_of_time: bool) -> EmbeddingError:
    """The typed error for a call that will not be tried again."""
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return EmbeddingError(
        f"embedding with {who} failed after {tries}: {error.reason}; {_advice(error, out_of_time)}",
        error.failure,
    )


def _advice(error: AttemptError, out_of_time: bool) -> str:
    if out_of_time:
        return "another attempt does not fit before the deadline of OMNIGRAPH_EMBED_DEADLINE_MS"
    match error.failure:
        case StorageFailure.TRANSIENT:
            return "try again later, or raise OMNIGRAPH_EMBED_RETRY_ATTEMPTS"
        case StorageFailure.CONFIGURATION:
            return "check OMNIGRAPH_EMBED_PROVIDER, _BASE_URL, _MODEL, the API key and the proxy variables"
        case _:
            return "check that the model serves vectors of this dimension"
