"""Servers in processes of their own, which can be killed, and a client that costs next to nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from omnigraph.core.failpoints import VARIABLE

NURSERY = Path(__file__).parent / "children" / "server_nursery.py"
_ANNOUNCEMENT = "OMNIGRAPH_LISTEN_ADDR="
_HIDDEN = "OMNIGRAPH_"
_FLAT_ROUTES = ("/healthz", "/metrics")


def quiet_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without its settings, and with others."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_HIDDEN)}
    return kept | {"OMNIGRAPH_DURABILITY": "process", **more}


class ServerProcess:
    """`python -m omnigraph.server`, on a free port."""

    def __init__(self, store: Path | str, log: Path, *flags: str, **environment: str) -> None:
        with log.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "omnigraph.server", *arguments_for(store, flags)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=quiet_environment(environment),
            )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.address = announced(self._process.stdout)

    def wait(self) -> int:
        """The exit code, once there is one."""
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()


class Nursery:
    """Starts servers quickly: their modules are imported once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._alive: set[int] = set()
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(NURSERY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=quiet_environment({}),
        )

    def start(
        self, store: Path | str, *flags: str, failpoint: str = "", **environment: str
    ) -> Newborn:
        """A server that listens."""
        self._count += 1
        pipe = self._folder / f"out-{self._count}"
        os.mkfifo(pipe)
        settings = {VARIABLE: failpoint, **environment}
        pid = self._ask(
            arguments=arguments_for(store, flags),
            environment=settings,
            out=str(pipe),
            errors=str(self._folder / "log"),
        )
        self._alive.add(pid)
        with pipe.open(encoding="utf-8") as lines:
            return Newborn(self, pid, announced(lines))

    def wait(self, pid: int) -> int:
        """The exit code of a server, once there is one; the negative signal if one ended it."""
        code = self._ask(wait=pid)
        self._alive.discard(pid)
        return code

    def log(self) -> str:
        """What the servers logged."""
        return (self._folder / "log").read_text(encoding="utf-8")

    def close(self) -> None:
        """End what is left."""
        for pid in list(self._alive):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)
        self._process.communicate()

    def _ask(self, **job: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@dataclass(frozen=True, slots=True)
class Newborn:
    """A server of the nursery."""

    nursery: Nursery
    pid: int
    address: tuple[str, int]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.send(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        return self.nursery.wait(self.pid)


def arguments_for(store: Path | str, flags: Iterable[str]) -> list[str]:
    return ["--store", str(store), "--bind", "127.0.0.1:0", *flags]


def announced(lines: Iterable[str]) -> tuple[str, int]:
    """The address that a server prints as soon as it listens."""
    for line in lines:
        if line.startswith(_ANNOUNCEMENT):
            host, _, port = line.strip().removeprefix(_ANNOUNCEMENT).rpartition(":")
            return host, int(port)
    raise AssertionError("the server ended before it listened; its log says why")


def resident_bytes(pid: int) -> int:
    """The memory that a process holds now."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response whose body is complete."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection that is kept: requests one after the other, nothing is retried."""

    def __init__(
        self, address: tuple[str, int], token: str | None = None, *, is_slow: bool = False
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(120)
        if is_slow:
            # Little arrives before it is read.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")
        self.token = token

    def get(self, path: str, **query: str) -> Answer:
        words = "&".join(f"{name}={quote(text)}" for name, text in query.items())
        return self._exchange("GET", f"{path}?{words}" if words else path, b"", {})

    def post(self, path: str, document: object, **headers: str) -> Answer:
        body = json.dumps(document).encode()
        return self._exchange("POST", path, body, {"Content-Type": "application/json", **headers})

    def post_lines(self, path: str, body: bytes) -> Answer:
        return self._exchange("POST", path, body, {"Content-Type": "application/x-ndjson"})

    def begin(self, path: str, document: object) -> None:
        """Send a request; `finish` takes its response."""
        body = json.dumps(document).encode()
        self._send("POST", path, body, {"Content-Type": "application/json"})

    def finish(self) -> Answer:
        """The response of a request that was begun.

        Raises:
            ConnectionError: the server went away before the response was complete.
        """
        status = self._line()
        headers = {}
        while line := self._line():
            name, _, text = line.partition(":")
            headers[name.lower()] = text.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self._exactly(int(headers["content-length"]))
        return Answer(int(status.split(" ")[1]), headers, body)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._send(method, path, body, headers)
        return self.finish()

    def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        place = "" if path in _FLAT_ROUTES else "/graphs/default"
        lines = [f"{method} {place}{path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        if self.token is not None:
            lines.append(f"Authorization: Bearer {self.token}")
        lines.append(f"Content-Length: {len(body)}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def _line(self) -> str:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the response is cut short")
        return line.decode("latin-1").rstrip("\r\n")

    def _chunks(self) -> Iterable[bytes]:
        while size := int(self._line(), 16):
            yield self._exactly(size)
            self._line()
        self._line()

    def _exactly(self, size: int) -> bytes:
        body = self._replies.read(size)
        if len(body) != size:
            raise ConnectionResetError("the response is cut short")
        return body


def wait_for_metrics(address: tuple[str, int], *wanted: str, token: str | None = None) -> None:
    """Until a server counts what it should."""
    with Wire(address, token) as wire:
        while not all(text in wire.get("/metrics").body.decode() for text in wanted):
            pass
