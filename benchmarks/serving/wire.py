"""A client that costs next to nothing, so that the server is measured and not its client."""

from __future__ import annotations

import json
import socket
from typing import Self


class Wire:
    """One connection that is kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def post(self, path: str, document: object) -> bytes:
        """The body of a response, which must be a success."""
        body = json.dumps(document).encode()
        head = (
            f"POST /graphs/default{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        status = self._replies.readline()
        size: int | None = None
        while line := self._replies.readline().strip():
            name, _, text = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(text)
        answer = b"".join(self._chunks()) if size is None else self._replies.read(size)
        if b" 200 " not in status:
            raise RuntimeError(f"{status.decode().strip()}: {answer[:500].decode()}")
        return answer

    def _chunks(self) -> list[bytes]:
        found = []
        while size := int(self._replies.readline(), 16):
            found.append(self._replies.read(size))
            self._replies.readline()
        self._replies.readline()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.close()
        self._socket.close()
