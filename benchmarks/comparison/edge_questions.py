"""Orders and sums over all edges, in the language of every engine: what no single person's neighbourhood answers."""

from __future__ import annotations

from comparison.contract import TOP

#: The workloads by name, with what they ask.
TITLES = {
    "edges-top": "top-10 edges by a property",
    "edges-sum": "edge property summed by 3 values",
    "edges-sum-many": "edge property summed by person",
    "edges-ends": "edges by a property of both ends",
    "edges-pairs": "edges by both ends, top-10",
}
#: Answers with sums of floats, which depend on the order of the additions.
SUMS = frozenset({"edges-sum", "edges-sum-many"})


def _ours(returned: str) -> str:
    return f"query q() {{ match {{ $a: Person $a $k: knows $b }} return {{ {returned} }}"


def _ordered(returned: str, order: str) -> str:
    return f"{_ours(returned)} order {{ {order} }} limit {TOP} }}"


OMNIGRAPH = {
    "edges-top": _ordered("$a.pid, $b.pid as other, $k.weight", "$k.weight desc, $a.pid, $b.pid"),
    "edges-sum": _ours("$a.gender, sum($k.weight) as total") + " }",
    "edges-sum-many": _ordered("$a.pid, sum($k.weight) as total", "total desc, $a.pid"),
    "edges-ends": _ours("$a.gender, $b.gender as other, count($k) as n") + " }",
    "edges-pairs": _ordered("$a.pid, $b.pid as other, count($k) as n", "n desc, $a.pid, $b.pid"),
}
DUCKDB = {
    "edges-top": f"SELECT src, dst, weight FROM Knows ORDER BY weight DESC, src, dst LIMIT {TOP}",
    "edges-sum": "SELECT p.gender, sum(k.weight) FROM Knows k JOIN Person p ON p.pid = k.src GROUP BY p.gender",
    "edges-sum-many": f"SELECT src, sum(weight) AS total FROM Knows GROUP BY src ORDER BY total DESC, src LIMIT {TOP}",
    "edges-ends": "SELECT p.gender, q.gender, count(*) FROM Knows k JOIN Person p ON p.pid = k.src"
    " JOIN Person q ON q.pid = k.dst GROUP BY p.gender, q.gender",
    "edges-pairs": f"SELECT src, dst, count(*) AS n FROM Knows GROUP BY src, dst ORDER BY n DESC, src, dst LIMIT {TOP}",
}
_KNOWS = "MATCH (a:Person)-[k:Knows]->(b:Person) RETURN"
LADYBUG = {
    "edges-top": f"{_KNOWS} a.pid, b.pid, k.weight ORDER BY k.weight DESC, a.pid, b.pid LIMIT {TOP}",
    "edges-sum": f"{_KNOWS} a.gender, sum(CAST(k.weight, 'DOUBLE'))",
    "edges-sum-many": f"{_KNOWS} a.pid AS one, sum(CAST(k.weight, 'DOUBLE')) AS total"
    f" ORDER BY total DESC, one LIMIT {TOP}",
    "edges-ends": f"{_KNOWS} a.gender, b.gender, count(*)",
    "edges-pairs": f"{_KNOWS} a.pid AS one, b.pid AS other, count(*) AS n ORDER BY n DESC, one, other LIMIT {TOP}",
}
