"""The nearest in LanceDB, through two kinds of index, with as much effort as a call asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lancedb
import pyarrow.parquet as pq
from lancedb.index import BTree, HnswSq, IvfFlat

from comparison.contract import TOP, vector_partitions
from neighbours.points import PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset

#: Candidates per row of the answer whose exact distances are looked at.
_REFINED = 4


class HnswStore:
    """A graph of neighbours over vectors of 8 bits; the effort is how many candidates a walk keeps."""

    version = lancedb.__version__

    def __init__(self, store: Path) -> None:
        self._table = lancedb.connect(store).open_table("Point")
        self.calls: dict[str, Call] = {"nearest": self._nearest}

    @classmethod
    def build(cls, dataset: Dataset, store: Path) -> None:
        """A table with its indexes."""
        table = lancedb.connect(store).create_table("Point", pq.read_table(dataset.node_path("Point")))
        table.create_index("part", config=BTree())
        table.create_index("vector", config=cls.index(table.count_rows()))

    @staticmethod
    def index(_rows: int) -> object:
        """The index of the vectors."""
        return HnswSq(distance_type="l2", num_partitions=1)

    def rows(self, fetched: list[dict[str, object]]) -> list[list[object]]:
        """Values in column order; scores come last and are not part of an answer."""
        return [[value for name, value in row.items() if not name.startswith("_")] for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}

    def _nearest(self, inputs: Inputs) -> object:
        found = self._table.search(inputs["vector"], vector_column_name="vector")
        if inputs["below"] != PARTS:
            found = found.where(f"part < {inputs['below']}", prefilter=True)
        found = self.tried(found, int(inputs["effort"]))
        return found.select(["number", "_distance"]).limit(TOP).to_arrow().to_pylist()

    def tried(self, query: lancedb.query.LanceVectorQueryBuilder, effort: int) -> lancedb.query.LanceVectorQueryBuilder:
        """A query with so much effort."""
        return query.ef(effort).refine_factor(_REFINED)


class IvfStore(HnswStore):
    """Whole vectors in partitions; the effort is how many partitions are looked at."""

    @staticmethod
    def index(rows: int) -> object:
        """The index of the vectors."""
        return IvfFlat(distance_type="l2", num_partitions=vector_partitions(rows) or 1)

    def tried(self, query: lancedb.query.LanceVectorQueryBuilder, effort: int) -> lancedb.query.LanceVectorQueryBuilder:
        """A query with so much effort."""
        return query.nprobes(effort)
