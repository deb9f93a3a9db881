"""Random multigraphs, and what their neighbourhoods are by definition."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from omnigraph.lang.query.ir import Direction


@dataclass(frozen=True)
class Edges:
    """Edges between numbered nodes of two types; the place of a pair is the edge. Equal pairs are parallel edges."""

    sources: int
    targets: int
    pairs: tuple[tuple[int, int], ...]

    def begins(self, direction: Direction) -> int:
        """How many nodes there are to begin at."""
        return self.targets if direction is Direction.IN else self.sources

    def steps(self, node: int, direction: Direction) -> list[tuple[int, int]]:
        """Every (neighbour, edge) of a node; an edge from a node to itself is one step either way."""
        found = set()
        for edge, (source, target) in enumerate(self.pairs):
            if direction is not Direction.IN and source == node:
                found.add((target, edge))
            if direction is not Direction.OUT and target == node:
                found.add((source, edge))
        return sorted(found)

    def neighbours(self, node: int, direction: Direction) -> set[int]:
        return {neighbour for neighbour, _ in self.steps(node, direction)}

    def reached(self, node: int, direction: Direction, low: int, high: int) -> set[int]:
        """Breadth first as the specification tells it."""
        visited, frontier, found = {node}, {node}, set()
        if low == 1 and node in self.neighbours(node, direction):
            found.add(node)
        for hop in range(1, high + 1):
            following = {
                neighbour for item in frontier for neighbour in self.neighbours(item, direction)
            }
            frontier = following - visited
            visited |= frontier
            if hop >= low:
                found |= frontier
        return found


@st.composite
def edges_between(
    draw: st.DrawFn, *, same_type: bool | None = None, max_nodes: int = 7, max_edges: int = 24
) -> Edges:
    """Few nodes and many edges, so that loops, cycles and parallel edges are common."""
    sources = draw(st.integers(1, max_nodes))
    is_same = draw(st.booleans()) if same_type is None else same_type
    targets = sources if is_same else draw(st.integers(1, max_nodes))
    pairs = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    return Edges(sources, targets, tuple(draw(st.lists(pairs, max_size=max_edges))))


@st.composite
def hops(draw: st.DrawFn) -> tuple[int, int]:
    """Bounds of a traversal."""
    low = draw(st.integers(1, 3))
    return low, draw(st.integers(low, 5))
