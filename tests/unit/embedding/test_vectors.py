"""A vector is checked and normalised before anything is done with it."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.contract import FLOAT32_EPSILON, EmbedPurpose, to_unit_vector
from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure
from support.embedding_provider import Reply, StandIn, StillTime, client_of, openai_reply

FLOATS = st.floats(-(2.0**50), 2.0**50, width=32)


def _float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


@pytest.mark.parametrize(
    ("components", "complaint"),
    [
        ("[1, 2, 3]", "3 components instead of 2"),
        ("[1]", "1 components instead of 2"),
        ("[]", "0 components instead of 2"),
        ("[NaN, 1]", "not a finite"),
        ("[1, -Infinity]", "not a finite"),
        ("[1e39, 1]", "not a finite"),
        (f"[1, 1{'0' * 400}]", "not a finite"),
        ("[0, 0]", "norm is 0"),
        ("[1e-8, -1e-8]", "norm is 1.4"),
        ("[3.4e38, 3.4e38]", r"norm is 4.8\d*e\+38"),
        ('["1", 1]', "a component is a str"),
        ("[true, 1]", "a component is a bool"),
        ("[null, 1]", "a component is a NoneType"),
    ],
)
def test_an_unusable_vector_is_refused_at_once(
    stand_in: StandIn, time: StillTime, components: str, complaint: str
) -> None:
    body = f'{{"data": [{{"index": 0, "embedding": {components}}}]}}'
    stand_in.replies = [Reply(body=body.encode())]
    with (
        client_of(time, ProviderName.OPENAI, stand_in.url) as client,
        pytest.raises(EmbeddingError, match=f"unusable vector: .*{complaint}") as caught,
    ):
        client.embed(["words"], dimension=2, purpose=EmbedPurpose.QUERY)
    assert caught.value.failure is StorageFailure.PERMANENT
    assert len(stand_in.requests) == 1


def test_one_bad_vector_refuses_all_of_them(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [openai_reply([1, 0], [0, 0])]
    with (
        client_of(time, ProviderName.OPENAI, stand_in.url) as client,
        pytest.raises(EmbeddingError, match="norm is 0"),
    ):
        client.embed(["a", "b"], dimension=2, purpose=EmbedPurpose.DOCUMENT)


def test_the_smallest_norm_is_just_above_epsilon() -> None:
    assert to_unit_vector([FLOAT32_EPSILON * 1.000001, 0], 2) == (1.0, 0.0)
    assert to_unit_vector([-3.4e38], 1) == (-1.0,)


@given(st.lists(FLOATS, min_size=1, max_size=40))
def test_the_result_has_length_one_in_exact_32_bit_steps(components: list[float]) -> None:
    total = 0.0
    for component in components:
        total += component * component
    assume(math.sqrt(total) > FLOAT32_EPSILON)
    norm = _float32(math.sqrt(total))
    unit = to_unit_vector(components, len(components))
    # A quotient of two 32-bit floats, rounded through 64 bits, is the correctly rounded 32-bit quotient.
    assert unit == tuple(_float32(component / norm) for component in components)
    assert math.hypot(*unit) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("texts", "dimension", "complaint"),
    [
        (["a"], 0, "at least one component"),
        ("words", 2, "not one string"),
        (["fine", "bro\ud800ken"], 2, "text 2 of 2 holds half a surrogate pair"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    texts: list[str], dimension: int, complaint: str
) -> None:
    embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    with pytest.raises(BadRequestError, match=complaint):
        embedder.embed(texts, dimension=dimension, purpose=EmbedPurpose.QUERY)
