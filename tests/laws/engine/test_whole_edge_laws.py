"""Orders, sums and blocks over all edges: the rows are the same whatever is deferred, cut or numbered."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.core import budget as budget_module
from omnigraph.core.budget import Budget, MemoryAccount, ReadLimits
from omnigraph.engine import executor, rows
from omnigraph.engine.operators import expand, pipeline
from omnigraph.engine.results import bounds, first_rows, group_numbers
from omnigraph.errors import ResourceLimitError
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  group: I64?  born: Date? }
edge Knows: Person -> Person { weight: F64?  since: I64?  word: String?  at: DateTime?  ok: Bool?  marks: [I64]? }
"""
PERSONS = 60
EDGES = 500

_EDGE = "match { $a: Person $a $e: knows $b }"
_BOTH = "match { $a: Person $a $e: <knows> $b }"
_FILTERED = "match { $a: Person { group: 1 } $a $e: knows $b $e.since > 2 $b.group < 3 }"
_TWO = "match { $a: Person $a $e: knows $b $b $f: knows $c $f.since = 1 }"
_ENDS = "$a.name, $b.name as other"
_KEYS = ["$e.weight", "$e.since", "$e.word", "$e.at", "$e.ok", "$a.born", "$b.group"]
ORDERED = [
    *(
        f"{_EDGE} return {{ {_ENDS}, {key} as v }} order {{ {key} {way} }} limit 7"
        for key in _KEYS
        for way in ("", "desc")
    ),
    f"{_EDGE} return {{ {_ENDS} }} order {{ $e.since desc, $e.word, $b.name desc }} limit 12",
    f"{_EDGE} return {{ {_ENDS} }} order {{ $e.weight desc nulls first }} limit 90",
    f"{_EDGE} return {{ {_ENDS}, $e.since + 1 as v }} order {{ $e.since + 1, $a.name }} limit 9",
    f"{_EDGE} return {{ {_ENDS} }} order {{ $a.group, $e.weight }} offset 4 limit 5",
    f"{_EDGE} return {{ {_ENDS}, $a.group }} order {{ $e.weight desc }} limit 2 per {{ $a.group }}",
    f"{_BOTH} return {{ {_ENDS} }} order {{ $e.weight, $e.since }} limit 8",
    f"{_FILTERED} return {{ {_ENDS}, $e.marks }} order {{ $e.weight desc }} limit 8",
    f"{_TWO} return {{ {_ENDS}, $c.name as last }} order {{ $e.weight desc, $f.word }} limit 8",
    "match { $a: Person $a knows $b } return { $a.name, count($b) as n } order { n desc } limit 3",
    "match { $a: Person $a knows $b } return { $a.name, $a.group, count($b) as n } "
    "order { $a.group, $a.group desc nulls first, n desc } limit 3",
    "match { $a: Person $a knows $b } return { $b.group, count($a) as n } order { n, $b.group } limit 3",
]
_SUMS = (
    "count($e) as n, count($e.word) as c, sum($e.weight) as s, avg($e.since) as m, "
    "min($e.at) as l, max($e.since) as h, min($e.ok) as o"
)
GROUPED = [
    *(
        f"{match} return {{ {keys}, {_SUMS} }}"
        for match in (_EDGE, _BOTH, _FILTERED)
        for keys in ("$a.name", "$a.group", "$b.born", "$a.group, $b.group as g", "$a.name, $b.name as b", "$e.word")
    ),
    f"{_TWO} return {{ $a.group, $c.group as g, count($e) as n, sum($f.weight) as s }}",
    f"{_EDGE} return {{ $a.group, count(distinct $b) as n, count(distinct $e.word) as w }}",
    f"{_EDGE} return {{ $a.group, $e.ok, max($e.word) as w }}",
]
BLOCKS = [
    "match { $a: Person $a knows $b exists { $a knows $c  $c knows $b } } return { $a.name, $b.name as other }",
    "match { $a: Person $a knows $b not { $b knows $a } } return { $a.name, $b.name as other }",
    "match { $a: Person not { $a knows{1,3} $b } } return { $a.name }",
    "match { $a: Person exists { $a knows{1,3} $b } } return { $a.name }",
    "match { $a: Person $a knows $b } return { $a.name, $b.name as other, count { $a knows $c $c knows $b } as n }",
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Edges with ties, nulls and parallel ones; some rows are gone, so that row ids have holes."""
    pick = random.Random(7)

    def one(*values: str) -> str:
        return pick.choice([*values, "null"])

    def inserted(type_: str, **values: str) -> str:
        return f"insert {type_} {{ " + ", ".join(f"{name}: {value}" for name, value in values.items()) + " }"

    days = [f'date("200{day}-01-01")' for day in range(3)]
    times = [f'datetime("2024-01-0{day}T00:00:00Z")' for day in range(1, 9)]
    persons = [
        inserted("Person", name=f'"p{number}"', group=one("0", "1", "2", "3"), born=one(*days))
        for number in range(PERSONS)
    ]
    edges = [
        "insert Knows { from: "
        + f'"p{pick.randrange(PERSONS - 5)}", to: "p{pick.randrange(PERSONS)}", '
        + inserted(
            "",
            weight=one("0.0", "-0.0", "1.5", str(pick.random())),
            since=one("0", "1", "2", "3", "4"),
            word=one('"a"', '"b"', '"ab"', '""'),
            at=one(*times),
            ok=one("true", "false"),
            marks=one("[0]", "[1]", "[2, 1]"),
        ).removeprefix("insert  { ")
        for _ in range(EDGES)
    ]
    with Graph.init(tmp_path_factory.mktemp("edges") / "people.omni", SCHEMA) as graph:
        graph.mutate("query add() { " + " ".join([*persons, *edges]) + " }")
        graph.mutate('query gone() { delete Person where name = "p3" }')
        graph.mutate("query gone() { delete Knows where since = 4 }")
        yield graph


FORCED = {
    (expand, "_DEFERRED_PAIRS"): 0,
    (executor, "FIRST_ROWS"): 20,
    (rows, "BATCH_ROWS"): 50,
    (pipeline, "BATCH_ROWS"): 50,
    (bounds, "_FEW_ROWS"): 3,
    (bounds, "_SAMPLE_ROWS"): 8,
    (first_rows, "_PRUNE_ROWS"): 20,
    (first_rows, "_PRUNE_GROUPED_ROWS"): 20,
}
PLAIN = {(expand, "_DEFERRED_PAIRS"): 10**9, (bounds, "_FEW_ROWS"): 10**9, (group_numbers, "_MOST_NUMBERS"): 0}


def rows_of(
    graph: Graph, text: str, forced: dict[Any, int], *, mode: str = "csr", cache: int = 1 << 28
) -> list[tuple[Any, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in forced.items():
            patch.setattr(module, name, value)
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
        patch.setenv("OMNIGRAPH_COLUMN_CACHE_BYTES", str(cache))
        with Graph.open(graph.uri, read_only=True) as opened:
            for _ in range(2):
                # The second time columns are in memory.
                found = opened.query(f"query q() {{ {text} }}").to_pylist()
    return [tuple(row.values()) for row in found]


def close(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(pytest.approx(cell, rel=1e-9, abs=1e-12) if isinstance(cell, float) else cell for cell in row)


@each_case("text", ORDERED)
def test_an_order_is_the_same_however_it_is_cut(text: str, graph: Graph) -> None:
    wanted = rows_of(graph, text, PLAIN)
    assert wanted
    assert rows_of(graph, text, FORCED) == wanted
    assert rows_of(graph, text, PLAIN, mode="scan") == wanted


@each_case("text", [*GROUPED, *BLOCKS])
def test_groups_and_blocks_are_the_same_however_they_are_numbered(text: str, graph: Graph) -> None:
    wanted = sorted(rows_of(graph, text, PLAIN), key=repr)
    assert wanted
    found = sorted(rows_of(graph, text, FORCED), key=repr)
    assert [row[:1] for row in found] == [row[:1] for row in wanted]
    assert all(mine == close(theirs) for mine, theirs in zip(found, wanted, strict=True))


@each_case("text", [ORDERED[0], ORDERED[-5], GROUPED[0], GROUPED[1], GROUPED[5]])
def test_columns_that_are_too_large_to_be_kept_are_read_for_the_query(text: str, graph: Graph) -> None:
    wanted = sorted(rows_of(graph, text, PLAIN), key=repr)
    assert sorted(rows_of(graph, text, FORCED, cache=1), key=repr) == [close(row) for row in wanted]


def test_an_order_of_edges_is_that_of_plain_python(graph: Graph) -> None:
    every = rows_of(graph, f"{_EDGE} return {{ $a.name, $b.name as b, $e.since, $e.weight }}", PLAIN)
    found = rows_of(
        graph,
        f"{_EDGE} return {{ $a.name, $b.name as b, $e.since, $e.weight }} "
        "order { $e.since desc nulls first, $e.weight } limit 40",
        FORCED,
    )

    def key(row: tuple[Any, ...]) -> tuple[Any, ...]:
        since, weight = row[2], row[3]
        return since is not None, -(since or 0), weight is not None, weight or 0.0

    assert [key(row) for row in found] == sorted(key(row) for row in every)[:40]


def test_sums_of_edges_are_those_of_plain_python(graph: Graph) -> None:
    every = rows_of(graph, f"{_EDGE} return {{ $a.group, $b.group as g, $e.weight }}", PLAIN)
    sums: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for group, other, weight in every:
        sums[group, other] += [] if weight is None else [weight]
    found = rows_of(graph, f"{_EDGE} return {{ $a.group, $b.group as g, sum($e.weight) as s }}", FORCED)

    assert {row[:2]: row[2] for row in found} == {
        key: pytest.approx(sum(values)) if values else None for key, values in sums.items()
    }


_CHANGES = [
    'insert Knows { from: "p1", to: "p2", weight: 9.5, since: 9, word: "new" }',
    "update Knows set { weight: 8.5 } where since = 2",
    "delete Knows where since = 1",
    'delete Person where name = "p7"',
    'insert Person { name: "p99", group: 1 } insert Knows { from: "p99", to: "p1", weight: 7.5, since: 3 }',
]


def test_columns_in_memory_follow_every_commit(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    place = tmp_path_factory.mktemp("changed") / "people.omni"
    shutil.copytree(graph.uri, place)
    texts = [ORDERED[1], *GROUPED[:3], GROUPED[5]]
    with pytest.MonkeyPatch.context() as patch, Graph.open(place) as changed:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        for (module, name), value in FORCED.items():
            patch.setattr(module, name, value)
        for change in ["", *_CHANGES]:
            if change:
                changed.mutate(f"query change() {{ {change} }}")
            for text in texts:
                found = [tuple(row.values()) for row in changed.query(f"query q() {{ {text} }}").to_pylist()]
                wanted = [close(row) for row in sorted(rows_of(changed, text, PLAIN, mode="scan"), key=repr)]
                assert sorted(found, key=repr) == wanted, (change, text)


# ---- Memory


_ALL = "match { $a: Person $b: Person $c: Person { group: 1 } }"
_NAMES = "$a.name, $b.name as b, $c.name as c"
UNBOUNDED = {
    "order": f"{_ALL} return {{ {_NAMES} }} order {{ $b.born, $a.name }}",
    "group": f"{_ALL} return {{ {_NAMES}, count($a) as n }}",
    "distinct": f"{_ALL} return distinct {{ {_NAMES} }}",
    "distinct values": f"{_ALL} return {{ $a.name, $c.name as c, count(distinct $b.name) as n }}",
    "medians": f"{_ALL} return {{ $a.name, $b.name as b, median($c.group) as n }}",
    "lists": f"{_ALL} return {{ $a.group, collect($b.name) as n }}",
}
BOUNDED = {
    "first of an order": f"{_ALL} return {{ {_NAMES} }} order {{ $b.born, $a.name }} limit 10",
    "first of an order of ties": f"{_ALL} return {{ {_NAMES} }} order {{ $c.group }} limit 10",
    "first of each": f"{_ALL} return {{ {_NAMES}, $a.group }} order {{ $b.born }} limit 2 per {{ $a.group }}",
    "few groups": f"{_ALL} return {{ $a.group, $b.group as g, sum($c.group) as n }}",
    "everything": f"{_ALL} return {{ {_NAMES} }}",
}
#: Far below what all rows take, far above what a batch does.
MEMORY = 1 << 19


def read_within(graph: Graph, text: str, patch: pytest.MonkeyPatch) -> int:
    """Read all rows in small batches; the most memory that was held."""
    account = MemoryAccount(MEMORY)
    patch.setattr(budget_module, "_GRAIN", 0)
    patch.setattr(rows, "BATCH_ROWS", 500)
    patch.setattr(pipeline, "BATCH_ROWS", 500)
    patch.setattr(first_rows, "_PRUNE_ROWS", 1000)
    patch.setattr(first_rows, "_PRUNE_GROUPED_ROWS", 1000)
    patch.setattr(ReadLimits, "budget", lambda *_: Budget(memory=account))
    for batch in graph.query(f"query q() {{ {text} }}"):
        assert batch.num_rows
    return account.peak


@each_case("name", UNBOUNDED)
def test_what_has_to_be_held_is_refused(name: str, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceLimitError) as caught:
        read_within(graph, UNBOUNDED[name], monkeypatch)
    assert caught.value.resource == "query_memory_bytes"


@each_case("name", BOUNDED)
def test_what_is_wanted_bounds_what_is_held(name: str, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < read_within(graph, BOUNDED[name], monkeypatch) < MEMORY
