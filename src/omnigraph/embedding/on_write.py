"""Embedding on write: whether it happens here, and the vectors of the texts of one mutation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from omnigraph.core.env_settings import Variable
from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings
from omnigraph.embedding.providers import EmbedPurpose, check_model
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.catalog import Catalog, EmbeddedVector, embedded_vectors

EMBED_ON_WRITE = Variable(
    "OMNIGRAPH_EMBED_ON_WRITE",
    "Whether mutations and loads embed the texts that they bring without a vector; otherwise `omnigraph embed` does.",
    default="on",
    values="`0` leaves texts without vectors",
)
_OFF = ("0", "false", "no", "off")


def no_embedding(catalog: Catalog) -> str:
    """What keeps writes from embedding texts, as a clause for people; empty where nothing does, or there are none."""
    if not _has_vectors(catalog):
        return ""
    if EMBED_ON_WRITE.text().lower() in _OFF:
        return f"{EMBED_ON_WRITE} is off"
    try:
        settings = EmbeddingSettings.from_environment()
    except BadRequestError as error:
        # Only writes that leave out a vector mind.
        return error.message
    if settings.key_variables and settings.api_key is None:
        return (
            f"no provider is configured: set {' or '.join(settings.key_variables)} for the provider "
            f"{settings.provider}, or another OMNIGRAPH_EMBED_PROVIDER"
        )
    return ""


def writes_embed(catalog: Catalog) -> bool:
    """Whether writes embed texts here: there are vectors of texts, and nothing keeps them from it."""
    return _has_vectors(catalog) and not no_embedding(catalog)


def _has_vectors(catalog: Catalog) -> bool:
    return any(map(embedded_vectors, catalog.nodes.values()))


def is_served(vector: EmbeddedVector, model: str) -> bool:
    """Whether texts get this vector from a model: not if another one is recorded and the vector may stay null."""
    return vector.model in (None, model) or not vector.is_nullable


class TextsMissingError(Exception):
    """Vectors are needed that nobody made yet. Never leaves a mutation, which makes them and begins again."""


class MutationVectors:
    """The vectors of the texts of one mutation, over all of its tries.

    A try only says what it needs: it may be prepared while other writers wait, and no writer waits for a provider.
    """

    are_stand_ins = False

    def __init__(self, embedder: Callable[[], EmbeddingClient]) -> None:
        self._embedder = embedder
        self._known: defaultdict[EmbeddedVector, dict[str, Sequence[float]]] = defaultdict(dict)
        self._missing: dict[EmbeddedVector, list[str]] = {}
        #: Texts that were embedded.
        self.embedded = 0

    def of(
        self, wanted: Mapping[EmbeddedVector, Collection[str]]
    ) -> Mapping[EmbeddedVector, Mapping[str, Sequence[float]]]:
        """The vectors of texts.

        Raises:
            TextsMissingError: some are not known yet; `embed` makes them.
        """
        self._missing = {
            vector: missing
            for vector, texts in wanted.items()
            if (missing := sorted(text for text in texts if text not in self._known[vector]))
        }
        if self._missing:
            raise TextsMissingError
        return self._known

    def serves(self, vector: EmbeddedVector) -> bool:
        """Whether texts get this vector at all."""
        return vector.model is None or is_served(vector, EmbeddingSettings.from_environment().model)

    def embed(self) -> None:
        """Make the vectors that were missing last.

        Raises:
            BadRequestError: the schema records another model, or the provider cannot be used.
            EmbeddingError: the provider failed.
        """
        embedder = self._embedder()
        for vector, texts in self._missing.items():
            check_model(vector.model, embedder.model, str(vector), EmbedPurpose.DOCUMENT)
            made = embedder.embed(texts, dimension=vector.dimension, purpose=EmbedPurpose.DOCUMENT)
            self._known[vector].update(zip(texts, made, strict=True))
            self.embedded += len(texts)


class CountedVectors:
    """Stands for the vectors of a mutation that is only tried out, and counts them."""

    are_stand_ins = True

    def __init__(self) -> None:
        #: Texts that would be embedded.
        self.embedded = 0

    def serves(self, vector: EmbeddedVector) -> bool:
        """Whether texts would get this vector at all."""
        return vector.model is None or is_served(vector, EmbeddingSettings.from_environment().model)

    def of(
        self, wanted: Mapping[EmbeddedVector, Collection[str]]
    ) -> Mapping[EmbeddedVector, Mapping[str, Sequence[float]]]:
        """A vector of zeros for every text."""
        self.embedded = sum(map(len, wanted.values()))
        return {vector: dict.fromkeys(texts, [0.0] * vector.dimension) for vector, texts in wanted.items()}
