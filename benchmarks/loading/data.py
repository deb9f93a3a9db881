"""Persons and who knows whom, as Parquet and JSONL files: deterministic, written once, a slice at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = """
node Person {
  pid: String @key
  name: String
  age: I32?
  score: F64
  @range(age, 0..150)
  @check(pid, "^p[0-9]+$")
}
edge Knows: Person -> Person {
  since: Date
  kind: enum(family, friend, work)
  weight: F64
}
"""
KINDS = np.array(["family", "friend", "work"])
SLICE = 500_000


@dataclass(frozen=True, slots=True)
class Files:
    """The input of one size."""

    folder: Path
    persons: int
    edges: int

    @property
    def mapping(self) -> dict[str, object]:
        """Which file feeds which type."""
        return {
            "nodes": {"Person": {"source": str(self.folder / "persons.parquet")}},
            "edges": {"Knows": {"source": str(self.folder / "knows"), "from": "from", "to": "to"}},
        }

    @property
    def lines(self) -> Path:
        """The same records in the graph format."""
        return self.folder / "graph.jsonl"


def ensure(folder: Path, persons: int, edges: int, *, lines: bool) -> Files:
    """The files of one size; written when they are missing."""
    files = Files(folder / f"knows-{persons}-{edges}", persons, edges)
    done = files.folder / "complete"
    if not done.exists():
        (files.folder / "knows").mkdir(parents=True, exist_ok=True)
        pq.write_table(person_rows(persons), files.folder / "persons.parquet", row_group_size=50_000)
        for number, table in enumerate(edge_slices(persons, edges)):
            pq.write_table(table, files.folder / "knows" / f"part-{number:04d}.parquet")
        done.touch()
    if lines and not files.lines.exists():
        write_lines(files)
    return files


def person_rows(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "pid": ids(np.arange(count)),
            "name": pc.binary_join_element_wise("Person ", pa.array(np.arange(count)).cast("string"), ""),
            "age": pa.array(random.integers(0, 100, count), pa.int32()),
            "score": random.random(count),
        }
    )


def edge_slices(persons: int, count: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(11)
    for begin in range(0, count, SLICE):
        size = min(SLICE, count - begin)
        yield pa.table(
            {
                "from": ids(random.integers(0, persons, size)),
                "to": ids(random.integers(0, persons, size)),
                "since": pa.array(random.integers(10_000, 20_000, size), pa.int32()).cast(pa.date32()),
                "kind": pa.array(KINDS[random.integers(0, 3, size)]),
                "weight": random.random(size),
            }
        )


def ids(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("p", pa.array(numbers).cast("string"), "")


def write_lines(files: Files) -> None:
    with files.lines.open("w", encoding="utf-8") as out:
        for row in person_rows(files.persons).to_pylist():
            out.write(json.dumps({"type": "Person", "data": row}) + "\n")
        for table in edge_slices(files.persons, files.edges):
            for row in table.to_pylist():
                ends = {"from": row.pop("from"), "to": row.pop("to")}
                row["since"] = row["since"].isoformat()
                out.write(json.dumps({"edge": "Knows", **ends, "data": row}) + "\n")
