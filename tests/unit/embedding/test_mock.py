"""The mock vector is defined to the bit; this computes it a second time, with plain integers and packed floats."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.contract import EmbedPurpose
from omnigraph.embedding.providers import mock_vector

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


def _float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_vector(text: str, dimension: int) -> tuple[float, ...]:
    state = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        state = (state ^ byte) * 0x100000001B3 % 2**64
    components = []
    for _ in range(dimension):
        state ^= state * 2**13 % 2**64
        state ^= state // 2**7
        state ^= state * 2**17 % 2**64
        ratio = _float32(float(state) / float(2**64 - 1))
        components.append(_float32(_float32(2 * ratio) - 1))
    total = 0.0
    for component in components:
        total += component**2
    norm = _float32(math.sqrt(total))
    return tuple(_float32(component / norm) for component in components)


@given(TEXTS, st.integers(1, 64))
def test_it_is_what_the_description_says(text: str, dimension: int) -> None:
    assert mock_vector(text, dimension) == expected_vector(text, dimension)


@pytest.mark.parametrize("dimension", [384, 1536, 3072])
def test_long_vectors_add_up_from_left_to_right(dimension: int) -> None:
    for number in range(5):
        text = f"text {number}"
        assert mock_vector(text, dimension) == expected_vector(text, dimension)


def test_the_bits_stay_the_same_in_every_release() -> None:
    packed = struct.pack("<4f", *mock_vector("graph", 4))
    assert packed.hex() == "6dab15bec14732bf9a5d32bfc684b93d"


@pytest.mark.parametrize("purpose", list(EmbedPurpose))
def test_the_client_gives_the_same_bits_and_normalises_once(purpose: EmbedPurpose) -> None:
    embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    texts = ["", "graph", "Wörter 🦉", "graph"]
    vectors = embedder.embed(texts, dimension=8, purpose=purpose)
    assert vectors == [expected_vector(text, 8) for text in texts]
    assert (embedder.provider, embedder.model) == ("mock", "mock")
    embedder.close()


def test_more_texts_than_one_call_takes() -> None:
    embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    texts = [str(number) for number in range(1030)]
    vectors = embedder.embed(texts, dimension=2, purpose=EmbedPurpose.DOCUMENT)
    assert vectors == [expected_vector(text, 2) for text in texts]
