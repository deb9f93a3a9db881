"""Questions about keys, answered by Spark: the same answers as `pipeline.keys` for any number of rows.

Spark knows nothing of the size of a frame that Python makes and believes it to be tiny, so every join here says how it
is to be done, from our own counts of both sides: rows are shuffled and merged, unless one side is known to be small.
Keys are counted before they are joined. So a key that a million rows share, a hub or a constant, crosses the network
once per task and never makes one task slow. Spark moves semi and anti joins in front of the counting, which undoes
that: they are written as other joins here, unless the right side is broadcast.

Little work is done in this process, which is faster than a shuffle. References into a small set of ids are looked up by
tasks, each against the whole set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as sql
from typing_extensions import override

from omnigraph.core.arrow import pa, pc
from omnigraph.core.ids import new_ulid
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.lang.schema.rules import Example
from omnigraph.pipeline.exchange import KeyFiles
from omnigraph.pipeline.keys import (
    SMALL_ROWS,
    Joins,
    KeyScan,
    cut_scans,
    is_few,
    owned,
    row_examples,
    scan_keys,
    total_rows,
)
from omnigraph.spark.tasks import Batches, BatchFunction, Kept, carrying, numbers_in
from omnigraph.storage.datasets.fragments import read_addresses
from omnigraph.storage.datasets.partitions import open_address
from omnigraph.writes.rules import Found

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from omnigraph.pipeline.workers import Message
    from omnigraph.spark.workers import SparkWorkers


#: Ids up to which every task holds all of them.
SMALL_IDS = 4_000_000
#: Keys up to which Spark sends them to every executor: about 50 MB in a JVM.
BROADCAST_KEYS = 250_000
_STAGE = "check relations"
_KEYS = "key string, address long"
_FIRST = "total long, key string, count long, other long"


class SparkJoins(Joins):
    """Answers on executors."""

    def __init__(
        self,
        workers: SparkWorkers,
        *,
        small_rows: int = SMALL_ROWS,
        small_ids: int = SMALL_IDS,
        broadcast_keys: int = BROADCAST_KEYS,
    ) -> None:
        self._workers = workers
        #: Ids that workers keep belong to one load: the next one may find other rows at the same address.
        self._token = new_ulid()
        self._small_rows = small_rows
        self._small_ids = small_ids
        self._broadcast_keys = broadcast_keys

    @override
    def duplicated(self, rows: Sequence[KeyScan], owner: str | None = None) -> Found:
        if total_rows(rows) <= self._small_rows:
            return super().duplicated(rows, owner)
        if self._is_empty(lambda: self.repeated_hashes(rows)):
            return Found()
        total, shown = self._first(lambda: self.repeated_keys(rows, owner))
        keys = [row["key"] for row in shown]
        if owner is not None:
            owners = self._owners(rows, keys, owner)
            addresses = {key: tuple(some.values()) for key, some in owners.items()}
        else:
            addresses = self._addresses(rows, keys)
        return Found(total, [Example(row["key"], addresses[row["key"]], row["count"]) for row in shown])

    def repeated_hashes(self, rows: Sequence[KeyScan]) -> DataFrame:
        """Hashes that several rows share: they are small, equal keys have equal ones, and usually no two are equal."""
        return self.keys(rows).groupBy(_hash().alias("hash")).count().where("count > 1")

    def repeated_keys(self, rows: Sequence[KeyScan], owner: str | None = None) -> DataFrame:
        """Keys that several rows, or several owners, have; each beyond the first weighs."""
        keys = self.keys(rows) if owner is None else self._owned_keys(rows, owner)
        if owner is not None:
            keys = keys.select("key", "owner").distinct()
        counted = keys.groupBy("key").count().where("count > 1")
        return counted.select(
            "key", "count", (sql.col("count") - 1).alias("weight"), sql.lit(None).cast("long").alias("other")
        )

    @override
    def shared(self, rows: Sequence[KeyScan], others: Sequence[KeyScan], owner: str | None = None) -> Found:
        if self._is_small(rows, others):
            return super().shared(rows, others, owner)
        # As above: rows without a common hash have no common key.
        if self._is_empty(lambda: self.common_hashes(rows, others)):
            return Found()
        if owner is not None:
            return self._shared_with_owners(rows, others, owner)
        total, shown = self._first(lambda: self.common_keys(rows, others))
        addresses = self._addresses(rows, [row["key"] for row in shown])
        other_of = {row["key"]: row["other"] for row in shown}
        return Found(total, row_examples(addresses, other_of))

    def _shared_with_owners(self, rows: Sequence[KeyScan], others: Sequence[KeyScan], owner: str) -> Found:
        total, shown = self._first(lambda: self.keys_of_others(rows, others, owner))
        owners = self._owners(rows, [row["key"] for row in shown], owner)
        table = open_address(others[0].address)
        other_of = {row["key"]: row["other"] for row in shown}
        texts = read_addresses(table, owner, list(other_of.values())) if shown else []
        strangers = dict(zip(other_of, texts, strict=True))
        rows_of = {
            key: [address for name, address in some.items() if name != strangers[key]] for key, some in owners.items()
        }
        return Found(total, row_examples(rows_of, other_of))

    def common_hashes(self, rows: Sequence[KeyScan], others: Sequence[KeyScan]) -> DataFrame:
        """Hashes that both sides have."""
        mine = self.keys(rows).select(_hash().alias("hash")).distinct()
        theirs = self.keys(others).select(_hash().alias("hash"))
        if total_rows(rows) <= self._broadcast_keys:
            return theirs.join(sql.broadcast(mine), "hash", "left_semi")
        return mine.hint("merge").join(theirs.hint("merge"), "hash")

    def common_keys(self, rows: Sequence[KeyScan], others: Sequence[KeyScan]) -> DataFrame:
        """Keys that both sides have, with the address of one of the other rows; each row of the first side weighs."""
        mine = _counted(self.keys(rows))
        theirs = self.keys(others)
        if total_rows(rows) <= self._broadcast_keys:
            theirs = theirs.join(sql.broadcast(mine.select("key")), "key", "left_semi")
        first = theirs.groupBy("key").agg(sql.min("address").alias("other"))
        joined = mine.hint("merge").join(first.hint("merge"), "key")
        return joined.select("key", "count", sql.col("count").alias("weight"), "other")

    def keys_of_others(self, rows: Sequence[KeyScan], others: Sequence[KeyScan], owner: str) -> DataFrame:
        """As `common_keys`, of keys that belong to another owner among the other rows."""
        mine = self._owned_keys(rows, owner).groupBy("key", "owner").agg(sql.count("address").alias("count"))
        theirs = self._owned_keys(others, owner)
        if total_rows(rows) <= self._broadcast_keys:
            named = self.keys(rows).select("key").distinct()
            theirs = theirs.join(sql.broadcast(named), "key", "left_semi")
        # Two owners tell whether there is another one, however many there are.
        pair = sql.struct("owner", "address")
        ends = theirs.groupBy("key").agg(sql.min(pair).alias("low"), sql.max(pair).alias("high"))
        joined = mine.hint("merge").join(ends.hint("merge"), "key")
        stranger = sql.when(sql.expr("low.owner != owner"), sql.col("low.address")).when(
            sql.expr("high.owner != owner"), sql.col("high.address")
        )
        bad = joined.withColumn("other", stranger).where("other is not null")
        found = bad.groupBy("key").agg(sql.sum("count").alias("count"), sql.min("other").alias("other"))
        return found.select("key", "count", sql.col("count").alias("weight"), "other")

    @override
    def missing(self, references: Sequence[KeyScan], ids: Sequence[KeyScan]) -> Found:
        if self._is_small(references, ids):
            return super().missing(references, ids)
        if total_rows(ids) <= self._small_ids:
            pieces = cut_scans(references, self._workers.parallelism)
            items = [(scan, tuple(ids), self._token) for scan in pieces]
            return _merged(self._workers.run(_STAGE, _missing_task, items))
        total, shown = self._first(lambda: self.absent_keys(references, ids), order="other")
        return Found(total, row_examples(self._addresses(references, [row["key"] for row in shown])))

    def absent_keys(self, references: Sequence[KeyScan], ids: Sequence[KeyScan]) -> DataFrame:
        """Keys that are none of the ids, with the address of the first row of each; each row that has one weighs."""
        mine, theirs = _counted(self.keys(references)), self.keys(ids).select("key")
        mine = mine.withColumnRenamed("address", "other")
        if total_rows(references) <= self._broadcast_keys:
            # Few references: only the ids that they name are worth a shuffle.
            theirs = theirs.join(sql.broadcast(mine.select("key")), "key", "left_semi")
        found = theirs.withColumn("is_found", sql.lit(True)).hint("merge")
        absent = mine.hint("merge").join(found, "key", "left").where("is_found is null")
        return absent.select("key", "count", sql.col("count").alias("weight"), "other")

    @override
    def named(self, rows: Sequence[KeyScan], keys: Sequence[str]) -> Found:
        if is_few(len(keys), rows, self._small_rows):
            return super().named(rows, keys)
        total, shown = self._first(lambda: self.named_keys(rows, keys), order="other")
        return Found(total, row_examples(self._addresses(rows, [row["key"] for row in shown])))

    def named_keys(self, rows: Sequence[KeyScan], keys: Sequence[str]) -> DataFrame:
        """Keys of rows that are among the given ones, with the address of the first row; each row weighs."""
        given = self._given_keys(keys).distinct()
        theirs = self.keys(rows)
        if len(keys) <= self._broadcast_keys:
            found = _counted(theirs.join(sql.broadcast(given), "key", "left_semi"))
        else:
            found = _counted(theirs).hint("merge").join(given.hint("merge"), "key")
        return found.select("key", "count", sql.col("count").alias("weight"), sql.col("address").alias("other"))

    @override
    def outside(
        self,
        counted: Sequence[KeyScan],
        touched: Sequence[KeyScan],
        low: int,
        high: int | None,
        more: Sequence[str] = (),
    ) -> Found:
        if is_few(total_rows(touched) + len(more), counted, self._small_rows):
            return super().outside(counted, touched, low, high, more)
        total, shown = self._first(lambda: self.keys_outside(counted, touched, low, high, more))
        return Found(total, [Example(row["key"], (row["other"],), row["count"]) for row in shown])

    def keys_outside(
        self, counted: Sequence[KeyScan], touched: Sequence[KeyScan], low: int, high: int | None, more: Sequence[str]
    ) -> DataFrame:
        """Touched keys whose number of rows is not between the bounds, with the address of their last row."""
        counts = (
            self.keys(counted)
            .groupBy("key")
            .agg(sql.count("address").alias("count"), sql.max("address").alias("other"))
        )
        is_bad = sql.col("count") < low
        if high is not None:
            is_bad |= sql.col("count") > high
        keys = self.keys(touched).select("key")
        if more:
            keys = keys.union(self._given_keys(more))
        bad = counts.where(is_bad).hint("merge")
        found = bad.join(keys.distinct().hint("merge"), "key")
        return found.select("key", "count", sql.lit(1).cast("long").alias("weight"), "other")

    def _given_keys(self, keys: Sequence[str]) -> DataFrame:
        spark = self._workers.spark
        if not isinstance(keys, KeyFiles):
            return spark.createDataFrame([(key,) for key in keys], "key string")
        numbers = spark.range(0, len(keys.names), 1, len(keys.names))
        return numbers.mapInArrow(_read_function(keys), "key string")

    def keys(self, scans: Sequence[KeyScan], columns: str = _KEYS) -> DataFrame:
        """The keys of some scans as a frame, in as many partitions as the session has work for."""
        spark = self._workers.spark
        if not scans:
            return spark.createDataFrame([], columns)
        cut = cut_scans(scans, 2 * self._workers.parallelism)
        numbers = spark.range(0, len(cut), 1, len(cut))
        return numbers.mapInArrow(_scan_function(cut), columns)

    def _owned_keys(self, scans: Sequence[KeyScan], owner: str) -> DataFrame:
        frame = self.keys(owned(scans, owner), f"{_KEYS}, `{owner}` string")
        return frame.withColumnRenamed(owner, "owner")

    # ---- jobs

    def _is_small(self, rows: Sequence[KeyScan], others: Sequence[KeyScan]) -> bool:
        """Whether this process answers: what the load brings is held here, the other side streams by."""
        return is_few(total_rows(rows), others, self._small_rows)

    def _is_empty(self, make: Callable[[], DataFrame]) -> bool:
        return self._workers.act(_STAGE, lambda: make().isEmpty())

    def _first(self, make: Callable[[], DataFrame], order: str = "key") -> tuple[int, list[Row]]:
        """The total weight of the rows of a frame, and the first of them by a column.

        Every partition adds up its rows and keeps its first ones, so one job answers both, whatever it finds.
        """
        function = _first_function(order)
        pieces = self._workers.collect(_STAGE, lambda: make().mapInArrow(function, _FIRST))
        total = sum(row["total"] for row in pieces if row["key"] is None)
        rows = (row for row in pieces if row["key"] is not None)
        return total, heapq.nsmallest(MAX_EXAMPLES, rows, key=lambda row: row[order])

    def _addresses(self, scans: Sequence[KeyScan], keys: list[str]) -> dict[str, tuple[int, ...]]:
        """The first rows that have one of some keys, by key and in order."""
        if not keys:
            return {}
        pieces = cut_scans(scans, self._workers.parallelism)
        items = [(scan, tuple(keys)) for scan in pieces]
        found: dict[str, list[int]] = {key: [] for key in keys}
        for message in self._workers.run(_STAGE, _address_task, items):
            for key, addresses in message["addresses"].items():
                found[key] += addresses
        return {key: tuple(heapq.nsmallest(MAX_EXAMPLES, some)) for key, some in found.items()}

    def _owners(self, scans: Sequence[KeyScan], keys: list[str], owner: str) -> dict[str, dict[str, int]]:
        """The owners of some keys, each with its first row; the first of them by key and in order."""
        found: dict[str, dict[str, int]] = {key: {} for key in keys}
        pieces = cut_scans(owned(scans, owner), self._workers.parallelism)
        items = [(scan, tuple(keys)) for scan in pieces] if keys else []
        for message in self._workers.run(_STAGE, _owner_task, items) if items else ():
            for key, some in message["owners"].items():
                for name, address in some:
                    found[key][name] = min(address, found[key].get(name, address))
        return {key: _first_owners(some) for key, some in found.items()}


def _first_owners(found: dict[str, int]) -> dict[str, int]:
    pairs = heapq.nsmallest(MAX_EXAMPLES, ((row, name) for name, row in found.items()))
    return {name: row for row, name in pairs}


def _hash() -> Column:
    return sql.xxhash64("key")


def _counted(keys: DataFrame) -> DataFrame:
    """Every key once, with the number of its rows and the first; tasks count before anything is shuffled."""
    return keys.groupBy("key").agg(sql.count("address").alias("count"), sql.min("address").alias("address"))


def _scan_function(scans: list[KeyScan]) -> BatchFunction:
    def function(batches: Batches) -> Batches:
        for number in numbers_in(batches):
            for table in scan_keys(scans[number]):
                yield from table.to_batches()

    return carrying(function)


def _read_function(keys: KeyFiles) -> BatchFunction:
    def function(batches: Batches) -> Batches:
        for number in numbers_in(batches):
            yield from keys.batches(keys.names[number])

    return carrying(function)


def _first_function(order: str) -> BatchFunction:
    def first_rows(batches: Batches) -> Batches:
        """The weight of a partition, in a row without a key, and its first rows."""
        total, first = 0, None
        for batch in batches:
            total += pc.sum(batch.column("weight")).as_py() or 0
            some = pa.Table.from_batches([batch]).select(["key", "count", "other"])
            every = some if first is None else pa.concat_tables([first, some])
            first = every.take(pc.select_k_unstable(every, MAX_EXAMPLES, [(order, "ascending")]))
        rows = [] if first is None else first.to_pylist()
        yield pa.RecordBatch.from_pydict(
            {
                "total": pa.array([total] + [0] * len(rows), pa.int64()),
                "key": pa.array([None] + [row["key"] for row in rows], pa.utf8()),
                "count": pa.array([None] + [row["count"] for row in rows], pa.int64()),
                "other": pa.array([None] + [row["other"] for row in rows], pa.int64()),
            }
        )

    return first_rows


def _address_task(item: tuple[KeyScan, tuple[str, ...]]) -> Message:
    scan, keys = item
    wanted = pa.array(keys, pa.utf8())
    found: dict[str, list[int]] = {}
    for table in scan_keys(scan):
        hits = table.filter(pc.is_in(table["key"], wanted))
        for key in map(str, hits["key"].unique()):
            some = np.asarray(hits.filter(pc.equal(hits["key"], key))["address"]).tolist()
            found[key] = heapq.nsmallest(MAX_EXAMPLES, [*found.get(key, ()), *some])
    return {"addresses": found, "rows": scan.rows}


def _owner_task(item: tuple[KeyScan, tuple[str, ...]]) -> Message:
    scan, keys = item
    wanted = pa.array(keys, pa.utf8())
    found: dict[str, dict[str, int]] = {}
    for table in scan_keys(scan):
        hits = table.filter(pc.is_in(table["key"], wanted))
        for key, address, owner in zip(*(column.to_pylist() for column in hits.columns), strict=True):
            some = found.setdefault(key, {})
            some[owner] = min(address, some.get(owner, address))
        # A key may belong to all rows.
        found = {key: _first_owners(some) for key, some in found.items()}
    owners = {key: list(some.items()) for key, some in found.items()}
    return {"owners": owners, "rows": scan.rows}


def _missing_task(item: tuple[KeyScan, tuple[KeyScan, ...], str]) -> Message:
    scan, ids, token = item
    total = 0
    examples: list[tuple[int, str]] = []
    with _IDS.holding((ids, token), lambda: _ids(ids)) as known:
        for table in scan_keys(scan):
            mask = pc.invert(pc.is_in(table["key"], known))
            bad = pc.sum(mask).as_py() or 0
            if bad:
                total += bad
                shown = table.filter(mask).sort_by("address").slice(0, MAX_EXAMPLES).to_pylist()
                examples = heapq.nsmallest(MAX_EXAMPLES, [*examples, *((row["address"], row["key"]) for row in shown)])
    return {"total": total, "examples": examples, "rows": scan.rows}


#: A worker process keeps the ids from one task of a load to the next.
_IDS: Kept[object] = Kept()


def _ids(scans: tuple[KeyScan, ...]) -> object:
    """The ids that references are looked up in."""
    pieces = [table["key"] for scan in scans for table in scan_keys(scan)]
    chunks = [chunk for piece in pieces for chunk in piece.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.utf8())


def _merged(messages: list[Message]) -> Found:
    pairs = (tuple(pair) for message in messages for pair in message["examples"])
    first = heapq.nsmallest(MAX_EXAMPLES, pairs)
    return Found(sum(message["total"] for message in messages), [Example(key, (address,)) for address, key in first])
