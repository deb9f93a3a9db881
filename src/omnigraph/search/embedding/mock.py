"""Deterministic vectors without a network: the same text gives the same bits everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.search.embedding.vectors import to_unit_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.search.embedding.contract import EmbedPurpose

MOCK_MODEL = "mock"

_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_MASK_64 = 2**64 - 1


class MockProvider:
    """Vectors from a hash of the text; they carry no meaning, so only equal texts are near each other."""

    texts_per_call = 1024

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """The raw components of each text; `purpose` makes no difference and nothing can time out."""
        return [_components(text, dimension) for text in texts]

    def close(self) -> None:
        """Nothing is held."""


def mock_vector(text: str, dimension: int) -> tuple[float, ...]:
    """The vector that the `mock` provider gives for a text.

    Example:
        >>> [round(component, 4) for component in mock_vector("graph", 3)]
        [-0.1468, -0.6993, -0.6996]
    """
    return to_unit_vector(_components(text, dimension), dimension)


def _components(text: str, dimension: int) -> list[object]:
    import numpy as np

    states = np.array(_xorshift_states(_fnv1a_64(text.encode()), dimension), np.uint64)
    # Both operands become 64-bit floats before the division; 2^64 − 1 itself is rounded to 2^64 by that.
    ratios = (states.astype(np.float64) / np.float64(_MASK_64)).astype(np.float32)
    components: list[object] = (np.float32(2) * ratios - np.float32(1)).tolist()
    return components


def _fnv1a_64(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK_64
    return value


def _xorshift_states(seed: int, count: int) -> list[int]:
    states = []
    state = seed
    for _ in range(count):
        state ^= (state << 13) & _MASK_64
        state ^= state >> 7
        state ^= (state << 17) & _MASK_64
        states.append(state)
    return states
