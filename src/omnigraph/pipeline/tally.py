"""Keys by how often rows of a write and of the graph have them: which keys break a rule, and the rows that have those.

Few rows are counted in this process. Of many the keys meet in tasks, by buckets of their hashes, where each task has
counted its own before; what is found goes through files. So neither a key that all rows share nor a million keys are
ever in one place together with their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa, pc
from omnigraph.core.budget import work_steps
from omnigraph.frozen import frozen
from omnigraph.pipeline.exchange import BUCKET, Exchange, KeyFiles, hash_buckets, run_exchange, text_hashes
from omnigraph.pipeline.keys import KeyScan, cut_scans, find_keys, first_members, is_few, scan_keys, total_rows
from omnigraph.pipeline.workers import LocalWorkers, Message, Silent, Workers
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer


class Side(StrEnum):
    """What rows with a key are to a write."""

    #: Rows that it brings. Their keys are the ones that are asked about.
    NEW = "new"
    #: Rows that it replaces or removes. Their keys are asked about too.
    GONE = "gone"
    #: Rows that stay.
    OLD = "old"
    #: Rows that it does not bring, because they are wrong by themselves.
    REFUSED = "refused"


@frozen(kw_only=True)
class Counted:
    """Rows that are counted: those of scans, or one for each key in some files."""

    side: Side
    scans: tuple[KeyScan, ...] = ()
    keys: KeyFiles | None = None


#: A key, how many rows of each side have it, the addresses of the first and the last new row, and the first and the
#: last owner of all rows in the order of texts.
TALLY = pa.schema(
    [
        ("key", pa.utf8()),
        *((str(side), pa.int64()) for side in Side),
        *((name, pa.int64()) for name in ("first", "last")),
        *((name, pa.utf8()) for name in ("low", "high")),
    ]
)
_SENT = pa.schema([(BUCKET, pa.int32()), *TALLY])
#: A row, its owner where a scan reads one, and the tally of its key.
MATCHED = pa.schema([("address", pa.int64()), ("owner", pa.utf8()), *TALLY])
#: Broken keys that every task holds.
_HELD_KEYS = 500_000
#: Keys and rows that one task brings together.
_BUCKET_ROWS = 1_000_000

#: A mask of the tallies that are wanted.
Breaks = Callable[[Rows], Column]
#: Takes the matched rows that one task has found, under a number of its own.
Handle = Callable[[int, Iterator[Rows]], Message]


@frozen(kw_only=True)
class BrokenKeys:
    """Tallies of keys: here while they are few, else in files."""

    folder: AnswerFolder
    total: int
    held: Rows | None = None
    files: tuple[str, ...] = ()

    def batches(self) -> Iterator[Batch]:
        """The tallies, of one key each."""
        if self.held is not None:
            yield from self.held.to_batches()
        for name in self.files:
            yield from read_answer(self.folder, name)


def joined_keys(folder: AnswerFolder, answers: Sequence[Message]) -> BrokenKeys:
    """The tallies in the files that tasks wrote, of distinct keys."""
    files = tuple(str(answer["name"]) for answer in answers if answer["rows"])
    found = BrokenKeys(folder=folder, total=sum(int(answer["rows"]) for answer in answers), files=files)
    if found.total > _HELD_KEYS:
        return found
    return replace(found, held=pa.Table.from_batches(list(found.batches()), TALLY), files=())


class Tally:
    """Counts keys with the workers of one bulk operation."""

    def __init__(self, workers: Workers, folder: AnswerFolder, *, small_rows: int | None = None) -> None:
        self._workers = workers
        self._folder = folder
        #: Rows of a write that this process counts; None: any number.
        self._small_rows = small_rows

    # ---- which keys

    def find(self, counted: Sequence[Counted], breaks: Breaks, owner: str | None = None) -> BrokenKeys:
        """The keys of new or replaced rows whose tallies are wanted; `owner` is a column that tells rows apart."""
        if owner is not None:
            counted = [
                replace(one, scans=tuple(replace(scan, extra=(owner,)) for scan in one.scans)) for one in counted
            ]
        asked = [scan for one in counted if one.side in (Side.NEW, Side.GONE) for scan in one.scans]
        others = [scan for one in counted if one.side is Side.OLD for scan in one.scans]
        if self._small_rows is None or is_few(total_rows(asked), others, self._small_rows):
            held = _wanted(_tallied_here(counted, owner), breaks)
            return BrokenKeys(folder=self._folder, total=held.num_rows, held=held)
        return self._find_in_tasks(counted, breaks, owner, total_rows([*asked, *others]))

    def _find_in_tasks(self, counted: Sequence[Counted], breaks: Breaks, owner: str | None, rows: int) -> BrokenKeys:
        buckets = max(self._workers.parallelism, rows // _BUCKET_ROWS + 1)
        exchange = Exchange(
            stage="count keys",
            items=list(_items(counted, 2 * self._workers.parallelism)),
            read=_ReadTallies(buckets, owner),
            schema=_SENT,
            buckets=buckets,
            handle=_Keep(breaks, self._folder),
        )
        answers = run_exchange(exchange, self._workers, self._folder)
        files = tuple(str(answer["name"]) for answer in answers if answer["keys"])
        total = sum(int(answer["keys"]) for answer in answers)
        found = BrokenKeys(folder=self._folder, total=total, files=files)
        if total > _HELD_KEYS:
            return found
        held = pa.Table.from_batches(list(found.batches()), TALLY)
        return BrokenKeys(folder=self._folder, total=total, held=held)

    # ---- which rows

    def rows(self, scans: Sequence[KeyScan], keys: BrokenKeys, handle: Handle) -> list[Message]:
        """The answers of a function to all rows that have one of the keys, piece by piece."""
        if not keys.total or not scans:
            return []
        if keys.held is None:
            return self._rows_in_tasks(scans, keys, handle)
        if self._small_rows is None or total_rows(scans) <= self._small_rows:
            # Handing out little work would take longer.
            workers: Workers = LocalWorkers(Silent())
        else:
            workers, scans = self._workers, cut_scans(scans, 2 * self._workers.parallelism)
        items = [_Search(number, scan, keys.held, handle) for number, scan in enumerate(scans)]
        return workers.run("find rows", _search, items)

    def _rows_in_tasks(self, scans: Sequence[KeyScan], keys: BrokenKeys, handle: Handle) -> list[Message]:
        buckets = max(self._workers.parallelism, (total_rows(scans) + keys.total) // _BUCKET_ROWS + 1)
        items: list[KeyScan | tuple[AnswerFolder, str]] = [*cut_scans(scans, 2 * self._workers.parallelism)]
        items += [(keys.folder, name) for name in keys.files]
        exchange = Exchange(
            stage="find rows",
            items=items,
            read=_ReadMatches(buckets),
            schema=pa.schema([(BUCKET, pa.int32()), *MATCHED]),
            buckets=buckets,
            handle=_Match(handle),
        )
        return run_exchange(exchange, self._workers, self._folder)


# ---- which tallies are wanted


def is_missing(tallies: Rows) -> Column:
    """A mask of the keys of edges that no node has."""
    found: Column = pc.and_(pc.greater(tallies["new"], 0), pc.equal(tallies["old"], 0))
    return found


def is_shared(tallies: Rows) -> Column:
    """A mask of the keys that several rows have, one of them new."""
    several = pc.greater(pc.add(tallies["new"], tallies["old"]), 1)
    found: Column = pc.and_(pc.greater(tallies["new"], 0), several)
    return found


def is_outside(low: int, high: int | None, tallies: Rows) -> Column:
    """A mask of the sources whose number of edges is outside of bounds; one without any edge is exempt."""
    count = pc.add(tallies["new"], tallies["old"])
    is_bad = pc.less(count, low)
    if high is not None:
        is_bad = pc.or_(is_bad, pc.greater(count, high))
    found: Column = pc.and_(is_bad, pc.greater(count, 0))
    return found


# ---- counting


_Item = tuple[Side, "KeyScan | tuple[KeyFiles, str]"]


def _items(counted: Sequence[Counted], tasks: int) -> Iterator[_Item]:
    for one in counted:
        yield from ((one.side, scan) for scan in cut_scans(one.scans, tasks))
        if one.keys is not None:
            yield from ((one.side, (one.keys, name)) for name in one.keys.names)


def _tables_of(source: KeyScan | tuple[KeyFiles, str]) -> Iterator[Rows]:
    """Tables with a column `key`, and the owner where a scan has one."""
    if isinstance(source, KeyScan):
        yield from scan_keys(source)
        return
    keys, name = source
    for batch in keys.batches(name):
        yield pa.Table.from_batches([batch])


def _tallied(side: Side, rows: Rows, owner: str | None) -> Rows:
    """The tallies of the keys of some rows of one side."""
    is_owned = owner is not None and owner in rows.column_names
    wanted: list[tuple[str | None, str]] = [(owner, "min"), (owner, "max")] if is_owned else []
    wanted += [("address", "min"), ("address", "max")] if side is Side.NEW else []
    grouped = _grouped(rows, [("key", "count"), *wanted])
    columns = {str(other): pa.array(np.zeros(grouped.num_rows, np.int64)) for other in Side}
    columns |= {"key": grouped["key"], str(side): grouped["key_count"]}
    columns |= {"low": grouped[f"{owner}_min"], "high": grouped[f"{owner}_max"]} if is_owned else {}
    columns |= {"first": grouped["address_min"], "last": grouped["address_max"]} if side is Side.NEW else {}
    arrays = [columns.get(item.name, pa.nulls(grouped.num_rows, item.type)) for item in TALLY]
    found: Rows = pa.Table.from_arrays(arrays, schema=TALLY)
    return found


def _grouped(rows: Any, wanted: Sequence[tuple[str | None, str]]) -> Any:
    """The rows of each key together."""
    return rows.group_by("key").aggregate(list(wanted))


def _added(tallies: Rows) -> Rows:
    """Tallies with one for each key."""
    sums: list[tuple[str | None, str]] = [(str(side), "sum") for side in Side]
    # Texts are slow to compare, and where rows have no owners there are none.
    ends = [("first", "min"), ("last", "max"), ("low", "min"), ("high", "max")]
    wanted = [*sums, *(one for one in ends if tallies[one[0]].null_count < tallies.num_rows)]
    # Long keys of one bucket may take more than the two gigabytes of a plain array of texts.
    keys = tallies["key"].cast(pa.large_utf8())
    grouped = _grouped(tallies.set_column(0, "key", keys), wanted)
    columns = {str(name): grouped[f"{name}_{how}"] for name, how in wanted} | {"key": grouped["key"]}
    nothing = {item.name: pa.nulls(grouped.num_rows, item.type) for item in TALLY if item.name not in columns}
    found: Rows = pa.table({name: (columns | nothing)[name] for name in TALLY.names}).cast(TALLY)
    return found


def _wanted(tallies: Rows, breaks: Breaks) -> Rows:
    added = _added(tallies)
    is_asked = pc.greater(pc.add(added["new"], added["gone"]), 0)
    return added.filter(pc.and_(is_asked, breaks(added)))


def _tallied_here(counted: Sequence[Counted], owner: str | None) -> Rows:
    """Tallies of all rows, in memory; those of rows that stay only where the others have such keys."""
    asked = [one for one in counted if one.side in (Side.NEW, Side.GONE)]
    tallies = [_tallied(one.side, table, owner) for one in asked for scan in one.scans for table in scan_keys(scan)]
    mine = _added(pa.concat_tables([TALLY.empty_table(), *tallies]))
    wanted = mine["key"].combine_chunks()
    found = [mine]
    for one in counted:
        if one.side in (Side.OLD, Side.REFUSED):
            tables: Iterable[Rows] = _found_here(one, wanted, asked)
            found += [_tallied(one.side, table, owner) for table in tables]
    together: Rows = pa.concat_tables(found)
    return together


def _found_here(one: Counted, wanted: Array, asked: Sequence[Counted]) -> Iterator[Rows]:
    if one.scans:
        brought = [scan for other in asked for scan in other.scans]
        is_joined = len(one.scans[0].members) > 1
        yield from find_keys(one.scans, wanted, first_members(brought) if is_joined else wanted)
    for name in one.keys.names if one.keys is not None else ():
        assert one.keys is not None, "its names were just read"
        for table in _tables_of((one.keys, name)):
            yield table.filter(pc.is_in(table["key"], wanted))


@frozen
class _ReadTallies:
    buckets: int
    owner: str | None

    def __call__(self, item: _Item) -> Iterator[Batch]:
        side, source = item
        for table in _tables_of(source):
            tallies = _tallied(side, table, self.owner).combine_chunks()
            keys = tallies["key"].combine_chunks()
            buckets = hash_buckets(text_hashes(keys), self.buckets)
            yield from tallies.add_column(0, _SENT.field(0), buckets).to_batches()


@frozen
class _Keep:
    breaks: Breaks
    folder: AnswerFolder

    def __call__(self, bucket: int, rows: Rows) -> Message:
        kept = _wanted(rows.select(TALLY.names), self.breaks)
        name = attempt_name("keys", bucket)
        if kept.num_rows:
            write_answer(self.folder, name, TALLY, kept.to_batches())
        return {"name": name, "keys": kept.num_rows, "rows": rows.num_rows}


# ---- finding rows


@frozen
class _Search:
    number: int
    scan: KeyScan
    keys: Rows
    handle: Handle


def _search(item: _Search) -> Message:
    return item.handle(item.number, _matches(item.scan, item.keys))


def _matches(scan: KeyScan, keys: Rows) -> Iterator[Rows]:
    wanted = keys["key"].combine_chunks()
    for table in work_steps(scan_keys(scan)):
        yield _joined(table, keys, wanted)


def _joined(rows: Rows, keys: Rows, wanted: Array) -> Rows:
    """The rows that have one of the keys, with their tallies."""
    places = pc.index_in(rows["key"].cast(wanted.type), wanted).combine_chunks()
    tallies = keys.take(places.drop_null())
    found = rows.filter(places.is_valid())
    # A scan has its owner behind key and address.
    owners = found.column(2) if found.num_columns > 2 else pa.nulls(found.num_rows, pa.utf8())
    columns = [found["address"], owners, *tallies.columns]
    matched: Rows = pa.Table.from_arrays(columns, schema=MATCHED)
    return matched


@frozen
class _ReadMatches:
    buckets: int

    def __call__(self, item: KeyScan | tuple[AnswerFolder, str]) -> Iterator[Batch]:
        tables: Iterable[Rows]
        if isinstance(item, KeyScan):
            names = ["key", "address", "owner"][: 2 + len(item.extra)]
            tables = (table.rename_columns(names) for table in scan_keys(item))
        else:
            tables = (pa.Table.from_batches([batch]) for batch in read_answer(*item))
        for table in tables:
            given = {name: table[name].combine_chunks() for name in table.column_names}
            given[BUCKET] = hash_buckets(text_hashes(given["key"]), self.buckets)
            schema = pa.schema([(BUCKET, pa.int32()), *MATCHED])
            columns = [given.get(item.name, pa.nulls(table.num_rows, item.type)) for item in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@frozen
class _Match:
    handle: Handle

    def __call__(self, bucket: int, rows: Rows) -> Message:
        is_row = rows["address"].is_valid()
        keys = rows.filter(pc.invert(is_row)).select(TALLY.names)
        wanted = keys["key"].cast(pa.large_utf8()).combine_chunks()
        found = rows.filter(is_row).select(["key", "address", "owner"])
        return self.handle(bucket, iter([_joined(found, keys, wanted)]))
