"""The two seams of embedding: what a graph uses, and what a provider implements."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


class EmbedPurpose(StrEnum):
    """Which side of a search a text is on; some models embed the two sides differently."""

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

    def embed(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose
    ) -> list[tuple[float, ...]]:
        """One vector of length `dimension` and norm 1 per text, in order; components are exact 32-bit floats."""
        ...

    def close(self) -> None:
        """Release connections; a later `embed` opens them again."""
        ...


class EmbeddingProvider(Protocol):
    """One attempt at one model. Knows no retries; returns what the model said, neither checked nor normalised."""

    @property
    def texts_per_call(self) -> int:
        """How many texts one `request` takes at most."""
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
    recorded: str | None,
    embedder_model: str,
    property_name: str,
    purpose: EmbedPurpose = EmbedPurpose.QUERY,
) -> None:
    """Refuse to mix vectors of two models, in a search or in one column (spec: search §6, `@embed`).

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
