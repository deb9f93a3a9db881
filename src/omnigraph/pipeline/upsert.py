"""Upserts: which new rows replace which old ones, decided here or in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from typing_extensions import override

from omnigraph.core.arrow import pa, pc
from omnigraph.pipeline.exchange import BUCKET, Exchange, hash_buckets, key_files, run_exchange, text_hashes, write_keys
from omnigraph.pipeline.keys import (
    SMALL_ROWS,
    KeyScan,
    cut_scans,
    find_keys,
    is_few,
    key_scans,
    scan_keys,
    text_key,
    total_rows,
)
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
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, scan_fragments, table_address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from omnigraph.storage.datasets.staged import PrivateVersion
    from omnigraph.storage.datasets.tables import Table


# ---- The identify stage of an upsert, in memory
#
# A replaced row keeps its row id: the fragment that brings its successor is written again, with those rows apart, and
# the fragment that held it gets a deletion mark. Fragments without either stay as they are.


_OFFSET_MASK = 0xFFFFFFFF
_IN_PROCESS_ROWS = 500_000


class LoadMode(StrEnum):
    """The rule of a load for rows that exist."""

    APPEND = "append"
    UPSERT = "merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True, kw_only=True)
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


class Matcher(Protocol):
    """Finds out what an upsert replaces."""

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
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def shrink_fragment(item: ShrinkItem) -> Message:
    """Mark the replaced rows of an old fragment."""
    target = open_address(item.target)
    left = delete_offsets(target, item.fragment, item.offsets)
    ledger = Ledger(item.ledgers, item.fragment)
    ledger.note(target, [left])
    return {"fragment": item.fragment, "left": left, "rows": len(item.offsets), "ledger": ledger.name}


@dataclass(frozen=True, slots=True)
class RowsOfFragment:
    """Rows of one fragment in their order, and where they were among all that were given."""

    offsets: NDArray[np.int64]
    places: NDArray[np.int64]


_NO_ROWS = RowsOfFragment(np.empty(0, np.int64), np.empty(0, np.int64))


class LocalMatcher(Matcher):
    """Decides in this process: the ids of the load are held in memory, those of the table stream by."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    @override
    def upsert(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Upserted:
        new = _concatenated(scan_keys(scan) for scan in key_scans(staged.table, staged.new_fragments, text_key("id")))
        last = new.group_by("key").aggregate([("address", "max")])
        superseded = new.num_rows - last.num_rows
        dropped: dict[int, RowsOfFragment] = {}
        if superseded:
            is_last = pc.is_in(new["address"], last["address_max"].combine_chunks())
            dropped = by_fragment(new.filter(pc.invert(is_last))["address"])
        old = self._matches(base, last["key"].combine_chunks(), with_sources=with_sources)
        joined = last.join(old, "key", join_type="inner")
        target = table_address(base)
        items = self._rewrites(staged, target, joined, dropped, ledgers)
        rows = sum(fragment_rows(text) for text in fragments)
        answers = self._choose(rows).run("replace rows", rewrite_fragment, items)
        rewritten = {item.fragment: answer for item, answer in zip(items, answers, strict=True)}
        marked = self._shrink(target, joined["address"], ledgers)
        kept: list[str] = []
        discarded: list[str] = []
        for number, text in zip(staged.new_fragments, fragments, strict=True):
            if number in rewritten:
                kept += rewritten[number]["fragments"]
                discarded.append(text)
            else:
                kept.append(text)
        sources = joined["src"].unique().to_pylist() if with_sources else []
        return Upserted(
            fragments=tuple(kept),
            shrunk={answer["fragment"]: answer["left"] for answer in marked},
            discarded=tuple(discarded),
            superseded=superseded,
            old_sources=tuple(sources),
            ledgers=frozenset(answer["ledger"] for answer in (*rewritten.values(), *marked)),
        )

    def _choose(self, rows: int) -> Workers:
        """Little work is done here: handing it out would take longer."""
        return LocalWorkers(Silent()) if rows <= _IN_PROCESS_ROWS else self._workers

    def _matches(self, base: Table, ids: Any, *, with_sources: bool) -> Any:
        """Old rows with one of the ids: key, address, row id and creation, for edges their source too."""
        extra = (ROW_ID, CREATED_AT, "src") if with_sources else (ROW_ID, CREATED_AT)
        scans = key_scans(base, None, text_key("id"), extra=extra)
        pieces = list(find_keys(scans, ids, ids))
        fields = [("key", pa.utf8())]
        fields += [(name, pa.int64()) for name in ("address", ROW_ID, CREATED_AT)]
        if with_sources:
            fields.append(("src", pa.utf8()))
        return pa.concat_tables([pa.schema(fields).empty_table(), *pieces])

    def _rewrites(
        self,
        staged: PrivateVersion,
        target: TableAddress,
        joined: Any,
        dropped: Mapping[int, RowsOfFragment],
        ledgers: AnswerFolder,
    ) -> list[RewriteItem]:
        """Fragments of new rows that replace old ones, or were replaced by later records."""
        source = table_address(staged.table)
        matched = by_fragment(joined["address_max"])
        row_ids, created = _unsigned(joined[ROW_ID]), _unsigned(joined[CREATED_AT])
        items = []
        for number in staged.new_fragments:
            if number in matched or number in dropped:
                rows = matched.get(number, _NO_ROWS)
                item = RewriteItem(
                    staged=source,
                    target=target,
                    fragment=number,
                    matched=rows.offsets,
                    kept=KeptIds(row_ids[rows.places], created[rows.places]),
                    dropped=dropped.get(number, _NO_ROWS).offsets,
                    ledgers=ledgers,
                )
                items.append(item)
        return items

    def _shrink(self, target: TableAddress, addresses: Any, ledgers: AnswerFolder) -> list[Message]:
        items = shrink_items(target, addresses, ledgers)
        workers = self._choose(len(addresses))
        return workers.run("mark replaced rows", shrink_fragment, items)


def shrink_fragments(target: TableAddress, addresses: Any, ledgers: AnswerFolder | None) -> list[Message]:
    """Mark the replaced rows at these addresses, one fragment after the other."""
    return [shrink_fragment(item) for item in shrink_items(target, addresses, ledgers)]


def shrink_items(target: TableAddress, addresses: Any, ledgers: AnswerFolder | None) -> list[ShrinkItem]:
    """The replaced rows at these addresses, by the fragment that they lie in."""
    return [
        ShrinkItem(target=target, fragment=number, offsets=rows.offsets, ledgers=ledgers)
        for number, rows in by_fragment(addresses).items()
    ]


def by_fragment(addresses: Any) -> dict[int, RowsOfFragment]:
    """Addresses of rows as positions within their fragments."""
    numbers = np.asarray(addresses, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    cuts = np.flatnonzero(np.diff(numbers >> 32)) + 1
    return {
        int(part[0] >> 32): RowsOfFragment(part & _OFFSET_MASK, places)
        for part, places in zip(np.split(numbers, cuts), np.split(order, cuts), strict=True)
        if len(part)
    }


def _unsigned(column: Any) -> NDArray[np.uint64]:
    return np.asarray(column, dtype=np.uint64)


def _concatenated(streams: Any) -> Any:
    empty = pa.table({"key": pa.array([], pa.utf8()), "address": pa.array([], pa.int64())})
    return pa.concat_tables([empty, *(table for stream in streams for table in stream)])


# ---- The identify stage of an upsert, in tasks
#
# Ids of the load and of the table meet in buckets of their hashes; what is decided in a bucket is written to a file.
# A second exchange brings the decisions to the fragments that they are about: those of the load are written again,
# those of the table get deletion marks. No process holds more than a bucket or a fragment.


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


class ExchangeMatcher(Matcher):
    """Decides in tasks, wherever they run; little work is done in this process."""

    def __init__(self, workers: Workers, *, small_rows: int = SMALL_ROWS) -> None:
        self._workers = workers
        self._local = LocalMatcher(workers)
        self._small_rows = small_rows

    @override
    def upsert(
        self,
        base: Table,
        staged: PrivateVersion,
        fragments: Sequence[str],
        *,
        with_sources: bool,
        ledgers: AnswerFolder,
    ) -> Upserted:
        extra = (ROW_ID, CREATED_AT, _SOURCE) if with_sources else (ROW_ID, CREATED_AT)
        come = key_scans(staged.table, staged.new_fragments, text_key("id"))
        there = key_scans(base, None, text_key("id"), extra=extra)
        if is_few(total_rows(come), there, self._small_rows):
            return self._local.upsert(base, staged, fragments, with_sources=with_sources, ledgers=ledgers)
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
        return Upserted(
            fragments=tuple(kept),
            shrunk={answer["fragment"]: answer["left"] for answer in marked},
            discarded=tuple(discarded),
            superseded=sum(map(fragment_rows, fragments)) - rows,
            old_sources=key_files(ledgers, sources) if with_sources else (),
            ledgers=frozenset(answer["ledger"] for answer in (*rewritten.values(), *marked) if "ledger" in answer),
        )

    def _decided(self, scans: Sequence[KeyScan], folder: AnswerFolder, *, with_sources: bool) -> list[Message]:
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
        """The fragments of the load that have rows left, and those of the table that lose some."""
        parallelism = self._workers.parallelism
        rows = sum(answer["decided"] for answer in decided)
        marking = min(max(parallelism, rows // _MARKED_ROWS + 1), len(fragment_sizes(base)) or 1)
        come = tuple(staged.new_fragments)
        assert list(come) == sorted(come), "tasks look fragments up in this order"
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
        rewritten = {come[answer[BUCKET]]: answer for answer in answers if answer[BUCKET] < len(come)}
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
                rows[field.name] if field.name in rows else pa.nulls(len(hashes), field.type) for field in self.schema
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
        # Long ids of one bucket may take more than the two gigabytes of a plain array of texts.
        new_keys, old_keys = (some["key"].cast(pa.large_utf8()).combine_chunks() for some in (new, old))
        keys, addresses = _last_records(new_keys, new["address"].combine_chunks())
        replaced = old.take(pc.index_in(keys, old_keys))
        decided = pa.Table.from_arrays(
            [addresses, *(replaced[name] for name in (ROW_ID, CREATED_AT, "address"))], schema=_DECIDED
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
                kept=KeptIds(_present_ids(rows[ROW_ID]), _present_ids(rows[CREATED_AT])),
                dropped=np.flatnonzero(is_dropped),
                ledgers=self.ledgers,
            )
            answer |= rewrite_fragment(item)
        return answer


def _present_ids(column: Any) -> Any:
    """The values of a column without its nulls."""
    return np.asarray(column.drop_null()).astype(np.uint64)
