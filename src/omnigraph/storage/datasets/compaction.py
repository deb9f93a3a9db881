"""Compaction: which fragments to rewrite, and the rewrite."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
from lance import LanceOperation, optimize
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata
from numpy.typing import NDArray

from omnigraph.errors import InternalError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.checksums import sums_in
from omnigraph.storage.datasets.filters import CREATED_AT, UPDATED_AT
from omnigraph.storage.datasets.fragments import fragment_text, has_long_sequences, remove_written, spill_sequences
from omnigraph.storage.datasets.indexes import stage_index_removal
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.staged import StagedWrite, follow, staged_write
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import list_files

# ---- Compaction: many small fragments become few large ones, and nothing else changes
#
# Tasks write the new fragments anywhere, and one staged write exchanges them for the old ones. Row ids and the
# versions in which rows were created and changed stay as they are.
#
# An index knows the rows of its fragments by their row ids, also those that were deleted or moved since. While such a
# fragment is there, its deletion mark says so. A fragment that an index covers is therefore exchanged only after the
# index was removed, in a version of its own: whatever version a crash leaves as the last one, no index answers for
# rows that it does not know.


#: The stubs of Lance lack the method that reads one from its text.
_Task: Any = optimize.CompactionTask
#: Rows of a table with blobs that are copied at once.
_BLOB_BATCH_ROWS = 64
#: One task writes one fragment: the groups were cut before.
_ONE_FRAGMENT_ROWS = 2**31


@frozen(kw_only=True)
class CompactionTask:
    """One group of fragments to be rewritten. Plain values: it travels to any process."""

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


def _task_text(table: Table, fragments: list[object]) -> str:
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
            new = [spill_sequences(table, text, lambda: _versions(dataset, old)) for text in written]
        except BaseException:
            # Also when the task is cancelled: nothing else knows these files.
            remove_written(table, written)
            raise
        return json.dumps({"old": list(task.fragments), "new": new})


def _versions(dataset: lance.LanceDataset, fragments: list[lance.LanceFragment]) -> dict[str, NDArray[np.uint64]]:
    """The versions of the rows of fragments in the order in which a compaction writes them."""
    names = [CREATED_AT, UPDATED_AT]
    rows = dataset.scanner(columns=names, fragments=fragments, scan_in_order=True).to_table()
    return {name: np.asarray(rows[name], dtype=np.uint64) for name in names}


def stage_compaction(table: Table, results: Sequence[str]) -> StagedWrite | None:
    """The exchange of fragments, after the removal of every index that covers one of them; None without results.

    Removed indexes have to be rebuilt: `with_indexes` adds them to the same write.
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
        sums = sums_in(text for body in bodies for text in body["new"])
        operation = LanceOperation.Rewrite(groups, [])
        exchange = staged_write(table, operation, sums)
        removal = stage_index_removal(table, gone)
    return exchange if removal is None else follow(removal, exchange)


def with_indexes(exchange: StagedWrite, image: Table, indexes: StagedWrite | None) -> StagedWrite:
    """An exchange of fragments together with indexes that were built on what it will make.

    `image` is the private version of the exchange. The new fragments get the numbers that they have there: the indexes
    name them.
    """
    if indexes is None:
        return exchange
    numbers = {item.metadata.files[0].path: item.fragment_id for item in image.fragments()}
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


def exchanged_fragments(staged: StagedWrite) -> tuple[int, int]:
    """How many fragments a staged write removes and adds."""
    groups = [
        group
        for transaction in staged._steps
        if isinstance(transaction.operation, LanceOperation.Rewrite)
        for group in transaction.operation.groups
    ]
    return sum(len(list(it.old_fragments)) for it in groups), sum(len(list(it.new_fragments)) for it in groups)


# ---- Which fragments of a table are worth rewriting: pure decisions, and the facts that they need


#: Rows of a fragment as compaction likes it.
TARGET_ROWS = 1_048_576
#: Rows of a table whose indexes are rebuilt in a moment, so that everything may be rewritten.
SMALL_TABLE_ROWS = 262_144
#: Small fragments with indexes that a large table may have: exchanging one of them costs its indexes a full build.
MAX_INDEXED_FRAGMENTS = 8
#: A fragment is worn when one row in this number is deleted.
WORN_SHARE = 10
#: A fold takes an older fragment only when it has at most this many times the rows of all newer ones together: every
#: row is then rewritten a few times only, however many folds there are.
_FOLD_GROWTH = 8


@frozen(kw_only=True)
class FragmentFacts:
    """What decides about one fragment."""

    number: int
    #: Rows that are not deleted.
    rows: int
    deleted: int
    size_bytes: int
    #: Whether any index covers it.
    is_indexed: bool
    #: Whether the ids of its rows make the manifest large: earlier releases left them there.
    has_long_ids: bool = False

    @property
    def is_worn(self) -> bool:
        """Whether enough rows are deleted, or enough ids are in the manifest, that rewriting it pays."""
        is_holed = self.deleted * WORN_SHARE >= self.rows + self.deleted and self.deleted > 0
        return is_holed or self.has_long_ids


def newest_rows(table: Table, fragments: int) -> int | None:
    """The rows of this many newest fragments; None when there are fewer. Looks at metadata in memory only."""
    with translated(f"looking at the fragments of {table.path}"):
        newest = table._dataset.get_fragments()[-fragments:]
        if len(newest) < fragments:
            return None
        return sum(fragment.metadata.num_rows for fragment in newest)


def fragment_facts(table: Table, *, with_blobs: bool = False) -> list[FragmentFacts]:
    """The fragments of a table, in storage order; looks at metadata only.

    Large blobs lie beside the data files, and no metadata knows their size: `with_blobs` lists them.
    """
    blobs = _blob_bytes(table) if with_blobs and table.blob_columns else {}
    with translated(f"looking at the fragments of {table.path}"):
        indexed = {
            number
            for index in table._dataset.describe_indices()
            for segment in index.segments
            for number in segment.fragment_ids
        }
        found = []
        for fragment in table._dataset.get_fragments():
            metadata = fragment.metadata
            found.append(
                FragmentFacts(
                    number=fragment.fragment_id,
                    rows=metadata.num_rows,
                    deleted=metadata.num_deletions,
                    size_bytes=sum(
                        (file.file_size_bytes or 0) + blobs.get(Path(file.path).stem, 0) for file in metadata.files
                    ),
                    is_indexed=fragment.fragment_id in indexed,
                    has_long_ids=has_long_sequences(metadata),
                )
            )
        return found


def _blob_bytes(table: Table) -> dict[str, int]:
    """The size of the blobs beside each data file, by the stem of its name."""
    found: dict[str, int] = defaultdict(int)
    for file in list_files(parse_location(table._dataset.uri), "data"):
        folder, _, _ = file.name.removeprefix("data/").rpartition("/")
        if folder:
            found[folder.partition("/")[0]] += file.size_bytes
    return found


def choose_rewrites(fragments: Sequence[FragmentFacts], *, target_rows: int = TARGET_ROWS) -> list[tuple[int, ...]]:
    """Groups of neighbouring fragments that become one fragment each; asking again afterwards gives none.

    A fragment with less than half of the target joins its neighbours. One that an index covers is spared in a large
    table, until there are many of them or one of them is worn: then all indexes are rebuilt, and all take part.
    """
    small_rows = target_rows // 2
    takes_indexed = _takes_indexed(fragments, small_rows, min(SMALL_TABLE_ROWS, target_rows))

    def takes_part(fragment: FragmentFacts) -> bool:
        if fragment.is_indexed and not takes_indexed:
            return False
        return fragment.rows < small_rows or fragment.is_worn

    groups: list[list[FragmentFacts]] = [[]]
    held = 0
    for fragment in fragments:
        if not takes_part(fragment):
            groups.append([])
            held = 0
            continue
        if groups[-1] and held + fragment.rows > target_rows:
            # Two neighbours that do not fit into one fragment: the first is more than half full.
            groups.append([])
            held = 0
        groups[-1].append(fragment)
        held += fragment.rows
    return [_numbers(group) for group in groups if len(group) > 1 or _has_worn(group)]


def choose_fold(
    fragments: Sequence[FragmentFacts], *, more_than: int, max_rows: int, max_bytes: int
) -> tuple[int, ...]:
    """The newest fragments that no index covers, when there are more than `more_than`; otherwise nothing.

    The work is bounded by rows and bytes, and fragments that an index covers stay: nothing else has to change.
    """
    taken: list[FragmentFacts] = []
    rows = size = 0
    for fragment in reversed(fragments):
        if fragment.is_indexed or rows + fragment.rows > max_rows:
            break
        if size + fragment.size_bytes > max_bytes:
            break
        if len(taken) >= more_than and fragment.rows > _FOLD_GROWTH * rows:
            break
        taken.append(fragment)
        rows += fragment.rows
        size += fragment.size_bytes
    return _numbers(reversed(taken)) if len(taken) > more_than else ()


def _takes_indexed(fragments: Sequence[FragmentFacts], small_rows: int, small_table_rows: int) -> bool:
    if sum(fragment.rows for fragment in fragments) <= small_table_rows:
        return True
    indexed = [fragment for fragment in fragments if fragment.is_indexed]
    small = sum(1 for fragment in indexed if fragment.rows < small_rows)
    # The new fragments become one small fragment with indexes in this very run.
    coming = any(not item.is_indexed and item.rows < small_rows for item in fragments)
    return small + coming >= MAX_INDEXED_FRAGMENTS or _has_worn(indexed)


def _has_worn(fragments: Iterable[FragmentFacts]) -> bool:
    return any(fragment.is_worn for fragment in fragments)


def _numbers(fragments: Iterable[FragmentFacts]) -> tuple[int, ...]:
    return tuple(fragment.number for fragment in fragments)
