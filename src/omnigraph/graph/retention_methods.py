"""The retention half of the façade: what is removed, and whether a graph is healthy."""

from __future__ import annotations

from omnigraph.graph.opened import OpenGraph


class RetentionMethods(OpenGraph):
    """What keeps an open graph small and healthy."""
