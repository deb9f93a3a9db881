"""Steps from one state of a table to another: which rows are gone, came or changed, read without the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from lance import LanceFragment
from numpy.typing import NDArray

from omnigraph.errors import StorageError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.filters import ROW_ID
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.row_changes import RowSet, compare_fragments, differing_rows, row_ids_of
from omnigraph.storage.datasets.tables import Table

#: So many rows may be looked at to find one that is named: a compaction of all rows is worth being looked through.
_LOOKED_AT = 24


@frozen
class Step:
    """How one state of a table becomes another. A row that changed is gone and came; a few may be named in vain."""

    #: Row ids in the old state, ascending.
    gone: NDArray[np.int64]
    #: Rows of the new state: of whole fragments, and others by their row ids.
    fragments: tuple[LanceFragment, ...]
    named: NDArray[np.int64]
    come_count: int

    @property
    def count(self) -> int:
        """How many rows are named."""
        return len(self.gone) + self.come_count

    @property
    def is_empty(self) -> bool:
        """Whether both states hold the same rows."""
        return not self.count


def step_between(old: Table, new: Table, limit: int) -> Step | None:
    """The step between two states of one dataset, in either order and on any branches.

    Reads nothing that both share. None when the columns differ, when more than `limit` rows do, or when it cannot be
    told at a cost that follows from the limit.

    Raises:
        StorageError: the files of a state are gone.
    """
    if old.path != new.path or _columns(old) != _columns(new):
        return None
    differing = compare_fragments(old, new)
    with translated(f"comparing versions of {old.path}"):
        looked_at = sum(fragment.count_rows() for fragment in (*differing.gone, *differing.come))
        if looked_at > limit * _LOOKED_AT:
            return None
        # Whether a row that was written again is the same row follows from version numbers, which a branch of the
        # same name uses again. Names of files are never used again.
        if differing.ahead is not None and not (_is_stored(old) and _is_stored(new)):
            return None
        found = differing_rows(old, new, limit * _LOOKED_AT)
        if found is None or sum(rows.row_count for rows in found) > limit:
            return None
        gone = np.sort(np.concatenate([_signed(found[0].row_ids), _signed(_ids_of_fragments(old, found[0]))]))
        return Step(gone, _fragments(new, found[1]), _signed(found[1].row_ids), found[1].row_count)


def read_come(table: Table, step: Step, columns: Sequence[str]) -> tuple[NDArray[np.int64], pa.Table]:
    """Row ids of the rows that came with a step, ascending, and columns of these rows in the same order."""
    parts: list[pa.Table] = []
    dataset = table._dataset
    with translated(f"reading rows of {table.path}"):
        if step.fragments:
            parts.append(dataset.scanner(columns=[*columns, ROW_ID], fragments=list(step.fragments)).to_table())
        if len(step.named):
            rows = dataset._take_rows(step.named.tolist(), columns=list(columns))
            if rows.num_rows != len(step.named):
                raise RuntimeError(f"{len(step.named) - rows.num_rows} rows do not exist")
            parts.append(rows.append_column(ROW_ID, pa.array(step.named).cast(pa.uint64())))
        if not parts:
            schema = dataset.schema
            return np.zeros(0, np.int64), pa.table({name: pa.array([], schema.field(name).type) for name in columns})
        rows = pa.concat_tables(part.select([*columns, ROW_ID]).replace_schema_metadata() for part in parts)
    ids = _signed(np.asarray(rows[ROW_ID]))
    order = np.argsort(ids)
    return ids[order], rows.select(list(columns)).take(order)


def _columns(table: Table) -> list[tuple[int, str]]:
    """A column that is renamed, or made again under a name that was there, is another one."""
    with translated(f"looking at {table.path}"):
        return [(item.id(), item.name()) for item in table._dataset.lance_schema.fields()]


def _is_stored(table: Table) -> bool:
    """Whether the version that a handle reads is still the one that its number means."""
    try:
        with translated(f"opening {table.path}"):
            # No shared session: it remembers versions that are gone.
            stored = open_dataset(str(table._dataset.uri), table.version, shared=False)
    except StorageError:
        return False
    return Table(stored, table.path, table.branch).fingerprint == table.fingerprint


def _fragments(table: Table, rows: RowSet) -> tuple[LanceFragment, ...]:
    wanted = set(rows.fragments)
    return tuple(item for item in table.fragments() if item.fragment_id in wanted) if wanted else ()


def _ids_of_fragments(table: Table, rows: RowSet) -> NDArray[np.uint64]:
    fragments = list(_fragments(table, rows))
    return row_ids_of(table, fragments) if fragments else np.empty(0, np.uint64)


def _signed(ids: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.asarray(ids).astype(np.int64)
