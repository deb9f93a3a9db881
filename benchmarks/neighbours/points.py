"""Vectors of three shapes with a number to filter by; deterministic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphs.folder import Dataset, DatasetWriter, read_dataset

if TYPE_CHECKING:
    from pathlib import Path

#: Raised when the same arguments give other rows than before, so that old files are not taken for new ones.
REVISION = 1

SHAPES = ("gaussian", "sphere", "clustered")
#: Every row has a part from 0 to below this number: a filter on it lets any share through.
PARTS = 1000
_CLUSTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """So many vectors of one shape."""

    shape: str
    rows: int = 50_000
    dimension: int = 64
    seed: int = 42

    @property
    def stamp(self) -> str:
        """Names these points; other arguments or another generator give another stamp."""
        return f"neighbours r{REVISION} " + " ".join(f"{name}={value}" for name, value in asdict(self).items())

    @property
    def schema(self) -> str:
        """The schema of the graph."""
        return f"node Point {{ number: I64 @key part: I32 @index vector: Vector({self.dimension}) @index }}"

    def vectors(self, count: int, seed: int) -> np.ndarray:
        """Vectors of this shape: stored ones, or queries that are not among them."""
        rng = np.random.default_rng(seed)
        found = rng.standard_normal((count, self.dimension))
        if self.shape == "sphere":
            found /= np.linalg.norm(found, axis=1, keepdims=True)
        if self.shape == "clustered":
            centres = 2 * np.random.default_rng(self.seed).standard_normal((_CLUSTERS, self.dimension))
            found = centres[rng.integers(0, _CLUSTERS, count)] + 0.5 * found
        return found.astype(np.float32)


def ensure(points: Points, path: Path) -> Dataset:
    """The dataset of points in a folder: the one that is there, or a new one."""
    known = read_dataset(path)
    if known is not None and known.stamp == points.stamp:
        return known
    writer = DatasetWriter(path, points.stamp, points.schema)
    vectors = points.vectors(points.rows, points.seed + 1)
    columns = {
        "number": np.arange(points.rows),
        "part": (np.random.default_rng(points.seed + 2).permutation(points.rows) % PARTS).astype(np.int32),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), points.dimension),
    }
    writer.node("Point", pa.table(columns))
    return writer.close()


@dataclass(slots=True)
class Truth:
    """The exact answers."""

    vectors: np.ndarray
    parts: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset) -> Truth:
        """Those of a dataset."""
        table = pq.read_table(dataset.node_path("Point"))
        flat = table["vector"].combine_chunks().flatten().to_numpy()
        return cls(flat.reshape(table.num_rows, -1), table["part"].to_numpy())

    def nearest(self, query: np.ndarray, below: int, count: int) -> set[int]:
        """The numbers of the nearest of the parts below one."""
        members = np.flatnonzero(self.parts < below)
        vectors = self.vectors if below == PARTS else self.vectors[members]
        squares = (vectors**2).sum(axis=1) - 2 * (vectors @ query)
        # With some more: 32 bits may put neighbours in another order.
        some = min(2 * count, len(members))
        found = members[np.argpartition(squares, some - 1)[:some]]
        exact = ((self.vectors[found].astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1)
        return set(found[np.argsort(exact)][:count].tolist())
