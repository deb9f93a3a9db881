"""The connections of a client, which outlive `close` while answers are read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

import httpx


class Pool:
    """Connections that are opened when they are needed, also after they were given back. Thread-safe.

    Those on which an answer is read are closed when it was read or dropped: a result of a remote graph that is closed
    can be read to its end, like one of an embedded graph.
    """

    def __init__(self, new_client: Callable[[], httpx.Client]) -> None:
        self._new_client = new_client
        self._lock = Lock()
        self._current: _Client | None = None

    def send(self, send: Callable[[httpx.Client], httpx.Response]) -> httpx.Response:
        """The answer that `send` gets; closing it ends its use of the connections."""
        with self._lock:
            if self._current is None:
                self._current = _Client(self._new_client())
            used = self._current
            used.answers += 1
        try:
            response = send(used.client)
            assert isinstance(response.stream, httpx.SyncByteStream), "a client of this process is synchronous"
            response.stream = _Body(response.stream, lambda: self._end(used))
        except BaseException:  # also after an interrupt: only this ends the use
            self._end(used)
            raise
        return response

    def give_back(self) -> None:
        """Close the connections, now or with the last answer that is read from them."""
        with self._lock:
            given_back, self._current = self._current, None
            is_unused = given_back is not None and not given_back.answers
        if given_back is not None and is_unused:
            given_back.client.close()

    def _end(self, used: _Client) -> None:
        with self._lock:
            used.answers -= 1
            is_unused = not used.answers and used is not self._current
        if is_unused:
            used.client.close()


class _Client:
    """Connections, and the number of answers that are asked for or read."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.answers = 0


class _Body(httpx.SyncByteStream):
    """The body of an answer. A response closes it once."""

    def __init__(self, body: httpx.SyncByteStream, end: Callable[[], None]) -> None:
        self._body = body
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        yield from self._body

    def close(self) -> None:
        """Close the body, and end the use of its connection."""
        try:
            self._body.close()
        finally:
            self._end()
