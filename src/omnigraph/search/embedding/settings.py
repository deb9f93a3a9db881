"""Settings of the embedding client, from the environment."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from omnigraph.environ import whole_number
from omnigraph.errors import BadRequestError
from omnigraph.search.embedding.keys import ApiKey
from omnigraph.search.embedding.local import LOCAL_MODEL
from omnigraph.search.embedding.mock import MOCK_MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

_TRUE_WORDS = ("1", "true", "yes", "on")
#: One day; a larger number of milliseconds is a slip, and the socket layer cannot hold every integer.
_MAX_MS = 24 * 60 * 60 * 1000
_MAX_ATTEMPTS = 1000


class ProviderName(StrEnum):
    """Who embeds."""

    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"
    LOCAL = "local"
    MOCK = "mock"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderDefaults:
    """What holds for a provider unless a variable says otherwise."""

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
            model="text-embedding-3-large",
            base_url="https://api.openai.com/v1",
            key_variables=("OPENAI_API_KEY",),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSettings:
    """Who embeds, with which model, and how patiently. Holds a key, and prints without it.

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
    #: For one request with all its retries; 0 means none.
    deadline_ms: int = 60_000
    #: For a single attempt.
    timeout_ms: int = 30_000
    #: Attempts in total; 0 and 1 both mean that nothing is repeated.
    retry_attempts: int = 4
    #: Pause before the second attempt; it doubles from there.
    retry_backoff_ms: int = 200

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

        Numbers that cannot be read fall back to their default with a warning. A missing key is no error here, so that
        a graph that never embeds needs none.

        Raises:
            BadRequestError: An unknown provider, an unusable base URL or an unusable key.
        """
        provider = _provider()
        return EmbeddingSettings(
            provider=provider,
            model=os.environ.get("OMNIGRAPH_EMBED_MODEL", ""),
            base_url=os.environ.get("OMNIGRAPH_EMBED_BASE_URL", ""),
            api_key=_api_key(PROVIDER_DEFAULTS[provider].key_variables),
            deadline_ms=whole_number("OMNIGRAPH_EMBED_DEADLINE_MS", 60_000, 0, _MAX_MS),
            timeout_ms=whole_number("OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000, 1, _MAX_MS),
            retry_attempts=whole_number("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4, 0, _MAX_ATTEMPTS),
            retry_backoff_ms=whole_number("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", 200, 0, _MAX_MS),
        )


def _provider() -> ProviderName:
    wanted = os.environ.get("OMNIGRAPH_EMBED_PROVIDER", "").strip()
    if os.environ.get("OMNIGRAPH_EMBEDDINGS_MOCK", "").strip().lower() in _TRUE_WORDS:
        if wanted and wanted != ProviderName.MOCK:
            _log.warning(
                "OMNIGRAPH_EMBEDDINGS_MOCK is on: vectors are made up, OMNIGRAPH_EMBED_PROVIDER=%s is not asked",
                wanted,
            )
        return ProviderName.MOCK
    try:
        return ProviderName(wanted or ProviderName.OPENAI_COMPATIBLE)
    except ValueError:
        known = ", ".join(ProviderName)
        raise BadRequestError(
            f"OMNIGRAPH_EMBED_PROVIDER={wanted} is not a provider: use one of {known}"
        ) from None


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
