"""The maintaining half of the façade: indexes and layout, which never change a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.opened import OpenGraph
from omnigraph.manifest import MAIN, check_branch_name

if TYPE_CHECKING:
    from omnigraph.graph.results import IndexReport, PendingIndex


class MaintenanceMethods(OpenGraph):
    """What keeps an open graph fast."""

    def ensure_indices(self, branch: str = MAIN, *, actor: str | None = None) -> IndexReport:
        """Build every index that the schema declares and the data lacks, as one commit that changes no row.

        Traversal indexes of large edge types are prepared as well. Running it again without new data does nothing.

        Raises:
            BranchNotFoundError: there is no such branch.
            ConflictError: writers kept changing the tables; nothing happened.
        """
        self._require_writable()
        branch = check_branch_name(branch)
        self._heal()
        report = self._writer.ensure_indices(branch, actor)
        self._reader.prepare_traversals(branch)
        return report

    def pending_indexes(self, branch: str = MAIN) -> list[PendingIndex]:
        """Declared indexes that do not cover every row of a branch, with the reason."""
        from omnigraph.graph.indexing import missing_indexes

        snapshot = self.snapshot(branch)
        catalog = self._schema_of(snapshot.schema_hash).catalog
        return missing_indexes(catalog, snapshot, self._open)
