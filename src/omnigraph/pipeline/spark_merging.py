"""The identify stage of a merge on Spark, when the load brings more rows than one process should hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
from pyspark.sql import functions as sql

from omnigraph.pipeline.key_files import key_files, write_keys
from omnigraph.pipeline.keys import key_scans, text_key, total_rows
from omnigraph.pipeline.merging import (
    LocalMatcher,
    Merged,
    RewriteItem,
    ShrinkItem,
    rewrite_fragment,
    shrink_fragment,
)
from omnigraph.pipeline.spark_jobs import released
from omnigraph.pipeline.spark_tasks import guarded, partition_number
from omnigraph.pipeline.workers import raise_failure
from omnigraph.storage import ROW_ID
from omnigraph.storage.fragments import fragment_rows
from omnigraph.storage.partitions import table_address
from omnigraph.storage.row_columns import CREATED_AT
from omnigraph.storage.row_ids import KeptIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from omnigraph.pipeline.keys import KeyScan
    from omnigraph.pipeline.spark_joins import SparkJoins
    from omnigraph.pipeline.spark_workers import SparkWorkers
    from omnigraph.pipeline.workers import Message
    from omnigraph.storage import Table
    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.private import PrivateVersion

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

_OFFSET_MASK = 0xFFFFFFFF
_MESSAGES = "number long, message string"
_STAGE = "replace rows"


class SparkMatcher:
    """Decides on executors: ids of the load and of the table are joined, each fragment is handled by one task."""

    def __init__(self, workers: SparkWorkers, joins: SparkJoins, *, small_rows: int) -> None:
        self._workers = workers
        self._joins = joins
        self._local = LocalMatcher(workers)
        self._small_rows = small_rows

    def merge(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Merged:
        """As `Matcher.merge`."""
        scans = key_scans(staged.table, staged.new_fragments, text_key("id"))
        if total_rows(scans) <= self._small_rows:
            return self._local.merge(
                base, staged, fragments, with_sources=with_sources, ledgers=ledgers
            )
        # In a thread of the door, as every call into the JVM: an interrupt must not meet it half-way.
        joined = self._workers.act(
            _STAGE, lambda: self._joined(base, scans, with_sources=with_sources)
        )
        try:
            return self._apply(
                joined, base, staged, fragments, with_sources=with_sources, ledgers=ledgers
            )
        finally:
            released(self._workers.spark, joined.unpersist)

    def _joined(self, base: Table, scans: Sequence[KeyScan], *, with_sources: bool) -> DataFrame:
        """The last record of every id of the load, with the row that it replaces."""
        extra = (ROW_ID, CREATED_AT, "src") if with_sources else (ROW_ID, CREATED_AT)
        columns = f"key string, address long, {ROW_ID} long, {CREATED_AT} long" + (
            ", src string" if with_sources else ""
        )
        old = self._joins.keys(
            key_scans(base, None, text_key("id"), extra=extra), columns
        ).withColumnRenamed("address", "old_address")
        last = self._joins.keys(scans).groupBy("key").agg(sql.max("address").alias("address"))
        # Cut here: the join feeds both the fragments that are written again and those that shrink.
        # Spark takes both sides for tiny, and would send all ids of the table to every executor.
        return last.join(old.hint("merge"), "key", "left").persist()

    def _apply(
        self,
        joined: DataFrame,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Merged:
        target = table_address(base)
        sizes = dict(zip(staged.new_fragments, fragments, strict=True))
        physical = {number: fragment_rows(text) for number, text in sizes.items()}
        tries = self._workers.tries
        rewrite = _rewrite_function(table_address(staged.table), target, physical, ledgers, tries)
        answers = self._answers(
            _STAGE,
            lambda: (
                joined.withColumn("fragment", sql.shiftright("address", 32))
                .select("fragment", "address", ROW_ID, CREATED_AT)
                .groupBy("fragment")
                .applyInArrow(rewrite, _MESSAGES)
            ),
        )
        shrink = _shrink_function(target, ledgers, tries)
        marked = self._answers(
            "mark replaced rows",
            lambda: (
                _replaced(joined)
                .withColumn("fragment", sql.shiftright("old_address", 32))
                .select("fragment", "old_address")
                .groupBy("fragment")
                .applyInArrow(shrink, _MESSAGES)
            ),
        )
        kept: list[str] = []
        discarded: list[str] = []
        rows = 0
        for number, text in sizes.items():
            answer = answers.get(number)
            if answer is None:
                # Every record of the fragment was replaced by a later one.
                discarded.append(text)
                continue
            rows += answer["kept"]
            if answer["fragments"] is None:
                kept.append(text)
            else:
                kept += answer["fragments"]
                discarded.append(text)
        sources: Sequence[str] = ()
        if with_sources:
            write = _sources_function(ledgers, tries)
            messages = self._answers(
                "find replaced edges",
                lambda: _replaced(joined).select("src").distinct().mapInArrow(write, _MESSAGES),
            )
            sources = key_files(ledgers, messages.values())
        return Merged(
            fragments=tuple(kept),
            shrunk={number: answer["left"] for number, answer in marked.items()},
            discarded=tuple(discarded),
            superseded=sum(physical.values()) - rows,
            old_sources=sources,
            ledgers=frozenset(
                answer["ledger"]
                for answer in (*answers.values(), *marked.values())
                if "ledger" in answer
            ),
        )

    def _answers(self, stage: str, make: Callable[[], DataFrame]) -> dict[int, Message]:
        rows = self._workers.collect(stage, make)
        answers = {int(row["number"]): json.loads(row["message"]) for row in rows}
        for answer in answers.values():
            raise_failure(answer)
        return answers


def _replaced(joined: DataFrame) -> DataFrame:
    return joined.where("old_address is not null")


def _rewrite_function(
    staged: TableAddress,
    target: TableAddress,
    physical: dict[int, int],
    ledgers: AnswerFolder,
    tries: int,
) -> Callable[[Any], Any]:
    def rewritten(number: int, group: Any) -> Message:
        offsets = np.asarray(group["address"]) & _OFFSET_MASK
        row_ids = group[ROW_ID].combine_chunks()
        is_matched = np.asarray(row_ids.is_valid())
        is_dropped = np.ones(physical[number], dtype=bool)
        is_dropped[offsets] = False
        answer: Message = {"kept": len(offsets), "fragments": None}
        if is_matched.any() or is_dropped.any():
            item = RewriteItem(
                staged=staged,
                target=target,
                fragment=number,
                matched=offsets[is_matched],
                kept=KeptIds(_unsigned(row_ids), _unsigned(group[CREATED_AT].combine_chunks())),
                dropped=np.flatnonzero(is_dropped),
                ledgers=ledgers,
            )
            answer |= rewrite_fragment(item)
        return answer

    return _group_function(rewritten, tries)


def _shrink_function(
    target: TableAddress, ledgers: AnswerFolder, tries: int
) -> Callable[[Any], Any]:
    def shrunk(number: int, group: Any) -> Message:
        offsets = np.sort(np.asarray(group["old_address"]) & _OFFSET_MASK)
        item = ShrinkItem(target=target, fragment=number, offsets=offsets, ledgers=ledgers)
        return shrink_fragment(item)

    return _group_function(shrunk, tries)


def _group_function(task: Callable[[int, Any], Message], tries: int) -> Callable[[Any], Any]:
    """The function of a group of rows that lie in one fragment, whose number the task gets with them."""

    def function(group: Any) -> Any:
        number = group["fragment"][0].as_py()
        (answer,) = guarded(lambda: [task(number, group)], tries)
        return _message(number, answer)

    return function


def _sources_function(folder: AnswerFolder, tries: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        part = partition_number()
        (answer,) = guarded(lambda: [write_keys(folder, part, batches)], tries)
        yield from _message(part, answer).to_batches()

    return function


def _unsigned(column: Any) -> Any:
    """Values of an array without its nulls; Spark has no unsigned types."""
    return np.asarray(column.drop_null()).astype(np.uint64)


def _message(number: int, answer: Message) -> Any:
    return pa.table({"number": [number], "message": [json.dumps(answer)]})
