"""The identify stage of a merge on Spark, when the load brings more rows than one process should hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
from pyspark.sql import functions as sql

from omnigraph.pipeline.keys import key_scans, text_key, total_rows
from omnigraph.pipeline.merging import (
    LocalMatcher,
    Merged,
    RewriteItem,
    ShrinkItem,
    rewrite_fragment,
    shrink_fragment,
)
from omnigraph.pipeline.spark_failures import spark_errors
from omnigraph.pipeline.spark_workers import collect
from omnigraph.storage import ROW_ID
from omnigraph.storage.partitions import table_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omnigraph.pipeline.spark_joins import SparkJoins
    from omnigraph.pipeline.spark_workers import SparkWorkers
    from omnigraph.storage import Table
    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.private import PrivateVersion

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

_OFFSET_MASK = 0xFFFFFFFF
_MESSAGES = "number long, message string"


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
        ledgers: AnswerFolder | None,
    ) -> Merged:
        """As `Matcher.merge`."""
        scans = key_scans(staged.table, staged.new_fragments, text_key("id"))
        if total_rows(scans) <= self._small_rows:
            return self._local.merge(
                base, staged, fragments, with_sources=with_sources, ledgers=ledgers
            )
        extra = (ROW_ID, "src") if with_sources else (ROW_ID,)
        columns = f"key string, address long, {ROW_ID} long" + (
            ", src string" if with_sources else ""
        )
        old = self._joins.keys(
            key_scans(base, None, text_key("id"), extra=extra), columns
        ).withColumnRenamed("address", "old_address")
        last = self._joins.keys(scans).groupBy("key").agg(sql.max("address").alias("address"))
        # Cut here: the join feeds both the fragments that are written again and those that shrink.
        joined = last.join(old, "key", "left").persist()
        try:
            return self._apply(
                joined, base, staged, fragments, with_sources=with_sources, ledgers=ledgers
            )
        finally:
            joined.unpersist()

    def _apply(
        self,
        joined: Any,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder | None,
    ) -> Merged:
        target = table_address(base)
        sizes = dict(zip(staged.new_fragments, fragments, strict=True))
        physical = {number: json.loads(text)["physical_rows"] for number, text in sizes.items()}
        rewrite = _rewrite_function(table_address(staged.table), target, physical, ledgers)
        answers = _answers(
            joined.withColumn("fragment", sql.shiftright("address", 32))
            .select("fragment", "address", sql.col(ROW_ID).alias("row_id"))
            .groupBy("fragment")
            .applyInArrow(rewrite, _MESSAGES)
        )
        marked = _answers(
            joined.where("old_address is not null")
            .withColumn("fragment", sql.shiftright("old_address", 32))
            .select("fragment", "old_address")
            .groupBy("fragment")
            .applyInArrow(_shrink_function(target, ledgers), _MESSAGES)
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
        sources: tuple[str, ...] = ()
        if with_sources:
            moved = joined.where("old_address is not null").select("src").distinct()
            with spark_errors():
                sources = tuple(row["src"] for row in moved.toLocalIterator())
        return Merged(
            fragments=tuple(kept),
            shrunk={number: answer["left"] for number, answer in marked.items()},
            discarded=tuple(discarded),
            superseded=sum(physical.values()) - rows,
            old_sources=sources,
            ledgers=frozenset(
                str(answer.get("ledger", "")) for answer in (*answers.values(), *marked.values())
            ),
        )


def _rewrite_function(
    staged: TableAddress,
    target: TableAddress,
    physical: dict[int, int],
    ledgers: AnswerFolder | None,
) -> Callable[[Any], Any]:
    def function(group: Any) -> Any:
        number = group["fragment"][0].as_py()
        pairs = sorted(
            zip(group["address"].to_pylist(), group["row_id"].to_pylist(), strict=True),
            key=lambda pair: pair[0],
        )
        matched = [(a & _OFFSET_MASK, row) for a, row in pairs if row is not None]
        kept = {address & _OFFSET_MASK for address, _ in pairs}
        answer: dict[str, Any] = {"kept": len(kept), "fragments": None}
        if matched or len(kept) < physical[number]:
            item = RewriteItem(
                staged=staged,
                target=target,
                fragment=number,
                matched=tuple(offset for offset, _ in matched),
                row_ids=tuple(row_id for _, row_id in matched),
                dropped=tuple(o for o in range(physical[number]) if o not in kept),
                ledgers=ledgers,
            )
            answer |= rewrite_fragment(item)
        return pa.table({"number": [number], "message": [json.dumps(answer)]})

    return function


def _shrink_function(target: TableAddress, ledgers: AnswerFolder | None) -> Callable[[Any], Any]:
    def function(group: Any) -> Any:
        number = group["fragment"][0].as_py()
        offsets = sorted(address & _OFFSET_MASK for address in group["old_address"].to_pylist())
        item = ShrinkItem(target=target, fragment=number, offsets=tuple(offsets), ledgers=ledgers)
        return pa.table({"number": [number], "message": [json.dumps(shrink_fragment(item))]})

    return function


def _answers(frame: Any) -> dict[int, dict[str, Any]]:
    return {int(row["number"]): json.loads(row["message"]) for row in collect(frame)}
