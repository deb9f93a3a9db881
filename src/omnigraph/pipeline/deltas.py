"""Differences of two states, few in memory and many in files, found by tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.compare import (
    DELTA,
    OPERATIONS,
    SIDE,
    RowShape,
    delta_of,
    find_parts,
    listed_parts,
    operation_codes,
    operation_counts,
    scan_side,
)
from omnigraph.pipeline.exchange import BUCKET, Exchange, Scratch, buckets_of, run_exchange
from omnigraph.pipeline.worker_set import WorkerChoice, WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.row_changes import (
    RowPart,
    RowSet,
    all_rows,
    differing_rows,
    no_rows,
    sample_rows,
    scan_row_set,
)
from omnigraph.storage.datasets.tables import Table

# ---- Deltas in memory and in files
#
# Both are read in the same way: how many there are by what happened to them, any stretch of them, and only some of
# the operations. What is in files is streamed; memory does not grow with the number of rows.


#: Rows of a batch; all but the last one of a file have exactly so many.
BATCH_ROWS = 65_536


class HeldDelta:
    """Rows as `compare.DELTA` in memory, ordered by id."""

    #: Whether the rows are in files, which go with the object.
    is_in_files = False

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        #: The number of rows of each operation, by its code.
        self.counts = operation_counts(rows)

    @property
    def held_bytes(self) -> int:
        """The memory that the rows take."""
        return int(self._rows.nbytes)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[Rows]:
        """The rows from one place in the order to another, as tables of at most `BATCH_ROWS`."""
        last = len(self) if end is None else min(end, len(self))
        for first in range(begin, last, BATCH_ROWS):
            yield self._rows.slice(first, min(BATCH_ROWS, last - first))

    def only(self, codes: Collection[int]) -> HeldDelta:
        """The rows of some operations."""
        return HeldDelta(_with_codes(self._rows, codes))

    def shared(self) -> HeldDelta:
        """The same rows for several users: `close` removes nothing, the files are removed with the last reference."""
        return self

    def place_behind(self, entity_id: str) -> int:
        """The place of the first row behind an id."""
        return _count_up_to(self._rows, entity_id)

    def close(self) -> None:
        """Remove files of the rows, after which nothing can be read any more; there are none."""


@frozen(kw_only=True)
class DeltaPart:
    """A file with some of the rows, ordered by id; parts follow each other in that order."""

    name: str
    #: Parts of one bucket hold what several deltas say about the same ids.
    bucket: int
    #: Rows of each operation.
    counts: tuple[int, ...]
    first_id: str


@frozen(kw_only=True)
class FiledDelta:
    """Rows in files, with the interface of `HeldDelta`. They are streamed; memory does not grow with their number."""

    is_in_files = True
    held_bytes = 0

    folder: AnswerFolder
    #: Keeps the folder.
    scratch: Scratch
    parts: Sequence[DeltaPart]
    codes: frozenset[int] = field(default=frozenset(range(OPERATIONS)))
    is_shared: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of rows of each operation, by its code."""
        return tuple(
            sum(part.counts[code] for part in self.parts) if code in self.codes else 0 for code in range(OPERATIONS)
        )

    def __len__(self) -> int:
        return sum(self.counts)

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[Rows]:
        """The rows from one place in the order to another, as tables of at most `BATCH_ROWS`."""
        last = len(self) if end is None else min(end, len(self))
        for part in self.parts:
            count = self._count(part)
            if begin < count and last > 0:
                yield from self._slice(part, begin, min(last, count))
            begin, last = max(0, begin - count), last - count

    def only(self, codes: Collection[int]) -> FiledDelta:
        """The rows of some operations."""
        return replace(self, codes=self.codes.intersection(codes))

    def shared(self) -> FiledDelta:
        """The same rows for several users: the files are removed with the last reference."""
        return replace(self, is_shared=True)

    def place_behind(self, entity_id: str) -> int:
        """The place of the first row behind an id; reads one part."""
        before = [part for part in self.parts if part.first_id <= entity_id]
        if not before:
            return 0
        *whole, part = before
        place = sum(map(self._count, whole))
        return place + sum(_count_up_to(rows, entity_id) for rows in self._slice(part, 0, self._count(part)))

    def close(self) -> None:
        """Remove the files, unless others use them."""
        if not self.is_shared:
            self.scratch.close()

    def _count(self, part: DeltaPart) -> int:
        return sum(part.counts[code] for code in self.codes)

    def _slice(self, part: DeltaPart, begin: int, end: int) -> Iterator[Rows]:
        """Rows of one part, counted without those that are left out."""
        place, number = 0, 0
        if len(self.codes) == OPERATIONS:
            number = begin // BATCH_ROWS
            place = number * BATCH_ROWS
        if place >= end:
            return
        for batch in self._read(part, number):
            rows = _with_codes(pa.Table.from_batches([batch], DELTA), self.codes)
            first, last = max(begin - place, 0), min(end - place, rows.num_rows)
            if first < last:
                yield rows.slice(first, last - first)
            place += rows.num_rows
            if place >= end:
                return

    def _read(self, part: DeltaPart, number: int) -> Iterator[Batch]:
        if self.scratch.is_closed:
            raise BadRequestError("these differences were closed: compare again")
        return read_answer(self.folder, part.name, number)


Delta: TypeAlias = HeldDelta | FiledDelta


def _with_codes(rows: Rows, codes: Collection[int]) -> Rows:
    if len(codes) == OPERATIONS:
        return rows
    return rows.filter(pa.array(np.isin(operation_codes(rows), list(codes))))


def _count_up_to(rows: Rows, entity_id: str) -> int:
    behind = pc.greater(rows["id"], pa.scalar(entity_id, pa.utf8()))
    return int(rows.num_rows - np.count_nonzero(np.asarray(behind)))


# ---- Deltas computed by tasks
#
# Buckets are ranges of ids, the same for all pairs of states that are compared together: the files of a delta follow
# each other in the order of ids, and what several states say about an id lies in files of one bucket.


#: Rows of both states that one task matches.
_BUCKET_ROWS = 500_000
#: Ids that are looked at for each bucket: so many make buckets of about the same size.
_SAMPLED_PER_BUCKET = 128
_OLD, _NEW = range(2)
#: Rows of a state on their way to their bucket.
_SENT = pa.schema(
    [(BUCKET, pa.int32()), ("pair", pa.int32()), ("side", pa.int32())]
    + [(field.name, pa.binary() if field.name == "digest" else field.type) for field in SIDE]
)


@frozen(kw_only=True)
class Pair:
    """Two states of a table that are compared; None is a table that does not exist."""

    old: Table | None
    new: Table | None
    #: What the two states are compared by, in the same order.
    shapes: tuple[RowShape, RowShape]
    #: Whether a schema change may have given rows other values without writing them as rows.
    is_reshaped: bool = False
    #: Whether rows count that are equal in both states and have other row ids: they were removed and written again.
    with_moved: bool = False


@frozen
class _Side:
    """Rows of one state of a pair that one task reads."""

    pair: int
    side: int
    part: RowPart


def filed_deltas(
    pairs: Sequence[Pair], named: Sequence[tuple[RowSet, RowSet] | None], engine: WorkerChoice, scratch: Scratch
) -> list[Delta]:
    """The differences of each pair. All of them are in files, in buckets of the same ids, or all in memory.

    `named` are the candidates of the pairs, as far as they could be named. Others are looked for by tasks; when they
    turn out to be few, the deltas are in memory.
    """
    rows = sum(
        sum(some.row_count for some in sets or (pair.old, pair.new) if some is not None)
        for pair, sets in zip(pairs, named, strict=True)
    )
    chosen = engine.for_rows(rows)
    with scratch.inner() as working:
        sides = list(_sides(pairs, named, chosen, working))
        sides, counts, splitters = _sampled(sides, chosen)
        totals = [
            sum(count for side, count in zip(sides, counts, strict=True) if side.pair == number)
            for number in range(len(pairs))
        ]
        if not any(map(engine.is_large, totals)):
            return [_held(pair, *_of_pair(sides, number)) for number, pair in enumerate(pairs)]
        folder = scratch.folder(chosen.workers)
        exchange = Exchange(
            stage="compare rows",
            items=sides,
            read=_ReadSide(tuple(pair.shapes for pair in pairs), splitters),
            schema=_SENT,
            buckets=len(splitters) + 1,
            handle=_Match(folder, tuple(pair.with_moved for pair in pairs)),
        )
        answers = run_exchange(exchange, chosen.workers, working.folder(chosen.workers))
    parts: list[list[DeltaPart]] = [[] for _ in pairs]
    for answer in answers:
        for number, name, found, first_id in answer["parts"]:
            part = DeltaPart(name=name, bucket=answer[BUCKET], counts=tuple(found), first_id=first_id)
            parts[number].append(part)
    return [FiledDelta(folder=folder, scratch=scratch, parts=tuple(some)) for some in parts]


def _sides(
    pairs: Sequence[Pair], named: Sequence[tuple[RowSet, RowSet] | None], engine: WorkerSet, scratch: Scratch
) -> Iterator[_Side]:
    folder = scratch.folder(engine.workers)
    for number, (pair, sets) in enumerate(zip(pairs, named, strict=True)):
        if sets is None:
            assert pair.old is not None, "a state alone names its rows"
            assert pair.new is not None, "a state alone names its rows"
            both = find_parts(pair.old, pair.new, engine, scratch)
        else:
            both = listed_parts(sets[0], folder), listed_parts(sets[1], folder)
        for side, parts in enumerate(both):
            yield from (_Side(number, side, part) for part in parts)


# ---- ranges of ids


def _sampled(sides: Sequence[_Side], engine: WorkerSet) -> tuple[list[_Side], list[int], Array]:
    """Those of the sides that have rows, how many these are, and the ids at which buckets begin."""
    most = max(1, sum(side.part.row_count for side in sides))
    wanted = _SAMPLED_PER_BUCKET * _buckets(most, engine)
    items = [(side.part, wanted / most) for side in sides]
    answers = engine.workers.run("look at ids", sample_ids, items)
    found = [(side, answer) for side, answer in zip(sides, answers, strict=True) if answer["count"]]
    ids = pa.array([text for _, answer in found for text in answer["ids"]], pa.utf8())
    counts = [int(answer["count"]) for _, answer in found]
    ordered = ids.take(pc.sort_indices(ids))
    number = _buckets(sum(counts), engine)
    places = sorted({len(ordered) * place // number for place in range(1, number)} - {0})
    splitters = ordered.take(pa.array(places, pa.int64())).unique()
    return [side for side, _ in found], counts, splitters


def _buckets(rows: int, engine: WorkerSet) -> int:
    return max(engine.workers.parallelism, rows // _BUCKET_ROWS + 1)


def sample_ids(item: tuple[RowPart, float]) -> Message:
    """The number of rows a part has, and the ids of a share of them."""
    part, share = item
    rows = part.resolved()
    count = rows.row_count
    some = sample_rows(rows, int(count * share) + 1)
    ids = [text for batch in scan_row_set(some, ["id"]) for text in batch.column(0).to_pylist()]
    return {"count": count, "ids": ids}


# ---- matching


@frozen
class _ReadSide:
    shapes: tuple[tuple[RowShape, RowShape], ...]
    splitters: Array

    def __call__(self, item: _Side) -> Iterator[Batch]:
        for batch in scan_side(item.part.resolved(), self.shapes[item.pair][item.side]):
            marks = [pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows) for number in (item.pair, item.side)]
            columns = [buckets_of(self.splitters, batch.column("id")), *marks, *batch.columns]
            plain = [c.cast(f.type) for c, f in zip(columns, _SENT, strict=True)]
            yield pa.RecordBatch.from_arrays(plain, schema=_SENT)


@frozen
class _Match:
    folder: AnswerFolder
    #: By the number of the pair.
    with_moved: tuple[bool, ...]

    def __call__(self, bucket: int, rows: Rows) -> Message:
        """Match the rows of one bucket; all rows of an id are in the same one."""
        parts = []
        for pair in np.unique(rows["pair"]).tolist():
            mine = rows.filter(pc.equal(rows["pair"], pair))
            old, new = (
                mine.filter(pc.equal(mine["side"], side)).select(SIDE.names).cast(SIDE) for side in (_OLD, _NEW)
            )
            delta = delta_of(old, new, with_moved=self.with_moved[pair])
            if delta.num_rows:
                name = attempt_name(f"delta-{pair}", bucket)
                batches = delta.to_batches(max_chunksize=BATCH_ROWS)
                write_answer(self.folder, name, DELTA, batches)
                parts.append((pair, name, operation_counts(delta), delta["id"][0].as_py()))
        return {"parts": parts, "rows": rows.num_rows}


def _of_pair(sides: Sequence[_Side], number: int) -> Iterator[list[RowSet]]:
    """The rows of the two states of a pair."""
    for which in (_OLD, _NEW):
        yield [item.part.resolved() for item in sides if (item.pair, item.side) == (number, which)]


# ---- Comparing table states


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
    return [_held(pair, [sets[0]], [sets[1]]) for pair, sets in zip(pairs, named, strict=True) if sets is not None]


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


def _held(pair: Pair, gone: Sequence[RowSet], come: Sequence[RowSet]) -> HeldDelta:
    """The differences of rows that are compared in this process."""
    if not any(rows.row_count for rows in (*gone, *come)):
        return HeldDelta(DELTA.empty_table())
    old, new = (
        pa.Table.from_batches([batch for rows in some for batch in scan_side(rows, shape)], SIDE)
        for some, shape in zip((gone, come), pair.shapes, strict=True)
    )
    return HeldDelta(delta_of(old, new, with_moved=pair.with_moved))
