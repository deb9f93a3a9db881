"""The three-way merge of one table: what the target has to take over from the source, and where they conflict.

Every state is described by how it differs from one of them, so the work follows the rows that changed anywhere. Ids
become positions, rows become numbers, and the truth table does the rest. Many differences lie in files, cut into ranges
of ids that are the same for all states: one task decides about each range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from omnigraph.branches.truth_table import ABSENT, Base, Choice, base_rows, choose
from omnigraph.core.arrow import Array, Column, Rows, pa, pc
from omnigraph.errors import MAX_CONFLICTS
from omnigraph.frozen import frozen
from omnigraph.pipeline.compare import DELTA, RowShape
from omnigraph.pipeline.copying import (
    PLAN,
    Action,
    HeldRows,
    PlannedConflict,
    RowPlan,
    file_parts,
    filed_parts,
    held_parts,
)
from omnigraph.pipeline.deltas import FiledDelta, Pair, deltas_between
from omnigraph.pipeline.exchange import Scratch, key_files, write_keys
from omnigraph.pipeline.keys import find_keys, key_scans, text_key
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, read_answer
from omnigraph.storage.datasets.filters import ROW_ID
from omnigraph.storage.datasets.tables import Table

SOURCE = "source"
TARGET = "target"
_NO_ROW = -1


def plan_rows(
    tables: Mapping[str, Table],
    base: Base,
    shape: RowShape,
    engine: WorkerChoice,
    *,
    strategy: str | None,
    scratch: Scratch,
) -> RowPlan:
    """Decide about every id that differs anywhere.

    `tables` has the states of `SOURCE`, `TARGET` and of every commit that takes part in the base. A plan for many rows
    lies in files of `scratch`.
    """
    reference = base.commits[0]
    # States that share all files are compared once.
    numbers: dict[str, int] = {}
    pairs: list[Pair] = []
    pair_of: dict[str, int] = {}
    for label, table in tables.items():
        if label == reference:
            continue
        if table.fingerprint not in numbers:
            numbers[table.fingerprint] = len(pairs)
            pair = Pair(old=tables[reference], new=table, shapes=(shape, shape), with_moved=True)
            pairs.append(pair)
        pair_of[label] = numbers[table.fingerprint]
    deltas = deltas_between(pairs, engine, scratch)
    filed = [delta for delta in deltas if isinstance(delta, FiledDelta)]
    if filed:
        assert len(filed) == len(deltas), "all deltas are in files, or none is"
        return _plan_in_tasks(filed, pair_of, base, engine, strategy=strategy, scratch=scratch)
    tables_of = [pa.concat_tables([DELTA.empty_table(), *delta.batches()]) for delta in deltas]
    held = {label: tables_of[number] for label, number in pair_of.items()}
    decided = _decide(held, base, strategy)
    return RowPlan(
        parts=tuple(decided.taken.parts),
        deleted_ids=decided.taken.ids_of_deleted(),
        conflicts=tuple(decided.conflicts),
        conflict_total=decided.conflict_total,
        contested=RowPlan(parts=tuple(decided.contested.parts), deleted_ids=decided.contested.ids_of_deleted())
        if decided.conflict_total
        else None,
    )


# ---- tasks


@frozen(kw_only=True)
class _Bucket:
    """The rows of all states in a range of ids, for the task that decides about it."""

    number: int
    deltas: AnswerFolder
    #: The file of each state; empty where the range is as in the reference.
    names: Mapping[str, str]
    base: Base
    strategy: str | None
    #: For what the task decides.
    plans: AnswerFolder


def decide_bucket(item: _Bucket) -> Message:
    """Decide about a range of ids, and write the plan into files."""
    deltas = {
        label: pa.Table.from_batches(list(read_answer(item.deltas, name)) if name else [], schema=DELTA)
        for label, name in item.names.items()
    }
    decided = _decide(deltas, item.base, item.strategy)
    return {
        "taken": _write_rows(item, decided.taken),
        "contested": _write_rows(item, decided.contested),
        "conflicts": [(c.entity_id, c.choice, c.holder) for c in decided.conflicts],
        "conflict_total": decided.conflict_total,
        "rows": sum(delta.num_rows for delta in deltas.values()),
    }


def _write_rows(item: _Bucket, rows: _ChosenRows) -> Message:
    name, parts = file_parts(item.plans, item.number, rows.parts)
    deleted: Message = {"rows": 0}
    if len(rows.deleted_ids):
        batch = pa.RecordBatch.from_arrays([rows.deleted_ids], names=["id"])
        deleted = write_keys(item.plans, item.number, [batch])
    return {"name": name, "parts": parts, "deleted": deleted}


def _read_rows(folder: AnswerFolder, answers: Sequence[Message]) -> RowPlan:
    """What tasks wrote by `_write_rows`."""
    return RowPlan(
        parts=tuple(part for answer in answers for part in filed_parts(folder, answer["name"], answer["parts"])),
        deleted_ids=key_files(folder, [answer["deleted"] for answer in answers]),
    )


def _plan_in_tasks(
    deltas: Sequence[FiledDelta],
    pair_of: Mapping[str, int],
    base: Base,
    engine: WorkerChoice,
    *,
    strategy: str | None,
    scratch: Scratch,
) -> RowPlan:
    names = [{part.bucket: part.name for part in delta.parts} for delta in deltas]
    chosen = engine.for_rows(sum(map(len, deltas)))
    folder = scratch.folder(chosen.workers)
    items = [
        _Bucket(
            number=bucket,
            deltas=deltas[0].folder,
            names={label: names[number].get(bucket, "") for label, number in pair_of.items()},
            base=base,
            strategy=strategy,
            plans=folder,
        )
        for bucket in sorted(set().union(*names))
    ]
    answers = chosen.workers.run("decide about rows", decide_bucket, items)
    # Buckets follow each other in the order of ids, and so do conflicts within a bucket.
    conflicts = [
        PlannedConflict(entity_id=entity_id, choice=choice, holder=holder)
        for answer in answers
        for entity_id, choice, holder in answer["conflicts"]
    ]
    return replace(
        _read_rows(folder, [answer["taken"] for answer in answers]),
        conflicts=tuple(conflicts[:MAX_CONFLICTS]),
        conflict_total=sum(int(answer["conflict_total"]) for answer in answers),
        contested=_read_rows(folder, [answer["contested"] for answer in answers]) if conflicts else None,
    )


# ---- decisions


@frozen
class _ChosenRows:
    """Rows of the source for the target, and the ids of the rows that it has not any more."""

    parts: list[HeldRows]
    deleted_ids: Array

    def ids_of_deleted(self) -> list[str]:
        """The ids as texts."""
        return [str(item) for item in self.deleted_ids.to_pylist()]


@frozen(kw_only=True)
class _Decided:
    taken: _ChosenRows
    #: What would be taken besides if every conflict were decided for the source.
    contested: _ChosenRows
    conflicts: list[PlannedConflict]
    conflict_total: int


def _decide(deltas: Mapping[str, Rows], base: Base, strategy: str | None) -> _Decided:
    """Decide about the ids of some deltas, which say how every state differs from the first commit of the base."""
    states = _States(deltas, base.commits[0])
    source, target = states.rows(SOURCE), states.rows(TARGET)
    bases = {commit: states.rows(commit) for commit in base.commits}
    base_row = base_rows(base, bases)
    choices = choose(base_row, source, target)
    if strategy is not None:
        # Row conflicts only: whichever side is preferred, the rules of the schema are checked afterwards.
        choices[choices > Choice.TAKE] = Choice.TAKE if strategy == "theirs" else Choice.KEEP
    in_source, in_target = source != ABSENT, target != ABSENT

    def rows_of_source(wanted: NDArray[np.bool_]) -> _ChosenRows:
        deleted = wanted & ~in_source & in_target
        parts = [
            *states.parts(Action.UPDATE, wanted & in_source & in_target),
            *states.parts(Action.INSERT, wanted & in_source & ~in_target),
            *states.parts(Action.DELETE, deleted),
        ]
        return _ChosenRows(parts, states.ids.filter(pa.array(deleted)))

    is_conflict = choices > Choice.TAKE
    found = pa.table(
        {
            "id": states.ids.filter(pa.array(is_conflict)),
            "choice": choices[is_conflict],
            "holder": _holders(base, bases, base_row)[is_conflict],
        }
    ).sort_by("id")
    return _Decided(
        taken=rows_of_source(choices == Choice.TAKE),
        contested=rows_of_source(is_conflict),
        conflicts=[
            PlannedConflict(entity_id=row["id"], choice=row["choice"], holder=row["holder"])
            for row in found.slice(0, MAX_CONFLICTS).to_pylist()
        ],
        conflict_total=found.num_rows,
    )


def _holders(base: Base, bases: Mapping[str, NDArray[np.int64]], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row of the base, a commit that has it."""
    found = np.full(len(rows), -1, dtype=np.int64)
    for place, commit in enumerate(base.commits):
        found[(found < 0) & (bases[commit] == rows) & (rows != ABSENT)] = place
    return found


class _States:
    """Several states of a table over the ids at which any of them differs from the first.

    Deltas also name rows that were written again with equal values, so the row of an id that a delta does not name is
    the row of the first state, with the same row id.
    """

    def __init__(self, deltas: Mapping[str, Rows], reference: str) -> None:
        self._reference = reference
        chunks = [chunk for delta in deltas.values() for chunk in delta["id"].chunks]
        self.ids = pa.chunked_array(chunks, pa.utf8()).combine_chunks().unique()
        self._places = {label: np.asarray(pc.index_in(delta["id"], self.ids)) for label, delta in deltas.items()}
        self._numbers = _row_numbers(deltas)
        count = len(self.ids)
        self._first = np.full(count, ABSENT, dtype=np.int64)
        self._first_row_ids = np.full(count, _NO_ROW, dtype=np.int64)
        for label, delta in deltas.items():
            self._first[self._places[label]] = self._numbers[label, "old"]
            self._first_row_ids[self._places[label]] = _row_ids(delta["old_row"])
        self._row_ids = {label: _row_ids(delta["new_row"]) for label, delta in deltas.items()}

    def rows(self, label: str) -> NDArray[np.int64]:
        """The rows of a state as numbers, one per id."""
        if label == self._reference:
            return self._first
        rows = self._first.copy()
        rows[self._places[label]] = self._numbers[label, "new"]
        return rows

    def parts(self, action: Action, wanted: NDArray[np.bool_]) -> list[HeldRows]:
        """The wanted ids with their rows, in the order of the rows that go or, if none do, that come."""
        columns = [
            self._located(label, wanted) if action is not missing else None
            for label, missing in ((SOURCE, Action.DELETE), (TARGET, Action.INSERT))
        ]
        order = np.argsort(next(c for c in reversed(columns) if c is not None))
        arrays = [self.ids.filter(pa.array(wanted)).take(pa.array(order))]
        arrays += [pa.nulls(len(order), pa.int64()) if rows is None else pa.array(rows[order]) for rows in columns]
        return list(held_parts(action, pa.RecordBatch.from_arrays(arrays, schema=PLAN)))

    def _located(self, label: str, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        row_ids = self._first_row_ids.copy()
        if label != self._reference:
            row_ids[self._places[label]] = self._row_ids[label]
        return row_ids[wanted]


def _row_numbers(deltas: Mapping[str, Rows]) -> dict[tuple[str, str], NDArray[np.int64]]:
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


def _row_ids(column: Column) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, _NO_ROW), dtype=np.int64)


# ---- single rows


def find_row_ids(table: Table, ids: list[str]) -> dict[str, int]:
    """The row ids of those of the ids that exist."""
    keys = pa.array(ids, pa.utf8())
    scans = key_scans(table, None, text_key("id"), extra=(ROW_ID,))
    found: dict[str, int] = {}
    for piece in find_keys(scans, keys, keys):
        found |= {row["key"]: row[ROW_ID] for row in piece.to_pylist()}
    return found
