"""OmniGraph, through its public query interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph
from comparison import edge_questions
from comparison.contract import ADJACENCY_BYTES, FUSION_K, HIGH_SCORE, SEEDS, TOP
from comparison.engines.omnigraph_load import fill
from comparison.prepared import ASKED, with_prepared
from omnigraph import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset


def _by_person(clauses: str, projection: str) -> str:
    return f"query q($pid: I64) {{ match {{ $a: Person {{ pid: $pid }} {clauses} }} return {{ {projection} }} }}"


def _ranked(clauses: str, projection: str, rank: str, *, params: str) -> str:
    return f"query q({params}) {{ match {{ {clauses} }} return {{ {projection} }} order {{ {rank} }} limit {TOP} }}"


_SCORED = "$b.score > 50.0"
_TRIANGLE = "$a: Person $a knows $b $b knows $c $a knows $c"
_SEED = f"$a: Person $a.pid < {SEEDS}"
_WITHIN = {1: f"$a knows $b {_SCORED}", 2: f"$a knows{{1,2}} $b {_SCORED}", 3: f"$a knows{{1,3}} $b {_SCORED}"}
_GRAPH_QUERIES = {
    "point": _by_person("", "$a.first_name, $a.last_name, $a.score"),
    "walk-1": _by_person("$a knows $b", "count($b) as n"),
    "walk-2": _by_person("$a knows $b $b knows $c", "count($c) as n"),
    "walk-3": _by_person("$a knows $b $b knows $c $c knows $d", "count($d) as n"),
    **{f"reach-{hops}": _by_person(_WITHIN[hops], "count($b) as n") for hops in (1, 2, 3)},
    **{f"neighbours-{hops}": _by_person(_WITHIN[hops], "$b.pid") for hops in (1, 2)},
    "top-degree": "query q() { match { $p: Person $p knows $q }"
    " return { $p.pid, count($q) as degree }"
    f" order {{ degree desc, $p.pid }} limit {TOP} }}",
    "two-paths": "query q() { match { $a: Person $a knows $b $b knows $c } return { count($c) as n } }",
    "anti-join": "query q() { match { $p: Person not { $p knows $_ } } return { count($p) as n } }",
    "triangles": f"query q() {{ match {{ {_TRIANGLE} }} return {{ count($c) as n }} }}",
    "triangles-ends": f"query q() {{ match {{ {_TRIANGLE} $a.score > {HIGH_SCORE} $c.score > {HIGH_SCORE} }}"
    " return { count($c) as n } }",
    "four-cycle": f"query q() {{ match {{ {_SEED} $a knows $b $b knows $c $c knows $d $d knows $a }}"
    " return { count($d) as n } }",
    "mutual": "query q() { match { $a: Person $a knows $b $b knows $a } return { count($b) as n } }",
    "fan-out": "query q() { match { $a: Person $a knows $b $b knows $c } return { $a.pid, count($c) as n }"
    f" order {{ n desc, $a.pid }} limit {TOP} }}",
    "spread": f"query q() {{ match {{ {_SEED} $a knows{{1,3}} $b $b.pid >= {SEEDS} }}"
    " return { count(distinct $b) as n } }",
    "spread-each": f"query q() {{ match {{ {_SEED} $a knows{{1,3}} $b }} return {{ $a.pid, count($b) as n }} }}",
}
#: Queries whose result is fetched as an Arrow table: so many rows are not wanted as Python values.
_ARROW_QUERIES = {"triangles-rows": f"query q() {{ match {{ {_TRIANGLE} }} return {{ $a.pid, $b.pid, $c.pid }} }}"}


def _search_queries(dimension: int) -> dict[str, str]:
    vector, text = f"$vector: Vector({dimension})", "$text: String"
    nearest, bm25 = "nearest($m.embedding, $vector)", "bm25($m.content, $text)"
    fused = f"rrf({nearest}, {bm25}, {FUSION_K})"
    everything, mid = "$m: Message", "$m.mid"
    posts = '$m: Message { kind: "post" }'
    hops = "$m: Message $m hasCreator $p $p knows $q"
    return {
        "bm25": _ranked(everything, mid, bm25, params=text),
        "vector": _ranked(everything, mid, nearest, params=vector),
        "vector-post": _ranked(posts, mid, nearest, params=vector),
        "rrf": _ranked(everything, mid, fused, params=f"{vector}, {text}"),
        "vector-hops": _ranked(hops, "$q.pid", nearest, params=vector),
    }


class OmniGraphEngine:
    """A graph with all its indexes built."""

    version = omnigraph.__version__

    def __init__(self, store: Path) -> None:
        self._graph = Graph.open(store / "social.omni")
        dimension = int((store / "dimension").read_text(encoding="utf-8"))
        queries = _GRAPH_QUERIES | edge_questions.OMNIGRAPH | _search_queries(dimension)
        calls: dict[str, Call] = {
            **{name: self._call(text) for name, text in queries.items()},
            **{name: self._arrow_call(text) for name, text in _ARROW_QUERIES.items()},
        }
        self.calls = with_prepared(calls, {name: self._prepared(queries[name]) for name in ASKED})

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """One commit with all rows, then the indexes."""
        vectors = pq.read_schema(dataset.node_path("Message")).field("embedding").type
        (store / "dimension").write_text(str(vectors.list_size), encoding="utf-8")
        with Graph.init(store / "social.omni", dataset.schema_path) as graph:
            fill(graph, dataset)
            graph.ensure_indices()

    def rows(self, fetched: list[dict[str, object]] | pa.Table) -> list[list[object]]:
        """Values in projection order."""
        if isinstance(fetched, pa.Table):
            fetched = fetched.to_pylist()
        return [list(row.values()) for row in fetched]

    def facts(self) -> dict[str, object]:
        """What the adjacency index of `Knows` needs in memory."""
        return {ADJACENCY_BYTES: adjacency_bytes_per_edge(self._graph)}

    def _arrow_call(self, text: str) -> Call:
        query = self._graph.query
        return lambda inputs: query(text, inputs).to_arrow()

    def _call(self, text: str) -> Call:
        query = self._graph.query

        def call(inputs: Inputs) -> object:
            return query(text, inputs).to_pylist()

        return call

    def _prepared(self, text: str) -> Call:
        reading = self._graph.prepare(text)

        def call(inputs: Inputs) -> object:
            return reading(inputs).to_pylist()

        return call


def adjacency_bytes_per_edge(graph: Graph) -> float | None:
    """Memory of the largest adjacency index, per edge and direction; None when no query needed one."""
    kept = [adjacency for adjacency, _ in graph._core.caches.adjacencies._values.values()]
    if not kept:
        return None
    largest = max(kept, key=lambda adjacency: adjacency.edge_count)
    return largest.nbytes / (largest.edge_count * len(largest.known_sides()))
