"""Doltlite, a versioned SQL database in one file, at its best.

There are primary keys, and no other index or rule: nothing checks the ends of an edge. Rows and their commit share one
transaction, which is flushed to disk, as doltlite does unless told otherwise.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import doltlite  # first: from here on `sqlite3` is doltlite
import pyarrow.parquet as pq

from histories.contract import ANCHOR, MAIN
from histories.data import Files, edge_ids, spread

# isort: split
import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA = """
CREATE TABLE person (pid TEXT PRIMARY KEY, name TEXT NOT NULL, age INTEGER, score REAL NOT NULL);
CREATE TABLE knows (id TEXT PRIMARY KEY, src TEXT NOT NULL, dst TEXT NOT NULL,
  since TEXT NOT NULL, kind TEXT NOT NULL, weight REAL NOT NULL);
"""
_INSERT_PERSON = "INSERT INTO person VALUES (?, ?, ?, ?)"
_INSERT_EDGE = "INSERT INTO knows VALUES (?, ?, ?, ?, ?, ?)"


class DoltliteStore:
    """A database file."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._path = path
        self._files = files
        self._inserted = 0
        self._connection = _connect(path)

    @staticmethod
    def build(files: Files, path: Path) -> None:
        """One transaction, rows in the order of their keys."""
        connection = _connect(path)
        connection.executescript(_SCHEMA)
        connection.execute("BEGIN")
        persons = pq.read_table(files.folder / "persons.parquet").sort_by("pid").to_pylist()
        connection.executemany(_INSERT_PERSON, (tuple(row.values()) for row in persons))
        for part in sorted(files.knows.glob("*")):
            rows = pq.read_table(part)
            rows = rows.set_column(3, "since", rows["since"].cast("string"))
            columns = [column.to_pylist() for column in rows.itercolumns()]
            connection.executemany(_INSERT_EDGE, zip(*columns, strict=True))
        _commit(connection, "load")
        connection.close()

    @staticmethod
    def create(path: Path) -> None:
        """Tables with one person."""
        connection = _connect(path)
        connection.executescript(_SCHEMA)
        connection.execute("BEGIN")
        connection.execute(_INSERT_PERSON, (ANCHOR, "n", 3, 0.5))
        _commit(connection, "create")
        connection.close()

    @staticmethod
    def version() -> str:
        """Of the library."""
        return str(doltlite.__version__)

    def create_branch(self, name: str) -> None:
        """A reference to a commit."""
        self._call("dolt_branch", name)

    def insert_person(self, key: str, branch: str = MAIN) -> None:
        """One row."""
        with self._transaction(branch) as connection:
            connection.execute(_INSERT_PERSON, (key, "n", 3, 0.5))

    def insert_edge(self, branch: str = MAIN) -> None:
        """One row, at the end of the table, where those of OmniGraph go too."""
        self._inserted += 1
        row = (f"x{self._inserted:08d}", ANCHOR, ANCHOR, "2020-01-01", "work", 0.5)
        with self._transaction(branch) as connection:
            connection.execute(_INSERT_EDGE, row)

    def change_person(self, score: float) -> None:
        """An update by key."""
        with self._transaction(MAIN) as connection:
            connection.execute("UPDATE person SET score = ? WHERE pid = ?", (score, ANCHOR))

    def change_edges(self, branch: str, count: int, offset: int, weight: float) -> None:
        """Updates by key."""
        assert self._files is not None, "only a filled store has edges to change"
        ids = edge_ids(spread(self._files.edges, count, offset)).to_pylist()
        with self._transaction(branch) as connection:
            connection.executemany("UPDATE knows SET weight = ? WHERE id = ?", ((weight, key) for key in ids))

    def diff(self, old: str, new: str) -> int:
        """The columns that a diff of OmniGraph has, for both tables."""
        found = 0
        for table, columns in (("person", ""), ("knows", ", from_src, from_dst, to_src, to_dst")):
            key = "pid" if table == "person" else "id"
            text = f"SELECT diff_type, from_{key}, to_{key}{columns} FROM dolt_diff_{table}(?, ?)"
            found += len(self._connection.execute(text, (old, new)).fetchall())
        return found

    def merge(self, source: str) -> None:
        """Into the branch that is checked out, which is main."""
        self._call("dolt_merge", source)

    def log(self) -> int:
        """Every commit as a tuple."""
        return len(self._connection.execute("SELECT * FROM dolt_log").fetchall())

    def reopen(self) -> None:
        """A connection that knows nothing."""
        self.close()
        self._connection = _connect(self._path)

    def close(self) -> None:
        """The connection."""
        self._connection.close()

    @contextmanager
    def _transaction(self, branch: str) -> Iterator[sqlite3.Connection]:
        """Writes of one commit; main is checked out before and after."""
        if branch != MAIN:
            self._call("dolt_checkout", branch)
        self._connection.execute("BEGIN")
        yield self._connection
        _commit(self._connection, "change")
        if branch != MAIN:
            self._call("dolt_checkout", MAIN)

    def _call(self, function: str, argument: str) -> None:
        self._connection.execute(f"SELECT {function}(?)", (argument,)).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _commit(connection: sqlite3.Connection, message: str) -> None:
    connection.execute("SELECT dolt_commit('-A', '-m', ?)", (message,)).fetchall()
    if connection.in_transaction:
        connection.execute("COMMIT")
