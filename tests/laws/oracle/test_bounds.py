"""Every operator looks at the budget of its read, and stays within it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from omnigraph import Graph
from omnigraph.core import budget as budget_module
from omnigraph.core.budget import Budget, MemoryAccount, ReadLimits
from omnigraph.engine import executor, rows
from omnigraph.engine import operators as pipeline
from omnigraph.errors import BadRequestError, QueryCancelledError, ResourceLimitError
from omnigraph.lang.query import ir
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  age: I64?  bio: String? @index  vec: Vector(2)? }
edge Knows: Person -> Person { since: I64? }
"""
COUNT = 40

#: Between them they use every operator of a pipeline and every stage behind it.
QUERIES = {
    "scan": "match { $a: Person $a.age > 3 } return { $a.name }",
    "cross product": "match { $a: Person $b: Person } return { $a.name, $b.name }",
    "join": "match { $a: Person $b: Person $a.age = $b.age } return { $a.name, $b.name }",
    "expand": "match { $a: Person $a knows $b } return { $a.name, $b.name }",
    "edges": "match { $a: Person $a $e: knows $b $e.since > 1 } return { $b.name }",
    "reach": "match { $a: Person $a knows{1,4} $b } return { $a.name, $b.name }",
    "anti-join": "match { $a: Person not { $a knows $b $b.age > 38 } } return { $a.name }",
    "group": "match { $a: Person $a knows $b } return { $b.age, count($a) as n }",
    "order": "match { $a: Person $a knows $b } return { $a.name, $b.name } order { $b.age, $a.name }",
    "nearest": "match { $a: Person $a knows $b } return { $a.name } order { nearest($a.vec, $v) } limit 5",
    "bm25": 'match { $a: Person } return { $a.name } order { bm25($a.bio, "graph") } limit 5',
    "fuzzy": 'match { $a: Person fuzzy($a.bio, "grap") } return { $a.name }',
}
#: What the messages of each part of a query begin with.
LABELS = {"NodeScan", "Expand", "Filter", "AntiJoin", "Project", "Group", "Order", "Rank"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("bounds") / "people.omni", SCHEMA) as graph:
        people = " ".join(
            f'insert Person {{ name: "p{i}", age: {i}, bio: "graph number {i}", vec: [{i}.0, 1.0] }}'
            for i in range(COUNT)
        )
        edges = " ".join(
            f'insert Knows {{ from: "p{i}", to: "p{(i * step + 1) % COUNT}", since: {i} }}'
            for i in range(COUNT)
            for step in (1, 3, 7)
        )
        graph.mutate(f"query add() {{ {people} {edges} }}")
        yield graph


def text_of(name: str) -> tuple[str, dict[str, Any]]:
    declared = "$v: Vector(2)" if name == "nearest" else ""
    return f"query q({declared}) {{ {QUERIES[name]} }}", {"v": [3.0, 1.0]} if declared else {}


class Watched(Budget):
    """A budget that remembers who looked at it."""

    seen: set[str]

    def check(self) -> None:
        self.seen.add(self.operator.partition(" ")[0])
        super().check()


class Countdown:
    """A signal that is set at the n-th look."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def rows_of(graph: Graph, name: str, cancel: Any = None) -> list[tuple[Any, ...]]:
    text, params = text_of(name)
    found = graph.query(text, params, cancel=cancel).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_every_operator_and_stage_looks(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def watched(*_: object) -> Budget:
        budget = Watched()
        budget.seen = seen
        return budget

    monkeypatch.setattr(ReadLimits, "budget", watched)
    monkeypatch.setattr(Watched, "seen", seen, raising=False)
    for name in QUERIES:
        rows_of(graph, name)
    assert seen >= LABELS
    operators = {kind.__name__ for kind in get_args(ir.Op)}
    assert operators <= LABELS, "a new operator is watched here too"
    assert operators == {op.partition(" ")[0] for op in map(_label, get_args(ir.Op))}


def _label(kind: type) -> str:
    made: Any = object.__new__(kind)
    for name in kind.__slots__:  # type: ignore[attr-defined]  # operators are data with slots
        object.__setattr__(made, name, "x")
    return pipeline.operator_label(made)


@each_case("name", QUERIES)
def test_a_read_can_be_stopped_at_every_look(graph: Graph, name: str) -> None:
    # A handle of its own, so that the first reads find empty caches. What they leave behind saves the later ones some
    # looks, so their number is not fixed: each read is stopped one look later, until one comes to its end.
    stopped = 0
    with Graph.open(graph.uri, read_only=True) as cold:
        while True:
            signal = Countdown(stopped)
            try:
                found = rows_of(cold, name, signal)
            except QueryCancelledError:
                stopped += 1
                continue
            break
    assert signal.looks >= 0, "a read that was told to stop went on"
    assert found == rows_of(graph, name)
    assert stopped > 3


@pytest.mark.parametrize("name", QUERIES)
def test_batches_of_any_size_give_the_same_rows(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows_of(graph, name)
    monkeypatch.setattr(rows, "BATCH_ROWS", 3)
    monkeypatch.setattr(executor, "FIRST_ROWS", 2)
    monkeypatch.setattr(executor, "RESULT_BYTES", 100)
    assert rows_of(graph, name) == expected


def test_all_memory_is_given_back(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    account = MemoryAccount(1 << 30)
    monkeypatch.setattr(budget_module, "_GRAIN", 0)
    monkeypatch.setattr(rows, "_FEW_ROWS", 1)
    monkeypatch.setattr(ReadLimits, "budget", lambda *_: Budget(memory=account))
    for name in QUERIES:
        rows_of(graph, name)
        text, params = text_of(name)
        graph.query(text, params)  # dropped after its first batch
    assert account.peak > 0
    assert account.used == 0


@pytest.mark.parametrize("name", ["cross product", "order", "group", "reach", "expand"])
def test_what_does_not_fit_is_refused_by_name(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_FEW_ROWS", 1)
    monkeypatch.setenv("OMNIGRAPH_QUERY_MEMORY_BYTES", "700")
    with (
        Graph.open(graph.uri, read_only=True) as small,
        pytest.raises(ResourceLimitError) as caught,
    ):
        rows_of(small, name)
    assert caught.value.resource == "query_memory_bytes"
    assert "OMNIGRAPH_QUERY_MEMORY_BYTES" in caught.value.advice
    assert caught.value.advice.partition(" ")[0] in LABELS


def test_a_cross_product_is_made_as_it_is_read(graph: Graph) -> None:
    wide = " ".join(f"$p{i}: Person" for i in range(8))
    result = graph.query(f"query q() {{ match {{ {wide} }} return {{ $p0.name, $p7.name }} }}")
    batch = next(iter(result))
    assert batch.num_rows > 0


def test_an_answer_has_at_most_the_rows_of_the_graph(graph: Graph) -> None:
    with Graph.open(graph.uri, read_only=True, limits=ReadLimits(max_rows=COUNT)) as bounded:
        assert len(rows_of(bounded, "scan")) < COUNT
        with pytest.raises(ResourceLimitError) as caught:
            rows_of(bounded, "cross product")
    assert caught.value.resource == "query_rows"


def test_a_signal_from_another_thread_stops_an_analysis(graph: Graph) -> None:
    signal = threading.Event()
    signal.set()
    text, _ = text_of("reach")
    with pytest.raises(QueryCancelledError):
        graph.explain(text, analyze=True, cancel=signal)


@each_case("timeout_s", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_time_that_is_none_is_refused(graph: Graph, timeout_s: Any) -> None:
    with pytest.raises(BadRequestError, match="timeout_s"):
        graph.query(text_of("scan")[0], timeout_s=timeout_s)


def test_a_signal_that_is_none_is_refused(graph: Graph) -> None:
    not_a_signal: Any = object()
    with pytest.raises(BadRequestError, match=r"threading\.Event"):
        graph.query(text_of("scan")[0], cancel=not_a_signal)


def test_a_stopped_export_leaves_no_file(graph: Graph, tmp_path) -> None:
    signal = threading.Event()
    signal.set()
    with pytest.raises(QueryCancelledError):
        graph.export(tmp_path / "out.jsonl", engine="local", cancel=signal)
    assert not list(tmp_path.iterdir())


def test_a_stopped_embedding_writes_nothing(graph: Graph) -> None:
    signal = threading.Event()
    signal.set()
    before = graph.commits()[0].commit_id
    with pytest.raises(QueryCancelledError):
        graph.embed(cancel=signal)
    assert graph.commits()[0].commit_id == before
