"""LanceDB: search over Lance tables, through its synchronous interface and with its default search settings.

It has no traversal: a graph step is a filter on an edge table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lancedb
import pyarrow.parquet as pq
from lancedb.index import FTS, BTree, IvfFlat
from lancedb.rerankers import RRFReranker

from comparison.contract import FUSION_DEPTH, FUSION_K, TOP, vector_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset

_INDEXES = {
    "Person": {"pid": BTree()},
    "Message": {"mid": BTree(), "kind": BTree(), "content": FTS()},
    "Knows": {"from": BTree()},
    "HasCreator": {"from": BTree()},
}


class LancedbEngine:
    """A LanceDB folder."""

    version = lancedb.__version__

    def __init__(self, store: Path) -> None:
        database = lancedb.connect(store)
        self._person, self._message, self._knows, self._creator = (database.open_table(name) for name in _INDEXES)
        self._fusion = RRFReranker(K=FUSION_K)
        self.calls: dict[str, Call] = {
            "point": self._point,
            "bm25": self._bm25,
            "vector": self._vector,
            "vector-post": self._vector_post,
            "rrf": self._rrf,
            "vector-hops": self._vector_hops,
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Tables with the scalar, text and vector indexes that OmniGraph builds too."""
        database = lancedb.connect(store)
        for name, indexes in _INDEXES.items():
            is_node = name in dataset.nodes
            source = dataset.node_path(name) if is_node else dataset.edge_path(name)
            table = database.create_table(name, pq.read_table(source))
            for column, config in indexes.items():
                table.create_index(column, config=config)
            partitions = vector_partitions(table.count_rows())
            if name == "Message" and partitions is not None:
                config = IvfFlat(distance_type="l2", num_partitions=partitions)
                table.create_index("embedding", config=config)

    def rows(self, fetched: list[dict[str, object]]) -> list[list[object]]:
        """Values in column order; scores come last and are not part of an answer."""
        return [[v for name, v in row.items() if not name.startswith("_")] for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}

    def _point(self, inputs: Inputs) -> object:
        found = self._person.search().where(f"pid = {inputs['pid']}")
        return found.select(["first_name", "last_name", "score"]).to_arrow().to_pylist()

    def _bm25(self, inputs: Inputs) -> object:
        found = self._message.search(inputs["text"], query_type="fts", fts_columns="content")
        return found.select(["mid", "_score"]).limit(TOP).to_arrow().to_pylist()

    def _vector(self, inputs: Inputs) -> list[dict[str, object]]:
        found = self._message.search(inputs["vector"], vector_column_name="embedding")
        return found.select(["mid", "_distance"]).limit(TOP).to_arrow().to_pylist()

    def _vector_post(self, inputs: Inputs) -> object:
        found = self._message.search(inputs["vector"], vector_column_name="embedding")
        found = found.where("kind = 'post'", prefilter=True)
        return found.select(["mid", "_distance"]).limit(TOP).to_arrow().to_pylist()

    def _rrf(self, inputs: Inputs) -> object:
        """Its limit is also the depth of each arm, so the answer is cut here."""
        found = (
            self._message.search(query_type="hybrid", vector_column_name="embedding", fts_columns="content")
            .vector(inputs["vector"])
            .text(inputs["text"])
            .rerank(self._fusion)
            .select(["mid"])
            .limit(FUSION_DEPTH)
        )
        return found.to_arrow().slice(0, TOP).to_pylist()

    def _vector_hops(self, inputs: Inputs) -> object:
        """The graph steps as two filtered reads, joined here."""
        rank = {row["mid"]: place for place, row in enumerate(self._vector(inputs))}
        creators = self._edges(self._creator, rank)
        known = self._edges(self._knows, {edge["to"] for edge in creators})
        by_person: dict[object, list[object]] = {}
        for edge in known:
            by_person.setdefault(edge["from"], []).append(edge["to"])
        pairs = [(rank[edge["from"]], str(pid)) for edge in creators for pid in by_person.get(edge["to"], ())]
        return [{"pid": int(pid)} for _, pid in sorted(pairs)[:TOP]]

    def _edges(self, table: lancedb.table.Table, keys: Iterable[object]) -> list[dict[str, object]]:
        wanted = ", ".join(map(str, keys))
        found = table.search().where(f"`from` IN ({wanted})").select(["from", "to"])
        return found.to_arrow().to_pylist()
