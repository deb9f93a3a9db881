"""A key goes into one header and nowhere else."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from dataclasses import asdict

import pytest

from omnigraph.embedding.client import EmbeddingSettings, ProviderName
from omnigraph.embedding.contract import ApiKey, EmbedPurpose
from omnigraph.errors import BadRequestError, EmbeddingError
from support.embedding_provider import KEY, Reply, StandIn, StillTime, client_of, error_reply

REPLIES = [
    *(error_reply(status, f"bad key {KEY} given") for status in (400, 401, 403, 404, 429, 500)),
    error_reply(400, "x" * 290 + KEY),
    Reply(body=KEY.encode()),
]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("provider", [ProviderName.OPENAI, ProviderName.GEMINI])
def test_a_failing_call_keeps_the_key(
    stand_in: StandIn,
    time: StillTime,
    caplog: pytest.LogCaptureFixture,
    provider: ProviderName,
    reply: Reply,
) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.replies = [reply] * 4
    with (
        client_of(time, provider, stand_in.url) as client,
        pytest.raises(EmbeddingError) as caught,
    ):
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    shown = "".join(traceback.format_exception(caught.value))
    error = caught.value
    for text in (shown, caplog.text, repr(error), str(error.to_json()), repr(client)):
        assert KEY[:8] not in text


def test_texts_are_not_logged(
    stand_in: StandIn, time: StillTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.replies = [error_reply(400)]
    with (
        client_of(time, ProviderName.OPENAI, stand_in.url) as client,
        pytest.raises(EmbeddingError) as caught,
    ):
        client.embed(["a private matter"], dimension=1, purpose=EmbedPurpose.QUERY)
    assert "private" not in caplog.text + caught.value.message


def test_settings_print_without_the_key() -> None:
    settings = EmbeddingSettings(api_key=ApiKey(KEY))
    for text in (repr(settings), str(settings), f"{settings.api_key}", repr(asdict(settings))):
        assert KEY not in text
        assert "***" in text


def test_a_key_survives_copies_and_compares_by_value() -> None:
    key = ApiKey(KEY)
    assert copy.deepcopy(key) == pickle.loads(pickle.dumps(key)) == key
    assert {key, ApiKey(f" {KEY}\n")} == {key}
    assert key != ApiKey("another")
    assert key != KEY


@pytest.mark.parametrize("text", ["", "  ", "two words", "line\nbreak", "schlüssel", "nul\0"])
def test_a_key_that_no_header_can_carry_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with pytest.raises(BadRequestError, match="OPENAI_API_KEY is not usable") as caught:
        ApiKey(text, source="OPENAI_API_KEY")
    assert not text.strip() or text not in caught.value.message


def test_an_unusable_key_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret one")
    with pytest.raises(BadRequestError, match="OPENAI_API_KEY is not usable") as caught:
        EmbeddingSettings.from_environment()
    assert "secret" not in caught.value.message
