"""Which rows of a graph need a vector, and why: no vector yet, a text that changed since, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.embedding.outdated import Outdated, OutdatedRows, VectorColumn
from omnigraph.schema.catalog import TypeKind
from omnigraph.storage.filters import IsNull, OneOf
from omnigraph.storage.reads import scan_rows
from omnigraph.storage.row_columns import ROW_ID
from omnigraph.types.kinds import VectorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from omnigraph.ids import TableKey
    from omnigraph.manifest.rows import TablePin
    from omnigraph.manifest.snapshot import History, Snapshot
    from omnigraph.pipeline.worker_set import WorkerChoice
    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef
    from omnigraph.schema.identity import Identities
    from omnigraph.storage.filters import Filter
    from omnigraph.storage.tables import Table, TableStore

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: Ids that one filter names, and rows of a scan that are in memory.
_PROBED_IDS = 4_096
_SCANNED_ROWS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedTarget:
    """A `Vector(N) @embed("source")` property."""

    table_key: TableKey
    type_name: str
    property: str
    source: str
    dimension: int
    #: The model that the schema records, if it does.
    model: str | None
    is_nullable: bool
    #: What identifies the type, the text and the vector, whatever they are called.
    type_id: int
    source_id: int
    vector_id: int

    def __str__(self) -> str:
        return f"{self.type_name}.{self.property}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWork:
    """What one property needs at one state. Row ids are sorted."""

    target: EmbedTarget
    missing: NDArray[np.uint64]
    outdated: NDArray[np.uint64]
    #: Rows whose text is gone since their vector was made: it stands for nothing.
    cleared: NDArray[np.uint64]
    #: Such rows of a property that cannot be null.
    kept: int
    #: The commit before which texts that changed could not be recognised; None when all of them were.
    checked_since: str | None

    @property
    def embedded(self) -> NDArray[np.uint64]:
        """Rows that get a vector."""
        return np.union1d(self.missing, self.outdated)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (len(self.missing) or len(self.outdated) or len(self.cleared))


def embed_targets(
    catalog: Catalog, identities: Identities, types: Iterable[str] | None
) -> list[EmbedTarget]:
    """Every property that vectors are made for, of some types or of all."""
    wanted = None if types is None else set(types)
    definitions: list[tuple[TypeKind, NodeDef | EdgeDef]] = [
        *((TypeKind.NODE, item) for item in catalog.nodes.values()),
        *((TypeKind.EDGE, item) for item in catalog.edges.values()),
    ]
    found = []
    for kind, definition in definitions:
        if wanted is not None and definition.name not in wanted:
            continue
        identity = identities.types[kind, definition.name]
        for name, item in definition.properties.items():
            if item.embedding is None or not isinstance(item.type.base, VectorType):
                continue
            found.append(
                EmbedTarget(
                    table_key=definition.table_key,
                    type_name=definition.name,
                    property=name,
                    source=item.embedding.source,
                    dimension=item.type.base.dimension,
                    model=item.embedding.model,
                    is_nullable=item.type.nullable,
                    type_id=identity.type_id,
                    source_id=identity.properties[item.embedding.source],
                    vector_id=identity.properties[name],
                )
            )
    return found


def names_in(identities: Identities, target: EmbedTarget) -> tuple[str, str] | None:
    """The names that the text and the vector of a target have in a schema; None when it does not have both."""
    for identity in identities.types.values():
        if identity.type_id == target.type_id:
            names = {number: name for name, number in identity.properties.items()}
            source, vector = names.get(target.source_id), names.get(target.vector_id)
            return None if source is None or vector is None else (source, vector)
    return None


class WorkFinder:
    """Finds what targets need at one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        history: History,
        store: TableStore,
        engine: WorkerChoice,
        identities_of: Callable[[str], Identities],
    ) -> None:
        self._identities_of = identities_of
        self._snapshot = snapshot
        self._history = history
        self._store = store
        self._engine = engine

    def find(
        self, target: EmbedTarget, table: Table, pin: TablePin, *, reembed: bool
    ) -> TargetWork:
        """What one target needs; with `reembed` every row that has a text."""
        column = VectorColumn(
            pin=pin, names_at=cache(lambda name: names_in(self._identities_of(name), target))
        )
        rows = OutdatedRows(self._history, self._store, self._engine, column)
        outdated = rows.find(self._snapshot.commit_id)
        missing, _ = _by_text(_scan(table, target, IsNull(target.property)), target.source)
        stale, gone = _by_text(_of_ids(table, target, outdated), target.source)
        if reembed:
            every, _ = _by_text(_scan(table, target, None), target.source)
            stale = np.setdiff1d(every, missing, assume_unique=True)
        return TargetWork(
            target=target,
            missing=missing,
            outdated=stale,
            cleared=gone if target.is_nullable else gone[:0],
            kept=0 if target.is_nullable else len(gone),
            checked_since=outdated.checked_since,
        )


def _scan(table: Table, target: EmbedTarget, filter_: Filter | None) -> Iterator[Any]:
    return scan_rows(table, [target.source], filter_, batch_rows=_SCANNED_ROWS)


def _of_ids(table: Table, target: EmbedTarget, outdated: Outdated) -> Iterator[Any]:
    """The rows of outdated ids that still have a vector."""
    ids = sorted(outdated.ids)
    columns = [target.source, target.property]
    for begin in range(0, len(ids), _PROBED_IDS):
        wanted = OneOf("id", ids[begin : begin + _PROBED_IDS])
        for batch in scan_rows(table, columns, wanted):
            yield batch.filter(pc.is_valid(batch.column(target.property)))


def _by_text(batches: Iterable[Any], source: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sorted ids of rows that have a text, and of those whose text is null or blank. Holds ids only."""
    nothing = np.empty(0, np.uint64)
    found, blank = [nothing], [nothing]
    for batch in batches:
        text = pc.utf8_trim_whitespace(batch.column(source))
        has_text = np.asarray(pc.fill_null(pc.not_equal(text, ""), False))
        row_ids = np.asarray(batch.column(ROW_ID), dtype=np.uint64)
        found.append(row_ids[has_text])
        blank.append(row_ids[~has_text])
    return np.sort(np.concatenate(found)), np.sort(np.concatenate(blank))
