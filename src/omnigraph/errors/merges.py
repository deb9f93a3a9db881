"""Failures of merges: what two branches disagree about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from omnigraph.errors.base import OmniError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Conflicts that a message spells out, and conflicts that an error carries.
_SHOWN = 3
MAX_CONFLICTS = 1_000


class ConflictKind(StrEnum):
    """What the two sides disagree about. The first three concern one row, the others the merged result."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"

    @property
    def is_about_a_row(self) -> bool:
        """Whether a strategy can decide it."""
        return self in _ROW_KINDS


_ROW_KINDS = frozenset(
    {
        ConflictKind.DIVERGENT_INSERT,
        ConflictKind.DIVERGENT_UPDATE,
        ConflictKind.DELETE_VS_UPDATE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeConflict:
    """One conflict.

    Of a conflict about a row, the row as it was (`base`), on the target (`ours`) and on the source (`theirs`): an
    object with `properties` and for edges `endpoints`; None where there is no row.
    """

    kind: ConflictKind
    type_key: str
    message: str
    entity_id: str | None = None
    base: Mapping[str, object] | None = None
    ours: Mapping[str, object] | None = None
    theirs: Mapping[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """The conflict as an error body carries it."""
        kind, _, name = self.type_key.partition(":")
        body: dict[str, object] = {"entity_kind": kind, "type_name": name}
        if self.entity_id is not None:
            body["entity_id"] = self.entity_id
        body |= {"kind": str(self.kind), "message": self.message}
        if self.kind.is_about_a_row:
            body |= {"base": self.base, "ours": self.ours, "theirs": self.theirs}
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> MergeConflict:
        """The inverse of `to_json`."""
        return MergeConflict(
            kind=ConflictKind(body["kind"]),
            type_key=f"{body['entity_kind']}:{body['type_name']}",
            message=body["message"],
            entity_id=body.get("entity_id"),
            base=body.get("base"),
            ours=body.get("ours"),
            theirs=body.get("theirs"),
        )


class MergeConflictsError(OmniError):
    """Two branches cannot be merged as they are. Nothing happened; `conflicts` holds all of them, or the first."""

    kind = "merge_conflicts"
    code = "conflict"
    http_status = 409

    def __init__(
        self, source: str, target: str, conflicts: tuple[MergeConflict, ...], total: int
    ) -> None:
        self.source = source
        self.target = target
        self.conflicts = conflicts
        self.total = total
        listing = "; ".join(conflict.message for conflict in conflicts[:_SHOWN])
        more = f"; and {total - _SHOWN:,} more" if total > _SHOWN else ""
        several = "1 conflict" if total == 1 else f"{total:,} conflicts"
        advice = (
            "change one of the branches, or decide all of them with the strategy `ours` or `theirs`"
            if all(conflict.kind.is_about_a_row for conflict in conflicts)
            else "change one of the branches and merge again"
        )
        super().__init__(
            f"{source} cannot be merged into {target}, nothing was changed: {several}: {listing}{more}; {advice}"
        )

    def details(self) -> dict[str, object]:
        """`merge_conflicts`, how many there are, and the branches."""
        return {
            "source": self.source,
            "target": self.target,
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
            "merge_conflict_total": self.total,
        }
