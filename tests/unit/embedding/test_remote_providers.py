"""What goes over the wire to each provider, and what is read from its answer."""

from __future__ import annotations

import httpx
import pytest

from omnigraph.embedding.client import ProviderName
from omnigraph.embedding.contract import EmbedPurpose
from omnigraph.errors import EmbeddingError, StorageFailure
from support.embedding_provider import (
    KEY,
    Reply,
    StandIn,
    StillTime,
    client_of,
    gemini_reply,
    json_reply,
    openai_reply,
)

OPENAI_SHAPED = [ProviderName.OPENAI_COMPATIBLE, ProviderName.OPENAI]


@pytest.mark.parametrize("provider", OPENAI_SHAPED)
def test_the_openai_shape(stand_in: StandIn, time: StillTime, provider: ProviderName) -> None:
    stand_in.replies = [openai_reply([3, 4])]
    with client_of(time, provider, stand_in.url, model="some/model") as client:
        vectors = client.embed(["ein Wörtchen"], dimension=2, purpose=EmbedPurpose.QUERY)
    (request,) = stand_in.requests
    assert (request.method, request.path) == ("POST", "/v1/embeddings")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert "x-goog-api-key" not in request.headers
    assert request.body == {"model": "some/model", "input": ["ein Wörtchen"], "dimensions": 2}
    assert vectors == [pytest.approx((0.6, 0.8))]


@pytest.mark.parametrize(
    ("purpose", "task"),
    [(EmbedPurpose.QUERY, "RETRIEVAL_QUERY"), (EmbedPurpose.DOCUMENT, "RETRIEVAL_DOCUMENT")],
)
def test_the_gemini_shape(
    stand_in: StandIn, time: StillTime, purpose: EmbedPurpose, task: str
) -> None:
    stand_in.replies = [gemini_reply([3, 4])]
    with client_of(time, ProviderName.GEMINI, stand_in.url) as client:
        vectors = client.embed(["words"], dimension=2, purpose=purpose)
    (request,) = stand_in.requests
    assert (request.method, request.path) == ("POST", "/v1/models/gemini-embedding-2:embedContent")
    assert request.headers["x-goog-api-key"] == KEY
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert request.body == {
        "content": {"parts": [{"text": "words"}]},
        "taskType": task,
        "outputDimensionality": 2,
    }
    assert vectors == [pytest.approx((0.6, 0.8))]


def test_the_name_of_a_model_cannot_change_the_path(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [gemini_reply([1])]
    with client_of(time, ProviderName.GEMINI, stand_in.url, model="../x?y") as client:
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    assert stand_in.requests[0].path == "/v1/models/..%2Fx%3Fy:embedContent"


def test_vectors_are_matched_to_texts_by_index(stand_in: StandIn, time: StillTime) -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    stand_in.replies = [json_reply({"data": data})]
    with client_of(time, ProviderName.OPENAI, stand_in.url) as client:
        vectors = client.embed(["a", "b"], dimension=2, purpose=EmbedPurpose.DOCUMENT)
    assert vectors == [(1.0, 0.0), (0.0, 1.0)]


def test_many_texts_travel_in_several_requests(stand_in: StandIn, time: StillTime) -> None:
    texts = [f"text {number}" for number in range(40)]
    angles = [[number + 1.0, 1.0] for number in range(40)]
    stand_in.replies = [openai_reply(*angles[:32]), openai_reply(*angles[32:])]
    with client_of(time, ProviderName.OPENAI, stand_in.url) as client:
        vectors = client.embed(texts, dimension=2, purpose=EmbedPurpose.DOCUMENT)
    assert [request.body["input"] for request in stand_in.requests] == [texts[:32], texts[32:]]
    assert [x / y for x, y in vectors] == pytest.approx([x / y for x, y in angles])


def test_gemini_takes_one_text_per_request(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [gemini_reply([1, 0]), gemini_reply([0, 1])]
    with client_of(time, ProviderName.GEMINI, stand_in.url) as client:
        vectors = client.embed(["a", "b"], dimension=2, purpose=EmbedPurpose.DOCUMENT)
    assert vectors == [(1.0, 0.0), (0.0, 1.0)]
    assert len(stand_in.requests) == 2


def test_no_texts_need_no_request(stand_in: StandIn, time: StillTime) -> None:
    with client_of(time, ProviderName.OPENAI, stand_in.url) as client:
        assert client.embed([], dimension=2, purpose=EmbedPurpose.QUERY) == []
    assert stand_in.requests == []


@pytest.mark.parametrize(
    ("provider", "reply"),
    [
        (ProviderName.OPENAI, Reply(body=b"{")),
        (ProviderName.OPENAI, Reply(body=b"\xff\xfe")),
        (ProviderName.OPENAI, Reply(body=b"[" * 100_000)),
        (ProviderName.OPENAI, Reply(body=b"no gzip at all", headers={"Content-Encoding": "gzip"})),
        (ProviderName.OPENAI, json_reply([])),
        (ProviderName.OPENAI, json_reply({"data": {}})),
        (ProviderName.OPENAI, json_reply({"data": []})),
        (ProviderName.OPENAI, json_reply({"data": [{"embedding": [1]}]})),
        (ProviderName.OPENAI, json_reply({"data": [{"index": [], "embedding": [1]}]})),
        (ProviderName.OPENAI, json_reply({"data": [{"index": 1, "embedding": [1]}]})),
        (ProviderName.OPENAI, json_reply({"data": [{"index": 0, "embedding": "AACAPw=="}]})),
        (ProviderName.OPENAI, json_reply({"data": [{"index": 0, "embedding": [1]}] * 2})),
        (ProviderName.GEMINI, json_reply({"embedding": [1]})),
        (ProviderName.GEMINI, json_reply({"embedding": {"values": None}})),
        (ProviderName.GEMINI, Reply(body=b"")),
    ],
)
def test_an_answer_of_another_shape_is_refused_at_once(
    stand_in: StandIn, time: StillTime, provider: ProviderName, reply: Reply
) -> None:
    stand_in.replies = [reply]
    with (
        client_of(time, provider, stand_in.url) as client,
        pytest.raises(EmbeddingError, match="after 1 attempt: the answer cannot be read") as caught,
    ):
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    assert caught.value.failure is StorageFailure.PERMANENT
    assert len(stand_in.requests) == 1


def test_the_connection_pool_is_made_late_shared_and_closed(
    stand_in: StandIn, time: StillTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[httpx.Client] = []

    class Counted(httpx.Client):
        def __init__(self, **options: bool) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx, "Client", Counted)
    stand_in.replies = [openai_reply([1])] * 3
    client = client_of(time, ProviderName.OPENAI, stand_in.url)
    assert made == []
    client.close()
    for _ in range(2):
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    client.close()
    assert [pool.is_closed for pool in made] == [True]
    client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    client.close()
    assert [pool.is_closed for pool in made] == [True, True]


def test_a_redirect_is_not_followed(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [Reply(307, headers={"Location": f"{stand_in.url}/elsewhere"})]
    with (
        client_of(time, ProviderName.OPENAI, stand_in.url) as client,
        pytest.raises(EmbeddingError, match="after 1 attempt: HTTP 307"),
    ):
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    assert len(stand_in.requests) == 1
