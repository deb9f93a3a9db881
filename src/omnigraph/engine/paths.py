"""Which path a traversal takes: one rule from numbers to a choice. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.engine.settings import TraversalMode

if TYPE_CHECKING:
    from omnigraph.engine.settings import EngineSettings

#: Building the traversal index costs as much as following so many edges per edge.
ADJACENCY_COST_FACTOR = 1.5


#: Hops that an estimate looks at; further ones add little or have reached everything.
_ESTIMATED_HOPS = 32


class TraversalPath(StrEnum):
    """The three paths; all return the same rows."""

    INDEXED = "indexed"
    ADJACENCY = "adjacency"
    EDGE_SCAN = "edge scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraversalFacts:
    """What the choice depends on."""

    #: Distinct nodes to start from.
    frontier: int
    hops: int
    edges: int
    #: Nodes of the type that the traversal starts from.
    sources: int
    #: Whether the column that is probed has an index that covers every edge.
    is_indexed: bool
    #: Whether the traversal index is in memory or on disk already.
    is_ready: bool
    #: Edges that were followed on this state of the table without the traversal index.
    debt: float


def followed_edges(facts: TraversalFacts) -> float:
    """Estimate of the edges that a breadth-first walk follows: the mean degree, hop by hop, at most all of them."""
    degree = facts.edges / max(facts.sources, 1)
    nodes, followed = float(facts.frontier), 0.0
    for _ in range(min(facts.hops, _ESTIMATED_HOPS)):
        step = nodes * degree
        followed += step
        if followed >= facts.edges * facts.frontier or step == 0:
            break
        nodes = min(step, float(facts.sources) * facts.frontier)
    return min(followed, float(facts.edges) * max(facts.frontier, 1))


def choose_path(facts: TraversalFacts, settings: EngineSettings) -> TraversalPath:
    """The cheapest path.

    A traversal index that exists is always taken. Otherwise small walks probe the table, as long as all of them
    together have cost less than building the index would.
    """
    match settings.traversal_mode:
        case TraversalMode.INDEXED:
            return TraversalPath.INDEXED
        case TraversalMode.CSR:
            return TraversalPath.ADJACENCY
        case TraversalMode.SCAN:
            return TraversalPath.EDGE_SCAN
        case TraversalMode.AUTO:
            pass
    if facts.is_ready:
        return TraversalPath.ADJACENCY
    budget = facts.edges * ADJACENCY_COST_FACTOR - facts.debt
    if (
        facts.is_indexed
        and facts.frontier <= settings.indexed_max_frontier
        and facts.hops <= settings.indexed_max_hops
        and followed_edges(facts) <= budget
    ):
        return TraversalPath.INDEXED
    if facts.hops == 1 and facts.debt == 0 and facts.frontier <= settings.indexed_max_frontier:
        return TraversalPath.EDGE_SCAN
    return TraversalPath.ADJACENCY
