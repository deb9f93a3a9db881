"""Bare Lance, in our own environment: the floor under a key lookup and under the two searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow.parquet as pq

from comparison.contract import TOP, vector_partitions

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset


class LanceEngine:
    """Two Lance datasets with the indexes that OmniGraph builds, and nothing around them."""

    version = lance.__version__

    def __init__(self, store: Path) -> None:
        session = lance.Session()
        self._person = lance.dataset(store / "Person", session=session)
        self._message = lance.dataset(store / "Message", session=session)
        self.calls: dict[str, Call] = {
            "point": self._point,
            "bm25": self._bm25,
            "vector": self._vector,
            "vector-post": self._vector_post,
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """The two tables with scalar, text and vector indexes."""
        person, message = (
            lance.write_dataset(pq.read_table(dataset.node_path(name)), store / name, enable_stable_row_ids=True)
            for name in ("Person", "Message")
        )
        person.create_scalar_index("pid", "BTREE")
        message.create_scalar_index("kind", "BTREE")
        message.create_scalar_index("content", "INVERTED", with_position=True)
        partitions = vector_partitions(message.count_rows())
        if partitions is not None:
            message.create_index("embedding", "IVF_FLAT", metric="L2", num_partitions=partitions)

    def rows(self, fetched: list[dict[str, object]]) -> list[list[object]]:
        """Values in column order, without scores."""
        return [[v for name, v in row.items() if not name.startswith("_")] for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}

    def _point(self, inputs: Inputs) -> object:
        columns = ["first_name", "last_name", "score"]
        return self._person.to_table(columns, filter=f"pid = {inputs['pid']}").to_pylist()

    def _bm25(self, inputs: Inputs) -> object:
        query = {"query": inputs["text"], "columns": ["content"]}
        found = self._message.to_table(["mid", "_score"], full_text_query=query, limit=TOP)
        return found.to_pylist()

    def _vector(self, inputs: Inputs) -> object:
        nearest = {"column": "embedding", "q": inputs["vector"], "k": TOP}
        return self._message.to_table(["mid", "_distance"], nearest=nearest).to_pylist()

    def _vector_post(self, inputs: Inputs) -> object:
        nearest = {"column": "embedding", "q": inputs["vector"], "k": TOP}
        return self._message.to_table(
            ["mid", "_distance"], nearest=nearest, filter="kind = 'post'", prefilter=True
        ).to_pylist()
