"""What a cleanup removed, or in a preview would remove, and what it kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCleanup:
    """One dataset: a node or edge type, or the directory of one that the catalog does not know."""

    type_key: str
    #: The directory below the root of the graph.
    location: str
    old_versions_removed: int = 0
    versions_kept: int = 0
    #: Forks of branches that are gone.
    forks_removed: int = 0
    #: Files that no version referred to: staged by writers that died.
    staged_files_removed: int = 0
    #: Everything together.
    bytes_removed: int = 0
    #: Whether the whole dataset went, because no snapshot that stays reads it.
    is_dropped: bool = False
    #: Why nothing was removed here, or less than planned; None when all went well.
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        """The dataset as a JSON object."""
        return {
            "type_key": self.type_key,
            "location": self.location,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "versions_kept": self.versions_kept,
            "forks_removed": self.forks_removed,
            "staged_files_removed": self.staged_files_removed,
            "dropped": self.is_dropped,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a cleanup did; without `confirmed` what it would do."""

    confirmed: bool
    #: How many commits of each branch are kept by number; None when only their age counted.
    keep: int | None
    #: The age below which states are kept, in seconds.
    older_than_s: float | None
    datasets: tuple[DatasetCleanup, ...]
    #: Commits whose snapshots stay readable.
    commits_kept: int
    #: Per reason, how many commits it keeps; a commit may have several.
    kept_because: Mapping[str, int] = field(default_factory=dict)
    #: Commits that were removed from the history itself.
    commits_forgotten: int = 0
    #: Old versions of the catalog and of the audit, and leftovers beside the datasets.
    catalog_versions_removed: int = 0
    catalog_bytes_removed: int = 0
    other_files_removed: int = 0
    other_bytes_removed: int = 0
    #: What a person should know: values that were raised, readers that held something back.
    notes: tuple[str, ...] = ()

    @property
    def bytes_removed(self) -> int:
        """How much room was given back in all."""
        own = sum(item.bytes_removed for item in self.datasets)
        return own + self.catalog_bytes_removed + self.other_bytes_removed

    @property
    def old_versions_removed(self) -> int:
        """How many versions of datasets were removed in all."""
        return sum(item.old_versions_removed for item in self.datasets)

    @property
    def errors(self) -> tuple[DatasetCleanup, ...]:
        """The datasets that could not be cleaned up."""
        return tuple(item for item in self.datasets if item.error is not None)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "confirmed": self.confirmed,
            "keep": self.keep,
            "older_than_seconds": self.older_than_s,
            "datasets": [item.to_json() for item in self.datasets],
            "total_bytes_removed": self.bytes_removed,
            "total_old_versions_removed": self.old_versions_removed,
            "commits_kept": self.commits_kept,
            "kept_because": dict(self.kept_because),
            "commits_forgotten": self.commits_forgotten,
            "catalog_versions_removed": self.catalog_versions_removed,
            "catalog_bytes_removed": self.catalog_bytes_removed,
            "other_files_removed": self.other_files_removed,
            "other_bytes_removed": self.other_bytes_removed,
            "notes": list(self.notes),
        }
