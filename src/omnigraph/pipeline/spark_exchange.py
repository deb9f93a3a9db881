"""Rows that tasks read, brought together by bucket, on Spark: a shuffle between two functions on Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.pipeline.buckets import BUCKET
from omnigraph.pipeline.spark_jobs import shielded
from omnigraph.pipeline.spark_tasks import carrying
from omnigraph.pipeline.spark_workers import SparkWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from omnigraph.pipeline.buckets import Exchange
    from omnigraph.pipeline.workers import Item, Message, Workers

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

_TYPES = {"int32": "int", "int64": "long", "string": "string", "binary": "binary"}


def spark_exchange(exchange: Exchange[Item], workers: Workers) -> list[Message]:
    """As `exchange.run_exchange`, for workers of Spark."""
    assert isinstance(workers, SparkWorkers), "asked for on Spark only"
    spark = workers.spark

    def frame() -> DataFrame:
        columns = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in exchange.schema)
        numbers = spark.range(0, len(exchange.items), 1, len(exchange.items))
        rows = numbers.mapInArrow(_reader(exchange), columns)
        # By the number itself: hashed numbers would leave some partitions without rows and give others several buckets.
        return rows.repartitionById(exchange.buckets, BUCKET)

    sent = shielded(spark, frame)
    answers = workers.run_batches(exchange.stage, _handler(exchange), sent)
    return sorted(answers, key=lambda answer: int(answer[BUCKET]))


def _reader(exchange: Exchange[Item]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    items, read = list(exchange.items), exchange.read

    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(items[number])

    return carrying(function)


def _handler(exchange: Exchange[Item]) -> Callable[[int, Iterable[Any]], Iterable[Message]]:
    handle = exchange.handle

    def task(partition: int, batches: Iterable[Any]) -> Iterable[Message]:
        del partition  # the rows know better
        found = [batch for batch in batches if batch.num_rows]
        if found:
            bucket = found[0].column(0)[0].as_py()
            yield handle(bucket, pa.Table.from_batches(found)) | {BUCKET: bucket}

    return task
