"""Small graphs that the read commands are tried on, and what a command left behind."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.graph.graph import Graph

#: One column of every type that a result can show; all of them but the key nullable.
VALUES = """
node Thing {
    name: String @key
    text: String?
    flag: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    at: DateTime?
    stage: enum(draft, final)?
    tags: [String]?
    counts: [I64]?
    days: [Date]?
    ats: [DateTime]?
    flags: [Bool]?
    vec: Vector(3)?
}
"""
_TYPES = {
    "name": "String",
    "text": "String",
    "flag": "Bool",
    "i32": "I32",
    "i64": "I64",
    "u32": "U32",
    "u64": "U64",
    "f32": "F32",
    "f64": "F64",
    "day": "Date",
    "at": "DateTime",
    "stage": "String",
    "tags": "[String]",
    "counts": "[I64]",
    "days": "[Date]",
    "ats": "[DateTime]",
    "flags": "[Bool]",
    "vec": "Vector(3)",
}

#: A row with every value, one whose values are empty or just safe for JSON, and one without any.
FULL: dict[str, Any] = {
    "name": "full",
    "text": 'say "hi", then\ngo\tnow\rok',
    "flag": True,
    "i32": -5,
    "i64": 2**53,
    "u32": 2**32 - 1,
    "u64": 2**63 - 1,
    "f32": 0.5,
    "f64": 1e300,
    "day": "2024-02-29",
    "at": "2024-02-29T12:34:56.789Z",
    "stage": "draft",
    "tags": ["x", 'é, "y"\n'],
    "counts": [1, -(2**53)],
    "days": ["2024-01-01", "1969-12-31"],
    "ats": ["1969-12-31T23:59:59.999Z", "2024-01-01T00:00:00.000Z"],
    "flags": [True, False],
    "vec": [0.5, 2.0, -3.25],
}
EMPTY: dict[str, Any] = {
    "name": "empty",
    "text": "",
    "flag": False,
    "i32": 0,
    "i64": -(2**53) + 1,
    "u64": 2**53 - 1,
    "f64": 3.0,
    "at": "1970-01-01T00:00:00.000Z",
    "tags": [],
    "days": [],
}
NULLS: dict[str, Any] = {"name": "nulls"}


def all_values(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON shows it: large integers as text, absent values null."""

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(item) for item in value]
        is_large = isinstance(value, int) and abs(value) > 2**53 - 1
        return str(value) if is_large else value

    return {name: shown(row.get(name)) for name in _TYPES}


def insert_thing(graph: Graph, row: dict[str, Any], branch: str = "main") -> None:
    declared = ", ".join(f"${name}: {_TYPES[name]}" for name in row)
    given = ", ".join(f"{name}: ${name}" for name in row)
    graph.mutate(f"query q({declared}) {{ insert Thing {{ {given} }} }}", row, branch=branch)


def values_store(folder: Path) -> str:
    """A graph with the three rows of values."""
    with Graph.init(folder / "values.omni", VALUES) as graph:
        for row in (FULL, EMPTY, NULLS):
            insert_thing(graph, row)
        return graph.uri


#: Every property of `Thing`, in the order of the schema, under its own name.
ALL_COLUMNS = ", ".join(f"$t.{name} as {name}" for name in _TYPES)


@dataclass(frozen=True, slots=True)
class History:
    """A graph whose commits are one minute apart, and the ids of those commits.

    Version 1 is the empty graph; 2 adds `a` to main; 3 adds `b`; 4 creates the branch `side`; 5 adds `c` there;
    6 deletes `a` from main.
    """

    uri: str
    commits: dict[int, str]


#: 2100-01-01T12:00:00Z in microseconds: later than the first commit, which has the time of the test run.
_BEGIN = 4_102_488_000_000_000


def minute(version: int) -> str:
    """When a graph version of the history was made."""
    return f"2100-01-01T12:{version:02d}:00Z"


def history(folder: Path) -> History:
    """Build the graph of `History`."""
    graph = Graph.init(folder / "history.omni", "node Item { k: String @key }")
    commits = {1: graph.commits()[0].commit_id}
    version = 1

    def step(act: Callable[[], Any]) -> None:
        nonlocal version
        version += 1
        object.__setattr__(graph._core.environment, "clock", lambda: _BEGIN + version * 60_000_000)
        result = act()
        if hasattr(result, "commit"):
            commits[version] = result.commit.commit_id

    step(lambda: graph.mutate('query q() { insert Item { k: "a" } }'))
    step(lambda: graph.mutate('query q() { insert Item { k: "b" } }'))
    step(lambda: graph.create_branch("side"))
    step(lambda: graph.mutate('query q() { insert Item { k: "c" } }', branch="side"))
    step(lambda: graph.mutate('query q() { delete Item where k = "a" }'))
    graph.close()
    return History(graph.uri, commits)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


#: Runs a command in this process.
Run = Callable[..., Outcome]
