"""The socket that a server listens at."""

from __future__ import annotations

import socket

import uvicorn

from omnigraph.server.main import listening_socket


def test_a_connection_sends_what_it_has_at_once() -> None:
    config = uvicorn.Config("nothing:app", host="127.0.0.1", port=0, log_config=None)
    with listening_socket(config) as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
