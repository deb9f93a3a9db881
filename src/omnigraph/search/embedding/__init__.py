"""Text to unit vectors, through one client for queries and for files.

    create_embedder(settings) → EmbeddingClient ─ retries, deadline, validation, log
                                      └ provider ─ remote (HTTP) | local (weights in a package) | mock

`contract` has the two seams, `settings` the variables, `vectors` the arithmetic that every provider shares.
"""

from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.contract import Embedder, EmbedPurpose, check_model
from omnigraph.search.embedding.factory import create_embedder
from omnigraph.search.embedding.keys import ApiKey
from omnigraph.search.embedding.mock import mock_vector
from omnigraph.search.embedding.settings import EmbeddingSettings, ProviderName

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
