"""The nearest in OmniGraph, with its settings as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import omnigraph
from comparison.contract import TOP
from neighbours.points import PARTS
from omnigraph import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call, Inputs
    from graphs.folder import Dataset


class OmniGraphStore:
    """A graph with its indexes built and measured."""

    version = omnigraph.__version__

    def __init__(self, store: Path) -> None:
        self._graph = Graph.open(store / "points.omni")
        self._dimension = int((store / "dimension").read_text(encoding="utf-8"))
        self.calls: dict[str, Call] = {"nearest": self._nearest}

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """One commit with all rows, then the indexes."""
        with Graph.init(store / "points.omni", dataset.schema_path) as graph:
            graph.load(
                mapping={"nodes": {"Point": {"source": str(dataset.node_path("Point"))}}}, mode="append", engine="local"
            )
            graph.ensure_indices()
            vector = graph.catalog().nodes["Point"].properties["vector"].type.base
        (store / "dimension").write_text(str(vector.dimension), encoding="utf-8")

    def rows(self, fetched: list[dict[str, object]]) -> list[list[object]]:
        """Values in projection order."""
        return [list(row.values()) for row in fetched]

    def facts(self) -> dict[str, object]:
        """The ways that are taken, by the parts that pass the filter."""
        return {str(below): self._graph.explain(self._text(below)).splitlines()[-1].strip() for below in (10, PARTS)}

    def _text(self, below: object) -> str:
        where = "" if below == PARTS else "$p.part < $below"
        return (
            f"query q($vector: Vector({self._dimension}), $below: I32) {{ match {{ $p: Point {where} }} "
            f"return {{ $p.number as number }} order {{ nearest($p.vector, $vector) }} limit {TOP} }}"
        )

    def _nearest(self, inputs: Inputs) -> object:
        params = {"vector": inputs["vector"], "below": inputs["below"]}
        return self._graph.query(self._text(inputs["below"]), params).to_pylist()
