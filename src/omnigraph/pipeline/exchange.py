"""Rows that tasks read, brought together by bucket: every bucket is handled by one task, whatever read its rows.

On Spark it is a shuffle. In this process the rows of each bucket are written one behind the other into files, so that
memory does not grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow

from omnigraph.budget import work_steps
from omnigraph.pipeline.buckets import BUCKET
from omnigraph.pipeline.progress import advance
from omnigraph.storage.answers import attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.pipeline.buckets import Exchange
    from omnigraph.pipeline.load import LoadEngine
    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.pipeline.workers import Item, Message, Workers
    from omnigraph.storage.answers import AnswerFolder

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: Rows that this process sorts by bucket at once.
_RUN_ROWS = 262_144


def run_exchange(exchange: Exchange[Item], engine: LoadEngine, scratch: Scratch) -> list[Message]:
    """The answers for all buckets that have rows, in the order of their numbers.

    `scratch` is for this process: on Spark the rows lie where Spark keeps its shuffles.
    """
    if not exchange.items:
        return []
    if engine.spark is None:
        return _exchanged_here(exchange, engine.workers, scratch.folder(None))
    # Late: work in this process needs no Spark.
    from omnigraph.pipeline.spark_exchange import spark_exchange

    return spark_exchange(exchange, engine.workers)


def _exchanged_here(
    exchange: Exchange[Item], workers: Workers, folder: AnswerFolder
) -> list[Message]:
    def write(number_and_item: tuple[int, Item]) -> Message:
        number, item = number_and_item
        names, rows = [], 0
        for run in _runs(work_steps(exchange.read(item))):
            name = attempt_name("run", number)
            write_answer(folder, name, run.schema, _by_bucket(run, exchange.buckets))
            names.append(name)
            rows += run.num_rows
            advance(run.num_rows)
        return {"runs": names, "rows": rows}

    written = workers.run("read rows", write, list(enumerate(exchange.items)))
    runs = [name for answer in written for name in answer["runs"]]

    def handle(bucket: int) -> Message:
        batches = [
            batch for name in runs for batch in read_answer(folder, name, bucket, bucket + 1)
        ]
        rows = pa.Table.from_batches(batches) if batches else None
        return exchange.handle(bucket, rows) | {BUCKET: bucket} if rows else {}

    answers = workers.run(exchange.stage, handle, range(exchange.buckets))
    return [answer for answer in answers if answer]


def _runs(batches: Iterable[Any]) -> Iterator[Any]:
    """Neighbouring batches together, as tables of so many rows."""
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _RUN_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _by_bucket(rows: Any, buckets: int) -> Iterator[Any]:
    """One batch for each bucket, in their order, also where it has no rows."""
    order = np.argsort(rows[BUCKET].to_numpy(), kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(ordered[BUCKET].to_numpy(), np.arange(buckets), side="right")
    begin = 0
    for end in ends.tolist():
        batches = ordered.slice(begin, end - begin).combine_chunks().to_batches()
        yield batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
        begin = end
