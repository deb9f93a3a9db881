"""Comparing states of tables: in this process and in memory while candidates are few, with tasks and files beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.pipeline.deltas import HeldDelta
from omnigraph.pipeline.differences import DELTA, delta_of, side_of
from omnigraph.pipeline.filed_deltas import Pair, filed_deltas
from omnigraph.storage.row_changes import all_rows, differing_rows, no_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.pipeline.deltas import Delta
    from omnigraph.pipeline.differences import RowShape
    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.pipeline.worker_set import WorkerChoice
    from omnigraph.storage.row_changes import RowSet
    from omnigraph.storage.tables import Table

#: So many times the rows that this process compares may be named by their row ids before tasks look for them.
_NAMED_PER_COMPARED = 2


def delta_between(
    old: Table | None,
    new: Table | None,
    shape: RowShape,
    engine: WorkerChoice,
    scratch: Scratch,
    *,
    old_shape: RowShape | None = None,
    is_reshaped: bool = False,
) -> Delta:
    """The differences of two states; None is a table that does not exist.

    `old_shape` is what the old state calls the columns of `shape`. With `is_reshaped` a schema change may have given
    rows other values without writing them as rows, so all of them are compared. Files are kept in `scratch`.
    """
    pair = Pair(old=old, new=new, shapes=(old_shape or shape, shape), is_reshaped=is_reshaped)
    (found,) = deltas_between([pair], engine, scratch)
    return found


def deltas_between(pairs: Sequence[Pair], engine: WorkerChoice, scratch: Scratch) -> list[Delta]:
    """The differences of each pair: all of them in memory, or all of them in files with the same buckets of ids."""
    named = [_candidates(pair, engine.small_rows * _NAMED_PER_COMPARED) for pair in pairs]
    rows = [None if sets is None else sets[0].row_count + sets[1].row_count for sets in named]
    if any(count is None or (count and engine.is_large(count)) for count in rows):
        return filed_deltas(pairs, named, engine, scratch)
    return [_held(pair, *sets) for pair, sets in zip(pairs, named, strict=True) if sets is not None]


def _candidates(pair: Pair, limit: int) -> tuple[RowSet, RowSet] | None:
    """Rows of the two states that may differ; None when they are too many to be named."""
    old, new = pair.old, pair.new
    if old is not None and new is not None:
        if old.fingerprint == new.fingerprint:
            return no_rows(old), no_rows(new)
        if pair.is_reshaped:
            return all_rows(old), all_rows(new)
        return differing_rows(old, new, limit)
    there = old or new
    assert there is not None, "one of two states exists"
    every, none = all_rows(there), no_rows(there)
    return (none, every) if old is None else (every, none)


def _held(pair: Pair, gone: RowSet, come: RowSet) -> HeldDelta:
    if not gone.row_count and not come.row_count:
        return HeldDelta(DELTA.empty_table())
    old, new = side_of(gone, pair.shapes[0]), side_of(come, pair.shapes[1])
    return HeldDelta(delta_of(old, new, with_moved=pair.with_moved))
