"""The task that turns a part into fragments, and where a row came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.core.arrow import Batch
from omnigraph.core.budget import work_steps
from omnigraph.core.ids import TableKey
from omnigraph.errors import OmniError
from omnigraph.errors.writes import LINE, ROW
from omnigraph.pipeline.load.parts import Part
from omnigraph.pipeline.load.plan import COPIED_TOGETHER, LoadPlan
from omnigraph.pipeline.load.reading import PartReader
from omnigraph.pipeline.load.shaping import RawRecords, shape_records
from omnigraph.pipeline.load.sources import FrameSource, frame_records, partition_name
from omnigraph.pipeline.violations import Place, ViolationCounts
from omnigraph.pipeline.workers import Message, advance
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


@dataclass(frozen=True, slots=True)
class StageItem:
    """One part with everything that its task needs."""

    part: Part
    plan: LoadPlan


def stage_part(item: StageItem) -> Message:
    """Read a part and write its rows as fragments.

    A part with types that have no place yet answers with `unplaced`, their names, and leaves nothing.
    """
    violations = ViolationCounts()
    reader = PartReader(item.part, item.plan, violations)
    stage = _Stage(item.plan, item.part.file.path, item.part.number, violations)
    with stage.removed_on_failure():
        for raw in work_steps(reader.records()):
            stage.put(raw)
        return stage.finish(item.part.number, reader.lines, reader.unit)


@dataclass(frozen=True, slots=True)
class FrameTask:
    """Writes the partitions of one frame as fragments."""

    source: FrameSource
    plan: LoadPlan

    def __call__(self, partition: int, batches: Iterable[Batch]) -> Iterator[Message]:
        """The answer for one partition."""
        name = partition_name(self.source, partition)
        stage = _Stage(self.plan, name, partition, ViolationCounts())
        lines = 0
        with stage.removed_on_failure():
            for raw in frame_records(self.source, self.plan, batches):
                lines += raw.count
                stage.put(raw)
            answer = stage.finish(partition, lines, ROW)
        yield answer


@dataclass(slots=True)
class _Pending:
    rows: int = 0
    waiting: list[Batch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    fragments: list[str] = field(default_factory=list)
    has_given_ids: bool = False


class _Stage:
    """Rows of one part on their way into fragments."""

    def __init__(self, plan: LoadPlan, source: str, part: int, violations: ViolationCounts) -> None:
        self._plan = plan
        self._source = source
        self._part = part
        self._violations = violations
        self._types: dict[TableKey, _Pending] = {}
        self._aliases: dict[str, set[tuple[str, str]]] = {}
        self._external = 0
        self._nulled: Counter[str] = Counter()
        #: Types that appear unannounced: they have no place yet. The part is read to its end, for their names.
        self._unplaced: set[TableKey] = set()
        self._ledger = Ledger(plan.ledgers, part)

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
        if raw.shape.key not in self._plan.targets:
            self._unplaced.add(raw.shape.key)
        if self._unplaced:
            return
        if self._plan.external.copies and blob_columns(raw.shape.definition):
            for piece in raw.pieces(COPIED_TOGETHER):
                self._put(piece)
        else:
            self._put(raw)

    def _put(self, raw: RawRecords) -> None:
        pending = self._types.setdefault(raw.shape.key, _Pending())
        shaped = shape_records(raw, self._plan, source=self._source, part=self._part, first_row=pending.rows)
        pending.rows += raw.count
        advance(raw.count)
        self._external += shaped.external_count
        check_cells(self._external)
        self._nulled.update(shaped.nulled)
        pending.has_given_ids |= bool(raw.shape.key_members) or raw.has_given_ids
        self._violations.merge(shaped.violations)
        if shaped.aliases:
            self._aliases.setdefault(raw.shape.key, set()).update(shaped.aliases)
        if self._violations:
            # The load will be refused: counting goes on, writing would be wasted.
            pending.waiting.clear()
            return
        pending.waiting += shaped.rows.to_batches()
        pending.waiting_bytes += shaped.rows.nbytes
        pending.waiting_rows += shaped.rows.num_rows
        total = sum(item.waiting_bytes for item in self._types.values())
        are_large = pending.waiting_bytes > pending.waiting_rows * _LARGE_ROW_BYTES
        limit = _LARGE_ROWS_BUFFER_BYTES if are_large else _BUFFER_BYTES
        if pending.waiting_rows >= _FRAGMENT_ROWS or total > limit:
            self._write(raw.shape.key, pending)

    def _write(self, key: TableKey, pending: _Pending) -> None:
        if pending.waiting and not self._violations:
            table = open_address(self._plan.targets[key])
            written = write_rows(table, pending.waiting)
            pending.fragments += written
            self._ledger.note(table, written)
        pending.waiting, pending.waiting_bytes, pending.waiting_rows = [], 0, 0

    def finish(self, part: int, lines: int, unit: str) -> Message:
        if self._unplaced:
            self._remove_fragments()
            return {"part": part, "unplaced": sorted(self._unplaced)}
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
                key: {"rows": pending.rows, "fragments": pending.fragments, "given_ids": pending.has_given_ids}
                for key, pending in self._types.items()
            },
            "violations": self._violations.to_message() if self._violations else None,
            "aliases": {key: sorted(pairs) for key, pairs in self._aliases.items()},
        }


def likely_types(item: StageItem) -> Message:
    """The types at the beginning of a part of the graph format; others may follow."""
    from omnigraph.pipeline.load.jsonl import types_of

    lines = PartReader(item.part, item.plan, ViolationCounts()).first_lines(_LOOK_BYTES)
    return {"types": sorted(types_of(lines, item.plan))}


# ---- Tracing rows back to their source lines


#: Larger inputs are reported without the line: looking for it would need too much memory.
_MAX_REMEMBERED_IDS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The first row of a fragment: so many rows of its type into a part, or into a partition of a frame."""

    part: Part | None = None
    name: str = ""
    row: int = 0


class Provenance:
    """Remembers where parts begin in their files, and the lines of parts that were looked at."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._first_lines: dict[int, int] = {}
        self._units: dict[int, str] = {}
        self._lines: dict[tuple[int, TableKey], list[int]] = {}
        self._ids: dict[TableKey, dict[str, Place]] = {}

    def set_first_line(self, part: int, lines_before: int, unit: str) -> None:
        """So many lines of the file come before a part, or whatever is counted there."""
        self._first_lines[part] = lines_before
        self._units[part] = unit

    def first_line(self, part: int) -> int:
        """The number of lines of the file before a part."""
        return self._first_lines.get(part, 0)

    def place(self, origin: Origin, key: TableKey, offset: int) -> Place:
        """The place of a row, counted from the first row of its fragment."""
        if origin.part is None:
            return Place(origin.name, origin.row + offset + 1, ROW)
        lines = self._lines_of(origin.part, key)
        position = origin.row + offset
        if position >= len(lines):
            return Place(origin.part.file.path)
        return self._placed(origin.part, lines[position])

    def _placed(self, part: Part, line: int) -> Place:
        before = self._first_lines.get(part.number, 0)
        return Place(part.file.path, before + line, self._units.get(part.number, LINE))

    def place_of_id(self, parts: Sequence[Part], key: TableKey, entity_id: str) -> Place:
        """The place of the last record with an id."""
        if key not in self._ids:
            self._ids[key] = self._read_ids(parts, key)
        return self._ids[key].get(entity_id, Place("input"))

    def _read_ids(self, parts: Sequence[Part], key: TableKey) -> dict[str, Place]:
        found: dict[str, Place] = {}
        try:
            for part in parts:
                row = 0
                for raw in PartReader(part, self._plan, ViolationCounts()).records():
                    if raw.shape.key != key:
                        continue
                    shaped = shape_records(raw, self._plan, source=part.file.path, part=part.number, first_row=row)
                    row += raw.count
                    ids = map(str, shaped.rows["id"].to_pylist())
                    found.update(
                        (name, self._placed(part, line)) for name, line in zip(ids, shaped.lines.tolist(), strict=True)
                    )
                if len(found) > _MAX_REMEMBERED_IDS:
                    return {}
        except OmniError:
            return {}
        return found

    def _lines_of(self, part: Part, key: TableKey) -> list[int]:
        known = self._lines.get((part.number, key))
        if known is None:
            known = []
            try:
                for raw in PartReader(part, self._plan, ViolationCounts()).records():
                    if raw.shape.key == key:
                        known += raw.lines.tolist()
            except OmniError:
                # The file changed since it was read: the report does without the line.
                known = []
            self._lines[part.number, key] = known
        return known
