"""Persons and who knows whom with ids for the edges, as Parquet files: deterministic, written once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loading.data import edge_slices, person_rows

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Files:
    """The input of one size, and the stores that were filled from it."""

    folder: Path
    persons: int
    edges: int

    @property
    def mapping(self) -> dict[str, object]:
        """Which file feeds which type."""
        knows = {"source": str(self.knows), "id": "id", "from": "from", "to": "to"}
        return {"nodes": {"Person": {"source": str(self.folder / "persons.parquet")}}, "edges": {"Knows": knows}}

    @property
    def knows(self) -> Path:
        """The edges."""
        return self.folder / "knows"

    @cached_property
    def edge_rows(self) -> pa.Table:
        """All edges in memory, in the order of their ids."""
        return pa.concat_tables(pq.read_table(path) for path in sorted(self.knows.glob("*")))


def ensure(folder: Path, persons: int, edges: int) -> Files:
    """The files of one size; written when they are missing."""
    files = Files(folder / f"history-{persons}-{edges}", persons, edges)
    done = files.folder / "complete"
    if not done.exists():
        files.knows.mkdir(parents=True, exist_ok=True)
        pq.write_table(person_rows(persons), files.folder / "persons.parquet")
        begin = 0
        for number, table in enumerate(edge_slices(persons, edges)):
            ids = edge_ids(np.arange(begin, begin + table.num_rows))
            rows = table.add_column(0, "id", ids)
            pq.write_table(rows, files.knows / f"part-{number:04d}.parquet")
            begin += table.num_rows
        done.touch()
    return files


def edge_ids(numbers: np.ndarray) -> pa.Array:
    """Ids of edges by their numbers, in the same order."""
    padded = pc.utf8_lpad(pa.array(numbers).cast("string"), 8, "0")
    return pc.binary_join_element_wise("e", padded, "")


def spread(edges: int, count: int, offset: int) -> np.ndarray:
    """Numbers of some edges, evenly over all. Other offsets below the stride give other edges."""
    stride = edges // count
    return np.arange(count) * stride + offset % stride
