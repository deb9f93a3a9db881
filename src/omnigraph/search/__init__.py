"""Search beside the query language: what turns text into vectors of the same space as the stored ones.

Owns: the embedding client and its providers, their settings, the check of a recorded model. Never reads or writes a
graph, and never embeds inside a write. Importing it is cheap: HTTP, numbers and models are imported when first used.
Start reading at `embedding.contract`, then `embedding.client`.
"""

from omnigraph.search.embedding import (
    ApiKey,
    Embedder,
    EmbeddingClient,
    EmbeddingSettings,
    EmbedPurpose,
    ProviderName,
    check_model,
    create_embedder,
    mock_vector,
)

__all__ = [
    "ApiKey",
    "EmbedPurpose",
    "Embedder",
    "EmbeddingClient",
    "EmbeddingSettings",
    "ProviderName",
    "check_model",
    "create_embedder",
    "mock_vector",
]
