"""Differences of many rows: tasks read the candidates, an exchange brings equal ids together, deltas become files.

Buckets are ranges of ids, the same for all pairs of states that are compared together: the files of a delta follow each
other in the order of ids, and what several states say about an id lies in files of one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.buckets import BUCKET, Exchange, buckets_of
from omnigraph.pipeline.candidates import find_parts, listed_parts
from omnigraph.pipeline.deltas import BATCH_ROWS, Delta, DeltaPart, FiledDelta, HeldDelta
from omnigraph.pipeline.differences import DELTA, SIDE, delta_of, operation_counts, scan_side
from omnigraph.pipeline.exchange import run_exchange
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.storage.row_changes import scan_row_set
from omnigraph.storage.row_parts import sample_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.pipeline.differences import RowShape
    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.pipeline.worker_set import LoadEngine, WorkerChoice
    from omnigraph.pipeline.workers import Message
    from omnigraph.storage.row_changes import RowSet
    from omnigraph.storage.row_parts import RowPart
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows of one state of a pair that one task reads."""

    pair: int
    side: int
    part: RowPart


def filed_deltas(
    pairs: Sequence[Pair],
    named: Sequence[tuple[RowSet, RowSet] | None],
    engine: WorkerChoice,
    scratch: Scratch,
) -> list[Delta]:
    """The differences of each pair. All of them are in files, in buckets of the same ids, or all in memory.

    `named` are the candidates of the pairs, as far as they could be named. Others are looked for by tasks; when they
    turn out to be few, the deltas are in memory.
    """
    rows = sum(
        _most_rows(pair) if sets is None else sets[0].row_count + sets[1].row_count
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
            return [_held(pair, number, sides) for number, pair in enumerate(pairs)]
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
            part = DeltaPart(
                name=name, bucket=answer[BUCKET], counts=tuple(found), first_id=first_id
            )
            parts[number].append(part)
    return [FiledDelta(folder=folder, scratch=scratch, parts=tuple(some)) for some in parts]


def _most_rows(pair: Pair) -> int:
    return sum(table.row_count for table in (pair.old, pair.new) if table is not None)


def _sides(
    pairs: Sequence[Pair],
    named: Sequence[tuple[RowSet, RowSet] | None],
    engine: LoadEngine,
    scratch: Scratch,
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


def _sampled(sides: Sequence[_Side], engine: LoadEngine) -> tuple[list[_Side], list[int], Any]:
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


def _buckets(rows: int, engine: LoadEngine) -> int:
    return max(engine.workers.parallelism, rows // _BUCKET_ROWS + 1)


def sample_ids(item: tuple[RowPart, float]) -> Message:
    """How many rows a part has, and the ids of a share of them."""
    part, share = item
    rows = part.resolved()
    count = rows.row_count
    some = sample_rows(rows, int(count * share) + 1)
    ids = [text for batch in scan_row_set(some, ["id"]) for text in batch.column(0).to_pylist()]
    return {"count": count, "ids": ids}


# ---- matching


@dataclass(frozen=True, slots=True)
class _ReadSide:
    shapes: tuple[tuple[RowShape, RowShape], ...]
    splitters: Any

    def __call__(self, item: _Side) -> Iterator[Any]:
        for batch in scan_side(item.part.resolved(), self.shapes[item.pair][item.side]):
            marks = [
                pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
                for number in (item.pair, item.side)
            ]
            columns = [buckets_of(self.splitters, batch.column("id")), *marks, *batch.columns]
            plain = [c.cast(f.type) for c, f in zip(columns, _SENT, strict=True)]
            yield pa.RecordBatch.from_arrays(plain, schema=_SENT)


@dataclass(frozen=True, slots=True)
class _Match:
    folder: AnswerFolder
    #: By the number of the pair.
    with_moved: tuple[bool, ...]

    def __call__(self, bucket: int, rows: Any) -> Message:
        """Match the rows of one bucket; all rows of an id are in the same one."""
        parts = []
        for pair in rows["pair"].unique().to_pylist():
            mine = rows.filter(pc.equal(rows["pair"], pair))
            old, new = (
                mine.filter(pc.equal(mine["side"], side)).select(SIDE.names).cast(SIDE)
                for side in (_OLD, _NEW)
            )
            delta = delta_of(old, new, with_moved=self.with_moved[pair])
            if delta.num_rows:
                name = attempt_name(f"delta-{pair}", bucket)
                batches = delta.to_batches(max_chunksize=BATCH_ROWS)
                write_answer(self.folder, name, DELTA, batches)
                parts.append((pair, name, operation_counts(delta), delta["id"][0].as_py()))
        return {"parts": parts, "rows": rows.num_rows}


def _held(pair: Pair, number: int, sides: Sequence[_Side]) -> HeldDelta:
    tables = []
    for which in (_OLD, _NEW):
        parts = [item.part for item in sides if (item.pair, item.side) == (number, which)]
        batches = (
            batch for part in parts for batch in scan_side(part.resolved(), pair.shapes[which])
        )
        tables.append(pa.Table.from_batches(list(batches), schema=SIDE))
    return HeldDelta(delta_of(*tables, with_moved=pair.with_moved))
