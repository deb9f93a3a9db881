"""DuckDB: the graph as relational tables. Full text and vector indexes are extensions outside the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from comparison import edge_questions
from comparison.contract import HIGH_SCORE, SEEDS, TOP

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset


def _within(hops: int, projection: str) -> str:
    """Persons within some hops of person $1, level by level, which DuckDB runs faster than its recursive form."""
    levels = ["r1 AS MATERIALIZED (SELECT dst FROM Knows WHERE src = $1)"]
    levels += [
        f"r{hop} AS MATERIALIZED (SELECT DISTINCT k.dst FROM r{hop - 1} r JOIN Knows k ON k.src = r.dst)"
        for hop in range(2, hops + 1)
    ]
    reached = " UNION ".join(f"SELECT dst FROM r{hop}" for hop in range(1, hops + 1))
    return (
        f"WITH {', '.join(levels)} SELECT {projection} FROM Person p"
        f" WHERE p.pid IN ({reached}) AND p.score > 50 AND p.pid <> $1"
    )


def _spread(seed: str, question: str) -> str:
    """What is reached within three hops of the first persons, level by level: by all of them, or by each."""
    first = f"src AS {seed}" if seed else ""
    levels = [f"r1 AS MATERIALIZED (SELECT DISTINCT {first}dst FROM Knows WHERE src < {SEEDS})"]
    levels += [
        f"r{hop} AS MATERIALIZED (SELECT DISTINCT {seed}k.dst FROM r{hop - 1} r JOIN Knows k ON k.src = r.dst)"
        for hop in (2, 3)
    ]
    reached = " UNION ALL ".join(f"SELECT {seed}dst FROM r{hop}" for hop in (1, 2, 3))
    return f"WITH {', '.join(levels)}, reached AS ({reached}) {question}"


_TRIANGLE = "FROM Knows ab JOIN Knows bc ON bc.src = ab.dst JOIN Knows ac ON ac.src = ab.src AND ac.dst = bc.dst"
_BY_PERSON = {
    "point": "SELECT first_name, last_name, score FROM Person WHERE pid = $1",
    "walk-1": "SELECT count(*) FROM Knows WHERE src = $1",
    "walk-2": "SELECT count(*) FROM Knows k1 JOIN Knows k2 ON k2.src = k1.dst WHERE k1.src = $1",
    "walk-3": "SELECT count(*) FROM Knows k1 JOIN Knows k2 ON k2.src = k1.dst"
    " JOIN Knows k3 ON k3.src = k2.dst WHERE k1.src = $1",
    **{f"reach-{hops}": _within(hops, "count(*)") for hops in (1, 2, 3)},
    **{f"neighbours-{hops}": _within(hops, "p.pid") for hops in (1, 2)},
}
_WHOLE = {
    "top-degree": f"SELECT src, count(*) AS degree FROM Knows GROUP BY src ORDER BY degree DESC, src LIMIT {TOP}",
    # Written with two aggregates by hand; the plain join takes eight times as long.
    "two-paths": "SELECT sum(i.n * o.n)::BIGINT FROM (SELECT dst, count(*) AS n FROM Knows GROUP BY dst) i"
    " JOIN (SELECT src, count(*) AS n FROM Knows GROUP BY src) o ON i.dst = o.src",
    "anti-join": "SELECT count(*) FROM Person p ANTI JOIN Knows k ON k.src = p.pid",
    "triangles": f"SELECT count(*) {_TRIANGLE}",
    "triangles-ends": f"SELECT count(*) {_TRIANGLE} JOIN Person a ON a.pid = ab.src JOIN Person c ON c.pid = bc.dst"
    f" WHERE a.score > {HIGH_SCORE} AND c.score > {HIGH_SCORE}",
    "four-cycle": "SELECT count(*) FROM Knows ab JOIN Knows bc ON bc.src = ab.dst JOIN Knows cd ON cd.src = bc.dst"
    f" JOIN Knows da ON da.src = cd.dst AND da.dst = ab.src WHERE ab.src < {SEEDS}",
    "mutual": "SELECT count(*) FROM Knows ab JOIN Knows ba ON ba.src = ab.dst AND ba.dst = ab.src",
    # By hand, as above: the degrees first.
    "fan-out": "SELECT ab.src, sum(b.n)::BIGINT AS n FROM Knows ab JOIN"
    " (SELECT src, count(*) AS n FROM Knows GROUP BY src) b ON b.src = ab.dst"
    f" GROUP BY ab.src ORDER BY n DESC, ab.src LIMIT {TOP}",
    "spread": _spread("", f"SELECT count(DISTINCT dst) FROM reached WHERE dst >= {SEEDS}"),
    "spread-each": _spread("seed, ", "SELECT seed, count(DISTINCT dst) FROM reached WHERE dst <> seed GROUP BY seed"),
}
_ARROW = {"triangles-rows": f"SELECT ab.src AS a, ab.dst AS b, bc.dst AS c {_TRIANGLE}"}
_NEAREST = (
    "SELECT mid, array_distance(embedding, $1::FLOAT[{dimension}]) AS distance FROM Message {where}"
    f" ORDER BY distance LIMIT {TOP}"
)
_VECTOR_HOPS = (
    "WITH m AS (" + _NEAREST + ") SELECT k.dst FROM m JOIN HasCreator h ON h.src = m.mid"
    " JOIN Knows k ON k.src = h.dst"
    f" ORDER BY m.distance, m.mid::VARCHAR, k.dst::VARCHAR LIMIT {TOP}"
)


class DuckdbEngine:
    """A DuckDB database."""

    version = duckdb.__version__

    def __init__(self, store: Path) -> None:
        self._connection = duckdb.connect(str(store / "graph.duckdb"), read_only=True)
        (dimension,) = self._connection.execute("SELECT array_length(embedding) FROM Message LIMIT 1").fetchone()
        by_vector = {
            "vector": _NEAREST.format(dimension=dimension, where=""),
            "vector-post": _NEAREST.format(dimension=dimension, where="WHERE kind = 'post'"),
            "vector-hops": _VECTOR_HOPS.format(dimension=dimension, where=""),
        }
        self.calls: dict[str, Call] = {
            **{name: self._prepared(name, text) for name, text in _BY_PERSON.items()},
            **{name: self._whole(text) for name, text in (_WHOLE | edge_questions.DUCKDB).items()},
            **{name: self._arrow(text) for name, text in _ARROW.items()},
            **{name: self._by_vector(text) for name, text in by_vector.items()},
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Tables in key order, primary keys, and indexes on both ends of the edges."""
        import pyarrow.parquet as pq

        vectors = pq.read_schema(dataset.node_path("Message")).field("embedding").type
        with duckdb.connect(str(store / "graph.duckdb")) as connection:
            for name, columns, key in (
                ("Person", "*", "pid"),
                ("Message", f"* REPLACE (embedding::FLOAT[{vectors.list_size}] AS embedding)", "mid"),
            ):
                source = dataset.node_path(name)
                connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM '{source}'")
                connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({key})")
            for name in ("Knows", "HasCreator"):
                connection.execute(
                    f'CREATE TABLE {name} AS SELECT "from" AS src, "to" AS dst, * EXCLUDE ("from", "to")'
                    f" FROM '{dataset.edge_path(name)}' ORDER BY src, dst"
                )
                for column in ("src", "dst"):
                    connection.execute(f"CREATE INDEX {name}_{column} ON {name} ({column})")

    def rows(self, fetched: list[tuple[object, ...]] | pa.Table) -> list[list[object]]:
        """Rows as lists."""
        if isinstance(fetched, pa.Table):
            return [list(row.values()) for row in fetched.to_pylist()]
        return [list(row) for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}

    def _prepared(self, name: str, text: str) -> Call:
        statement = name.replace("-", "_")
        connection = self._connection
        connection.execute(f"PREPARE {statement} AS {text}")

        def call(inputs: Inputs) -> object:
            return connection.execute(f"EXECUTE {statement}({inputs['pid']})").fetchall()

        return call

    def _arrow(self, text: str) -> Call:
        connection = self._connection
        return lambda _: connection.execute(text).to_arrow_table()

    def _whole(self, text: str) -> Call:
        connection = self._connection
        return lambda _: connection.execute(text).fetchall()

    def _by_vector(self, text: str) -> Call:
        connection = self._connection
        return lambda inputs: connection.execute(text, [inputs["vector"]]).fetchall()
