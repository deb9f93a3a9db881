"""Copying rows from one state of a table into another: fragments for the new rows, marks on those they replace.

Rows that replace others keep the row ids of these. Tasks read and write; the driver holds row ids only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as _compute

from omnigraph.errors import MAX_CONFLICTS, InternalError
from omnigraph.pipeline.merging import ShrinkItem, by_fragment, shrink_fragment
from omnigraph.pipeline.workers import raise_failure
from omnigraph.storage import stage_fragments
from omnigraph.storage.fragments import (
    keep_ids,
    remove_written,
    stage_removal,
    stage_replacement,
    write_rows,
)
from omnigraph.storage.partitions import open_address, table_address
from omnigraph.storage.row_changes import kept_ids, scan_by_row_id, take_by_row_id
from omnigraph.storage.row_columns import ROW_ADDRESS
from omnigraph.writes.columns import stored_values
from omnigraph.writes.value_rules import complaint, rule_name, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage import StagedWrite, Table
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.writes.rules import ValueRule

#: The published stubs of pyarrow describe older functions.
pc: Any = _compute

#: Rows that one task copies, and rows that it has in memory.
_TASK_ROWS = 200_000
_BATCH_ROWS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyItem:
    """Rows that one task copies: new ones, or ones that replace rows of the target."""

    source: TableAddress
    target: TableAddress
    row_ids: NDArray[np.uint64]
    replaced: NDArray[np.uint64]
    rules: tuple[ValueRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Staged rows, and the values among them that violate a rule: id and sentence of the first, and how many."""

    staged: StagedWrite
    #: The rows that come, as fragments.
    fragments: tuple[str, ...]
    violations: tuple[tuple[str, str], ...]
    violation_total: int


def copy_rows(item: CopyItem) -> Message:
    """Read rows of the source and write them as fragments of the target."""
    source, target = open_address(item.source), open_address(item.target)
    bad: list[tuple[str, str]] = []
    total = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal total
        for batch in _read(source, item.row_ids, [field.name for field in target.schema]):
            for rule in item.rules:
                found = _broken(rule, batch)
                total += len(found)
                bad.extend(found[: MAX_CONFLICTS - len(bad)])
            yield batch

    kept = kept_ids(target, item.replaced)
    return {
        "fragments": keep_ids(target, write_rows(target, batches()), kept),
        "rows": len(item.row_ids),
        "violations": bad,
        "violation_total": total,
    }


def _read(
    table: Table, row_ids: NDArray[np.uint64], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(row_ids), _BATCH_ROWS):
        missing = len(wanted := row_ids[begin : begin + _BATCH_ROWS])
        for batch in scan_by_row_id(table, wanted, columns):
            missing -= batch.num_rows
            yield batch
        if missing:
            raise InternalError(f"{missing} rows of {table.path} are gone")


def _broken(rule: ValueRule, batch: pa.RecordBatch) -> list[tuple[str, str]]:
    mask = violations(rule, batch.column(rule.property))
    if not pc.any(mask).as_py():
        return []
    rows: Any = batch.filter(mask)
    values = stored_values(rows[rule.property])
    return [
        (entity_id, f"{rule_name(rule)}: {value!r} of {entity_id!r} {complaint(rule)}")
        for entity_id, value in zip(rows["id"].to_pylist(), values, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Which rows of the source come, which rows of the target they replace, and which go."""

    source: Table
    target: Table
    inserted: NDArray[np.uint64]
    updated: NDArray[np.uint64]
    replaced: NDArray[np.uint64]
    deleted: NDArray[np.uint64]
    rules: tuple[ValueRule, ...] = ()


def stage_copy(plan: CopyPlan, workers: Workers) -> Copied:
    """Write everything; nothing is visible before the staged write is committed. When it fails, its files are gone."""
    target = plan.target
    answers: list[Message] = []
    fragments: list[str] = []
    try:
        answers = workers.run("copy rows", copy_rows, _items(plan), keep_failures=True)
        # Also of tasks beside one that failed: their fragments are known only from their answers.
        fragments = [text for answer in answers for text in answer.get("fragments", ())]
        for answer in answers:
            raise_failure(answer)
        gone = np.concatenate([plan.replaced, plan.deleted])
        shrunk = mark_replaced(target, gone, workers)
    except BaseException:
        # Also after an interrupt: nobody else knows these files.
        remove_written(target, fragments)
        raise
    if not shrunk:
        staged = stage_fragments(target, fragments)
    elif not fragments:
        staged = stage_removal(target, shrunk, len(gone))
    else:
        staged = stage_replacement(target, fragments, shrunk)
    bad = [(str(key), str(text)) for answer in answers for key, text in answer["violations"]]
    return Copied(
        staged=staged,
        fragments=tuple(fragments),
        violations=tuple(bad),
        violation_total=sum(int(answer["violation_total"]) for answer in answers),
    )


def _items(plan: CopyPlan) -> list[CopyItem]:
    source, target = table_address(plan.source), table_address(plan.target)
    # Sorted, so that the ids that rows keep take little room; and apart from new rows, which have none.
    order = np.argsort(plan.replaced)
    none = np.empty(0, dtype=np.uint64)
    return [
        CopyItem(
            source=source,
            target=target,
            row_ids=rows[begin : begin + _TASK_ROWS],
            replaced=replaced[begin : begin + _TASK_ROWS],
            rules=plan.rules,
        )
        for rows, replaced in ((plan.updated[order], plan.replaced[order]), (plan.inserted, none))
        for begin in range(0, len(rows), _TASK_ROWS)
    ]


def mark_replaced(
    target: Table, row_ids: NDArray[np.uint64], workers: Workers
) -> dict[int, str | None]:
    """Fragments without rows that others replace, as `stage_replacement` takes them. Moves nothing."""
    if not len(row_ids):
        return {}
    addresses = take_by_row_id(target, row_ids, [ROW_ADDRESS])[ROW_ADDRESS]
    if len(addresses) != len(row_ids):
        raise InternalError(f"{len(row_ids) - len(addresses)} rows of {target.path} are gone")
    address = table_address(target)
    items = [
        ShrinkItem(target=address, fragment=number, offsets=rows.offsets)
        for number, rows in by_fragment(addresses).items()
    ]
    answers = workers.run("mark replaced rows", shrink_fragment, items)
    return {answer["fragment"]: answer["left"] for answer in answers}
