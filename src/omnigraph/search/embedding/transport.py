"""JSON over HTTP with one shared connection pool; failures come out classified by type, never by text."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from omnigraph.errors import StorageFailure
from omnigraph.search.embedding.failures import (
    AttemptError,
    connection_failed,
    timed_out,
    undecodable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from omnigraph.search.embedding.keys import ApiKey

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
        self,
        url: str,
        body: Mapping[str, object],
        *,
        headers: Mapping[str, str],
        key: ApiKey,
        timeout_s: float,
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
        with self._pool().stream(
            "POST", url, json=body, headers=headers, timeout=timeout_s
        ) as response:
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
        reason = f"the provider refused the API key (HTTP {status})"
        return AttemptError(outcome, reason, StorageFailure.CONFIGURATION)
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
