"""What a system must offer to be compared."""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from graphs.folder import Dataset

    #: The inputs of one call: `pid`, `text`, `vector`, as plain JSON values.
    Inputs = Mapping[str, object]
    #: Runs a workload once and fetches its whole result, in the form that is cheapest in the engine's own API.
    Call = Callable[[Inputs], object]

#: Results of ranking workloads have this many rows.
TOP = 10
#: Persons that workloads over a part of the graph begin at: those with the smallest keys.
SEEDS = 300
#: Ends of triangles have a score above this where they are filtered.
HIGH_SCORE = 40.0
#: Entities that each arm of a fused ranking contributes: OmniGraph's max(5 * limit, 50).
FUSION_DEPTH = 50
#: The constant of reciprocal rank fusion.
FUSION_K = 60
#: Vectors below this number are scanned, by every engine: an index would not pay.
INDEXED_VECTORS = 10_000

#: The fact by which an engine tells the memory of its adjacency index, per edge and direction.
ADJACENCY_BYTES = "adjacency_bytes_per_edge"

_ENGINES = {
    "omnigraph": "comparison.engines.omnigraph:OmniGraphEngine",
    "lance": "comparison.engines.lance:LanceEngine",
    "ladybug": "comparison.engines.ladybug:LadybugEngine",
    "duckdb": "comparison.engines.duckdb:DuckdbEngine",
    "lancedb": "comparison.engines.lancedb:LancedbEngine",
}
ENGINES = tuple(_ENGINES)
#: Stores of another dataset, by engine and the name of the dataset.
_OTHER_STORES = {
    "omnigraph/subgraphs": "subgraphs.omnigraph_store:OmniGraphStore",
    "ladybug/subgraphs": "subgraphs.ladybug_store:LadybugStore",
    "duckdb/subgraphs": "subgraphs.duckdb_store:DuckdbStore",
    "omnigraph/points": "neighbours.omnigraph_store:OmniGraphStore",
    "lancedb/hnsw": "neighbours.lancedb_store:HnswStore",
    "lancedb/ivf": "neighbours.lancedb_store:IvfStore",
}
OURS = "omnigraph"
#: Engines that live in the environment of the peers.
PEERS = ("ladybug", "duckdb", "lancedb")


class Engine(Protocol):
    """A filled store, open for queries. `Engine(store)` opens it."""

    #: Version of the library.
    version: str
    #: The workloads by name; one that the engine cannot express is absent.
    calls: Mapping[str, Call]

    def __init__(self, store: Path) -> None: ...

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Load the dataset into an empty folder and build every index that the workloads profit from."""

    def rows(self, fetched: object) -> list[list[object]]:
        """What a call fetched, as rows; for the comparison of answers, outside the measured time."""

    def facts(self) -> dict[str, object]:
        """Further figures that the engine can tell about itself."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine, or of its store of another dataset; imports its library."""
    module, _, attribute = (_ENGINES | _OTHER_STORES)[name].partition(":")
    found: type[Engine] = getattr(import_module(module), attribute)
    return found


def vector_partitions(vectors: int) -> int | None:
    """Partitions of the vector index, or None for a plain scan; the same rule for every engine."""
    return None if vectors < INDEXED_VECTORS else math.isqrt(vectors)
