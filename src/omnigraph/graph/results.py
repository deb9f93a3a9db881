"""What the methods return that only work beside the storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.wire.commits import commit_json

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedProperty:
    """What a run did to one vector property, or would do."""

    type_key: str
    property: str
    #: Rows without a vector, and rows whose text changed since, or that were asked for.
    missing: int
    outdated: int
    #: Rows that lost their vector, because their text is gone; rows that could not, because it must not be null.
    cleared: int
    kept: int
    #: Texts that the provider embedded, and texts whose vectors an earlier run had computed.
    embedded: int
    reused: int
    #: The commit before which changed texts could not be recognised; None when all were.
    checked_since: str | None

    def to_json(self) -> dict[str, object]:
        """The property as a JSON object."""
        return {
            "type_key": self.type_key,
            "property": self.property,
            "missing": self.missing,
            "outdated": self.outdated,
            "cleared": self.cleared,
            "kept": self.kept,
            "embedded": self.embedded,
            "reused": self.reused,
            "checked_since": self.checked_since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """The receipt of a run; `commit` is None when there was nothing to do, and after a dry run."""

    uri: str
    branch: str
    provider: str
    model: str
    properties: tuple[EmbeddedProperty, ...]
    actor: str | None
    commit: GraphCommit | None
    dry_run: bool = False

    @property
    def rows(self) -> int:
        """Rows that got a vector or lost it, once per property."""
        return sum(item.missing + item.outdated + item.cleared for item in self.properties)

    @property
    def embedded(self) -> int:
        """Texts that the provider embedded."""
        return sum(item.embedded for item in self.properties)

    @property
    def reused(self) -> int:
        """Texts whose vectors an earlier run had computed."""
        return sum(item.reused for item in self.properties)

    def to_json(self) -> dict[str, object]:
        """The write envelope."""
        return {
            "uri": self.uri,
            "branch": self.branch,
            "provider": self.provider,
            "model": self.model,
            "properties": [item.to_json() for item in self.properties],
            "rows": self.rows,
            "embedded": self.embedded,
            "reused": self.reused,
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }
