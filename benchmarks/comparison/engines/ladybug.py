"""Ladybug, an embedded property-graph database that speaks Cypher.

A query text with parameters is planned once per connection and cached by the library: its documented way, and faster
than its own (deprecated) prepared statements. Full text and vector indexes are extensions outside the package, so
vectors are scanned, exactly, and there is no BM25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ladybug
import pyarrow as pa

from comparison import edge_questions
from comparison.contract import HIGH_SCORE, SEEDS, TOP
from comparison.prepared import with_prepared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset

_TABLES = (
    "NODE TABLE Person(pid INT64 PRIMARY KEY, first_name STRING, last_name STRING, gender STRING, birthday DATE,"
    " created TIMESTAMP_MS, email STRING, score DOUBLE)",
    "NODE TABLE Message(mid INT64 PRIMARY KEY, kind STRING, created TIMESTAMP_MS, language STRING, length INT32,"
    " content STRING, embedding FLOAT[{dimension}])",
    "REL TABLE Knows(FROM Person TO Person, since DATE, weight FLOAT)",
    "REL TABLE HasCreator(FROM Message TO Person)",
)

_START = "MATCH (a:Person {pid: $pid})"
_WITHIN = {
    1: "-[:Knows]->(b:Person) WHERE b.score > 50",
    2: "-[:Knows* SHORTEST 1..2]->(b:Person) WHERE b.score > 50 AND b.pid <> $pid",
    3: "-[:Knows* SHORTEST 1..3]->(b:Person) WHERE b.score > 50 AND b.pid <> $pid",
}
_BY_PERSON = {
    "point": "MATCH (p:Person {pid: $pid}) RETURN p.first_name, p.last_name, p.score",
    "walk-1": f"{_START}-[:Knows]->(b:Person) RETURN count(*)",
    "walk-2": f"{_START}-[:Knows]->(:Person)-[:Knows]->(b:Person) RETURN count(*)",
    "walk-3": f"{_START}-[:Knows]->(:Person)-[:Knows]->(:Person)-[:Knows]->(b:Person) RETURN count(*)",
    **{f"reach-{hops}": f"{_START}{_WITHIN[hops]} RETURN count(*)" for hops in (1, 2, 3)},
    **{f"neighbours-{hops}": f"{_START}{_WITHIN[hops]} RETURN b.pid" for hops in (1, 2)},
}
_TRIANGLE = "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person), (a)-[:Knows]->(c)"
_SPREAD = "MATCH (a:Person)-[:Knows* SHORTEST 1..3]->(b:Person)"
_WHOLE = {
    "top-degree": "MATCH (p:Person)-[:Knows]->() RETURN p.pid, count(*) AS degree"
    f" ORDER BY degree DESC, p.pid LIMIT {TOP}",
    "two-paths": "MATCH ()-[:Knows]->(:Person)-[:Knows]->() RETURN count(*)",
    "anti-join": "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:Knows]->(:Person) } RETURN count(*)",
    "triangles": f"{_TRIANGLE} RETURN count(*)",
    "triangles-ends": f"{_TRIANGLE} WHERE a.score > {HIGH_SCORE} AND c.score > {HIGH_SCORE} RETURN count(*)",
    "four-cycle": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(:Person)-[:Knows]->(:Person)-[:Knows]->(a)"
    f" WHERE a.pid < {SEEDS} RETURN count(*)",
    "mutual": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(a) RETURN count(*)",
    "fan-out": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->() RETURN a.pid, count(*) AS n"
    f" ORDER BY n DESC, a.pid LIMIT {TOP}",
    "spread": f"{_SPREAD} WHERE a.pid < {SEEDS} AND b.pid >= {SEEDS} RETURN count(DISTINCT b.pid)",
    "spread-each": f"{_SPREAD} WHERE a.pid < {SEEDS} AND b.pid <> a.pid RETURN a.pid, count(*)",
}
_ARROW = {"triangles-rows": f"{_TRIANGLE} RETURN a.pid, b.pid, c.pid"}
_NEAREST = (
    "MATCH (m:Message) {where} RETURN m.mid,"
    " array_distance(m.embedding, CAST($vector, 'FLOAT[{dimension}]')) AS distance"
    f" ORDER BY distance LIMIT {TOP}"
)
_KNOWN_BY_CREATORS = (
    "MATCH (m:Message)-[:HasCreator]->(:Person)-[:Knows]->(q:Person) WHERE m.mid IN $mids RETURN m.mid, q.pid"
)


class LadybugEngine:
    """A Ladybug database."""

    version = ladybug.__version__

    def __init__(self, store: Path) -> None:
        self._connection = ladybug.Connection(ladybug.Database(store / "graph.lbdb"))
        columns = self._fetch("CALL table_info('Message') RETURN name, type")
        (vector_type,) = (kind for name, kind in columns if name == "embedding")
        dimension = vector_type.removeprefix("FLOAT[").removesuffix("]")
        nearest = {
            "vector": _NEAREST.format(where="", dimension=dimension),
            "vector-post": _NEAREST.format(where="WHERE m.kind = 'post'", dimension=dimension),
        }
        self._nearest = nearest["vector"]
        calls: dict[str, Call] = {
            **{name: self._call(text) for name, text in (_BY_PERSON | nearest).items()},
            **{name: self._call(text, takes_inputs=False) for name, text in (_WHOLE | edge_questions.LADYBUG).items()},
            **{name: self._arrow(text) for name, text in _ARROW.items()},
            "vector-hops": self._vector_hops,
        }
        self.calls = with_prepared(calls, calls)

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Copy the tables that the workloads touch; primary keys and adjacency come with them."""
        import pyarrow.parquet as pq

        vectors = pq.read_schema(dataset.node_path("Message")).field("embedding").type
        connection = ladybug.Connection(ladybug.Database(store / "graph.lbdb"))
        for text in _TABLES:
            connection.execute("CREATE " + text.format(dimension=vectors.list_size))
        for name in ("Person", "Message"):
            connection.execute(f'COPY {name} FROM "{dataset.node_path(name)}"')
        for name in ("Knows", "HasCreator"):
            connection.execute(f'COPY {name} FROM "{dataset.edge_path(name)}"')
        connection.execute("CHECKPOINT")
        connection.close()

    def rows(self, fetched: list[list[object]] | pa.Table) -> list[list[object]]:
        """Rows as they are, or those of an Arrow table."""
        if isinstance(fetched, pa.Table):
            return [list(row.values()) for row in fetched.to_pylist()]
        return fetched

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}

    def _fetch(self, text: str, inputs: Inputs | None = None) -> list[list[object]]:
        return self._connection.execute(text, inputs and dict(inputs)).get_all()

    def _call(self, text: str, *, takes_inputs: bool = True) -> Callable[[Inputs], object]:
        execute = self._connection.execute
        if takes_inputs:
            return lambda inputs: execute(text, inputs).get_all()
        return lambda _: execute(text).get_all()

    def _arrow(self, text: str) -> Callable[[Inputs], object]:
        execute = self._connection.execute
        return lambda _: execute(text).get_as_arrow()

    def _vector_hops(self, inputs: Inputs) -> object:
        """In two queries: one query that continues from the ten messages is planned as a scan of all of them."""
        mids = [mid for mid, _ in self._fetch(self._nearest, inputs)]
        rank = {mid: place for place, mid in enumerate(mids)}
        pairs = self._fetch(_KNOWN_BY_CREATORS, {"mids": mids})
        pairs.sort(key=lambda pair: (rank[pair[0]], str(pair[1])))
        return [[pid] for _, pid in pairs[:TOP]]
