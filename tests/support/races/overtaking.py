"""A writer that stands before the commit window while another one goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omnigraph.graph.graph import Graph
from omnigraph.storage.locks import CommitLock, HeldTenure
from support.races.jobs import with_lock


class OvertakenLock:
    """A commit lock one of whose takers is overtaken: somebody else writes just before it enters."""

    def __init__(self, inner: CommitLock, overtake: Callable[[], object], taker: int = 1) -> None:
        self._inner = inner
        self._overtake = overtake
        self._ahead = taker

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[HeldTenure]:
        self._ahead -= 1
        if self._ahead == 0:
            self._overtake()
        with self._inner.held(timeout_s) as tenure:
            yield tenure


def overtaken(graph: Graph, overtake: Callable[[Graph], object], write: int = 1) -> Graph:
    """A second view of the graph, whose first write, or a later one, is overtaken by `overtake`."""
    other = Graph.open(graph.uri)
    lock = OvertakenLock(graph._environment.lock, lambda: overtake(other), write)
    return with_lock(graph, lock)
