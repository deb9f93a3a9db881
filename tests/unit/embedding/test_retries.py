"""Which failures are tried again, how long the pauses are, and when the deadline ends it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence

import pytest

from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings, ProviderName
from omnigraph.embedding.contract import AttemptError, EmbedPurpose, connection_failed
from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure
from support.embedding_provider import (
    BREAK,
    HANG,
    Reply,
    StandIn,
    StillTime,
    client_of,
    error_reply,
    openai_reply,
)

GOOD = openai_reply([1])


def _embed(client: EmbeddingClient) -> list[tuple[float, ...]]:
    with client:
        return client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)


@pytest.mark.parametrize(
    "reply", [error_reply(429), error_reply(500), error_reply(503), Reply(529), BREAK]
)
def test_a_passing_failure_is_tried_again(stand_in: StandIn, time: StillTime, reply: Reply) -> None:
    stand_in.replies = [reply, reply, GOOD]
    assert _embed(client_of(time, ProviderName.OPENAI, stand_in.url)) == [(1.0,)]
    assert time.pauses_s == [0.2, 0.4]
    assert len({str(request.body) for request in stand_in.requests}) == 1


def test_a_timeout_is_tried_again(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [HANG, GOOD]
    assert _embed(client_of(time, ProviderName.OPENAI, stand_in.url, timeout_ms=80)) == [(1.0,)]
    assert time.pauses_s == [0.2]


def test_a_refused_connection_is_tried_again_until_the_attempts_end(time: StillTime) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(
            EmbeddingError, match="after 4 attempts: the connection failed"
        ) as caught:
            _embed(client_of(time, ProviderName.OPENAI, url))
    assert caught.value.failure is StorageFailure.TRANSIENT
    assert "OMNIGRAPH_EMBED_RETRY_ATTEMPTS" in caught.value.message
    assert time.pauses_s == [0.2, 0.4, 0.8]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 422])
def test_a_refusal_is_not_tried_again(stand_in: StandIn, time: StillTime, status: int) -> None:
    stand_in.replies = [error_reply(status, "dimensions are  not\nsupported")]
    with pytest.raises(EmbeddingError, match=f"after 1 attempt: .*HTTP {status}") as caught:
        _embed(client_of(time, ProviderName.OPENAI, stand_in.url))
    assert caught.value.failure is StorageFailure.CONFIGURATION
    assert ("dimensions are not supported" in caught.value.message) == (status not in (401, 403))
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize("reply", [Reply(404, b"<html>"), Reply(404, b'{"error": "gone"}')])
def test_an_unreadable_explanation_is_left_out(
    stand_in: StandIn, time: StillTime, reply: Reply
) -> None:
    stand_in.replies = [reply]
    with pytest.raises(EmbeddingError, match="failed after 1 attempt: HTTP 404; check"):
        _embed(client_of(time, ProviderName.OPENAI, stand_in.url))


@pytest.mark.parametrize("attempts", [0, 1])
def test_one_attempt_means_no_repetition(stand_in: StandIn, time: StillTime, attempts: int) -> None:
    stand_in.replies = [error_reply(500)]
    with pytest.raises(EmbeddingError, match="after 1 attempt: HTTP 500"):
        _embed(client_of(time, ProviderName.OPENAI, stand_in.url, retry_attempts=attempts))
    assert time.pauses_s == []


@pytest.mark.parametrize("host", ["exämple_", "a\x7f.example", "a..example", f"{'a' * 64}.example"])
def test_an_address_that_cannot_exist_is_not_tried_again(time: StillTime, host: str) -> None:
    with pytest.raises(EmbeddingError, match="after 1 attempt: the exchange failed") as caught:
        _embed(client_of(time, ProviderName.OPENAI, f"http://{host}/v1"))
    assert caught.value.failure is StorageFailure.CONFIGURATION
    assert time.pauses_s == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "carrier-pigeon://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere/certificates")],
)
def test_a_broken_network_variable_is_a_typed_error(
    time: StillTime, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(EmbeddingError, match="after 1 attempt: the exchange failed"):
        _embed(client_of(time, ProviderName.OPENAI, "http://127.0.0.1:1"))


class Failing:
    """A provider whose attempts take a given time and fail a given number of times."""

    texts_per_call = 2

    def __init__(self, time: StillTime, *, takes_s: float, failures: int) -> None:
        self.time = time
        self.takes_s = takes_s
        self.failures = failures
        self.timeouts_s: list[float] = []

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        self.timeouts_s.append(timeout_s)
        self.time.now_s += self.takes_s
        if len(self.timeouts_s) <= self.failures:
            raise connection_failed(OSError())
        return [[1.0] * dimension for _ in texts]

    def close(self) -> None:
        pass


def _client(provider: Failing, **settings: int) -> EmbeddingClient:
    time = provider.time
    return EmbeddingClient(
        provider,
        EmbeddingSettings(provider=ProviderName.MOCK, **settings),
        clock=time.clock,
        sleep=time.sleep,  # the one of the made-up clock: nobody waits
    )


def test_the_deadline_covers_attempts_and_pauses(time: StillTime) -> None:
    provider = Failing(time, takes_s=4.0, failures=9)
    client = _client(provider, deadline_ms=10_000, retry_backoff_ms=1_000)
    with pytest.raises(EmbeddingError, match=r"after 2 attempts.*OMNIGRAPH_EMBED_DEADLINE_MS"):
        _embed(client)
    # 4 s, a pause of 1 s, 4 s: the next pause of 2 s ends behind the deadline, so it is not taken.
    assert time.pauses_s == [1.0]
    assert provider.timeouts_s == [10.0, 5.0]


def test_an_attempt_gets_no_more_than_what_is_left(time: StillTime) -> None:
    provider = Failing(time, takes_s=3.0, failures=2)
    _embed(_client(provider, deadline_ms=10_000, timeout_ms=4_000))
    assert provider.timeouts_s == pytest.approx([4.0, 4.0, 3.4])


def test_a_pause_that_takes_too_long_leaves_an_attempt_a_moment(time: StillTime) -> None:
    provider = Failing(time, takes_s=1.0, failures=1)
    settings = EmbeddingSettings(provider=ProviderName.MOCK, deadline_ms=2_000)

    def oversleep(_: float) -> None:
        time.sleep(5.0)  # of the made-up clock: nobody waits

    oversleeping = EmbeddingClient(provider, settings, clock=time.clock, sleep=oversleep)
    _embed(oversleeping)
    assert provider.timeouts_s == [2.0, 0.001]


def test_without_a_deadline_only_the_attempts_count(time: StillTime) -> None:
    provider = Failing(time, takes_s=100.0, failures=13)
    _embed(_client(provider, deadline_ms=0, retry_attempts=14, retry_backoff_ms=100))
    doublings = [*range(11), 10, 10]
    assert time.pauses_s == pytest.approx([0.1 * 2**doubling for doubling in doublings])


def test_each_request_has_its_own_deadline(time: StillTime) -> None:
    provider = Failing(time, takes_s=4.0, failures=0)
    client = _client(provider, deadline_ms=5_000)
    assert len(client.embed(["a"] * 5, dimension=1, purpose=EmbedPurpose.DOCUMENT)) == 5
    assert provider.timeouts_s == [5.0] * 3


def test_a_trickling_answer_runs_into_the_timeout(stand_in: StandIn) -> None:
    """Each wait for bytes is short enough, but the answer as a whole is not."""
    ticks = iter(range(0, 10_000, 20))
    pauses: list[float] = []
    stand_in.replies = [GOOD] * 4
    still = StillTime()
    still.clock = lambda: float(next(ticks))  # type: ignore[method-assign]  # time that runs by itself
    still.sleep = pauses.append  # type: ignore[method-assign]  # the same
    client = client_of(still, ProviderName.OPENAI, stand_in.url, timeout_ms=10_000, deadline_ms=0)
    with pytest.raises(EmbeddingError, match="after 4 attempts: no answer within 10 s"):
        _embed(client)
    assert len(pauses) == 3


def test_every_attempt_is_logged(
    stand_in: StandIn, time: StillTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "omnigraph")
    stand_in.replies = [error_reply(503), GOOD]
    _embed(client_of(time, ProviderName.OPENAI, stand_in.url, model="m"))
    lines = [r.message for r in caplog.records if r.name.startswith("omnigraph")]
    start = "embedding provider=openai model=m dimension=1 texts=1"
    assert lines == [
        f"{start} attempt=1 elapsed_ms=0 outcome=status_503",
        f"{start} attempt=2 elapsed_ms=0 outcome=ok",
    ]


def test_the_log_has_the_time_and_the_outcome_of_a_refusal(
    time: StillTime, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(Failing):
        def request(self, texts: Sequence[str], **_: object) -> list[list[object]]:
            self.time.now_s += 1.5
            raise BadRequestError("not here")

    with pytest.raises(BadRequestError, match="not here"):
        _embed(_client(Refusing(time, takes_s=0, failures=0)))
    assert "attempt=1 elapsed_ms=1500 outcome=refused" in caplog.text


def test_a_provider_that_loses_a_text_is_found_out(time: StillTime) -> None:
    class Losing(Failing):
        def request(self, texts: Sequence[str], **_: object) -> list[list[object]]:
            return [[1.0]]

    with pytest.raises(EmbeddingError, match="1 vectors for 2 texts") as caught:
        _client(Losing(time, takes_s=0, failures=0)).embed(
            ["a", "b"], dimension=1, purpose=EmbedPurpose.QUERY
        )
    assert isinstance(caught.value.__cause__, AttemptError)
