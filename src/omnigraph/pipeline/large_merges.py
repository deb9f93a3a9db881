"""The identify stage of a merge when the load brings more rows than one process should hold.

Ids of the load and of the table meet in buckets of their hashes; what is decided in a bucket is written to a file. A
second exchange brings the decisions to the fragments that they are about: those of the load are written again, those of
the table get deletion marks. No process holds more than a bucket or a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.buckets import BUCKET, Exchange, hash_buckets, text_hashes
from omnigraph.pipeline.exchange import run_exchange
from omnigraph.pipeline.key_files import key_files, write_keys
from omnigraph.pipeline.keys import (
    SMALL_ROWS,
    cut_scans,
    is_few,
    key_scans,
    scan_keys,
    text_key,
    total_rows,
)
from omnigraph.pipeline.merging import (
    LocalMatcher,
    Merged,
    RewriteItem,
    rewrite_fragment,
    shrink_fragments,
)
from omnigraph.storage.answers import attempt_name, read_answer, write_answer
from omnigraph.storage.fragments import fragment_rows, fragment_sizes
from omnigraph.storage.partitions import table_address
from omnigraph.storage.row_columns import CREATED_AT, ROW_ID
from omnigraph.storage.row_ids import KeptIds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from omnigraph.pipeline.keys import KeyScan
    from omnigraph.pipeline.workers import Message, Workers
    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.private import PrivateVersion
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

_OFFSET_MASK = 0xFFFFFFFF
#: Ids of load and table together that one task matches.
_BUCKET_ROWS = 1_000_000
#: Rows whose fragments one task marks.
_MARKED_ROWS = 2_000_000
_SOURCE = "src"
#: Ids on their way to their bucket; those of the load have no row id yet.
_IDS = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("key", pa.utf8()),
        ("address", pa.int64()),
        (ROW_ID, pa.int64()),
        (CREATED_AT, pa.int64()),
    ]
)
_IDS_WITH_SOURCES = _IDS.append(pa.field(_SOURCE, pa.utf8()))
#: The last record of an id, and the row that it replaces, if there is one.
_DECIDED = pa.schema(
    [(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT, "old_address")]
)
#: Decisions on their way to a fragment of the load; to one of the table only addresses go.
_SENT = pa.schema(
    [(BUCKET, pa.int32()), *((name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT))]
)


class ExchangeMatcher:
    """Decides in tasks, wherever they run; little work is done in this process."""

    def __init__(self, workers: Workers, *, small_rows: int = SMALL_ROWS) -> None:
        self._workers = workers
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
        extra = (ROW_ID, CREATED_AT, _SOURCE) if with_sources else (ROW_ID, CREATED_AT)
        come = key_scans(staged.table, staged.new_fragments, text_key("id"))
        there = key_scans(base, None, text_key("id"), extra=extra)
        if is_few(total_rows(come), there, self._small_rows):
            return self._local.merge(
                base, staged, fragments, with_sources=with_sources, ledgers=ledgers
            )
        decided = self._decided([*come, *there], ledgers, with_sources=with_sources)
        rewritten, marked = self._applied(decided, base, staged, fragments, ledgers)
        kept: list[str] = []
        discarded: list[str] = []
        rows = 0
        for number, text in zip(staged.new_fragments, fragments, strict=True):
            # Without an answer every record of the fragment was replaced by a later one.
            answer = rewritten.get(number, {"kept": 0, "fragments": []})
            rows += answer["kept"]
            if answer["fragments"] is None:
                kept.append(text)
            else:
                kept += answer["fragments"]
                discarded.append(text)
        sources = [answer["sources"] for answer in decided if with_sources]
        return Merged(
            fragments=tuple(kept),
            shrunk={answer["fragment"]: answer["left"] for answer in marked},
            discarded=tuple(discarded),
            superseded=sum(map(fragment_rows, fragments)) - rows,
            old_sources=key_files(ledgers, sources) if with_sources else (),
            ledgers=frozenset(
                answer["ledger"] for answer in (*rewritten.values(), *marked) if "ledger" in answer
            ),
        )

    def _decided(
        self, scans: Sequence[KeyScan], folder: AnswerFolder, *, with_sources: bool
    ) -> list[Message]:
        """Files with the last record of every id of the load and the row that it replaces."""
        parallelism = self._workers.parallelism
        schema = _IDS_WITH_SOURCES if with_sources else _IDS
        buckets = max(parallelism, total_rows(scans) // _BUCKET_ROWS + 1)
        exchange = Exchange(
            stage="match ids",
            items=cut_scans(scans, 2 * parallelism),
            read=_ReadIds(schema, buckets),
            schema=schema,
            buckets=buckets,
            handle=_Decide(folder, with_sources),
        )
        return run_exchange(exchange, self._workers, folder)

    def _applied(
        self,
        decided: Sequence[Message],
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        folder: AnswerFolder,
    ) -> tuple[dict[int, Message], list[Message]]:
        """What became of the fragments of the load that have rows left, and of those of the table that lose some."""
        parallelism = self._workers.parallelism
        rows = sum(answer["decided"] for answer in decided)
        marking = min(max(parallelism, rows // _MARKED_ROWS + 1), len(fragment_sizes(base)) or 1)
        come = tuple(staged.new_fragments)
        exchange = Exchange(
            stage="replace rows",
            items=[answer["name"] for answer in decided],
            read=_ReadDecided(folder, come, marking),
            schema=_SENT,
            buckets=len(come) + marking,
            handle=_Apply(
                staged=table_address(staged.table),
                target=table_address(base),
                come=come,
                sizes=tuple(map(fragment_rows, fragments)),
                ledgers=folder,
            ),
        )
        answers = run_exchange(exchange, self._workers, folder)
        rewritten = {
            come[answer[BUCKET]]: answer for answer in answers if answer[BUCKET] < len(come)
        }
        return rewritten, [one for answer in answers for one in answer.get("marked", ())]


# ---- which record of the load replaces which row


@dataclass(frozen=True, slots=True)
class _ReadIds:
    schema: Any
    buckets: int

    def __call__(self, scan: KeyScan) -> Iterator[Any]:
        for table in scan_keys(scan):
            rows = {name: table[name].combine_chunks() for name in table.column_names}
            hashes = text_hashes(rows["key"])
            if not scan.extra and _is_repetitive(hashes):
                rows["key"], rows["address"] = _last_records(rows["key"], rows["address"])
                hashes = text_hashes(rows["key"])
            rows[BUCKET] = hash_buckets(hashes, self.buckets)
            columns = [
                rows[field.name] if field.name in rows else pa.nulls(len(hashes), field.type)
                for field in self.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _is_repetitive(hashes: NDArray[np.uint64]) -> bool:
    """Whether most ids occur several times: a load may name one of them in millions of records."""
    ordered = np.sort(hashes)
    return bool(2 * np.count_nonzero(ordered[1:] == ordered[:-1]) > len(ordered))


def _last_records(keys: Any, addresses: Any) -> tuple[Any, Any]:
    """The distinct keys, and the highest address of each."""
    coded = keys.dictionary_encode()
    last = np.full(len(coded.dictionary), -1, np.int64)
    np.maximum.at(last, np.asarray(coded.indices), np.asarray(addresses))
    return coded.dictionary, pa.array(last)


@dataclass(frozen=True, slots=True)
class _Decide:
    folder: AnswerFolder
    with_sources: bool

    def __call__(self, bucket: int, rows: Any) -> Message:
        is_new = rows[ROW_ID].is_null()
        new, old = rows.filter(is_new), rows.filter(pc.invert(is_new))
        keys, addresses = _last_records(
            new["key"].combine_chunks(), new["address"].combine_chunks()
        )
        replaced = old.take(pc.index_in(keys, old["key"].combine_chunks()))
        decided = pa.Table.from_arrays(
            [addresses, *(replaced[name] for name in (ROW_ID, CREATED_AT, "address"))],
            schema=_DECIDED,
        )
        name = attempt_name("matched", bucket)
        write_answer(self.folder, name, _DECIDED, decided.to_batches())
        answer = {"name": name, "decided": decided.num_rows, "rows": rows.num_rows}
        if self.with_sources:
            sources = replaced[_SOURCE].combine_chunks().drop_null().unique()
            batches = [pa.RecordBatch.from_arrays([sources], [_SOURCE])]
            answer["sources"] = write_keys(self.folder, bucket, batches)
        return answer


# ---- what that means for fragments


@dataclass(frozen=True, slots=True)
class _ReadDecided:
    folder: AnswerFolder
    #: The fragments of the load, in order: each has a bucket of its own.
    come: tuple[int, ...]
    #: The fragments of the table share so many buckets behind those.
    marking: int

    def __call__(self, name: str) -> Iterator[Any]:
        come = np.asarray(self.come, np.int64)
        for batch in read_answer(self.folder, name):
            address = np.asarray(batch.column("address"))
            columns = [
                pa.array(np.searchsorted(come, address >> 32).astype(np.int32)),
                *(batch.column(name) for name in ("address", ROW_ID, CREATED_AT)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_SENT)
            replaced = np.asarray(batch.column("old_address").drop_null())
            nothing = pa.nulls(len(replaced), pa.int64())
            bucket = (len(come) + (replaced >> 32) % self.marking).astype(np.int32)
            columns = [pa.array(bucket), pa.array(replaced), nothing, nothing]
            yield pa.RecordBatch.from_arrays(columns, schema=_SENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apply:
    staged: TableAddress
    target: TableAddress
    come: tuple[int, ...]
    #: How many rows these fragments have.
    sizes: tuple[int, ...]
    ledgers: AnswerFolder

    def __call__(self, bucket: int, rows: Any) -> Message:
        if bucket >= len(self.come):
            marked = shrink_fragments(self.target, rows["address"], self.ledgers)
            return {"marked": marked, "rows": rows.num_rows}
        offsets = np.asarray(rows["address"]) & _OFFSET_MASK
        is_matched = np.asarray(rows[ROW_ID].is_valid())
        is_dropped = np.ones(self.sizes[bucket], dtype=bool)
        is_dropped[offsets] = False
        answer: Message = {"kept": len(offsets), "fragments": None, "rows": len(offsets)}
        if is_matched.any() or is_dropped.any():
            item = RewriteItem(
                staged=self.staged,
                target=self.target,
                fragment=self.come[bucket],
                matched=offsets[is_matched],
                kept=KeptIds(_unsigned(rows[ROW_ID]), _unsigned(rows[CREATED_AT])),
                dropped=np.flatnonzero(is_dropped),
                ledgers=self.ledgers,
            )
            answer |= rewrite_fragment(item)
        return answer


def _unsigned(column: Any) -> Any:
    """The values of a column without its nulls."""
    return np.asarray(column.drop_null()).astype(np.uint64)
