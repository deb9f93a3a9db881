"""Servers in processes of their own, which can be killed, and a client that costs next to nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from omnigraph import Graph
from omnigraph.commit.expectations import PHYSICAL_KINDS
from omnigraph.core.failpoints import VARIABLE

NURSERY = Path(__file__).parent / "children" / "server_nursery.py"
ANNOUNCEMENT = "OMNIGRAPH_LISTEN_ADDR="
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
        with (folder / "log").open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(NURSERY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=quiet_environment({}),
            )

    def start(self, store: Path | str, *flags: str, failpoint: str = "", **environment: str) -> Newborn:
        """A server of a store that listens."""
        return self.serve(arguments_for(store, flags), {VARIABLE: failpoint, **environment})

    def serve(self, arguments: list[str], environment: Mapping[str, str], folder: Path | None = None) -> Newborn:
        """`omnigraph-server` with any arguments, in a folder."""
        self._count += 1
        pipe = self._folder / f"out-{self._count}"
        os.mkfifo(pipe)
        job = {"arguments": arguments, "environment": dict(environment), "folder": str(folder or self._folder)}
        pid = self._ask(**job, out=str(pipe), errors=str(self._folder / "log"))
        self._alive.add(pid)
        with pipe.open(encoding="utf-8") as lines:
            said = list(islice(lines, 3))
            return Newborn(self, pid, announced(said), "".join(said))

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
    #: What it says when it listens.
    said: str

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
        if line.startswith(ANNOUNCEMENT):
            host, _, port = line.strip().removeprefix(ANNOUNCEMENT).rpartition(":")
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

    def __init__(self, address: tuple[str, int], token: str | None = None, *, is_slow: bool = False) -> None:
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


# ---- A graph that tells whether a read saw half of a write, or a write was lost; and writers that try to make it so


#: A left, its right and the edge between them are always written together.
SCHEMA = """
node Left { name: String @key  writer: I32 }
node Right { name: String @key  writer: I32 }
node Counter { name: String @key  value: I32 }
edge Pairs: Left -> Right
"""
ADD_PAIR = """query add($name: String, $writer: I32) {
    insert Left { name: $name, writer: $writer }
    insert Right { name: $name, writer: $writer }
    insert Pairs { from: $name, to: $name }
}"""
COUNT_LEFTS = "query lefts() { match { $l: Left } return { count($l) as count } }"
LEFTS = "query lefts() { match { $l: Left } return { $l.name as name } order { $l.name } }"
RIGHTS = "query rights() { match { $r: Right } return { $r.name as name } order { $r.name } }"
HALVES = "query halves() { match { $l: Left  not { $l pairs $r } } return { $l.name as name } }"
ONE = "query one($name: String) { match { $l: Left { name: $name } $l pairs $r } return { $r.name as name } }"
COUNT = "query count($name: String) { match { $c: Counter { name: $name } } return { $c.value as value } }"
SET = "query set($name: String, $value: I32) { update Counter set { value: $value } where name = $name }"
COUNTERS = ("careful", "contended")
DATASETS = ("node:Left", "node:Right", "edge:Pairs")


def make_world(root: Path) -> Path:
    """A graph with two counters at zero and one pair."""
    rows: list[dict[str, Any]] = [{"type": "Counter", "data": {"name": name, "value": 0}} for name in COUNTERS]
    rows += [{"type": side, "data": {"name": "first", "writer": 0}} for side in ("Left", "Right")]
    rows.append({"edge": "Pairs", "from": "first", "to": "first", "data": {}})
    lines = root.with_suffix(".jsonl")
    lines.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    with Graph.init(root, SCHEMA) as graph:
        graph.load(lines, mode="append", engine="local")
    return root


@dataclass(slots=True)
class Ledger:
    """What one writer knows about its writes."""

    #: Names of pairs, each with the commit that the server acknowledged.
    pairs: dict[str, str] = field(default_factory=dict)
    #: Commits of acknowledged updates of a counter, with the value that each set.
    updates: list[tuple[str, int]] = field(default_factory=list)
    #: Pairs that were sent and never answered.
    in_doubt: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)

    @property
    def commits(self) -> list[str]:
        return [*self.pairs.values(), *(commit for commit, _ in self.updates)]


def commit_of(answer: Answer) -> str:
    """The commit that a receipt names."""
    assert answer.status == 200, answer.body
    commit_id: str = answer.json()["commit"]["graph_commit_id"]
    return commit_id


def refusal_of(answer: Answer) -> tuple[int, str]:
    """Status and kind of a refusal, which must have the form that all have."""
    document = answer.json()
    assert document["error"], answer.body
    return answer.status, document["kind"]


def asked(wire: Wire, query: str, params: Mapping[str, object] | None = None, **target: str) -> tuple[list[Any], str]:
    """The rows that a query finds, and the commit that it read."""
    answer = wire.post("/query", {"query": query, **({} if params is None else {"params": params}), **target})
    assert answer.status == 200, answer.body
    return answer.json()["rows"], answer.json()["graph_commit_id"]


def names(wire: Wire, query: str, **target: str) -> tuple[list[str], str]:
    """The names that a query finds, and the commit that it read."""
    rows, commit_id = asked(wire, query, **target)
    return [row["name"] for row in rows], commit_id


def partner(wire: Wire, name: str) -> str | None:
    """The right that belongs to a left."""
    rows, _ = asked(wire, ONE, {"name": name})
    return rows[0]["name"] if len(rows) == 1 else None


def count_pairs(wire: Wire) -> int:
    """How many pairs there are."""
    count: int = asked(wire, COUNT_LEFTS)[0][0]["count"]
    return count


def counter_at(wire: Wire, name: str) -> tuple[int, str]:
    """The value of a counter, and the commit at which it has it."""
    rows, commit_id = asked(wire, COUNT, {"name": name})
    return rows[0]["value"], commit_id


def check_whole(wire: Wire) -> None:
    """What every reader must see at any time: no half of a pair, in whichever way it looks."""
    answer = wire.get("/snapshot")
    assert answer.status == 200, answer.body
    counts = {f"{item['entity_kind']}:{item['type_name']}": item["entity_count"] for item in answer.json()["datasets"]}
    assert len({counts[key] for key in DATASETS}) == 1, counts
    assert names(wire, HALVES)[0] == []
    lefts, commit_id = names(wire, LEFTS)
    assert names(wire, RIGHTS, snapshot=commit_id) == (lefts, commit_id)


def logical_history(wire: Wire) -> list[str]:
    """The commits that changed rows; writers fold small files in commits of their own."""
    commits = wire.get("/commits").json()["commits"]
    return [item["graph_commit_id"] for item in commits if item["kind"] not in PHYSICAL_KINDS]


def check_ledgers(wire: Wire, ledgers: Iterable[Ledger], before: Iterable[str]) -> None:
    """Whatever was acknowledged is there and in the history once, and the history holds nothing else."""
    kept = list(ledgers)
    check_whole(wire)
    present = set(names(wire, LEFTS)[0]) - {"first"}
    acknowledged = {name for ledger in kept for name in ledger.pairs}
    doubtful = {name for ledger in kept for name in ledger.in_doubt}
    assert acknowledged <= present, "an acknowledged write is lost"
    assert present <= acknowledged | doubtful, "a write happened that was refused"
    history = logical_history(wire)
    assert len(history) == len(set(history))
    commits = [commit for ledger in kept for commit in ledger.commits]
    assert len(commits) == len(set(commits)), "two writes were acknowledged with one commit"
    further = set(history) - set(commits) - set(before)
    assert set(commits) <= set(history), "the commit of an acknowledged write is lost"
    assert len(further) <= len(doubtful), "there are commits that nobody asked for"
