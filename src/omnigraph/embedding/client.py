"""The embedding client: settings, retries, deadlines, and settings as an embedder."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType, TracebackType
from typing import NoReturn, assert_never
from urllib.parse import urlsplit

from omnigraph.core.env_settings import Variable, WholeNumber
from omnigraph.embedding.providers import (
    LOCAL_MODEL,
    MOCK_MODEL,
    ApiKey,
    AttemptError,
    EmbeddingProvider,
    EmbedPurpose,
    GeminiProvider,
    JsonTransport,
    LocalProvider,
    MockProvider,
    OpenAiProvider,
    given_up,
    to_unit_vector,
    undecodable,
)
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.frozen import frozen

# ---- The embedder: retries, deadline and validation


_log = logging.getLogger(__name__)

#: The pause doubles at most this often.
_MOST_DOUBLINGS = 10
#: What is left for an attempt that starts exactly at the deadline; zero would mean "no limit" to some libraries.
_LEAST_TIMEOUT_S = 0.001


@frozen(kw_only=True)
class _Call:
    """One request to the provider with all its attempts."""

    texts: Sequence[str]
    dimension: int
    purpose: EmbedPurpose
    started_s: float


class EmbeddingClient:
    """Turns texts into unit vectors. Safe to share between threads; close it, or use it as a context manager.

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
        """The provider that answers, as `OMNIGRAPH_EMBED_PROVIDER` names it."""
        return str(self._settings.provider)

    @property
    def model(self) -> str:
        """The model as it is recorded beside the vectors; compared literally."""
        return self._settings.model

    def embed(self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose) -> list[tuple[float, ...]]:
        """One checked vector of norm 1 per text, in order; all of them or an error. Components are exact 32-bit floats.

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
                texts=texts[start : start + size], dimension=dimension, purpose=purpose, started_s=self._clock()
            )
            vectors += self._run(call)
        return vectors

    def close(self) -> None:
        """Release connections; a later `embed` opens them again."""
        self._provider.close()

    def __enter__(self) -> EmbeddingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
            call.texts, dimension=call.dimension, purpose=call.purpose, timeout_s=max(timeout_s, _LEAST_TIMEOUT_S)
        )
        if len(answer) != len(call.texts):
            raise undecodable(f"it holds {len(answer)} vectors for {len(call.texts)} texts")
        return [to_unit_vector(components, call.dimension) for components in answer]

    def _remaining_s(self, call: _Call) -> float:
        if self._settings.deadline_ms == 0:
            return math.inf
        return self._settings.deadline_ms / 1000 - (self._clock() - call.started_s)

    def _pause_s(self, attempt: int) -> float:
        return self._settings.retry_backoff_ms / 1000 * float(2 ** min(attempt - 1, _MOST_DOUBLINGS))

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


# ---- Settings of the embedding client, from the environment


#: One day; a larger number of milliseconds is a slip, and the socket layer cannot hold every integer.
_MAX_MS = 24 * 60 * 60 * 1000
_MAX_ATTEMPTS = 1000


class ProviderName(StrEnum):
    """The name of a provider."""

    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"
    LOCAL = "local"
    MOCK = "mock"


@frozen(kw_only=True)
class ProviderDefaults:
    """Defaults of a provider, which variables override."""

    model: str
    #: Empty for a provider without a network.
    base_url: str = ""
    #: Where the key is looked for, in this order; empty when no key is needed.
    key_variables: tuple[str, ...] = ()


PROVIDER_DEFAULTS: Mapping[ProviderName, ProviderDefaults] = MappingProxyType(
    {
        ProviderName.OPENAI_COMPATIBLE: ProviderDefaults(
            model="openai/text-embedding-3-large",
            base_url="https://openrouter.ai/api/v1",
            key_variables=("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
        ),
        ProviderName.OPENAI: ProviderDefaults(
            model="text-embedding-3-large", base_url="https://api.openai.com/v1", key_variables=("OPENAI_API_KEY",)
        ),
        ProviderName.GEMINI: ProviderDefaults(
            model="gemini-embedding-2",
            base_url="https://generativelanguage.googleapis.com/v1beta",
            key_variables=("GEMINI_API_KEY",),
        ),
        ProviderName.LOCAL: ProviderDefaults(model=LOCAL_MODEL),
        ProviderName.MOCK: ProviderDefaults(model=MOCK_MODEL),
    }
)


_PROVIDER = Variable(
    "OMNIGRAPH_EMBED_PROVIDER",
    "The service that computes embeddings.",
    default=f"`{ProviderName.OPENAI_COMPATIBLE}`",
    values=", ".join(f"`{name}`" for name in ProviderName),
)
_MOCK = Variable(
    "OMNIGRAPH_EMBEDDINGS_MOCK",
    "Computes deterministic embeddings in process instead of asking a provider.",
    default="off",
    values="`1`",
)
_MODEL = Variable("OMNIGRAPH_EMBED_MODEL", "The embedding model.", default="that of the provider", values="a name")
_BASE_URL = Variable(
    "OMNIGRAPH_EMBED_BASE_URL",
    "The address of the provider.",
    default="that of the provider",
    values="an `http` or `https` address",
)
_DEADLINE = WholeNumber(
    "OMNIGRAPH_EMBED_DEADLINE_MS",
    60_000,
    "Milliseconds for one call with all its attempts; `0` for no limit.",
    highest=_MAX_MS,
)
_TIMEOUT = WholeNumber("OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000, "Milliseconds for one attempt.", lowest=1, highest=_MAX_MS)
_ATTEMPTS = WholeNumber(
    "OMNIGRAPH_EMBED_RETRY_ATTEMPTS",
    4,
    "Attempts of one call; `0` and `1` both mean that nothing is repeated.",
    highest=_MAX_ATTEMPTS,
)
_BACKOFF = WholeNumber(
    "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
    200,
    "Milliseconds before the second attempt; the pause doubles from there.",
    highest=_MAX_MS,
)


@frozen(kw_only=True)
class EmbeddingSettings:
    """Provider, model and retries. Holds a key, and prints without it.

    Raises:
        BadRequestError: `base_url` is not a plain `http` or `https` address.
    """

    provider: ProviderName = ProviderName.OPENAI_COMPATIBLE
    #: Empty at construction means the default of the provider.
    model: str = ""
    #: Empty at construction means the default of the provider; never holds credentials, never ends in a slash, and
    #: stays empty for a provider without a network.
    base_url: str = ""
    api_key: ApiKey | None = None
    deadline_ms: int = _DEADLINE.default
    timeout_ms: int = _TIMEOUT.default
    retry_attempts: int = _ATTEMPTS.default
    retry_backoff_ms: int = _BACKOFF.default

    def __post_init__(self) -> None:
        defaults = PROVIDER_DEFAULTS[self.provider]
        object.__setattr__(self, "model", self.model.strip() or defaults.model)
        # A provider without a network has no address, whatever the variable says.
        base_url = (self.base_url.strip() or defaults.base_url) if defaults.base_url else ""
        if base_url:
            _check_base_url(base_url)
        object.__setattr__(self, "base_url", base_url.rstrip("/"))

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables that may hold the key of this provider, first choice first."""
        return PROVIDER_DEFAULTS[self.provider].key_variables

    @staticmethod
    def from_environment() -> EmbeddingSettings:
        """The settings of the `OMNIGRAPH_EMBED*` variables and of the provider's key variable.

        Numbers that cannot be read fall back to their default with a warning. A missing key is not an error here: a
        graph that never embeds needs none.

        Raises:
            BadRequestError: An unknown provider, an unusable base URL or an unusable key.
        """
        provider = _provider()
        return EmbeddingSettings(
            provider=provider,
            model=_MODEL.text(),
            base_url=_BASE_URL.text(),
            api_key=_api_key(PROVIDER_DEFAULTS[provider].key_variables),
            deadline_ms=_DEADLINE.read(),
            timeout_ms=_TIMEOUT.read(),
            retry_attempts=_ATTEMPTS.read(),
            retry_backoff_ms=_BACKOFF.read(),
        )


def _provider() -> ProviderName:
    wanted = _PROVIDER.text()
    if _MOCK.is_on():
        if wanted and wanted != ProviderName.MOCK:
            _log.warning(
                "OMNIGRAPH_EMBEDDINGS_MOCK is on: vectors are made up, OMNIGRAPH_EMBED_PROVIDER=%s is not asked", wanted
            )
        return ProviderName.MOCK
    try:
        return ProviderName(wanted or ProviderName.OPENAI_COMPATIBLE)
    except ValueError:
        known = ", ".join(ProviderName)
        raise BadRequestError(f"OMNIGRAPH_EMBED_PROVIDER={wanted} is not a provider: use one of {known}") from None


def _api_key(variables: tuple[str, ...]) -> ApiKey | None:
    for name in variables:
        if text := os.environ.get(name, "").strip():
            return ApiKey(text, source=name)
    return None


def _check_base_url(base_url: str) -> None:
    # The address stands in messages and logs, and a query string would end up in the middle of the final URL.
    # The refusal does not repeat the address, since the part that makes it wrong may be a secret.
    try:
        parts = urlsplit(base_url)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_extras = "@" in parts.netloc or bool(parts.query) or bool(parts.fragment)
        _ = parts.port
    except ValueError:
        is_plain, has_extras = False, False
    if not is_plain or has_extras:
        raise BadRequestError(
            "OMNIGRAPH_EMBED_BASE_URL is not usable: give an http or https address with a host and a path, "
            "without user, password, query or fragment"
        )


# ---- Embedders from settings


def create_embedder(
    settings: EmbeddingSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> EmbeddingClient:
    """The embedder that the settings describe; it holds connections once it is used, so close it.

    Args:
        settings: Who embeds, and how patiently.
        clock: Seconds that only grow; deadlines are measured with it.
        sleep: How to pause between two attempts.

    Raises:
        BadRequestError: The key is missing, or the provider does not have the model.
    """
    return EmbeddingClient(_make_provider(settings, clock), settings, clock=clock, sleep=sleep)


def _make_provider(settings: EmbeddingSettings, clock: Callable[[], float]) -> EmbeddingProvider:
    match settings.provider:
        case ProviderName.OPENAI_COMPATIBLE | ProviderName.OPENAI | ProviderName.GEMINI as name:
            kind = GeminiProvider if name is ProviderName.GEMINI else OpenAiProvider
            return kind(
                JsonTransport(clock=clock), base_url=settings.base_url, model=settings.model, key=_key(settings)
            )
        case ProviderName.LOCAL:
            if settings.model != LOCAL_MODEL:
                raise BadRequestError(
                    f"the local provider has one model, {LOCAL_MODEL}, not `{settings.model}`: "
                    "unset OMNIGRAPH_EMBED_MODEL or choose another provider"
                )
            return LocalProvider()
        case ProviderName.MOCK:
            return MockProvider()
        case _:
            assert_never(settings.provider)


def _key(settings: EmbeddingSettings) -> ApiKey:
    if settings.api_key is None:
        variables = " or ".join(settings.key_variables)
        raise BadRequestError(
            f"the embedding provider {settings.provider} needs an API key: set {variables}; "
            "OMNIGRAPH_EMBEDDINGS_MOCK=1 gives deterministic vectors without one"
        )
    return settings.api_key
