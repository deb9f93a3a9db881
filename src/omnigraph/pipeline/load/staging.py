"""The task that turns a part of the input into fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from omnigraph.core.arrow import Array, Batch, pa
from omnigraph.core.budget import work_steps
from omnigraph.core.ids import TableKey
from omnigraph.errors.writes import ROW
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import write_keys
from omnigraph.pipeline.patch.files import PatchFile, write_patch
from omnigraph.pipeline.patch.records import shape_patch
from omnigraph.pipeline.rejects import RejectNotes
from omnigraph.pipeline.shape.columns import decoded
from omnigraph.pipeline.shape.embedding import EMBEDDED_TOGETHER
from omnigraph.pipeline.shape.plan import COPIED_TOGETHER, LoadPlan
from omnigraph.pipeline.shape.shaping import RawRecords, ids_of, shape_records
from omnigraph.pipeline.sources.parts import Part
from omnigraph.pipeline.sources.planning import FrameSource, frame_records, partition_name
from omnigraph.pipeline.sources.provenance import NumberNotes
from omnigraph.pipeline.sources.reading import PartReader
from omnigraph.pipeline.violations import ViolationCounts
from omnigraph.pipeline.workers import Message, advance
from omnigraph.storage.answers import attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.fragments import Ledger, remove_written, write_rows
from omnigraph.storage.datasets.partitions import open_address
from omnigraph.writes.columns import blob_columns
from omnigraph.writes.pending import check_cells

# ---- The staging task of one input part
#
# Nothing that it writes is visible: fragments become part of a table only when the driver commits them. A task that
# runs twice writes twice, and notes what it wrote in two ledgers: the driver removes the copy whose answer does not
# count.


#: Shaped rows that wait in memory before they are written.
_BUFFER_BYTES = 192 * 1024 * 1024
#: The same when single rows are large, so that few of them wait.
_LARGE_ROWS_BUFFER_BYTES = 32 * 1024 * 1024
_LARGE_ROW_BYTES = 1024 * 1024
#: Rows of a fragment.
_FRAGMENT_ROWS = 1_048_576
#: Bytes at the beginning of a part that are read before all others, to see which types it has.
_LOOK_BYTES = 256 * 1024


@frozen
class StageItem:
    """One part with everything that its task needs."""

    part: Part
    plan: LoadPlan


def stage_part(item: StageItem) -> Message:
    """Read a part and write its rows as fragments.

    A part with types that have no place yet answers with `unplaced`, their names, and leaves nothing.
    """
    stage = _Stage(item.plan, item.part.file.path, item.part.number)
    reader = PartReader(item.part, item.plan, stage.violations)
    with stage.removed_on_failure():
        for raw in work_steps(reader.records()):
            stage.put(raw)
        answer = stage.finish(item.part.number, reader.lines, reader.unit)
    mapped = item.part.mapped
    # A record that cannot be read is of the type of its file, or of any.
    unread = ["" if mapped is None else mapped.type_key] if answer.get("unread") else []
    return answer | {"rest": reader.rest, "unnamed": [*answer.get("unnamed", ()), *unread]}


@frozen
class FrameTask:
    """Writes the partitions of one frame as fragments."""

    source: FrameSource
    plan: LoadPlan

    def __call__(self, partition: int, batches: Iterable[Batch]) -> Iterator[Message]:
        """The answer for one partition."""
        name = partition_name(self.source, partition)
        stage = _Stage(self.plan, name, partition)
        lines = 0
        kept = ""
        with stage.removed_on_failure():
            if self.plan.keeps_bad:
                # They cannot be read again.
                kept, batches = _kept_rows(self.source, self.plan, partition, batches)
            for raw in frame_records(self.source, self.plan, batches):
                lines = int(raw.lines[-1]) if raw.count else lines
                stage.put(raw)
            answer = stage.finish(partition, lines, ROW)
        yield answer | {"kept": kept}


def _kept_rows(
    source: FrameSource, plan: LoadPlan, partition: int, batches: Iterable[Batch]
) -> tuple[str, Iterable[Batch]]:
    """The name of a file with all rows of a partition, and the rows as they are in it."""
    assert plan.ledgers is not None, "a load has a folder"
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        return "", ()
    name = attempt_name("kept", partition)
    # A column of codes may have other texts in every batch.
    plain = (_plain(batch, source.paths) for batch in chain([first], waiting))
    head = next(plain)
    write_answer(plan.ledgers, name, head.schema, chain([head], plain))
    return name, read_answer(plan.ledgers, name)


def _plain(batch: Batch, names: Sequence[str] | None) -> Batch:
    """The same rows without codes, under the names that a mapping has for the columns."""
    columns = [decoded(column) for column in batch.columns]
    found: Batch = pa.RecordBatch.from_arrays(columns, names=list(names or batch.schema.names))
    return found


@dataclass(slots=True)
class _Pending:
    numbers: NumberNotes
    rows: int = 0
    bad: int = 0
    waiting: list[Batch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    fragments: list[str] = field(default_factory=list)
    patches: list[PatchFile] = field(default_factory=list)
    has_given_ids: bool = False


class _Stage:
    """Rows of one part on their way into fragments."""

    def __init__(self, plan: LoadPlan, source: str, part: int) -> None:
        self._plan = plan
        self._source = source
        self._part = part
        keeps = plan.keeps_bad and plan.ledgers is not None
        self._rejects = RejectNotes(plan.ledgers, part) if keeps and plan.ledgers is not None else None
        #: What is wrong with the records.
        self.violations = ViolationCounts(sink=None if self._rejects is None else self._rejects.add)
        self._types: dict[TableKey, _Pending] = {}
        self._aliases: dict[str, set[tuple[str, str]]] = {}
        self._external = 0
        self._nulled: Counter[str] = Counter()
        #: Types that appear unannounced: they have no place yet. The part is read to its end, for their names.
        self._unplaced: set[TableKey] = set()
        self._bad_ids = _BadIds(plan, part)
        #: Records whose type is known, and that are bad before their values are looked at.
        self._refused: Counter[TableKey] = Counter()
        #: Records whose values are bad; what the reader counts beyond them cannot be read.
        self._known_bad = 0
        self._ledger = Ledger(plan.ledgers, part)
        self._embedder = None if plan.embedding is None else plan.embedding.begin()

    @contextmanager
    def removed_on_failure(self) -> Iterator[None]:
        """Remove the fragments of a part that cannot be finished."""
        try:
            yield
        except BaseException:
            # Also when the task is cancelled: nothing else knows their names.
            self._remove_fragments()
            raise

    def _remove_fragments(self) -> None:
        for key, pending in self._types.items():
            if pending.fragments:
                remove_written(open_address(self._plan.targets[key]), pending.fragments)

    def put(self, raw: RawRecords) -> None:
        """Take records in."""
        if raw.is_refused:
            self._refused[raw.shape.key] += raw.count
            if raw.shape.ends is None:
                self._bad_ids.add(raw.shape.key, ids_of(raw, self._plan, self._source), raw.count)
            return
        if raw.shape.key not in self._plan.targets:
            self._unplaced.add(raw.shape.key)
        if self._unplaced:
            return
        if self._plan.external.copies and blob_columns(raw.shape.definition):
            for piece in raw.pieces(COPIED_TOGETHER):
                self._put(piece)
        elif raw.shape.vectors:
            for piece in work_steps(raw.pieces(EMBEDDED_TOGETHER)):
                self._put(piece)
        else:
            self._put(raw)

    def _put(self, raw: RawRecords) -> None:
        pending = self._types.setdefault(raw.shape.key, _Pending(NumberNotes(self._plan.ledgers, self._part)))
        shape = shape_patch if self._plan.is_patch else shape_records
        sink = self.violations.sink
        shaped = shape(
            raw,
            self._plan,
            source=self._source,
            part=self._part,
            first_row=pending.rows,
            sink=sink,
            embedder=self._embedder,
        )
        pending.rows += raw.count
        advance(raw.count)
        self._external += shaped.external_count
        check_cells(self._external)
        self._nulled.update(shaped.nulled)
        pending.has_given_ids |= bool(raw.shape.key_members) or raw.has_given_ids
        self.violations.merge(shaped.violations)
        self._known_bad += shaped.violations.records
        bad = int(np.count_nonzero(shaped.bad))
        pending.bad += bad
        if shaped.aliases:
            self._aliases.setdefault(raw.shape.key, set()).update(shaped.aliases)
        if raw.shape.ends is None:
            self._bad_ids.add(raw.shape.key, shaped.bad_ids, bad)
        pending.numbers.add(shaped.lines)
        pending.waiting += shaped.rows.to_batches()
        pending.waiting_bytes += shaped.rows.nbytes
        pending.waiting_rows += shaped.rows.num_rows
        total = sum(item.waiting_bytes for item in self._types.values())
        are_large = pending.waiting_bytes > pending.waiting_rows * _LARGE_ROW_BYTES
        limit = _LARGE_ROWS_BUFFER_BYTES if are_large else _BUFFER_BYTES
        if pending.waiting_rows >= _FRAGMENT_ROWS or total > limit:
            self._write(raw.shape.key, pending)

    def _write(self, key: TableKey, pending: _Pending) -> None:
        if pending.waiting_rows and self._plan.is_patch:
            assert self._plan.ledgers is not None, "a load has a folder"
            pending.patches.append(write_patch(self._plan.ledgers, self._part, pending.waiting))
        elif pending.waiting_rows:
            table = open_address(self._plan.targets[key])
            written = write_rows(table, pending.waiting)
            pending.fragments += written
            self._ledger.note(table, written)
        pending.waiting, pending.waiting_bytes, pending.waiting_rows = [], 0, 0

    def finish(self, part: int, lines: int, unit: str) -> Message:
        if self._unplaced:
            self._remove_fragments()
            return {"part": part, "unplaced": sorted(self._unplaced), "embedding": self._embedding()}
        for key, pending in self._types.items():
            self._write(key, pending)
        return {
            "part": part,
            "lines": lines,
            "unit": unit,
            "rows": sum(pending.rows for pending in self._types.values()),
            "external": self._external,
            "nulled": dict(self._nulled),
            "ledger": self._ledger.name,
            "types": {
                key: {
                    "rows": pending.rows,
                    "bad": pending.bad,
                    "fragments": pending.fragments,
                    "patches": [file.to_message() for file in pending.patches],
                    "given_ids": pending.has_given_ids,
                    "numbers": pending.numbers.message(),
                }
                for key, pending in self._types.items()
            },
            "bad_ids": self._bad_ids.message(),
            "unnamed": [str(key) for key, count in self._bad_ids.unnamed.items() if count > 0],
            "unread": self.violations.records > self._known_bad + self._refused.total(),
            "refused": dict(self._refused),
            "violations": self.violations.to_message() if self.violations else None,
            "rejects": [] if self._rejects is None else self._rejects.files(),
            "aliases": {key: sorted(pairs) for key, pairs in self._aliases.items()},
            "embedding": self._embedding(),
        }

    def _embedding(self) -> Message | None:
        return None if self._embedder is None else self._embedder.message()


#: Ids of bad records that a task holds before they go into a file.
_HELD_IDS = 500_000


class _BadIds:
    """Keeps the ids of bad records of nodes: an edge that names one of them is not an edge without an end."""

    def __init__(self, plan: LoadPlan, part: int) -> None:
        self._folder = plan.ledgers
        self._part = part
        self._held: dict[TableKey, list[Array]] = {}
        self._files: dict[TableKey, list[Message]] = {}
        #: Bad records whose ids cannot be read: an edge without an end may name one of them.
        self.unnamed: Counter[TableKey] = Counter()

    def add(self, key: TableKey, ids: Array, records: int) -> None:
        """Keep the ids of some bad records."""
        self.unnamed[key] += records - len(ids)
        if not len(ids):
            return
        held = self._held.setdefault(key, [])
        held.append(ids)
        if sum(map(len, held)) >= _HELD_IDS:
            self._write(key)

    def _write(self, key: TableKey) -> None:
        ids = pa.concat_arrays(self._held.pop(key)).unique()
        if self._folder is not None:
            batch = pa.RecordBatch.from_arrays([ids], ["key"])
            self._files.setdefault(key, []).append(write_keys(self._folder, self._part, [batch]))

    def message(self) -> Message:
        """The files with the ids, by type."""
        for key in list(self._held):
            self._write(key)
        return {str(key): files for key, files in self._files.items()}


def likely_types(item: StageItem) -> Message:
    """The types at the beginning of a part of the graph format; others may follow."""
    from omnigraph.pipeline.sources.jsonl import types_of

    lines = PartReader(item.part, item.plan, ViolationCounts()).first_lines(_LOOK_BYTES)
    return {"types": sorted(types_of(lines, item.plan))}
