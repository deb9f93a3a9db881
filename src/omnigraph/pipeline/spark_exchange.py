"""Rows that tasks read, brought together by bucket, on Spark: a shuffle between two functions on Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow

from omnigraph.pipeline.buckets import BUCKET, by_bucket, gathered
from omnigraph.pipeline.spark_tasks import carrying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.buckets import Exchange
    from omnigraph.pipeline.workers import Item, Message

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: Rows travel packed: for Spark a row is what one task has for one bucket, so that it handles few.
_SENT = pa.schema([(BUCKET, pa.int32()), ("rows", pa.binary())])
_SENT_COLUMNS = f"{BUCKET} int, rows binary"


def sent_rows(spark: SparkSession, exchange: Exchange[Item]) -> DataFrame:
    """The rows of all items, each partition with those of one bucket."""
    numbers = spark.range(0, len(exchange.items), 1, len(exchange.items))
    rows = numbers.mapInArrow(_reader(exchange), _SENT_COLUMNS)
    # By the number itself: hashed numbers would leave some partitions without rows and give others several buckets.
    return rows.repartitionById(exchange.buckets, BUCKET)


def _reader(exchange: Exchange[Item]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    items, read, buckets = list(exchange.items), exchange.read, exchange.buckets

    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for run in gathered(read(items[number])):
                    yield from _packed(by_bucket(run, buckets))

    return carrying(function)


def _packed(found: Iterable[Any]) -> Iterator[Any]:
    for bucket, batch in enumerate(found):
        if batch.num_rows:
            columns = [pa.array([bucket], pa.int32()), _binary(batch.serialize())]
            yield pa.RecordBatch.from_arrays(columns, schema=_SENT)


def _binary(data: Any) -> Any:
    """An array of one value, without a copy of it."""
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])


def bucket_task(exchange: Exchange[Item]) -> Callable[[int, Iterable[Any]], Iterable[Message]]:
    """The task that handles the rows of one partition."""
    handle, schema = exchange.handle, exchange.schema

    def task(partition: int, batches: Iterable[Any]) -> Iterable[Message]:
        del partition  # the rows know better
        sent = [packed.as_buffer() for batch in batches for packed in batch.column(1)]
        if sent:
            rows = pa.Table.from_batches([pa.ipc.read_record_batch(one, schema) for one in sent])
            bucket = rows[BUCKET][0].as_py()
            yield handle(bucket, rows) | {BUCKET: bucket}

    return task
