"""The embedding half of the façade."""

from __future__ import annotations

from omnigraph.graph.opened import OpenGraph


class EmbeddingMethods(OpenGraph):
    """What an open graph does with vectors of texts."""
