"""The contract of embedding providers: protocols, failures, vector arithmetic, and secret keys."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure

# ---- The interfaces of embedders and providers


class EmbedPurpose(StrEnum):
    """The side of a search that a text is on; some models embed the two sides differently."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """Turns texts into unit vectors. Implementations are safe to share between threads."""

    @property
    def provider(self) -> str:
        """The provider that answers, as `OMNIGRAPH_EMBED_PROVIDER` names it."""
        ...

    @property
    def model(self) -> str:
        """The model as it is recorded beside the vectors; compared literally."""
        ...

    def embed(self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose) -> list[tuple[float, ...]]:
        """One vector of length `dimension` and norm 1 per text, in order; components are exact 32-bit floats."""
        ...

    def close(self) -> None:
        """Release connections; a later `embed` opens them again."""
        ...


class EmbeddingProvider(Protocol):
    """One attempt at one model. Knows no retries; returns what the model said, neither checked nor normalised."""

    @property
    def texts_per_call(self) -> int:
        """The number of texts one `request` takes at most."""
        ...

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """One list of components per text, in order.

        Raises:
            AttemptError: This attempt failed; the error says whether another one may succeed.
            BadRequestError: The provider cannot serve this request at all.
        """
        ...

    def close(self) -> None:
        """Release connections; a later `request` opens them again."""
        ...


def check_model(
    recorded: str | None, embedder_model: str, property_name: str, purpose: EmbedPurpose = EmbedPurpose.QUERY
) -> None:
    """Refuse to mix vectors of two models, in a search or in one column.

    Args:
        recorded: The model that the schema records for the property; None means that nothing is checked.
        embedder_model: The model that would embed the text.
        property_name: The vector property, as `Type.property`.
        purpose: Whether the text is a query string or belongs to a row.

    Raises:
        BadRequestError: The two names differ, literally.
    """
    if recorded is None or recorded == embedder_model:
        return
    text, way_out = {
        EmbedPurpose.QUERY: ("the query string", ", or pass a vector"),
        EmbedPurpose.DOCUMENT: ("its texts", ""),
    }[purpose]
    raise BadRequestError(
        f"the vectors of {property_name} come from model `{recorded}`, but {text} would be embedded with "
        f"`{embedder_model}`: set OMNIGRAPH_EMBED_MODEL={recorded} and a provider that serves it{way_out}"
    )


# ---- Errors of embedding calls


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
    return AttemptError("undecodable", f"the answer cannot be read: {reason}", StorageFailure.PERMANENT)


def invalid_vector(reason: str) -> AttemptError:
    """The answer has the right shape, but a vector in it must not be stored or searched with."""
    return AttemptError("invalid_vector", f"the answer holds an unusable vector: {reason}", StorageFailure.PERMANENT)


def given_up(who: str, attempts: int, error: AttemptError, *, out_of_time: bool) -> EmbeddingError:
    """The typed error for a call that will not be tried again."""
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return EmbeddingError(
        f"embedding with {who} failed after {tries}: {error.reason}; {_advice(error, out_of_time)}", error.failure
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


# ---- Validation and normalisation of vectors


#: Distance from 1 to the next 32-bit float; a vector with a smaller norm has no direction worth storing.
FLOAT32_EPSILON = 2.0**-23


def to_unit_vector(components: Sequence[object], dimension: int) -> tuple[float, ...]:
    """The components as 32-bit floats, divided by their norm.

    Squares are summed one by one and rooted in 64 bits, the norm is rounded to 32 bits, the division happens in 32
    bits; every step is defined, so two processes get the same bits.

    Raises:
        AttemptError: The length is not `dimension`, a component is not a finite number, or the norm is about zero.
    """
    import numpy as np

    if len(components) != dimension:
        raise invalid_vector(f"{len(components)} components instead of {dimension}")
    # A 64-bit number beyond the 32-bit range becomes infinite here and is refused right below.
    with np.errstate(over="ignore"):
        vector = np.array([_number(item) for item in components], np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise invalid_vector("a component is not a finite 32-bit number")
    # `cumsum` adds from left to right; `sum` adds in pairs, which rounds differently.
    total = np.cumsum(np.square(vector.astype(np.float64)))[-1]
    norm = np.sqrt(total)
    if not FLOAT32_EPSILON < norm <= np.finfo(np.float32).max:
        raise invalid_vector(f"its norm is {norm:g}")
    unit: list[float] = (vector / np.float32(norm)).tolist()
    return tuple(unit)


def _number(item: object) -> float:
    # A bool is an int to Python, but `true` in an answer is not a component of a vector.
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise invalid_vector(f"a component is a {type(item).__name__}, not a number")
    try:
        return float(item)
    except OverflowError:
        return float("inf")


# ---- A secret that does not print itself


_MASK = "***"


class ApiKey:
    """The key of a provider. Only `reveal` gives it away; `repr`, `str` and formatting show a mask.

    Raises:
        BadRequestError: The value cannot travel in an HTTP header. It is refused here because the HTTP library quotes
            a header that it cannot send, key included, in its own error.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, source: str = "the API key") -> None:
        value = value.strip()
        if not value or not all("!" <= character <= "~" for character in value):
            raise BadRequestError(f"{source} is not usable: a key is one word of printable ASCII characters")
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._value

    def redact(self, text: str) -> str:
        """The text with every occurrence of the key masked."""
        return text.replace(self._value, _MASK)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"
