"""From settings to an embedder, without a connection: nothing is sent before the first text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, assert_never

from omnigraph.errors import BadRequestError
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.local import LOCAL_MODEL, LocalProvider
from omnigraph.search.embedding.mock import MockProvider
from omnigraph.search.embedding.remote import GeminiProvider, OpenAiProvider
from omnigraph.search.embedding.settings import ProviderName
from omnigraph.search.embedding.transport import JsonTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.search.embedding.contract import EmbeddingProvider
    from omnigraph.search.embedding.keys import ApiKey
    from omnigraph.search.embedding.settings import EmbeddingSettings


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
    return EmbeddingClient(_provider(settings, clock), settings, clock=clock, sleep=sleep)


def _provider(settings: EmbeddingSettings, clock: Callable[[], float]) -> EmbeddingProvider:
    match settings.provider:
        case ProviderName.OPENAI_COMPATIBLE | ProviderName.OPENAI:
            return OpenAiProvider(
                JsonTransport(clock=clock),
                base_url=settings.base_url,
                model=settings.model,
                key=_key(settings),
            )
        case ProviderName.GEMINI:
            return GeminiProvider(
                JsonTransport(clock=clock),
                base_url=settings.base_url,
                model=settings.model,
                key=_key(settings),
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
