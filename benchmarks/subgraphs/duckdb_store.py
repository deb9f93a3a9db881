"""The nine queries in DuckDB: a table per edge type, and views of what has several types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from subgraphs.network import EDGES, NODES

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call
    from graphs.folder import Dataset

#: Messages of both types in one table: posts by even numbers, comments by odd ones.
_POST, _COMMENT = "2 * {0}", "2 * {0} + 1"
_VIEWS = {
    "Acquaintance": "SELECT src, dst FROM Knows UNION ALL SELECT dst, src FROM Knows",
    "Tagged": f"SELECT {_POST.format('src')} AS src, dst FROM PostTag"
    f" UNION ALL SELECT {_COMMENT.format('src')}, dst FROM CommentTag",
    "Created": f"SELECT {_POST.format('src')} AS src, dst FROM PostCreator"
    f" UNION ALL SELECT {_COMMENT.format('src')}, dst FROM CommentCreator",
    "Liked": f"SELECT src, {_POST.format('dst')} AS dst FROM LikesPost"
    f" UNION ALL SELECT src, {_COMMENT.format('dst')} FROM LikesComment",
    "Replied": f"SELECT src, {_POST.format('dst')} AS dst FROM ReplyToPost"
    f" UNION ALL SELECT src, {_COMMENT.format('dst')} FROM ReplyToComment",
}
_TAGS_OF_REPLIES = (
    "SELECT count(*) FROM Tagged t JOIN Replied r ON r.dst = t.src JOIN CommentTag c ON c.src = r.src"
    " WHERE t.dst <> c.dst"
)
_TWO_STEPS = (
    "SELECT count(*) FROM Acquaintance k JOIN Acquaintance l ON l.src = k.dst"
    " JOIN HasInterest i ON i.src = l.dst WHERE k.src <> l.dst"
)
_QUERIES = {
    "q1": "SELECT count(*) FROM CountryIn a JOIN CityIn b ON b.dst = a.src JOIN LivesIn c ON c.dst = b.src"
    " JOIN HasMember d ON d.dst = c.src JOIN ContainerOf e ON e.src = d.src JOIN ReplyToPost f ON f.dst = e.dst"
    " JOIN CommentTag g ON g.src = f.src JOIN HasType h ON h.src = g.dst",
    "q2": "SELECT count(*) FROM ReplyToPost r JOIN CommentCreator c ON c.src = r.src"
    " JOIN PostCreator p ON p.src = r.dst JOIN Acquaintance k ON k.src = c.dst AND k.dst = p.dst",
    "q3": "WITH home AS (SELECT l.src AS person, c.dst AS country FROM LivesIn l JOIN CityIn c ON c.src = l.dst)"
    " SELECT count(*) FROM Acquaintance k JOIN Acquaintance l ON l.src = k.dst"
    " JOIN Acquaintance m ON m.src = l.dst AND m.dst = k.src"
    " JOIN home a ON a.person = k.src JOIN home b ON b.person = l.src AND b.country = a.country"
    " JOIN home c ON c.person = m.src AND c.country = a.country",
    "q4": "SELECT count(*) FROM Tagged t JOIN Created c ON c.src = t.src JOIN Liked l ON l.dst = t.src"
    " JOIN Replied r ON r.dst = t.src",
    "q5": _TAGS_OF_REPLIES,
    "q6": _TWO_STEPS,
    "q7": "SELECT count(*) FROM Tagged t JOIN Created c ON c.src = t.src LEFT JOIN Liked l ON l.dst = t.src"
    " LEFT JOIN Replied r ON r.dst = t.src",
    "q8": f"{_TAGS_OF_REPLIES} AND NOT EXISTS (SELECT 1 FROM CommentTag o WHERE o.src = r.src AND o.dst = t.dst)",
    "q9": f"{_TWO_STEPS} AND NOT EXISTS (SELECT 1 FROM Acquaintance o WHERE o.src = k.src AND o.dst = l.dst)",
}


class DuckdbStore:
    """A DuckDB database."""

    version = duckdb.__version__

    def __init__(self, store: Path) -> None:
        connection = duckdb.connect(str(store / "network.duckdb"), read_only=True)
        self.calls: dict[str, Call] = {
            name: lambda _, text=text: connection.execute(text).fetchall() for name, text in _QUERIES.items()
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Tables in the order of their keys, and the views."""
        with duckdb.connect(str(store / "network.duckdb")) as connection:
            for name in NODES:
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{dataset.node_path(name)}'")
            for name in EDGES:
                connection.execute(
                    f'CREATE TABLE {name} AS SELECT "from" AS src, "to" AS dst'
                    f" FROM '{dataset.edge_path(name)}' ORDER BY src, dst"
                )
            for name, text in _VIEWS.items():
                connection.execute(f"CREATE VIEW {name} AS {text}")

    def rows(self, fetched: list[tuple[object, ...]]) -> list[list[object]]:
        """Rows as lists."""
        return [list(row) for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}
