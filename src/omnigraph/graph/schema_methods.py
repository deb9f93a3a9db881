"""The schema half of the façade."""

from __future__ import annotations

from omnigraph.graph.opened import OpenGraph
from omnigraph.manifest import MAIN


class SchemaMethods(OpenGraph):
    """What an open graph does with its schema."""

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        return self._schema_of(self._state().head(MAIN).schema_hash).source
