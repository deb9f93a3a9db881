"""Runs in the environment of the peers: bulk copy of the same Parquet files into ladybug."""

from __future__ import annotations

import sys
from pathlib import Path

import ladybug


def main(folder: Path, out: Path) -> None:
    connection = ladybug.Connection(ladybug.Database(str(out)))
    connection.execute("CREATE NODE TABLE Person(pid STRING PRIMARY KEY, name STRING, age INT32, score DOUBLE)")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since DATE, kind STRING, weight DOUBLE)")
    connection.execute(f'COPY Person FROM "{folder}/persons.parquet"')
    connection.execute(f'COPY Knows FROM "{folder}/knows/*.parquet"')


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
