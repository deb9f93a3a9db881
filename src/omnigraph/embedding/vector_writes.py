"""From kept vectors to one staged write per table, in which nothing but vectors changes.

A vector is looked up by the text that its row has in the state that is written to: it cannot belong to another text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.core.arrow import Batch, pa
from omnigraph.embedding.stale_rows import TargetWork
from omnigraph.embedding.vector_tasks import EmbeddedRows, KeptAddress, KeptVectors, fill_vectors, text_digest
from omnigraph.pipeline.copying import mark_replaced
from omnigraph.pipeline.workers import Message, Workers, raise_failure
from omnigraph.storage.datasets.filters import ROW_ADDRESS, ROW_ID
from omnigraph.storage.datasets.fragments import (
    fragment_sizes,
    keep_ids,
    remove_updates,
    remove_written,
    stage_replacement,
    stage_updates,
    update_fragment,
    write_rows,
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, table_address
from omnigraph.storage.datasets.row_changes import kept_ids, take_by_row_id
from omnigraph.storage.datasets.staged import StagedWrite
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: So few rows, or so small a part of their fragments, are written again as whole rows, unless they have blobs.
#: Otherwise each fragment gets a file of new vectors, which costs what the vectors of all of its rows cost.
FEW_ROWS = 8_192
SMALL_PART = 8
#: Rows that one task writes again, and rows that it has in memory.
_TASK_ROWS = 200_000
_BATCH_ROWS = 4_096
_STAGE = "write vectors"


class VectorsGoneError(Exception):
    """Kept vectors were removed by another run before they were written: prepare again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The place of the vectors of some rows, from the first row id to the last."""

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
        """The part about some rows, which are sorted too."""
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
    """Rows that get vectors; those of one fragment when `fragment` says so."""

    table: TableAddress
    row_ids: NDArray[np.uint64]
    edits: tuple[ColumnEdit, ...]
    fragment: int = -1


def column_edit(work: TargetWork, kept: KeptAddress, pieces: Sequence[EmbeddedRows]) -> ColumnEdit:
    """The edit that writes the kept vectors of a property."""
    return ColumnEdit(
        property=work.target.property,
        source=work.target.source,
        kept=kept,
        embedded=work.embedded,
        cleared=work.cleared,
        pieces=tuple(Piece(int(item.row_ids[0]), int(item.row_ids[-1]), item.parts) for item in pieces),
    )


def stage_edits(table: Table, edits: Sequence[ColumnEdit], workers: Workers) -> StagedWrite:
    """Write the vectors of a table; nothing is visible before the staged write is committed.

    Raises:
        VectorsGoneError: kept vectors are gone. Nothing is left behind.
    """
    touched = [ids for edit in edits for ids in (edit.embedded, edit.cleared)]
    row_ids = np.unique(np.concatenate(touched))
    groups = _by_fragment(table, row_ids)
    sizes = fragment_sizes(table)
    is_small = len(row_ids) * SMALL_PART <= sum(sizes[number] for number in groups)
    if (is_small or len(row_ids) <= FEW_ROWS) and not table.blob_columns:
        return _stage_rows(table, row_ids, edits, workers)
    items = [_item(table, ids, edits, number) for number, ids in groups.items()]
    answers = workers.run(_STAGE, edit_fragment, items, keep_failures=True)
    updates = [str(answer["update"]) for answer in answers if answer.get("update")]
    try:
        _check(answers)
        return stage_updates(table, updates)
    except BaseException:
        # Also after an interrupt: no other process knows these files.
        remove_updates(table, updates)
        raise


def _stage_rows(
    table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], workers: Workers
) -> StagedWrite:
    begins = range(0, len(row_ids), _TASK_ROWS)
    items = [_item(table, row_ids[begin : begin + _TASK_ROWS], edits) for begin in begins]
    answers = workers.run(_STAGE, rewrite_rows, items, keep_failures=True)
    fragments = [text for answer in answers for text in answer.get("fragments", ())]
    try:
        _check(answers)
        return stage_replacement(table, fragments, mark_replaced(table, row_ids, workers))
    except BaseException:
        # Also after an interrupt: no other process knows these files.
        remove_written(table, fragments)
        raise


def _check(answers: Sequence[Message]) -> None:
    for answer in answers:
        raise_failure(answer)
    if any(answer.get("is_gone") for answer in answers):
        raise VectorsGoneError


def _item(table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], fragment: int = -1) -> EditItem:
    return EditItem(
        table=table_address(table),
        row_ids=row_ids,
        edits=tuple(edit.within(row_ids) for edit in edits),
        fragment=fragment,
    )


def _by_fragment(table: Table, row_ids: NDArray[np.uint64]) -> dict[int, NDArray[np.uint64]]:
    """Rows by fragment, still sorted by id."""
    places = np.asarray(take_by_row_id(table, row_ids, [ROW_ADDRESS])[ROW_ADDRESS])
    fragments = (places >> np.uint64(32)).astype(np.int64)
    order = np.argsort(fragments, kind="stable")
    numbers, begins = np.unique(fragments[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(row_ids[order], begins[1:]), strict=True))


# ---- tasks


def edit_fragment(item: EditItem) -> Message:
    """The new vectors of one fragment as a file beside its others."""
    table = open_address(item.table)
    rows = _edited(table, item.row_ids, item.edits, [edit.property for edit in item.edits])
    if rows is None:
        return {"is_gone": True}
    rows = rows.append_column(ROW_ID, pa.array(item.row_ids))
    return {"rows": len(item.row_ids), "update": update_fragment(table, item.fragment, rows)}


def rewrite_rows(item: EditItem) -> Message:
    """Whole rows with new vectors as a fragment that takes over their ids."""
    table = open_address(item.table)
    columns = table.schema.names
    is_gone = False

    def batches() -> Iterator[Batch]:
        nonlocal is_gone
        for begin in range(0, len(item.row_ids), _BATCH_ROWS):
            ids = item.row_ids[begin : begin + _BATCH_ROWS]
            rows = _edited(table, ids, [edit.within(ids) for edit in item.edits], columns)
            if rows is None:
                is_gone = True
                return
            yield from rows.combine_chunks().to_batches()

    kept = kept_ids(table, item.row_ids)
    written = write_rows(table, batches())
    if is_gone:
        remove_written(table, written)
        return {"is_gone": True}
    return {"rows": len(item.row_ids), "fragments": keep_ids(table, written, kept)}


def _edited(table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], columns: Sequence[str]) -> Any:
    """Columns of some rows, with new vectors where an edit has them; None when kept vectors are gone."""
    needed = dict.fromkeys([*columns, *(edit.source for edit in edits)])
    rows = take_by_row_id(table, row_ids, list(needed))
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
