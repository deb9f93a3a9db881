"""Providers behind an HTTP interface: the shape of OpenAI, which many gateways speak, and the shape of Gemini."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from omnigraph.search.embedding.contract import EmbedPurpose
from omnigraph.search.embedding.failures import undecodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.search.embedding.keys import ApiKey
    from omnigraph.search.embedding.transport import JsonTransport

_GEMINI_TASKS = {
    EmbedPurpose.QUERY: "RETRIEVAL_QUERY",
    EmbedPurpose.DOCUMENT: "RETRIEVAL_DOCUMENT",
}


class OpenAiProvider:
    """`POST {base}/embeddings` with a bearer key; several texts per request."""

    #: Few enough that 32 texts of the longest length that the models take stay below the token limit of a request.
    texts_per_call = 32

    def __init__(self, transport: JsonTransport, *, base_url: str, model: str, key: ApiKey) -> None:
        self._transport = transport
        self._url = f"{base_url}/embeddings"
        self._model = model
        self._key = key

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """The vectors of one request, ordered by the `index` of each; `purpose` is not part of this interface.

        Raises:
            AttemptError: The exchange failed, or the answer does not hold one vector per text.
        """
        answer = self._transport.post(
            self._url,
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

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class GeminiProvider:
    """`POST {base}/models/{model}:embedContent` with the key in `x-goog-api-key`; one text per request."""

    texts_per_call = 1

    def __init__(self, transport: JsonTransport, *, base_url: str, model: str, key: ApiKey) -> None:
        self._transport = transport
        self._url = f"{base_url}/models/{quote(model, safe='')}:embedContent"
        self._key = key

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """The vector of the one text.

        Raises:
            AttemptError: The exchange failed, or the answer does not hold a vector.
        """
        (text,) = texts
        answer = self._transport.post(
            self._url,
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

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


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
