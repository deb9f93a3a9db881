"""Patches: which rows the records of a patch are about, and their new values written beside or into these rows.

Rows keep their row ids. Where most rows of a fragment change, only the changed columns are written, as one more file of
the fragment; otherwise the rows that change are written again. Nothing else is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.arrow import Batch, Column, Rows, Schema, pa, pc
from omnigraph.errors import InternalError
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import BUCKET, Exchange, run_exchange
from omnigraph.pipeline.patch.files import PatchFile, brought_column, file_numbers, overlaid, places, read_patch
from omnigraph.pipeline.patch.matching import DECIDED, MatchedPatch
from omnigraph.pipeline.upsert import shrink_fragment, shrink_fragments, shrink_items
from omnigraph.pipeline.workers import LocalWorkers, Message, Silent, Workers, advance
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID
from omnigraph.storage.datasets.fragments import (
    KeptIds,
    Ledger,
    fragment_sizes,
    keep_ids,
    stage_replacement,
    stage_updates,
    update_fragment,
    update_text,
    write_rows,
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, scan_schema, table_address
from omnigraph.storage.datasets.row_changes import scan_by_row_id, take_by_row_id
from omnigraph.storage.datasets.staged import StagedWrite, stage_fragments
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: So few rows, or so small a part of their fragments, are written again as whole rows.
_FEW_ROWS = 8_192
_SMALL_PART = 8
#: New values of one fragment that are in memory at once; more of them are written as rows, piece by piece.
_FRAGMENT_BYTES = 512 * 1024 * 1024
#: Work of so little size is not handed out.
_LITTLE_ROWS = 500_000
_LITTLE_BYTES = 64 * 1024 * 1024
#: Rows that a task has in memory, beside the records of a file.
_BATCH_ROWS = 8_192
#: Rows whose fragments one task marks.
_MARKED_ROWS = 2_000_000
_SENT = pa.schema([(BUCKET, pa.int32()), *((item.name, item.type) for item in DECIDED)])
_REPLACED = pa.schema([(BUCKET, pa.int32()), ("address", pa.int64())])
_ADDRESS = "address"


@frozen(kw_only=True)
class Patched:
    """The changes of a patch in one table."""

    #: None when no value changes and no row comes.
    write: StagedWrite | None
    #: Properties of rows that were there before, some of whose values are new.
    changed: frozenset[str]
    #: Fragments of the table whose columns have new values.
    updated: tuple[int, ...] = ()
    #: How many new fragments hold rows that were there before; the others hold rows that come.
    rewritten: int = 0
    #: What tasks wrote, as texts that list the files.
    texts: tuple[str | None, ...] = ()
    #: The attempts of tasks that wrote all of this.
    ledgers: frozenset[str] = frozenset()


@frozen(kw_only=True)
class PatchWork:
    """The records that change one table."""

    table: Table
    files: tuple[PatchFile, ...]
    #: Properties that name rows, and never change.
    key_members: frozenset[str]
    matched: MatchedPatch
    #: The folder of the load, where tasks also note what they write.
    folder: AnswerFolder

    @property
    def properties(self) -> list[str]:
        """The properties that any record brings."""
        return sorted({name for file in self.files for name in file.properties} - self.key_members)

    @property
    def is_little(self) -> bool:
        """Whether handing it out would take longer than doing it."""
        size = sum(file.size_bytes for file in self.files)
        return self.matched.total <= _LITTLE_ROWS and size <= _LITTLE_BYTES

    @property
    def takes_columns(self) -> bool:
        """Whether columns are written instead of rows."""
        blobs = self.table.blob_columns
        if not self.properties or not self.matched.known or not blobs.isdisjoint(self.properties):
            return False
        row_bytes = sum(file.size_bytes for file in self.files) // max(1, sum(file.rows for file in self.files))
        if max(self.matched.by_fragment.values()) * row_bytes > _FRAGMENT_BYTES:
            return False
        # Rows with blobs are expensive to write again.
        return bool(blobs) or not is_small_part(self.table, self.matched.known, self.matched.by_fragment)


def is_small_part(table: Table, rows: int, fragments: Iterable[int]) -> bool:
    """Whether so many rows of some fragments are written again faster than columns of all rows of these fragments."""
    sizes = fragment_sizes(table)
    return rows <= _FEW_ROWS or rows * _SMALL_PART <= sum(sizes[number] for number in fragments)


def write_patch_rows(work: PatchWork, workers: Workers) -> Patched:
    """Write what a patch changes; nothing is visible before the staged write is committed.

    When it fails, the ledgers in the folder name what was written.
    """
    doing = LocalWorkers(Silent()) if work.is_little else workers
    takes_columns = work.takes_columns
    apply = _ApplyFile(
        folder=work.folder,
        files=work.files,
        target=table_address(work.table),
        properties=tuple(work.properties),
        takes_columns=takes_columns,
    )
    answers = _by_file(work, apply, doing)
    inserted = [text for answer in answers for text in answer["inserted"]]
    ledgers = [answer["ledger"] for answer in answers]
    changed = frozenset(work.properties) if work.matched.known else frozenset[str]()
    if takes_columns:
        updates = _update_columns(work, apply, [answer["values"] for answer in answers if answer["values"]], doing)
        texts = [str(answer["update"]) for answer in updates]
        return Patched(
            write=stage_updates(work.table, texts, inserted),
            changed=changed,
            updated=tuple(sorted(work.matched.by_fragment)),
            texts=(*inserted, *map(update_text, texts)),
            ledgers=frozenset([*ledgers, *(answer["ledger"] for answer in updates)]),
        )
    rewritten = [text for answer in answers for text in answer["rewritten"]]
    marks = _mark(work, doing) if rewritten else []
    shrunk = {int(mark["fragment"]): mark["left"] for mark in marks}
    write = None
    if shrunk:
        write = stage_replacement(work.table, [*rewritten, *inserted], shrunk)
    elif inserted:
        write = stage_fragments(work.table, inserted)
    return Patched(
        write=write,
        changed=changed,
        rewritten=len(rewritten),
        texts=(*inserted, *rewritten, *shrunk.values()),
        ledgers=frozenset([*ledgers, *(mark["ledger"] for mark in marks)]),
    )


# ---- the records of one file


def _by_file(work: PatchWork, apply: _ApplyFile, workers: Workers) -> list[Message]:
    """The answers about the files of records, each with the decisions about its records."""
    decided = work.matched.decided
    if not isinstance(decided, Rows):
        exchange = Exchange(
            stage="write new values",
            items=decided,
            read=_SendDecisions(work.folder),
            schema=_SENT,
            buckets=len(work.files),
            handle=apply,
        )
        return run_exchange(exchange, workers, work.folder)
    numbers = file_numbers(np.asarray(decided[_ADDRESS]))
    items = [(int(number), decided.filter(pa.array(numbers == number))) for number in np.unique(numbers)]
    return workers.run("write new values", apply.to_file, items)


@frozen
class _SendDecisions:
    """Decisions on their way to the file of their record."""

    folder: AnswerFolder

    def __call__(self, name: str) -> Iterator[Batch]:
        for batch in read_answer(self.folder, name):
            numbers = pa.array(file_numbers(np.asarray(batch.column(_ADDRESS))))
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=_SENT)


@frozen(kw_only=True)
class _ApplyFile:
    """Writes the records of a file: new rows, rows again, or new values on their way to columns. Travels to tasks."""

    folder: AnswerFolder
    files: tuple[PatchFile, ...]
    target: TableAddress
    properties: tuple[str, ...]
    takes_columns: bool

    def to_file(self, item: tuple[int, Rows]) -> Message:
        """As an exchange calls it, for decisions that are here already."""
        number, rows = item
        return self(number, rows) | {BUCKET: number}

    def __call__(self, number: int, rows: Rows) -> Message:
        table = open_address(self.target)
        ledger = Ledger(self.folder, number)
        records = read_patch(self.folder, self.files[number])
        at = places(np.asarray(rows[_ADDRESS]))
        is_known = np.asarray(rows[ROW_ID].is_valid())
        inserted: list[str] = []
        if not is_known.all():
            coming = records.take(pa.array(np.sort(at[~is_known])))
            inserted = write_rows(table, _whole_rows(coming, scan_schema(table)))
            ledger.note(table, inserted)
        answer: Message = {"inserted": inserted, "rewritten": [], "values": None, "rows": len(at)}
        if self.properties and is_known.any():
            known = rows.filter(pa.array(is_known)).sort_by(ROW_ID)
            values = records.take(pa.array(places(np.asarray(known[_ADDRESS]))))
            if self.takes_columns:
                answer["values"] = self._send_values(number, table, known, values)
            else:
                answer["rewritten"] = self._rewrite(table, known, values)
                ledger.note(table, answer["rewritten"])
        return answer | {"ledger": ledger.name}

    def _rewrite(self, table: Table, known: Rows, values: Rows) -> list[str]:
        """Whole rows with their new values as fragments that take over their ids."""
        schema = scan_schema(table)
        row_ids = np.asarray(known[ROW_ID]).astype(np.uint64)
        kept = KeptIds(row_ids, np.asarray(known[CREATED_AT]).astype(np.uint64))

        def batches() -> Iterator[Batch]:
            done = 0
            for begin in range(0, len(row_ids), _BATCH_ROWS):
                for old in scan_by_row_id(table, row_ids[begin : begin + _BATCH_ROWS], schema.names):
                    columns = overlaid(old, values.slice(done, old.num_rows), self.properties)
                    done += old.num_rows
                    advance(old.num_rows)
                    arrays = [columns[item.name].cast(item.type) for item in schema]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            if done != len(row_ids):
                raise InternalError(f"{len(row_ids) - done} rows of {table.path} are gone")

        return keep_ids(table, write_rows(table, batches()), kept)

    def _send_values(self, number: int, table: Table, known: Rows, values: Rows) -> str:
        """A file of new values with the rows that they belong to."""
        schema = value_schema(table, self.properties)
        columns = {"address": known["old_address"], ROW_ID: known[ROW_ID]}
        for name in self.properties:
            if name in values.column_names:
                columns |= {name: values[name], brought_column(name): values[brought_column(name)]}
        nothing = {item.name: pa.nulls(len(known), item.type) for item in schema if item.name not in columns}
        for name in self.properties:
            if (brought := brought_column(name)) in nothing:
                nothing[brought] = pa.repeat(pa.scalar(False), len(known))
        arrays = [(columns | nothing)[item.name].cast(item.type) for item in schema]
        rows = pa.Table.from_arrays(arrays, schema=schema)
        name = attempt_name("values", number)
        write_answer(self.folder, name, schema, rows.to_batches(max_chunksize=_BATCH_ROWS))
        return name


def _whole_rows(records: Rows, schema: Schema) -> list[Batch]:
    """Records that are rows of their own; a property that they leave out is null."""
    columns = [
        records[item.name].cast(item.type) if item.name in records.column_names else pa.nulls(len(records), item.type)
        for item in schema
    ]
    whole: list[Batch] = pa.Table.from_arrays(columns, schema=schema).to_batches(max_chunksize=_BATCH_ROWS)
    return whole


# ---- new values of columns


def value_schema(table: Table, properties: Iterable[str]) -> Schema:
    """The columns of files of new values: a place, and a value per property with whether it was brought."""
    fields = [pa.field("address", pa.int64()), pa.field(ROW_ID, pa.int64())]
    for name in properties:
        fields += [pa.field(name, table.schema.field(name).type), pa.field(brought_column(name), pa.bool_())]
    found: Schema = pa.schema(fields)
    return found


def _update_columns(work: PatchWork, apply: _ApplyFile, names: Sequence[str], workers: Workers) -> list[Message]:
    """The answers about fragments whose columns got new values."""
    fragments = tuple(sorted(work.matched.by_fragment))
    schema = value_schema(work.table, apply.properties)
    exchange = Exchange(
        stage="write columns",
        items=names,
        read=_SendValues(apply.folder, fragments),
        schema=pa.schema([pa.field(BUCKET, pa.int32()), *schema]),
        buckets=len(fragments),
        handle=_UpdateFragment(
            folder=apply.folder, target=apply.target, fragments=fragments, properties=apply.properties
        ),
    )
    return run_exchange(exchange, workers, apply.folder)


@frozen
class _SendValues:
    """New values on their way to the fragment of their row."""

    folder: AnswerFolder
    fragments: tuple[int, ...]

    def __call__(self, name: str) -> Iterator[Batch]:
        for batch in read_answer(self.folder, name):
            numbers = np.asarray(batch.column("address")) >> 32
            buckets = np.searchsorted(self.fragments, numbers).astype(np.int32)
            arrays = [pa.array(buckets), *batch.columns]
            yield pa.RecordBatch.from_arrays(arrays, names=[BUCKET, *batch.schema.names])


@frozen(kw_only=True)
class _UpdateFragment:
    """Writes the new values of one fragment as a file beside its others. Travels to tasks."""

    folder: AnswerFolder
    target: TableAddress
    fragments: tuple[int, ...]
    properties: tuple[str, ...]

    def __call__(self, bucket: int, rows: Rows) -> Message:
        table = open_address(self.target)
        ordered = rows.sort_by(ROW_ID)
        row_ids = np.asarray(ordered[ROW_ID]).astype(np.uint64)
        names = [name for name in self.properties if pc.any(ordered[brought_column(name)]).as_py()]
        # Of values that some records leave out the old ones stay.
        kept = [name for name in names if not pc.all(ordered[brought_column(name)]).as_py()]
        old = take_by_row_id(table, row_ids, kept) if kept else None
        if old is not None and old.num_rows != len(row_ids):
            raise InternalError(f"{len(row_ids) - old.num_rows} rows of {table.path} are gone")
        values: dict[str, Column] = {name: ordered[name] for name in names}
        if old is not None:
            values |= overlaid(old, ordered, kept)
        fields = [table.schema.field(name) for name in names]
        columns = [*(values[item.name].cast(item.type) for item in fields), pa.array(row_ids)]
        new = pa.Table.from_arrays(columns, schema=pa.schema([*fields, pa.field(ROW_ID, pa.uint64())]))
        update = update_fragment(table, self.fragments[bucket], new)
        ledger = Ledger(self.folder, bucket)
        ledger.note(table, [update_text(update)])
        return {"update": update, "rows": len(row_ids), "ledger": ledger.name}


# ---- rows that were written again


def _mark(work: PatchWork, workers: Workers) -> list[Message]:
    """The fragments of rows that were written again, without these rows."""
    target, decided = table_address(work.table), work.matched.decided
    if isinstance(decided, Rows):
        addresses = np.asarray(decided["old_address"].drop_null())
        if isinstance(workers, LocalWorkers):
            return shrink_fragments(target, addresses, work.folder)
        items = shrink_items(target, addresses, work.folder)
        return workers.run("mark replaced rows", shrink_fragment, items)
    wanted = max(workers.parallelism, work.matched.known // _MARKED_ROWS + 1)
    buckets = min(wanted, len(work.matched.by_fragment))
    exchange = Exchange(
        stage="mark replaced rows",
        items=decided,
        read=_SendReplaced(work.folder, buckets),
        schema=_REPLACED,
        buckets=buckets,
        handle=_MarkReplaced(target, work.folder),
    )
    return [mark for answer in run_exchange(exchange, workers, work.folder) for mark in answer["marked"]]


@frozen
class _SendReplaced:
    folder: AnswerFolder
    buckets: int

    def __call__(self, name: str) -> Iterator[Batch]:
        for batch in read_answer(self.folder, name):
            addresses = batch.column("old_address").drop_null()
            numbers: NDArray[np.int64] = np.asarray(addresses) >> 32
            columns = [pa.array((numbers % self.buckets).astype(np.int32)), addresses]
            yield pa.RecordBatch.from_arrays(columns, schema=_REPLACED)


@frozen
class _MarkReplaced:
    target: TableAddress
    folder: AnswerFolder

    def __call__(self, bucket: int, rows: Rows) -> Message:
        del bucket  # the addresses name their fragments
        return {"marked": shrink_fragments(self.target, rows["address"], self.folder), "rows": len(rows)}
