"""Questions about keys, answered by Spark: the same answers as `joins` for any number of rows.

What a load brings may be small although the tables are large: then the answers are computed in this process, which
is faster than a shuffle. References into a small set of ids are looked up by tasks, each against the whole set.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
import pyarrow.compute as _compute
from pyspark.sql import functions as sql

from omnigraph.errors import MAX_EXAMPLES
from omnigraph.ids import new_ulid
from omnigraph.pipeline.joins import Example, Found, LocalJoins
from omnigraph.pipeline.keys import scan_keys, total_rows
from omnigraph.pipeline.spark_workers import collect, spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from omnigraph.pipeline.keys import KeyScan
    from omnigraph.pipeline.spark_workers import SparkWorkers
    from omnigraph.pipeline.workers import Message

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: Rows of a load up to which this process answers.
SMALL_ROWS = 2_000_000
#: Ids up to which every task holds all of them.
SMALL_IDS = 4_000_000
_KEYS = "key string, address long"


class SparkJoins:
    """Answers on executors."""

    def __init__(
        self, workers: SparkWorkers, *, small_rows: int = SMALL_ROWS, small_ids: int = SMALL_IDS
    ) -> None:
        self._workers = workers
        self._local = LocalJoins()
        #: Ids that workers keep belong to one load: the next one may find other rows at the same address.
        self._token = new_ulid()
        self._small_rows = small_rows
        self._small_ids = small_ids

    def duplicated(self, rows: Sequence[KeyScan]) -> Found:
        """As `Joins.duplicated`."""
        if total_rows(rows) <= self._small_rows:
            return self._local.duplicated(rows)
        keys = self.keys(rows)
        # Hashes first: they are small, equal keys have equal ones, and usually no two are equal.
        suspects = keys.groupBy(_hash().alias("hash")).count().where("count > 1")
        if _is_empty(suspects):
            return Found()
        several = (
            keys.withColumn("hash", _hash())
            .join(suspects.select("hash"), "hash", "left_semi")
            .groupBy("key")
            .agg(
                sql.count("address").alias("count"),
                sql.slice(sql.sort_array(sql.collect_list("address")), 1, MAX_EXAMPLES).alias(
                    "addresses"
                ),
            )
            .where("count > 1")
        )
        total, shown = _total_and_first(several, sql.col("count") - 1)
        return Found(
            total, [Example(row["key"], tuple(row["addresses"]), row["count"]) for row in shown]
        )

    def shared(self, rows: Sequence[KeyScan], others: Sequence[KeyScan]) -> Found:
        """As `Joins.shared`."""
        if total_rows(rows) <= self._small_rows:
            return self._local.shared(rows, others)
        mine, theirs = self.keys(rows), self.keys(others)
        hashes = theirs.select(_hash().alias("hash"))
        # As above: rows without a common hash have no common key.
        if _is_empty(mine.select(_hash().alias("hash")).join(hashes, "hash", "left_semi")):
            return Found()
        first = theirs.groupBy("key").agg(sql.min("address").alias("other"))
        total, shown = _total_and_first(mine.join(first, "key"), sql.lit(1))
        return Found(total, [Example(row["key"], (row["address"], row["other"])) for row in shown])

    def missing(self, references: Sequence[KeyScan], ids: Sequence[KeyScan]) -> Found:
        """As `Joins.missing`."""
        if total_rows(references) <= self._small_rows:
            return self._local.missing(references, ids)
        if total_rows(ids) <= self._small_ids:
            items = [(scan, tuple(ids), self._token) for scan in references]
            return _merged(self._workers.run("check relations", _missing_task, items))
        absent = self.keys(references).join(self.keys(ids).select("key"), "key", "left_anti")
        total, shown = _total_and_first(absent, sql.lit(1))
        return Found(total, [Example(row["key"], (row["address"],)) for row in shown])

    def outside(
        self,
        counted: Sequence[KeyScan],
        touched: Sequence[KeyScan],
        low: int,
        high: int | None,
        more: Sequence[str] = (),
    ) -> Found:
        """As `Joins.outside`."""
        if total_rows(touched) <= self._small_rows:
            return self._local.outside(counted, touched, low, high, more)
        counts = (
            self.keys(counted)
            .groupBy("key")
            .agg(sql.count("address").alias("count"), sql.max("address").alias("address"))
        )
        is_bad = sql.col("count") < low
        if high is not None:
            is_bad |= sql.col("count") > high
        keys = self.keys(touched).select("key")
        if more:
            keys = keys.union(
                self._workers.spark.createDataFrame([(key,) for key in more], "key string")
            )
        bad = counts.where(is_bad).join(keys.distinct(), "key", "left_semi")
        total, shown = _total_and_first(bad, sql.lit(1))
        return Found(total, [Example(row["key"], (row["address"],), row["count"]) for row in shown])

    def keys(self, scans: Sequence[KeyScan], columns: str = _KEYS) -> DataFrame:
        """The keys of some scans as a frame; one partition per scan."""
        spark = self._workers.spark
        if not scans:
            return spark.createDataFrame([], columns)
        numbers = spark.range(0, len(scans), 1, len(scans))
        return numbers.mapInArrow(_scan_function(list(scans)), columns)


def _is_empty(frame: DataFrame) -> bool:
    with spark_errors():
        return frame.isEmpty()


def _hash() -> Any:
    return sql.xxhash64("key")


def _scan_function(scans: list[KeyScan]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in scan_keys(scans[number]):
                    yield from table.to_batches()

    return function


def _missing_task(item: tuple[KeyScan, tuple[KeyScan, ...], str]) -> Message:
    scan, ids, token = item
    known = _ids(ids, token)
    total = 0
    examples: list[tuple[str, int]] = []
    for table in scan_keys(scan):
        mask = pc.invert(pc.is_in(table["key"], known))
        bad = pc.sum(mask).as_py() or 0
        if bad:
            total += bad
            shown = table.filter(mask).slice(0, MAX_EXAMPLES - len(examples))
            examples += list(
                zip(shown["key"].to_pylist(), shown["address"].to_pylist(), strict=True)
            )
    return {"total": total, "examples": examples, "rows": scan.rows}


@lru_cache(maxsize=1)
def _ids(scans: tuple[KeyScan, ...], token: str) -> Any:
    """The ids that references are looked up in; a worker process keeps them from one task of a load to the next."""
    del token
    pieces = [table["key"] for scan in scans for table in scan_keys(scan)]
    chunks = [chunk for piece in pieces for chunk in piece.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.utf8())


def _merged(messages: list[Message]) -> Found:
    found = Found()
    for message in messages:
        found.total += message["total"]
        room = MAX_EXAMPLES - len(found.examples)
        found.examples += [Example(key, (address,)) for key, address in message["examples"][:room]]
    return found


def _total_and_first(frame: DataFrame, weight: Any) -> tuple[int, list[Any]]:
    """How much all rows weigh together, and the first of them by key."""
    # Cut here: both answers come from one evaluation of the join.
    frame = frame.withColumn("weight", weight).persist()
    try:
        total = collect(frame.agg(sql.sum("weight").alias("total")))[0]["total"] or 0
        shown = collect(frame.orderBy("key").limit(MAX_EXAMPLES)) if total else []
    finally:
        frame.unpersist()
    return int(total), shown
