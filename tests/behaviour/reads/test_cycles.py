"""Patterns that close cycles, against loops over dictionaries: on a graph with hubs, loops and parallel edges."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from omnigraph import Graph
from omnigraph.engine.operators import intersect
from omnigraph.errors import QueryCancelledError, QueryTimeoutError, ResourceLimitError
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  age: I64 }
node Town { name: String @key  age: I64 }
edge Knows: Person -> Person { since: I64 }
edge LivesIn: Person -> Town
"""
PERSONS, TOWNS = 40, 4
NAMES = [f"p{number}" for number in range(PERSONS)]
AGES = {name: number * 7 % 10 for number, name in enumerate(NAMES)}

Pairs = list[tuple[str, str]]


def _drawn() -> tuple[Pairs, Pairs]:
    draw = random.Random(7)
    knows = [(draw.choice(NAMES), draw.choice(NAMES)) for _ in range(260)]
    knows += [("p0", name) for name in NAMES] + [(name, "p1") for name in NAMES[:20]]
    knows += [(name, name) for name in NAMES[3:6]] + knows[:25]
    lives = [(name, f"t{draw.randrange(TOWNS)}") for name in NAMES for _ in range(2)]
    return knows, lives


KNOWS, LIVES = _drawn()
#: Distinct neighbours, forwards and backwards, and how often each edge is there.
OUT = {name: {b for a, b in KNOWS if a == name} for name in NAMES}
IN = {name: {a for a, b in KNOWS if b == name} for name in NAMES}
BOTH = {name: OUT[name] | IN[name] for name in NAMES}
HOME = {name: {b for a, b in LIVES if a == name} for name in NAMES}
TIMES = Counter(KNOWS)

#: How edges are followed, and with which loops.
WAYS = {
    "scan": {"OMNIGRAPH_TRAVERSAL_MODE": "scan"},
    "numpy": {"OMNIGRAPH_TRAVERSAL_MODE": "csr", "OMNIGRAPH_KERNELS": "numpy"},
    "compiled": {"OMNIGRAPH_TRAVERSAL_MODE": "csr", "OMNIGRAPH_KERNELS": "compiled"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("cycles") / "people.omni"
    with Graph.init(path, SCHEMA) as graph:
        rows = [f'insert Person {{ name: "{name}", age: {AGES[name]} }}' for name in NAMES]
        rows += [f'insert Town {{ name: "t{number}", age: {number} }}' for number in range(TOWNS)]
        rows += [f'insert Knows {{ from: "{a}", to: "{b}", since: {place} }}' for place, (a, b) in enumerate(KNOWS)]
        rows += [f'insert LivesIn {{ from: "{a}", to: "{b}" }}' for a, b in LIVES]
        graph.mutate(f"query add() {{ {' '.join(rows)} }}")
    return path


@pytest.fixture(scope="module", params=WAYS)
def graph(store: Any, request: pytest.FixtureRequest) -> Iterator[Graph]:
    with mock.patch.dict(os.environ, WAYS[request.param]), Graph.open(store) as graph:
        yield graph


def triangles(first: dict[str, set[str]], second: dict[str, set[str]], third: dict[str, set[str]]) -> Iterator[Any]:
    """Triples `a`, `b`, `c` with `b` in the first of `a`, `c` in the second of `b` and in the third of `a`."""
    for a in NAMES:
        for b in first[a]:
            for c in second[b] & third[a]:
                yield a, b, c


def squares() -> Iterator[tuple[str, str, str, str]]:
    for a in NAMES:
        for b in OUT[a]:
            for c in OUT[b]:
                for d in OUT[c] & IN[a]:
                    yield a, b, c, d


TRIANGLE = "$a: Person $a knows $b $b knows $c $a knows $c"
SQUARE = "$a: Person $a knows $b $b knows $c $c knows $d $d knows $a"

CASES: dict[str, tuple[str, str, Callable[[], list[Any]]]] = {
    "all": (TRIANGLE, "$a.name, $b.name, $c.name", lambda: list(triangles(OUT, OUT, OUT))),
    "circles": (
        "$a: Person $a knows $b $b knows $c $c knows $a",
        "$a.name, $b.name, $c.name",
        lambda: list(triangles(OUT, OUT, IN)),
    ),
    "either way": (
        "$a: Person $a <knows> $b $b <knows> $c $a <knows> $c",
        "$a.name, $b.name, $c.name",
        lambda: list(triangles(BOTH, BOTH, BOTH)),
    ),
    "new end": (TRIANGLE, "$c.name", lambda: [(c,) for _, _, c in triangles(OUT, OUT, OUT)]),
    "first end": (TRIANGLE, "$a.name", lambda: [(a,) for a, _, _ in triangles(OUT, OUT, OUT)]),
    "filtered": (
        f"{TRIANGLE} $c.age > 4 $a.age < 6",
        "$a.name, $c.name",
        lambda: [(a, c) for a, _, c in triangles(OUT, OUT, OUT) if AGES[c] > 4 and AGES[a] < 6],
    ),
    "mutual": ("$a: Person $a knows $b $b knows $a", "$b.name", lambda: [(b,) for a in NAMES for b in OUT[a] & IN[a]]),
    "loops": ("$a: Person $a knows $a", "$a.name", lambda: [(a,) for a in NAMES if a in OUT[a]]),
    "squares": (SQUARE, "$a.name, $d.name", lambda: [(a, d) for a, _, _, d in squares()]),
    "three arms": (
        "$a: Person $a knows $b $a knows $c $b knows $d $c knows $d $d knows $a",
        "$b.name, $d.name",
        lambda: [(b, d) for a in NAMES for b in OUT[a] for c in OUT[a] for d in OUT[b] & OUT[c] & IN[a]],
    ),
    "two types": (
        "$a: Person $a livesIn $t $a knows $b $b livesIn $t",
        "$a.name, $t.name",
        lambda: [(a, t) for a in NAMES for t in HOME[a] for b in OUT[a] if t in HOME[b]],
    ),
    "each edge": (
        "$a: Person $a knows $b $b $e: knows $a",
        "$a.name, $b.name",
        lambda: [(a, b) for a in NAMES for b in OUT[a] for _ in range(TIMES[b, a])],
    ),
    "some edges": (
        "$a: Person $a knows $b $b $e: knows $a $e.since < 50",
        "$e.since",
        lambda: [(place,) for place, (b, a) in enumerate(KNOWS) if place < 50 and b in OUT[a]],
    ),
    "missing": (
        "$a: Person $a knows $b $b knows $c not { $a knows $c }",
        "$a.name, $c.name",
        lambda: [(a, c) for a in NAMES for b in OUT[a] for c in OUT[b] if c not in OUT[a]],
    ),
    "optional": (
        "$a: Person optional { $a knows $b $b knows $a $b.age > 5 }",
        "$a.name, $b.name",
        lambda: [(a, b) for a in NAMES for b in {b for b in OUT[a] & IN[a] if AGES[b] > 5} or [None]],
    ),
    "several types": (
        "$a: Person | Town $b: Person $b knows $a $a knows $b",
        "$b.name",
        lambda: [(b,) for b in NAMES for a in OUT[b] & IN[b]],
    ),
}


@pytest.fixture(params=[False, True], ids=["as it pays", "always summed"])
def sums(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether ways are added up even where intersecting row by row looks cheaper."""
    if not request.param:
        yield
        return
    with mock.patch.object(intersect, "_GUESS_FACTOR", 0), mock.patch.object(intersect, "_WORTH_TURNING", -(1 << 60)):
        yield


@each_case("name", CASES)
def test_rows_and_counts_are_those_of_loops(graph: Graph, sums: None, name: str) -> None:
    match, columns, expected = CASES[name]
    wanted = Counter(expected())
    assert wanted, "the case says something"
    rows = graph.query(f"query q() {{ match {{ {match} }} return {{ {columns} }} }}").to_pylist()
    assert Counter(tuple(row.values()) for row in rows) == wanted
    (count,) = graph.query(f"query q() {{ match {{ {match} }} return {{ count($a) as n }} }}").to_pylist()
    assert count == {"n": wanted.total()}
    grouped = f"query q() {{ match {{ {match} }} return {{ {columns}, count($a) as n }} }}"
    found = {tuple(row.values())[:-1]: row["n"] for row in graph.query(grouped).to_pylist()}
    assert found == dict(wanted)


def test_explain_names_the_operators_and_what_they_did(graph: Graph) -> None:
    text = f"query q() {{ match {{ {TRIANGLE} not {{ $c knows $a }} }} return {{ count($c) as n }} }}"
    told = graph.explain(text, analyze=True)
    intersection = next(line for line in told.splitlines() if "Intersect $c: $a Knows, $b Knows" in line)
    found = len(list(triangles(OUT, OUT, OUT)))
    assert f" {found} rows" in intersection
    assert "Close $a Knows $c" in told


# ---- bounds


@pytest.fixture
def forced(store: Any, request: pytest.FixtureRequest) -> Iterator[Graph]:
    with mock.patch.dict(os.environ, WAYS["numpy"]), Graph.open(store) as graph:
        yield graph


def test_an_intersection_stops_when_it_is_cancelled(forced: Graph) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(QueryCancelledError):
        forced.query(f"query q() {{ match {{ {SQUARE} }} return {{ count($a) as n }} }}", cancel=cancel)


def test_an_intersection_stops_when_its_time_is_over(forced: Graph) -> None:
    with pytest.raises(QueryTimeoutError):
        forced.query(f"query q() {{ match {{ {SQUARE} }} return {{ count($a) as n }} }}", timeout_s=1e-9)


def test_an_intersection_asks_before_it_takes_memory(store: Any) -> None:
    with (
        mock.patch.dict(os.environ, WAYS["numpy"] | {"OMNIGRAPH_QUERY_MEMORY_BYTES": "2000000"}),
        Graph.open(store) as graph,
        pytest.raises(ResourceLimitError, match=r"Intersect \$c needs more memory|Intersect \$c: .* needs more memory"),
    ):
        graph.query(f"query q() {{ match {{ {TRIANGLE} }} return {{ $a.name, $b.name, $c.name }} }}").to_pylist()
