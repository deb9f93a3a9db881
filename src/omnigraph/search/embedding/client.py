"""The one embedder: retries, deadline, validation and log around any provider."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from omnigraph.errors import BadRequestError, OmniError
from omnigraph.search.embedding.failures import AttemptError, given_up, undecodable
from omnigraph.search.embedding.vectors import to_unit_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from omnigraph.search.embedding.contract import EmbeddingProvider, EmbedPurpose
    from omnigraph.search.embedding.settings import EmbeddingSettings

_log = logging.getLogger(__name__)

#: The pause doubles at most this often (spec: search §6).
_MOST_DOUBLINGS = 10
#: What is left for an attempt that starts exactly at the deadline; zero would mean "no limit" to some libraries.
_LEAST_TIMEOUT_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request to the provider with all its attempts."""

    texts: Sequence[str]
    dimension: int
    purpose: EmbedPurpose
    started_s: float


class EmbeddingClient:
    """An `Embedder` over one provider. Safe to share between threads; close it, or use it as a context manager.

    Texts are sent in as few requests as the provider takes. The deadline holds for each request with all its retries,
    so a long list of texts is not limited as a whole.
    """

    def __init__(
        self,
        provider: EmbeddingProvider,
        settings: EmbeddingSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._clock = clock
        self._sleep = sleep

    @property
    def provider(self) -> str:
        """The provider that answers."""
        return str(self._settings.provider)

    @property
    def model(self) -> str:
        """The model as it is recorded beside the vectors."""
        return self._settings.model

    def embed(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose
    ) -> list[tuple[float, ...]]:
        """One checked unit vector per text, in order; all of them or an error.

        Timeouts, broken connections, HTTP 429 and 5xx are tried again, with a doubling pause; nothing else is.

        Raises:
            BadRequestError: The dimension, a text or the set-up of the provider cannot be served.
            EmbeddingError: The provider failed or answered with something unusable; `failure` says which.
        """
        _check_request(texts, dimension)
        size = self._provider.texts_per_call
        vectors: list[tuple[float, ...]] = []
        for start in range(0, len(texts), size):
            call = _Call(
                texts=texts[start : start + size],
                dimension=dimension,
                purpose=purpose,
                started_s=self._clock(),
            )
            vectors += self._run(call)
        return vectors

    def close(self) -> None:
        """Release connections; a later `embed` opens them again."""
        self._provider.close()

    def __enter__(self) -> EmbeddingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EmbeddingClient(provider={self.provider!r}, model={self.model!r})"

    def _run(self, call: _Call) -> list[tuple[float, ...]]:
        attempt = 1
        while True:
            try:
                return self._attempt(call, attempt)
            except AttemptError as error:
                pause_s = self._pause_s(attempt)
                out_of_time = error.is_transient and pause_s >= self._remaining_s(call)
                is_last = attempt >= self._settings.retry_attempts
                if not error.is_transient or is_last or out_of_time:
                    self._give_up(attempt, error, out_of_time=out_of_time and not is_last)
            self._sleep(pause_s)
            attempt += 1

    def _attempt(self, call: _Call, attempt: int) -> list[tuple[float, ...]]:
        began_s = self._clock()
        outcome = "failed"
        try:
            vectors = self._request(call)
            outcome = "ok"
        except AttemptError as error:
            outcome = error.outcome
            raise
        except OmniError:
            outcome = "refused"
            raise
        finally:
            _log.log(
                logging.INFO if outcome == "ok" else logging.WARNING,
                "embedding provider=%s model=%s dimension=%d texts=%d attempt=%d elapsed_ms=%d outcome=%s",
                self.provider,
                self.model,
                call.dimension,
                len(call.texts),
                attempt,
                round((self._clock() - began_s) * 1000),
                outcome,
            )
        return vectors

    def _request(self, call: _Call) -> list[tuple[float, ...]]:
        timeout_s = min(self._settings.timeout_ms / 1000, self._remaining_s(call))
        answer = self._provider.request(
            call.texts,
            dimension=call.dimension,
            purpose=call.purpose,
            timeout_s=max(timeout_s, _LEAST_TIMEOUT_S),
        )
        if len(answer) != len(call.texts):
            raise undecodable(f"it holds {len(answer)} vectors for {len(call.texts)} texts")
        return [to_unit_vector(components, call.dimension) for components in answer]

    def _remaining_s(self, call: _Call) -> float:
        if self._settings.deadline_ms == 0:
            return math.inf
        return self._settings.deadline_ms / 1000 - (self._clock() - call.started_s)

    def _pause_s(self, attempt: int) -> float:
        return (
            self._settings.retry_backoff_ms / 1000 * float(2 ** min(attempt - 1, _MOST_DOUBLINGS))
        )

    def _give_up(self, attempts: int, error: AttemptError, *, out_of_time: bool) -> NoReturn:
        where = f" at {self._settings.base_url}" if self._settings.base_url else ""
        who = f"{self.provider}{where}, model `{self.model}`,"
        raise given_up(who, attempts, error, out_of_time=out_of_time) from error


def _check_request(texts: Sequence[str], dimension: int) -> None:
    if dimension < 1:
        raise BadRequestError(f"a vector has at least one component, not {dimension}")
    # A bare string is a sequence of strings too, and would be embedded letter by letter.
    if isinstance(texts, str):
        raise BadRequestError("pass a list of texts, not one string")
    for position, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequestError(
                f"text {position} of {len(texts)} holds half a surrogate pair and cannot be sent: repair it"
            ) from error
