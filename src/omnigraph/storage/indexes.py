"""Secondary indexes: built aside, committed like any other staged write.

An index never changes a result: rows that it does not cover are still found by scanning them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lance import LanceOperation
from lance.dataset import Index, Transaction

from omnigraph.storage.failures import translated
from omnigraph.storage.staged import StagedWrite, StageKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.storage.tables import Table


class PhysicalIndex(StrEnum):
    """The index structures that the system builds."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """One index that a table should have. `settings` go to Lance as they are."""

    name: str
    column: str
    kind: PhysicalIndex
    settings: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCoverage:
    """How much of a table an existing index covers."""

    name: str
    covered_fragments: frozenset[int]
    missing_fragments: frozenset[int]


def list_indexes(table: Table) -> dict[str, IndexCoverage]:
    """The indexes of a table by name, with their coverage."""
    with translated(f"looking at the indexes of {table.path}"):
        fragments = {fragment.fragment_id for fragment in table._dataset.get_fragments()}
        found: dict[str, IndexCoverage] = {}
        for index in table._dataset.describe_indices():
            covered = {number for segment in index.segments for number in segment.fragment_ids}
            found[index.name] = IndexCoverage(
                name=index.name,
                covered_fragments=frozenset(covered & fragments),
                missing_fragments=frozenset(fragments - covered),
            )
        return found


def stage_indices(table: Table, specs: Iterable[IndexSpec]) -> StagedWrite | None:
    """All indexes that are missing or do not cover every fragment, as one transaction; None when none is.

    An index that exists gets a further segment over the fragments it does not cover.
    """
    existing = list_indexes(table)
    fragments = [fragment.fragment_id for fragment in table._dataset.get_fragments()]
    segments: list[Index] = []
    with translated(f"building indexes of {table.path}"):
        for spec in specs:
            known = existing.get(spec.name)
            wanted = fragments if known is None else sorted(known.missing_fragments)
            if wanted:
                segments.append(_build_segment(table, spec, wanted))
        if not segments:
            return None
        transaction = Transaction(table.version, LanceOperation.CreateIndex(segments, []))
    return StagedWrite(table=table, kind=StageKind.INDEX, _transaction=transaction)


def _build_segment(table: Table, spec: IndexSpec, fragments: list[int]) -> Index:
    settings: dict[str, Any] = dict(spec.settings)
    segment = table._dataset.create_index_uncommitted(
        spec.column,
        str(spec.kind),
        name=spec.name,
        fragment_ids=fragments,
        replace=True,
        **settings,
    )
    if spec.kind is PhysicalIndex.INVERTED:
        # Without this step the segment commits, but every search on it fails.
        return table._dataset.merge_existing_index_segments([segment])
    return segment
