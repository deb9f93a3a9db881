"""Compaction: many small fragments become few large ones, and nothing else changes.

Tasks write the new fragments anywhere, and one staged write exchanges them for the old ones. Row ids and the versions
in which rows were created and changed stay as they are.

An index knows the rows of its fragments by their row ids, also those that were deleted or moved since. While such a
fragment is there, its deletion mark says so. A fragment that an index covers is therefore exchanged only after the
index was removed, in a version of its own: whatever version a crash leaves as the last one, no index answers for rows
that it does not know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from lance import LanceOperation, optimize
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import InternalError
from omnigraph.storage.checksums import sums_in
from omnigraph.storage.failures import translated
from omnigraph.storage.fragments import fragment_text, remove_written
from omnigraph.storage.indexes import stage_index_removal
from omnigraph.storage.opening import open_dataset
from omnigraph.storage.row_columns import CREATED_AT, UPDATED_AT
from omnigraph.storage.row_ids import spill_sequences
from omnigraph.storage.staged import StagedWrite, StageKind, follow
from omnigraph.storage.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import lance
    from numpy.typing import NDArray

#: The stubs of Lance lack the method that reads one from its text.
_Task: Any = optimize.CompactionTask
#: Rows of a table with blobs that are copied at once.
_BLOB_BATCH_ROWS = 64
#: One task writes one fragment: the groups were cut before.
_ONE_FRAGMENT_ROWS = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One group of fragments to be written anew. Plain values: it travels to any process."""

    uri: str
    version: int
    rows: int
    fragments: tuple[int, ...]


def plan_compaction(table: Table, groups: Iterable[Sequence[int]]) -> list[CompactionTask]:
    """One task for every group of fragments, given by their numbers."""
    with translated(f"planning the compaction of {table.path}"):
        rows = {item.fragment_id: item.metadata.num_rows for item in table._dataset.get_fragments()}
        return [
            CompactionTask(
                uri=table._dataset.uri,
                version=table.version,
                rows=sum(rows[number] for number in group),
                fragments=tuple(group),
            )
            for group in groups
        ]


def _task_text(table: Table, fragments: list[Any]) -> str:
    """A task as Lance would plan it, for fragments of our choice: Lance offers its own choice only."""
    task = {
        "task": {"fragments": fragments},
        "read_version": table.version,
        "options": {
            "target_rows_per_fragment": _ONE_FRAGMENT_ROWS,
            "max_rows_per_group": 1024,
            "materialize_deletions": True,
            "materialize_deletions_threshold": 0.1,
            "defer_index_remap": False,
            "enable_binary_copy": False,
            "enable_binary_copy_force": False,
            # A batch holds whole values, and blobs may be of any size.
            "batch_size": _BLOB_BATCH_ROWS if table.blob_columns else None,
        },
    }
    return json.dumps(task)


def run_compaction_task(task: CompactionTask) -> str:
    """Write the new fragments of one task; its result as text for `stage_compaction`. Moves nothing.

    Lance copies rows in the order of their fragments and puts their ids into the metadata of the new one, whatever room
    they take there: long sequences become a hidden column.
    """
    with translated(f"rewriting fragments of {task.uri}"):
        # A handle of its own: the task may run in another process than its plan was made in.
        dataset = open_dataset(task.uri, task.version)
        table = Table(dataset, task.uri, None)
        present = {item.fragment_id: item for item in dataset.get_fragments()}
        old = [present[number] for number in task.fragments]
        text = _task_text(table, [item.metadata.to_json() for item in old])
        result = _Task.from_json(text).execute(dataset)
        written = [fragment_text(table, fragment) for fragment in result.new_fragments]
        # One, or none when no row is left.
        assert len(written) <= 1, "a group becomes one fragment"
        try:
            new = [
                spill_sequences(table, text, lambda: _versions(dataset, old)) for text in written
            ]
        except BaseException:
            # Also when the task is cancelled: nobody else knows these files.
            remove_written(table, written)
            raise
        return json.dumps({"old": list(task.fragments), "new": new})


def _versions(
    dataset: lance.LanceDataset, fragments: list[lance.LanceFragment]
) -> dict[str, NDArray[np.uint64]]:
    """The versions of the rows of fragments in the order in which a compaction writes them."""
    names = [CREATED_AT, UPDATED_AT]
    rows = dataset.scanner(columns=names, fragments=fragments, scan_in_order=True).to_table()
    return {name: np.asarray(rows[name], dtype=np.uint64) for name in names}


def stage_compaction(table: Table, results: Sequence[str]) -> StagedWrite | None:
    """The exchange of fragments, after the removal of every index that covers one of them; None without results.

    Removed indexes have to be built anew: `with_indexes` adds them to the same write.
    """
    if not results:
        return None
    with translated(f"staging the compaction of {table.path}"):
        fragments = {item.fragment_id: item.metadata for item in table._dataset.get_fragments()}
        groups, gone = [], set()
        bodies = [json.loads(text) for text in results]
        for body in bodies:
            gone.update(body["old"])
            groups.append(
                LanceOperation.RewriteGroup(
                    old_fragments=[fragments[number] for number in body["old"]],
                    new_fragments=[FragmentMetadata.from_json(text) for text in body["new"]],
                )
            )
        exchange = StagedWrite(
            table=table,
            kind=StageKind.REWRITE,
            _transaction=Transaction(table.version, LanceOperation.Rewrite(groups, [])),
            sums=sums_in(text for body in bodies for text in body["new"]),
        )
        removal = stage_index_removal(table, gone)
    return exchange if removal is None else follow(removal, exchange)


def with_indexes(exchange: StagedWrite, image: Table, indexes: StagedWrite | None) -> StagedWrite:
    """An exchange of fragments together with indexes that were built on what it will make.

    `image` is the private version of the exchange. The new fragments get the numbers that they have there: the indexes
    name them.
    """
    if indexes is None:
        return exchange
    numbers = {
        item.metadata.files[0].path: item.fragment_id for item in image._dataset.get_fragments()
    }
    steps = [_numbered(transaction, numbers) for transaction in exchange._steps]
    return follow(replace(exchange, _transaction=steps[0], _later=tuple(steps[1:])), indexes)


def _numbered(transaction: Transaction, numbers: dict[str, int]) -> Transaction:
    operation = transaction.operation
    if not isinstance(operation, LanceOperation.Rewrite):
        return transaction
    for group in operation.groups:
        for fragment in group.new_fragments:
            number = numbers.get(fragment.files[0].path)
            if number is None:
                raise InternalError("a rewritten fragment is not in its own image")
            fragment.id = number
    return Transaction(transaction.read_version, operation)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """How many fragments an exchange removes and adds."""

    removed: int = 0
    added: int = 0


def exchanged_fragments(staged: StagedWrite | None) -> Exchanged:
    """What a staged write exchanges."""
    groups = [
        group
        for transaction in (() if staged is None else staged._steps)
        if isinstance(transaction.operation, LanceOperation.Rewrite)
        for group in transaction.operation.groups
    ]
    return Exchanged(
        sum(len(list(group.old_fragments)) for group in groups),
        sum(len(list(group.new_fragments)) for group in groups),
    )
