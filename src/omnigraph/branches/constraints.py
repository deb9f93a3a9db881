"""Rules of the schema on the result of a merge: two branches that are valid alone may not be valid together.

Only what the merge changes is checked, against the target as it would be: its changed rows, the edges that a deleted
node leaves behind, and the sources that gained or lost an edge. Violations are conflicts; all of them are collected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.errors import MAX_CONFLICTS, ConflictKind, MergeConflict
from omnigraph.pipeline.keys import find_keys, joined_text, key_scans, text_key
from omnigraph.storage.fragments import read_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.pipeline.joins import Found, Joins
    from omnigraph.pipeline.relations import Image
    from omnigraph.writes.rules import EdgesPerSource, Endpoints, TableRules, Unique

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute


@dataclass(slots=True)
class Conflicts:
    """The first conflicts in full, and how many there are."""

    found: list[MergeConflict] = field(default_factory=list)
    total: int = 0

    def add(self, conflicts: Sequence[MergeConflict], total: int | None = None) -> None:
        """Add some conflicts, of which there may be more than are shown."""
        self.total += len(conflicts) if total is None else total
        self.found += conflicts[: max(0, MAX_CONFLICTS - len(self.found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """One table that the merge writes."""

    image: Image
    #: Ids of the rows that go.
    deleted_ids: Sequence[str] = ()
    #: Sources of edges that go or are replaced.
    old_sources: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChecker:
    """Checks the result of one merge."""

    tables: Mapping[TableKey, MergedTable]
    rules: Mapping[TableKey, TableRules]
    joins: Joins
    #: A table of the target that the merge does not write.
    untouched: Callable[[TableKey], Image]
    conflicts: Conflicts

    def check_all(self) -> None:
        """Check every rule between rows; violations are added to `conflicts`."""
        for key, merged in self.tables.items():
            for unique in self.rules[key].uniques:
                self._check_unique(unique, key, merged.image)
        for key, rules in self.rules.items():
            if rules.endpoints is not None:
                self._check_ends(rules.endpoints, key)
                if rules.per_source is not None and key in self.tables:
                    self._check_cardinality(rules.per_source, rules.endpoints, key)

    # ---- uniqueness

    def _check_unique(self, rule: Unique, key: TableKey, image: Image) -> None:
        if not image.new:
            return
        members = list(zip(rule.members, rule.bases, strict=True))
        new = key_scans(image.table, image.new, members)
        found = [self.joins.duplicated(new)]
        old = key_scans(image.table, image.old, members)
        if old:
            found.append(self.joins.shared(new, old))
        for part in found:
            conflicts = []
            for item in part.examples:
                ids = read_addresses(image.table, "id", item.addresses[:2])
                value = item.key if len(rule.members) == 1 else joined_text(item.key)
                message = f"@unique violation on {rule}: {value!r} belongs to {ids[0]!r} and to {ids[1]!r}"
                conflicts.append(_conflict(ConflictKind.UNIQUE_VIOLATION, key, message, ids[0]))
            self.conflicts.add(conflicts, part.total)

    # ---- edges

    def _check_ends(self, rule: Endpoints, key: TableKey) -> None:
        """Edges that the merge brings need both ends; nodes that it removes must leave no edge behind."""
        broken: dict[str, str] = {}
        unseen = 0
        ends = (("src", rule.source, rule.source_type), ("dst", rule.target, rule.target_type))
        for column, node, type_name in ends:
            if key in self.tables:
                unseen += self._add_dangling(broken, key, column, node, type_name)
            if node in self.tables and self.tables[node].deleted_ids:
                unseen += self._add_left_behind(broken, key, column, node, type_name)
        conflicts = [
            _conflict(
                ConflictKind.ORPHAN_EDGE,
                key,
                f"edge {rule.edge_type} {edge_id!r}: {sentence}",
                edge_id,
            )
            for edge_id, sentence in sorted(broken.items())
        ]
        self.conflicts.add(conflicts, len(conflicts) + unseen)

    def _add_dangling(
        self, broken: dict[str, str], key: TableKey, column: str, node: TableKey, type_name: str
    ) -> int:
        """Add new edges without an end; how many more there are than can be shown."""
        image = self.tables[key].image
        references = image.scans(column, is_new=True)
        if not references:
            return 0
        nodes = self.tables[node].image if node in self.tables else self.untouched(node)
        found = self.joins.missing(references, key_scans(nodes.table, None, text_key("id")))
        return _add_broken(broken, image, found, column, type_name)

    def _add_left_behind(
        self, broken: dict[str, str], key: TableKey, column: str, node: TableKey, type_name: str
    ) -> int:
        """Add edges of the merged result whose end the merge removes; how many more there are than can be shown."""
        image = self.tables[key].image if key in self.tables else self.untouched(key)
        edges = key_scans(image.table, None, text_key(column))
        if not edges:
            return 0
        found = self.joins.named(edges, self.tables[node].deleted_ids)
        return _add_broken(broken, image, found, column, type_name)

    def _check_cardinality(self, rule: EdgesPerSource, ends: Endpoints, key: TableKey) -> None:
        merged = self.tables[key]
        touched = merged.image.scans("src", is_new=True)
        if not touched and not merged.old_sources:
            return
        counted = key_scans(merged.image.table, None, text_key("src"))
        found = self.joins.outside(counted, touched, rule.low, rule.high, merged.old_sources)
        # Edges of a source that does not exist are orphans, and told as such.
        existing = self._existing(ends.source, [item.key for item in found.examples])
        bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"
        conflicts = [
            _conflict(
                ConflictKind.CARDINALITY_VIOLATION,
                key,
                f"@card violation on edge {rule.edge_type}: {item.key!r} has {item.count} edges, "
                f"allowed are {bounds}",
            )
            for item in found.examples
            if item.key in existing
        ]
        hidden = len(found.examples) - len(conflicts)
        self.conflicts.add(conflicts, found.total - hidden)

    def _existing(self, node: TableKey, ids: list[str]) -> set[str]:
        if not ids:
            return set()
        image = self.tables[node].image if node in self.tables else self.untouched(node)
        keys = pa.array(ids, pa.utf8())
        pieces = find_keys(key_scans(image.table, None, text_key("id")), keys, keys)
        return {entity_id for piece in pieces for entity_id in piece["key"].to_pylist()}


def _add_broken(
    broken: dict[str, str], image: Image, found: Found, column: str, type_name: str
) -> int:
    addresses = [item.addresses[0] for item in found.examples]
    ids = read_addresses(image.table, "id", addresses) if addresses else []
    for edge_id, item in zip(ids, found.examples, strict=True):
        broken.setdefault(edge_id, f"{column} {item.key!r} not found in {type_name}")
    return found.total - len(found.examples)


def _conflict(
    kind: ConflictKind, key: TableKey, message: str, entity_id: str | None = None
) -> MergeConflict:
    return MergeConflict(kind=kind, type_key=key, message=message, entity_id=entity_id)
