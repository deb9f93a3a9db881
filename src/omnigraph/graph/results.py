"""What building indexes returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.manifest.rows import GraphCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex:
    """A declared index that cannot be built yet; the next run tries again."""

    type_key: str
    property: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndexes:
    """What one type got."""

    type_key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The outcome of a run; `commit` is None when there was nothing to do."""

    branch: str
    commit: GraphCommit | None
    built: tuple[BuiltIndexes, ...]
    pending: tuple[PendingIndex, ...]
