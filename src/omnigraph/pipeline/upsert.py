"""Upserts: which new rows replace which old ones, decided here or in tasks.

A replaced row keeps its row id: the fragment that brings its successor is written again, with those rows apart, and
the fragment that held it gets a deletion mark. Fragments without either stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa, pc
from omnigraph.core.budget import work_steps
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import BUCKET, Exchange, hash_buckets, key_files, run_exchange, text_hashes, write_keys
from omnigraph.pipeline.keys import KeyScan, cut_scans, find_keys, is_few, key_scans, scan_keys, text_key, total_rows
from omnigraph.pipeline.workers import LocalWorkers, Message, Silent, Workers
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID
from omnigraph.storage.datasets.fragments import (
    KeptIds,
    Ledger,
    delete_offsets,
    fragment_rows,
    fragment_sizes,
    write_replacing,
    write_rows,
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, scan_fragments, table_address
from omnigraph.storage.datasets.staged import PrivateVersion
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray


_OFFSET_MASK = 0xFFFFFFFF
#: Rows that are written again and marked in this process.
_IN_PROCESS_ROWS = 500_000
#: Ids of load and table together that one task matches.
_BUCKET_ROWS = 1_000_000
#: Rows whose fragments one task marks.
_MARKED_ROWS = 2_000_000
_SOURCE = "src"
#: Ids on their way to their bucket; those of the load have no row id yet.
_IDS = pa.schema(
    [(BUCKET, pa.int32()), ("key", pa.utf8()), ("address", pa.int64()), (ROW_ID, pa.int64()), (CREATED_AT, pa.int64())]
)
_IDS_WITH_SOURCES = _IDS.append(pa.field(_SOURCE, pa.utf8()))
#: The last record of an id, and the row that it replaces, if there is one.
_DECIDED = pa.schema([(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT, "old_address")])
#: Decisions on their way to a fragment of the load; to one of the table only addresses go.
_SENT = pa.schema([(BUCKET, pa.int32()), *((name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT))])


class LoadMode(StrEnum):
    """The rule of a load for rows that exist."""

    APPEND = "append"
    UPSERT = "merge"
    OVERWRITE = "overwrite"
    PATCH = "patch"


@frozen(kw_only=True)
class Upserted:
    """The row changes of an upsert in one table."""

    #: Fragments that are committed, as JSON.
    fragments: tuple[str, ...]
    #: Old fragment → what is left of it.
    shrunk: Mapping[int, str | None]
    #: Fragments that were written again and are not needed any more.
    discarded: tuple[str, ...]
    #: Records of the input that a later one replaced.
    superseded: int
    #: Sources of the old edges that are replaced.
    old_sources: Sequence[str] = ()
    #: The attempts of tasks that wrote all of this.
    ledgers: frozenset[str] = frozenset()


class Matcher:
    """Finds out what an upsert replaces.

    Where the load is small, its ids are held here, and those of the table stream by or are looked up. Otherwise both
    meet in tasks, in buckets of their hashes, and what is decided goes through files: no process holds more than a
    bucket or a fragment.
    """

    def __init__(self, workers: Workers, *, small_rows: int | None = None) -> None:
        self._workers = workers
        #: Rows up to which this process decides; None: any number.
        self._small_rows = small_rows

    def upsert(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Upserted:
        """Decide about all new rows; `fragments` are those of the staged version, in order.

        `with_sources` also finds the sources of replaced edges, for a rule that counts edges per source. Tasks note in
        `ledgers` what they write, so that nothing stays when this fails.
        """
        schema = _IDS_WITH_SOURCES if with_sources else _IDS
        come = key_scans(staged.table, staged.new_fragments, text_key("id"))
        there = key_scans(base, None, text_key("id"), extra=tuple(schema.names[3:]))
        old_sources: Sequence[str] = ()
        decided: Rows | list[Message]
        if self._small_rows is None or is_few(total_rows(come), there, self._small_rows):
            decided, replaced = _decided_here(come, there, schema)
            rows = decided.num_rows
            if with_sources:
                old_sources = list(map(str, replaced[_SOURCE].drop_null().unique().to_pylist()))
        else:
            decided = self._decided([*come, *there], schema, ledgers)
            rows = sum(answer["decided"] for answer in decided)
            if with_sources:
                old_sources = key_files(ledgers, [answer["sources"] for answer in decided])
        apply = _Apply(
            staged=table_address(staged.table),
            target=table_address(base),
            come=tuple(staged.new_fragments),
            sizes=tuple(map(fragment_rows, fragments)),
            marking=min(max(self._workers.parallelism, rows // _MARKED_ROWS + 1), len(fragment_sizes(base)) or 1),
            ledgers=ledgers,
        )
        answers = self._applied_here(decided, apply) if isinstance(decided, Rows) else self._applied(decided, apply)
        return _upserted(fragments, answers, old_sources)

    def _decided(self, scans: Sequence[KeyScan], schema: pyarrow.Schema, folder: AnswerFolder) -> list[Message]:
        """Files with the last record of every id of the load and the row that it replaces."""
        parallelism = self._workers.parallelism
        buckets = max(parallelism, total_rows(scans) // _BUCKET_ROWS + 1)
        exchange = Exchange(
            stage="match ids",
            items=cut_scans(scans, 2 * parallelism),
            read=_ReadIds(schema, buckets),
            schema=schema,
            buckets=buckets,
            handle=_Decide(folder),
        )
        return run_exchange(exchange, self._workers, folder)

    def _applied(self, decided: Sequence[Message], apply: _Apply) -> list[Message]:
        """The answers about fragments, by decisions in files."""
        exchange = Exchange(
            stage="replace rows",
            items=[answer["name"] for answer in decided],
            read=apply.sent_file,
            schema=_SENT,
            buckets=apply.buckets,
            handle=apply,
        )
        return run_exchange(exchange, self._workers, apply.ledgers)

    def _applied_here(self, decided: Rows, apply: _Apply) -> list[Message]:
        """The answers about fragments, by decisions in memory."""
        sent = pa.Table.from_batches([some for batch in decided.to_batches() for some in apply.sent(batch)], _SENT)
        buckets = np.asarray(sent[BUCKET])
        order = np.argsort(buckets, kind="stable")
        cuts = np.flatnonzero(np.diff(buckets[order])) + 1
        # Copies, not slices: those would travel to tasks with the rows of all buckets.
        items = [(int(buckets[some[0]]), sent.take(pa.array(some))) for some in np.split(order, cuts) if len(some)]
        # Handing out little work would take longer.
        workers = LocalWorkers(Silent()) if decided.num_rows <= _IN_PROCESS_ROWS else self._workers
        return workers.run("replace rows", apply.to_bucket, items)


def _upserted(fragments: Sequence[str], answers: Sequence[Message], old_sources: Sequence[str]) -> Upserted:
    answer_of = {answer[BUCKET]: answer for answer in answers}
    marked = [one for answer in answers for one in answer.get("marked", ())]
    kept: list[str] = []
    discarded: list[str] = []
    rows = 0
    for bucket, text in enumerate(fragments):
        # Without an answer every record of the fragment was replaced by a later one.
        answer = answer_of.get(bucket, {"kept": 0, "fragments": []})
        rows += answer["kept"]
        if answer["fragments"] is None:
            kept.append(text)
        else:
            kept += answer["fragments"]
            discarded.append(text)
    return Upserted(
        fragments=tuple(kept),
        shrunk={answer["fragment"]: answer["left"] for answer in marked},
        discarded=tuple(discarded),
        superseded=sum(map(fragment_rows, fragments)) - rows,
        old_sources=old_sources,
        ledgers=frozenset(answer["ledger"] for answer in (*answers, *marked) if "ledger" in answer),
    )


# ---- which record of the load replaces which row


@frozen
class _ReadIds:
    schema: pyarrow.Schema
    buckets: int

    def __call__(self, scan: KeyScan) -> Iterator[Batch]:
        for table in scan_keys(scan):
            rows = {name: table[name].combine_chunks() for name in table.column_names}
            hashes = text_hashes(rows["key"])
            if not scan.extra and _is_repetitive(hashes):
                rows["key"], rows["address"] = _last_records(rows["key"], rows["address"])
                hashes = text_hashes(rows["key"])
            rows[BUCKET] = hash_buckets(hashes, self.buckets)
            columns = [
                rows[field.name] if field.name in rows else pa.nulls(len(hashes), field.type) for field in self.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _is_repetitive(hashes: NDArray[np.uint64]) -> bool:
    """Whether most ids occur several times: a load may name one of them in millions of records."""
    ordered = np.sort(hashes)
    return bool(2 * np.count_nonzero(ordered[1:] == ordered[:-1]) > len(ordered))


def _last_records(keys: Array, addresses: Array) -> tuple[Array, Array]:
    """The distinct keys, and the highest address of each."""
    coded = keys.dictionary_encode()
    last = np.full(len(coded.dictionary), -1, np.int64)
    np.maximum.at(last, np.asarray(coded.indices), np.asarray(addresses))
    return coded.dictionary, pa.array(last)


@frozen
class _Decide:
    folder: AnswerFolder

    def __call__(self, bucket: int, rows: Rows) -> Message:
        is_new = rows[ROW_ID].is_null()
        new, old = rows.filter(is_new), rows.filter(pc.invert(is_new))
        # Long ids of one bucket may take more than the two gigabytes of a plain array of texts.
        keys = new["key"].cast(pa.large_utf8()).combine_chunks()
        decided, replaced = _matched(*_last_records(keys, new["address"].combine_chunks()), old)
        name = attempt_name("matched", bucket)
        write_answer(self.folder, name, _DECIDED, decided.to_batches())
        answer: Message = {"name": name, "decided": decided.num_rows, "rows": rows.num_rows}
        if _SOURCE in rows.column_names:
            sources = replaced[_SOURCE].combine_chunks().drop_null().unique()
            batches = [pa.RecordBatch.from_arrays([sources], [_SOURCE])]
            answer["sources"] = write_keys(self.folder, bucket, batches)
        return answer


def _decided_here(come: Sequence[KeyScan], there: Sequence[KeyScan], schema: pyarrow.Schema) -> tuple[Rows, Rows]:
    """The last record of every id of the load with the row that it replaces, and all of that row."""
    names = schema.names[1:]
    nothing = schema.empty_table()
    new = pa.concat_tables([nothing.select(names[:2]), *(table for scan in come for table in scan_keys(scan))])
    # The ids of all records may take more than the two gigabytes of a plain array of texts, the distinct ones do not.
    keys, addresses = _last_records(new["key"].cast(pa.large_utf8()).combine_chunks(), new["address"].combine_chunks())
    distinct = keys.cast(pa.utf8())
    old = pa.concat_tables([nothing.select(names), *find_keys(there, distinct, distinct)])
    return _matched(keys, addresses, old)


def _matched(keys: Array, addresses: Array, old: Rows) -> tuple[Rows, Rows]:
    """The records of distinct keys with the rows that they replace, and those rows in the same order."""
    replaced = old.take(pc.index_in(keys, old["key"].cast(pa.large_utf8()).combine_chunks()))
    columns = [addresses, *(replaced[name] for name in (ROW_ID, CREATED_AT, "address"))]
    return pa.Table.from_arrays(columns, schema=_DECIDED), replaced


# ---- what that means for fragments


@frozen(kw_only=True)
class _Apply:
    """Writes fragments of the load again, and marks those of the table. Travels to tasks."""

    staged: TableAddress
    target: TableAddress
    #: The fragments of the load, in order: each has a bucket of its own.
    come: tuple[int, ...]
    #: How many rows these fragments have.
    sizes: tuple[int, ...]
    #: The fragments of the table share so many buckets behind those.
    marking: int
    ledgers: AnswerFolder

    def __post_init__(self) -> None:
        assert list(self.come) == sorted(self.come), "fragments are looked up in this order"

    @property
    def buckets(self) -> int:
        return len(self.come) + self.marking

    def sent_file(self, name: str) -> Iterator[Batch]:
        """The decisions of a file on their way to their buckets."""
        for batch in read_answer(self.ledgers, name):
            yield from self.sent(batch)

    def sent(self, batch: Batch) -> Iterator[Batch]:
        """Decisions on their way to the buckets of the fragments that they are about."""
        address = np.asarray(batch.column("address"))
        columns = [
            pa.array(np.searchsorted(self.come, address >> 32).astype(np.int32)),
            *(batch.column(name) for name in ("address", ROW_ID, CREATED_AT)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SENT)
        replaced = np.asarray(batch.column("old_address").drop_null())
        nothing = pa.nulls(len(replaced), pa.int64())
        bucket = (len(self.come) + (replaced >> 32) % self.marking).astype(np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(bucket), pa.array(replaced), nothing, nothing], schema=_SENT)

    def to_bucket(self, item: tuple[int, Rows]) -> Message:
        """As an exchange calls it, for rows that are here already."""
        bucket, rows = item
        return self(bucket, rows) | {BUCKET: bucket}

    def __call__(self, bucket: int, rows: Rows) -> Message:
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
                kept=KeptIds(_present_ids(rows[ROW_ID]), _present_ids(rows[CREATED_AT])),
                dropped=np.flatnonzero(is_dropped),
                ledgers=self.ledgers,
            )
            answer |= rewrite_fragment(item)
        return answer


def _present_ids(column: Column) -> NDArray[np.uint64]:
    """The values of a column without its nulls."""
    return np.asarray(column.drop_null()).astype(np.uint64)


# ---- the fragments that change


@frozen(kw_only=True)
class RewriteItem:
    """One fragment of new rows that has to be written again."""

    staged: TableAddress
    target: TableAddress
    fragment: int
    #: Positions of rows that replace an old row, and the ids that they keep.
    matched: NDArray[np.int64]
    kept: KeptIds
    #: Positions of rows that a later record replaced.
    dropped: NDArray[np.int64]
    ledgers: AnswerFolder | None = None


@frozen(kw_only=True)
class ShrinkItem:
    """Rows of one old fragment that are replaced."""

    target: TableAddress
    fragment: int
    offsets: NDArray[np.int64]
    ledgers: AnswerFolder | None = None


def rewrite_fragment(item: RewriteItem) -> Message:
    """Write a fragment again: replacing rows in the order of their ids, then new ones, without superseded ones."""
    target = open_address(item.target)
    names = [field_.name for field_ in target.schema]
    rows = pa.Table.from_batches(list(scan_fragments(item.staged, [item.fragment], names)))
    is_new = np.ones(rows.num_rows, dtype=bool)
    is_new[item.matched] = False
    is_new[item.dropped] = False
    order = np.argsort(item.kept.row_ids)
    written = write_replacing(
        target,
        rows.take(pa.array(item.matched[order])).combine_chunks(),
        rows.take(pa.array(np.flatnonzero(is_new))).combine_chunks(),
        KeptIds(item.kept.row_ids[order], item.kept.created[order]),
    )
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, written)
    count = len(item.matched) + int(np.count_nonzero(is_new))
    return {"fragments": written, "rows": count, "ledger": ledger.name}


@frozen(kw_only=True)
class ClearItem:
    """One fragment of new rows that loses some of them."""

    staged: TableAddress
    target: TableAddress
    fragment: int
    #: Positions of rows that are left out.
    dropped: NDArray[np.int64]
    ledgers: AnswerFolder | None = None


def clear_fragment(item: ClearItem) -> Message:
    """Write a fragment again without some of its rows."""
    target = open_address(item.target)
    names = [field_.name for field_ in target.schema]
    rows = pa.Table.from_batches(list(scan_fragments(item.staged, [item.fragment], names)))
    is_kept = np.ones(rows.num_rows, dtype=bool)
    is_kept[item.dropped] = False
    kept = rows.filter(pa.array(is_kept))
    written = write_rows(target, kept.combine_chunks().to_batches()) if kept.num_rows else []
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, written)
    return {"fragments": written, "rows": kept.num_rows, "ledger": ledger.name}


def shrink_fragment(item: ShrinkItem) -> Message:
    """Mark the replaced rows of an old fragment."""
    target = open_address(item.target)
    left = delete_offsets(target, item.fragment, item.offsets)
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, [left])
    return {"fragment": item.fragment, "left": left, "rows": len(item.offsets), "ledger": ledger.name}


def shrink_fragments(
    target: TableAddress, addresses: Column | NDArray[np.int64], ledgers: AnswerFolder | None
) -> list[Message]:
    """Mark the replaced rows at these addresses, one fragment after the other."""
    return [shrink_fragment(item) for item in work_steps(shrink_items(target, addresses, ledgers))]


def shrink_items(
    target: TableAddress, addresses: Column | NDArray[np.int64], ledgers: AnswerFolder | None
) -> list[ShrinkItem]:
    """The replaced rows at these addresses, by the fragment that they lie in."""
    numbers = np.sort(np.asarray(addresses, dtype=np.int64))
    cuts = np.flatnonzero(np.diff(numbers >> 32)) + 1
    return [
        ShrinkItem(target=target, fragment=int(part[0] >> 32), offsets=part & _OFFSET_MASK, ledgers=ledgers)
        for part in np.split(numbers, cuts)
        if len(part)
    ]
