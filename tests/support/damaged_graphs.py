"""A small graph that has a file of every kind, and the questions that are asked of it."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from omnigraph import Graph
from omnigraph.engine.tables import traversal_index
from omnigraph.errors import OmniError, StorageError
from omnigraph.graph import reads
from omnigraph.maintenance import reading_aside
from omnigraph.storage._failures import without_advice
from omnigraph.storage.location import parse_location

SCHEMA = """
node Person {
    name: String @key
    age: I64? @index
    bio: String? @index
    seen: DateTime?
    visits: [DateTime]?
    vec: Vector(8)? @index
    photo: Blob?
}
node City {
    title: String @key
    size: U64?
}
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""

PEOPLE = 60
#: Blobs by person: inside the data file, in a shared file and in a file of its own.
BLOB_SIZES = {1: 20, 2: 80_000, 3: 5_000_000}


def blob(size: int) -> bytes:
    """Bytes of a blob."""
    return bytes(range(251)) * (size // 251) + b"end"


def _lines() -> str:
    records: list[dict[str, Any]] = [
        {"type": "City", "data": {"title": f"city {n}", "size": n * 10**17}} for n in range(5)
    ]
    for n in range(PEOPLE):
        data: dict[str, Any] = {
            "name": f"person {n:03}",
            "age": n,
            "bio": f"likes tea and number {n}",
            "seen": f"2020-01-01T10:11:{n:02}Z",
            "visits": [f"2020-01-02T10:11:{n:02}Z"],
            "vec": [float((n * k) % 7) for k in range(1, 9)],
        }
        if n in BLOB_SIZES:
            data["photo"] = "base64:" + b64encode(blob(BLOB_SIZES[n])).decode()
        records.append({"type": "Person", "data": data})
    for n in range(PEOPLE):
        for step in (1, 7):
            records.append(
                {
                    "edge": "Knows",
                    "from": f"person {n:03}",
                    "to": f"person {(n + step) % PEOPLE:03}",
                    "data": {"since": "2020-01-01"},
                }
            )
        records.append({"edge": "LivesIn", "from": f"person {n:03}", "to": f"city {n % 5}"})
    return "\n".join(map(json.dumps, records))


def make_graph(folder: Path) -> None:
    """Loads, mutations, deletions, blobs, indexes, a fork with data of its own, and a kept traversal index."""
    source = folder.parent / "people.jsonl"
    source.write_text(_lines(), encoding="utf-8")
    kept = traversal_index.PERSIST_MIN_EDGES
    traversal_index.PERSIST_MIN_EDGES = reads.PERSIST_MIN_EDGES = 10
    try:
        with Graph.init(str(folder), SCHEMA) as graph:
            graph.load(str(source), mode="append", engine="local")
            graph.ensure_indices()
            graph.mutate("query gone() { delete Person where age = 13 }")
            graph.create_branch("draft")
            graph.mutate('query add() { insert Person { name: "drafted", age: 77 } }', branch="draft")
            graph.mutate("query gone() { delete Person where age = 5 }", branch="draft")
            graph.ensure_indices()
            ask(graph)
    finally:
        traversal_index.PERSIST_MIN_EDGES = reads.PERSIST_MIN_EDGES = kept


QUERIES = {
    "all": "query q() { match { $p: Person } return { $p.name, $p.age, $p.bio } order { $p.name } }",
    "key": 'query q() { match { $p: Person { name: "person 003" } } return { $p.age } }',
    "range": "query q() { match { $p: Person  $p.age > 40 } return { $p.name } order { $p.name } }",
    "hop": """query q() {
        match { $p: Person  $p knows $q } return { $p.name, $q.name } order { $p.name, $q.name }
    }""",
    "city": """query q() {
        match { $p: Person  $p livesIn $c  $c.size > 0 }
        return { $c.title, count($p) as n } order { $c.title }
    }""",
    "text": """query q() {
        match { $p: Person  search($p.bio, "number 17") } return { $p.name } order { $p.name }
    }""",
    "near": """query q() {
        match { $p: Person } return { $p.name }
        order { nearest($p.vec, [1, 2, 3, 4, 5, 6, 0, 1]) } limit 5
    }""",
}


def questions() -> list[str]:
    """What is asked of a graph, as names for `ask_one`."""
    blobs = [f"blob {number}" for number in BLOB_SIZES]
    return [f"{branch}/{name}" for branch in ("main", "draft") for name in (*QUERIES, *blobs)]


def ask_one(graph: Graph, question: str) -> object:
    """The answer to one question, as plain values."""
    branch, _, name = question.partition("/")
    if name in QUERIES:
        return list(graph.query(QUERIES[name], branch=branch).json_rows())
    number = int(name.removeprefix("blob "))
    data = graph.read_blob("node:Person", f"person {number:03}", "photo", branch=branch)
    return [len(data), crc32(data)]


def ask(graph: Graph) -> dict[str, object]:
    """The answers to everything."""
    return {question: ask_one(graph, question) for question in questions()}


# ---- Ways to damage a file, chosen by a seed


KINDS = ("flip", "flip", "flip_many", "zero", "cut", "empty", "random", "swap", "grow", "gone")


def harm(path: Path, kind: str, random: Random, others: list[Path]) -> bool:
    """Damage one file; whether its bytes are different now."""
    before = path.read_bytes()
    data = bytearray(before)
    if kind == "gone":
        path.unlink()
        return True
    if kind == "flip" and data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "flip_many" and data:
        for _ in range(20):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "zero" and data:
        begin = random.randrange(len(data))
        end = min(len(data), begin + random.choice((4, 64, 4096)))
        data[begin:end] = bytes(end - begin)
    elif kind == "cut" and data:
        del data[random.randrange(len(data)) :]
    elif kind == "empty":
        data.clear()
    elif kind == "random":
        data = bytearray(random.randbytes(len(data)))
    elif kind == "swap":
        alike = [other for other in others if other.suffix == path.suffix and other != path]
        if alike:
            data = bytearray(random.choice(alike).read_bytes())
    elif kind == "grow":
        data += random.randbytes(random.choice((1, 8, 300)))
    path.unlink()
    path.write_bytes(data)
    os.utime(path, (0, 0))
    return bytes(data) != before


# ---- Reading where `verify` would use another process, which takes a second to start


class InThisProcess:
    """Answers as an `AsideReader` does."""

    def __init__(self, uri: str) -> None:
        self._operations = reading_aside._operations(parse_location(uri))

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, operation: str, **arguments: object) -> Any:
        try:
            return json.loads(json.dumps(self._operations[operation](**arguments)))
        except OmniError as error:
            raise StorageError(without_advice(error)) from error
