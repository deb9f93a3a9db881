"""Copies rows of one state of a table into another, as planned by a branch merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa
from omnigraph.core.ids import TableKey
from omnigraph.errors import MAX_CONFLICTS, InternalError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import ValueRule
from omnigraph.pipeline.exchange import BUCKET, Exchange, Scratch, joined_keys, key_files, run_exchange, write_keys
from omnigraph.pipeline.upsert import shrink_fragment, shrink_fragments, shrink_items
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message, Workers, advance
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.filters import ROW_ADDRESS
from omnigraph.storage.datasets.fragments import (
    Ledger,
    Ledgers,
    fragment_sizes,
    keep_ids,
    stage_removal,
    stage_replacement,
    write_rows,
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, table_address
from omnigraph.storage.datasets.row_changes import kept_ids, scan_by_row_id, take_by_row_id
from omnigraph.storage.datasets.staged import StagedWrite, stage_fragments
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation
from omnigraph.writes.rules import check_values

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Row changes of a merge
#
# A plan consists of parts, each with rows of one kind. Tasks read the parts; the driver knows how many rows they
# have.


#: Rows of a part at most.
PART_ROWS = 200_000
#: Row ids of the rows in the source and in the target; null where a row is not there.
PLAN = pa.schema([("id", pa.utf8()), ("source", pa.int64()), ("target", pa.int64())])


class Action(IntEnum):
    """The action on a row of the target."""

    #: The target takes over a row that it does not have.
    INSERT = 0
    #: A row of the source replaces one of the target.
    UPDATE = 1
    DELETE = 2


@frozen(kw_only=True)
class HeldRows:
    """A part in memory."""

    action: Action
    rows: Batch
    is_in_file = False

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self.rows.num_rows

    def read(self) -> Batch:
        """The rows as a `PLAN` batch."""
        return self.rows


@frozen(kw_only=True)
class FiledRows:
    """A part that is a batch of a file. Picklable."""

    action: Action
    row_count: int
    folder: AnswerFolder
    name: str
    batch: int
    is_in_file = True

    def read(self) -> Batch:
        """The rows as a `PLAN` batch."""
        (batch,) = read_answer(self.folder, self.name, self.batch, self.batch + 1)
        return batch


PlannedRows: TypeAlias = HeldRows | FiledRows


@frozen(kw_only=True)
class PlannedConflict:
    """An id that a merge cannot decide about."""

    entity_id: str
    #: A value of `truth_table.Choice`.
    choice: int
    #: The place in `Base.commits` of a commit that holds the row of the base; -1 where none does.
    holder: int


@frozen(kw_only=True)
class RowPlan:
    """The row changes of a merge in one table."""

    parts: tuple[PlannedRows, ...]
    #: Ids of the rows that go.
    deleted_ids: Sequence[str] = ()
    #: The first conflicts in the order of their ids, and how many there are.
    conflicts: tuple[PlannedConflict, ...] = ()
    conflict_total: int = 0
    #: What the target would take over besides if every conflict were decided for the source; None without conflicts.
    contested: RowPlan | None = None

    def with_contested(self) -> RowPlan:
        """The same plan with every conflict decided for the source."""
        if self.contested is None:
            return self
        parts = (*self.parts, *self.contested.parts)
        return replace(self, parts=parts, deleted_ids=joined_keys(self.deleted_ids, self.contested.deleted_ids))

    def count(self, *actions: Action) -> int:
        """The number of changed rows of the target, of some kinds or of all."""
        return sum(part.row_count for part in self.of(*(actions or Action)))

    def of(self, *actions: Action) -> list[PlannedRows]:
        """The parts with rows of some kinds."""
        return [part for part in self.parts if part.action in actions]

    @property
    def losing(self) -> list[PlannedRows]:
        """The parts with rows of the target that go or are replaced."""
        return self.of(Action.UPDATE, Action.DELETE)


def held_parts(action: Action, rows: Batch) -> Iterator[HeldRows]:
    """Rows of one kind as parts in memory."""
    for begin in range(0, rows.num_rows, PART_ROWS):
        yield HeldRows(action=action, rows=rows.slice(begin, PART_ROWS))


def file_parts(folder: AnswerFolder, number: int, parts: Sequence[HeldRows]) -> tuple[str, list[tuple[int, int]]]:
    """Write parts as batches of one file: its name, kind and size of each batch."""
    name = attempt_name("plan", number)
    if parts:
        write_answer(folder, name, PLAN, (part.rows for part in parts))
    return name, [(int(part.action), part.row_count) for part in parts]


def filed_parts(folder: AnswerFolder, name: str, batches: Sequence[tuple[int, int]]) -> Iterator[FiledRows]:
    """The parts of a file, from what `file_parts` told about it."""
    for number, (action, rows) in enumerate(batches):
        yield FiledRows(action=Action(action), row_count=rows, folder=folder, name=name, batch=number)


# ---- Copying rows between table states
#
# Rows that replace others keep the row ids of these. Tasks read the plan, read and write rows; the driver holds
# neither.


#: Rows that a task has in memory.
_BATCH_ROWS = 8_192
#: Rows whose fragments one task marks.
_MARKED_ROWS = 2_000_000
_ADDRESSES = pa.schema([(BUCKET, pa.int32()), ("address", pa.int64())])


@frozen(kw_only=True)
class CopyPlan:
    """The rows to copy from the source, and the rows of the target to replace and to delete."""

    key: TableKey
    source: Table
    target: Table
    rows: RowPlan
    rules: tuple[ValueRule, ...] = ()
    #: The same plan without the contested rows, where it is staged already: its rows are not copied again.
    before: Copied | None = None

    @property
    def coming(self) -> RowPlan:
        """The rows that are still to be copied."""
        contested = self.rows.contested
        return self.rows if self.before is None or contested is None else contested


@frozen(kw_only=True)
class Copied:
    """Staged rows, and the values among them that violate a rule: texts about the first, and how many."""

    staged: StagedWrite
    #: The rows that come, as fragments.
    fragments: tuple[str, ...]
    violations: tuple[str, ...]
    violation_total: int


def stage_copy(plan: CopyPlan, engine: WorkerSet, scratch: Scratch, root: GraphLocation) -> Copied:
    """Write everything; nothing is visible before the staged write is committed. When it fails, its files are gone.

    `root` is the graph, where tasks note what they write.
    """
    ledgers = Ledgers.of(root)
    is_staged = False
    try:
        answers = engine.workers.run("copy rows", copy_rows, _items(plan, ledgers.folder))
        shrunk, attempts = _mark(plan, engine, scratch, ledgers.folder)
        ledgers.count([*(answer["ledger"] for answer in answers), *attempts])
        is_staged = True
    finally:
        # Also after an interrupt: nothing else knows these files.
        ledgers.close(is_committed=is_staged)
    before = plan.before
    fragments = [text for answer in answers for text in answer["fragments"]]
    bad = [str(text) for answer in answers for text in answer["violations"]]
    bad_total = sum(int(answer["violation_total"]) for answer in answers)
    if before is not None:
        fragments, bad = [*before.fragments, *fragments], [*before.violations, *bad]
        bad_total += before.violation_total
    if not shrunk:
        staged = stage_fragments(plan.target, fragments)
    elif not fragments:
        staged = stage_removal(plan.target, shrunk, plan.rows.count(Action.DELETE))
    else:
        staged = stage_replacement(plan.target, fragments, shrunk)
    return Copied(
        staged=staged, fragments=tuple(fragments), violations=tuple(bad[:MAX_CONFLICTS]), violation_total=bad_total
    )


# ---- rows that come


@frozen(kw_only=True)
class CopyItem:
    """Rows that one task copies: new ones, or ones that replace rows of the target."""

    number: int
    key: TableKey
    source: TableAddress
    target: TableAddress
    #: All of one kind.
    parts: tuple[PlannedRows, ...]
    rules: tuple[ValueRule, ...]
    ledgers: AnswerFolder | None = None


def _items(plan: CopyPlan, ledgers: AnswerFolder) -> list[CopyItem]:
    source, target = table_address(plan.source), table_address(plan.target)
    # Rows that keep ids lie apart from new rows, which have none.
    groups = [group for action in (Action.UPDATE, Action.INSERT) for group in _grouped(plan.coming, action)]
    return [
        CopyItem(
            number=number,
            key=plan.key,
            source=source,
            target=target,
            parts=tuple(group),
            rules=plan.rules,
            ledgers=ledgers,
        )
        for number, group in enumerate(groups)
    ]


def _grouped(plan: RowPlan, action: Action) -> Iterator[list[PlannedRows]]:
    """Neighbouring parts together, while they are small: every group becomes a fragment."""
    group: list[PlannedRows] = []
    rows = 0
    for part in plan.of(action):
        if group and rows + part.row_count > PART_ROWS:
            yield group
            group, rows = [], 0
        group.append(part)
        rows += part.row_count
    if group:
        yield group


def copy_rows(item: CopyItem) -> Message:
    """Read rows of the source and write them as fragments of the target."""
    source, target = open_address(item.source), open_address(item.target)
    rows = pa.Table.from_batches([part.read() for part in item.parts])
    come = _row_ids(rows["source"])
    replaced = _row_ids(rows["target"])
    if len(replaced):
        # In their order the ids that rows keep take little room.
        order = np.argsort(replaced)
        come, replaced = come[order], replaced[order]
    bad: list[str] = []
    total = 0

    def batches() -> Iterator[Batch]:
        nonlocal total
        names = [field.name for field in target.schema]
        # Lance pulls these rows, and would report a stop in between as a failure to write.
        for batch in _read(source, come, names):
            advance(batch.num_rows)
            for violation in check_values(item.key, item.rules, batch, MAX_CONFLICTS):
                total += violation.total
                bad.extend(violation.texts[: MAX_CONFLICTS - len(bad)])
            yield batch

    kept = kept_ids(target, replaced)
    written = keep_ids(target, write_rows(target, batches()), kept)
    ledger = Ledger(item.ledgers, item.number)
    ledger.note(target, written)
    return {"fragments": written, "rows": len(come), "violations": bad, "violation_total": total, "ledger": ledger.name}


def _read(table: Table, row_ids: NDArray[np.uint64], columns: list[str]) -> Iterator[Batch]:
    for begin in range(0, len(row_ids), _BATCH_ROWS):
        missing = len(wanted := row_ids[begin : begin + _BATCH_ROWS])
        for batch in scan_by_row_id(table, wanted, columns):
            missing -= batch.num_rows
            yield batch
        if missing:
            raise InternalError(f"{missing} rows of {table.path} are gone")


# ---- rows that go


def _mark(
    plan: CopyPlan, engine: WorkerSet, scratch: Scratch, ledgers: AnswerFolder
) -> tuple[dict[int, str | None], list[str]]:
    """Fragments without rows that go or are replaced, as `stage_replacement` takes them, and who wrote their marks."""
    losing = plan.rows.losing
    target = table_address(plan.target)
    rows = sum(part.row_count for part in losing)
    if not any(part.is_in_file for part in losing):
        addresses = [_addresses(plan.target, part) for part in losing]
        answers = shrink_fragments(target, np.concatenate(addresses), ledgers) if losing else []
    else:
        wanted = max(engine.workers.parallelism, rows // _MARKED_ROWS + 1)
        buckets = min(wanted, len(fragment_sizes(plan.target)))
        exchange = Exchange(
            stage="mark replaced rows",
            items=losing,
            read=_ReadAddresses(target, buckets),
            schema=_ADDRESSES,
            buckets=buckets,
            handle=_MarkRows(target, ledgers),
        )
        with scratch.inner() as working:
            found = run_exchange(exchange, engine.workers, working.folder(engine.workers))
        answers = [answer for message in found for answer in message["marked"]]
    shrunk = {int(answer["fragment"]): answer["left"] for answer in answers}
    return shrunk, [answer["ledger"] for answer in answers]


@frozen
class _ReadAddresses:
    target: TableAddress
    buckets: int

    def __call__(self, part: PlannedRows) -> Iterator[Batch]:
        addresses = _addresses(open_address(self.target), part)
        columns = [pa.array(((addresses >> 32) % self.buckets).astype(np.int32)), pa.array(addresses)]
        yield pa.RecordBatch.from_arrays(columns, schema=_ADDRESSES)


@frozen
class _MarkRows:
    target: TableAddress
    ledgers: AnswerFolder

    def __call__(self, bucket: int, rows: Rows) -> Message:
        del bucket  # the addresses name their fragments
        return {"marked": shrink_fragments(self.target, rows["address"], self.ledgers), "rows": len(rows)}


def _addresses(target: Table, part: PlannedRows) -> NDArray[np.int64]:
    """The addresses of the rows of a part in the target."""
    rows = part.read()
    found = take_by_row_id(target, _row_ids(rows["target"]), [ROW_ADDRESS, "id"])
    if not found["id"].combine_chunks().equals(rows["id"]):
        # A mark on the wrong row would lose it.
        raise InternalError(f"rows of {target.path} are not those that the merge was planned with")
    return np.asarray(found[ROW_ADDRESS], dtype=np.int64)


def mark_replaced(target: Table, row_ids: NDArray[np.uint64], workers: Workers) -> dict[int, str | None]:
    """Fragments without rows that others replace, as `stage_replacement` takes them. Moves nothing."""
    if not len(row_ids):
        return {}
    addresses = take_by_row_id(target, row_ids, [ROW_ADDRESS])[ROW_ADDRESS]
    if len(addresses) != len(row_ids):
        raise InternalError(f"{len(row_ids) - len(addresses)} rows of {target.path} are gone")
    items = shrink_items(table_address(target), addresses, None)
    answers = workers.run("mark replaced rows", shrink_fragment, items)
    return {answer["fragment"]: answer["left"] for answer in answers}


# ---- sources of edges that go


@frozen(kw_only=True)
class SourceItem:
    """Edges whose sources one task reads."""

    number: int
    target: TableAddress
    part: PlannedRows
    folder: AnswerFolder


def write_sources(item: SourceItem) -> Message:
    """Write the distinct sources of the edges of a part."""
    sources = _sources(open_address(item.target), [item.part])
    return write_keys(item.folder, item.number, [pa.RecordBatch.from_arrays([sources], ["src"])])


def lost_sources(target: Table, plan: RowPlan, engine: WorkerSet, scratch: Scratch) -> Sequence[str]:
    """Sources of edges of the target that go or are replaced; several parts may name the same one."""
    losing = plan.losing
    if not any(part.is_in_file for part in losing):
        return list(map(str, _sources(target, losing).to_pylist()))
    folder = scratch.folder(engine.workers)
    address = table_address(target)
    items = [SourceItem(number=number, target=address, part=part, folder=folder) for number, part in enumerate(losing)]
    return key_files(folder, engine.workers.run("find sources", write_sources, items))


def _sources(target: Table, parts: Iterable[PlannedRows]) -> Array:
    chunks: list[Array] = []
    for part in parts:
        chunks += take_by_row_id(target, _row_ids(part.read()["target"]), ["src"])["src"].chunks
    found: Array = pa.chunked_array(chunks, pa.utf8()).combine_chunks().unique()
    return found


def _row_ids(column: Column) -> NDArray[np.uint64]:
    return np.asarray(column.drop_null()).astype(np.uint64)
