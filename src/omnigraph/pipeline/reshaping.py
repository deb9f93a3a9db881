"""Changing the columns of tables as bulk work: one task per fragment writes the values that are new.

Nothing moves here: what comes out is staged, and whoever called commits it under the commit protocol. A change without
new values needs no task at all, whatever the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.errors import MAX_EXAMPLES
from omnigraph.pipeline.backfilling import evaluate
from omnigraph.pipeline.workers import raise_failure
from omnigraph.schema.backfill import used_properties
from omnigraph.storage.columns import (
    NewColumn,
    needs_values,
    stage_columns,
    stage_table,
    write_columns,
    write_table,
)
from omnigraph.storage.fragments import fragment_sizes, remove_new_files, remove_written
from omnigraph.storage.partitions import list_fragment_groups, table_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.schema.backfill import Expression
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """One column of the table as it will be, and where its values come from.

    The values of `origin`, in the type of the field; where they are null, those of `backfill`.
    """

    field: Any
    origin: str | None = None
    backfill: Expression | None = None
    is_widened: bool = False
    is_blob: bool = False

    @property
    def target(self) -> NewColumn:
        """The column as storage sees it."""
        return NewColumn(
            field=self.field,
            origin=self.origin,
            is_written=self.backfill is not None or self.is_widened,
            is_blob=self.is_blob,
        )

    @property
    def reads(self) -> frozenset[str]:
        """The present columns that its values come from."""
        used = frozenset() if self.backfill is None else used_properties(self.backfill)
        return used | ({self.origin} if self.origin is not None else set())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """All columns of a table as they will be, in their order."""

    columns: tuple[ColumnChange, ...]
    #: Every row is written anew, so that nothing of a dropped column is left.
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshaped:
    """A staged change, and the rows that lack a required value: how many per column, and ids of some."""

    staged: StagedWrite
    null_totals: Mapping[str, int] = field(default_factory=dict)
    null_ids: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    address: TableAddress
    fragments: tuple[int, ...]
    columns: tuple[ColumnChange, ...]


def reshape_table(table: Table, change: TableChange, workers: Workers) -> Reshaped:
    """Write what is new and stage the change. When it fails, its files are gone."""
    targets = [column.target for column in change.columns]
    needed = needs_values(table, targets)
    # Blobs lie partly outside the columns, so that their values cannot be written beside existing rows.
    is_rewritten = change.is_rewritten or any(item.is_blob for item in needed)
    if is_rewritten and table.row_count:
        return _rewritten(table, change, workers)
    written = {item.field.name for item in needed}
    columns = tuple(column for column in change.columns if column.field.name in written)
    sizes = fragment_sizes(table)
    if not columns or not sizes:
        return Reshaped(staged=stage_columns(table, targets))
    address = table_address(table)
    items = [_Item(address=address, fragments=(one,), columns=columns) for one in sizes]
    answers = _run(table, workers, "write columns", _write_columns, items)
    staged = stage_columns(table, targets, [answer["fragments"][0] for answer in answers])
    return _reshaped(staged, answers)


def _rewritten(table: Table, change: TableChange, workers: Workers) -> Reshaped:
    address = table_address(table)
    items = [
        _Item(address=address, fragments=group.fragment_ids, columns=change.columns)
        for group in list_fragment_groups(table)
    ]
    answers = _run(table, workers, "write rows", _write_rows, items)
    fragments = [text for answer in answers for text in answer["fragments"]]
    targets = [column.target for column in change.columns]
    return _reshaped(stage_table(table, targets, fragments), answers)


def _run(
    table: Table, workers: Workers, stage: str, task: Any, items: Sequence[_Item]
) -> list[Message]:
    answers: list[Message] = []
    try:
        answers = workers.run(stage, task, items, keep_failures=True)
        for answer in answers:
            raise_failure(answer)
    except BaseException:
        # Also after an interrupt: nobody else knows these files.
        fragments = [text for answer in answers for text in answer.get("fragments", ())]
        remove = remove_written if task is _write_rows else remove_new_files
        remove(table, fragments)
        raise
    return answers


def _reshaped(staged: StagedWrite, answers: Sequence[Message]) -> Reshaped:
    totals: dict[str, int] = {}
    ids: dict[str, list[str]] = {}
    for answer in answers:
        for name, (count, examples) in answer["nulls"].items():
            totals[name] = totals.get(name, 0) + int(count)
            ids[name] = [*ids.get(name, ()), *examples][:MAX_EXAMPLES]
    return Reshaped(staged=staged, null_totals=totals, null_ids=ids)


class _Values:
    """Computes columns batch by batch, and counts the rows that lack a required value."""

    def __init__(self, columns: Sequence[ColumnChange]) -> None:
        self._columns = columns
        self.reads = sorted({"id"}.union(*(column.reads for column in columns)))
        self.nulls: dict[str, tuple[int, list[str]]] = {}

    def compute(self, batch: Any) -> list[Any]:
        return [self._column(column, batch) for column in self._columns]

    def _column(self, column: ColumnChange, batch: Any) -> Any:
        field_ = column.field
        values = None
        if column.origin is not None:
            values = batch.column(column.origin)
            # Blobs come as bytes and are encoded where they are written.
            values = (
                values if column.is_blob or values.type == field_.type else values.cast(field_.type)
            )
        if column.backfill is not None:
            filled = evaluate(column.backfill, batch, field_)
            values = filled if values is None else pc.coalesce(values, filled)
        if values is None:
            values = pa.nulls(batch.num_rows, field_.type)
        if not field_.nullable and values.null_count:
            lacking = batch.column("id").filter(pc.is_null(values)).to_pylist()
            count, examples = self.nulls.get(field_.name, (0, []))
            examples = [*examples, *lacking][:MAX_EXAMPLES]
            self.nulls[field_.name] = (count + len(lacking), examples)
        return values


def _write_columns(item: _Item) -> Message:
    values = _Values(item.columns)
    fields = [column.field for column in item.columns]
    text = write_columns(item.address, item.fragments[0], values.reads, values.compute, fields)
    return {"fragments": [text], "nulls": values.nulls}


def _write_rows(item: _Item) -> Message:
    values = _Values(item.columns)
    targets = [column.target for column in item.columns]
    written = write_table(item.address, item.fragments, values.reads, values.compute, targets)
    return {"fragments": written, "nulls": values.nulls}
