"""Every operator looks at the budget of its read, and stays within it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from omnigraph import Graph
from omnigraph.core import budget as budget_module
from omnigraph.core.budget import Budget, MemoryAccount, ReadLimits
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.engine import executor, rows
from omnigraph.engine.nodes import Arm, PlanOp
from omnigraph.engine.operators import pipeline
from omnigraph.engine.predicates import push_down
from omnigraph.errors import MAX_DIAGNOSTICS, BadRequestError, QueryCancelledError, ResourceLimitError
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, to_sql
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  age: I64?  bio: String? @index  vec: Vector(2)? }
node Town { name: String @key  age: I64? }
edge Knows: Person -> Person { since: I64? }
edge Likes: Person -> Town { since: I64? }
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
    "close": "match { $a: Person $b: Person $a knows $b } return { $a.name, $b.name }",
    "close by edge": "match { $a: Person $b: Person $a $e: knows $b } return { $a.name, $b.name, $e.since }",
    "close in a block": "match { $a: Person $a knows $b not { $b knows $a } } return { $a.name, $b.name }",
    "intersect": "match { $a: Person $a knows $b $b knows{1,2} $c $a knows $c $b knows $c } return { $c.name }",
    "triangle": "match { $a: Person $a knows $b $b knows $c $a knows $c } return { $a.name, $c.name }",
    "triangles": "match { $a: Person $a knows $b $b knows $c $a knows $c } return { count($c) as n }",
    "anti-join": "match { $a: Person not { $a knows $b $b.age > 38 } } return { $a.name }",
    "semi-join": "match { $a: Person exists { $a knows $b $b.age > 38 } } return { $a.name }",
    "union": "match { $a: Person | Town } return { $a.name }",
    "search": "match { $a: Person $a (knows | likes) $b } return { $a.name, $b.name }",
    "edges of two types": "match { $a: Person $a $e:(knows | likes) $b } return { $a.name, $b.name, $e.since }",
    "optional": "match { $a: Person optional { $a likes $b } } return { $a.name, $b.name }",
    "path": "match { $a: Person path $w = shortest $a knows{1,3} $b } return { $a.name, nodes($w) as n }",
    "group": "match { $a: Person $a knows $b } return { $b.age, count($a) as n }",
    "order": "match { $a: Person $a knows $b } return { $a.name, $b.name } order { $b.age, $a.name }",
    "nearest": "match { $a: Person $a knows $b } return { $a.name } order { nearest($a.vec, $v) } limit 5",
    "bm25": 'match { $a: Person } return { $a.name } order { bm25($a.bio, "graph") } limit 5',
    "fuzzy": 'match { $a: Person fuzzy($a.bio, "grap") } return { $a.name }',
}
#: What the messages of each part of a query begin with.
LABELS = {
    *("NodeScan", "UnionScan", "Expand", "ExpandEdges", "Search", "PathSearch", "Filter", "AntiJoin", "SemiJoin"),
    *("Close", "Intersect", "OptionalJoin", "Project", "Group", "Order", "Rank"),
}


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
    operators = {kind.__name__ for kind in get_args(PlanOp)}
    assert operators <= LABELS, "a new operator is watched here too"
    assert operators == {op.partition(" ")[0] for op in map(_label, get_args(PlanOp))}


def _label(kind: type[Any]) -> str:
    """The label of an operator whose fields are all one text, but for what has fields of its own."""
    step = ir.Step("x", ir.Direction.OUT, "x", "x")
    search = ir.Search("x", "x", (step,), ("x",))
    arm = Arm("x", "x", ir.Direction.OUT)
    special = {"steps": (step,), "search": search, "arms": (arm,)}
    made = kind(**{field.name: special.get(field.name, "x") for field in fields(kind)})
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
def test_batches_of_any_size_give_the_same_rows(graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_does_not_fit_is_refused_by_name(graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_FEW_ROWS", 1)
    monkeypatch.setenv("OMNIGRAPH_QUERY_MEMORY_BYTES", "700")
    with Graph.open(graph.uri, read_only=True) as small, pytest.raises(ResourceLimitError) as caught:
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


# ---- Texts of every shape that could be depth or size elsewhere: always a typed error or an answer, never a crash


HOSTILE_TEXTS_SCHEMA = "node P { slug: String @key  n: I64?  s: String?  l: [I64]? }\nedge K: P -> P"
#: Far beyond what any of these texts may take.
MEMORY_BYTES = 6 * 1024**3
#: An error is something that a person reads.
MAX_ERROR_BYTES = 512 * 1024

CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (%d, %d))
from omnigraph import Graph
from omnigraph.errors import OmniError

def read(match, result="$p.slug"):
    return f"query q() {{ match {{ {match} }} return {{ {result} }} }}"

def each(form, count, joint=" "):
    return joint.join(form.replace("#", str(i)) for i in range(count))

READS = {
    "filters on one variable": read("$p: P " + each("$p.n != #", 4_000)),
    "filters with texts": read("$p: P " + each('$p.s != "#"', 1_500)),
    "more filters than a query may have": read("$p: P " + each("$p.n != #", 32_000)),
    "inline matches": read("$p: P { " + each("n: #", 3_000, ", ") + " }"),
    "joins": read("$p: P $q: P " + each("$p.n != $q.n", 1_000)),
    "chained traversals": read("$p0: P " + " ".join(f"$p{i} k $p{i + 1}" for i in range(250)), "$p0.slug"),
    "more chained traversals than allowed": read("$p0: P " + each("$p# k $q#", 1_000), "$p0.slug"),
    "bindings": read(each("$p#: P", 250), "count($p0) as n"),
    "nested blocks": read("$p: P " + "not { $p k $_ " * 61 + "}" * 61),
    "blocks beside each other": read("$p: P " + "not { $p k $_ } " * 250),
    "nested too deep": read("$p: P " + "not { $p k $_ " * 5_000 + "}" * 1_000),
    "nested calls": read("$p: P", "f(" * 60 + "$p" + ")" * 60),
    "list literal": read("$p: P [" + each("#", 20_000, ", ") + "] contains $p.n"),
    "list literal of texts": read("$p: P [" + each('"#"', 10_000, ", ") + "] contains $p.s"),
    "nested lists": read("$p: P " + "[" * 60 + "]" * 60 + " contains $p.n"),
    "columns": read("$p: P", each("$p.n as c#", 1_500)),
    "order keys": read("$p: P") [:-2] + " order { " + each("$p.n", 3_000, ", ") + " } }",
    "wrong properties": read("$p: P " + each("$p.nn# != 1", 4_000)),
    "unbound variables": read("$p: P " + each("$z#.n != 1", 4_000)),
    "unknown types": read(each("$p#: Pp#", 250), "$p0.n"),
    "names without end": read("$p: P " + each("$p." + "n" * 2_000 + "# != 1", 200)),
    "broken queries": each("query q#() { match { $p: P } retur { $p.n } }", 1_000),
    "queries": each("query q#() { match { $p: P } return { $p.n } }", 1_000),
    "parameters": "query q(" + each("$x#: I64", 5_000, ", ") + ") { match { $p: P } return { $p.n } }",
    "one long word": "x" * 500_000,
    "one long text": read('$p: P $p.s = "' + "x" * 500_000 + '"'),
    "one long number": read("$p: P $p.n = " + "9" * 500_000),
    "open brackets": "{" * 100_000,
    "open comment": "/*" * 100_000,
    "quotes": '"' * 99_999,
    "words to search": read('$p: P search($p.s, "' + each("w#", 20_000) + '")'),
    "words to search nearly": read('$p: P fuzzy($p.s, "' + each("w#", 20_000) + '")'),
    "hops": read("$p: P $p k{1,9223372036854775807} $q", "$q.slug"),
}
MUTATIONS = {
    "inserts": "query q() { " + each('insert P { slug: "x#" }', 500) + " }",
    "more inserts than allowed": "query q() { " + each('insert P { slug: "x#" }', 11_000) + " }",
    "wrong inserts": "query q() { " + each("insert P { sulg: # }", 2_000) + " }",
}
SCHEMAS = {
    "types": each("node N# { slug: String @key }", 1_000),
    "wrong types": each("node N# { slug: Strin @key }", 1_000),
    "properties": "node N { slug: String @key " + each("p#: I64?", 2_000) + " }",
    "broken types": each("node N# { slug String }", 1_000),
    "enum values": "node N { e: enum(" + each("v#", 20_000, ", ") + ") }",
    "brackets": "node N { e: " + "[" * 10_000,
}

def outcome(work):
    try:
        work()
    except OmniError as error:
        body = error.to_json()
        return [type(error).__name__, len(body.get("diagnostics", ())), len(json.dumps(body))]
    return ["answer", 0, 0]

graph = Graph.init(sys.argv[1] + "/g.omni", "%s")
graph.mutate('query a() { insert P { slug: "a", n: 1, s: "x" } insert P { slug: "b", n: 2 } }')
found = {}
for name, text in READS.items():
    found[name] = outcome(lambda: graph.query(text).to_arrow())
    found["lint " + name] = outcome(lambda: graph.explain(text))
for name, text in MUTATIONS.items():
    found[name] = outcome(lambda: graph.mutate(text))
for name, text in SCHEMAS.items():
    from omnigraph.lang.schema.compiler import compile_schema
    found["schema of " + name] = outcome(lambda: compile_schema(text))
long = "query q($l: [I64], $t: [String]) { match { $p: P $p.n = 1 } return { $p.slug } }"
found["list parameters"] = outcome(lambda: graph.query(long, {"l": list(range(50_000)), "t": ["x"] * 50_000}))
deep = []
for _ in range(50_000):
    deep = [deep]
found["nested parameters"] = outcome(lambda: graph.query(long, {"l": deep, "t": []}))
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_no_text_hurts_the_process(tmp_path: Path) -> None:
    script = CHILD % (MEMORY_BYTES, MEMORY_BYTES, HOSTILE_TEXTS_SCHEMA.replace("\n", "\\n"))
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)

    assert child.returncode == 0, child.stderr[-2_000:]
    found = json.loads(child.stdout)
    assert {name for name, (_, listed, _) in found.items() if listed > MAX_DIAGNOSTICS} == set()
    assert {name: size for name, (_, _, size) in found.items() if size > MAX_ERROR_BYTES} == {}
    answered = {name for name, (kind, _, _) in found.items() if kind == "answer"}
    assert answered >= {"filters on one variable", "joins", "chained traversals", "nested blocks"}
    assert not answered & {"more chained traversals than allowed", "wrong properties"}


def test_what_is_beyond_the_filter_of_storage_stays_with_the_engine() -> None:
    conditions = " ".join(f"$p.n != {i}" for i in range(5_000))
    text = f"query q() {{ match {{ $p: P {conditions} }} return {{ $p.slug }} }}"
    scan = compile_query(text, compile_schema(HOSTILE_TEXTS_SCHEMA).catalog).ir.pipeline[0]  # type: ignore[union-attr]  # a read

    pushed = push_down(scan.filters, {})  # type: ignore[union-attr]  # a scan comes first

    assert isinstance(pushed.filter, AllOf)
    assert len(pushed.filter.filters) + len(pushed.rest) == 5_000
    assert len(pushed.filter.filters) <= 2_000


def test_texts_beyond_the_filter_of_storage_stay_with_the_engine() -> None:
    conditions = " ".join(f'$p.s != "{"x" * 300_000}{i}"' for i in range(5))
    text = f"query q() {{ match {{ $p: P {conditions} }} return {{ $p.slug }} }}"
    scan = compile_query(text, compile_schema(HOSTILE_TEXTS_SCHEMA).catalog).ir.pipeline[0]  # type: ignore[union-attr]  # a read

    pushed = push_down(scan.filters, {})  # type: ignore[union-attr]  # a scan comes first

    assert len(pushed.rest) == 2


@pytest.mark.parametrize("join", [AllOf, AnyOf])
def test_a_filter_is_only_as_deep_as_the_logarithm_of_its_length(join: type) -> None:
    parts = tuple(Compare("n", ScalarType(Scalar.I64), "=", i) for i in range(1_000))
    depth = deepest = 0
    for sign in to_sql(join(parts)):
        depth += (sign == "(") - (sign == ")")
        deepest = max(deepest, depth)
    assert deepest <= 10
