"""From kept vectors to one staged write per table, in which nothing but vectors changes.

A vector is looked up by the text that its row has in the state that is written to: it cannot belong to another text.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow

from omnigraph.pipeline.embedding.kept import KeptAddress, KeptVectors, fill_vectors, text_digest
from omnigraph.pipeline.workers import raise_failure
from omnigraph.storage import ROW_ID, stage_upsert
from omnigraph.storage.column_updates import remove_updates, stage_updates, update_fragment
from omnigraph.storage.partitions import open_address, table_address
from omnigraph.storage.row_changes import take_by_row_id
from omnigraph.storage.row_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from omnigraph.pipeline.embedding.tasks import EmbeddedRows
    from omnigraph.pipeline.embedding.work import TargetWork
    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage import ControlObjects, StagedWrite, Table
    from omnigraph.storage.partitions import TableAddress

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: So many rows are written again as a whole, unless they have blobs; more get a file of new vectors per fragment.
FEW_ROWS = 8_192


class VectorsGoneError(Exception):
    """Kept vectors were removed by another run before they were written: prepare again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Where the vectors of some rows are kept, from the first row id to the last."""

    first: int
    last: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEdit:
    """The new vectors of one property. Row ids are sorted."""

    property: str
    source: str
    kept: KeptAddress
    embedded: NDArray[np.uint64]
    cleared: NDArray[np.uint64]
    pieces: tuple[Piece, ...]

    def within(self, row_ids: NDArray[np.uint64]) -> ColumnEdit:
        """As far as it is about some rows, which are sorted too."""
        first, last = int(row_ids[0]), int(row_ids[-1])
        pieces = (item for item in self.pieces if item.first <= last and first <= item.last)
        return ColumnEdit(
            property=self.property,
            source=self.source,
            kept=self.kept,
            embedded=np.intersect1d(self.embedded, row_ids, assume_unique=True),
            cleared=np.intersect1d(self.cleared, row_ids, assume_unique=True),
            pieces=tuple(pieces),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EditItem:
    """The rows of one fragment that get vectors."""

    table: TableAddress
    fragment: int
    row_ids: NDArray[np.uint64]
    edits: tuple[ColumnEdit, ...]


def column_edit(work: TargetWork, kept: KeptAddress, pieces: Sequence[EmbeddedRows]) -> ColumnEdit:
    """What becomes of a property, now that its vectors are kept."""
    return ColumnEdit(
        property=work.target.property,
        source=work.target.source,
        kept=kept,
        embedded=work.embedded,
        cleared=work.cleared,
        pieces=tuple(
            Piece(int(item.row_ids[0]), int(item.row_ids[-1]), item.parts) for item in pieces
        ),
    )


def stage_edits(
    table: Table, edits: Sequence[ColumnEdit], workers: Workers, objects: ControlObjects
) -> StagedWrite:
    """Write the vectors of a table; nothing is visible before the staged write is committed.

    Raises:
        VectorsGoneError: kept vectors are gone. Nothing is left behind.
    """
    touched = [ids for edit in edits for ids in (edit.embedded, edit.cleared)]
    row_ids = np.unique(np.concatenate(touched))
    if len(row_ids) <= FEW_ROWS and not table.blob_columns:
        rows = _edited(table, row_ids, edits, table.schema.names)
        if rows is None:
            raise VectorsGoneError
        return stage_upsert(table, rows)
    items = _items(table, row_ids, edits)
    answers = workers.run("write vectors", edit_fragment, items, keep_failures=True)
    updates = [str(answer["update"]) for answer in answers if answer.get("update")]
    try:
        for answer in answers:
            raise_failure(answer)
        if len(updates) < len(answers):
            raise VectorsGoneError
        return stage_updates(table, updates)
    except BaseException:
        # Also after an interrupt: nobody else knows these files.
        remove_updates(table, updates, objects)
        raise


def _items(
    table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit]
) -> list[EditItem]:
    """The rows by fragment."""
    address = table_address(table)
    places = np.asarray(take_by_row_id(table, row_ids, [ROW_ADDRESS])[ROW_ADDRESS])
    fragments = (places >> np.uint64(32)).astype(np.int64)
    # Rows of a fragment stay sorted by id.
    order = np.argsort(fragments, kind="stable")
    numbers, begins = np.unique(fragments[order], return_index=True)
    groups = np.split(row_ids[order], begins[1:])
    return [
        EditItem(
            table=address,
            fragment=int(number),
            row_ids=ids,
            edits=tuple(edit.within(ids) for edit in edits),
        )
        for number, ids in zip(numbers, groups, strict=True)
    ]


def edit_fragment(item: EditItem) -> Message:
    """The task: the new vectors of one fragment as a file beside its others; no update when kept vectors are gone."""
    table = open_address(item.table)
    rows = _edited(table, item.row_ids, item.edits, [edit.property for edit in item.edits])
    if rows is None:
        return {"rows": 0}
    rows = rows.append_column(ROW_ID, pa.array(item.row_ids))
    return {"rows": len(item.row_ids), "update": update_fragment(table, item.fragment, rows)}


def _edited(
    table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], columns: Sequence[str]
) -> Any:
    """Columns of some rows, with new vectors where an edit has them; None when kept vectors are gone."""
    needed = dict.fromkeys([*columns, *(edit.source for edit in edits)])
    rows: Any = take_by_row_id(table, row_ids, list(needed))
    found = {name: rows[name] for name in columns}
    for edit in edits:
        vectors = _vectors(row_ids, rows[edit.source], rows[edit.property], edit)
        if vectors is None:
            return None
        found[edit.property] = vectors.cast(table.schema.field(edit.property).type)
    return pa.table(found)


def _vectors(row_ids: NDArray[np.uint64], sources: Any, vectors: Any, edit: ColumnEdit) -> Any:
    """The vectors that rows have after an edit; None when kept ones are gone."""
    old = vectors.combine_chunks()
    size = edit.kept.dimension
    values = np.zeros((len(old), size), np.float32)
    valid = np.asarray(old.is_valid())
    values[valid] = np.asarray(old.drop_null().flatten()).reshape(-1, size)
    places = np.flatnonzero(np.isin(row_ids, edit.embedded))
    wanted: defaultdict[bytes, list[int]] = defaultdict(list)
    texts = sources.take(pa.array(places)).to_pylist()
    for place, text in zip(places.tolist(), texts, strict=True):
        wanted[text_digest(text)].append(place)
    parts = dict.fromkeys(part for piece in edit.pieces for part in piece.parts)
    if not fill_vectors(KeptVectors(edit.kept), parts, wanted, values):
        return None
    valid[places] = True
    valid[np.isin(row_ids, edit.cleared)] = False
    flat = pa.array(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, size, mask=pa.array(~valid))
