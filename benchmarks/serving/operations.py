"""The graph, and the same operations on it: embedded, through a plain socket, and through the client of the package."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from omnigraph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnigraph.client.remote_graph import RemoteGraph
    from serving.wire import Wire

SCHEMA = "node Person { name: String @key  age: I32  city: String }\nedge Knows: Person -> Person"
POINT = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age, $p.city } }"
HOPS = """query q($n: String) {
  match { $p: Person { name: $n } $p knows $f $f knows $g } return { count($g) as walks } }"""
ROWS = "query q() { match { $p: Person } return { $p.name, $p.age, $p.city } limit 1000 }"
INSERT = 'query q($n: String) { insert Person { name: $n, age: 1, city: "new" } }'

_FRIENDS = 10
_numbers = count()


def make_graph(root: Path, persons: int) -> None:
    """A graph in which everybody knows ten others."""
    lines = root.with_suffix(".jsonl")
    with lines.open("w", encoding="utf-8") as file:
        for number in range(persons):
            person = {"name": f"p{number}", "age": number % 90, "city": f"city {number % 100}"}
            file.write(json.dumps({"type": "Person", "data": person}) + "\n")
        for number in range(persons * _FRIENDS):
            source, target = number // _FRIENDS, (number * 7919 + 13) % persons
            edge = {"edge": "Knows", "from": f"p{source}", "to": f"p{target}", "data": {}}
            file.write(json.dumps(edge) + "\n")
    with Graph.init(root, SCHEMA) as graph:
        graph.load(lines, mode="append", engine="local")
    lines.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do, in each of the ways that are measured; each gets the number of the call."""

    name: str
    #: How many calls one measurement of all connections together makes.
    calls: int
    connections: tuple[int, ...]
    embedded: Callable[[Graph, int], object]
    http: Callable[[Wire, int], object]
    client: Callable[[RemoteGraph, int], object]
    #: What the p50 of one connection may cost, as a multiple of the embedded call.
    target: float | None = None


def operations(persons: int) -> list[Operation]:
    """Everything that is measured."""

    def who(number: int) -> dict[str, object]:
        return {"n": f"p{number * 17 % persons}"}

    def new() -> dict[str, object]:
        return {"n": f"new {next(_numbers)}"}

    def ask(query: str, params: dict[str, object]) -> dict[str, object]:
        return {"query": query, "params": params}

    def export(graph: Graph | RemoteGraph) -> int:
        sink = io.StringIO()
        graph.export(sink)
        return sink.tell()

    many = (1, 8, 64)
    return [
        Operation(
            name="point read",
            calls=1280,
            connections=many,
            embedded=lambda graph, n: graph.query(POINT, who(n)).to_json(),
            http=lambda wire, n: wire.post("/query", ask(POINT, who(n))),
            client=lambda graph, n: graph.query(POINT, who(n)).to_json(),
            target=4.0,
        ),
        Operation(
            name="two hops",
            calls=1280,
            connections=many,
            embedded=lambda graph, n: graph.query(HOPS, who(n)).to_json(),
            http=lambda wire, n: wire.post("/query", ask(HOPS, who(n))),
            client=lambda graph, n: graph.query(HOPS, who(n)).to_json(),
            target=4.0,
        ),
        Operation(
            name="1,000 rows",
            calls=320,
            connections=many,
            embedded=lambda graph, _: graph.query(ROWS).to_json(),
            http=lambda wire, _: wire.post("/query", ask(ROWS, {})),
            client=lambda graph, _: graph.query(ROWS).to_json(),
            target=2.0,
        ),
        Operation(
            name="one-row insert",
            calls=64,
            connections=many,
            embedded=lambda graph, _: graph.mutate(INSERT, new()),
            http=lambda wire, _: wire.post("/mutate", ask(INSERT, new())),
            client=lambda graph, _: graph.mutate(INSERT, new()),
            target=1.3,
        ),
        Operation(
            name="export",
            calls=8,
            # One at a time is what a server allows per graph.
            connections=(1,),
            embedded=lambda graph, _: export(graph),
            http=lambda wire, _: wire.post("/export", {}),
            client=lambda graph, _: export(graph),
            target=1.5,
        ),
    ]
