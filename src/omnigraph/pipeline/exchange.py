"""Rows that tasks read, brought together by bucket: every bucket is handled by one task, whatever read its rows.

On Spark it is a shuffle. In this process the rows of each bucket are written one behind the other into files, so that
memory does not grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as _arrow

from omnigraph.budget import work_steps
from omnigraph.pipeline.buckets import BUCKET, by_bucket, gathered
from omnigraph.pipeline.progress import advance
from omnigraph.storage.answers import attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from omnigraph.pipeline.buckets import Exchange
    from omnigraph.pipeline.workers import Item, Message, Workers
    from omnigraph.storage.answers import AnswerFolder

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow


@runtime_checkable
class Shuffles(Protocol):
    """Workers that bring rows together by themselves."""

    def exchange(self, exchange: Exchange[Any]) -> list[Message]:
        """As `run_exchange`."""
        ...


def run_exchange(exchange: Exchange[Item], workers: Workers, folder: AnswerFolder) -> list[Message]:
    """The answers for all buckets that have rows, in the order of their numbers.

    `folder` is for this process: on Spark the rows lie where Spark keeps its shuffles.
    """
    if not exchange.items:
        return []
    if isinstance(workers, Shuffles):
        return workers.exchange(exchange)
    return _exchanged_here(exchange, workers, folder)


def _exchanged_here(
    exchange: Exchange[Item], workers: Workers, folder: AnswerFolder
) -> list[Message]:
    def write(number_and_item: tuple[int, Item]) -> Message:
        number, item = number_and_item
        names, rows = [], 0
        for run in gathered(work_steps(exchange.read(item))):
            name = attempt_name("run", number)
            write_answer(folder, name, run.schema, by_bucket(run, exchange.buckets))
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
