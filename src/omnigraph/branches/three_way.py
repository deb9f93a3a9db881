"""The three-way merge of one table: what the target has to take over from the source, and where they conflict.

Every state is described by how it differs from one of them, so the work follows the rows that changed anywhere. Ids
become positions, rows become numbers, and the truth table does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.branches.bases import base_rows
from omnigraph.branches.truth_table import ABSENT, Choice, choose
from omnigraph.errors import InternalError
from omnigraph.pipeline.comparing import delta_between
from omnigraph.pipeline.differences import DELTA
from omnigraph.pipeline.keys import find_keys, key_scans, text_key
from omnigraph.storage import ROW_ID
from omnigraph.storage.row_changes import take_by_row_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from omnigraph.branches.bases import Base
    from omnigraph.pipeline.differences import RowShape
    from omnigraph.pipeline.elastic import ElasticEngine
    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.storage import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

SOURCE = "source"
TARGET = "target"
_NO_ROW = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """What a merge does to one table. Rows are row ids, of the source or of the target as said."""

    #: New rows, in the source.
    inserted: NDArray[np.uint64]
    #: Changed rows in the source, and the rows of the target that they replace, in the same order.
    updated: NDArray[np.uint64]
    replaced: NDArray[np.uint64]
    #: Rows of the target that go, and their ids.
    deleted: NDArray[np.uint64]
    deleted_ids: Any
    #: Ids with a conflict, in their order, and its kind.
    conflict_ids: Any
    conflicts: NDArray[np.int8]
    #: For each of them the place in `Base.commits` of a commit that holds the row of the base; -1 where none does.
    conflict_bases: NDArray[np.int64]

    @property
    def is_empty(self) -> bool:
        """Whether the target stays as it is."""
        return not (len(self.inserted) or len(self.updated) or len(self.deleted))


def plan_rows(
    tables: Mapping[str, Table],
    base: Base,
    shape: RowShape,
    engine: ElasticEngine,
    *,
    strategy: str | None,
    scratch: Scratch,
) -> RowPlan:
    """Decide about every id that differs anywhere.

    `tables` has the states of `SOURCE`, `TARGET` and of every commit that takes part in the base.
    """
    states = _States(tables, base.commits[0], shape, engine, scratch)
    source, target = states.rows(SOURCE), states.rows(TARGET)
    bases = {commit: states.rows(commit) for commit in base.commits}
    base_row = base_rows(base, bases)
    choices = choose(base_row, source, target)
    if strategy is not None:
        # Row conflicts only: whoever is preferred, the rules of the schema are checked afterwards.
        choices[choices > Choice.TAKE] = Choice.TAKE if strategy == "theirs" else Choice.KEEP
    taken = choices == Choice.TAKE
    in_source, in_target = source != ABSENT, target != ABSENT
    inserted = taken & in_source & ~in_target
    updated = taken & in_source & in_target
    deleted = taken & ~in_source & in_target
    is_conflict = choices > Choice.TAKE
    return RowPlan(
        inserted=states.locate(SOURCE, inserted),
        updated=states.locate(SOURCE, updated),
        replaced=states.locate(TARGET, updated),
        deleted=states.locate(TARGET, deleted),
        deleted_ids=states.ids.filter(pa.array(deleted)),
        conflict_ids=states.ids.filter(pa.array(is_conflict)),
        conflicts=choices[is_conflict],
        conflict_bases=_holders(base, bases, base_row)[is_conflict],
    )


def _holders(
    base: Base, bases: Mapping[str, NDArray[np.int64]], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each row of the base, a commit that has it."""
    found = np.full(len(rows), -1, dtype=np.int64)
    for place, commit in enumerate(base.commits):
        found[(found < 0) & (bases[commit] == rows) & (rows != ABSENT)] = place
    return found


class _States:
    """Several states of a table over the ids at which any of them differs from the first."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        reference: str,
        shape: RowShape,
        engine: ElasticEngine,
        scratch: Scratch,
    ) -> None:
        self._tables = tables
        self._reference = reference
        found: dict[str, Any] = {}
        deltas: dict[str, Any] = {}
        for label, table in tables.items():
            if label == reference:
                continue
            # States that share all files are compared once.
            if table.fingerprint not in found:
                delta = delta_between(tables[reference], table, shape, engine, scratch)
                found[table.fingerprint] = pa.concat_tables([DELTA.empty_table(), *delta.batches()])
            deltas[label] = found[table.fingerprint]
        self.ids = _all_ids(deltas.values())
        self._places = {
            label: np.asarray(pc.index_in(delta["id"], self.ids)) for label, delta in deltas.items()
        }
        numbers = _row_numbers(deltas)
        count = len(self.ids)
        self._first = np.full(count, ABSENT, dtype=np.int64)
        self._first_row_ids = np.full(count, _NO_ROW, dtype=np.int64)
        for label, delta in deltas.items():
            self._first[self._places[label]] = numbers[label, "old"]
            self._first_row_ids[self._places[label]] = _row_ids(delta["old_row"])
        self._numbers = numbers
        self._row_ids = {label: _row_ids(delta["new_row"]) for label, delta in deltas.items()}

    def rows(self, label: str) -> NDArray[np.int64]:
        """The rows of a state as numbers, one per id."""
        if label == self._reference:
            return self._first
        rows = self._first.copy()
        rows[self._places[label]] = self._numbers[label, "new"]
        return rows

    def locate(self, label: str, wanted: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """The row ids of the wanted ids in a state; all of them exist there."""
        row_ids = self._first_row_ids.copy()
        if label != self._reference:
            row_ids[self._places[label]] = self._row_ids[label]
        known = np.zeros(len(row_ids), dtype=bool)
        known[self._places.get(label, np.array([], dtype=np.int64))] = True
        # A row that equals the one of the reference usually is the same row. It is another one if it was removed and
        # written again, so it is looked at.
        guessed = wanted & ~known
        if guessed.any():
            ids = self.ids.filter(pa.array(guessed))
            row_ids[guessed] = locate_rows(self._tables[label], ids, row_ids[guessed])
        return row_ids[wanted].astype(np.uint64)


def locate_rows(table: Table, ids: Any, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row ids of some ids, from guesses of which most are right.

    Raises:
        InternalError: an id does not exist.
    """
    found = guesses.copy()
    seen = take_by_row_id(table, guesses.astype(np.uint64), ["id", ROW_ID])
    by_row = dict(zip(seen[ROW_ID].to_pylist(), seen["id"].to_pylist(), strict=True))
    texts = ids.to_pylist()
    wrong = [
        place
        for place, (text, row) in enumerate(zip(texts, guesses.tolist(), strict=True))
        if by_row.get(row) != text
    ]
    if not wrong:
        return found
    actual = find_row_ids(table, [texts[place] for place in wrong])
    for place in wrong:
        if texts[place] not in actual:
            raise InternalError(f"{table.path} has no row {texts[place]!r}")
        found[place] = actual[texts[place]]
    return found


def find_row_ids(table: Table, ids: list[str]) -> dict[str, int]:
    """The row ids of those of the ids that exist."""
    keys = pa.array(ids, pa.utf8())
    scans = key_scans(table, None, text_key("id"), extra=(ROW_ID,))
    found: dict[str, int] = {}
    for piece in find_keys(scans, keys, keys):
        found |= dict(zip(piece["key"].to_pylist(), piece[ROW_ID].to_pylist(), strict=True))
    return found


def _all_ids(deltas: Any) -> Any:
    chunks = [chunk for delta in deltas for chunk in delta["id"].chunks]
    return pa.chunked_array(chunks, pa.utf8()).unique()


def _row_numbers(deltas: Mapping[str, Any]) -> dict[tuple[str, str], NDArray[np.int64]]:
    """Digests as numbers: equal rows get equal ones in all deltas."""
    columns = [(label, name) for label in deltas for name in ("old", "new")]
    if not columns:
        return {}
    every = pa.concat_arrays([deltas[label][name].combine_chunks() for label, name in columns])
    numbers = np.asarray(every.dictionary_encode().indices.fill_null(ABSENT), dtype=np.int64)
    found: dict[tuple[str, str], NDArray[np.int64]] = {}
    begin = 0
    for label, name in columns:
        end = begin + len(deltas[label])
        found[label, name] = numbers[begin:end]
        begin = end
    return found


def _row_ids(column: Any) -> NDArray[np.int64]:
    return np.asarray(column.fill_null(_NO_ROW), dtype=np.int64)
